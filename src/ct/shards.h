/* Laying a build out in files: which shard a tensor lies in, and where.
 *
 * Shards are filled in the stream's order, modules kept whole; inside a shard the order is the reference writer's (dtype descending, then name), so that every tensor lies on
 * a multiple of its element size.  One file is called model.safetensors; several are model-00001-of-0000N.safetensors beside an index.
 */
#ifndef CT_SHARDS_H
#define CT_SHARDS_H
#include "ct/plan.h"

struct ct_place { size_t shard; uint64_t offset; };     /* in the file */

struct ct_shard {
    char *name;
    char *head; size_t n_head;          /* the file's first bytes: length and header */
    uint64_t file_bytes;
};

struct ct_shards {
    struct ct_shard *shard; size_t n;
    struct ct_place *place;             /* of plan->out->t[i] */
    uint64_t file_bytes;                /* of all */
};

/* `shard_size`: bytes of tensors in one file at most; a module that is larger has a file of its own. */
struct ct_shards *ct_shards_make(const struct ct_plan *p, uint64_t shard_size, struct err *e) MUST_CHECK;
void ct_shards_free(struct ct_shards *s);
/* The numbers of plan->out's tensors as they lie, shard by shard; freed by the caller. */
size_t *ct_shards_order(const struct ct_shards *s, const struct ct_plan *p);
/* model.safetensors.index.json; new reference. */
json_t *ct_shards_index(const struct ct_shards *s, const struct ct_plan *p);
#endif
