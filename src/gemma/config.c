#include "gemma/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* One dimension larger than any Gemma's and small enough that products of three fit 64 bits. */
#define MAX_DIM (1 << 24)

/* What is being read: the object that holds the text fields, and its name in messages. */
struct source { const json_t *text; const char *where; struct err *e; };

static int get_dim(const struct source *s, const char *key, long long def, long long min, int *out)
{
    long long v;

    if (json_get_int(s->text, key, def, &v, s->where, s->e) < 0)
        return -1;
    if (v < min || v > MAX_DIM)
        return err_set(s->e, EXIT_DATA, "%s: %s is %lld, expected %lld to %d: not a config of a Gemma text model",
                       s->where, key, v, min, MAX_DIM);
    *out = (int)v;
    return 0;
}

/* A field without a default: its absence reads as -1. */
static int need_dim(const struct source *s, const char *key, int *out)
{
    json_t *v = json_object_get(s->text, key);

    if (!v || json_is_null(v))
        return err_set(s->e, EXIT_DATA, "%s: %s is missing: not a complete config of a Gemma text model", s->where, key);
    return get_dim(s, key, -1, 1, out);
}

static int read_model_type(struct gemma *g, const struct source *s)
{
    static const struct { const char *name; enum gemma_family family; bool unified; } types[] = {
        {"gemma4", GEMMA_4, false}, {"gemma4_text", GEMMA_4, false},
        {"gemma4_unified", GEMMA_4, true}, {"gemma4_unified_text", GEMMA_4, true},
        {"gemma3", GEMMA_3, false}, {"gemma3_text", GEMMA_3, false},
    };
    const char *type;

    if (json_get_str(s->text, "model_type", "", &type, s->where, s->e) < 0)
        return -1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i].name)) {
            g->family = types[i].family;
            g->unified = types[i].unified;
            return 0;
        }
    return err_set(s->e, EXIT_DATA, "%s: model_type is \"%s\": expected gemma4, gemma4_unified, gemma3 or their _text forms",
                   s->where, type);
}

/* Features of other Gemma-like models: computing on without them would give plausible nonsense. */
static int refuse_unknown(const struct source *s)
{
    const char *activation;
    bool bias;
    double attn_cap;
    const json_t *both_ways = json_object_get(s->text, "use_bidirectional_attention");

    if (json_get_str(s->text, "hidden_activation", "gelu_pytorch_tanh", &activation, s->where, s->e) < 0 ||
        json_get_bool(s->text, "attention_bias", false, &bias, s->where, s->e) < 0 ||
        json_get_real(s->text, "attn_logit_softcapping", 0, &attn_cap, s->where, s->e) < 0)
        return -1;
    if (strcmp(activation, "gelu_pytorch_tanh"))
        return err_set(s->e, EXIT_DATA, "%s: hidden_activation is \"%s\": only gelu_pytorch_tanh is supported", s->where, activation);
    if (bias)
        return err_set(s->e, EXIT_DATA, "%s: attention_bias is true: Gemma text models have none", s->where);
    if (attn_cap > 0)
        return err_set(s->e, EXIT_DATA, "%s: attn_logit_softcapping is %g: only null is supported", s->where, attn_cap);
    if (json_is_true(both_ways) || (json_is_string(both_ways) && strcmp(json_string_value(both_ways), "vision")))
        return err_set(s->e, EXIT_DATA, "%s: use_bidirectional_attention is set for text: only causal models are supported", s->where);
    return 0;
}

