/* What a Gemma is, against files that transformers wrote (tests/golden) and against the published sizes. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "gemma/names.h"
#include "gemma/preset.h"
#include "gemma/towers.h"
#include "tensor/stream.h"

static struct err e;

static void ok(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, e.msg);
    abort();
}

static json_t *golden_config(const char *size)
{
    char *path = xasprintf("%s/tests/golden/%s-nano/config.json", getenv("Q4ROOT") ? getenv("Q4ROOT") : ".", size);
    json_t *config = json_parse_file(path, &e);

    ok(config ? 0 : -1, path);
    free(path);
    return config;
}

/* ---- the golden checkpoints ------------------------------------------------------------------------------------- */

static struct st_reader *golden_header(const char *size)
{
    char *path = xasprintf("%s/tests/golden/%s-nano/model.safetensors.zst", getenv("Q4ROOT") ? getenv("Q4ROOT") : ".", size);
    struct st_reader *r = st_open(path, &e);

    ok(r ? 0 : -1, path);
    free(path);
    return r;
}

static bool same_shape(const struct st_tensor *a, const struct gemma_tensor *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)b->ndim * sizeof *b->shape);
}

/* Every listed tensor is in the file under its text-only name with its shape, and the file has no text tensor beyond. */
static void text_list_equals_file(const struct gemma *g, const struct st_header *h)
{
    size_t n, in_file = 0;
    struct gemma_tensor *list = gemma_text_tensors(g, &n);

    for (size_t i = 0; i < h->n; i++) {
        char name[128];
        if (!gemma_text_name(h->t[i].name, name, sizeof name))
            continue;
        size_t k = 0;
        while (k < n && strcmp(list[k].name, name))
            k++;
        assert(k < n && same_shape(&h->t[i], &list[k]));
        assert(list[k].cls == gemma_classify(h->t[i].name) && list[k].layer == gemma_layer_of(h->t[i].name));
        in_file++;
    }
    assert(in_file == n);
    free(list);
}

static void tower_list_equals_file(const json_t *config, const struct st_header *h)
{
    struct gemma_tensor *list;
    size_t n, in_file = 0;

    ok(gemma_tower_tensors(config, "config.json", &list, &n, &e), "towers");
    for (size_t i = 0; i < h->n; i++)
        in_file += gemma_classify(h->t[i].name) == GC_TOWER;
    assert(in_file == n);
    for (size_t k = 0; k < n; k++) {
        const struct st_tensor *t = st_find(h, list[k].name);
        assert(t && same_shape(t, &list[k]) && gemma_classify(list[k].name) == GC_TOWER);
    }
    free(list);
}

static void golden_checkpoints(void)
{
    static const char *const size[] = {"e2b", "e4b", "12b", "26b", "31b", "gemma3"};

    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        json_t *config = golden_config(size[i]), *lifted = gemma_config_lift(config);
        struct st_reader *r = golden_header(size[i]);
        struct gemma g, from_lifted;

        ok(gemma_config_read(&g, config, "config.json", &e), size[i]);
        ok(gemma_config_read(&from_lifted, lifted, "lifted", &e), size[i]);
        assert(!strcmp(gemma_size_name(&g), size[i]));
        assert(g.wrapped == (strcmp(size[i], "gemma3") != 0) && !from_lifted.wrapped);
        from_lifted.wrapped = g.wrapped;
        assert(!memcmp(&g, &from_lifted, sizeof g));
        text_list_equals_file(&g, st_header_of(r));
        tower_list_equals_file(config, st_header_of(r));
        st_close(r);
        json_decref(config);
        json_decref(lifted);
        printf("ok: %s: tensors of config.json = tensors of the file, lifted config reads the same\n", size[i]);
    }
}

/* ---- the true sizes --------------------------------------------------------------------------------------------- */

static uint64_t count(const struct gemma_tensor *t, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t x = 1;
        for (int d = 0; d < t[i].ndim; d++)
            x *= t[i].shape[d];
        sum += x;
    }
    return sum;
}

