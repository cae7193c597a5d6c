/* Between q4.c and recover.c and their AVX2 twins. */
#ifndef QUANT_Q4_TWIN_H
#define QUANT_Q4_TWIN_H
#include "quant/q4.h"

void q4_to_bf16_scalar(const uint8_t *blocks, size_t n, enum q4_scale kind, uint16_t *values);
void q4_to_bf16_avx2(const uint8_t *blocks, size_t n, enum q4_scale kind, uint16_t *values);

/* One group: how many values are equal (+0 equals -0), and the largest difference, finite values only. */
struct q4_difference { unsigned same; float largest; };
struct q4_difference q4_compare_scalar(const uint16_t *a, const uint16_t *b);
struct q4_difference q4_compare_avx2(const uint16_t *a, const uint16_t *b);
#endif
