#include "ct/scheme.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/text.h"
#include "gemma/names.h"

const char *ct_kind_name(enum ct_kind k)
{
    static const char *const names[] = {"16-bit", "packed", "fp8", "int8"};

    return names[k];
}

/* --- reading the config ---------------------------------------------------------------------------------------------- */

struct reading {
    const char *where;
    const struct ct_faults *faults;
    struct err *e;
};

static void fault(struct reading *r, enum ct_grade grade, const char *key, const char *what, const char *loader)
{
    if (r->faults)
        r->faults->fn(r->faults->arg, grade, key, what, loader);
    else if (grade == CT_REFUSED)
        (void)err_set(r->e, EXIT_DATA, "%s: %s: %s", r->where, key, what);
}

static void check_keys(struct reading *r, const json_t *obj, const char *at, const char *const *known, enum ct_grade grade)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)obj, key, v) {
        size_t i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i]) {
            char *what = xasprintf("key \"%.100s\" is not allowed here", key);
            char *loader = xasprintf("ValidationError: 1 validation error for VllmConfig %.100s Extra inputs are not permitted", key);

            fault(r, grade, at, what, grade == CT_REFUSED ? loader : NULL);
            free(what);
            free(loader);
        }
    }
}

/* The default strategy as compressed-tensors infers it. */
static const char *default_strategy(int group_size)
{
    return group_size > 0 ? "group" : group_size < 0 ? "channel" : "tensor";
}

static void check_args(struct reading *r, const struct ct_args *a, const char *at, const char *actorder)
{
    bool group = strcmp(a->strategy, "group") == 0 || strcmp(a->strategy, "tensor_group") == 0;

    if (group && a->group_size <= 0)
        fault(r, CT_REFUSED, at, "strategy \"group\" needs a positive group_size", "ValidationError: strategy group requires group_size");
    if (!group && a->group_size > 0)
        fault(r, CT_REFUSED, at, "group_size is only for strategy \"group\"", "ValidationError: group_size requires strategy to be group");
    if (strcmp(a->strategy, "token") == 0 && !a->dynamic)
        fault(r, CT_REFUSED, at, "strategy \"token\" needs \"dynamic\": true",
            "ValidationError: Cannot perform static token quantization, please use dynamic=True");
    if (actorder && strcmp(actorder, "weight") != 0 && strcmp(actorder, "static") != 0)
        fault(r, CT_REFUSED, at, "activation order by group is not supported: actorder must be null", "ValidationError: Compressed-tensors group/dynamic activation ordering is no longer supported");
}

static int read_args(struct reading *r, const json_t *obj, const char *at, struct ct_args *a)
{
    static const char *const keys[] = {"num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic",
        "actorder", "scale_dtype", "zp_dtype", "observer", "observer_kwargs", NULL};
    const json_t *dynamic, *order;
    const char *type, *strategy, *actorder;
    long long bits, group;

    memset(a, 0, sizeof *a);
    if (!obj || json_is_null(obj))
        return 0;
    if (!json_is_object(obj))
        return err_set(r->e, EXIT_DATA, "%s: weights or activations of %s: an object is expected", r->where, at);
    a->present = true;
    check_keys(r, obj, at, keys, CT_REFUSED);
    if (json_get_int(obj, "num_bits", 8, &bits, at, r->e) || json_get_int(obj, "group_size", 0, &group, at, r->e)
        || json_get_str(obj, "type", "int", &type, at, r->e) || json_get_bool(obj, "symmetric", true, &a->symmetric, at, r->e))
        return -1;
    if (bits < 1 || bits > 16 || group < -1 || group > 1 << 20)
        return err_set(r->e, EXIT_DATA, "%s: %s: num_bits %lld, group_size %lld: out of bounds", r->where, at, bits, group);
    if (json_get_str(obj, "strategy", default_strategy((int)group), &strategy, at, r->e))
        return -1;
    a->bits = (int)bits;
    a->group_size = (int)group;
    a->is_float = strcmp(type, "float") == 0;
    snprintf(a->strategy, sizeof a->strategy, "%s", strategy);
    dynamic = json_object_get(obj, "dynamic");          /* "local" is a kind of dynamic */
    a->dynamic = dynamic && (json_is_true(dynamic) || json_is_string(dynamic));
    order = json_object_get(obj, "actorder");
    actorder = json_is_string(order) ? json_string_value(order) : json_is_true(order) ? "group" : NULL;
    a->actorder = actorder != NULL;
    check_args(r, a, at, actorder);
    return r->e->code ? -1 : 0;
}

