/* Blocks to values and comparison of groups in AVX2. */
#include <immintrin.h>
#include "quant/q4_twin.h"
#include "tensor/dtype.h"

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE AVX2 __attribute__((always_inline)) static inline

/* bf16 of 8 float32, in the low halves of dwords; NaN stays NaN. */
AVX2_INLINE __m256i round_bf16(__m256 v)
{
    __m256i b = _mm256_castps_si256(v), high = _mm256_srli_epi32(b, 16);
    __m256i up = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), _mm256_and_si256(high, _mm256_set1_epi32(1)));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(b, up), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(r, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

/* Of each nibble the product is made once; two byte shuffles look up the 32 values. */
AVX2 void q4_to_bf16_avx2(const uint8_t *blocks, size_t n, enum q4_scale kind, uint16_t *values)
{
    const __m256 low = _mm256_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1), high = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i bytes = _mm256_set1_epi16(0xff);
    for (size_t i = 0; i < n; i++, blocks += Q4_BLOCK, values += Q4_GROUP) {
        __m256 s = _mm256_set1_ps(q4_scale_value((uint16_t)(blocks[0] | blocks[1] << 8), kind));
        __m256i table = _mm256_packus_epi32(round_bf16(_mm256_mul_ps(low, s)), round_bf16(_mm256_mul_ps(high, s)));
        table = _mm256_permute4x64_epi64(table, 0xd8);
        __m256i parts = _mm256_packus_epi16(_mm256_and_si256(table, bytes), _mm256_srli_epi16(table, 8));
        parts = _mm256_permute4x64_epi64(parts, 0xd8);          /* 16 low bytes, 16 high bytes */
        __m128i lows = _mm256_castsi256_si128(parts), highs = _mm256_extracti128_si256(parts, 1);
        __m128i packed = _mm_loadu_si128((const void *)(blocks + 2)), nibble = _mm_set1_epi8(15);
        __m128i even = _mm_and_si128(packed, nibble), odd = _mm_and_si128(_mm_srli_epi16(packed, 4), nibble);
        __m128i index[2] = {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)};
        for (int k = 0; k < 2; k++) {
            __m128i l = _mm_shuffle_epi8(lows, index[k]), h = _mm_shuffle_epi8(highs, index[k]);
            _mm_storeu_si128((void *)(values + 16 * k), _mm_unpacklo_epi8(l, h));
            _mm_storeu_si128((void *)(values + 16 * k + 8), _mm_unpackhi_epi8(l, h));
        }
    }
}

AVX2_INLINE __m256 distance(__m128i a, __m128i b)
{
    __m256 x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(a), 16));
    __m256 y = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16));
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_sub_ps(x, y));
}

AVX2 struct q4_difference q4_compare_avx2(const uint16_t *a, const uint16_t *b)
{
    struct q4_difference d = {0, 0, 0};
    __m256 most = _mm256_setzero_ps();
    __m256i top = _mm256_setzero_si256();
    for (int k = 0; k < Q4_GROUP; k += 16) {
        __m256i x = _mm256_loadu_si256((const void *)(a + k)), y = _mm256_loadu_si256((const void *)(b + k));
        top = _mm256_max_epu16(top, _mm256_and_si256(x, _mm256_set1_epi16(0x7fff)));
        __m256i none = _mm256_cmpeq_epi16(_mm256_slli_epi16(_mm256_or_si256(x, y), 1), _mm256_setzero_si256());
        unsigned equal = (unsigned)_mm256_movemask_epi8(_mm256_or_si256(_mm256_cmpeq_epi16(x, y), none));
        d.same += (unsigned)__builtin_popcount(equal) / 2;
        most = _mm256_max_ps(most, distance(_mm256_castsi256_si128(x), _mm256_castsi256_si128(y)));
        most = _mm256_max_ps(most, distance(_mm256_extracti128_si256(x, 1), _mm256_extracti128_si256(y, 1)));
    }
    __m128i half = _mm_max_epu16(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    d.peak = (uint16_t)~_mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1))), 0);
    float lane[8];
    _mm256_storeu_ps(lane, most);
    for (int k = 0; k < 8; k++)
        d.largest = lane[k] > d.largest ? lane[k] : d.largest;
    return d;
}
