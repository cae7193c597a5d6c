#include "ct/lint.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "ct/modules.h"
#include "gemma/towers.h"
#include "tensor/nameindex.h"

struct lint {
    const struct ct_disk *disk;
    const struct ct_faults *faults;
    struct ct_quant *q;                 /* NULL = nothing is quantized */
    struct gemma g;
    enum ct_arch arch;
    const char *prefix;                 /* of the language model's modules at run time */
    const char *cls, *outer_cls;        /* the classes that vLLM names in messages: of what is inside `model`, of the rest */
    struct ct_modules modules;
    struct gemma_tensor *want; size_t n_want;
    bool towers_known;                  /* their layout follows from the config */
};

/* `loader` is what vLLM says, "" where it says nothing. */
static void say(const struct lint *l, enum ct_grade grade, const char *where, const char *loader, const char *fmt, ...) PRINTF_LIKE(5, 6);

static void say(const struct lint *l, enum ct_grade grade, const char *where, const char *loader, const char *fmt, ...)
{
    char what[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    l->faults->fn(l->faults->arg, grade, where, what, *loader ? loader : NULL);
}

#define SILENT "loads without a word and answers with garbage"

/* --- what vLLM calls things ------------------------------------------------------------------------------------------ */

static const char *layer_class(const char *runtime)
{
    static const struct { const char *end, *cls; } classes[] = {
        {".qkv_proj", "QKVParallelLinear"}, {".gate_up_proj", "MergedColumnParallelLinear"}, {".o_proj", "RowParallelLinear"},
        {".down_proj", "RowParallelLinear"}, {".q_proj", "ColumnParallelLinear"}, {"per_layer_model_projection", "ColumnParallelLinear"},
        {"embed_tokens", "VocabParallelEmbedding"}, {"embed_tokens_per_layer", "VocabParallelEmbedding"}, {"lm_head", "ParallelLMHead"},
        {"router.proj", "GateLinear"}, {".experts", "RoutedExperts"}
    };

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (ends_with(runtime, classes[i].end))
            return classes[i].cls;
    return "ReplicatedLinear";
}

static void runtime_of(const struct lint *l, const char *text_name, char out[CT_NAME])
{
    enum ct_part part;
    char module[CT_NAME];

    if (!ct_split_name(text_name, module, &part) || snprintf(out, CT_NAME, "%s%s", l->prefix, module) >= CT_NAME)
        out[0] = '\0';
}

/* The sentence for a tensor that the module does not have (kinds 1 and 2 of section 4.9). */
static void unknown_name(const struct lint *l, const char *runtime, const char *part, const char *available, char out[500])
{
    bool inside = strncmp(runtime, "model.", 6) == 0;
    const char *name = inside ? runtime + 6 : runtime;

    snprintf(out, 500, "ValueError: There is no module or parameter named '%.150s.%s' in %s. The available parameters belonging to %.150s (%s) are: {%s}",
        name, part, inside ? l->cls : l->outer_cls, name, layer_class(runtime), available);
}

/* Does the model have a module of this name, or modules inside it?  What it has was found on disk or is wanted. */
static bool has_inside(const struct lint *l, const char *prefix, size_t n)
{
    char name[CT_NAME];

    for (size_t i = 0; i < l->modules.n; i++)
        if (l->modules.m[i].used && strncmp(l->modules.m[i].runtime, prefix, n) == 0 && strchr(".", l->modules.m[i].runtime[n]))
            return true;
    for (size_t i = 0; i < l->n_want; i++) {
        runtime_of(l, l->want[i].name, name);
        if (strncmp(name, prefix, n) == 0 && strchr(".", name[n]))
            return true;
    }
    return false;
}

/* The sentence for a module that the model does not have: it names the first part of the path that is not there. */
static void unknown_module(const struct lint *l, const char *runtime, char out[500])
{
    size_t n = strcspn(runtime, "."), skip = strncmp(runtime, "model.", 6) == 0 ? 6 : 0;

    while (runtime[n] && has_inside(l, runtime, n))
        n += 1 + strcspn(runtime + n + 1, ".");
    snprintf(out, 500, "ValueError: There is no module or parameter named '%.*s' in %s", (int)(n > skip ? n - skip : n), runtime + (n > skip ? skip : 0), skip ? l->cls : l->outer_cls);
}

static const char *available(enum ct_kind k)
{
    return k == CT_PACKED ? "weight_packed, weight_scale, weight_shape" : k == CT_PLAIN ? "weight" : "weight, weight_scale";
}

static const char *stored_as(const struct ct_scheme *s)
{
    return s->kind == CT_PACKED ? s->bits == 4 ? "int4" : "packed int8" : ct_kind_name(s->kind);
}

/* --- what the config says of one layer ------------------------------------------------------------------------------- */

/* A layer as the loader builds it: alone, or fused from members (runtime names). */
struct layer {
    const char *name, *cls;
    bool embedding;
    const char *member[3]; int n;       /* n = 0: stands alone */
};

/* Ignored as a whole?  1 yes, 0 no, -1 partly: a fault that is reported. */
static int layer_ignored(const struct lint *l, const struct layer *y)
{
    int ignored = 0;
    char loader[300];

    if (ct_ignored(l->q, y->name) == CT_MATCH)
        return 1;
    for (int i = 0; i < y->n; i++)
        ignored += ct_ignored(l->q, y->member[i]) == CT_MATCH;
    if (ignored == 0 || ignored == y->n)
        return ignored > 0;
    snprintf(loader, sizeof loader, "ValueError: Found different quantization schemes for the shards of %.150s. vLLM requires all to use the same scheme.", y->name);
    say(l, CT_REFUSED, y->name, loader,
        "the ignore list names %d of its %d members (q/k/v and gate/up are judged together): name all or none", ignored, y->n);
    return -1;
}

/* The first member's group when every member has one; *differ when their schemes do. */
static const struct ct_group *by_members(const struct lint *l, const struct layer *y, bool *undecided, bool *differ)
{
    const struct ct_group *first = NULL;

    for (int i = 0; i < y->n; i++) {
        const struct ct_group *g = ct_target_by_name(l->q, y->member[i], undecided);

        if (!g)
            return NULL;
        if (i == 0)
            first = g;
        else if (g != first)
            *differ = true;
    }
    return first;
}

static bool no_scheme(const struct lint *l, const struct layer *y, const struct ct_group *g, const char *why)
{
    bool packed = strcmp(g->format, "pack-quantized") == 0 && !g->weights.is_float;

    if (packed && !g->weights.symmetric)
        say(l, CT_WRONG, y->name, SILENT, "group %s: %s", g->name, why);
    else if (packed && g->weights.bits != 4 && g->weights.bits != 8)
        say(l, CT_REFUSED, y->name, "ValueError: Failed to find a kernel that can implement the WNA16 linear layer", "group %s: %s", g->name, why);
    else if (y->embedding)
        say(l, CT_REFUSED, y->name, "ValueError: compressed-tensors embeddings only support weight-only INT group/channel (WNA16) quantization", "group %s: %s", g->name, why);
    else
        say(l, CT_REFUSED, y->name, "NotImplementedError: No compressed-tensors compatible scheme was found", "group %s: %s", g->name, why);
    return false;
}

/* What the loader does not look at: activations beside packed weights (it may take a W4A8 kernel where it has one), an embedding's zero points. */
static bool tolerated(const struct lint *l, const struct layer *y, const struct ct_group *g, struct ct_scheme *out)
{
    struct ct_group read = *g;
    const char *why = "";

    if (!y->embedding && strcmp(g->format, "pack-quantized") != 0)
        return false;
    read.input.present = false;
    read.weights.symmetric = y->embedding || g->weights.symmetric;
    if (!ct_group_scheme(&read, y->embedding, out, &why))
        return false;
    say(l, CT_UNTIDY, y->name, "", "group %s has input_activations or asymmetric weights: vLLM reads this layer as if it had not, others may not", g->name);
    return true;
}

/* How the loader will want this layer.  false: it cannot be said, and a fault is reported. */
static bool decide(const struct lint *l, const struct layer *y, struct ct_scheme *out)
{
    const struct ct_group *name, *members, *cls, *newer, *older;
    bool undecided = false, differ = false;
    const char *why = "";
    int ignored;

    *out = (struct ct_scheme){CT_PLAIN, 16, 0, false};
    if (!l->q)
        return true;
    ignored = layer_ignored(l, y);
    if (ignored)
        return ignored > 0;
    name = ct_target_by_name(l->q, y->name, &undecided);
    members = by_members(l, y, &undecided, &differ);
    cls = ct_target_by_class(l->q, y->cls, &undecided);
    newer = name ? name : members ? members : cls;
    older = name ? name : cls ? cls : members;
    if (newer != older)
        say(l, CT_NOTE, y->name, "", "group %s by its members' names (vLLM since 2026-07), group %s by its class (before): the two versions read this build differently",
            newer->name, older->name);
    if (differ && !name)
        say(l, CT_REFUSED, y->name, "ValueError: Found different quantization schemes for the shards of the layer", "its members are in different groups of the config");
    return !newer || ct_group_scheme(newer, y->embedding, out, &why) || tolerated(l, y, newer, out) || no_scheme(l, y, newer, why);
}

/* --- one module against it -------------------------------------------------------------------------------------------- */

struct expected {
    const char *runtime, *name;         /* at run time; as the text-only spelling has it, for messages when nothing is on disk */
    const char *fused_cls;              /* of the layer that it is part of, or NULL */
    struct ct_scheme scheme;
    uint64_t rows, cols;                /* 0 = not known (towers) */
};

static bool same_shape(const struct st_tensor *t, int ndim, const uint64_t *shape)
{
    if (t->ndim != ndim)
        return false;
    for (int i = 0; i < ndim; i++)
        if (t->shape[i] != shape[i])
            return false;
    return true;
}

static void shape_text(int ndim, const uint64_t *shape, char out[100])
{
    size_t n = 0;

    out[0] = '\0';
    for (int i = 0; i < ndim && n < 100 - 24; i++)
        n += (size_t)snprintf(out + n, 100 - n, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
}

static void shape_fault(const struct lint *l, const struct st_tensor *t, const char *loader, int ndim, const uint64_t *shape)
{
    char found[100], expected[100];

    shape_text(t->ndim, t->shape, found);
    shape_text(ndim, shape, expected);
    say(l, CT_REFUSED, t->name, loader, "shape [%s], expected [%s]", found, expected);
}

/* What the loader says of a matrix that is not [rows, cols].  It cuts its share out first, along the outputs or, for o_proj and down_proj, the inputs (not of a scale
 * a row), and compares then; an embedding's scales it compares when they are used. */
static void shape_words(const struct expected *x, const struct st_tensor *t, bool scale, uint64_t rows, uint64_t cols, char out[120])
{
    const char *cls = x->fused_cls ? x->fused_cls : layer_class(x->runtime);
    bool inputs = strcmp(cls, "RowParallelLinear") == 0, outputs = strstr(cls, "Column") || strstr(cls, "QKV");
    uint64_t want = inputs ? cols : rows;

    snprintf(out, 120, "AssertionError");
    if (strcmp(cls, "VocabParallelEmbedding") == 0) {
        if (scale && t->ndim == 2 && t->shape[0] == rows)
            snprintf(out, 120, "RuntimeError: The size of tensor a must match the size of tensor b");
    } else if ((inputs && !(scale && x->scheme.kind != CT_PACKED)) || outputs) {
        if (t->ndim <= (int)inputs)
            snprintf(out, 120, "IndexError: Dimension out of range");
        else if (t->shape[inputs] < want)
            snprintf(out, 120, "RuntimeError: start (0) + length (%llu) exceeds dimension size (%llu).", (unsigned long long)want, (unsigned long long)t->shape[inputs]);
    }
}

static void check_matrix(const struct lint *l, const struct expected *x, const struct st_tensor *t, bool scale, uint64_t rows, uint64_t cols)
{
    const uint64_t shape[2] = {rows, cols};
    char loader[120];

    if (same_shape(t, 2, shape))
        return;
    shape_words(x, t, scale, rows, cols, loader);
    shape_fault(l, t, loader, 2, shape);
}

static void check_packed(const struct lint *l, const struct ct_module *m, const struct expected *x)
{
    const struct st_tensor *packed = m->part[CT_WEIGHT_PACKED], *shape = m->part[CT_WEIGHT_SHAPE];
    uint64_t per_word = 32 / (uint64_t)x->scheme.bits, group = x->scheme.group ? (uint64_t)x->scheme.group : x->cols;

    if (x->rows && (x->cols % per_word || x->cols % group))
        say(l, CT_REFUSED, m->disk, "AssertionError", "%llu inputs are no multiple of %d and of the group size %llu", (unsigned long long)x->cols, (int)per_word,
            (unsigned long long)group);
    else if (x->rows) {
        check_matrix(l, x, packed, false, x->rows, x->cols / per_word);
        check_matrix(l, x, m->part[CT_WEIGHT_SCALE], true, x->rows, x->cols / group);
    }
    if (!shape)
        say(l, CT_WRONG, m->disk, "vLLM with weight tracking and transformers refuse it", "weight_shape is missing");
    else if (shape->ndim != 1 || shape->shape[0] != 2)
        shape_fault(l, shape, "AssertionError", 1, (const uint64_t[]){2});
    else if (shape->dtype != ST_I64)
        say(l, CT_UNTIDY, shape->name, "", "%s, expected I64", st_dtype_name(shape->dtype));
}

static void check_8bit(const struct lint *l, const struct ct_module *m, const struct expected *x)
{
    if (!x->rows)
        return;
    check_matrix(l, x, m->part[CT_WEIGHT], false, x->rows, x->cols);
    check_matrix(l, x, m->part[CT_WEIGHT_SCALE], true, x->rows, 1);
}

/* The loader's words for a part that the module, of this kind, does not have. */
static void unknown_part(const struct lint *l, const struct ct_module *m, const struct expected *x, const char *part, enum ct_kind kind, char out[500])
{
    if (x->fused_cls)
        snprintf(out, 500, "AttributeError: '%s' object has no attribute 'data'", x->fused_cls);
    else
        unknown_name(l, m->runtime, part, available(kind), out);
}

/* Parts that no scheme here has. */
static void check_extra(const struct lint *l, const struct ct_module *m, const struct expected *x, enum ct_kind kind, bool bias_allowed)
{
    static const enum ct_part extra[] = {CT_WEIGHT_ZERO_POINT, CT_WEIGHT_G_IDX, CT_INPUT_SCALE, CT_BIAS, CT_WEIGHT_SHAPE};
    char loader[500];

    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++) {
        const struct st_tensor *t = m->part[extra[i]];

        if (!t || (extra[i] == CT_BIAS && bias_allowed) || (extra[i] == CT_WEIGHT_SHAPE && kind == CT_PACKED))
            continue;
        if (extra[i] == CT_BIAS) {
            say(l, CT_UNTIDY, t->name, "", "the module has no bias: the loader drops it");
            continue;
        }
        unknown_part(l, m, x, t->name + strlen(m->disk) + 1, kind, loader);
        say(l, CT_REFUSED, t->name, loader, "the module, stored as %s, has no such tensor", ct_kind_name(kind));
    }
}

/* The parts do not make a module: say which one is missing or too much. */
static void explain_incomplete(const struct lint *l, const struct ct_module *m, const struct expected *x)
{
    const struct st_tensor *w = m->part[CT_WEIGHT], *packed = m->part[CT_WEIGHT_PACKED], *scale = m->part[CT_WEIGHT_SCALE];
    char loader[500];

    if (packed && w) {
        unknown_part(l, m, x, "weight", CT_PACKED, loader);
        say(l, CT_REFUSED, w->name, loader, "a weight beside its packed form");
    } else if (!packed && !w) {
        say(l, CT_WRONG, m->disk, SILENT, "%s is missing beside the module's other parts", x->scheme.kind == CT_PACKED ? "weight_packed" : "weight");
    } else if (!scale) {
        say(l, CT_WRONG, m->disk, SILENT, "weight_scale is missing");
    } else if (w && x->scheme.kind == CT_PLAIN) {
        unknown_part(l, m, x, "weight_scale", CT_PLAIN, loader);
        say(l, CT_REFUSED, scale->name, loader, "a scale beside a weight of %s", st_dtype_name(w->dtype));
    } else {
        say(l, CT_REFUSED, m->disk, "RuntimeError while loading weights", "dtypes %s with scales of %s are no scheme: expected I32, F8_E4M3 or I8 with BF16, F16 or F32",
            st_dtype_name((w ? w : packed)->dtype), st_dtype_name(scale->dtype));
    }
}

/* The config expects one thing, the disk holds another (kinds 1 and 2). */
static void explain_kind(const struct lint *l, const struct ct_module *m, const struct expected *x, enum ct_kind found)
{
    enum ct_kind want = x->scheme.kind;
    char loader[500];

    if (want != CT_PLAIN && want != CT_PACKED && found != CT_PACKED) {
        say(l, CT_WRONG, m->disk, SILENT, "stored in %s, the config makes it %s%s", ct_kind_name(found), stored_as(&x->scheme),
            found == CT_PLAIN ? ": it is missing from the ignore list" : "");
        return;
    }
    if (want == CT_PACKED && found == CT_PLAIN && l->g.tied && ends_with(m->runtime, "embed_tokens"))
        snprintf(loader, sizeof loader, "AttributeError: 'VocabParallelEmbedding' object has no attribute 'weight'");
    else
        unknown_part(l, m, x, found == CT_PACKED ? "weight_packed" : want == CT_PLAIN ? "weight_scale" : "weight", want, loader);
    if (want == CT_PLAIN)
        say(l, CT_REFUSED, m->disk, loader, "stored as %s, but the config ignores it or has no group for it", ct_kind_name(found));
    else
        say(l, CT_REFUSED, m->disk, loader, "stored in %s, the config makes it %s%s", ct_kind_name(found), stored_as(&x->scheme),
            found == CT_PLAIN ? ": it is missing from the ignore list" : "");
}

static void check_module(const struct lint *l, struct ct_module *m, const struct expected *x, bool bias_allowed)
{
    int kind = ct_module_kind(m);

    m->used = true;
    if (kind < 0) {
        explain_incomplete(l, m, x);
        return;
    }
    check_extra(l, m, x, (enum ct_kind)kind, bias_allowed);
    if ((enum ct_kind)kind != x->scheme.kind)
        explain_kind(l, m, x, (enum ct_kind)kind);
    else if (kind == CT_PACKED)
        check_packed(l, m, x);
    else if (kind != CT_PLAIN)
        check_8bit(l, m, x);
    else if (x->rows)
        check_matrix(l, x, m->part[CT_WEIGHT], false, x->rows, x->cols);
}

static void expect(const struct lint *l, const struct expected *x)
{
    struct ct_module *m = ct_modules_find(&l->modules, x->runtime);

    if (m)
        check_module(l, m, x, false);
    else
        say(l, CT_WRONG, x->name, SILENT, "the config expects this module, no tensor of it is there");
}

/* --- the language model ------------------------------------------------------------------------------------------------ */

static const struct gemma_tensor *wanted(const struct lint *l, const char *runtime)
{
    for (size_t i = 0; i < l->n_want; i++) {
        char name[CT_NAME];

        runtime_of(l, l->want[i].name, name);
        if (strcmp(name, runtime) == 0)
            return &l->want[i];
    }
    return NULL;
}

static void expect_matrix(const struct lint *l, const struct gemma_tensor *t, const char *runtime, const char *fused_cls, struct ct_scheme s)
{
    struct expected x = {runtime, t->name, fused_cls, s, t->shape[0], t->shape[1]};

    expect(l, &x);
}

static void lint_alone(const struct lint *l, const struct gemma_tensor *t, const char *runtime)
{
    struct layer y = {.name = runtime, .cls = layer_class(runtime), .embedding = t->cls == GC_EMBED || t->cls == GC_PLE};
    struct ct_scheme s = {CT_PLAIN, 16, 0, false};
    struct ct_module *m;

    if (t->cls == GC_ROUTER || decide(l, &y, &s))
        expect_matrix(l, t, runtime, NULL, s);
    else if ((m = ct_modules_find(&l->modules, runtime)))
        m->used = true;
}

/* q, k, v or gate, up.  `i` is the first member's number in the list of what is wanted: the others stand close behind it. */
static void lint_fused(const struct lint *l, size_t i, const char *fused)
{
    bool qkv = ends_with(fused, ".qkv_proj");
    static const char *const ends[2][3] = {{".gate_proj", ".up_proj", NULL}, {".q_proj", ".k_proj", ".v_proj"}};
    char name[3][CT_NAME];
    struct layer y = {.name = fused, .cls = layer_class(fused)};
    size_t stem = (size_t)(strrchr(fused, '.') - fused);
    struct ct_scheme s;
    bool decided;

    for (y.n = 0; y.n < 3 && ends[qkv][y.n]; y.n++) {
        snprintf(name[y.n], CT_NAME, "%.*s%s", (int)stem, fused, ends[qkv][y.n]);
        y.member[y.n] = name[y.n];
    }
    decided = decide(l, &y, &s);
    for (int k = 0; k < y.n; k++)
        for (size_t j = i; j < l->n_want && j < i + 4; j++) {
            char runtime[CT_NAME];
            struct ct_module *m;

            runtime_of(l, l->want[j].name, runtime);
            if (strcmp(runtime, name[k]) != 0)
                continue;
            if (decided)
                expect_matrix(l, &l->want[j], runtime, y.cls, s);
            else if ((m = ct_modules_find(&l->modules, runtime)))
                m->used = true;
        }
}

static void lint_linear(const struct lint *l, size_t i, const char *runtime)
{
    const struct gemma_tensor *t = &l->want[i];
    char fused[CT_NAME];

    /* A KV-shared layer has a q_proj of its own, not fused. */
    if (!ct_fused_name(runtime, fused) || (ends_with(fused, ".qkv_proj") && t->layer >= 0 && l->g.layer[t->layer].kv_from != t->layer))
        lint_alone(l, t, runtime);
    else if (ends_with(runtime, ".q_proj") || ends_with(runtime, ".gate_proj"))
        lint_fused(l, i, fused);
}

static void lint_plain(const struct lint *l, const struct gemma_tensor *t, const char *runtime)
{
    struct ct_module *m = ct_modules_find(&l->modules, runtime);
    const struct st_tensor *have = m ? m->part[CT_WEIGHT] ? m->part[CT_WEIGHT] : m->part[CT_WHOLE] : NULL;

    if (!have) {
        say(l, CT_WRONG, t->name, "loads without a word and answers plausibly with other tokens", "missing");
        return;
    }
    m->used = true;
    if (ct_module_kind(m) != CT_PLAIN || (m->part[CT_WHOLE] && !ct_is_float(have)))
        say(l, CT_REFUSED, have->name, "ValueError: There is no module or parameter named so", "%s, expected 16 or 32 bits alone", st_dtype_name(have->dtype));
    else if (!same_shape(have, t->ndim, t->shape) && (st_nelem(have) != 1 || t->ndim != 1 || t->shape[0] != 1))     /* one value is one value */
        shape_fault(l, have, "AssertionError: Attempted to load weight into parameter", t->ndim, t->shape);
}

/* --- experts ----------------------------------------------------------------------------------------------------------- */

static const char *const expert_parts[] = {"gate_proj", "up_proj", "down_proj"};

/* The scheme of a bank by its first expert; false: a fault is reported. */
static bool decide_bank(const struct lint *l, const char *experts, struct ct_scheme *out)
{
    struct ct_scheme s[3];

    for (int i = 0; i < 3; i++) {
        char name[CT_NAME + 24];
        struct layer y = {.name = name, .cls = "Linear"};   /* "Linear" in targets stands for experts too */

        snprintf(name, sizeof name, "%s.0.%s", experts, expert_parts[i]);
        if (!decide(l, &y, &s[i]))
            return false;
    }
    *out = s[0];
    if (s[0].kind == s[1].kind && s[0].kind == s[2].kind && s[0].group == s[1].group && s[0].group == s[2].group)
        return true;
    say(l, CT_REFUSED, experts, "ValueError: All MoE projections need to have same quantization scheme", "gate, up and down of its experts are in different schemes");
    return false;
}

static void lint_expert(const struct lint *l, const struct gemma_tensor *gate_up, const char *expert, struct ct_scheme s)
{
    uint64_t inner = gate_up->shape[1] / 2, hidden = gate_up->shape[2];

    for (int i = 0; i < 3; i++) {
        char name[CT_NAME + 64];
        struct expected x = {name, name, NULL, s, i < 2 ? inner : hidden, i < 2 ? hidden : inner};

        snprintf(name, sizeof name, "%s.%s", expert, expert_parts[i]);
        expect(l, &x);
    }
}

static bool expert_there(const struct lint *l, const char *expert)
{
    char name[CT_NAME + 64];

    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", expert, expert_parts[i]);
        if (ct_modules_find(&l->modules, name))
            return true;
    }
    return false;
}