static void init_pattern(struct ct_pattern *p, const char *text, enum ct_arch arch)
{
    char mapped[CT_NAME];
    bool map = strncmp(text, "re:", 3) != 0 && strchr(text, '.') && ct_runtime_name(arch, text, mapped);

    ct_pattern_init(p, text, map ? mapped : NULL);
}

static void add_target(struct ct_quant *q, const char *text, size_t group)
{
    for (size_t i = 0; i < q->n_targets; i++)
        if (strcmp(q->target[i].pattern.text, text) == 0) {
            q->target[i].group = group;
            return;
        }
    q->target = xreallocarray(q->target, q->n_targets + 1, sizeof *q->target);
    init_pattern(&q->target[q->n_targets].pattern, text, q->arch);
    q->target[q->n_targets++].group = group;
}

static int read_targets(struct reading *r, struct ct_quant *q, const json_t *list, const char *at, size_t group)
{
    size_t n = json_array_size(list);
    const char *only = json_string_value(json_array_get(list, 0));

    if (!json_is_array(list))
        return err_set(r->e, EXIT_DATA, "%s: %s.targets is no array", r->where, at);
    if (n == 1 && only && ends_with(only, "Attention"))
        return 0;                                       /* a scheme for the KV cache: the loader skips it */
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(list, i));

        if (!text)
            return err_set(r->e, EXIT_DATA, "%s: %s: entry %zu of its targets is no string", r->where, at, i);
        add_target(q, text, group);
    }
    return 0;
}

static int read_group(struct reading *r, struct ct_quant *q, const char *name, const json_t *obj, const char *format)
{
    static const char *const keys[] = {"targets", "weights", "input_activations", "output_activations", "format", NULL};
    struct ct_group *g = &q->group[q->n_groups];
    const char *own;
    char *at;
    int rc = -1;

    if (!json_is_object(obj))
        return err_set(r->e, EXIT_DATA, "%s: config_groups.%.100s: a group has targets and weights, this is none", r->where, name);
    memset(g, 0, sizeof *g);
    g->name = xstrdup(name);
    at = xasprintf("config_groups.%.100s", name);
    q->n_groups++;
    check_keys(r, obj, at, keys, CT_UNTIDY);
    if (json_get_str(obj, "format", format, &own, at, r->e))
        goto out;
    if (strcmp(own, "mixed-precision") == 0 && json_is_string(json_object_get(obj, "format")))
        fault(r, CT_REFUSED, at, "a group's own format cannot be \"mixed-precision\"", "ValidationError");
    snprintf(g->format, sizeof g->format, "%s", own);
    rc = read_args(r, json_object_get(obj, "weights"), at, &g->weights);
    if (!rc)
        rc = read_args(r, json_object_get(obj, "input_activations"), at, &g->input);
    if (!rc && strcmp(own, "int-quantized") == 0 && g->weights.present && !g->weights.is_float && !g->input.present)
        fault(r, CT_REFUSED, at, "format int-quantized needs input_activations", "ValidationError: 1 validation error for VllmConfig Assertion failed");
    if (!rc)
        rc = read_targets(r, q, json_object_get(obj, "targets"), at, q->n_groups - 1);
out:
    free(at);
    return rc;
}

static int read_ignore(struct reading *r, struct ct_quant *q, const json_t *list)
{
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return err_set(r->e, EXIT_DATA, "%s: quantization_config.ignore is no array", r->where);
    q->ignore = xcalloc(json_array_size(list) + 1, sizeof *q->ignore);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));

        if (!text)
            return err_set(r->e, EXIT_DATA, "%s: quantization_config.ignore: entry %zu is no string", r->where, i);
        init_pattern(&q->ignore[q->n_ignore++], text, q->arch);
    }
    return 0;
}

