#include "gemma/bytes.h"

#include <string.h>
#include "base/text.h"

/* The stream's block of a recovered weight (quant/q4.h, which this module does not know): 18 bytes for 32 values. */
enum { BLOCK_BYTES = 18, BLOCK_VALUES = 32 };

/* Weights that the tensor holds: eight to a word when packed, 32 to a block when recovered, none in what only describes them. */
static uint64_t params_of(const struct st_tensor *t)
{
    if (ends_with(t->name, ".weight_packed"))
        return 8 * st_nelem(t);
    if (ends_with(t->name, "_q4"))
        return st_nelem(t) / BLOCK_BYTES * BLOCK_VALUES;
    if (ends_with(t->name, ".weight_scale") || ends_with(t->name, ".weight_shape") || ends_with(t->name, ".weight_zero_point") ||
        ends_with(t->name, ".weight_g_idx") || ends_with(t->name, ".input_scale"))
        return 0;
    return st_nelem(t);
}

/* An int4 scale is 16 bits wide, that of an 8-bit row F32 (ct/scheme.h). */
enum gemma_storage gemma_storage_of(const struct st_tensor *t)
{
    if (ends_with(t->name, ".weight_packed") || ends_with(t->name, "_q4"))
        return GEMMA_INT4;
    if (ends_with(t->name, ".weight_scale"))
        return t->dtype == ST_F32 ? GEMMA_8BIT : GEMMA_INT4;
    return t->dtype == ST_I8 || t->dtype == ST_F8_E4M3 ? GEMMA_8BIT : GEMMA_16BIT;
}

static enum gemma_class class_of(const char *name)
{
    const enum gemma_class cls = gemma_classify(name);
    return cls == GC_LINEAR && strstr(name, ".experts.") ? GC_EXPERTS : cls;
}

static double share_read(const struct gemma *g, const struct st_tensor *t, enum gemma_class cls, bool head_stored)
{
    if (ends_with(t->name, ".weight_shape") || gemma_is_dead(g, t->name))
        return 0;
    switch (cls) {
    case GC_EXPERTS:
        return g->experts ? (double)g->top_k / g->experts : 1;
    case GC_EMBED:
        return head_stored ? 1.0 / g->vocab : 1;
    case GC_PLE:
        return g->ple_vocab ? 1.0 / g->ple_vocab : 0;
    case GC_TOWER:
    case GC_FILE:
    case GC_UNKNOWN:
        return 0;
    default:
        return 1;
    }
}

double gemma_bytes_read(const struct gemma *g, const struct st_tensor *t, bool head_stored)
{
    return share_read(g, t, class_of(t->name), head_stored) * (double)t->nbytes;
}

bool gemma_head_stored(const struct st_header *h)
{
    bool stored = false;

    for (size_t i = 0; i < h->n; i++)
        stored |= gemma_classify(h->t[i].name) == GC_HEAD;
    return stored;
}

static void add(struct gemma_amount *a, const struct st_tensor *t, double read)
{
    a->tensors++;
    a->params += params_of(t);
    a->bytes += t->nbytes;
    a->read += read;
}

void gemma_bytes_count(struct gemma_bytes *b, const struct gemma *g, const struct st_header *h)
{
    const bool head_stored = gemma_head_stored(h);

    memset(b, 0, sizeof *b);
    for (size_t i = 0; i < h->n; i++) {
        const struct st_tensor *t = &h->t[i];
        const enum gemma_class cls = class_of(t->name);
        const double read = gemma_bytes_read(g, t, head_stored);
        add(&b->cls[cls], t, read);
        if (cls == GC_TOWER || cls == GC_FILE || cls == GC_UNKNOWN)
            continue;
        add(&b->text, t, read);
        b->read[gemma_storage_of(t)] += read;
    }
}

/* K and V of one position of a layer. */
static uint64_t position(const struct gemma_layer *l, unsigned value)
{
    return 2u * (uint64_t)l->kv_heads * (uint64_t)l->head_dim * value;
}

uint64_t gemma_kv_bytes(const struct gemma *g, unsigned value)
{
    uint64_t sum = 0;

    for (int i = 0; i < g->layers; i++)
        if (g->layer[i].kv_from == i)
            sum += position(&g->layer[i], value);
    return sum;
}

double gemma_kv_read(const struct gemma *g, double context, unsigned value)
{
    double sum = 0;

    for (int i = 0; i < g->layers; i++) {
        const struct gemma_layer *l = &g->layer[i];
        const double seen = !l->full && context > g->window ? g->window : context;
        sum += seen * (double)position(&g->layer[l->kv_from], value);
    }
    return sum;
}