/* The published counts: tensors and bytes of the text export, tensors and parameters of the towers. */
static void true_sizes(void)
{
    static const struct { const char *size; size_t tensors; uint64_t bytes; size_t tower_tensors; uint64_t tower_params; } want[] = {
        {"e2b", 540, 9257138758, 658 + 1 + 751 + 1, 167365056 + 1536 * 768 + 304825088 + 1536 * 1536},
        {"e4b", 665, 14926026836, 658 + 1 + 751 + 1, 167365056 + 2560 * 768 + 304825088 + 2560 * 1536},
        {"12b", 666, 23814700640, 9 + 1 + 1, 35176704 + 14745600 + 2457600},
        {"26b", 657, 50466283580, 355 + 1, 569550384 + 2816 * 1152},
        {"31b", 832, 61394690680, 355 + 1, 569550384 + 5376 * 1152},
        {"gemma3", 236, 536196352, 0, 0},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        json_t *config = gemma_preset(want[i].size, true, true);
        struct gemma g;
        size_t n, tn;
        struct gemma_tensor *towers;

        ok(gemma_config_read(&g, config, want[i].size, &e), want[i].size);
        assert(!strcmp(gemma_size_name(&g), want[i].size));
        struct gemma_tensor *text = gemma_text_tensors(&g, &n);
        ok(gemma_tower_tensors(config, want[i].size, &towers, &tn, &e), want[i].size);
        assert(n == want[i].tensors && 2 * count(text, n) == want[i].bytes);
        assert(tn == want[i].tower_tensors && count(towers, tn) == want[i].tower_params);
        free(text);
        free(towers);
        json_decref(config);
        printf("ok: %s at true size: %zu text tensors of %llu bytes, %zu tower tensors\n", want[i].size, n, (unsigned long long)want[i].bytes, tn);
    }
}

/* ---- config fields ---------------------------------------------------------------------------------------------- */

static void layer_table(void)
{
    json_t *config = gemma_preset("e2b", true, false);
    struct gemma g;

    ok(gemma_config_read(&g, config, "e2b", &e), "e2b");
    assert(g.layers == 35 && g.ple == 256 && g.tied && g.softcap == 30 && g.score_scale == 1 && g.n_eos == 2 && g.eos[1] == 106);
    assert(g.layer[4].full && g.layer[4].head_dim == 512 && g.layer[4].rope_pairs == 64 && g.layer[4].rope_theta == 1e6);
    assert(!g.layer[3].full && g.layer[3].head_dim == 256 && g.layer[3].rope_pairs == 128 && g.layer[3].rope_theta == 1e4);
    assert(g.layer[14].kv_from == 14 && g.layer[14].mlp == 6144);
    assert(g.layer[15].kv_from == 13 && g.layer[19].kv_from == 14 && g.layer[34].kv_from == 14 && g.layer[15].mlp == 12288);
    assert(gemma_is_dead(&g, "model.language_model.layers.15.self_attn.k_proj.weight"));
    assert(gemma_is_dead(&g, "model.layers.34.self_attn.k_norm.weight") && !gemma_is_dead(&g, "model.layers.34.self_attn.q_norm.weight"));
    assert(!gemma_is_dead(&g, "model.layers.14.self_attn.v_proj.weight"));
    json_decref(config);

    config = gemma_preset("12b", true, false);
    ok(gemma_config_read(&g, config, "12b", &e), "12b");
    assert(g.unified && g.layer[5].v_is_k && g.layer[5].kv_heads == 1 && !g.layer[4].v_is_k && g.layer[4].kv_heads == 8);
    json_decref(config);
    printf("ok: layer table: sharing, double-wide MLP, k = v, heads and ropes by type\n");
}