static int read_all(struct reading *r, struct ct_quant *q, const json_t *qc)
{
    const json_t *groups = json_object_get(qc, "config_groups"), *v;
    const char *method, *format, *name;

    if (json_get_str(qc, "quant_method", "", &method, "quantization_config", r->e)
        || json_get_str(qc, "format", "", &format, "quantization_config", r->e))
        return -1;
    if (strcmp(method, "compressed-tensors") != 0)
        return err_set(r->e, EXIT_DATA, "%s: quant_method is \"%.60s\", expected \"compressed-tensors\"", r->where, method);
    if (!json_is_object(groups))
        return err_set(r->e, EXIT_DATA, "%s: quantization_config.config_groups is no object", r->where);
    q->group = xcalloc(json_object_size(groups) + 1, sizeof *q->group);
    json_object_foreach((json_t *)groups, name, v)
        if (read_group(r, q, name, v, format))
            return -1;
    if (json_array_size(json_object_get(json_object_get(qc, "sparsity_config"), "targets")))
        fault(r, CT_REFUSED, "sparsity_config", "sparsity with targets is no longer supported", "DeprecationWarning: Sparsity support has been removed from compressed-tensors");
    return read_ignore(r, q, json_object_get(qc, "ignore"));
}

struct ct_quant *ct_quant_read(const json_t *config, const char *where, const struct ct_faults *faults, struct err *e)
{
    struct reading r = {where, faults, e};
    const json_t *qc = json_object_get(config, "quantization_config");
    struct ct_quant *q;

    if (!qc || json_is_null(qc))
        return NULL;
    if (!json_is_object(qc)) {
        (void)err_set(e, EXIT_DATA, "%s: quantization_config is no object", where);
        return NULL;
    }
    q = xcalloc(1, sizeof *q);
    q->arch = ct_arch_of(config);
    if (read_all(&r, q, qc) || e->code) {
        ct_quant_free(q);
        return NULL;
    }
    return q;
}

void ct_quant_free(struct ct_quant *q)
{
    if (!q)
        return;
    for (size_t i = 0; i < q->n_groups; i++)
        free(q->group[i].name);
    for (size_t i = 0; i < q->n_targets; i++)
        ct_pattern_free(&q->target[i].pattern);
    for (size_t i = 0; i < q->n_ignore; i++)
        ct_pattern_free(&q->ignore[i]);
    free(q->group);
    free(q->target);
    free(q->ignore);
    free(q);
}

/* --- deciding -------------------------------------------------------------------------------------------------------- */

enum ct_match ct_ignored(const struct ct_quant *q, const char *name)
{
    enum ct_match best = CT_NO_MATCH;

    for (size_t i = 0; i < q->n_ignore; i++) {
        enum ct_match m = ct_pattern_name(&q->ignore[i], name);

        if (m == CT_MATCH)
            return m;
        if (m == CT_UNDECIDED)
            best = m;
    }
    return best;
}

static const struct ct_group *first_target(const struct ct_quant *q, const char *s, bool *undecided,
    enum ct_match (*match)(const struct ct_pattern *, const char *))
{
    for (size_t i = 0; i < q->n_targets; i++) {
        enum ct_match m = match(&q->target[i].pattern, s);

        if (m == CT_MATCH)
            return &q->group[q->target[i].group];
        if (m == CT_UNDECIDED)
            *undecided = true;
    }
    return NULL;
}

const struct ct_group *ct_target_by_name(const struct ct_quant *q, const char *name, bool *undecided)
{
    return first_target(q, name, undecided, ct_pattern_name);
}

const struct ct_group *ct_target_by_class(const struct ct_quant *q, const char *cls, bool *undecided)
{
    return first_target(q, cls, undecided, ct_pattern_class);
}

static bool no_scheme(const char **why, const char *text)
{
    *why = text;
    return false;
}

/* Static symmetric integers, one scale a group or a row: what both kernels for packed weights read. */
static bool packed_scheme(const struct ct_args *w, struct ct_scheme *out, const char **why)
{
    bool group = strcmp(w->strategy, "group") == 0;

    if (!w->symmetric)
        return no_scheme(why, "asymmetric weights (symmetric: false) have zero points, which this layout lacks");
    if (w->bits != 4 && w->bits != 8)
        return no_scheme(why, "packed weights have 4 or 8 bits");
    *out = (struct ct_scheme){CT_PACKED, w->bits, group ? w->group_size : 0, false};
    return true;
}

static bool int_group_or_channel(const struct ct_args *w)
{
    return w->present && !w->is_float && !w->dynamic && (strcmp(w->strategy, "group") == 0 || strcmp(w->strategy, "channel") == 0);
}

