#define _DEFAULT_SOURCE     /* MAP_ANONYMOUS, MAP_NORESERVE, madvise */
#include "engine/kv.h"
#include <stdlib.h>
#include <sys/mman.h>
#include "base/err.h"
#include "engine/engine.h"

static long slots_of(const struct gemma *g, const struct gemma_layer *p, long n)
{
    const long ring = (long)g->window + ENGINE_STEP_TOKENS;

    return p->full || n < ring ? n : ring;
}

/* Floats of K, and as many of V. */
static size_t layer_floats(const struct gemma *g, int i, long n)
{
    const struct gemma_layer *p = &g->layer[i];

    return p->kv_from == i ? (size_t)slots_of(g, p, n) * (size_t)p->kv_heads * (size_t)p->head_dim : 0;
}

uint64_t kv_bytes(const struct gemma *g, long n)
{
    uint64_t floats = 0;

    for (int i = 0; i < g->layers; i++)
        floats += 2 * layer_floats(g, i, n);
    return floats * sizeof(float);
}

struct seq *kv_new(const struct gemma *g, long capacity)
{
    struct seq *s = xcalloc(1, sizeof *s);

    s->capacity = capacity;
    s->map_bytes = (size_t)kv_bytes(g, capacity);
    s->map = mmap(NULL, s->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->map == MAP_FAILED)
        die_msg(EXIT_TEMPFAIL, "no address space for a sequence of %ld tokens", capacity);
#ifdef MADV_HUGEPAGE
    (void)madvise(s->map, s->map_bytes, MADV_HUGEPAGE);     /* small pages cost attention a third */
#endif
    float *at = s->map;
    for (int i = 0; i < g->layers; i++) {
        const int from = g->layer[i].kv_from;
        const size_t n = layer_floats(g, i, capacity);
        s->layer[i] = from == i ? (struct kv_layer){at, at + n, (size_t)slots_of(g, &g->layer[i], capacity)} : s->layer[from];
        at += 2 * n;
    }
    return s;
}

void kv_free(struct seq *s)
{
    if (s && s->map)
        munmap(s->map, s->map_bytes);
    free(s);
}

size_t kv_index(const struct gemma_layer *p, const struct kv_layer *c, int head, long position)
{
    return ((size_t)head * c->slots + (size_t)position % c->slots) * (size_t)p->head_dim;
}

size_t kv_spans(const struct gemma *g, const struct gemma_layer *p, const struct kv_layer *c, int head, long position, struct kv_span span[2])
{
    const long first = p->full || position < g->window ? 0 : position - g->window + 1;
    const size_t n = (size_t)(position - first + 1), slot = (size_t)first % c->slots, until_wrap = c->slots - slot;
    const size_t at = kv_index(p, c, head, first), start = kv_index(p, c, head, 0);

    span[0] = (struct kv_span){c->k + at, c->v + at, n < until_wrap ? n : until_wrap};
    span[1] = (struct kv_span){c->k + start, c->v + start, n - span[0].n};
    return span[1].n ? 2 : 1;
}