static void lint_split_bank(const struct lint *l, const struct gemma_tensor *gate_up, const char *experts, struct ct_scheme s)
{
    uint64_t missing = 0, first = 0;
    char expert[CT_NAME + 32];

    for (uint64_t n = 0; n < gate_up->shape[0]; n++) {
        snprintf(expert, sizeof expert, "%s.%llu", experts, (unsigned long long)n);
        if (expert_there(l, expert))
            lint_expert(l, gate_up, expert, s);
        else
            first = missing++ ? first : n;
    }
    if (missing)
        say(l, CT_WRONG, experts, SILENT, "%llu of %llu experts are not there at all, the first is number %llu", (unsigned long long)missing,
            (unsigned long long)gate_up->shape[0], (unsigned long long)first);
}

/* One fused tensor of a bank that stays in 16 bits. */
static void lint_whole_bank(const struct lint *l, struct ct_module *m, const struct gemma_tensor *t)
{
    const struct st_tensor *have = m->part[CT_WHOLE];

    m->used = true;
    if (!have)
        say(l, CT_REFUSED, m->disk, "AssertionError", "expected one tensor of three dimensions");
    else if (!same_shape(have, 3, t->shape))
        shape_fault(l, have, "AssertionError", 3, t->shape);
}

static void mark_experts(const struct lint *l, const char *experts)
{
    size_t n = strlen(experts);

    for (size_t i = 0; i < l->modules.n; i++)
        if (strncmp(l->modules.m[i].runtime, experts, n) == 0)
            l->modules.m[i].used = true;
}