static int read_sizes(struct gemma *g, const struct source *s)
{
    int max_positions;

    if (need_dim(s, "hidden_size", &g->hidden) < 0 || need_dim(s, "num_hidden_layers", &g->layers) < 0 ||
        need_dim(s, "num_attention_heads", &g->heads) < 0 || need_dim(s, "vocab_size", &g->vocab) < 0 ||
        need_dim(s, "sliding_window", &g->window) < 0 ||
        get_dim(s, "hidden_size_per_layer_input", 0, 0, &g->ple) < 0 ||
        get_dim(s, "vocab_size_per_layer_input", g->vocab, 0, &g->ple_vocab) < 0 ||
        get_dim(s, "max_position_embeddings", 131072, 1, &max_positions) < 0)
        return -1;
    if (g->layers > GEMMA_MAX_LAYERS)
        return err_set(s->e, EXIT_DATA, "%s: num_hidden_layers is %d: at most %d are supported", s->where, g->layers, GEMMA_MAX_LAYERS);
    if (g->family == GEMMA_3)
        g->ple = 0;
    if ((long long)g->layers * g->ple > MAX_DIM)
        return err_set(s->e, EXIT_DATA, "%s: hidden_size_per_layer_input is %d for %d layers: too large", s->where, g->ple, g->layers);
    if (!g->ple)
        g->ple_vocab = 0;
    else if (!g->ple_vocab)
        return err_set(s->e, EXIT_DATA, "%s: vocab_size_per_layer_input is 0 although hidden_size_per_layer_input is %d", s->where, g->ple);
    g->max_positions = max_positions;
    return 0;
}

static int read_experts(struct gemma *g, const struct source *s)
{
    bool moe;
    int experts;

    if (get_dim(s, "num_experts", 0, 0, &experts) < 0 ||
        json_get_bool(s->text, "enable_moe_block", experts > 0, &moe, s->where, s->e) < 0)
        return -1;
    if (!moe || g->family == GEMMA_3)
        return 0;
    const char *width = json_object_get(s->text, "moe_intermediate_size") ? "moe_intermediate_size" : "expert_intermediate_size";
    if (need_dim(s, "num_experts", &g->experts) < 0 || need_dim(s, "top_k_experts", &g->top_k) < 0 ||
        need_dim(s, width, &g->expert_mlp) < 0)
        return -1;
    if (g->top_k > g->experts)
        return err_set(s->e, EXIT_DATA, "%s: top_k_experts is %d of num_experts %d", s->where, g->top_k, g->experts);
    return 0;
}

static int read_numerics(struct gemma *g, const struct source *s)
{
    double pre_attn;

    if (json_get_real(s->text, "rms_norm_eps", 1e-6, &g->eps, s->where, s->e) < 0 ||
        json_get_real(s->text, "final_logit_softcapping", 0, &g->softcap, s->where, s->e) < 0 ||
        json_get_real(s->text, "query_pre_attn_scalar", 256, &pre_attn, s->where, s->e) < 0)
        return -1;
    if (!(g->eps > 0 && g->eps < 1) || !(g->softcap >= 0 && g->softcap <= 1e6) || !(pre_attn > 0 && pre_attn <= 1e6))
        return err_set(s->e, EXIT_DATA, "%s: rms_norm_eps, final_logit_softcapping or query_pre_attn_scalar is out of range", s->where);
    const bool four = g->family == GEMMA_4;
    g->score_scale = four ? 1 : 1 / sqrt(pre_attn);
    g->norm_plus_one = !four;
    g->v_norm = g->layer_scalar = four;
    return 0;
}

/* ids of the top level win over those of text_config; null counts as absent. */
static const json_t *id_field(const json_t *top, const json_t *text, const char *key)
{
    const json_t *v = json_object_get(top, key);
    return v && !json_is_null(v) ? v : json_object_get(text, key);
}

static int read_id(const json_t *v, const char *key, int def, int *out, const struct source *s)
{
    *out = def;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > MAX_DIM)
        return err_set(s->e, EXIT_DATA, "%s: %s is no token id", s->where, key);
    *out = (int)json_integer_value(v);
    return 0;
}

