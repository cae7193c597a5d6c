/* A vector of 16 floats in plain C, AVX2 (with FMA and F16C) or AVX-512, chosen by VEC_SCALAR, VEC_AVX2, VEC_AVX512 before inclusion.
 * Every operation gives the same bits in all three. */
#ifndef ENGINE_VEC_H
#define ENGINE_VEC_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "tensor/dtype.h"

/* The Makefile says otherwise for builds with a sanitizer, which take minutes with everything inlined everywhere. */
#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

/* 512 activations as 256 high + low, for 16 groups of 32 weights, 256 bytes for every four groups.  int4: 64 high ones of even columns, 64 high of odd, 64 low
 * of even, 64 low of odd, as the halves of a byte want them.  int8: 64 high, 64 low, 64 high, 64 low.  sum: of each group, times the offset of the levels (int4 8,
 * int8 128), in the order of v_transpose. */
struct terms { const int8_t *q; const int32_t *sum; };
/* v_fp8_64: 64 fp8 codes as floats / 2^120, code 4 i + j in lane i of vector j: shifts within the bytes where they lie are cheaper than moving each to a lane of its own.
 * v_int4_sums, v_int8_sums: for each of 16 groups, in the order of v_transpose, the exact integer sum of level x activation, as float; only the first `chunks` (1 to
 * 4) of four groups are looked at, the others give 0.  v_scales: 16 scales in the order of v_transpose.  v_sum4: of each of four vectors a[4 L + j], the sum over j (2,
 * then 1 apart), then over L. */

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
INLINE __m256i load_half(const void *p) { return _mm256_loadu_si256(p); }
INLINE v16 v_widen(enum st_dtype type, __m256i h) { return v_of(type == ST_F16 ? _mm512_cvtph_ps(h) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))); }
INLINE v16 v_bf16(const uint8_t *p) { return v_widen(ST_BF16, load_half(p)); }
INLINE v16 v_f16(const uint8_t *p) { return v_widen(ST_F16, load_half(p)); }
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
/* 16 fp8 codes as floats / 2^120: sign, exponent and mantissa moved to their places, subnormals included. */
INLINE v16 v_fp8(const uint8_t *p)
{
    __m512i b = _mm512_slli_epi32(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)), 20);
    return v_of(_mm512_castsi512_ps(_mm512_and_si512(b, _mm512_set1_epi32((int)0x87f00000u))));
}
INLINE void v_fp8_64(const uint8_t *p, v16 out[4])
{
    const __m512i b = _mm512_loadu_si512(p), keep = _mm512_set1_epi32((int)0x87f00000u);
    const __m512i odd = _mm512_srai_epi16(b, 4), even = _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 4);
    out[0] = v_of(_mm512_castsi512_ps(_mm512_and_si512(_mm512_slli_epi32(even, 16), keep)));
    out[1] = v_of(_mm512_castsi512_ps(_mm512_and_si512(_mm512_slli_epi32(odd, 16), keep)));
    out[2] = v_of(_mm512_castsi512_ps(_mm512_and_si512(even, keep)));
    out[3] = v_of(_mm512_castsi512_ps(_mm512_and_si512(odd, keep)));
}
INLINE v16 v_abs(v16 a) { return v_of(_mm512_abs_ps(a.v)); }
/* As a 4 x 4 matrix, transposed. */
INLINE v16 v_transpose(v16 a) { return v_of(_mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), a.v)); }
INLINE v16 v_scales(enum st_dtype type, const uint8_t *p)
{
    const __m256i order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return type == ST_F32 ? v_transpose(v_load(p)) : v_widen(type, _mm256_permutexvar_epi16(order, load_half(p)));
}
/* Four scales of each of four rows, those of row r in lanes 4 L + r. */
INLINE v16 v_last_scales(enum st_dtype type, const uint8_t *p, size_t stride)
{
    __m128i a = _mm_unpacklo_epi16(_mm_loadl_epi64((const void *)p), _mm_loadl_epi64((const void *)(p + stride)));
    __m128i b = _mm_unpacklo_epi16(_mm_loadl_epi64((const void *)(p + 2 * stride)), _mm_loadl_epi64((const void *)(p + 3 * stride)));
    return v_widen(type, _mm256_set_m128i(_mm_unpackhi_epi32(a, b), _mm_unpacklo_epi32(a, b)));
}
/* Four vectors of four groups of four: the sums of the groups, group L of vector j in lane 4 L + j. */
INLINE __m512i group_sums(const __m512i t[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(t[0], t[1]), _mm512_unpackhi_epi32(t[0], t[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(t[2], t[3]), _mm512_unpackhi_epi32(t[2], t[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
/* 64 bytes of int4: for four groups the sums of their quarters. */
INLINE __m512i int4_chunk(const uint8_t *w, const int8_t *q)
{
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i b = _mm512_loadu_si512(w);
    __asm__("" : "+v"(b));      /* one load, not one for each use: loads are what is short */
    const __m512i e = _mm512_and_si512(b, mask), o = _mm512_and_si512(_mm512_srli_epi16(b, 4), mask);
    const __m512i high = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), e, _mm512_load_si512(q)), o, _mm512_load_si512(q + 64));
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_slli_epi32(high, 8), e, _mm512_load_si512(q + 128)), o, _mm512_load_si512(q + 192));
}
INLINE __m512i int8_half(const uint8_t *w, const int8_t *q)
{
    const __m512i b = _mm512_xor_si512(_mm512_loadu_si512(w), _mm512_set1_epi8((char)0x80));      /* w + 128, unsigned */
    return _mm512_dpbusd_epi32(_mm512_slli_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), b, _mm512_load_si512(q)), 8), b, _mm512_load_si512(q + 64));
}
INLINE __m512i int8_chunk(const uint8_t *w, const int8_t *q)
{
    const __m512i a = int8_half(w, q), b = int8_half(w + 64, q + 128);
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}
INLINE v16 float_sums(const __m512i t[4], __m512i sum) { return v_of(_mm512_cvtepi32_ps(_mm512_sub_epi32(group_sums(t), sum))); }
INLINE v16 v_int4_sums(int chunks, const uint8_t *w, const struct terms *q)
{
    __m512i t[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        t[j] = j < chunks ? int4_chunk(w + 64 * j, q->q + 256 * j) : _mm512_setzero_si512();
    return float_sums(t, _mm512_load_si512(q->sum));
}
INLINE v16 v_int8_sums(int chunks, const uint8_t *w, const struct terms *q)
{
    __m512i t[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        t[j] = j < chunks ? int8_chunk(w + 128 * j, q->q + 256 * j) : _mm512_setzero_si512();
    return float_sums(t, _mm512_load_si512(q->sum));
}
/* 32 integers q = 256 high + low within -32639..32639, as terms for int4 (even and odd apart) or int8; their sum.  NaN gives 0. */
INLINE int32_t v_split(bool int4, v16 a, v16 b, int8_t *q)
{
    const __m256i lower = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v)), upper = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(b.v));
    const __m512i n = _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
    const __m512i high = _mm512_srai_epi16(_mm512_add_epi16(n, _mm512_set1_epi16(128)), 8), low = _mm512_sub_epi16(n, _mm512_slli_epi16(high, 8));
    if (int4) {
        _mm_storeu_si128((void *)q, _mm512_cvtepi32_epi8(high));
        _mm_storeu_si128((void *)(q + 64), _mm512_cvtepi32_epi8(_mm512_srli_epi32(high, 16)));
        _mm_storeu_si128((void *)(q + 128), _mm512_cvtepi32_epi8(low));
        _mm_storeu_si128((void *)(q + 192), _mm512_cvtepi32_epi8(_mm512_srli_epi32(low, 16)));
    } else {
        _mm256_storeu_si256((void *)q, _mm512_cvtepi16_epi8(high));
        _mm256_storeu_si256((void *)(q + 64), _mm512_cvtepi16_epi8(low));
    }
    return _mm512_reduce_add_epi32(_mm512_madd_epi16(n, _mm512_set1_epi16(1)));
}
/* The first chunk of each of four rows, the groups of row r in lanes 4 L + r. */
INLINE v16 v_int4_last(const uint8_t *w, size_t stride, const struct terms *q)
{
    __m512i t[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
        t[r] = int4_chunk(w + (size_t)r * stride, q->q);
    return float_sums(t, _mm512_shuffle_epi32(_mm512_load_si512(q->sum), _MM_PERM_AAAA));
}
INLINE float v_sum8(__m256 a)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
/* The largest lane. */
INLINE float v_most(v16 a) { return _mm512_reduce_max_ps(a.v); }
INLINE float v_sum(v16 a) { return v_sum8(_mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1))); }
INLINE void quarters_sum(__m512 m, float *out)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(m), _mm512_extractf32x8_ps(m, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
}
INLINE void v_sum4(const v16 a[4], float *out)
{
    __m512 x = _mm512_add_ps(_mm512_unpacklo_ps(a[0].v, a[1].v), _mm512_unpackhi_ps(a[0].v, a[1].v));
    __m512 y = _mm512_add_ps(_mm512_unpacklo_ps(a[2].v, a[3].v), _mm512_unpackhi_ps(a[2].v, a[3].v));
    __m512d u = _mm512_castps_pd(x), v = _mm512_castps_pd(y);
    quarters_sum(_mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(u, v)), _mm512_castpd_ps(_mm512_unpackhi_pd(u, v))), out);
}
/* The same after lane 4 L of vector r has taken fma(last[4 L + r], by[4 L + r], lane). */
INLINE void v_sum4_last(const v16 a[4], v16 last, v16 by, float *out)
{
    __m512d x = _mm512_castps_pd(_mm512_unpacklo_ps(a[0].v, a[1].v)), y = _mm512_castps_pd(_mm512_unpacklo_ps(a[2].v, a[3].v));
    __m512d z = _mm512_castps_pd(_mm512_unpackhi_ps(a[0].v, a[1].v)), w = _mm512_castps_pd(_mm512_unpackhi_ps(a[2].v, a[3].v));
    __m512 m0 = _mm512_fmadd_ps(last.v, by.v, _mm512_castpd_ps(_mm512_unpacklo_pd(x, y))), m1 = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    __m512 m2 = _mm512_castpd_ps(_mm512_unpacklo_pd(z, w)), m3 = _mm512_castpd_ps(_mm512_unpackhi_pd(z, w));
    quarters_sum(_mm512_add_ps(_mm512_add_ps(m0, m2), _mm512_add_ps(m1, m3)), out);
}
/* Of every quarter its first lane. */
INLINE v16 v_firsts(v16 a) { return v_of(_mm512_shuffle_ps(a.v, a.v, 0)); }
INLINE void v_prefetch(const void *p, bool near)
{
    if (near)
        _mm_prefetch(p, _MM_HINT_T0);
    else
        _mm_prefetch(p, _MM_HINT_T1);
}

