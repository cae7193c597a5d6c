/* Is what a build stores the right rounding of its source?  Rows of bf16 against packed or 8-bit rows, value by value.
 *
 * A stored code q under its stored scale s is *right* for the source value x when bf16(q * s) == x, or when no other code of the range is nearer to x and x lies within
 * half a step of q * s (with the slack that a 16-bit scale needs at the end of the range).  It is *exact* when the value as the reader has it equals x: bf16(q * s) for
 * int4, the float32 product for 8 bits; +0 equals -0.  A scale is *best* when no other of its dtype reproduces more of its values: for int4 groups of 32 with 16-bit scales what
 * q4_recover gives, for 8 bits amax / 448 or amax / 127.
 */
#ifndef QUANT_COMPARE_H
#define QUANT_COMPARE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tensor/dtype.h"

enum cmp_kind { CMP_INT4, CMP_FP8, CMP_INT8 };

/* One stored row. */
struct cmp_row {
    enum cmp_kind kind;
    const uint8_t *codes;       /* int4: cols / 2 bytes, low nibble first, level + 8; else cols bytes */
    const uint8_t *scales;      /* cols / group of them, little-endian */
    enum st_dtype scale_dtype;  /* ST_BF16, ST_F16, ST_F32 */
    size_t group;               /* values that share a scale; cols = one scale a row */
};

struct cmp_tally {
    uint64_t values, exact, groups, exact_groups;
    uint64_t wrong;             /* values that are not the right rounding */
    uint64_t not_best;          /* groups with right codes under a scale that is not the best one */
    uint64_t first_wrong;       /* index of the first wrong value, counted from the start of the tally */
    double worst;               /* largest |value - source| relative to its group's largest magnitude */
};

/* Adds one row of `cols` source values; cols is a multiple of group. */
void cmp_row_add(struct cmp_tally *t, const uint16_t *source, size_t cols, const struct cmp_row *row);
/* The same value by value, which cmp_row_add does only where the row is not byte for byte what its source gives. */
void cmp_row_add_each(struct cmp_tally *t, const uint16_t *source, size_t cols, const struct cmp_row *row);
/* b's counts after a's. */
void cmp_tally_join(struct cmp_tally *a, const struct cmp_tally *b);
#endif
