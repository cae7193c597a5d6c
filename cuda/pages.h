/* K/V of all sequences, in pages: which page of the pool holds which positions of which layer.
 *
 * Owns: the pool's bookkeeping, not its memory.  A page holds GK_PAGE positions of one layer (kernels.h).  Layers' pages differ in size, so the pool deals out
 * blocks, each the least common multiple of those sizes; a layer cuts a block into pages, and its page p begins at p times its own page size whatever the block.
 * A layer with a sliding window uses its pages in turn, as many as the window and a step need; they are taken once.  Sequences take a place in the
 * device's table when they first run.
 */
#ifndef CUDA_PAGES_H
#define CUDA_PAGES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "gemma/config.h"

#define PAGES_SEQS 160          /* sequences that hold pages at once */

struct pages_layer {
    bool owns;
    size_t values;              /* of a page of K, and of V */
    int per_block;              /* pages */
    int ring;                   /* entries of the table in use */
    size_t entry;               /* of the first one, in a sequence's part of the table */
};

struct pages {
    const struct gemma *g;
    struct pages_layer layer[GEMMA_MAX_LAYERS];         /* of one that reads another's cache: that one's */
    size_t block_values;        /* of K, and of V */
    size_t ld;                  /* entries of a sequence */
    int *table;                 /* [PAGES_SEQS][ld], pinned; the caller's */
    int *free_block; size_t n_free, n_blocks;
    bool taken[PAGES_SEQS];
};

struct cuda_seq {
    struct pages *pages;
    int place;                  /* -1 = none yet */
    long held;                  /* positions that have pages */
    int *block; size_t n_blocks, cap_blocks;
    int used[GEMMA_MAX_LAYERS];         /* entries of each owning layer that are set */
    int last[GEMMA_MAX_LAYERS];         /* the block that its last pages were cut from */
};

/* context: the longest sequence; step: the most tokens of one sequence in a step. */
void pages_init(struct pages *p, const struct gemma *g, long context, long step);
uint64_t pages_block_bytes(const struct pages *p);      /* K and V */
/* With so many blocks to deal out, and the table. */
void pages_start(struct pages *p, size_t blocks, int *table);
void pages_free(struct pages *p);
/* Blocks that n positions of one sequence take. */
size_t pages_blocks(const struct pages *p, long n);

/* Blocks that a sequence still needs for positions up to n. */
size_t pages_wanted(const struct cuda_seq *s, long n);
/* Pages for positions up to n of a sequence.  false: there are too few, and nothing has changed.  *changed: its part of the table has. */
bool pages_take(struct cuda_seq *s, long n, bool *changed);
void pages_give_back(struct cuda_seq *s);
#endif
