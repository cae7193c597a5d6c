/* Rows to 8 bits and back, 16 values at a time.  Division, rounding and products are those of the scalar loop, lane by lane. */
#include <immintrin.h>
#include "quant/w8_twin.h"

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE AVX2 __attribute__((always_inline)) static inline

AVX2 uint16_t w8_peak_avx2(const uint16_t *row, size_t n)
{
    __m256i top = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        top = _mm256_max_epu16(top, _mm256_and_si256(_mm256_loadu_si256((const void *)(row + i)), _mm256_set1_epi16(0x7fff)));
    uint16_t lane[16], peak = 0;
    _mm256_storeu_si256((void *)lane, top);
    for (int k = 0; k < 16; k++)
        peak = lane[k] > peak ? lane[k] : peak;
    uint16_t rest = w8_peak_scalar(row + i, n - i);
    return rest > peak ? rest : peak;
}

/* Eight quotients, clamped. */
AVX2_INLINE __m256 quotient(const uint16_t *row, __m256 scale, float top)
{
    __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)row)), 16);
    __m256 v = _mm256_div_ps(_mm256_castsi256_ps(wide), scale);
    return _mm256_max_ps(_mm256_min_ps(v, _mm256_set1_ps(top)), _mm256_set1_ps(-top));
}

/* E4M3 codes in dwords (w8.c says how). */
AVX2_INLINE __m256i e4m3(__m256 v)
{
    const __m256 bias = _mm256_set1_ps(0x1p14f);
    __m256i all = _mm256_castps_si256(v), bits = _mm256_and_si256(all, _mm256_set1_epi32(0x7fffffff));
    __m256i small = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(bits), bias)), _mm256_castps_si256(bias));
    __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
    __m256i large = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7ffff)), even), 20);
    large = _mm256_sub_epi32(large, _mm256_set1_epi32((127 - 7) << 3));
    __m256i code = _mm256_blendv_epi8(large, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), bits));
    return _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(all, 24), _mm256_set1_epi32(0x80)));
}

/* The low bytes of 8 + 8 dwords. */
AVX2_INLINE __m128i low_bytes(__m256i a, __m256i b)
{
    const __m256i low = _mm256_set1_epi32(0xff);
    __m256i words = _mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

AVX2 void w8_codes_avx2(enum w8_kind kind, const uint16_t *row, size_t n, float scale, uint8_t *codes)
{
    const __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 a = quotient(row + i, s, w8_top(kind)), b = quotient(row + i + 8, s, w8_top(kind));
        __m128i c = kind == W8_FP8 ? low_bytes(e4m3(a), e4m3(b)) : low_bytes(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
        _mm_storeu_si128((void *)(codes + i), c);
    }
    w8_codes_scalar(kind, row + i, n - i, scale, codes + i);
}

/* E4M3 without its sign, shifted to a float32's place, is the number times 2^-120: exponents differ by 127 - 7; subnormals come out right too.  An
 * exact product brings it back. 0x7f is NaN. */
AVX2_INLINE __m256 e4m3_value(__m256i code)
{
    __m256i bits = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x7f)), 20);
    __m256 v = _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
    __m256i nan = _mm256_cmpeq_epi32(bits, _mm256_set1_epi32(0x7f << 20));
    v = _mm256_or_ps(v, _mm256_castsi256_ps(nan));
    return _mm256_or_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24)));
}

AVX2 void w8_values_avx2(enum w8_kind kind, const uint8_t *codes, size_t n, float scale, float *values)
{
    const __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i c = _mm_loadl_epi64((const void *)(codes + i));
        __m256 v = kind == W8_FP8 ? e4m3_value(_mm256_cvtepu8_epi32(c)) : _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(c));
        _mm256_storeu_ps(values + i, _mm256_mul_ps(v, s));
    }
    w8_values_scalar(kind, codes + i, n - i, scale, values + i);
}

/* Differences in double, as the scalar loop has them. */
AVX2_INLINE __m256d distance(__m128 value, __m128 x)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), _mm256_sub_pd(_mm256_cvtps_pd(value), _mm256_cvtps_pd(x)));
}

AVX2 void w8_compare_avx2(const float *values, const uint16_t *row, size_t n, struct w8_difference *d)
{
    __m256d most = _mm256_setzero_pd();
    double lane[4];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(values + i);
        __m256 x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(row + i))), 16));
        d->same += (unsigned)__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(v, x, _CMP_EQ_OQ)));
        most = _mm256_max_pd(most, distance(_mm256_castps256_ps128(v), _mm256_castps256_ps128(x)));
        most = _mm256_max_pd(most, distance(_mm256_extractf128_ps(v, 1), _mm256_extractf128_ps(x, 1)));
    }
    _mm256_storeu_pd(lane, most);
    for (int k = 0; k < 4; k++)
        d->largest = lane[k] > d->largest ? lane[k] : d->largest;
    w8_compare_scalar(values + i, row + i, n - i, d);
}
