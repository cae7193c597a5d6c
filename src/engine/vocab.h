/* The tables behind a tokenizer: pieces by id, ids by piece, ranked merges, added tokens.  Private to the tokenizer's two files
 * (tokenizer_read.c fills them, tokenizer.c uses them).
 */
#ifndef ENGINE_VOCAB_H
#define ENGINE_VOCAB_H
#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"

#define UNDERLINE "\xE2\x96\x81"        /* U+2581, what stands for a space in a piece */
#define VOCAB_MAX_ID ((1 << 22) - 1)
#define VOCAB_MAX_ADDED_LEN 256         /* bytes of an added token: bounds the work per byte of text (Gemma's longest: 93) */

struct piece {
    uint32_t off, len;                  /* into vocab.text; a NUL follows */
    int16_t byte;                       /* "<0x41>" is byte 0x41; -1 = an ordinary piece */
    bool present, special;
};

/* Off and len as in the piece: a look-up then touches two places in memory, not three (a quarter of the time to load a file). */
struct vocab_slot { uint32_t hash; int32_t id; uint32_t off, len; };    /* id -1 = free */

struct vocab {
    struct buf text;
    struct piece *piece;                /* [size], by id; gaps are not present */
    int size, cap;
    struct vocab_slot *slot;            /* [mask + 1], open addressing */
    uint32_t mask, used;
};

void vocab_free(struct vocab *v);
/* -1 = no such piece. */
int vocab_find(const struct vocab *v, const char *text, size_t n);
/* The same in two steps, so that many look-ups can wait for memory at once. */
uint32_t vocab_hash(const char *text, size_t n);
void vocab_prefetch(const struct vocab *v, uint32_t hash);
int vocab_find_hashed(const struct vocab *v, uint32_t hash, const char *text, size_t n);
/* false when the piece or the id is taken.  0 <= id <= VOCAB_MAX_ID. */
bool vocab_add(struct vocab *v, const char *text, size_t n, int id);
static inline bool vocab_has(const struct vocab *v, int id) { return id >= 0 && id < v->size && v->piece[id].present; }
static inline const char *vocab_text(const struct vocab *v, int id) { return v->text.data + v->piece[id].off; }

/* One ranked merge; rank is its place in the file. */
struct merge { int32_t left, right; uint32_t rank; int32_t id; };      /* left -1 = a free slot of the table */

struct merges {
    struct merge *slot;                 /* [mask + 1], open addressing by (left, right) */
    uint32_t mask;
};

/* Table of n merges; a pair named twice has its last rank, as in HF. */
void merges_build(struct merges *m, const struct merge *list, size_t n);
const struct merge *merges_find(const struct merges *m, int left, int right);   /* NULL = never merged */

/* Added tokens in the order of their bytes, to find the longest that begins at a place. */
struct added_token {
    uint32_t off, len;                  /* the text to match, in vocab.text */
    int32_t id;
    const char *text;                   /* set by added_sort: vocab.text may not grow any more */
};
struct added {
    struct added_token *token;
    size_t n;
    size_t first[257];                  /* tokens that begin with byte b: first[b] .. first[b + 1] */
};
void added_sort(struct added *a, const struct vocab *v);
/* Length of the longest token that the text begins with, its id in *id; 0 = none. */
size_t added_match(const struct added *a, const char *text, size_t n, int *id);

#define JOIN_BITS 20
struct tokenizer {
    struct vocab vocab;
    struct merges merges;
    struct added raw;                   /* matched in the text as it came */
    struct added normalized;            /* matched after the normalizer */
    int byte_id[256];                   /* byte fallback */
    bool byte_fallback, fuse_unk, spaces; /* spaces: the normalizer replaces " " by U+2581 */
    int unk, bos;                       /* -1 = none */
    /* Characters x, y that some merge joins (its left piece ends in x, its right one begins with y), as a hashed set.  Where a pair is not in it, BPE can
     * never merge across, so a text may be cut there with the same result.  splits = false: not proven for this vocabulary. */
    uint64_t join[(1 << JOIN_BITS) / 64];
    bool splits;
};
static inline uint32_t join_bit(uint32_t x, uint32_t y)
{
    uint64_t h = ((uint64_t)x << 32 | y) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> (64 - JOIN_BITS));
}
#endif
