/* Between recover.c and its SIMD twins; q4_recover() chooses.  Shapes and results as q4_recover's. */
#ifndef QUANT_RECOVER_TWIN_H
#define QUANT_RECOVER_TWIN_H
#include "quant/recover.h"

/* The truth for one group; false = no block, nothing written. */
bool q4_recover_group(const uint16_t *values, enum q4_scale kind, uint8_t *block);
size_t q4_recover_scalar(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks);
size_t q4_recover_avx2(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks);
size_t q4_recover_avx512(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks);

/* Which m allow a value, by ceil(Q4_RATIO_STEPS * |x| / peak): bit m - 1.  Holds every m with which a value may lie on the grid, float32 rounding of the
 * index included; index 0 is the value 0 alone. */
#define Q4_RATIO_STEPS 126
#define Q4_RATIO_TABLE 128
void q4_ratio_table(uint8_t table[Q4_RATIO_TABLE]);

/* Peaks (bf16 bits) for which the twins' short cuts hold: no overflow of 840 times an end, every step a normal number of the type or so close to it that the
 * value at level 1 or 2 is one. */
struct q4_domain { int lowest, highest; };
static inline struct q4_domain q4_domain(enum q4_scale kind)
{
    return kind == Q4_F16 ? (struct q4_domain){(127 - 13) << 7, (127 + 15) << 7} : (struct q4_domain){(127 - 100) << 7, (127 + 117) << 7};
}
#endif
