/* What blocks give back of their source, a group a register. */
#include <immintrin.h>
#include "quant/q4_twin.h"
#include "tensor/dtype.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,popcnt")))
#define AVX512_INLINE AVX512 __attribute__((always_inline)) static inline

/* The 32 values of a block under scale s: of each nibble the product is made once. s is finite. */
AVX512_INLINE __m512i values_of(const uint8_t *block, float s)
{
    const __m512 level = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    __m512i b = _mm512_castps_si512(_mm512_mul_ps(level, _mm512_set1_ps(s)));
    __m512i even = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    __m512i table = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7fff)), even), 16);
    __m512i packed = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(block + 2)));
    __m512i nibbles = _mm512_and_si512(_mm512_or_si512(packed, _mm512_slli_epi32(packed, 12)), _mm512_set1_epi32(0x000f000f));
    return _mm512_permutexvar_epi16(_mm512_slli_epi16(nibbles, 1), table);      /* words of the table lie in dwords */
}

AVX512_INLINE __m512 even_of(__m512i pair)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
}

AVX512_INLINE __m512 odd_of(__m512i pair)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000u)));
}

/* Lanes whose difference is beyond `worst` times their own magnitude: none means that no difference is beyond worst times the group's. */
AVX512_INLINE unsigned beyond(__m512 x, __m512 y, __m512 worst)
{
    return _mm512_cmp_ps_mask(_mm512_abs_ps(_mm512_sub_ps(x, y)), _mm512_mul_ps(_mm512_abs_ps(x), worst), _CMP_GT_OQ);
}

AVX512 void q4_share_avx512(struct q4_share *share, const uint16_t *x, const uint8_t *blocks, size_t n, enum q4_scale kind, bool rounded)
{
    float scale[16];
    for (size_t i = 0; i < n; i++, x += Q4_GROUP, blocks += Q4_BLOCK) {
        if (i % 16 == 0)
            for (size_t k = 0; k < 16 && i + k < n; k++) {
                const uint8_t *b = blocks + k * Q4_BLOCK;
                uint16_t bits = (uint16_t)(b[0] | b[1] << 8);
                scale[k] = kind == Q4_BF16 ? bf16_to_f32(bits) : q4_scale_value(bits, kind);
                if (rounded)
                    scale[k] = bf16_to_f32(bf16_from_f32(scale[k]));
            }
        __m512i source = _mm512_loadu_si512(x), value = values_of(blocks, scale[i % 16]);
        __mmask32 same = _mm512_cmpeq_epi16_mask(source, value) | _mm512_testn_epi16_mask(_mm512_or_si512(source, value), _mm512_set1_epi16(0x7fff));
        share->values += (uint64_t)__builtin_popcount(same);
        share->groups += same == 0xffffffffu;
        /* A little less than worst, so that rounding hides nothing. */
        __m512 worst = _mm512_set1_ps((float)share->worst * 0.99999f);
        if (beyond(even_of(source), even_of(value), worst) | beyond(odd_of(source), odd_of(value), worst)) {
            uint16_t given[Q4_GROUP];
            _mm512_storeu_si512(given, value);
            q4_share_worst(share, x, given);
        }
    }
}
