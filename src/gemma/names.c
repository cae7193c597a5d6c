#include "gemma/names.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- taking a name apart ---------------------------------------------------------------------------------------- */

/* A text tensor's name in pieces: [prefix] module [suffix], with the layer's number apart. */
struct parts {
    const char *rest;           /* after the language model's prefix, "layers.3.mlp.up_proj.weight"; "lm_head.weight" */
    char module[96];            /* within the layer or the model: "mlp.up_proj", "norm", "lm_head" */
    int layer;                  /* -1 = global */
    int expert;                 /* experts.E.…: E, and module is "experts.N.up_proj"; else -1 */
    enum gemma_class cls;
};

static const struct { const char *module; enum gemma_class cls; } globals[] = {
    {"embed_tokens", GC_EMBED}, {"embed_tokens_per_layer", GC_PLE}, {"lm_head", GC_HEAD},
    {"per_layer_model_projection", GC_LINEAR}, {"per_layer_projection_norm", GC_PLAIN}, {"norm", GC_PLAIN},
};

static const struct { const char *module; enum gemma_class cls; } in_layer[] = {
    {"self_attn.q_proj", GC_LINEAR}, {"self_attn.k_proj", GC_LINEAR}, {"self_attn.v_proj", GC_LINEAR}, {"self_attn.o_proj", GC_LINEAR},
    {"mlp.gate_proj", GC_LINEAR}, {"mlp.up_proj", GC_LINEAR}, {"mlp.down_proj", GC_LINEAR},
    {"per_layer_input_gate", GC_LINEAR}, {"per_layer_projection", GC_LINEAR},
    {"experts.N.gate_proj", GC_LINEAR}, {"experts.N.up_proj", GC_LINEAR}, {"experts.N.down_proj", GC_LINEAR},
    {"experts.gate_up_proj", GC_EXPERTS}, {"experts.down_proj", GC_EXPERTS},
    {"router.proj", GC_ROUTER}, {"router.scale", GC_PLAIN}, {"router.per_expert_scale", GC_PLAIN},
    {"input_layernorm", GC_PLAIN}, {"post_attention_layernorm", GC_PLAIN}, {"pre_feedforward_layernorm", GC_PLAIN},
    {"post_feedforward_layernorm", GC_PLAIN}, {"post_per_layer_input_norm", GC_PLAIN}, {"pre_feedforward_layernorm_2", GC_PLAIN},
    {"post_feedforward_layernorm_1", GC_PLAIN}, {"post_feedforward_layernorm_2", GC_PLAIN},
    {"self_attn.q_norm", GC_PLAIN}, {"self_attn.k_norm", GC_PLAIN}, {"layer_scalar", GC_PLAIN},
};

static const char *skip(const char *s, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(s, prefix, n) ? NULL : s + n;
}

/* Digits and a dot; NULL when there are none. */
static const char *skip_number(const char *s, int *value)
{
    long v = 0;
    const char *p = s;

    for (; isdigit((unsigned char)*p) && v < 1000000; p++)
        v = 10 * v + (*p - '0');
    if (p == s || *p != '.' || (*s == '0' && p > s + 1))
        return NULL;
    *value = (int)v;
    return p + 1;
}

static size_t module_length(const char *s)
{
    static const char *const suffixes[] = {".weight", ".weight_q4", "_q4", ".weight_packed", ".weight_scale", ".weight_shape",
                                           ".weight_zero_point", ".weight_g_idx", ".input_scale", ".bias"};
    const size_t n = strlen(s);

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t k = strlen(suffixes[i]);
        if (n > k && !strcmp(s + n - k, suffixes[i]))
            return n - k;
    }
    return n;
}

/* "experts.7.up_proj" to "experts.N.up_proj"; the loader's own "moe.experts." counts as "experts.". */
static bool take_module(struct parts *p, const char *s)
{
    const char *bank = skip(s, "moe.experts.");
    if (bank)
        s = bank - strlen("experts.");
    const char *inside = skip(s, "experts."), *after = inside ? skip_number(inside, &p->expert) : NULL;
    const size_t n = module_length(after ? after : s);
    const int written = snprintf(p->module, sizeof p->module, "%s%.*s", after ? "experts.N." : "", (int)n, after ? after : s);

    return written > 0 && (size_t)written < sizeof p->module;
}

static const char *after_prefix(const char *name)
{
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.", "language_model.", "model."};

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (skip(name, prefixes[i]))
            return skip(name, prefixes[i]);
    return NULL;
}

