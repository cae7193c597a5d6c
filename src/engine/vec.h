/* A vector of 16 floats in plain C, AVX2 (with FMA and F16C) or AVX-512, chosen by VEC_SCALAR, VEC_AVX2, VEC_AVX512 before inclusion.
 * Every operation gives the same bits in all three. */
#ifndef ENGINE_VEC_H
#define ENGINE_VEC_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "tensor/dtype.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(VEC_AVX512)
#include <immintrin.h>
typedef struct { __m512 v; } v16;
INLINE v16 v_of(__m512 v) { return (v16){v}; }
INLINE v16 v_set(float f) { return v_of(_mm512_set1_ps(f)); }
INLINE v16 v_load(const void *p) { return v_of(_mm512_loadu_ps(p)); }
INLINE void v_store(float *p, v16 a) { _mm512_storeu_ps(p, a.v); }
INLINE v16 v_add(v16 a, v16 b) { return v_of(_mm512_add_ps(a.v, b.v)); }
INLINE v16 v_sub(v16 a, v16 b) { return v_of(_mm512_sub_ps(a.v, b.v)); }
INLINE v16 v_mul(v16 a, v16 b) { return v_of(_mm512_mul_ps(a.v, b.v)); }
INLINE v16 v_div(v16 a, v16 b) { return v_of(_mm512_div_ps(a.v, b.v)); }
INLINE v16 v_max(v16 a, v16 b) { return v_of(_mm512_max_ps(a.v, b.v)); }
INLINE v16 v_min(v16 a, v16 b) { return v_of(_mm512_min_ps(a.v, b.v)); }
INLINE v16 v_fma(v16 a, v16 b, v16 c) { return v_of(_mm512_fmadd_ps(a.v, b.v, c.v)); }
INLINE v16 v_rint(v16 a) { return v_of(_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }
INLINE v16 v_pow2(v16 n) { return v_of(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23))); }
INLINE v16 v_bf16(const uint8_t *p) { return v_of(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16))); }
INLINE v16 v_f16(const uint8_t *p) { return v_of(_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p))); }
INLINE v16 v_i8(const uint8_t *p) { return v_of(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)))); }
INLINE v16 v_round_bf16(v16 a)
{
    __m512i b = _mm512_castps_si512(a.v), odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    b = _mm512_add_epi32(b, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return v_of(_mm512_castsi512_ps(_mm512_and_si512(b, _mm512_set1_epi32((int)0xffff0000u))));
}
/* 8 bytes, 16 levels: low half first, offset by 8. */
INLINE v16 v_levels(const uint8_t *p)
{
    __m128i b = _mm_loadl_epi64((const void *)p), mask = _mm_set1_epi8(15);
    __m128i u = _mm_unpacklo_epi8(_mm_and_si128(b, mask), _mm_and_si128(_mm_srli_epi16(b, 4), mask));
    return v_of(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(u, _mm_set1_epi8(8)))));
}
INLINE float v_sum8(__m256 a)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
INLINE float v_sum(v16 a) { return v_sum8(_mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1))); }
INLINE void v_prefetch(const void *p) { _mm_prefetch(p, _MM_HINT_T1); }