/* A bank: split to modules of one expert each, or the two fused tensors in 16 bits. */
static void lint_bank(const struct lint *l, const struct gemma_tensor *t, const char *runtime)
{
    char experts[CT_NAME], other[CT_NAME + 16];
    struct ct_module *gate_up = ct_modules_find(&l->modules, runtime), *down;
    struct ct_scheme s;
    const struct gemma_tensor *want_down;

    snprintf(experts, sizeof experts, "%.*s", (int)(strlen(runtime) - strlen(".gate_up_proj")), runtime);
    snprintf(other, sizeof other, "%s.down_proj", experts);
    down = ct_modules_find(&l->modules, other);
    if (!decide_bank(l, experts, &s)) {
        mark_experts(l, experts);
    } else if (!gate_up && !down) {
        lint_split_bank(l, t, experts, s);
    } else if (s.kind != CT_PLAIN) {
        mark_experts(l, experts);
        say(l, CT_REFUSED, experts, "KeyError: the fused expert weight", "fused 3-D experts in a quantized build: they must be one module an expert, or be ignored and in 16 bits");
    } else {
        want_down = wanted(l, other);
        if (gate_up)
            lint_whole_bank(l, gate_up, t);
        if (down && want_down)
            lint_whole_bank(l, down, want_down);
        if (!gate_up || !down)
            say(l, CT_WRONG, gate_up ? other : runtime, SILENT, "no tensor of this name is there");
    }
}

