/* Element types of safetensors, and the 16-bit floats as numbers.
 *
 * Names and order: huggingface/safetensors tensor.rs (the writer sorts tensors by this order, descending).
 * Rounding is to nearest, ties to even, everywhere.
 */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H
#include <stdint.h>
#include <string.h>

enum st_dtype {
    ST_BOOL, ST_F4, ST_F6_E2M3, ST_F6_E3M2, ST_U8, ST_I8, ST_F8_E5M2, ST_F8_E4M3, ST_F8_E8M0, ST_F8_E4M3FNUZ, ST_F8_E5M2FNUZ,
    ST_I16, ST_U16, ST_F16, ST_BF16, ST_I32, ST_U32, ST_F32, ST_C64, ST_F64, ST_I64, ST_U64, ST_DTYPES
};
const char *st_dtype_name(enum st_dtype d);
int st_dtype_from_name(const char *name);       /* -1 = unknown */
unsigned st_dtype_bits(enum st_dtype d);

static inline float f32_from_bits(uint32_t b) { float f; memcpy(&f, &b, 4); return f; }
static inline uint32_t f32_bits(float f) { uint32_t b; memcpy(&b, &f, 4); return b; }
static inline float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }
/* NaN stays NaN (quiet bit set). */
static inline uint16_t bf16_from_f32(float f)
{
    uint32_t b = f32_bits(f);
    if ((b & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((b >> 16) | 0x40u);
    return (uint16_t)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
float f16_to_f32(uint16_t h);
uint16_t f16_from_f32(float f);                 /* overflow gives infinity */
#endif
