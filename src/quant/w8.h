/* 8-bit weights with one scale a row: FP8 (E4M3) and int8 (compressed-tensors reference, section 3).
 *
 *   scale = amax / 448 (FP8) or amax / 127 (int8), one float32 division; a row of zeros has scale 1
 *   code  = E4M3(v) or rint(v), v = w / scale in float32, clamped to ±448 or ±127, rounded once to nearest even
 *   value = code * scale, the float32 product
 *
 * Rows of bf16.  The scalar loop is the truth; AVX2 and AVX-512 twins (chosen by simd_level()) give the same bytes.
 */
#ifndef QUANT_W8_H
#define QUANT_W8_H
#include <stddef.h>
#include <stdint.h>

enum w8_kind { W8_FP8, W8_INT8 };

/* One row of n values to n codes and its scale.  Returns -1, or the index of the first NaN or infinity (then nothing is written). */
long w8_quantize_row(enum w8_kind kind, const uint16_t *row, size_t n, uint8_t *codes, float *scale);
/* n codes of one row to float32. */
void w8_dequantize_row(enum w8_kind kind, const uint8_t *codes, size_t n, float scale, float *values);
/* An E4M3 code as a number; 0x7f and 0xff are NaN. */
float w8_e4m3_to_f32(uint8_t code);

/* The largest magnitude of a row, as bf16 bits. */
uint16_t w8_peak(const uint16_t *row, size_t n);
/* Adds how n values compare with a bf16 row: the equal ones, and the largest difference. No NaN. */
struct w8_difference { uint64_t same; double largest; };
void w8_compare(const float *values, const uint16_t *row, size_t n, struct w8_difference *d);
#endif