static void lint_language_model(const struct lint *l)
{
    for (size_t i = 0; i < l->n_want; i++) {
        const struct gemma_tensor *t = &l->want[i];
        char runtime[CT_NAME];

        runtime_of(l, t->name, runtime);
        switch (t->cls) {
        case GC_LINEAR: lint_linear(l, i, runtime); break;
        case GC_EXPERTS:
            if (ends_with(runtime, ".gate_up_proj"))
                lint_bank(l, t, runtime);
            break;
        case GC_PLAIN: lint_plain(l, t, runtime); break;
        case GC_EMBED: case GC_PLE: case GC_HEAD: case GC_ROUTER: lint_alone(l, t, runtime); break;
        default: break;
        }
    }
}

/* --- what else is on disk ---------------------------------------------------------------------------------------------- */

static const struct st_tensor *any_part(const struct ct_module *m)
{
    for (int i = 0; i <= CT_WHOLE; i++)
        if (m->part[i])
            return m->part[i];
    return NULL;
}

/* A linear of a tower, against what the config says of it; rows 0 = its layout is not known. */
static void lint_tower_linear(const struct lint *l, struct ct_module *m, uint64_t rows, uint64_t cols)
{
    struct layer y = {.name = m->runtime, .cls = "Linear"};
    struct expected x = {m->runtime, m->disk, NULL, {CT_PLAIN, 16, 0, false}, rows, cols};

    m->used = true;
    if (decide(l, &y, &x.scheme))
        check_module(l, m, &x, true);
}

