#include "gemma/towers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* What is being built; the first error stays and ends up with the caller. */
struct list {
    struct gemma_tensor *t;
    size_t n, cap;
    const json_t *fields;       /* the tower's config */
    const char *where;
    struct err *e;
};

enum { MOST = 65536, MOST_PIXELS = 256 };       /* of a dimension, of a patch's side: no product of them leaves 64 bits */

/* A field of the tower's config; 1 after an error, so that the list can be finished and thrown away. */
static uint64_t field_up_to(struct list *l, const char *key, int most)
{
    const json_t *v = json_object_get(l->fields, key);
    const json_int_t x = json_integer_value(v);

    if (json_is_integer(v) && x > 0 && x <= most)
        return (uint64_t)x;
    (void)err_set(l->e, EXIT_DATA, "%s: %s is missing or no number from 1 to %d: towers cannot be laid out", l->where, key, most);
    return 1;
}

static uint64_t field(struct list *l, const char *key) { return field_up_to(l, key, MOST); }

static void add(struct list *l, const char *prefix, const char *name, int ndim, const uint64_t shape[4])
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->t = xreallocarray(l->t, l->cap, sizeof *l->t);
    }
    struct gemma_tensor *t = &l->t[l->n++];
    *t = (struct gemma_tensor){.cls = GC_TOWER, .layer = -1, .ndim = ndim};
    memcpy(t->shape, shape, sizeof t->shape);
    snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
}

static void add_vector(struct list *l, const char *prefix, const char *name, uint64_t n)
{
    add(l, prefix, name, 1, (uint64_t[4]){n});
}

static void add_matrix(struct list *l, const char *prefix, const char *name, uint64_t rows, uint64_t columns)
{
    add(l, prefix, name, 2, (uint64_t[4]){rows, columns});
}

/* A linear wrapped as NAME.linear, with four scalar bounds where the tower clips its activations. */
static void add_linear(struct list *l, const char *prefix, const char *name, uint64_t rows, uint64_t columns, bool clipped)
{
    static const char *const bounds[] = {"input_min", "input_max", "output_min", "output_max"};
    char full[96];

    snprintf(full, sizeof full, "%s.linear.weight", name);
    add_matrix(l, prefix, full, rows, columns);
    for (size_t i = 0; clipped && i < sizeof bounds / sizeof *bounds; i++) {
        snprintf(full, sizeof full, "%s.%s", name, bounds[i]);
        add(l, prefix, full, 0, (uint64_t[4]){0});
    }
}

static void add_vision_layer(struct list *l, const char *p, bool clipped)
{
    static const char *const norms[] = {"input_layernorm.weight", "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight",
                                        "post_feedforward_layernorm.weight"};
    const uint64_t hidden = field(l, "hidden_size"), mlp = field(l, "intermediate_size"), head = field(l, "head_dim");
    const uint64_t q = head * field(l, "num_attention_heads"), kv = head * field(l, "num_key_value_heads");

    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        add_vector(l, p, norms[i], hidden);
    add_linear(l, p, "self_attn.q_proj", q, hidden, clipped);
    add_linear(l, p, "self_attn.k_proj", kv, hidden, clipped);
    add_linear(l, p, "self_attn.v_proj", kv, hidden, clipped);
    add_linear(l, p, "self_attn.o_proj", hidden, q, clipped);
    add_vector(l, p, "self_attn.q_norm.weight", head);
    add_vector(l, p, "self_attn.k_norm.weight", head);
    add_linear(l, p, "mlp.gate_proj", mlp, hidden, clipped);
    add_linear(l, p, "mlp.up_proj", mlp, hidden, clipped);
    add_linear(l, p, "mlp.down_proj", hidden, mlp, clipped);
}

