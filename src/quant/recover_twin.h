/* Between recover.c and its SIMD twins; q4_recover() chooses.  Shapes and results as q4_recover's. */
#ifndef QUANT_RECOVER_TWIN_H
#define QUANT_RECOVER_TWIN_H
#include "quant/recover.h"

/* The truth for one group; false = no block, nothing written. */
bool q4_recover_group(const uint16_t *values, enum q4_scale kind, uint8_t *block);
size_t q4_recover_scalar(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks);
/* A twin takes multiples of `lanes` groups, with bf16 scales Q4_CHUNK at most.  `share` grows by what bf16 scales give back, NULL: nothing is counted. */
struct q4_twin {
    size_t lanes;
    size_t (*bf16)(const uint16_t *values, size_t n, uint8_t *blocks, struct q4_share *share);
    size_t (*f16)(const uint16_t *values, size_t n, uint8_t *blocks);
};
extern const struct q4_twin q4_twin_avx2, q4_twin_avx512;

/* Which m allow a value, by ceil(Q4_RATIO_STEPS * |x| / peak): bit m - 1.  Holds every m with which a value may lie on the grid, float32 rounding of the
 * index included; index 0 is the value 0 alone. */
#define Q4_RATIO_STEPS 126
#define Q4_RATIO_TABLE 128
const uint8_t *q4_ratio_table(void);    /* Q4_RATIO_TABLE bytes, made once */

/* Peaks (bf16 bits) for which the twins' short cuts hold: no overflow of 840 times an end, every step a normal number of the type or so close to it that the
 * value at level 1 or 2 is one. */
struct q4_domain { int lowest, highest; };
static inline struct q4_domain q4_domain(enum q4_scale kind)
{
    return kind == Q4_F16 ? (struct q4_domain){(127 - 13) << 7, (127 + 15) << 7} : (struct q4_domain){(127 - 100) << 7, (127 + 117) << 7};
}

/* Groups with their peak at level -8, as a true Q4_0 export has them, and bf16 scales.
 *
 * The peak is bf16(8 s), so the step s lies within half a place of c = peak / 8, which is itself a bf16 number and the only one there: c is the scale when it gives back every
 * value.  bf16(q s) depends, but for its exponent, on the odd part of q alone: levels 1, 2, 4, 8 always come back from c; 3 and 6, 5, 7 come back or are all one place
 * off, to the side on which s lies (o s is less than a place of the product from o c).  Whether any s fits depends on c's mantissa, the side, and which of the three odd parts are there
 * and off; then the two candidates are c and its neighbour on that side, c being the nearer.  With an odd level among them no smaller m can fit.
 * What none of this covers goes the general way. */
enum { Q4_PLACES = 128 };       /* mantissas of bf16 */
struct q4_eight {
    /* Magnitude and sign of level u - 8 under a positive step of exponent 0 by c's mantissa and u; u = 16 and above: what no value equals. */
    _Alignas(64) uint16_t value[Q4_PLACES][32];
    /* By the side of s (1 = above c), c's mantissa and (there | off << 3), in which bits 0, 1, 2 are the odd parts 3, 5, 7.  Bit 0: a step exists; bits 1-3: the neighbour
     * on that side does not give back the values of 3, 5, 7.  (Read four bytes at a time.) */
    uint8_t side[2 * Q4_PLACES * 64 + 3];
};
const struct q4_eight *q4_eight_table(void);

/* What a twin knows of the groups of a chunk, and two lists of them: those that c does not give back, and those for the general way.  Its passes are apart because single
 * words that are stored and at once loaded by the vector stall.  A set of a group's 32 values has a bit for each, in the twin's order. */
enum { Q4_CHUNK = 1024 };       /* groups: their source stays in the second cache from one pass to the next, and the lists are long enough to fill registers */
enum { Q4_SPARE = 16 };         /* entries that a twin writes beyond the last one */
struct q4_chunk {
    _Alignas(64) float ratio[Q4_CHUNK];         /* 8 / (level -8's value) */
    uint16_t exponent[Q4_CHUNK];                /* to add to a table's magnitudes and signs, but for level 0 */
    uint16_t mantissa[Q4_CHUNK], scale[Q4_CHUNK];       /* of c; c */
    uint8_t zero[Q4_CHUNK / 8], out[Q4_CHUNK / 8];      /* bits: groups of zeros; groups with a peak out of range */
    uint32_t off[Q4_CHUNK], odd[Q4_CHUNK];      /* sets: values that are not c's; odd levels */
    uint32_t close[Q4_CHUNK + Q4_SPARE], other[Q4_CHUNK + Q4_SPARE];
    size_t n_close, n_other;
    /* By place in the list `close`, sets: levels 1 2 4 8; 3 6, 5, 7; source one place below, above what c gives; not that. */
    uint32_t power[Q4_CHUNK + Q4_SPARE], part[3][Q4_CHUNK + Q4_SPARE], below[Q4_CHUNK + Q4_SPARE], above[Q4_CHUNK + Q4_SPARE], apart[Q4_CHUNK + Q4_SPARE];
    uint32_t side[Q4_CHUNK + Q4_SPARE], c[Q4_CHUNK + Q4_SPARE];        /* mantissa of c; and its scale */
};
#endif
