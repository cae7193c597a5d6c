/* Rows to 8 bits and back, 16 values a register: as w8_avx2.c. */
#include <immintrin.h>
#include "quant/w8_twin.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define AVX512_INLINE AVX512 __attribute__((always_inline)) static inline

AVX512 uint16_t w8_peak_avx512(const uint16_t *row, size_t n)
{
    __m512i top = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        top = _mm512_max_epu16(top, _mm512_and_si512(_mm512_loadu_si512(row + i), _mm512_set1_epi16(0x7fff)));
    uint16_t lane[32], peak = 0;
    _mm512_storeu_si512(lane, top);
    for (int k = 0; k < 32; k++)
        peak = lane[k] > peak ? lane[k] : peak;
    uint16_t rest = w8_peak_scalar(row + i, n - i);
    return rest > peak ? rest : peak;
}

AVX512_INLINE __m512i e4m3(__m512 v)
{
    const __m512 bias = _mm512_set1_ps(0x1p14f);
    __m512i all = _mm512_castps_si512(v), bits = _mm512_and_si512(all, _mm512_set1_epi32(0x7fffffff));
    __m512i small = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(bits), bias)), _mm512_castps_si512(bias));
    __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 20), _mm512_set1_epi32(1));
    __m512i large = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7ffff)), even), 20);
    large = _mm512_sub_epi32(large, _mm512_set1_epi32((127 - 7) << 3));
    __m512i code = _mm512_mask_mov_epi32(large, _mm512_cmplt_epi32_mask(bits, _mm512_set1_epi32(0x3c800000)), small);
    return _mm512_or_si512(code, _mm512_and_si512(_mm512_srli_epi32(all, 24), _mm512_set1_epi32(0x80)));
}

AVX512 void w8_codes_avx512(enum w8_kind kind, const uint16_t *row, size_t n, float scale, uint8_t *codes)
{
    const __m512 s = _mm512_set1_ps(scale), top = _mm512_set1_ps(w8_top(kind)), bottom = _mm512_set1_ps(-w8_top(kind));
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(row + i))), 16);
        __m512 v = _mm512_max_ps(_mm512_min_ps(_mm512_div_ps(_mm512_castsi512_ps(wide), s), top), bottom);
        _mm_storeu_si128((void *)(codes + i), _mm512_cvtepi32_epi8(kind == W8_FP8 ? e4m3(v) : _mm512_cvtps_epi32(v)));
    }
    w8_codes_scalar(kind, row + i, n - i, scale, codes + i);
}

AVX512_INLINE __m512 e4m3_value(__m512i code)
{
    __m512i bits = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x7f)), 20);
    __m512 v = _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
    v = _mm512_mask_mov_ps(v, _mm512_cmpeq_epi32_mask(bits, _mm512_set1_epi32(0x7f << 20)), _mm512_set1_ps(__builtin_nanf("")));
    return _mm512_or_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x80)), 24)));
}

AVX512 void w8_values_avx512(enum w8_kind kind, const uint8_t *codes, size_t n, float scale, float *values)
{
    const __m512 s = _mm512_set1_ps(scale);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i c = _mm_loadu_si128((const void *)(codes + i));
        __m512 v = kind == W8_FP8 ? e4m3_value(_mm512_cvtepu8_epi32(c)) : _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(c));
        _mm512_storeu_ps(values + i, _mm512_mul_ps(v, s));
    }
    w8_values_scalar(kind, codes + i, n - i, scale, values + i);
}