/* One tensor that the config lays out. */
static void expect_tower_tensor(const struct lint *l, const struct gemma_tensor *t)
{
    char module[CT_NAME], runtime[CT_NAME];
    enum ct_part part;
    struct ct_module *m = ct_split_name(t->name, module, &part) && ct_runtime_name(l->arch, module, runtime) ? ct_modules_find(&l->modules, runtime) : NULL;

    if (m)
        m->used = true;
    if (m && part == CT_WEIGHT && t->ndim == 2)
        lint_tower_linear(l, m, t->shape[0], t->shape[1]);
    else if (!m || !m->part[part])
        say(l, CT_WRONG, t->name, SILENT, "no tensor of this name is there");
    else if (!same_shape(m->part[part], t->ndim, t->shape))
        shape_fault(l, m->part[part], "AssertionError", t->ndim, t->shape);
}

/* A tower whose layout is not known: what is there must be stored as the config says. */
static void lint_tower(const struct lint *l, struct ct_module *m)
{
    const struct st_tensor *w = m->part[CT_WEIGHT];

    m->used = true;
    if (w ? w->ndim == 2 : m->part[CT_WEIGHT_PACKED] != NULL)           /* not norms, convolutions, tables, bounds */
        lint_tower_linear(l, m, 0, 0);
}