static int read_ids(struct gemma *g, const json_t *top, const struct source *s)
{
    const json_t *eos = id_field(top, s->text, "eos_token_id");
    const size_t n = json_is_array(eos) ? json_array_size(eos) : eos && !json_is_null(eos);

    if (n > GEMMA_MAX_EOS)
        return err_set(s->e, EXIT_DATA, "%s: eos_token_id has %zu entries: at most %d are supported", s->where, n, GEMMA_MAX_EOS);
    for (size_t i = 0; i < n; i++)
        if (read_id(json_is_array(eos) ? json_array_get(eos, i) : eos, "eos_token_id", 1, &g->eos[i], s) < 0)
            return -1;
    g->n_eos = (int)n;
    return read_id(id_field(top, s->text, "bos_token_id"), "bos_token_id", 2, &g->bos, s) < 0 ||
           read_id(id_field(top, s->text, "pad_token_id"), "pad_token_id", 0, &g->pad, s) < 0 ? -1 : 0;
}

static int read_tie(struct gemma *g, const json_t *top, const struct source *s)
{
    bool outer, inner;

    if (json_get_bool(top, "tie_word_embeddings", true, &outer, s->where, s->e) < 0 ||
        json_get_bool(s->text, "tie_word_embeddings", true, &inner, s->where, s->e) < 0)
        return -1;
    g->tied = outer && inner;
    return 0;
}