#elif defined(VEC_AVX2)
#include <immintrin.h>
typedef struct { __m256 a, b; } v16;
INLINE v16 v_set(float f) { return (v16){_mm256_set1_ps(f), _mm256_set1_ps(f)}; }
INLINE v16 v_load(const void *p) { const float *f = p; return (v16){_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)}; }
INLINE void v_store(float *p, v16 x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
INLINE v16 v_add(v16 x, v16 y) { return (v16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
INLINE v16 v_sub(v16 x, v16 y) { return (v16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
INLINE v16 v_mul(v16 x, v16 y) { return (v16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
INLINE v16 v_div(v16 x, v16 y) { return (v16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
INLINE v16 v_max(v16 x, v16 y) { return (v16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
INLINE v16 v_min(v16 x, v16 y) { return (v16){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
INLINE v16 v_fma(v16 x, v16 y, v16 z) { return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
INLINE __m256 half_rint(__m256 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE v16 v_rint(v16 x) { return (v16){half_rint(x.a), half_rint(x.b)}; }
INLINE __m256 half_pow2(__m256 n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)); }
INLINE v16 v_pow2(v16 n) { return (v16){half_pow2(n.a), half_pow2(n.b)}; }
INLINE __m256 half_bf16(const uint8_t *p) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16)); }
INLINE v16 v_bf16(const uint8_t *p) { return (v16){half_bf16(p), half_bf16(p + 16)}; }
INLINE v16 v_f16(const uint8_t *p) { return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 16)))}; }
INLINE __m256 half_i8(__m128i b) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)); }
INLINE v16 v_i8(const uint8_t *p) { __m128i b = _mm_loadu_si128((const void *)p); return (v16){half_i8(b), half_i8(_mm_srli_si128(b, 8))}; }
INLINE __m256 half_round_bf16(__m256 x)
{
    __m256i b = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    b = _mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_castsi256_ps(_mm256_and_si256(b, _mm256_set1_epi32((int)0xffff0000u)));
}
INLINE v16 v_round_bf16(v16 x) { return (v16){half_round_bf16(x.a), half_round_bf16(x.b)}; }
INLINE v16 v_levels(const uint8_t *p)
{
    __m128i b = _mm_loadl_epi64((const void *)p), mask = _mm_set1_epi8(15);
    __m128i u = _mm_unpacklo_epi8(_mm_and_si128(b, mask), _mm_and_si128(_mm_srli_epi16(b, 4), mask));
    u = _mm_sub_epi8(u, _mm_set1_epi8(8));
    return (v16){half_i8(u), half_i8(_mm_srli_si128(u, 8))};
}
INLINE float v_sum(v16 x)
{
    __m256 a = _mm256_add_ps(x.a, x.b);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
INLINE void v_prefetch(const void *p) { _mm_prefetch(p, _MM_HINT_T1); }

#else
typedef struct { float f[16]; } v16;
#define LANES(expression) v16 r; for (int i = 0; i < 16; i++) r.f[i] = (expression); return r
INLINE v16 v_set(float f) { LANES(f); }
INLINE v16 v_load(const void *p) { v16 r; memcpy(&r, p, sizeof r); return r; }
INLINE void v_store(float *p, v16 a) { memcpy(p, &a, sizeof a); }
INLINE v16 v_add(v16 a, v16 b) { LANES(a.f[i] + b.f[i]); }
INLINE v16 v_sub(v16 a, v16 b) { LANES(a.f[i] - b.f[i]); }
INLINE v16 v_mul(v16 a, v16 b) { LANES(a.f[i] * b.f[i]); }
INLINE v16 v_div(v16 a, v16 b) { LANES(a.f[i] / b.f[i]); }
INLINE v16 v_max(v16 a, v16 b) { LANES(a.f[i] > b.f[i] ? a.f[i] : b.f[i]); }    /* as the instruction: the second on NaN */
INLINE v16 v_min(v16 a, v16 b) { LANES(a.f[i] < b.f[i] ? a.f[i] : b.f[i]); }
INLINE v16 v_fma(v16 a, v16 b, v16 c) { LANES(fmaf(a.f[i], b.f[i], c.f[i])); }
INLINE v16 v_rint(v16 a) { LANES(rintf(a.f[i])); }
INLINE v16 v_pow2(v16 n) { LANES(f32_from_bits((uint32_t)((int)n.f[i] + 127) << 23)); }
INLINE uint16_t half_at(const uint8_t *p, int i) { uint16_t h; memcpy(&h, p + 2 * i, 2); return h; }
INLINE v16 v_bf16(const uint8_t *p) { LANES(bf16_to_f32(half_at(p, i))); }
INLINE v16 v_f16(const uint8_t *p) { LANES(f16_to_f32(half_at(p, i))); }
INLINE v16 v_i8(const uint8_t *p) { LANES((float)(int8_t)p[i]); }
INLINE v16 v_round_bf16(v16 a) { LANES(bf16_to_f32(bf16_from_f32(a.f[i]))); }
INLINE v16 v_levels(const uint8_t *p) { LANES((float)((i % 2 ? p[i / 2] >> 4 : p[i / 2] & 15) - 8)); }
INLINE float v_sum(v16 a)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] += a.f[i + n];
    return a.f[0];
}
INLINE void v_prefetch(const void *p) { (void)p; }
#undef LANES
#endif

INLINE v16 v_scale16(enum st_dtype type, const uint8_t *p)
{
    return type == ST_BF16 ? v_bf16(p) : type == ST_F16 ? v_f16(p) : v_load(p);
}
#endif
