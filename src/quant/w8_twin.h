/* Between w8.c and its SIMD twins: the largest magnitude (bf16 bits), codes for a given scale, and values. */
#ifndef QUANT_W8_TWIN_H
#define QUANT_W8_TWIN_H
#include "quant/w8.h"

static inline float w8_top(enum w8_kind kind)
{
    return kind == W8_FP8 ? 448 : 127;
}

uint16_t w8_peak_scalar(const uint16_t *row, size_t n);
uint16_t w8_peak_avx2(const uint16_t *row, size_t n);
uint16_t w8_peak_avx512(const uint16_t *row, size_t n);
void w8_codes_scalar(enum w8_kind kind, const uint16_t *row, size_t n, float scale, uint8_t *codes);
void w8_codes_avx2(enum w8_kind kind, const uint16_t *row, size_t n, float scale, uint8_t *codes);
void w8_codes_avx512(enum w8_kind kind, const uint16_t *row, size_t n, float scale, uint8_t *codes);
void w8_values_scalar(enum w8_kind kind, const uint8_t *codes, size_t n, float scale, float *values);
void w8_values_avx2(enum w8_kind kind, const uint8_t *codes, size_t n, float scale, float *values);
void w8_values_avx512(enum w8_kind kind, const uint8_t *codes, size_t n, float scale, float *values);
void w8_compare_scalar(const float *values, const uint16_t *row, size_t n, struct w8_difference *d);
void w8_compare_avx2(const float *values, const uint16_t *row, size_t n, struct w8_difference *d);
#endif