/* The two spellings of the same thing: per-layer heads of transformers 5.24, ropes and layer pattern of old Gemma 3. */
static void other_spellings(void)
{
    json_t *config = gemma_preset("12b", false, false), *text = json_object_get(config, "text_config");
    struct gemma a, b;

    ok(gemma_config_read(&a, config, "global fields", &e), "12b");
    json_object_del(text, "global_head_dim");
    json_object_del(text, "num_global_key_value_heads");
    json_object_set_new(text, "per_layer_config", json_pack("{s:{s:i, s:i}, s:{s:i, s:i}}", "02", "head_dim", 64, "num_key_value_heads", 1,
                                                            "05", "head_dim", 64, "num_key_value_heads", 1));
    ok(gemma_config_read(&b, config, "per-layer fields", &e), "12b");
    assert(!memcmp(&a, &b, sizeof a));
    json_decref(config);

    config = gemma_preset("gemma3", false, false);
    ok(gemma_config_read(&a, config, "old rope", &e), "gemma3");
    json_object_del(config, "rope_theta");
    json_object_del(config, "rope_local_base_freq");
    json_object_del(config, "layer_types");
    json_object_set_new(config, "_sliding_window_pattern", json_integer(6));
    json_object_set_new(config, "rope_parameters", json_pack("{s:{s:f, s:s}, s:{s:f, s:s}}", "full_attention", "rope_theta", 1e6, "rope_type", "default",
                                                             "sliding_attention", "rope_theta", 1e4, "rope_type", "default"));
    ok(gemma_config_read(&b, config, "new rope", &e), "gemma3");
    assert(!memcmp(&a, &b, sizeof a) && a.layer[5].full && !a.layer[4].full && a.norm_plus_one && a.score_scale * a.score_scale * 32 > 0.999);
    json_object_set_new(config, "rope_parameters", json_pack("{s:{s:f, s:s, s:f}}", "full_attention", "rope_theta", 1e6, "rope_type", "linear", "factor", 8.0));
    ok(gemma_config_read(&b, config, "linear rope", &e), "gemma3");
    assert(b.layer[5].rope_factor == 8 && b.layer[4].rope_factor == 1);
    json_decref(config);
    printf("ok: both spellings of per-layer heads, ropes and layer patterns\n");
}

static void lifted(void)
{
    json_t *config = gemma_preset("12b", false, false);

    json_object_set_new(config, "quantization_config", json_object());
    json_object_set_new(json_object_get(config, "text_config"), "tie_word_embeddings", json_false());
    json_t *out = gemma_config_lift(config);
    assert(!strcmp(json_string_value(json_array_get(json_object_get(out, "architectures"), 0)), "Gemma4ForCausalLM"));
    assert(!strcmp(json_string_value(json_object_get(out, "model_type")), "gemma4_unified_text"));
    assert(json_array_size(json_object_get(out, "eos_token_id")) == 2 && json_is_false(json_object_get(out, "tie_word_embeddings")));
    assert(json_object_get(out, "quantization_config") && json_object_get(out, "transformers_version") && !json_object_get(out, "vision_config"));
    json_decref(out);
    json_decref(config);

    config = gemma_preset("gemma3", false, false);
    out = gemma_config_lift(config);
    assert(json_is_true(json_object_get(out, "tie_word_embeddings")));
    json_object_del(out, "tie_word_embeddings");
    assert(json_equal(out, config));
    json_decref(out);
    json_decref(config);
    printf("ok: lifted config\n");
}

