#include "ct/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/json.h"
#include "ct/modules.h"
#include "gemma/names.h"

#define GROUP 32                        /* of a _q4 block, 18 bytes (safetensors-stream(5)) */
#define BLOCK 18

/* One matrix and how the build stores it, for the checks over all of them. */
struct use {
    char module[CT_NAME], key[CT_NAME]; /* as in the stream; what the loader fuses it into */
    enum gemma_class cls;
    struct ct_scheme scheme;
};

struct planner {
    const struct st_header *in;
    const char *name;                   /* of the stream, for messages */
    enum ct_kind linears;
    struct ct_plan *p;
    json_t *config, *left, *ignore;
    struct ct_quant *quant;             /* of a source that is packed already */
    struct gemma g;
    enum ct_arch arch;
    enum st_dtype scale_dtype;          /* of _q4 blocks */
    struct use *use; size_t n_use, cap_use;
    struct ct_layout layout;
    bool head_stored;
    struct err *e;
};

#define REFUSE(pl, ...) err_set((pl)->e, EXIT_DATA, __VA_ARGS__)

/* --- the parts of a name ---------------------------------------------------------------------------------------------- */

static bool strip(char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);

    if (n <= k || strcmp(s + n - k, suffix) != 0)
        return false;
    s[n - k] = '\0';
    return true;
}

static bool is_matrix(enum gemma_class c)
{
    return c == GC_LINEAR || c == GC_EMBED || c == GC_PLE || c == GC_HEAD;
}

/* q4_left names tensors; their modules are accepted too. */
static bool is_left(const struct planner *pl, const char *tensor, const char *module)
{
    size_t i;
    json_t *v;

    json_array_foreach(pl->left, i, v) {
        const char *s = json_string_value(v);

        if (s && (strcmp(s, tensor) == 0 || strcmp(s, module) == 0))
            return true;
    }
    return false;
}

/* --- what the build will hold ------------------------------------------------------------------------------------------ */

static void add_ignore(struct planner *pl, const char *name)
{
    json_array_append_new(pl->ignore, json_string(name));
}

