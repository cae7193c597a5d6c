/* Between q4.c and recover.c and their AVX2 twins. */
#ifndef QUANT_Q4_TWIN_H
#define QUANT_Q4_TWIN_H
#include <stdbool.h>
#include "quant/recover.h"

void q4_to_bf16_scalar(const uint8_t *blocks, size_t n, enum q4_scale kind, uint16_t *values);
void q4_to_bf16_avx2(const uint8_t *blocks, size_t n, enum q4_scale kind, uint16_t *values);

/* One group: how many values are equal (+0 equals -0), the largest difference, finite values only, and the largest magnitude of a (bf16 bits). */
struct q4_difference { unsigned same; float largest; uint16_t peak; };
struct q4_difference q4_compare_scalar(const uint16_t *a, const uint16_t *b);
struct q4_difference q4_compare_avx2(const uint16_t *a, const uint16_t *b);

/* Adds to `worst` the largest difference of a group from its source. */
void q4_share_worst(struct q4_share *share, const uint16_t *x, const uint16_t *value);
/* Adds n groups to a share; `rounded` = with scales rounded to bf16. */
void q4_share_add(struct q4_share *share, const uint16_t *x, const uint8_t *blocks, size_t n, enum q4_scale kind, bool rounded);
void q4_share_avx512(struct q4_share *share, const uint16_t *x, const uint8_t *blocks, size_t n, enum q4_scale kind, bool rounded);
#endif