static void add_vision(struct list *l, uint64_t text_hidden)
{
    const bool clipped = json_is_true(json_object_get(l->fields, "use_clipped_linears"));
    const uint64_t hidden = field(l, "hidden_size"), patch = field_up_to(l, "patch_size", MOST_PIXELS);
    const uint64_t layers = field_up_to(l, "num_hidden_layers", GEMMA_MAX_LAYERS);
    const char *tower = "model.vision_tower.";

    add_matrix(l, tower, "patch_embedder.input_proj.weight", hidden, 3 * patch * patch);
    add(l, tower, "patch_embedder.position_embedding_table", 3, (uint64_t[4]){2, field(l, "position_embedding_size"), hidden});
    for (uint64_t i = 0; i < layers && !l->e->code; i++) {
        char p[64];
        snprintf(p, sizeof p, "%sencoder.layers.%llu.", tower, (unsigned long long)i);
        add_vision_layer(l, p, clipped);
    }
    if (json_is_true(json_object_get(l->fields, "standardize"))) {
        add_vector(l, tower, "std_bias", hidden);
        add_vector(l, tower, "std_scale", hidden);
    }
    add_matrix(l, "model.embed_vision.", "embedding_projection.weight", text_hidden, hidden);
}

static void add_audio_feed_forward(struct list *l, const char *layer, const char *name, uint64_t hidden, bool clipped)
{
    char p[96];

    snprintf(p, sizeof p, "%s%s.", layer, name);
    add_vector(l, p, "pre_layer_norm.weight", hidden);
    add_linear(l, p, "ffw_layer_1", 4 * hidden, hidden, clipped);
    add_linear(l, p, "ffw_layer_2", hidden, 4 * hidden, clipped);
    add_vector(l, p, "post_layer_norm.weight", hidden);
}

/* A conformer block: feed-forward, attention, light convolution, feed-forward. */
static void add_audio_layer(struct list *l, const char *p, bool clipped)
{
    static const char *const projections[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.post"};
    const uint64_t hidden = field(l, "hidden_size"), heads = field(l, "num_attention_heads"), head = hidden / heads;

    if (hidden % heads)
        (void)err_set(l->e, EXIT_DATA, "%s: num_attention_heads is %llu, which does not divide hidden_size %llu: towers cannot be laid out", l->where,
            (unsigned long long)heads, (unsigned long long)hidden);
    add_audio_feed_forward(l, p, "feed_forward1", hidden, clipped);
    add_vector(l, p, "norm_pre_attn.weight", hidden);
    for (size_t i = 0; i < sizeof projections / sizeof *projections; i++)
        add_linear(l, p, projections[i], hidden, hidden, clipped);
    add_matrix(l, p, "self_attn.relative_k_proj.weight", hidden, hidden);
    add_vector(l, p, "self_attn.per_dim_scale", head);
    add_vector(l, p, "norm_post_attn.weight", hidden);
    add_vector(l, p, "lconv1d.pre_layer_norm.weight", hidden);
    add_linear(l, p, "lconv1d.linear_start", 2 * hidden, hidden, clipped);
    add(l, p, "lconv1d.depthwise_conv1d.weight", 3, (uint64_t[4]){hidden, 1, field(l, "conv_kernel_size")});
    add_vector(l, p, "lconv1d.conv_norm.weight", hidden);
    add_linear(l, p, "lconv1d.linear_end", hidden, hidden, clipped);
    add_audio_feed_forward(l, p, "feed_forward2", hidden, clipped);
    add_vector(l, p, "norm_out.weight", hidden);
}

/* Two 3x3 convolutions halve time and frequency each; 128 mel bins leave channels[0] / 4 columns of channels[1]. */
static void add_audio(struct list *l, uint64_t text_hidden)
{
    const bool clipped = json_is_true(json_object_get(l->fields, "use_clipped_linears"));
    const uint64_t hidden = field(l, "hidden_size"), layers = field_up_to(l, "num_hidden_layers", GEMMA_MAX_LAYERS);
    const uint64_t out = field(l, "output_proj_dims");
    const json_t *channels = json_object_get(l->fields, "subsampling_conv_channels");
    const json_int_t c0 = json_integer_value(json_array_get(channels, 0)), c1 = json_integer_value(json_array_get(channels, 1));
    const char *tower = "model.audio_tower.";

    if (c0 < 4 || c0 > 4096 || c1 < 1 || c1 > 4096) {
        (void)err_set(l->e, EXIT_DATA, "%s: subsampling_conv_channels is no pair of channel counts: towers cannot be laid out", l->where);
        return;
    }
    const uint64_t a = (uint64_t)c0, b = (uint64_t)c1;
    add(l, tower, "subsample_conv_projection.layer0.conv.weight", 4, (uint64_t[4]){a, 1, 3, 3});
    add_vector(l, tower, "subsample_conv_projection.layer0.norm.weight", a);
    add(l, tower, "subsample_conv_projection.layer1.conv.weight", 4, (uint64_t[4]){b, a, 3, 3});
    add_vector(l, tower, "subsample_conv_projection.layer1.norm.weight", b);
    add_matrix(l, tower, "subsample_conv_projection.input_proj_linear.weight", hidden, a / 4 * b);
    for (uint64_t i = 0; i < layers && !l->e->code; i++) {
        char p[64];
        snprintf(p, sizeof p, "%slayers.%llu.", tower, (unsigned long long)i);
        add_audio_layer(l, p, clipped);
    }
    add_matrix(l, tower, "output_proj.weight", out, hidden);
    add_vector(l, tower, "output_proj.bias", out);
    add_matrix(l, "model.embed_audio.", "embedding_projection.weight", text_hidden, out);
}

/* 12B: patches of patch_size * pooling_kernel_size pixels a side go straight into the language model. */
static void add_unified_vision(struct list *l, uint64_t text_hidden)
{
    const uint64_t dim = field(l, "mm_embed_dim"), patch = field_up_to(l, "patch_size", MOST_PIXELS), pool = field_up_to(l, "pooling_kernel_size", MOST_PIXELS);
    const uint64_t pixels = 3 * patch * pool * patch * pool;
    const struct { const char *name; uint64_t n; } norms[] = {{"patch_ln1", pixels}, {"patch_ln2", dim}, {"pos_norm", dim}};
    const char *p = "model.vision_embedder.";

    add_matrix(l, p, "patch_dense.weight", dim, pixels);
    add_vector(l, p, "patch_dense.bias", dim);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.weight", norms[i].name);
        add_vector(l, p, name, norms[i].n);
        snprintf(name, sizeof name, "%s.bias", norms[i].name);
        add_vector(l, p, name, norms[i].n);
    }
    add(l, p, "pos_embedding", 3, (uint64_t[4]){field(l, "mm_posemb_size"), 2, dim});
    add_matrix(l, "model.embed_vision.", "embedding_projection.weight", text_hidden, field(l, "output_proj_dims"));
}