/* One changed field and a word that the message must hold. */
static void refused(void)
{
    static const struct { const char *key, *value, *word; } faults[] = {
        {"model_type", "\"llama\"", "model_type is \"llama\": expected gemma4, gemma4_unified, gemma3 or their _text forms"}, {"hidden_activation", "\"silu\"", "hidden_activation is \"silu\": only gelu_pytorch_tanh is supported"}, {"attention_bias", "true", "attention_bias is true: Gemma text models have none"},
        {"hidden_size", "null", "hidden_size is missing: not a complete config of a Gemma text model"}, {"hidden_size", "-5", "hidden_size is -5, expected 1 to 16777216: not a config of a Gemma text model"}, {"hidden_size", "\"256\"", "hidden_size"},
        {"num_hidden_layers", "7", "layer_types has 9 entries, num_hidden_layers is 7"}, {"num_hidden_layers", "100000", "num_hidden_layers is 100000: at most 256 are supported"},
        {"num_attention_heads", "3", "heads"}, {"head_dim", "33", "head_dim must be even and the heads must divide"}, {"num_kv_shared_layers", "9", "shares K and V, but no layer before layer 0 has its type"},
        {"rope_parameters", "{\"full_attention\": {\"rope_type\": \"yarn\"}}", "rope_type is \"yarn\": expected default, linear or proportional"},
        {"rope_parameters", "{\"full_attention\": {\"partial_rotary_factor\": 0.5}}", "partial_rotary_factor is 0.5: only supported with rope_type proportional"},
        {"rope_parameters", "{\"sliding_attention\": {\"rope_theta\": -1.0}}", "rope_theta -1, factor 1, partial_rotary_factor 1: expected rope_theta from 1 on, factor above 0, partial_rotary_factor above 0 and at most 1"}, {"sliding_window", "0", "sliding_window"},
        {"rope_parameters", "{\"sliding_attention\": {\"rope_theta\": 1e-308}}", "rope_theta 1e-308"}, {"rms_norm_eps", "1e300", "rms_norm_eps, final_logit_softcapping or query_pre_attn_scalar is out of range"},
        {"final_logit_softcapping", "1e300", "is out of range"}, {"query_pre_attn_scalar", "1e300", "is out of range"},
        {"attn_logit_softcapping", "50.0", "attn_logit_softcapping is 50: only null is supported"}, {"use_bidirectional_attention", "true", "use_bidirectional_attention is set for text: only causal models are supported"},
        {"layer_types", "[1,2,3,4,5,6,7,8,9]", "layer_types[0] is no string: expected sliding_attention or full_attention"}, {"num_attention_heads", "16777216", "16777216 heads of 32: too large"},
        {"eos_token_id", "[1,2,3,4,5,6,7,8,9]", "eos_token_id has 9 entries: at most 8 are supported"},
        {"bos_token_id", "-1", "bos_token_id is no token id"}, {"hidden_size_per_layer_input", "16777216", "hidden_size_per_layer_input is 16777216 for 9 layers: too large"},
        {"per_layer_config", "{\"99\": {}}", "per_layer_config has an entry \"99\": expected layer numbers below 9"}, {"num_experts", "8", "top_k_experts"},
    };

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        json_t *config = gemma_preset("e4b", false, false), *text = json_object_get(config, "text_config");
        struct gemma g;
        json_object_del(config, faults[i].key);
        json_object_del(text, "enable_moe_block");
        json_object_set_new(text, faults[i].key, json_loads(faults[i].value, JSON_DECODE_ANY, NULL));
        e.code = 0;
        if (gemma_config_read(&g, config, "config.json", &e) == 0 || e.code != EXIT_DATA || !strstr(e.msg, faults[i].word)) {
            fprintf(stderr, "%s = %s: code %d, \"%s\"\n", faults[i].key, faults[i].value, e.code, e.msg);
            abort();
        }
        json_decref(config);
    }
    e.code = 0;
    printf("ok: %zu configs refused, each naming the field\n", sizeof faults / sizeof *faults);
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static void classes(void)
{
    static const struct { const char *name; enum gemma_class cls; int layer; const char *text, *key; } want[] = {
        {"model.language_model.embed_tokens.weight", GC_EMBED, -1, "model.embed_tokens.weight", "model.embed_tokens"},
        {"language_model.model.embed_tokens_per_layer.weight_packed", GC_PLE, -1, "model.embed_tokens_per_layer.weight_packed", "model.embed_tokens_per_layer"},
        {"lm_head.weight_q4", GC_HEAD, -1, "lm_head.weight_q4", "lm_head"},
        {"language_model.lm_head.weight", GC_HEAD, -1, "lm_head.weight", "lm_head"},
        {"model.norm.weight", GC_PLAIN, -1, "model.norm.weight", "model.norm"},
        {"model.language_model.per_layer_model_projection.weight", GC_LINEAR, -1, "model.per_layer_model_projection.weight", "model.per_layer_model_projection"},
        {"model.language_model.layers.3.self_attn.k_proj.weight_scale", GC_LINEAR, 3, "model.layers.3.self_attn.k_proj.weight_scale", "model.layers.3.self_attn.qkv_proj"},
        {"model.layers.12.mlp.up_proj", GC_LINEAR, 12, "model.layers.12.mlp.up_proj", "model.layers.12.mlp.gate_up_proj"},
        {"model.layers.12.mlp.down_proj.weight", GC_LINEAR, 12, "model.layers.12.mlp.down_proj.weight", "model.layers.12.mlp.down_proj"},
        {"model.layers.0.experts.gate_up_proj_q4", GC_EXPERTS, 0, "model.layers.0.experts.gate_up_proj_q4", "model.layers.0.experts"},
        {"model.layers.0.experts.127.down_proj.weight_shape", GC_LINEAR, 0, "model.layers.0.experts.127.down_proj.weight_shape", "model.layers.0.experts"},
        {"model.layers.0.moe.experts.1.up_proj.weight", GC_LINEAR, 0, "model.layers.0.moe.experts.1.up_proj.weight", "model.layers.0.experts"},
        {"model.layers.0.router.proj.weight", GC_ROUTER, 0, "model.layers.0.router.proj.weight", "model.layers.0.router.proj"},
        {"model.layers.0.router.scale", GC_PLAIN, 0, "model.layers.0.router.scale", "model.layers.0.router.scale"},
        {"model.layers.7.layer_scalar", GC_PLAIN, 7, "model.layers.7.layer_scalar", "model.layers.7.layer_scalar"},
        {"model.vision_tower.encoder.layers.3.self_attn.k_proj.linear.weight", GC_TOWER, -1, NULL, NULL},
        {"vision_embedder.patch_dense.weight", GC_TOWER, -1, NULL, NULL},
        {"model.embed_audio.embedding_projection.weight", GC_TOWER, -1, NULL, NULL},
        {"file:tokenizer.json", GC_FILE, -1, NULL, NULL},
        {"model.layers.x.mlp.up_proj.weight", GC_UNKNOWN, -1, NULL, NULL},
        {"model.layers.03.mlp.up_proj.weight", GC_UNKNOWN, -1, NULL, NULL},
        {"model.layers.3.self_attn.rotary_emb.inv_freq", GC_UNKNOWN, -1, NULL, NULL},
        {"norm.weight", GC_UNKNOWN, -1, NULL, NULL},
        {"", GC_UNKNOWN, -1, NULL, NULL},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char text[128], key[128];
        const bool is_text = gemma_text_name(want[i].name, text, sizeof text);
        assert(gemma_classify(want[i].name) == want[i].cls);
        assert(is_text == (want[i].text != NULL) && gemma_fused_key(want[i].name, key, sizeof key) == is_text);
        if (is_text)
            assert(!strcmp(text, want[i].text) && !strcmp(key, want[i].key) && gemma_layer_of(want[i].name) == want[i].layer);
    }
    char small[8];
    assert(!gemma_text_name("model.embed_tokens.weight", small, sizeof small));
    printf("ok: %zu names: class, layer, text-only spelling, fused key\n", sizeof want / sizeof *want);
}

int main(void)
{
    prog_init("gemma");
    golden_checkpoints();
    true_sizes();
    layer_table();
    other_spellings();
    lifted();
    refused();
    classes();
    return 0;
}