#elif defined(VEC_AVX2)
#include <immintrin.h>
typedef struct { __m256 a, b; } v16;
INLINE __m256i load_half(const void *p) { return _mm256_loadu_si256(p); }
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
INLINE __m256 half_fp8(__m128i c) { return _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(_mm256_cvtepi8_epi32(c), 20), _mm256_set1_epi32((int)0x87f00000u))); }
INLINE v16 v_fp8(const uint8_t *p) { __m128i b = _mm_loadu_si128((const void *)p); return (v16){half_fp8(b), half_fp8(_mm_srli_si128(b, 8))}; }
INLINE void half_fp8_64(const uint8_t *p, __m256 out[4])
{
    const __m256i b = load_half(p), keep = _mm256_set1_epi32((int)0x87f00000u);
    const __m256i odd = _mm256_srai_epi16(b, 4), even = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 4);
    out[0] = _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(even, 16), keep));
    out[1] = _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(odd, 16), keep));
    out[2] = _mm256_castsi256_ps(_mm256_and_si256(even, keep));
    out[3] = _mm256_castsi256_ps(_mm256_and_si256(odd, keep));
}
INLINE void v_fp8_64(const uint8_t *p, v16 out[4])
{
    __m256 a[4], b[4];
    half_fp8_64(p, a);
    half_fp8_64(p + 32, b);
    for (int i = 0; i < 4; i++)
        out[i] = (v16){a[i], b[i]};
}
INLINE __m256 half_abs(__m256 x) { return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff))); }
INLINE v16 v_abs(v16 x) { return (v16){half_abs(x.a), half_abs(x.b)}; }
INLINE v16 v_transpose(v16 x)
{
    __m128 a = _mm256_castps256_ps128(x.a), b = _mm256_extractf128_ps(x.a, 1), c = _mm256_castps256_ps128(x.b), d = _mm256_extractf128_ps(x.b, 1);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    return (v16){_mm256_set_m128(b, a), _mm256_set_m128(d, c)};
}
INLINE __m256i four_sums(__m256i a, __m256i b, __m256i c, __m256i d) { return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d)); }
/* Sums of four of 32 products u8 x s8, whose pairs fit 16 bits. */
INLINE __m256i pairs(__m256i e, __m256i o, const int8_t *even, const int8_t *odd)
{
    return _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(e, load_half(even)), _mm256_maddubs_epi16(o, load_half(odd))), _mm256_set1_epi16(1));
}
INLINE v16 v_int4_sums(int chunks, const uint8_t *w, const struct terms *q)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i t[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        t[j] = _mm256_setzero_si256();
        if (j >= 2 * chunks)
            continue;
        __m256i b = load_half(w + 32 * j), e = _mm256_and_si256(b, mask), o = _mm256_and_si256(_mm256_srli_epi16(b, 4), mask);
        const int8_t *at = q->q + 256 * (j / 2) + 32 * (j % 2);
        t[j] = _mm256_add_epi32(_mm256_slli_epi32(pairs(e, o, at, at + 64), 8), pairs(e, o, at + 128, at + 192));
    }
    __m256i a = _mm256_sub_epi32(four_sums(t[0], t[2], t[4], t[6]), load_half(q->sum)), b = _mm256_sub_epi32(four_sums(t[1], t[3], t[5], t[7]), load_half(q->sum + 8));
    return (v16){_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)};
}
/* Sums of two of 16 products s8 x (256 high + low). */
INLINE __m256i wide_pairs(const uint8_t *w, const int8_t *high, const int8_t *low)
{
    __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)w));
    __m256i h = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)high)), l = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)low));
    return _mm256_madd_epi16(b, _mm256_add_epi16(_mm256_slli_epi16(h, 8), l));
}
INLINE v16 v_int8_sums(int chunks, const uint8_t *w, const struct terms *q)
{
    __m256i t[8];
    for (int j = 0; j < 8; j++) {
        __m256i block[2];
        t[j] = _mm256_setzero_si256();
        if (j >= 2 * chunks)
            continue;
        for (int i = 0; i < 2; i++) {
            const uint8_t *from = w + 64 * j + 32 * i;
            const int8_t *at = q->q + 128 * j + 32 * i;
            block[i] = _mm256_add_epi32(wide_pairs(from, at, at + 64), wide_pairs(from + 16, at + 16, at + 80));
        }
        t[j] = _mm256_add_epi32(_mm256_permute2x128_si256(block[0], block[1], 0x20), _mm256_permute2x128_si256(block[0], block[1], 0x31));
    }
    return (v16){_mm256_cvtepi32_ps(four_sums(t[0], t[2], t[4], t[6])), _mm256_cvtepi32_ps(four_sums(t[1], t[3], t[5], t[7]))};
}
INLINE float v_most(v16 x)
{
    __m256 a = _mm256_max_ps(x.a, x.b);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
INLINE float v_sum(v16 x)
{
    __m256 a = _mm256_add_ps(x.a, x.b);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
/* Lanes 4 L + j: the sums over j, L = 0 to 3. */
INLINE __m128 quads(v16 x)
{
    __m256 a = _mm256_hadd_ps(_mm256_permute_ps(x.a, 0xd8), _mm256_permute_ps(x.b, 0xd8));     /* 0 + 2, 1 + 3 of both */
    a = _mm256_hadd_ps(a, a);
    return _mm_unpacklo_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));             /* L = 0, 1 (high half of a), 2, 3 */
}
INLINE void v_sum4(const v16 a[4], float *out)
{
    for (int i = 0; i < 4; i++) {
        __m128 q = quads(a[i]);
        q = _mm_add_ps(q, _mm_movehl_ps(q, q));
        out[i] = _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
    }
}
INLINE void v_prefetch(const void *p, bool near)
{
    if (near)
        _mm_prefetch(p, _MM_HINT_T0);
    else
        _mm_prefetch(p, _MM_HINT_T1);
}

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
INLINE v16 v_pow2(v16 n) { LANES(n.f[i] == n.f[i] ? f32_from_bits((uint32_t)((int)n.f[i] + 127) << 23) : n.f[i]); }
INLINE uint16_t half_at(const uint8_t *p, int i) { uint16_t h; memcpy(&h, p + 2 * i, 2); return h; }
INLINE v16 v_bf16(const uint8_t *p) { LANES(bf16_to_f32(half_at(p, i))); }
INLINE v16 v_f16(const uint8_t *p) { LANES(f16_to_f32(half_at(p, i))); }
INLINE v16 v_i8(const uint8_t *p) { LANES((float)(int8_t)p[i]); }
INLINE v16 v_round_bf16(v16 a) { LANES(bf16_to_f32(bf16_from_f32(a.f[i]))); }
INLINE v16 v_levels(const uint8_t *p) { LANES((float)((i % 2 ? p[i / 2] >> 4 : p[i / 2] & 15) - 8)); }
INLINE v16 v_fp8(const uint8_t *p) { LANES(f32_from_bits((uint32_t)(p[i] & 0x80) << 24 | (uint32_t)(p[i] & 0x7f) << 20)); }
INLINE void v_fp8_64(const uint8_t *p, v16 out[4])
{
    for (int i = 0; i < 64; i++)
        out[i % 4].f[i / 4] = f32_from_bits((uint32_t)(p[i] & 0x80) << 24 | (uint32_t)(p[i] & 0x7f) << 20);
}
INLINE v16 v_abs(v16 a) { LANES(fabsf(a.f[i])); }
INLINE v16 v_transpose(v16 a) { LANES(a.f[4 * (i % 4) + i / 4]); }
INLINE int term(int8_t high, int8_t low) { return 256 * high + low; }
INLINE v16 v_int4_sums(int chunks, const uint8_t *w, const struct terms *q)
{
    v16 r = {{0}};
    for (int b = 0; b < 4 * chunks; b++) {
        int t = 0;
        for (int i = 0; i < 16; i++) {
            const int8_t *at = q->q + 256 * (b / 4) + 16 * (b % 4) + i;
            t += ((w[16 * b + i] & 15) - 8) * term(at[0], at[128]) + ((w[16 * b + i] >> 4) - 8) * term(at[64], at[192]);
        }
        r.f[4 * (b % 4) + b / 4] = (float)t;
    }
    return r;
}
INLINE v16 v_int8_sums(int chunks, const uint8_t *w, const struct terms *q)
{
    v16 r = {{0}};
    for (int b = 0; b < 4 * chunks; b++) {
        int t = 0;
        for (int i = 0; i < 32; i++) {
            const int8_t *at = q->q + 128 * (b / 2) + 32 * (b % 2) + i;
            t += (int8_t)w[32 * b + i] * term(at[0], at[64]);
        }
        r.f[4 * (b % 4) + b / 4] = (float)t;
    }
    return r;
}
INLINE float v_most(v16 a)
{
    float most = a.f[0];
    for (int i = 1; i < 16; i++)
        most = a.f[i] > most ? a.f[i] : most;
    return most;
}
INLINE float v_sum(v16 a)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a.f[i] += a.f[i + n];
    return a.f[0];
}
INLINE void v_sum4(const v16 a[4], float *out)
{
    for (int i = 0; i < 4; i++) {
        float q[4];
        for (int l = 0; l < 4; l++)
            q[l] = (a[i].f[4 * l] + a[i].f[4 * l + 2]) + (a[i].f[4 * l + 1] + a[i].f[4 * l + 3]);
        out[i] = (q[0] + q[2]) + (q[1] + q[3]);
    }
}
INLINE void v_prefetch(const void *p, bool near) { (void)p, (void)near; }
#undef LANES
#endif

INLINE v16 v_scale16(enum st_dtype type, const uint8_t *p)
{
    return type == ST_BF16 ? v_bf16(p) : type == ST_F16 ? v_f16(p) : v_load(p);
}
#ifndef VEC_AVX512
INLINE int32_t v_split(bool int4, v16 a, v16 b, int8_t *q)
{
    float all[32];
    int32_t sum = 0;
    v_store(all, a);
    v_store(all + 16, b);
    for (int i = 0; i < 32; i++) {
        const int n = all[i] == all[i] ? (int)all[i] : 0, high = (n + 128) >> 8;
        int8_t *at = q + (int4 ? i % 2 * 64 + i / 2 : i);
        at[0] = (int8_t)high;
        at[int4 ? 128 : 64] = (int8_t)(n - 256 * high);
        sum += n;
    }
    return sum;
}
INLINE v16 v_scales(enum st_dtype type, const uint8_t *p) { return v_transpose(v_scale16(type, p)); }
#endif
#endif
