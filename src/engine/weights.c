#define _DEFAULT_SOURCE     /* MAP_ANONYMOUS, madvise */
#include "engine/weights.h"
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "base/memory.h"
#include "gemma/names.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define NAME 160

/* One text tensor of the checkpoint under its text-only name. */
struct named { char name[NAME]; const struct ckpt_entry *entry; bool used; };

/* What the other memory's readers need of a scale: as wide as `size` bytes, and each so many times, one for every 32 columns; as it is stored: size 0, times 1. */
struct growth { size_t size, times; };
/* Bytes of one tensor and where they go. */
enum place { HERE, AWAY, MAPPED };     /* this process's memory, the other memory, the file */
struct transfer { const struct ckpt_entry *entry; uint8_t *to; enum place place; struct growth grow; };

struct loader {
    struct weights *w;
    const struct gemma *g;
    const struct ckpt *ckpt;
    const struct ct_quant *quant;
    const struct weights_memory *memory;
    struct err *e;
    struct named *named; size_t n_named;
    struct transfer *transfer; size_t n_transfers, cap_transfers;
    uint8_t *at, *end;          /* what is left of the mapping */
    uint8_t *away;              /* what is left of the other memory */
    uint8_t **shard;            /* where the tensors of each mapped file begin; NULL = not mapped */
};

/* --- finding tensors ------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static const char *disk_name(const struct named *t) { return t->entry->t->name; }

static int list_text_tensors(struct loader *l)
{
    size_t towers = 0;

    l->named = xcalloc(l->ckpt->n ? l->ckpt->n : 1, sizeof *l->named);
    for (size_t i = 0; i < l->ckpt->n; i++) {
        struct named *t = &l->named[l->n_named];
        const char *name = l->ckpt->entry[i].t->name;
        if (gemma_text_name(name, t->name, sizeof t->name)) {
            t->entry = &l->ckpt->entry[i];
            l->n_named++;
        } else if (gemma_classify(name) == GC_TOWER) {
            towers++;
        } else if (gemma_classify(name) == GC_UNKNOWN) {
            return err_set(l->e, EXIT_DATA, "%s: tensor %.120s belongs to no Gemma that is known here", l->ckpt->path, name);
        }
    }
    qsort(l->named, l->n_named, sizeof *l->named, by_name);
    for (size_t i = 1; i < l->n_named; i++)
        if (!strcmp(l->named[i - 1].name, l->named[i].name))
            return err_set(l->e, EXIT_DATA, "%s: %.120s and %.120s are two spellings of one tensor", l->ckpt->path, disk_name(&l->named[i - 1]), disk_name(&l->named[i]));
    if (towers)
        warn_msg("%s: %zu tensors of vision and audio towers are left out: text only", l->ckpt->path, towers);
    return 0;
}

static struct named *find(const struct loader *l, const char *name)
{
    struct named key;

    if (snprintf(key.name, sizeof key.name, "%s", name) >= (int)sizeof key.name)
        return NULL;
    return bsearch(&key, l->named, l->n_named, sizeof *l->named, by_name);
}

static struct named *find_part(const struct loader *l, const char *module, const char *part)
{
    char name[NAME];

    snprintf(name, sizeof name, "%s%s", module, part);
    return find(l, name);
}

/* The tensor, with exactly this shape. */
static struct named *want(struct loader *l, const char *module, const char *part, int ndim, const uint64_t *shape)
{
    struct named *t = find_part(l, module, part);

    if (!t) {
        err_set(l->e, EXIT_DATA, "%s: tensor %s%s is missing: the download is incomplete, or config.json belongs to another model", l->ckpt->path, module, part);
        return NULL;
    }
    const struct st_tensor *s = t->entry->t;
    bool same = s->ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = s->shape[i] == shape[i];
    if (!same) {
        char found[128] = "", expected[128] = "";
        for (int i = 0; i < s->ndim; i++)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%" PRIu64, i ? ", " : "", s->shape[i]);
        for (int i = 0; i < ndim; i++)
            snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%s%" PRIu64, i ? ", " : "", shape[i]);
        err_set(l->e, EXIT_DATA, "%s: %.120s has shape [%s], by config.json it is [%s]", l->ckpt->path, s->name, found, expected);
        return NULL;
    }
    t->used = true;
    return t;
}