/* layer_types, or a pattern: every n-th layer full. Gemma 4 forces the last layer to full, listed or not. */
static int read_layer_types(struct gemma *g, const struct source *s)
{
    const json_t *types = json_object_get(s->text, "layer_types");
    const char *key = json_object_get(s->text, "sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    int pattern;

    if (get_dim(s, key, 6, 1, &pattern) < 0)
        return -1;
    if (types && !json_is_null(types) && json_array_size(types) != (size_t)g->layers)
        return err_set(s->e, EXIT_DATA, "%s: layer_types has %zu entries, num_hidden_layers is %d", s->where, json_array_size(types), g->layers);
    for (int i = 0; i < g->layers; i++) {
        if (!types || json_is_null(types)) {
            g->layer[i].full = (i + 1) % pattern == 0;
            continue;
        }
        const char *t = json_string_value(json_array_get(types, (size_t)i));
        if (!t || (strcmp(t, "full_attention") && strcmp(t, "sliding_attention")))
            return err_set(s->e, EXIT_DATA, "%s: layer_types[%d] is %s: expected sliding_attention or full_attention", s->where, i, t ? t : "no string");
        g->layer[i].full = !strcmp(t, "full_attention");
    }
    if (g->family == GEMMA_4)
        g->layer[g->layers - 1].full = true;
    return 0;
}

/* per_layer_config: {"05": {"head_dim": 512, "num_key_value_heads": 1}, …}, which transformers 5.24 writes in place of the two global fields. */
static int read_layer_overrides(struct gemma *g, const struct source *s)
{
    json_t *layers = json_object_get(s->text, "per_layer_config");
    const char *key;
    json_t *fields;

    json_object_foreach(layers, key, fields) {
        char *end;
        const long i = strtol(key, &end, 10);
        char where[256];

        if (end == key || *end || i < 0 || i >= g->layers || !json_is_object(fields))
            return err_set(s->e, EXIT_DATA, "%s: per_layer_config has an entry \"%s\": expected layer numbers below %d", s->where, key, g->layers);
        snprintf(where, sizeof where, "%s: per_layer_config.%s", s->where, key);
        const struct source inner = {fields, where, s->e};
        if (get_dim(&inner, "head_dim", g->layer[i].head_dim, 1, &g->layer[i].head_dim) < 0 ||
            get_dim(&inner, "num_key_value_heads", g->layer[i].kv_heads, 1, &g->layer[i].kv_heads) < 0)
            return -1;
    }
    return 0;
}

static int read_heads(struct gemma *g, const struct source *s)
{
    bool k_eq_v;
    int dim, full_dim, kv, full_kv;

    if (json_get_bool(s->text, "attention_k_eq_v", false, &k_eq_v, s->where, s->e) < 0 ||
        get_dim(s, "head_dim", 256, 1, &dim) < 0 || need_dim(s, "num_key_value_heads", &kv) < 0 ||
        get_dim(s, "global_head_dim", 512, 1, &full_dim) < 0 ||
        get_dim(s, "num_global_key_value_heads", kv, 1, &full_kv) < 0)
        return -1;
    if (g->family == GEMMA_3) {
        full_dim = dim;
        k_eq_v = false;
    }
    for (int i = 0; i < g->layers; i++) {
        struct gemma_layer *l = &g->layer[i];
        l->v_is_k = l->full && k_eq_v;
        l->head_dim = l->full ? full_dim : dim;
        l->kv_heads = l->v_is_k ? full_kv : kv;
    }
    if (read_layer_overrides(g, s) < 0)
        return -1;
    for (int i = 0; i < g->layers; i++) {
        const struct gemma_layer *l = &g->layer[i];
        if ((long long)g->heads * l->head_dim > MAX_DIM)
            return err_set(s->e, EXIT_DATA, "%s: layer %d has %d heads of %d: too large", s->where, i, g->heads, l->head_dim);
        if (l->head_dim % 2 || g->heads % l->kv_heads)
            return err_set(s->e, EXIT_DATA, "%s: layer %d has head_dim %d and %d key/value heads for %d heads: head_dim must be even and the heads must divide",
                           s->where, i, l->head_dim, l->kv_heads, g->heads);
    }
    return 0;
}

/* The last num_kv_shared_layers read K and V of the last layer before them that has their type; on E2B they alone have the double-wide MLP. */
static int read_sharing(struct gemma *g, const struct source *s)
{
    int shared, width;
    bool wide;

    if (get_dim(s, "num_kv_shared_layers", 0, 0, &shared) < 0 || need_dim(s, "intermediate_size", &width) < 0 ||
        json_get_bool(s->text, "use_double_wide_mlp", false, &wide, s->where, s->e) < 0)
        return -1;
    if (g->family == GEMMA_3)
        shared = 0;
    const int first = g->layers - shared;
    for (int i = 0; i < g->layers; i++) {
        struct gemma_layer *l = &g->layer[i];
        l->kv_from = i;
        l->mlp = i >= first && wide ? 2 * width : width;
        if (i < first)
            continue;
        do
            l->kv_from--;
        while (l->kv_from >= 0 && (l->kv_from >= first || g->layer[l->kv_from].full != l->full));
        if (l->kv_from < 0)
            return err_set(s->e, EXIT_DATA, "%s: layer %d shares K and V, but no layer before layer %d has its type", s->where, i, first);
    }
    return 0;
}

/* One kind of layer's rope. */
struct rope { double theta, factor, partial; };

/* fields: rope_parameters.KIND of new configs; absent = the defaults in *r. */
static int read_rope_kind(const json_t *fields, struct rope *r, const char *kind, const struct source *s)
{
    char where[256];
    const char *type;

    if (!fields || json_is_null(fields))
        return 0;
    snprintf(where, sizeof where, "%s: rope of %s", s->where, kind);
    const char *type_key = json_object_get(fields, "rope_type") ? "rope_type" : "type";
    if (json_get_str(fields, type_key, "default", &type, where, s->e) < 0 ||
        json_get_real(fields, "rope_theta", r->theta, &r->theta, where, s->e) < 0 ||
        json_get_real(fields, "factor", 1, &r->factor, where, s->e) < 0 ||
        json_get_real(fields, "partial_rotary_factor", 1, &r->partial, where, s->e) < 0)
        return -1;
    if (strcmp(type, "default") && strcmp(type, "proportional") && strcmp(type, "linear"))
        return err_set(s->e, EXIT_DATA, "%s: rope_type is \"%s\": expected default, linear or proportional", where, type);
    if (strcmp(type, "proportional") && r->partial != 1)
        return err_set(s->e, EXIT_DATA, "%s: partial_rotary_factor is %g: only supported with rope_type proportional", where, r->partial);
    if (!strcmp(type, "default"))
        r->factor = 1;
    if (!(r->theta >= 1) || !(r->factor > 0) || !(r->partial > 0 && r->partial <= 1))
        return err_set(s->e, EXIT_DATA, "%s: rope_theta %g, factor %g, partial_rotary_factor %g: expected rope_theta from 1 on, factor above 0, partial_rotary_factor above 0 and at most 1", where, r->theta, r->factor, r->partial);
    return 0;
}

/* New configs: rope_parameters by layer type.  Old Gemma 3: rope_theta and rope_scaling for full layers, rope_local_base_freq for sliding ones. */
static int read_rope(struct gemma *g, const struct source *s)
{
    const json_t *parameters = json_object_get(s->text, "rope_parameters");
    struct rope full = {1e6, 1, g->family == GEMMA_4 ? 0.25 : 1}, sliding = {1e4, 1, 1};

    if (json_get_real(s->text, "rope_theta", full.theta, &full.theta, s->where, s->e) < 0 ||
        json_get_real(s->text, "rope_local_base_freq", sliding.theta, &sliding.theta, s->where, s->e) < 0)
        return -1;
    const json_t *of_full = json_is_object(parameters) ? json_object_get(parameters, "full_attention") : json_object_get(s->text, "rope_scaling");
    if (read_rope_kind(of_full, &full, "full_attention", s) < 0 ||
        read_rope_kind(json_object_get(parameters, "sliding_attention"), &sliding, "sliding_attention", s) < 0)
        return -1;
    for (int i = 0; i < g->layers; i++) {
        struct gemma_layer *l = &g->layer[i];
        const struct rope *r = l->full ? &full : &sliding;
        l->rope_theta = r->theta;
        l->rope_factor = r->factor;
        l->rope_pairs = (int)floor(r->partial * l->head_dim / 2);
    }
    return 0;
}

int gemma_config_read(struct gemma *g, const json_t *config, const char *where, struct err *e)
{
    const json_t *text = json_object_get(config, "text_config");
    const struct source s = {json_is_object(text) ? text : config, where, e};

    memset(g, 0, sizeof *g);
    if (!json_is_object(config))
        return err_set(e, EXIT_DATA, "%s: no JSON object: expected a model's config.json", where);
    g->wrapped = s.text != config;
    return read_model_type(g, &s) < 0 || refuse_unknown(&s) < 0 || read_sizes(g, &s) < 0 || read_experts(g, &s) < 0 ||
           read_numerics(g, &s) < 0 || read_ids(g, config, &s) < 0 || read_tie(g, config, &s) < 0 ||
           read_layer_types(g, &s) < 0 || read_heads(g, &s) < 0 || read_sharing(g, &s) < 0 || read_rope(g, &s) < 0 ? -1 : 0;
}

/* dst.key = top.key, when there is one. */
static void take(json_t *dst, const json_t *top, const char *key)
{
    json_t *v = json_object_get(top, key);
    if (v && !json_is_null(v))
        json_object_set_new(dst, key, json_deep_copy(v));
}

json_t *gemma_config_lift(const json_t *config)
{
    const json_t *text = json_object_get(config, "text_config");
    static const char *const from_top[] = {"transformers_version", "quantization_config", "bos_token_id", "eos_token_id", "pad_token_id"};
    json_t *out = json_deep_copy(json_is_object(text) ? text : config);
    const bool tied = !json_is_false(json_object_get(config, "tie_word_embeddings")) && !json_is_false(json_object_get(out, "tie_word_embeddings"));

    if (json_is_object(text)) {
        const char *type = json_string_value(json_object_get(out, "model_type"));
        const char *class = type && !strncmp(type, "gemma3", 6) ? "Gemma3ForCausalLM" : "Gemma4ForCausalLM";
        json_object_set_new(out, "architectures", json_pack("[s]", class));
        for (size_t i = 0; i < sizeof from_top / sizeof *from_top; i++)
            take(out, config, from_top[i]);
        take(out, config, json_object_get(config, "dtype") ? "dtype" : "torch_dtype");
    }
    json_object_set_new(out, "tie_word_embeddings", json_boolean(tied));
    return out;
}

const char *gemma_size_name(const struct gemma *g)
{
    if (g->family == GEMMA_3)
        return "gemma3";
    if (g->ple)
        return g->layer[g->layers - 1].mlp != g->layer[0].mlp ? "e2b" : "e4b";
    return g->unified ? "12b" : g->experts ? "26b" : "31b";
}
