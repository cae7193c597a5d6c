#include <math.h>
#include "base/cpu.h"
#include "quant/w8_twin.h"
#include "tensor/dtype.h"

/* |v| < 464 to E4M3, one rounding.  Below 2^-6 codes count steps of 2^-9: adding 2^14 leaves exactly that precision in a float32.  Above, three
 * mantissa bits stay, and exponent and mantissa are adjacent in both formats. */
static uint8_t e4m3_from_f32(float v)
{
    uint32_t bits = f32_bits(v), sign = bits >> 24 & 0x80;
    bits &= 0x7fffffff;
    if (bits < 0x3c800000)
        return (uint8_t)(sign | (f32_bits(f32_from_bits(bits) + 0x1p14f) - f32_bits(0x1p14f)));
    bits += 0x7ffff + (bits >> 20 & 1);
    return (uint8_t)(sign | ((bits >> 20) - ((127 - 7) << 3)));
}

float w8_e4m3_to_f32(uint8_t code)
{
    unsigned exponent = code >> 3 & 15, mantissa = code & 7;
    float v = exponent == 0 ? (float)mantissa * 0x1p-9f : ldexpf((float)(8 + mantissa), (int)exponent - 10);
    if ((code & 0x7f) == 0x7f)
        v = NAN;
    return code & 0x80 ? -v : v;
}

static float clamp(float v, float top)
{
    return v > top ? top : v < -top ? -top : v;
}

uint16_t w8_peak_scalar(const uint16_t *row, size_t n)
{
    uint16_t peak = 0;
    for (size_t i = 0; i < n; i++)
        if ((row[i] & 0x7fff) > peak)
            peak = row[i] & 0x7fff;
    return peak;
}

void w8_codes_scalar(enum w8_kind kind, const uint16_t *row, size_t n, float scale, uint8_t *codes)
{
    for (size_t i = 0; i < n; i++) {
        float v = clamp(bf16_to_f32(row[i]) / scale, w8_top(kind));
        codes[i] = kind == W8_FP8 ? e4m3_from_f32(v) : (uint8_t)(int8_t)rintf(v);
    }
}

void w8_values_scalar(enum w8_kind kind, const uint8_t *codes, size_t n, float scale, float *values)
{
    for (size_t i = 0; i < n; i++)
        values[i] = (kind == W8_FP8 ? w8_e4m3_to_f32(codes[i]) : (float)(int8_t)codes[i]) * scale;
}

void w8_compare_scalar(const float *values, const uint16_t *row, size_t n, struct w8_difference *d)
{
    for (size_t i = 0; i < n; i++) {
        float x = bf16_to_f32(row[i]);
        double distance = fabs((double)values[i] - (double)x);
        d->same += values[i] == x;
        d->largest = distance > d->largest ? distance : d->largest;
    }
}

void w8_compare(const float *values, const uint16_t *row, size_t n, struct w8_difference *d)
{
    if (simd_level() >= SIMD_AVX2)
        w8_compare_avx2(values, row, n, d);
    else
        w8_compare_scalar(values, row, n, d);
}

uint16_t w8_peak(const uint16_t *row, size_t n)
{
    switch (simd_level()) {
    case SIMD_AVX512: return w8_peak_avx512(row, n);
    case SIMD_AVX2: return w8_peak_avx2(row, n);
    default: return w8_peak_scalar(row, n);
    }
}

long w8_quantize_row(enum w8_kind kind, const uint16_t *row, size_t n, uint8_t *codes, float *scale)
{
    enum simd level = simd_level();
    uint16_t peak = w8_peak(row, n);
    if (peak >= 0x7f80) {
        long i = 0;
        while ((row[i] & 0x7fff) < 0x7f80)
            i++;
        return i;
    }
    *scale = peak ? bf16_to_f32(peak) / w8_top(kind) : 1;
    switch (level) {
    case SIMD_AVX512: w8_codes_avx512(kind, row, n, *scale, codes); break;
    case SIMD_AVX2: w8_codes_avx2(kind, row, n, *scale, codes); break;
    default: w8_codes_scalar(kind, row, n, *scale, codes);
    }
    return -1;
}

void w8_dequantize_row(enum w8_kind kind, const uint8_t *codes, size_t n, float scale, float *values)
{
    switch (simd_level()) {
    case SIMD_AVX512: w8_values_avx512(kind, codes, n, scale, values); break;
    case SIMD_AVX2: w8_values_avx2(kind, codes, n, scale, values); break;
    default: w8_values_scalar(kind, codes, n, scale, values);
    }
}
