/* Parameters and bytes of a model by class, and the bytes that decoding one token reads: the model of memory-bound speed.
 *
 * Counts tensors of a header: a 16-bit checkpoint, a stream of recovered weights, a build (packed int4, 8-bit rows) or the plan of any.
 * Read per token: all linears with their scales, the router, norms; top_k of num_experts experts; the head, which is embed_tokens when no lm_head is
 * stored; one row of embed_tokens for the lookup where a head is stored; one row of the per-layer table; K and V as every layer sees them, sharing layers
 * too, within the window where it is sliding.  Not read: weight_shape, K/V tensors of sharing layers, towers, side files.
 */
#ifndef GEMMA_BYTES_H
#define GEMMA_BYTES_H
#include "gemma/names.h"
#include "tensor/header.h"

/* Positions that a token looks back on average: a prompt of 30, tokens 16 to 512 of the reply. */
#define GEMMA_MEAN_CONTEXT 294

struct gemma_amount {
    uint64_t tensors, params, bytes;    /* params: weights, whatever they are stored as; scales and shapes are bytes alone */
    double read;                        /* bytes a token */
};

/* How a weight is stored: packed or recovered int4 with its scales, 8-bit rows with theirs, anything else. */
enum gemma_storage { GEMMA_INT4, GEMMA_8BIT, GEMMA_16BIT, GEMMA_STORAGES };

struct gemma_bytes {
    struct gemma_amount cls[GC_UNKNOWN + 1];    /* by enum gemma_class; a single expert's matrices count as GC_EXPERTS */
    struct gemma_amount text;                   /* without towers, side files and unknown tensors */
    double read[GEMMA_STORAGES];                /* bytes a token of the text's tensors, by storage; they sum to text.read */
};

/* Is there an lm_head of its own? */
bool gemma_head_stored(const struct st_header *h);
/* Bytes of this tensor of the text that a token reads, and how they are stored. */
double gemma_bytes_read(const struct gemma *g, const struct st_tensor *t, bool head_stored);
enum gemma_storage gemma_storage_of(const struct st_tensor *t);
void gemma_bytes_count(struct gemma_bytes *b, const struct gemma *g, const struct st_header *h);
/* Bytes that one more position adds to the cache of the layers that own one, `value` bytes a number, no window applied. */
uint64_t gemma_kv_bytes(const struct gemma *g, unsigned value);
/* Bytes of K and V that one token reads with `context` positions in the cache. */
double gemma_kv_read(const struct gemma *g, double context, unsigned value);
#endif