static bool w8a8_scheme(const struct ct_group *g, struct ct_scheme *out, const char **why)
{
    const struct ct_args *w = &g->weights, *x = &g->input;
    bool fp8 = strcmp(g->format, "float-quantized") == 0;

    if (w->is_float != fp8 || w->bits != 8 || w->dynamic || strcmp(w->strategy, "channel") != 0)
        return no_scheme(why, "8-bit weights must be static, of the format's type, with one scale a row (strategy \"channel\")");
    if (!w->symmetric)
        return no_scheme(why, "asymmetric 8-bit weights have no kernel (No compressed-tensors compatible scheme was found)");
    if (!x->present && !fp8)
        return no_scheme(why, "int-quantized needs input_activations");
    if (x->present && (x->is_float != fp8 || x->bits != 8 || !x->dynamic || strcmp(x->strategy, "token") != 0))
        return no_scheme(why, "input_activations must be dynamic, 8 bits, one scale a token, of the weights' type");
    *out = (struct ct_scheme){fp8 ? CT_FP8 : CT_INT8, 8, 0, x->present};
    return true;
}

bool ct_group_scheme(const struct ct_group *g, bool embedding, struct ct_scheme *out, const char **why)
{
    if (embedding) {
        if (!int_group_or_channel(&g->weights))
            return no_scheme(why, "embeddings only support weight-only INT group/channel (WNA16) quantization");
        if (g->input.present && g->weights.bits == 4)
            return no_scheme(why, "an embedding's group must not have input_activations");
        return packed_scheme(&g->weights, out, why);
    }
    if (!g->weights.present)
        return no_scheme(why, "the group has no weights");
    if (strcmp(g->format, "pack-quantized") == 0) {
        if (!int_group_or_channel(&g->weights))
            return no_scheme(why, "pack-quantized needs static integer weights with strategy \"group\" or \"channel\"");
        if (g->input.present)
            return no_scheme(why, "pack-quantized must have input_activations null: with them the loader picks a W4A8 scheme");
        return packed_scheme(&g->weights, out, why);
    }
    if (strcmp(g->format, "float-quantized") == 0 || strcmp(g->format, "int-quantized") == 0)
        return w8a8_scheme(g, out, why);
    return no_scheme(why, "unknown format: pack-quantized, float-quantized and int-quantized are known");
}

/* The class that the loader gives a module, as far as targets can tell classes apart. */
static const char *class_of(enum gemma_class c)
{
    switch (c) {
    case GC_EMBED: case GC_PLE: return "VocabParallelEmbedding";
    case GC_HEAD: return "ParallelLMHead";
    default: return "Linear";
    }
}

int ct_scheme_of(const struct ct_quant *q, const char *module, struct ct_scheme *out, struct err *e)
{
    char name[CT_NAME], fused[CT_NAME], tensor[CT_NAME + 8];
    const struct ct_group *g = NULL;
    enum ct_match ignored;
    enum gemma_class c;
    bool undecided = false, is_fused;
    const char *why = "";

    *out = (struct ct_scheme){CT_PLAIN, 16, 0, false};
    if (!q)
        return 0;
    snprintf(tensor, sizeof tensor, "%.*s.weight", CT_NAME - 1, module);
    c = gemma_classify(tensor);
    if (c == GC_ROUTER || c == GC_PLAIN)
        return 0;
    if (!ct_runtime_name(q->arch, module, name))
        return err_set(e, EXIT_DATA, "%.300s: its name in the loader has more than %d bytes", module, CT_NAME - 1);
    is_fused = ct_fused_name(name, fused);
    ignored = ct_ignored(q, name);
    if (ignored != CT_MATCH && is_fused) {
        enum ct_match m = ct_ignored(q, fused);

        ignored = m != CT_NO_MATCH ? m : ignored;
    }
    if (ignored == CT_MATCH)
        return 0;
    if (is_fused)
        g = ct_target_by_name(q, fused, &undecided);
    if (!g)
        g = ct_target_by_name(q, name, &undecided);
    if (!g)
        g = ct_target_by_class(q, class_of(c), &undecided);
    if (ignored == CT_UNDECIDED || undecided)
        return err_set(e, EXIT_DATA, "%s: quantization_config has a regex that this program cannot decide for it: list names instead", module);
    if (g && !ct_group_scheme(g, c == GC_EMBED || c == GC_PLE, out, &why))
        return err_set(e, EXIT_DATA, "%s: quantization group %s: %s", module, g->name, why);
    return 0;
}
