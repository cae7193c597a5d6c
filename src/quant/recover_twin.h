/* Between recover.c and its SIMD twins; q4_recover() chooses.  Shapes and results as q4_recover's. */
#ifndef QUANT_RECOVER_TWIN_H
#define QUANT_RECOVER_TWIN_H
#include "quant/recover.h"

/* The truth for one group; false = no block, nothing written. */
bool q4_recover_group(const uint16_t *values, enum q4_scale kind, uint8_t *block);
size_t q4_recover_scalar(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks);
#endif
