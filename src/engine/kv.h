/* Keys and values of one sequence, float32.
 *
 * A layer that owns a cache has K and V as [kv_heads][slots][head_dim]; position p lies in slot p % slots.  Full layers have a slot for every position;
 * sliding ones window + ENGINE_STEP_TOKENS, so that a whole step's tokens can be written before the first of them looks back.  Memory becomes
 * resident as it is written.
 */
#ifndef ENGINE_KV_H
#define ENGINE_KV_H
#include <stddef.h>
#include <stdint.h>
#include "engine/kernels.h"
#include "gemma/config.h"

struct kv_layer { float *k, *v; size_t slots; };    /* of a layer that reads another's cache: that layer's */

struct seq {
    long position, capacity;
    struct kv_layer layer[GEMMA_MAX_LAYERS];
    void *map; size_t map_bytes;
    struct cuda_seq *cuda;      /* its K/V when they are a GPU's: then there is no map and no layer */
};

/* Bytes for n tokens. */
uint64_t kv_bytes(const struct gemma *g, long n);
/* Dies when the address space is exhausted. */
struct seq *kv_new(const struct gemma *g, long capacity);
void kv_free(struct seq *s);
/* Where position p of KV head `head` of a layer goes, as an index into k and v. */
size_t kv_index(const struct gemma_layer *p, const struct kv_layer *c, int head, long position);
/* What the query at `position` sees, in order of position: 1 or 2 spans. */
size_t kv_spans(const struct gemma *g, const struct gemma_layer *p, const struct kv_layer *c, int head, long position, struct kv_span span[2]);
#endif