/* transformers 5 renames some modules of the unified model and looks for those names (section 6). */
static void ignore_renamed(struct planner *pl, const char *module)
{
    static const struct { const char *disk, *renamed; } names[] = {
        {"model.vision_embedder.patch_dense", "embed_vision.patch_dense"},
        {"model.embed_vision.embedding_projection", "embed_vision.multimodal_embedder.embedding_projection"}
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (pl->arch == CT_UNIFIED && strcmp(module, names[i].disk) == 0) {
            char both[CT_NAME];

            snprintf(both, sizeof both, "model.%s", names[i].renamed);
            add_ignore(pl, both);
            add_ignore(pl, names[i].renamed);
        }
}

/* A module in 16 bits that a target would otherwise catch: in a multimodal build under both spellings. */
static void ignore_module(struct planner *pl, const char *module)
{
    add_ignore(pl, module);
    if (pl->arch != CT_TEXT && strncmp(module, "model.", 6) == 0)
        add_ignore(pl, module + 6);
    ignore_renamed(pl, module);
}

/* q, k and v are judged together, also where a layer has no k or v of its own. */
static void ignore_attention(struct planner *pl, const char *module)
{
    static const char *const others[] = {"k_proj", "v_proj"};
    char stem[CT_NAME];

    snprintf(stem, sizeof stem, "%s", module);
    if (!strip(stem, "q_proj"))
        return;
    for (size_t i = 0; i < 2; i++) {
        char *other = xasprintf("%s%s", stem, others[i]), *tensor = xasprintf("%s.weight", other);

        if (!st_find(pl->in, tensor))
            ignore_module(pl, other);
        free(tensor);
        free(other);
    }
}

/* The loader looks a bank up by its first expert's three matrices, and calls it "experts" or "moe.experts". */
static void ignore_bank(struct planner *pl, const char *module)
{
    int layer = gemma_layer_of(module);
    char *re;

    if (!strstr(module, "experts.gate_up_proj"))
        return;                                         /* one entry a bank */
    re = xasprintf("re:.*layers\\.%d\\..*experts.*", layer);
    add_ignore(pl, re);
    free(re);
}

static int note_use(struct planner *pl, const char *tensor, const char *module, enum gemma_class cls, struct ct_scheme s)
{
    struct use *u;

    if (pl->n_use == pl->cap_use) {
        pl->cap_use = pl->cap_use ? 2 * pl->cap_use : 512;
        pl->use = xreallocarray(pl->use, pl->cap_use, sizeof *pl->use);
    }
    u = &pl->use[pl->n_use++];
    snprintf(u->module, sizeof u->module, "%s", module);
    if (!gemma_fused_key(tensor, u->key, sizeof u->key))
        return err_set(pl->e, EXIT_BUG, "%s: tensor %s is no part of a Gemma language model", pl->name, tensor);
    u->cls = cls;
    u->scheme = s;
    if (cls == GC_HEAD)
        pl->head_stored = true;
    return 0;
}

static struct ct_scheme scheme_of_kind(enum ct_kind k)
{
    struct ct_scheme s = {k, k == CT_PACKED ? 4 : k == CT_PLAIN ? 16 : 8, k == CT_PACKED ? GROUP : 0, k == CT_FP8 || k == CT_INT8};

    return s;
}

static struct ct_step *step_at(struct planner *pl, size_t source, enum ct_action action)
{
    struct ct_step *s = &pl->p->step[source];

    *s = (struct ct_step){.action = action, .source = source, .first = pl->p->out->n};
    return s;
}

static int copy_tensor(struct planner *pl, size_t source)
{
    const struct st_tensor *t = &pl->in->t[source];

    step_at(pl, source, CT_COPY)->parts = 1;
    st_header_add(pl->p->out, t->name, t->dtype, t->ndim, t->shape);
    return 0;
}

static void add_part(struct planner *pl, const char *module, const char *part, enum st_dtype d, uint64_t a, uint64_t b)
{
    char *name = xasprintf("%s.%s", module, part);
    uint64_t shape[2] = {a, b};

    st_header_add(pl->p->out, name, d, b ? 2 : 1, shape);
    free(name);
}

/* The tensors of one quantized module. */
static void add_module(struct planner *pl, const char *module, enum ct_kind kind, uint64_t rows, uint64_t cols)
{
    if (kind == CT_PACKED) {
        add_part(pl, module, "weight_packed", ST_I32, rows, cols / 8);
        add_part(pl, module, "weight_scale", pl->scale_dtype, rows, cols / GROUP);
        add_part(pl, module, "weight_shape", ST_I64, 2, 0);
    } else {
        add_part(pl, module, "weight", kind == CT_FP8 ? ST_F8_E4M3 : ST_I8, rows, cols);
        add_part(pl, module, "weight_scale", ST_F32, rows, 1);
    }
    pl->p->quantized_modules++;
}

/* --- one tensor of the stream ------------------------------------------------------------------------------------------ */

/* Deal a bank [experts, rows, cols] to modules of one expert's matrix each. */
static int deal_bank(struct planner *pl, size_t source, const char *bank, enum ct_kind kind, const uint64_t dims[3])
{
    bool pair = strstr(bank, "gate_up_proj") != NULL;
    uint64_t per = pair ? 2 : 1;
    struct ct_step *s = step_at(pl, source, kind == CT_PACKED ? CT_SPLIT : CT_QUANTIZE);
    char stem[CT_NAME], module[CT_NAME + 32];

    snprintf(stem, sizeof stem, "%s", bank);
    if (!strip(stem, pair ? ".gate_up_proj" : ".down_proj"))
        return err_set(pl->e, EXIT_BUG, "%s: tensor %s is no expert bank", pl->name, bank);
    if (dims[0] != (uint64_t)pl->g.experts || dims[1] == 0 || dims[2] == 0)
        return REFUSE(pl, "%s: tensor %s: holds %llu experts, the config says %d", pl->name, bank, (unsigned long long)dims[0], pl->g.experts);
    if (dims[1] % per)
        return REFUSE(pl, "%s: tensor %s: %llu rows cannot be halved into gate and up", pl->name, bank, (unsigned long long)dims[1]);
    s->parts = kind == CT_PACKED ? 3 : 2;
    s->modules = dims[0] * per;
    s->rows = dims[1] / per;
    s->cols = dims[2];
    for (uint64_t m = 0; m < s->modules; m++) {
        snprintf(module, sizeof module, "%s.%llu.%s", stem, (unsigned long long)(m / per), !pair ? "down_proj" : m % 2 ? "up_proj" : "gate_proj");
        add_module(pl, module, kind, s->rows, s->cols);
    }
    return note_use(pl, bank, bank, GC_EXPERTS, scheme_of_kind(kind));
}

static int deal_matrix(struct planner *pl, size_t source, const char *module, enum gemma_class cls, enum ct_kind kind, const uint64_t dims[2])
{
    struct ct_step *s = step_at(pl, source, kind == CT_PACKED ? CT_SPLIT : CT_QUANTIZE);

    if (dims[0] == 0 || dims[1] == 0)
        return REFUSE(pl, "%s: tensor %s: an empty matrix", pl->name, pl->in->t[source].name);
    s->parts = kind == CT_PACKED ? 3 : 2;
    s->modules = 1;
    s->rows = dims[0];
    s->cols = dims[1];
    add_module(pl, module, kind, s->rows, s->cols);
    return note_use(pl, pl->in->t[source].name, module, cls, scheme_of_kind(kind));
}

/* Blocks made by q4-regrid. */
static int plan_blocks(struct planner *pl, size_t source, const char *module, enum gemma_class cls)
{
    const struct st_tensor *t = &pl->in->t[source];
    int want = cls == GC_EXPERTS ? 4 : 3;

    if (!is_matrix(cls) && cls != GC_EXPERTS)
        return REFUSE(pl, "%s: tensor %s: only the language model's matrices may be recovered to int4", pl->name, t->name);
    if (t->dtype != ST_U8 || t->ndim != want || t->shape[want - 1] != BLOCK)
        return REFUSE(pl, "%s: tensor %s: blocks must be U8 [%srows, cols/32, 18]", pl->name, t->name, want == 4 ? "experts, " : "");
    if (pl->scale_dtype == ST_DTYPES)
        return REFUSE(pl, "%s: metadata q4_scale must be \"bf16\" or \"f16\": make the stream with q4-regrid", pl->name);
    if ((cls == GC_LINEAR || cls == GC_EXPERTS) && pl->linears != CT_PACKED)
        return REFUSE(pl, "%s: tensor %s is int4 already: leave linears out of q4-regrid --only for an 8-bit build", pl->name, t->name);
    if (cls == GC_EXPERTS)
        return deal_bank(pl, source, module, CT_PACKED, (uint64_t[3]){t->shape[0], t->shape[1], t->shape[2] * GROUP});
    return deal_matrix(pl, source, module, cls, CT_PACKED, (uint64_t[2]){t->shape[0], t->shape[1] * GROUP});
}

static int refuse_float(struct planner *pl, const struct st_tensor *t)
{
    return REFUSE(pl, "%s: tensor %s is a linear in %s and q4_left does not name it: run q4-regrid first (--off-grid keep or --leave where it is off the grid)",
        pl->name, t->name, st_dtype_name(t->dtype));
}

/* A linear, or a bank of them, in floating point. */
static int plan_linear(struct planner *pl, size_t source, const char *module, enum gemma_class cls)
{
    const struct st_tensor *t = &pl->in->t[source];

    if (t->ndim != (cls == GC_EXPERTS ? 3 : 2))
        return REFUSE(pl, "%s: tensor %s: a matrix was expected, found %d dimensions", pl->name, t->name, t->ndim);
    if (pl->linears == CT_PACKED) {
        if (!is_left(pl, t->name, module))
            return refuse_float(pl, t);
        if (cls == GC_EXPERTS)
            ignore_bank(pl, module);
        else {
            ignore_module(pl, module);
            ignore_attention(pl, module);
        }
        return copy_tensor(pl, source) || note_use(pl, t->name, module, cls, scheme_of_kind(CT_PLAIN)) ? -1 : 0;
    }
    if (t->dtype != ST_BF16)
        return REFUSE(pl, "%s: tensor %s is %s: 8-bit linears are made from BF16", pl->name, t->name, st_dtype_name(t->dtype));
    if (cls == GC_EXPERTS)
        return deal_bank(pl, source, module, pl->linears, t->shape);
    return deal_matrix(pl, source, module, cls, pl->linears, t->shape);
}

/* Everything else in 16 or 32 bits goes along; what HF would take for a Linear is named in `ignore`. */
static int plan_plain(struct planner *pl, size_t source, const char *module, enum ct_part part, enum gemma_class cls)
{
    const struct st_tensor *t = &pl->in->t[source];
    bool weight = part == CT_WEIGHT, matrix = weight && t->ndim == 2;

    if (matrix && (cls == GC_ROUTER || cls == GC_TOWER))
        ignore_module(pl, module);
    else if (weight && cls == GC_TOWER && pl->arch == CT_UNIFIED && strstr(module, "vision_embedder."))
        ignore_module(pl, module);                      /* Google's list names the embedder's norms too */
    if (matrix && cls == GC_HEAD)
        ignore_module(pl, module);
    if (is_matrix(cls) && weight && note_use(pl, t->name, module, cls, scheme_of_kind(CT_PLAIN)))
        return -1;
    return copy_tensor(pl, source);
}

static bool has_part(const struct planner *pl, const char *module, const char *part, const struct st_tensor **t)
{
    char *name = xasprintf("%s.%s", module, part);

    *t = st_find(pl->in, name);
    free(name);
    return *t != NULL;
}

/* Values under one scale, 0 = a whole row.  One scale a row may be a group that is as long as the row: then the config says so. */
static int group_of(const struct ct_scheme *s, uint64_t cols, uint64_t scales)
{
    if (s->group > 0 && scales * (uint64_t)s->group == cols)
        return s->group;
    return scales == 1 ? 0 : (int)(cols / scales);
}

/* A module that came packed, FP8 or int8: unchanged.  `source` is its weight or weight_packed. */
static int plan_packed(struct planner *pl, size_t source, const char *module, enum gemma_class cls)
{
    const struct st_tensor *t = &pl->in->t[source], *scale, *shape;
    struct ct_scheme s;

    if (!has_part(pl, module, "weight_scale", &scale) || scale->ndim != 2 || t->ndim != 2 || scale->shape[1] == 0)
        return REFUSE(pl, "%s: module %s: weight_scale [rows, groups] is missing", pl->name, module);
    if (t->dtype == ST_I32 && !has_part(pl, module, "weight_shape", &shape))
        return REFUSE(pl, "%s: module %s: a packed weight needs its weight_shape", pl->name, module);
    if (ct_scheme_of(pl->quant, module, &s, pl->e))
        return -1;
    if (t->dtype == ST_I32 && s.kind != CT_PACKED)      /* a stream without its old quantization_config */
        s = (struct ct_scheme){CT_PACKED, 4, GROUP, false};
    if (t->dtype == ST_I32)
        s.group = group_of(&s, t->shape[1] * 32 / (uint64_t)s.bits, scale->shape[1]);
    else
        s = scheme_of_kind(t->dtype == ST_I8 ? CT_INT8 : CT_FP8);
    pl->p->quantized_modules++;
    pl->p->passed_linears += (cls == GC_LINEAR || cls == GC_EXPERTS) && s.kind != pl->linears;
    return copy_tensor(pl, source) || note_use(pl, t->name, module, cls, s) ? -1 : 0;
}

/* A scale or shape that came with its packed or 8-bit weight. */
static int plan_part(struct planner *pl, size_t source, const char *module, enum ct_part part)
{
    const struct st_tensor *t;
    bool packed = has_part(pl, module, "weight_packed", &t);
    bool eight = !packed && has_part(pl, module, "weight", &t) && (t->dtype == ST_I8 || t->dtype == ST_F8_E4M3);

    if (!packed && !(eight && part == CT_WEIGHT_SCALE))
        return REFUSE(pl, "%s: tensor %s: there is no quantized weight that it belongs to", pl->name, pl->in->t[source].name);
    return copy_tensor(pl, source);
}

static bool text_only_drops(const char *file)
{
    static const char *const files[] = {"processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(file, files[i]) == 0)
            return true;
    return false;
}

/* A line break in a name would break the manifest's lines. */
static bool has_control(const char *name)
{
    while (*name && (unsigned char)*name >= ' ' && *name != 0x7f)
        name++;
    return *name != '\0';
}

static int plan_file(struct planner *pl, size_t source, const char *file)
{
    const struct st_tensor *t = &pl->in->t[source];
    size_t n = strlen(file);

    if (n == 0 || n > 200 || strchr(file, '/') || has_control(file) || file[0] == '.' || t->dtype != ST_U8 || t->ndim != 1)
        return REFUSE(pl, "%s: %s: no plain file (a name without slashes and control characters, U8 of one dimension)", pl->name, t->name);
    if (strcmp(file, "config.json") == 0 || strcmp(file, "provenance.json") == 0 || strcmp(file, "MANIFEST.sha256") == 0
        || strstr(file, ".safetensors"))
        return REFUSE(pl, "%s: %s: the build writes a file of that name itself", pl->name, t->name);
    step_at(pl, source, pl->arch == CT_TEXT && text_only_drops(file) ? CT_DROP : CT_SIDE_FILE);
    return 0;
}

static int plan_named(struct planner *pl, size_t source, enum gemma_class cls)
{
    const struct st_tensor *t = &pl->in->t[source];
    char module[CT_NAME];
    enum ct_part part;

    if (!ct_split_name(t->name, module, &part))
        return REFUSE(pl, "%s: tensor %.100s…: name longer than %d bytes", pl->name, t->name, CT_NAME - 1);
    if (strip(module, "_q4")) {
        strip(module, ".weight");
        return plan_blocks(pl, source, module, cls);
    }
    if (part == CT_WEIGHT_ZERO_POINT || part == CT_WEIGHT_G_IDX || part == CT_INPUT_SCALE)
        return REFUSE(pl, "%s: tensor %s: zero points, activation order and static activation scales are not supported", pl->name, t->name);
    if (part == CT_WEIGHT_PACKED || (part == CT_WEIGHT && (t->dtype == ST_I8 || t->dtype == ST_F8_E4M3)))
        return plan_packed(pl, source, module, cls);
    if (part == CT_WEIGHT_SCALE || part == CT_WEIGHT_SHAPE)
        return plan_part(pl, source, module, part);
    if (((is_matrix(cls) && part == CT_WEIGHT) || cls == GC_EXPERTS) && !ct_is_float(t))
        return REFUSE(pl, "%s: tensor %s: %s is no dtype of a weight: expected BF16, F16 or F32", pl->name, t->name, st_dtype_name(t->dtype));
    if ((cls == GC_LINEAR && part == CT_WEIGHT) || cls == GC_EXPERTS)
        return plan_linear(pl, source, module, cls);
    return plan_plain(pl, source, module, part, cls);
}

static int plan_tensor(struct planner *pl, size_t source)
{
    const struct st_tensor *t = &pl->in->t[source];
    const char *file = st_side_file(t);

    if (file)
        return plan_file(pl, source, file);
    if (gemma_is_dead(&pl->g, t->name)) {
        step_at(pl, source, CT_DROP);                   /* K and V of KV-shared layers: nothing reads them */
        return 0;
    }
    return plan_named(pl, source, gemma_classify(t->name));
}

/* --- what holds for all of them ---------------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct use *)a)->key, ((const struct use *)b)->key);
}

static bool same_scheme(const struct ct_scheme *a, const struct ct_scheme *b)
{
    return a->kind == b->kind && a->bits == b->bits && a->group == b->group;
}

static int check_fused(struct planner *pl)
{
    qsort(pl->use, pl->n_use, sizeof *pl->use, by_key);
    for (size_t i = 1; i < pl->n_use; i++) {
        const struct use *a = &pl->use[i - 1], *b = &pl->use[i];

        if (strcmp(a->key, b->key) == 0 && !same_scheme(&a->scheme, &b->scheme))
            return REFUSE(pl, "%s: %s is %s and %s is %s, but the loader fuses them: leave all of them in 16 bits or none", pl->name,
                a->module, ct_kind_name(a->scheme.kind), b->module, ct_kind_name(b->scheme.kind));
    }
    return 0;
}

/* One group of the config for all linears, one for each table. */
static int find_layout(struct planner *pl)
{
    struct ct_layout *l = &pl->layout;

    *l = (struct ct_layout){.arch = pl->arch};
    for (size_t i = 0; i < pl->n_use; i++) {
        const struct use *u = &pl->use[i];
        struct ct_scheme *s = u->cls == GC_PLE ? &l->ple : u->cls == GC_EMBED ? &l->embed : u->cls == GC_HEAD ? &l->head : &l->linear;

        if (u->scheme.kind == CT_PLAIN)
            continue;
        if (s != &l->linear && u->scheme.kind != CT_PACKED)
            return REFUSE(pl, "%s: %s is %s: tables can only be packed integers", pl->name, u->module, ct_kind_name(u->scheme.kind));
        if (s->kind != CT_PLAIN && !same_scheme(s, &u->scheme))
            return REFUSE(pl, "%s: %s is %s with group %d, other linears are %s with group %d: one build has one scheme for its linears", pl->name,
                u->module, ct_kind_name(u->scheme.kind), u->scheme.group, ct_kind_name(s->kind), s->group);
        *s = u->scheme;
    }
    if (pl->p->quantized_modules == 0)
        return REFUSE(pl, "%s: nothing in it is quantized: run q4-regrid first, or choose --linears fp8 or int8", pl->name);
    return 0;
}

/* Tied unless a head is stored that is not a copy in 16 bits: the table, the head, or the config says so (section 4.7). */
static int settle_tie(struct planner *pl)
{
    bool packed = pl->layout.embed.kind == CT_PACKED || pl->layout.head.kind == CT_PACKED;

    if (!pl->head_stored && pl->layout.embed.kind == CT_PACKED)
        return REFUSE(pl, "%s: embed_tokens is packed and there is no lm_head: the loader cannot share a packed table, run emb-untie after q4-regrid", pl->name);
    if (!pl->head_stored && !pl->g.tied)
        return REFUSE(pl, "%s: the config says that lm_head is not tied, but there is none: add it, or set tie_word_embeddings to true", pl->name);
    ct_set_tied(pl->config, !(pl->head_stored && (packed || !pl->g.tied)));
    if (!pl->head_stored)
        json_array_insert_new(pl->ignore, 0, json_string("lm_head"));
    return 0;
}

/* What the shards' headers carry: unknown keys pass, the rest moves to files. */
static void set_meta(struct planner *pl)
{
    static const char *const moved[] = {"config", "provenance", "q4_scale", "q4_left", "plan"};

    st_meta_copy(pl->p->out, pl->in);
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
        st_meta_set(pl->p->out, moved[i], NULL);
    st_meta_set(pl->p->out, "format", "pt");
}

static void finish_config(struct planner *pl)
{
    json_object_del(pl->config, "quantization_config");
    if (pl->arch == CT_UNIFIED)
        ct_complete_unified(pl->config);
    json_object_set_new(pl->config, "quantization_config", ct_quant_config(&pl->layout, pl->ignore));
    ct_build_name(&pl->layout, pl->g.ple > 0, pl->p->build);
}

/* --- reading the stream's metadata -------------------------------------------------------------------------------------- */

static int read_scale(struct planner *pl)
{
    const char *s = st_meta(pl->in, "q4_scale");

    pl->scale_dtype = !s ? ST_DTYPES : strcasecmp(s, "BF16") == 0 ? ST_BF16 : strcasecmp(s, "F16") == 0 ? ST_F16 : ST_DTYPES;
    return s && pl->scale_dtype == ST_DTYPES ? REFUSE(pl, "%s: metadata q4_scale is \"%.20s\", expected BF16 or F16", pl->name, s) : 0;
}

static int read_meta(struct planner *pl)
{
    pl->config = st_meta_config(pl->in, pl->name, pl->e);
    if (!pl->config || read_scale(pl) || !(pl->left = st_meta_list(pl->in, "q4_left", pl->name, pl->e)))
        return -1;
    pl->arch = ct_arch_of(pl->config);
    pl->quant = ct_quant_read(pl->config, pl->name, NULL, pl->e);
    if (pl->e->code)
        return -1;
    return gemma_config_read(&pl->g, pl->config, pl->name, pl->e);
}

static int plan_all(struct planner *pl)
{
    if (read_meta(pl))
        return -1;
    for (size_t i = 0; i < pl->in->n; i++)
        if (plan_tensor(pl, i))
            return -1;
    if (check_fused(pl) || find_layout(pl) || settle_tie(pl))
        return -1;
    finish_config(pl);
    set_meta(pl);
    return 0;
}

struct ct_plan *ct_plan_make(const struct st_header *in, const char *name, enum ct_kind linears, struct err *e)
{
    struct planner pl = {.in = in, .name = name, .linears = linears, .e = e};
    int rc;

    pl.p = xcalloc(1, sizeof *pl.p);
    pl.p->out = st_header_new();
    pl.p->step = xcalloc(in->n + 1, sizeof *pl.p->step);
    pl.p->n_steps = in->n;
    pl.ignore = json_array();
    rc = plan_all(&pl);
    pl.p->config = pl.config;
    json_decref(pl.ignore);
    json_decref(pl.left);
    ct_quant_free(pl.quant);
    free(pl.use);
    if (rc) {
        ct_plan_free(pl.p);
        return NULL;
    }
    return pl.p;
}

void ct_plan_free(struct ct_plan *p)
{
    if (!p)
        return;
    st_header_free(p->out);
    json_decref(p->config);
    free(p->step);
    free(p);
}
