/* Rows to 8 bits and back: as w8_avx2.c. */
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

/* |v| to three mantissa bits, in the upper bits (w8.c says how). */
AVX512_INLINE __m512i round_to_three(__m512 v)
{
    __m512i bits = _mm512_castps_si512(v), even = _mm512_and_si512(_mm512_srli_epi32(bits, 20), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7ffff)), even);
}

/* The upper, the lower halves of dwords that stand for neighbours. */
AVX512_INLINE __m512i upper_halves(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(even, 16), odd);
}

AVX512_INLINE __m512i lower_halves(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));
}

/* 32 codes in the low bytes of words.  A quotient beyond 448 is so by less than what rounding takes off: no clamp.  What rounds up to 2^-6 has the same code either way. */
AVX512_INLINE __m512i e4m3(__m512i x, __m512 scale)
{
    const __m512 bias = _mm512_set1_ps(0x1p14f);
    __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_and_si512(x, _mm512_set1_epi32(0x7fff)), 16));
    __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(0x7fff0000)));
    even = _mm512_div_ps(even, scale);
    odd = _mm512_div_ps(odd, scale);
    __m512i rounded = upper_halves(round_to_three(even), round_to_three(odd));
    __m512i small = lower_halves(_mm512_castps_si512(_mm512_add_ps(even, bias)), _mm512_castps_si512(_mm512_add_ps(odd, bias)));
    __m512i large = _mm512_xor_si512(_mm512_srli_epi16(rounded, 4), _mm512_set1_epi16(0x40));           /* less 127 - 7 in the exponent, in seven bits */
    __m512i code = _mm512_mask_blend_epi16(_mm512_cmplt_epi16_mask(rounded, _mm512_set1_epi16(0x3c80)), large, small);
    enum { SELECT = 0xca };             /* first ? second : third */
    return _mm512_ternarylogic_epi32(_mm512_set1_epi16(0x7f), code, _mm512_srli_epi16(x, 8), SELECT);
}

/* 32 codes likewise. */
AVX512_INLINE __m512i int8(__m512i x, __m512 scale)
{
    const __m512 top = _mm512_set1_ps(127), bottom = _mm512_set1_ps(-127);
    __m512 even = _mm512_div_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)), scale);
    __m512 odd = _mm512_div_ps(_mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u))), scale);
    even = _mm512_max_ps(_mm512_min_ps(even, top), bottom);
    odd = _mm512_max_ps(_mm512_min_ps(odd, top), bottom);
    return lower_halves(_mm512_cvtps_epi32(even), _mm512_cvtps_epi32(odd));
}

AVX512 void w8_codes_avx512(enum w8_kind kind, const uint16_t *row, size_t n, float scale, uint8_t *codes)
{
    const __m512 s = _mm512_set1_ps(scale);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m512i x = _mm512_loadu_si512(row + i), c = kind == W8_FP8 ? e4m3(x, s) : int8(x, s);
        _mm256_storeu_si256((void *)(codes + i), _mm512_cvtepi16_epi8(c));
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