static int wrong_dtype(struct loader *l, const struct named *t, const char *expected)
{
    return err_set(l->e, EXIT_DATA, "%s: %.120s is %s, expected %s", l->ckpt->path, disk_name(t), st_dtype_name(t->entry->t->dtype), expected);
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

static void *own(struct weights *w, void *p)
{
    if (w->n_owned == w->cap_owned) {
        w->cap_owned = w->cap_owned ? 2 * w->cap_owned : 256;
        w->owned = xreallocarray(w->owned, w->cap_owned, sizeof *w->owned);
    }
    return w->owned[w->n_owned++] = p;
}

const uint8_t *weights_start(const struct weights *w)
{
    return w->mapped ? w->map : (const uint8_t *)(((uintptr_t)w->map + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
}

static bool goes_away(const struct loader *l, const struct named *t)
{
    return l->memory && (l->memory->ple || gemma_classify(t->name) != GC_PLE);
}

static bool is_power_of_two(size_t n) { return n && !(n & (n - 1)); }

/* 8-bit rows have scales in f32 there, and int4 groups hold a power of two times 32 columns. */
static struct growth growth_of(const struct loader *l, const struct named *scale)
{
    struct growth grow = {0, 1};
    char module[NAME - 16];
    const char *end = strstr(scale->name, ".weight_scale");
    const struct st_tensor *s = scale->entry->t;

    if (!l->memory || !end)
        return grow;
    snprintf(module, sizeof module, "%.*s", (int)(end - scale->name), scale->name);
    const struct named *packed = find_part(l, module, ".weight_packed");
    if (!packed && s->dtype != ST_F32)
        grow.size = sizeof(float);
    if (packed && packed->entry->t->ndim == 2 && s->ndim == 2 && s->shape[1]) {
        const size_t blocks = (size_t)(packed->entry->t->shape[1] / 4 / s->shape[1]);
        grow.times = blocks && !is_power_of_two(blocks) ? blocks : 1;
    }
    return grow;
}

static uint64_t room_for(const struct loader *l, const struct named *t)
{
    const struct growth grow = growth_of(l, t);

    return t->entry->t->nbytes * grow.times * (grow.size ? 2 : 1) + 64 + KERNEL_SLACK;
}

/* With room for tensors that nothing will use left out, since there it would cost. */
static int ask_for_room(struct loader *l)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < l->n_named; i++) {
        const struct named *t = &l->named[i];
        if (goes_away(l, t) && !gemma_is_dead(l->g, disk_name(t)) && !(l->g->tied && gemma_classify(t->name) == GC_HEAD))
            bytes += room_for(l, t);
    }
    l->away = l->memory->room(l->memory->arg, bytes, l->e);
    return l->away ? 0 : -1;
}

static int reserve(struct loader *l, uint64_t bytes)
{
    struct weights *w = l->w;

    w->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (w->map == MAP_FAILED) {
        w->map = NULL;
        return err_errno(l->e, EXIT_TEMPFAIL, "%s: no memory for %.1f GB of weights", l->ckpt->path, (double)bytes / 1e9);
    }
    w->map_bytes = bytes;
    l->end = (uint8_t *)w->map + bytes;
    return 0;
}

static size_t whole_pages(uint64_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (size_t)(bytes + page - 1) / page * page;
}

/* One file at `at`; a page of nothing after it takes what kernels read past its end. */
static int map_shard(struct loader *l, size_t i, uint8_t *at, uint64_t bytes)
{
    char *path = xasprintf("%s/%s", l->ckpt->path, l->ckpt->shard[i].name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int failed = 0;

    if (fd < 0 || mmap(at, whole_pages(bytes), PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
        failed = err_errno(l->e, EXIT_IO, "%s: cannot be mapped", path);
    if (fd >= 0)
        close(fd);
    free(path);
    l->shard[i] = at + st_data_offset(l->ckpt->shard[i].reader);
    return failed;
}

static uint64_t file_bytes(const struct loader *l, size_t i)
{
    const struct st_reader *r = l->ckpt->shard[i].reader;

    return st_data_offset(r) + st_header_of(r)->nbytes;
}

/* The files one after another, then room for the scales that cannot stay in them. */
static int map_files(struct loader *l)
{
    uint64_t bytes = 0, at = 0;

    for (size_t i = 0; i < l->ckpt->n_shards; i++)
        bytes += whole_pages(file_bytes(l, i)) + whole_pages(1);
    const uint64_t files = bytes;
    for (size_t i = 0; i < l->n_named; i++)
        bytes += strstr(l->named[i].name, ".weight_scale") ? l->named[i].entry->t->nbytes + 64 + KERNEL_SLACK : 0;
    if (reserve(l, bytes))
        return -1;
    l->shard = xcalloc(l->ckpt->n_shards, sizeof *l->shard);
    for (size_t i = 0; i < l->ckpt->n_shards; i++, at += whole_pages(1)) {
        if (map_shard(l, i, (uint8_t *)l->w->map + at, file_bytes(l, i)))
            return -1;
        at += whole_pages(file_bytes(l, i));
    }
    l->at = (uint8_t *)l->w->map + files;
    return 0;
}

/* Pages are touched only when a tensor is read into them, so room for all text tensors costs nothing for those left out. */
static int map_memory(struct loader *l)
{
    uint64_t bytes = HUGE_PAGE;

    if (l->w->mapped)
        return map_files(l);
    if (l->memory && ask_for_room(l))
        return -1;
    for (size_t i = 0; i < l->n_named; i++)
        if (!goes_away(l, &l->named[i]))
            bytes += room_for(l, &l->named[i]);
    const double left = memory_available("/proc", "/sys/fs/cgroup");
    if (left > 0 && (double)bytes > left)
        return err_set(l->e, EXIT_TEMPFAIL, "%s: the weights take %.1f GB and %.1f GB of memory are left: use a smaller build, or --mmap", l->ckpt->path, (double)bytes / 1e9, left / 1e9);
    if (reserve(l, bytes + HUGE_PAGE))
        return -1;
    l->at = (uint8_t *)(uintptr_t)weights_start(l->w);
#ifdef MADV_HUGEPAGE
    (void)madvise(l->at, (size_t)(l->end - l->at), MADV_HUGEPAGE);
#endif
    return 0;
}

static const uint8_t *add_transfer(struct loader *l, const struct named *t, uint8_t *to, enum place place)
{
    if (l->n_transfers == l->cap_transfers) {
        l->cap_transfers = l->cap_transfers ? 2 * l->cap_transfers : 1024;
        l->transfer = xreallocarray(l->transfer, l->cap_transfers, sizeof *l->transfer);
    }
    l->transfer[l->n_transfers++] = (struct transfer){t->entry, to, place, growth_of(l, t)};
    return to;
}

/* In memory, also where the files are mapped. */
static const uint8_t *place_here(struct loader *l, const struct named *t)
{
    uint8_t *to = l->at;

    l->at += room_for(l, t) / 64 * 64;
    return add_transfer(l, t, to, HERE);
}

/* Where a tensor's bytes will be once read_all() has run. */
static const uint8_t *place(struct loader *l, const struct named *t)
{
    if (l->shard)
        return add_transfer(l, t, l->shard[t->entry->shard] + t->entry->t->begin, MAPPED);
    if (!goes_away(l, t))
        return place_here(l, t);
    uint8_t *to = l->away;
    l->away += room_for(l, t) / 64 * 64;
    return add_transfer(l, t, to, AWAY);
}

/* --- modules --------------------------------------------------------------------------------------------------------- */

static int plain_kind(struct loader *l, const struct named *t, enum weight_kind *kind)
{
    switch (t->entry->t->dtype) {
    case ST_BF16: *kind = W_BF16; return 0;
    case ST_F16: *kind = W_F16; return 0;
    case ST_F32: *kind = W_F32; return 0;
    default: return wrong_dtype(l, t, "BF16, F16 or F32 (config.json does not call it quantized)");
    }
}

/* M.weight_scale [rows, scales]. */
static int scale_of(struct loader *l, const char *module, size_t scales, struct matrix *m)
{
    struct named *t = want(l, module, ".weight_scale", 2, (uint64_t[]){m->rows, scales});

    if (!t)
        return -1;
    m->scale_type = t->entry->t->dtype;
    if (m->scale_type != ST_BF16 && m->scale_type != ST_F16 && m->scale_type != ST_F32)
        return wrong_dtype(l, t, "BF16, F16 or F32");
    const struct growth grow = growth_of(l, t);
    m->scale_type = grow.size ? ST_F32 : m->scale_type;
    m->scales = scales * grow.times;
    /* Kernels take 16 at a time: what follows a row's last ones must be scales or zeros, which it is not in a file. */
    m->scale = l->shard && scales % 16 && scales > 1 ? place_here(l, t) : place(l, t);
    return 0;
}

static int check_weight_shape(struct loader *l, const char *module, const struct matrix *m)
{
    struct named *t = want(l, module, ".weight_shape", 1, (uint64_t[]){2});
    int64_t shape[2];

    if (!t)
        return -1;
    if (t->entry->t->dtype != ST_I64)
        return wrong_dtype(l, t, "I64");
    if (ckpt_read(l->ckpt, t->entry, 0, shape, sizeof shape, l->e))
        return -1;
    if (shape[0] != (int64_t)m->rows || shape[1] != (int64_t)m->cols)
        return err_set(l->e, EXIT_DATA, "%s: %.120s says [%lld, %lld], by config.json the weight is [%zu, %zu]", l->ckpt->path, disk_name(t),
            (long long)shape[0], (long long)shape[1], m->rows, m->cols);
    return 0;
}

static int packed(struct loader *l, const char *module, const struct ct_scheme *s, struct matrix *m)
{
    const size_t group = s->group ? (size_t)s->group : m->cols;

    if (s->bits != 4)
        return err_set(l->e, EXIT_DATA, "%s: %s is packed in %d bits: only int4 is supported", l->ckpt->path, module, s->bits);
    if (group % 32 || m->cols % group)
        return err_set(l->e, EXIT_DATA, "%s: %s has groups of %zu along %zu inputs: only multiples of 32 that divide them are supported", l->ckpt->path, module, group, m->cols);
    struct named *t = want(l, module, ".weight_packed", 2, (uint64_t[]){m->rows, m->cols / 8});
    if (!t)
        return -1;
    if (t->entry->t->dtype != ST_I32)
        return wrong_dtype(l, t, "I32");
    m->kind = W_INT4;
    m->data = place(l, t);
    return scale_of(l, module, m->cols / group, m) || check_weight_shape(l, module, m) ? -1 : 0;
}

static int eight_bit(struct loader *l, const char *module, const struct ct_scheme *s, struct matrix *m)
{
    struct named *t = want(l, module, ".weight", 2, (uint64_t[]){m->rows, m->cols});

    if (!t)
        return -1;
    if (t->entry->t->dtype != (s->kind == CT_FP8 ? ST_F8_E4M3 : ST_I8))
        return wrong_dtype(l, t, s->kind == CT_FP8 ? "F8_E4M3 by quantization_config" : "I8 by quantization_config");
    m->kind = s->kind == CT_FP8 ? W_FP8 : W_INT8;
    m->data = place(l, t);
    return scale_of(l, module, 1, m);
}

static int plain(struct loader *l, const char *module, const char *part, struct matrix *m)
{
    struct named *t = want(l, module, part, 2, (uint64_t[]){m->rows, m->cols});

    if (!t || plain_kind(l, t, &m->kind))
        return -1;
    m->data = place(l, t);
    return 0;
}

/* A module [rows, cols] as quantization_config says it is stored. */
static int module(struct loader *l, const char *name, size_t rows, size_t cols, struct matrix *m)
{
    static const char *const parts[] = {".weight", ".weight_packed", ".weight_scale"};
    char disk[CT_NAME];
    enum ct_part part;
    struct ct_scheme s = {.kind = CT_PLAIN};
    const struct named *any = NULL;

    *m = (struct matrix){.rows = rows, .cols = cols};
    if (cols % 32)
        return err_set(l->e, EXIT_DATA, "%s: %s has %zu inputs, which is no multiple of 32", l->ckpt->path, name, cols);
    for (size_t i = 0; !any && i < sizeof parts / sizeof *parts; i++)
        any = find_part(l, name, parts[i]);
    if (any && !ct_split_name(disk_name(any), disk, &part))
        return err_set(l->e, EXIT_BUG, "%s: %.120s: the name is too long", l->ckpt->path, disk_name(any));
    if (any && ct_scheme_of(l->quant, disk, &s, l->e))
        return -1;
    if (s.kind == CT_PACKED)
        return packed(l, name, &s, m);
    if (s.kind == CT_FP8 || s.kind == CT_INT8)
        return eight_bit(l, name, &s, m);
    return plain(l, name, ".weight", m);
}

/* --- vectors --------------------------------------------------------------------------------------------------------- */

/* A 16- or 32-bit vector as float32, each element plus `add`, times `times`. */
static float *vector(struct loader *l, const char *name, const char *part, size_t n, float add, float times)
{
    struct named *t = want(l, name, part, 1, (uint64_t[]){n});
    enum weight_kind kind = W_F32;

    if (!t || plain_kind(l, t, &kind))
        return NULL;
    uint8_t *raw = xmalloc(t->entry->t->nbytes);
    float *v = own(l->w, xcalloc(n, sizeof *v));
    int failed = ckpt_read(l->ckpt, t->entry, 0, raw, t->entry->t->nbytes, l->e);
    for (size_t i = 0; !failed && i < n; i++) {
        uint16_t half = 0;
        float f;
        if (kind == W_F32)
            memcpy(&f, raw + 4 * i, sizeof f);
        else
            memcpy(&half, raw + 2 * i, sizeof half), f = kind == W_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
        if (!isfinite(f))
            failed = err_set(l->e, EXIT_DATA, "%s: %.120s holds %s at %zu", l->ckpt->path, disk_name(t), isnan(f) ? "NaN" : "infinity", i);
        v[i] = (f + add) * times;
    }
    free(raw);
    return failed ? NULL : v;
}

/* A norm's weight; Gemma 3 multiplies by 1 + w. */
static int norm(struct loader *l, const char *name, size_t n, float **v)
{
    *v = vector(l, name, ".weight", n, l->g->norm_plus_one ? 1.0f : 0.0f, 1.0f);
    return *v ? 0 : -1;
}

/* --- the model ------------------------------------------------------------------------------------------------------- */

static int attention(struct loader *l, int i, const char *layer, struct layer_weights *w)
{
    const struct gemma_layer *p = &l->g->layer[i];
    const size_t hidden = (size_t)l->g->hidden, hd = (size_t)p->head_dim, kv = (size_t)p->kv_heads * hd, all = (size_t)l->g->heads * hd;
    char name[NAME];
#define IN_LAYER(part) (snprintf(name, sizeof name, "%s" part, layer), name)

    if (module(l, IN_LAYER("self_attn.q_proj"), all, hidden, &w->q) || module(l, IN_LAYER("self_attn.o_proj"), hidden, all, &w->o) ||
        norm(l, IN_LAYER("self_attn.q_norm"), hd, &w->q_norm))
        return -1;
    if (p->kv_from != i)
        return 0;
    if (module(l, IN_LAYER("self_attn.k_proj"), kv, hidden, &w->k) || norm(l, IN_LAYER("self_attn.k_norm"), hd, &w->k_norm))
        return -1;
    return p->v_is_k ? 0 : module(l, IN_LAYER("self_attn.v_proj"), kv, hidden, &w->v);
}

static int mlp(struct loader *l, int i, const char *layer, struct layer_weights *w)
{
    const size_t hidden = (size_t)l->g->hidden, wide = (size_t)l->g->layer[i].mlp;
    char name[NAME];

    return module(l, IN_LAYER("mlp.gate_proj"), wide, hidden, &w->gate) || module(l, IN_LAYER("mlp.up_proj"), wide, hidden, &w->up) ||
        module(l, IN_LAYER("mlp.down_proj"), hidden, wide, &w->down) || norm(l, IN_LAYER("input_layernorm"), hidden, &w->input_norm) ||
        norm(l, IN_LAYER("post_attention_layernorm"), hidden, &w->post_attention_norm) ||
        norm(l, IN_LAYER("pre_feedforward_layernorm"), hidden, &w->pre_mlp_norm) ||
        norm(l, IN_LAYER("post_feedforward_layernorm"), hidden, &w->post_mlp_norm) ? -1 : 0;
}

static int per_layer_embedding(struct loader *l, const char *layer, struct layer_weights *w)
{
    const size_t hidden = (size_t)l->g->hidden, ple = (size_t)l->g->ple;
    char name[NAME];

    return module(l, IN_LAYER("per_layer_input_gate"), ple, hidden, &w->ple_gate) ||
        module(l, IN_LAYER("per_layer_projection"), hidden, ple, &w->ple_projection) ||
        norm(l, IN_LAYER("post_per_layer_input_norm"), hidden, &w->ple_norm) ? -1 : 0;
}

/* A fused bank [experts, rows, cols] in 16 or 32 bits, as one tall matrix. */
static int bank(struct loader *l, const char *name, size_t rows, size_t cols, struct matrix *m)
{
    const size_t experts = (size_t)l->g->experts;
    struct named *t = want(l, name, "", 3, (uint64_t[]){experts, rows, cols});

    *m = (struct matrix){.rows = experts * rows, .cols = cols};
    if (!t || plain_kind(l, t, &m->kind))
        return -1;
    if (cols % 32)
        return err_set(l->e, EXIT_DATA, "%s: %s has %zu inputs, which is no multiple of 32", l->ckpt->path, name, cols);
    m->data = place(l, t);
    return 0;
}

static int fused_experts(struct loader *l, const char *layer, struct layer_weights *w)
{
    const size_t hidden = (size_t)l->g->hidden, wide = (size_t)l->g->expert_mlp;
    struct matrix gate_up, down;
    char name[NAME];

    if (bank(l, IN_LAYER("experts.gate_up_proj"), 2 * wide, hidden, &gate_up) || bank(l, IN_LAYER("experts.down_proj"), hidden, wide, &down))
        return -1;
    for (size_t x = 0; x < (size_t)l->g->experts; x++) {
        w->expert_gate[x] = matrix_rows(&gate_up, 2 * x * wide, wide);
        w->expert_up[x] = matrix_rows(&gate_up, (2 * x + 1) * wide, wide);
        w->expert_down[x] = matrix_rows(&down, x * hidden, hidden);
    }
    return 0;
}

static int experts(struct loader *l, const char *layer, struct layer_weights *w)
{
    const size_t hidden = (size_t)l->g->hidden, wide = (size_t)l->g->expert_mlp, n = (size_t)l->g->experts;
    char name[NAME];

    w->expert_gate = own(l->w, xcalloc(n, sizeof *w->expert_gate));
    w->expert_up = own(l->w, xcalloc(n, sizeof *w->expert_up));
    w->expert_down = own(l->w, xcalloc(n, sizeof *w->expert_down));
    w->router_scale = vector(l, IN_LAYER("router.scale"), "", hidden, 0, (float)(1 / sqrt((double)hidden)));
    w->expert_scale = w->router_scale ? vector(l, IN_LAYER("router.per_expert_scale"), "", n, 0, 1) : NULL;
    if (!w->expert_scale || module(l, IN_LAYER("router.proj"), n, hidden, &w->router) ||
        norm(l, IN_LAYER("post_feedforward_layernorm_1"), hidden, &w->post_mlp_norm_1) ||
        norm(l, IN_LAYER("pre_feedforward_layernorm_2"), hidden, &w->pre_mlp_norm_2) ||
        norm(l, IN_LAYER("post_feedforward_layernorm_2"), hidden, &w->post_mlp_norm_2))
        return -1;
    if (find(l, IN_LAYER("experts.gate_up_proj")))
        return fused_experts(l, layer, w);
    for (size_t x = 0; x < n; x++) {
        static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
        struct matrix *to[] = {&w->expert_gate[x], &w->expert_up[x], &w->expert_down[x]};
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%sexperts.%zu.%s", layer, x, parts[i]);
            if (module(l, name, i < 2 ? wide : hidden, i < 2 ? hidden : wide, to[i]))
                return -1;
        }
    }
    return 0;
}

static int one_layer(struct loader *l, int i)
{
    struct layer_weights *w = &l->w->layer[i];
    char layer[40], name[NAME];

    snprintf(layer, sizeof layer, "model.layers.%d.", i);
    w->scalar = 1;
    if (attention(l, i, layer, w) || mlp(l, i, layer, w) || (l->g->ple && per_layer_embedding(l, layer, w)) || (l->g->experts && experts(l, layer, w)))
        return -1;
    if (l->g->layer_scalar) {
        const float *scalar = vector(l, IN_LAYER("layer_scalar"), "", 1, 0, 1);
        if (!scalar)
            return -1;
        w->scalar = *scalar;
    }
    return 0;
#undef IN_LAYER
}

static int globals(struct loader *l)
{
    struct weights *w = l->w;
    const struct gemma *g = l->g;
    const size_t hidden = (size_t)g->hidden, vocab = (size_t)g->vocab, flat = (size_t)g->ple * (size_t)g->layers;

    if (module(l, "model.embed_tokens", vocab, hidden, &w->embed) || norm(l, "model.norm", hidden, &w->norm))
        return -1;
    w->head = w->embed;
    if (!g->tied && module(l, "lm_head", vocab, hidden, &w->head))
        return -1;
    return g->ple && (module(l, "model.embed_tokens_per_layer", (size_t)g->ple_vocab, flat, &w->ple_table) ||
        module(l, "model.per_layer_model_projection", flat, hidden, &w->ple_model_projection) ||
        norm(l, "model.per_layer_projection_norm", (size_t)g->ple, &w->ple_projection_norm)) ? -1 : 0;
}

/* What is left over must be known to be of no use. */
static int check_leftovers(struct loader *l)
{
    size_t dead = 0, twin = 0;

    for (size_t i = 0; i < l->n_named; i++) {
        const struct named *t = &l->named[i];
        if (t->used)
            continue;
        if (gemma_is_dead(l->g, disk_name(t)))
            dead++;
        else if (l->g->tied && gemma_classify(t->name) == GC_HEAD)
            twin++;
        else
            return err_set(l->e, EXIT_DATA, "%s: %.120s is no part of the model that config.json describes", l->ckpt->path, disk_name(t));
    }
    if (dead)
        note_msg("%s: %zu tensors of shared layers are left out: nothing uses them", l->ckpt->path, dead);
    if (twin)
        warn_msg("%s: lm_head is left out: config.json says that it is tied to embed_tokens", l->ckpt->path);
    return 0;
}

/* --- reading --------------------------------------------------------------------------------------------------------- */

struct piece { const struct transfer *t; uint64_t offset; size_t n; };

struct reading {
    const struct loader *l;
    const struct piece *piece;
    atomic_int failed;
    struct err *e;              /* of the first piece to fail */
};

/* Whether an element has all exponent bits set: NaN or infinity. Eight bytes at a time: adding one at the exponent's lowest bit carries
 * out of it exactly then. */
static bool all_finite(enum st_dtype type, const uint8_t *p, size_t n)
{
    uint64_t mask, one, bad = 0;

    switch (type) {
    case ST_BF16: mask = 0x7f807f807f807f80, one = 0x0080008000800080; break;
    case ST_F16: mask = 0x7c007c007c007c00, one = 0x0400040004000400; break;
    case ST_F32: mask = 0x7f8000007f800000, one = 0x0080000000800000; break;
    case ST_F8_E4M3: mask = 0x7f7f7f7f7f7f7f7f, one = 0x0101010101010101; break;
    default: return true;
    }
    const uint64_t top = mask + one;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        bad |= ((word & mask) + one) & top;
    }
    uint64_t last = 0;
    memcpy(&last, p + i, n - i);
    return !((bad | ((last & mask) + one)) & top);
}

/* A piece of a scale in the form that its readers need. */
static void grow_scales(const struct growth *grow, enum st_dtype type, const uint8_t *from, size_t n, uint8_t *to)
{
    const size_t size = st_dtype_bits(type) / 8, wide = grow->size ? grow->size : size;

    for (size_t i = 0; i < n; i += size) {
        uint8_t one[sizeof(float)];
        memcpy(one, from + i, size);
        if (grow->size) {
            uint16_t half;
            memcpy(&half, one, sizeof half);
            const float f = type == ST_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
            memcpy(one, &f, sizeof f);
        }
        for (size_t k = 0; k < grow->times; k++, to += wide)
            memcpy(to, one, wide);
    }
}

/* Its bytes, read or where they are mapped; NULL and e set when they cannot be read or hold no numbers. */
static const uint8_t *read_bytes(const struct reading *r, const struct piece *p, uint8_t *to, struct err *e)
{
    const struct st_tensor *t = p->t->entry->t;

    if (p->t->place != MAPPED && ckpt_read(r->l->ckpt, p->t->entry, p->offset, to, p->n, e))
        return NULL;
    if (all_finite(t->dtype, to, p->n))
        return to;
    (void)err_set(e, EXIT_DATA, "%s: %.120s holds NaN or infinity in the %zu bytes from %" PRIu64 ": the file is damaged", r->l->ckpt->path, t->name, p->n, p->offset);
    return NULL;
}

static size_t grown(const struct transfer *t, size_t n) { return n * t->grow.times * (t->grow.size ? 2 : 1); }

static void read_piece(void *arg, size_t i)
{
    struct reading *r = arg;
    const struct piece *p = &r->piece[i];
    const struct weights_memory *memory = r->l->memory;
    struct err e = {0};

    if (atomic_load(&r->failed))
        return;
    const size_t n = grown(p->t, p->n), at = grown(p->t, p->offset);
    uint8_t *lent = p->t->place == AWAY ? memory->lend(memory->arg) : NULL, *to = lent ? lent : p->t->to + at, *apart = n == p->n ? NULL : xmalloc(p->n);
    if (read_bytes(r, p, apart ? apart : to, &e) && apart)
        grow_scales(&p->t->grow, p->t->entry->t->dtype, apart, p->n, to);
    free(apart);
    struct err put = {0};
    if (lent && memory->put(memory->arg, lent, p->t->to + at, e.code ? 0 : n, &put) && !e.code)
        e = put;
    if (e.code && !atomic_exchange(&r->failed, 1))
        *r->e = e;
}

static int read_all(struct loader *l, struct par *par)
{
    size_t n = 0, cap = 0;
    struct piece *piece = NULL;

    for (size_t i = 0; i < l->n_transfers; i++) {
        const uint64_t bytes = l->transfer[i].entry->t->nbytes;
        const size_t most = WEIGHTS_PIECE / grown(&l->transfer[i], 1) / 64 * 64;
        for (uint64_t at = 0; at < bytes; at += most) {
            if (n == cap) {
                cap = cap ? 2 * cap : 1024;
                piece = xreallocarray(piece, cap, sizeof *piece);
            }
            piece[n++] = (struct piece){&l->transfer[i], at, (size_t)(bytes - at < most ? bytes - at : most)};
        }
    }
    struct reading r = {.l = l, .piece = piece, .e = l->e};
    par_for(par, n, read_piece, &r);
    free(piece);
    return atomic_load(&r.failed) ? -1 : 0;
}

/* --- pages ----------------------------------------------------------------------------------------------------------- */

/* AnonHugePages of the mappings that begin between two addresses. */
static uint64_t huge_bytes(const uint8_t *from, const uint8_t *to)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    uint64_t bytes = 0;
    bool inside = false;

    while (f && fgets(line, sizeof line, f)) {
        unsigned long long start, end, kib;
        if (sscanf(line, "%llx-%llx ", &start, &end) == 2)
            inside = start >= (uintptr_t)from && start < (uintptr_t)to;
        else if (inside && sscanf(line, "AnonHugePages: %llu kB", &kib) == 1)
            bytes += 1024 * kib;
    }
    if (f)
        fclose(f);
    return bytes;
}

/* --- the whole ------------------------------------------------------------------------------------------------------- */

static void count_bytes(struct weights *w, const struct gemma *g)
{
    w->token_bytes = matrix_bytes(&w->head) + matrix_bytes(&w->ple_model_projection);
    w->bytes = matrix_bytes(&w->embed) + (g->tied ? 0 : matrix_bytes(&w->head)) + matrix_bytes(&w->ple_table) + matrix_bytes(&w->ple_model_projection);
    for (int i = 0; i < g->layers; i++) {
        const struct layer_weights *p = &w->layer[i];
        const struct matrix *m[] = {&p->q, &p->k, &p->v, &p->o, &p->gate, &p->up, &p->down, &p->ple_gate, &p->ple_projection, &p->router};
        for (size_t j = 0; j < sizeof m / sizeof *m; j++) {
            w->token_bytes += matrix_bytes(m[j]);
            w->bytes += matrix_bytes(m[j]);
        }
        if (g->experts) {
            const uint64_t one = matrix_bytes(p->expert_gate) + matrix_bytes(p->expert_up) + matrix_bytes(p->expert_down);
            w->token_bytes += (uint64_t)g->top_k * one;
            w->bytes += (uint64_t)g->experts * one;
        }
    }
}

int weights_load(struct weights *w, const struct gemma *g, const struct ckpt *c, const struct ct_quant *q, struct par *par, const struct weights_memory *memory,
    bool mapped, struct err *e)
{
    struct loader l = {.w = w, .g = g, .ckpt = c, .quant = q, .memory = memory, .e = e};

    memset(w, 0, sizeof *w);
    w->mapped = mapped && !memory;
    int failed = list_text_tensors(&l) || map_memory(&l) || globals(&l);
    for (int i = 0; !failed && i < g->layers; i++)
        failed = one_layer(&l, i);
    failed = failed || check_leftovers(&l) || read_all(&l, par);
    free(l.named);
    free(l.transfer);
    free(l.shard);
    if (failed) {
        weights_free(w);
        return -1;
    }
    count_bytes(w, g);
    w->huge_bytes = huge_bytes(w->map, (const uint8_t *)w->map + w->map_bytes);
    return 0;
}

void weights_free(struct weights *w)
{
    for (size_t i = 0; i < w->n_owned; i++)
        free(w->owned[i]);
    free(w->owned);
    if (w->map)
        munmap(w->map, w->map_bytes);
    memset(w, 0, sizeof *w);
}
