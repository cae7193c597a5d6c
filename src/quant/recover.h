/* Grid recovery: 32 bf16 values of a Q4_0 export back to levels and one 16-bit scale, exactly.
 *
 * Interval method.  With level q != 0, the steps s for which bf16(q * s) == x are the interval [x - half ulp, x + half ulp] / q, its ends
 * included when x's mantissa is even; with q == 0 every step gives x == 0 and none gives another x.  A group is on the grid when for some
 * (m, sign) its levels q = rint(sign * x * m / peak), peak = max |x|, lie in -8..7 and the 32 intervals intersect.  Order of trial: positive
 * steps, m = 1..8, then negative ones.  For m <= 7 a negative step gives the same intervals under mirrored levels, so only (8, negative) is left to
 * try.  A NaN or an infinity is off the grid.  A group of zeros has scale 0 and levels 0.
 *
 * Scale.  Candidates are the two numbers of the 16-bit type that enclose the interval's middle: when the type has numbers inside the interval the one
 * nearest the middle is among the two, else the two are the interval's neighbours.  Taken is the candidate that reproduces most of the 32 values,
 * then the one nearest the middle, then the smaller magnitude.  0 and infinity are no candidates, and an interval wholly outside the type's range has none.
 * The first (m, sign) on the grid that has an exact scale wins; when none has one, the first that has a candidate.  So every group for
 * which any scale of the type is exact gets an exact one: such a scale makes its own (m, sign) pass, with these very levels
 * (tests/unit/q4.c holds this against a search through all 65,536 scales).
 *
 * Ends are compared exactly: they have at most 10 significant bits, and 840 = lcm(1..8) times an end divided by its level is an exact double.
 *
 * recover.c is the truth; recover_avx2.c and recover_avx512.c take whole batches and hand every group to the truth for which their short cuts
 * are not proven.  All levels give the same bytes.
 */
#ifndef QUANT_RECOVER_H
#define QUANT_RECOVER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "quant/q4.h"

/* n groups (32 n values) to n blocks.  Returns n, or the index of the first group that has no block (earlier ones are written); at the
 * SIMD level of simd_level(). */
size_t q4_recover(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks);

enum q4_fault_kind { Q4_NOT_FINITE, Q4_OFF_GRID, Q4_STEP_RANGE };
struct q4_fault {
    enum q4_fault_kind kind;
    int at;                     /* the value 0..31 that does not fit: the NaN or infinity, or one missed by the grid that fits most values */
    double step;                /* Q4_STEP_RANGE: the step that the scale type cannot hold */
};
/* Why q4_recover stopped at this group. */
void q4_explain(const uint16_t *values, struct q4_fault *fault);

/* What blocks give back of the values they were made from, counted from the blocks themselves. +0 equals -0. */
struct q4_share {
    uint64_t values, groups;    /* reproduced bit for bit */
    double worst;               /* largest |value - source| relative to its group's largest magnitude */
};
struct q4_tally {
    uint64_t groups, zero, negative;    /* in all; with scale 0; with a negative scale */
    struct q4_share written;    /* the scale as stored */
    struct q4_share as_bf16;    /* the scale rounded to bf16 first, as a bf16 reader has it; equal to `written` for bf16 scales */
};
/* q4_recover that adds what it makes to the share as written, or to the whole tally, at little cost; what it adds before it stops early is of no use. */
size_t q4_recover_shared(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks, struct q4_share *share);
size_t q4_recover_counted(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks, struct q4_tally *t);
/* Adds n groups to the tally. */
void q4_tally_add(struct q4_tally *t, const uint16_t *values, const uint8_t *blocks, size_t n, enum q4_scale kind);
#endif