/* false: no tensor of the language model. */
static bool take_apart(const char *name, struct parts *p)
{
    *p = (struct parts){.layer = -1, .expert = -1, .cls = GC_UNKNOWN};
    p->rest = skip(name, "lm_head.") ? name : after_prefix(name);
    if (!p->rest)
        return false;
    const char *layer = skip(p->rest, "layers."), *module = layer ? skip_number(layer, &p->layer) : p->rest;
    if (!module || !take_module(p, module))
        return false;
    if (p->layer >= 0) {
        for (size_t i = 0; i < sizeof in_layer / sizeof *in_layer; i++)
            if (!strcmp(p->module, in_layer[i].module))
                p->cls = in_layer[i].cls;
    } else {
        for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
            if (!strcmp(p->module, globals[i].module))
                p->cls = globals[i].cls;
    }
    return p->cls != GC_UNKNOWN;
}

static bool is_tower(const char *name)
{
    static const char *const towers[] = {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.", "vision_embedder.", "multi_modal_projector."};
    const char *s = skip(name, "model.");

    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (skip(s ? s : name, towers[i]))
            return true;
    return false;
}

/* ---- what the header offers ------------------------------------------------------------------------------------- */

const char *gemma_class_name(enum gemma_class c)
{
    static const char *const names[] = {
        [GC_LINEAR] = "linear", [GC_EXPERTS] = "experts", [GC_ROUTER] = "router", [GC_EMBED] = "embed", [GC_PLE] = "ple", [GC_HEAD] = "head",
        [GC_PLAIN] = "plain", [GC_TOWER] = "tower", [GC_FILE] = "file", [GC_UNKNOWN] = "unknown",
    };

    return names[c];
}

enum gemma_class gemma_classify(const char *name)
{
    struct parts p;

    if (skip(name, "file:"))
        return GC_FILE;
    if (is_tower(name))
        return GC_TOWER;
    return take_apart(name, &p) ? p.cls : GC_UNKNOWN;
}

bool gemma_text_name(const char *name, char *out, size_t size)
{
    struct parts p;

    if (!take_apart(name, &p))
        return false;
    const int n = snprintf(out, size, "%s%s", p.cls == GC_HEAD ? "" : "model.", p.rest);
    return n > 0 && (size_t)n < size;
}

int gemma_layer_of(const char *name)
{
    struct parts p;
    return take_apart(name, &p) ? p.layer : -1;
}

bool gemma_fused_key(const char *name, char *out, size_t size)
{
    static const struct { const char *member, *fused; } groups[] = {
        {"self_attn.q_proj", "self_attn.qkv_proj"}, {"self_attn.k_proj", "self_attn.qkv_proj"}, {"self_attn.v_proj", "self_attn.qkv_proj"},
        {"mlp.gate_proj", "mlp.gate_up_proj"}, {"mlp.up_proj", "mlp.gate_up_proj"},
    };
    struct parts p;
    int n;

    if (!take_apart(name, &p))
        return false;
    const char *key = p.module;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (!strcmp(p.module, groups[i].member))
            key = groups[i].fused;
    if (skip(p.module, "experts."))
        key = "experts";
    if (p.layer >= 0)
        n = snprintf(out, size, "model.layers.%d.%s", p.layer, key);
    else
        n = snprintf(out, size, "%s%s", p.cls == GC_HEAD ? "" : "model.", key);
    return n > 0 && (size_t)n < size;
}

bool gemma_is_dead(const struct gemma *g, const char *name)
{
    struct parts p;

    if (!take_apart(name, &p) || p.layer < 0 || p.layer >= g->layers || g->layer[p.layer].kv_from == p.layer)
        return false;
    return !strcmp(p.module, "self_attn.k_proj") || !strcmp(p.module, "self_attn.v_proj") || !strcmp(p.module, "self_attn.k_norm");
}

/* ---- the list of a model's tensors ------------------------------------------------------------------------------ */

struct list { struct gemma_tensor *t; size_t n, cap; };

static void add(struct list *l, int layer, const char *module, int ndim, const uint64_t shape[4])
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->t = xreallocarray(l->t, l->cap, sizeof *l->t);
    }
    struct gemma_tensor *t = &l->t[l->n++];
    *t = (struct gemma_tensor){.layer = layer, .ndim = ndim};
    memcpy(t->shape, shape, sizeof t->shape);
    if (layer >= 0)
        snprintf(t->name, sizeof t->name, "model.layers.%d.%s", layer, module);
    else
        snprintf(t->name, sizeof t->name, "%s%s", skip(module, "lm_head.") ? "" : "model.", module);
    t->cls = gemma_classify(t->name);
}

