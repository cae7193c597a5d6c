/* Synthetic weights: random values that depend on a key and an index alone, so any part can be made at any time, on any thread.
 *
 * Grid groups are what a Q4_0 export holds: 32 values bf16(level * step), step an f16 number, levels -8..7.  Of 256 groups 222 have a step of either
 * sign and a level of -8; the others are the kinds whose step is hard to recover:
 *   16 peak at level 7 or -7    3 all zero      4 one nonzero level     4 even levels only
 *    4 multiples of 3           2 levels -3..2  1 an f16-subnormal step
 * Only exact operations and divisions are used: the same bytes on every machine.
 */
#ifndef QUANT_SYNTH_H
#define QUANT_SYNTH_H
#include <stddef.h>
#include <stdint.h>

/* From a tensor's name and the user's seed. */
uint64_t synth_key(const char *name, uint64_t seed);
/* Uniform in [0, 1), and roughly normal with mean 0, variance 1, bounded by 3.5. */
double synth_uniform(uint64_t key, uint64_t i);
double synth_normal(uint64_t key, uint64_t i);
/* `groups` groups from group `first`, as bf16, with standard deviation near std. */
void synth_grid(uint64_t key, uint64_t first, size_t groups, float std, uint16_t *out);
/* One group off the grid: a value of 3.5 steps beside a level of -8, which no step of -8..7 levels fits.  Returns the value's index. */
unsigned synth_off_grid(uint64_t key, uint64_t group, float std, uint16_t out[32]);
#endif