static void add_unified_audio(struct list *l, uint64_t text_hidden)
{
    add_matrix(l, "model.embed_audio.", "embedding_projection.weight", text_hidden, field(l, "audio_embed_dim"));
}

int gemma_tower_tensors(const json_t *config, const char *where, struct gemma_tensor **out, size_t *n, struct err *e)
{
    static const struct { const char *type; void (*fn)(struct list *l, uint64_t text_hidden); } layouts[] = {
        {"gemma4_vision", add_vision}, {"gemma4_audio", add_audio},
        {"gemma4_unified_vision", add_unified_vision}, {"gemma4_unified_audio", add_unified_audio},
    };
    static const char *const keys[] = {"vision_config", "audio_config"};
    const json_int_t hidden = json_integer_value(json_object_get(json_object_get(config, "text_config"), "hidden_size"));
    struct list l = {.e = e};

    for (size_t k = 0; k < 2 && !e->code; k++) {
        char name[256];
        const char *type;
        l.fields = json_object_get(config, keys[k]);
        if (!json_is_object(l.fields))
            continue;
        snprintf(name, sizeof name, "%s: %s", where, keys[k]);
        l.where = name;
        if (json_get_str(l.fields, "model_type", "", &type, name, e) < 0)
            break;
        size_t i = 0;
        while (i < sizeof layouts / sizeof *layouts && strcmp(type, layouts[i].type))
            i++;
        if (i == sizeof layouts / sizeof *layouts)
            (void)err_set(e, EXIT_DATA, "%s: model_type is \"%s\": no tower known by that name", name, type);
        else
            layouts[i].fn(&l, (uint64_t)hidden);
    }
    if (e->code) {
        free(l.t);
        return -1;
    }
    *out = l.t;
    *n = l.n;
    return 0;
}
