#include "ct/quant_config.h"
#include <stdio.h>
#include <string.h>

static const char *format_of(enum ct_kind k)
{
    return k == CT_FP8 ? "float-quantized" : k == CT_INT8 ? "int-quantized" : "pack-quantized";
}

static json_t *args(int bits, bool is_float, const char *strategy, int group, bool dynamic)
{
    json_t *a = json_object();

    json_object_set_new(a, "num_bits", json_integer(bits));
    json_object_set_new(a, "type", json_string(is_float ? "float" : "int"));
    json_object_set_new(a, "symmetric", json_true());
    json_object_set_new(a, "strategy", json_string(strategy));
    json_object_set_new(a, "group_size", group ? json_integer(group) : json_null());
    json_object_set_new(a, "dynamic", json_boolean(dynamic));
    json_object_set_new(a, "actorder", json_null());
    json_object_set_new(a, "block_structure", json_null());
    json_object_set_new(a, "observer", json_null());
    json_object_set_new(a, "observer_kwargs", json_object());
    return a;
}

static void add_group(json_t *groups, const char *name, const char *target, const struct ct_scheme *s)
{
    json_t *g;

    if (s->kind == CT_PLAIN)
        return;
    g = json_object();
    json_object_set_new(g, "targets", json_pack("[s]", target));
    json_object_set_new(g, "format", json_string(format_of(s->kind)));
    json_object_set_new(g, "output_activations", json_null());
    json_object_set_new(g, "input_activations", s->act8 ? args(8, s->kind == CT_FP8, "token", 0, true) : json_null());
    json_object_set_new(g, "weights", args(s->bits, s->kind == CT_FP8, s->group ? "group" : "channel", s->group, false));
    json_object_set_new(groups, name, g);
}

static bool packs(const struct ct_scheme *s)
{
    return s->kind == CT_PACKED;
}

json_t *ct_quant_config(const struct ct_layout *l, json_t *ignore)
{
    bool tables = packs(&l->ple) || packs(&l->embed) || packs(&l->head);
    json_t *q = json_object(), *groups = json_object();

    json_object_set_new(q, "quant_method", json_string("compressed-tensors"));
    json_object_set_new(q, "format", json_string(tables ? "pack-quantized" : format_of(l->linear.kind)));
    json_object_set_new(q, "quantization_status", json_string("compressed"));
    add_group(groups, "group_0", "Linear", &l->linear);
    add_group(groups, "group_embed_tokens_per_layer", "re:.*\\.embed_tokens_per_layer$", &l->ple);
    add_group(groups, "group_embed_tokens", "re:.*\\.embed_tokens$", &l->embed);
    /* A multimodal model's head is language_model.lm_head at run time. */
    add_group(groups, "group_lm_head", l->arch == CT_TEXT ? "re:^lm_head$" : "re:.*lm_head$", &l->head);
    json_object_set_new(q, "config_groups", groups);
    json_object_set(q, "ignore", ignore);
    json_object_set_new(q, "kv_cache_scheme", json_null());
    json_object_set_new(q, "sparsity_config", json_object());
    return q;
}

void ct_build_name(const struct ct_layout *l, bool has_ple, char out[32])
{
    static const char *const linears[] = {"bf16", "", "fp8", "int8"};
    bool ple = packs(&l->ple), embed = packs(&l->embed), head = packs(&l->head);
    const char *tables = !ple && !embed && !head ? "" : embed && head && ple == has_ple ? "emb4" : ple && !embed && !head ? "ple4" : "mixed";
    char name[24];

    snprintf(name, sizeof name, "%s%s", linears[l->linear.kind], tables);
    if (l->arch == CT_TEXT)
        snprintf(out, 32, "%s", *name ? name : "text");
    else
        snprintf(out, 32, "full%s", name);
}

void ct_set_tied(json_t *config, bool tied)
{
    json_t *text = json_object_get(config, "text_config");

    json_object_set_new(config, "tie_word_embeddings", json_boolean(tied));
    if (json_is_object(text))
        json_object_set_new(text, "tie_word_embeddings", json_boolean(tied));
}

static void set_missing(json_t *obj, const char *key, json_t *value)
{
    if (json_object_get(obj, key))
        json_decref(value);
    else
        json_object_set_new(obj, key, value);
}

static json_t *copy_or_null(const json_t *obj, const char *key)
{
    json_t *v = json_object_get(obj, key);

    return v ? json_incref(v) : json_null();
}

void ct_complete_unified(json_t *config)
{
    json_t *vision = json_object_get(config, "vision_config"), *text = json_object_get(config, "text_config");
    json_int_t patch = json_integer_value(json_object_get(vision, "patch_size"));
    json_int_t pool = json_integer_value(json_object_get(vision, "pooling_kernel_size"));

    if (json_is_object(vision)) {
        set_missing(vision, "num_soft_tokens", json_integer(280));
        set_missing(vision, "model_patch_size", json_integer(patch > 0 && pool > 0 ? patch * pool : 48));
    }
    set_missing(config, "hidden_size", copy_or_null(text, "hidden_size"));
    set_missing(config, "intermediate_size", copy_or_null(text, "intermediate_size"));
    set_missing(config, "hidden_act", copy_or_null(text, "hidden_activation"));
    set_missing(config, "moe_intermediate_size", json_null());
    set_missing(config, "num_experts", json_null());
    set_missing(config, "num_experts_per_tok", json_null());
}