static bool any_module(const struct lint *l, const char *part_of_name)
{
    for (size_t i = 0; i < l->modules.n; i++)
        if (strstr(l->modules.m[i].runtime, part_of_name))
            return true;
    return false;
}

/* Exports that name 12B's embedder otherwise, and towers of a kind not known here, are judged by what is there. */
static void lint_towers(struct lint *l)
{
    static const struct { const char *config, *name; } parts[] = {{"vision_config", "vision"}, {"audio_config", "audio"}};
    struct gemma_tensor *t = NULL;
    struct err e = {0, ""};
    size_t n = 0;

    if (l->arch == CT_TEXT)
        return;
    l->towers_known = (l->arch != CT_UNIFIED || any_module(l, "vision_embedder.")) && gemma_tower_tensors(l->disk->config, "config.json", &t, &n, &e) == 0;
    for (size_t k = 0; k < 2; k++) {
        bool there = any_module(l, parts[k].name);

        if (!there && json_is_object(json_object_get(l->disk->config, parts[k].config)))
            say(l, CT_WRONG, parts[k].config, SILENT, "the config has this part, no tensor of it is there");
        for (size_t i = 0; there && i < n; i++)
            if (strstr(t[i].name, parts[k].name))
                expect_tower_tensor(l, &t[i]);
    }
    free(t);
}

/* Names that it leaves out (vLLM's gemma4.py, gemma4_mm.py), whatever stands under them. */
static bool loader_drops(const struct lint *l, const char *runtime)
{
    static const char *const parts[] = {"audio_tower.", "embed_audio.", "vision_tower.", "embed_vision."};
    bool audio = json_is_object(json_object_get(l->disk->config, "audio_config"));

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(runtime, parts[i]) && (l->arch == CT_TEXT || (i < 2 && !audio)))
            return true;
    return strcmp(runtime, "embed_vision.embedding") == 0 || strcmp(runtime, "embed_audio.embedding") == 0;
}