static void add_vector(struct list *l, int layer, const char *module, int n)
{
    add(l, layer, module, 1, (uint64_t[4]){(uint64_t)n});
}

static void add_matrix(struct list *l, int layer, const char *module, int rows, int columns)
{
    add(l, layer, module, 2, (uint64_t[4]){(uint64_t)rows, (uint64_t)columns});
}

static void add_bank(struct list *l, int layer, const char *module, int experts, int rows, int columns)
{
    add(l, layer, module, 3, (uint64_t[4]){(uint64_t)experts, (uint64_t)rows, (uint64_t)columns});
}

static void add_globals(struct list *l, const struct gemma *g)
{
    add_matrix(l, -1, "embed_tokens.weight", g->vocab, g->hidden);
    if (!g->tied)
        add_matrix(l, -1, "lm_head.weight", g->vocab, g->hidden);
    if (g->ple) {
        add_matrix(l, -1, "embed_tokens_per_layer.weight", g->ple_vocab, g->layers * g->ple);
        add_matrix(l, -1, "per_layer_model_projection.weight", g->layers * g->ple, g->hidden);
        add_vector(l, -1, "per_layer_projection_norm.weight", g->ple);
    }
    add_vector(l, -1, "norm.weight", g->hidden);
}

static void add_attention(struct list *l, const struct gemma *g, int i)
{
    const struct gemma_layer *y = &g->layer[i];
    const int q = g->heads * y->head_dim, kv = y->kv_heads * y->head_dim;

    add_matrix(l, i, "self_attn.q_proj.weight", q, g->hidden);
    if (y->kv_from == i) {
        add_matrix(l, i, "self_attn.k_proj.weight", kv, g->hidden);
        if (!y->v_is_k)
            add_matrix(l, i, "self_attn.v_proj.weight", kv, g->hidden);
        add_vector(l, i, "self_attn.k_norm.weight", y->head_dim);
    }
    add_matrix(l, i, "self_attn.o_proj.weight", g->hidden, q);
    add_vector(l, i, "self_attn.q_norm.weight", y->head_dim);
}

static void add_experts(struct list *l, const struct gemma *g, int i)
{
    add_matrix(l, i, "router.proj.weight", g->experts, g->hidden);
    add_vector(l, i, "router.scale", g->hidden);
    add_vector(l, i, "router.per_expert_scale", g->experts);
    add_bank(l, i, "experts.gate_up_proj", g->experts, 2 * g->expert_mlp, g->hidden);
    add_bank(l, i, "experts.down_proj", g->experts, g->hidden, g->expert_mlp);
    add_vector(l, i, "pre_feedforward_layernorm_2.weight", g->hidden);
    add_vector(l, i, "post_feedforward_layernorm_1.weight", g->hidden);
    add_vector(l, i, "post_feedforward_layernorm_2.weight", g->hidden);
}

static void add_layer(struct list *l, const struct gemma *g, int i)
{
    const int mlp = g->layer[i].mlp;

    add_vector(l, i, "input_layernorm.weight", g->hidden);
    add_attention(l, g, i);
    add_vector(l, i, "post_attention_layernorm.weight", g->hidden);
    add_vector(l, i, "pre_feedforward_layernorm.weight", g->hidden);
    add_matrix(l, i, "mlp.gate_proj.weight", mlp, g->hidden);
    add_matrix(l, i, "mlp.up_proj.weight", mlp, g->hidden);
    add_matrix(l, i, "mlp.down_proj.weight", g->hidden, mlp);
    add_vector(l, i, "post_feedforward_layernorm.weight", g->hidden);
    if (g->experts)
        add_experts(l, g, i);
    if (g->ple) {
        add_matrix(l, i, "per_layer_input_gate.weight", g->ple, g->hidden);
        add_matrix(l, i, "per_layer_projection.weight", g->hidden, g->ple);
        add_vector(l, i, "post_per_layer_input_norm.weight", g->hidden);
    }
}

struct gemma_tensor *gemma_text_tensors(const struct gemma *g, size_t *n)
{
    struct list l = {0};

    add_globals(&l, g);
    for (int i = 0; i < g->layers; i++)
        add_layer(&l, g, i);
    for (int i = 0; g->layer_scalar && i < g->layers; i++)
        add_vector(&l, i, "layer_scalar", 1);
    *n = l.n;
    return l.t;
}