static void lint_rest(const struct lint *l)
{
    const char *first = NULL;
    size_t dropped = 0;

    for (size_t i = 0; i < l->modules.n; i++) {
        struct ct_module *m = &l->modules.m[i];
        const struct st_tensor *t = any_part(m);
        enum gemma_class c;
        char loader[500];

        if (m->used || !t)
            continue;
        c = gemma_classify(t->name);
        if (c == GC_TOWER && l->arch != CT_TEXT && !l->towers_known) {
            lint_tower(l, m);
        } else if (c == GC_TOWER && loader_drops(l, m->runtime)) {
            first = dropped++ ? first : m->disk;
        } else if (gemma_is_dead(&l->g, t->name)) {
            say(l, CT_NOTE, m->disk, "", "K and V of a layer that shares another's: the loader drops them");
        } else if (c != GC_HEAD) {                      /* the head is settled with the tie flags */
            unknown_module(l, m->runtime, loader);
            say(l, CT_REFUSED, t->name, loader, c != GC_TOWER ? "the model has no such module"
                : l->arch == CT_TEXT ? "a vision or audio tensor in a text-only build" : "the towers have no such module, by the config");
        }
    }
    if (dropped)
        say(l, CT_UNTIDY, first, "", "a vision or audio part that this model does not have, %zu modules in all: the loader drops them", dropped);
}

/* --- entries that match nothing ---------------------------------------------------------------------------------------- */

static bool pattern_used(const struct lint *l, const struct ct_pattern *p)
{
    if (strcmp(p->text, "lm_head") == 0)
        return true;                                    /* transformers needs it in tied builds */
    for (size_t i = 0; i < l->modules.n; i++) {
        char fused[CT_NAME];

        if (ct_pattern_name(p, l->modules.m[i].runtime) == CT_MATCH
            || (ct_fused_name(l->modules.m[i].runtime, fused) && ct_pattern_name(p, fused) == CT_MATCH))
            return true;
        if (!p->is_regex && strcmp(p->text, l->modules.m[i].disk) == 0)
            return true;
    }
    return false;
}

/* v_proj beside the k_proj of a layer where v is k, and the like: named for the loader's sake. */
static bool sibling_used(const struct lint *l, const struct ct_pattern *p)
{
    char fused[CT_NAME], q[CT_NAME + 8];

    if (p->is_regex || !ct_fused_name(p->name, fused) || !ends_with(fused, ".qkv_proj"))
        return false;
    snprintf(q, sizeof q, "%.*sq_proj", (int)(strlen(fused) - strlen("qkv_proj")), fused);
    return ct_modules_find(&l->modules, q) != NULL;
}

static void say_undecidable(const struct lint *l, const struct ct_pattern *p, const char *list)
{
    char loader[100];

    snprintf(loader, sizeof loader, "re.error: %s", p->broken ? p->broken : "");
    if (p->broken)
        say(l, CT_REFUSED, p->text, loader, "an entry of %s is no regular expression", list);
    else
        say(l, CT_UNTIDY, p->text, "", "cannot decide this regular expression in %s: list names, or use . * ( | ) and [ ] only", list);
}

static void lint_entries(const struct lint *l)
{
    size_t unused = 0;
    const char *first = NULL;

    for (size_t i = 0; i < l->q->n_ignore; i++) {
        const struct ct_pattern *p = &l->q->ignore[i];

        if (p->undecidable) {
            say_undecidable(l, p, "ignore");
        } else if (!pattern_used(l, p) && !sibling_used(l, p)) {
            first = unused++ ? first : p->text;
        }
    }
    if (unused)
        say(l, CT_NOTE, "ignore", "", "%zu entries match nothing here, the first is \"%.150s\" (harmless)", unused, first);
    for (size_t i = 0; i < l->q->n_targets; i++) {
        const struct ct_pattern *p = &l->q->target[i].pattern;

        if (p->undecidable)
            say_undecidable(l, p, "targets");
        else if ((p->is_regex || strchr(p->text, '.')) && !pattern_used(l, p))
            say(l, CT_NOTE, "targets", "", "\"%.200s\" matches nothing here", p->text);
    }
}

/* --- tying ------------------------------------------------------------------------------------------------------------- */

static bool tie_flag(const json_t *obj)
{
    return !json_is_false(json_object_get(obj, "tie_word_embeddings"));    /* absent and null: the default, true */
}

static bool is_packed(const struct ct_module *m)
{
    return m && m->part[CT_WEIGHT_PACKED];
}

/* Section 4.7.  Where there is a text_config, its flag decides; a packed table wants both to be false. */
static void lint_tie(struct lint *l)
{
    const json_t *config = l->disk->config, *text = json_object_get(config, "text_config");
    bool outer = tie_flag(config), inner = json_is_object(text) ? tie_flag(text) : outer;
    bool told = json_object_get(config, "tie_word_embeddings") != NULL;
    struct ct_module *head = ct_modules_find(&l->modules, l->arch == CT_TEXT ? "lm_head" : "language_model.lm_head");
    char embed[CT_NAME];
    bool packed_embed;

    snprintf(embed, sizeof embed, "%smodel.embed_tokens", l->prefix);
    packed_embed = is_packed(ct_modules_find(&l->modules, embed));
    l->g.tied = inner;
    if (outer != inner && told)
        say(l, CT_UNTIDY, "tie_word_embeddings", "", "%s at the top level, %s in text_config: the latter decides", outer ? "true" : "false", inner ? "true" : "false");
    if (packed_embed && (inner || (outer && told)))
        say(l, CT_REFUSED, "tie_word_embeddings", "AttributeError: 'VocabParallelEmbedding' object has no attribute 'weight'",
            "true, but embed_tokens is packed and cannot be shared: set it to false and store lm_head");
    if (!inner || !head)
        return;
    head->used = true;
    if (is_packed(head) && !packed_embed)
        say(l, CT_REFUSED, head->disk, "AttributeError: the packed head is not noticed while tie_word_embeddings is true", "a packed lm_head with tied embeddings: set tie_word_embeddings to false");
    else if (head->part[CT_WEIGHT] && !packed_embed)
        say(l, CT_UNTIDY, head->disk, "", "stored although tied: it costs %.2f GiB of memory (emb-untie --drop-twin removes an equal one)",
            (double)head->part[CT_WEIGHT]->nbytes / (double)(1 << 30));
}

/* --- the config -------------------------------------------------------------------------------------------------------- */

struct architecture { const char *name; enum ct_arch arch; bool gemma4; const char *cls, *config; };

static const struct architecture architectures[] = {
    {"Gemma4ForCausalLM", CT_TEXT, true, "Gemma4Model", ""},
    {"Gemma4ForConditionalGeneration", CT_WRAPPED, true, "Gemma4ForConditionalGeneration", "Gemma4Config"},
    {"Gemma4UnifiedForConditionalGeneration", CT_UNIFIED, true, "Gemma4UnifiedForConditionalGeneration", "Gemma4UnifiedConfig"},
    {"Gemma3ForCausalLM", CT_TEXT, false, "Gemma3Model", ""},
    {"Gemma3ForConditionalGeneration", CT_WRAPPED, false, "Gemma3ForConditionalGeneration", "Gemma3Config"}
};

/* false: not to be loaded at all. */
static bool lint_architecture(struct lint *l)
{
    const json_t *config = l->disk->config;
    const char *name = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    const struct architecture *a = NULL;
    char loader[200];

    for (size_t i = 0; name && i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(name, architectures[i].name) == 0)
            a = &architectures[i];
    if (!a) {
        snprintf(loader, sizeof loader, "ValidationError: 1 validation error for ModelConfig Value error, Model architectures ['%.60s'] are not supported for now", name ? name : "");
        say(l, CT_REFUSED, "architectures", loader, "\"%.100s\" is not known here: expected Gemma4ForCausalLM and the like", name ? name : "(none)");
        return false;
    }
    l->arch = a->arch;
    l->cls = a->cls;
    l->outer_cls = a->name;
    l->prefix = a->arch == CT_TEXT ? "" : "language_model.";
    if (a->arch != CT_TEXT && !l->g.wrapped) {
        snprintf(loader, sizeof loader, "TypeError: Invalid type of HuggingFace config. Expected type: %s", a->config);
        say(l, CT_REFUSED, "architectures", loader, "%s over a text config: text-only builds are %sForCausalLM", name, a->gemma4 ? "Gemma4" : "Gemma3");
        return false;
    }
    if (a->gemma4 != (l->g.family == GEMMA_4))
        say(l, CT_REFUSED, "architectures", "TypeError: Invalid type of HuggingFace config", "%s over the config of another model family", name);
    return a->gemma4 == (l->g.family == GEMMA_4);
}

static void lint_keys(const struct lint *l)
{
    static const char *const keys[] = {"hidden_size", "intermediate_size", "hidden_act"};
    const json_t *config = l->disk->config, *text = json_object_get(config, "text_config"), *vision = json_object_get(config, "vision_config");
    const json_t *experts = json_object_get(text ? text : config, "num_experts"), *cap = json_object_get(text ? text : config, "final_logit_softcapping");
    char loader[200];

    if (json_is_integer(experts) && json_integer_value(experts) == 0)
        say(l, CT_REFUSED, "num_experts", "ValueError: Gemma4 MoE requires an expert intermediate size", "0 switches experts on, a dense model must have null or no key");
    if (json_is_integer(cap)) {                         /* jq before 1.7 writes 30.0 so */
        snprintf(loader, sizeof loader, "TypeError: Field 'final_logit_softcapping' with value %lld doesn't match any type in (<class 'float'>, <class 'NoneType'>)",
            (long long)json_integer_value(cap));
        say(l, CT_REFUSED, "final_logit_softcapping", loader, "an integer, transformers wants a float: write %lld.0", (long long)json_integer_value(cap));
    }
    if (l->arch != CT_UNIFIED)
        return;
    if (!json_object_get(vision, "num_soft_tokens"))
        say(l, CT_REFUSED, "vision_config", "AttributeError: 'Gemma4UnifiedVisionConfig' object has no attribute 'num_soft_tokens'", "num_soft_tokens (280) is missing");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_object_get(config, keys[i]))
            say(l, CT_UNTIDY, "config.json", "", "%s is missing at the top level", keys[i]);
}

static void lint_modules(struct lint *l)
{
    ct_modules_make(&l->modules, l->arch, l->disk->tensor, l->disk->n, l->faults);
    lint_tie(l);
    l->want = gemma_text_tensors(&l->g, &l->n_want);
    lint_language_model(l);
    lint_towers(l);
    lint_rest(l);
    if (l->q)
        lint_entries(l);
    free(l->want);
    ct_modules_free(&l->modules);
}

void ct_lint(const struct ct_disk *disk, const struct ct_faults *faults)
{
    struct lint l = {.disk = disk, .faults = faults};
    struct err e = {0, ""};

    if (gemma_config_read(&l.g, disk->config, "config.json", &e)) {
        say(&l, CT_REFUSED, "config.json", "an error while reading config.json", "%s", e.msg);
        return;
    }
    if (!lint_architecture(&l))
        return;
    lint_keys(&l);
    l.q = ct_quant_read(disk->config, "config.json", faults, &e);
    if (e.code)
        say(&l, CT_REFUSED, "quantization_config", "an error while reading its quantization_config", "%s", e.msg);
    else
        lint_modules(&l);
    ct_quant_free(l.q);
}
