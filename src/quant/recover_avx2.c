/* Grid recovery, 8 groups at a time: recover_avx512.c's method (its head says why it holds) in the means of AVX2 and F16C. */
#include <immintrin.h>
#include "quant/recover_twin.h"

#define AVX2 __attribute__((target("avx2,f16c")))
#define AVX2_INLINE AVX2 __attribute__((always_inline)) static inline

enum { LANES = 8, PAIRS = Q4_GROUP / 2 };

/* Eight dwords of 8 rows (one row is Q4_GROUP values) to 8 registers. */
AVX2_INLINE void transpose(const uint16_t *values, __m256i out[8])
{
    __m256i a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        __m256i r0 = _mm256_loadu_si256((const void *)(values + i * Q4_GROUP)), r1 = _mm256_loadu_si256((const void *)(values + (i + 1) * Q4_GROUP));
        a[i] = _mm256_unpacklo_epi32(r0, r1);
        a[i + 1] = _mm256_unpackhi_epi32(r0, r1);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        out[c] = _mm256_permute2x128_si256(b[c], b[c + 4], 0x20);
        out[c + 4] = _mm256_permute2x128_si256(b[c], b[c + 4], 0x31);
    }
}

AVX2_INLINE __m256 as_float(__m256i v)
{
    return _mm256_castsi256_ps(v);
}

AVX2_INLINE __m256i as_bits(__m256 v)
{
    return _mm256_castps_si256(v);
}

AVX2_INLINE __m256 even_of(__m256i pair)
{
    return as_float(_mm256_slli_epi32(pair, 16));
}

AVX2_INLINE __m256 odd_of(__m256i pair)
{
    return as_float(_mm256_and_si256(pair, _mm256_set1_epi32((int)0xffff0000u)));
}

AVX2_INLINE __m256 magnitude(__m256 v)
{
    return _mm256_and_ps(v, as_float(_mm256_set1_epi32(0x7fffffff)));
}

struct peaks { __m256i up, down, top; };        /* largest positive and negative magnitude, and of both; bf16 bits in dwords */

AVX2_INLINE struct peaks find_peaks(const __m256i p[PAIRS])
{
    __m256i s = p[0], u = p[0];
#pragma GCC unroll 15
    for (int j = 1; j < PAIRS; j++) {
        s = _mm256_max_epi16(s, p[j]);
        u = _mm256_max_epu16(u, p[j]);
    }
    s = _mm256_max_epi16(_mm256_max_epi16(s, _mm256_srli_epi32(s, 16)), _mm256_setzero_si256());
    u = _mm256_max_epu16(u, _mm256_srli_epi32(u, 16));
    __m256i negative = _mm256_srai_epi32(_mm256_slli_epi32(u, 16), 31);
    struct peaks k;
    k.up = _mm256_and_si256(s, _mm256_set1_epi32(0xffff));
    k.down = _mm256_and_si256(_mm256_and_si256(u, negative), _mm256_set1_epi32(0x7fff));
    k.top = _mm256_max_epi32(k.up, k.down);
    return k;
}

/* table[i] for 32 indices below 128: 16 entries at a time, bytes out of a piece's range give 0. */
AVX2_INLINE __m256i look_up(const __m256i piece[8], __m256i i)
{
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        __m256i at = _mm256_adds_epu8(_mm256_sub_epi8(i, _mm256_set1_epi8((char)(16 * k))), _mm256_set1_epi8(0x70));
        sum = _mm256_or_si256(sum, _mm256_shuffle_epi8(piece[k], at));
    }
    return sum;
}

AVX2_INLINE __m256i ratio_index(__m256 x, __m256 ratio)
{
    return _mm256_cvttps_epi32(_mm256_ceil_ps(_mm256_mul_ps(magnitude(x), ratio)));
}

/* Bit m - 1 of a lane: m allows all its values. */
AVX2_INLINE __m256i possible_m(const __m256i p[PAIRS], __m256 peak, const uint8_t *table)
{
    __m256i piece[8], set = _mm256_set1_epi32(-1);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        piece[k] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(table + 16 * k)));
    __m256 ratio = _mm256_div_ps(_mm256_set1_ps(Q4_RATIO_STEPS), peak);
#pragma GCC unroll 2
    for (int j = 0; j < PAIRS; j += 2) {
        __m256i i = _mm256_or_si256(ratio_index(even_of(p[j]), ratio), _mm256_slli_epi32(ratio_index(odd_of(p[j]), ratio), 8));
        i = _mm256_or_si256(i, _mm256_slli_epi32(ratio_index(even_of(p[j + 1]), ratio), 16));
        i = _mm256_or_si256(i, _mm256_slli_epi32(ratio_index(odd_of(p[j + 1]), ratio), 24));
        set = _mm256_and_si256(set, look_up(piece, i));
    }
    set = _mm256_and_si256(set, _mm256_srli_epi32(set, 16));
    return _mm256_and_si256(_mm256_and_si256(set, _mm256_srli_epi32(set, 8)), _mm256_set1_epi32(0xff));
}

struct ends { __m256 lo, hi; };

/* One value: its level into acc as the lowest nibble (less 8), its interval into all. */
AVX2_INLINE void take_value(__m256 x, __m256i widen, __m256 ratio, __m256 part, __m256i *acc, struct ends *all, struct ends *keep)
{
    __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(x, ratio));
    *acc = _mm256_add_epi32(_mm256_slli_epi32(*acc, 4), q);
    __m256 none = as_float(_mm256_cmpeq_epi32(q, _mm256_setzero_si256()));      /* level 0: NaN */
    __m256 f = _mm256_or_ps(_mm256_permutevar8x32_ps(part, _mm256_abs_epi32(q)), none);
    __m256i a = as_bits(magnitude(x));
    __m256 lo = _mm256_mul_ps(as_float(_mm256_sub_epi32(a, widen)), f);
    __m256 hi = _mm256_mul_ps(as_float(_mm256_add_epi32(a, widen)), f);
    all->lo = _mm256_max_ps(lo, all->lo);       /* NaN leaves the second operand */
    all->hi = _mm256_min_ps(hi, all->hi);
    *keep = (struct ends){lo, hi};
}

AVX2_INLINE struct ends take_all(const __m256i p[PAIRS], __m256 ratio, __m256i nibbles[4], struct ends *keep)
{
    const __m256 part = _mm256_setr_ps(105, 840, 420, 280, 210, 168, 140, 120);      /* 840 / |q| by |q| & 7 */
    struct ends all = {_mm256_setzero_ps(), _mm256_set1_ps(__builtin_inff())};
#pragma GCC unroll 4
    for (int d = 3; d >= 0; d--) {
        __m256i acc = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int j = 4 * d + 3; j >= 4 * d; j--) {
            __m256i odd = _mm256_and_si256(p[j], _mm256_set1_epi32(0x00010001));
            __m256i widen = _mm256_sub_epi16(_mm256_set1_epi32((int)0x80048004u), _mm256_slli_epi32(odd, 2));
            take_value(odd_of(p[j]), _mm256_srli_epi32(widen, 16), ratio, part, &acc, &all, &keep[2 * j + 1]);
            take_value(even_of(p[j]), _mm256_and_si256(widen, _mm256_set1_epi32(0xffff)), ratio, part, &acc, &all, &keep[2 * j]);
        }
        nibbles[d] = _mm256_add_epi32(acc, _mm256_set1_epi32((int)0x88888888u));
    }
    return all;
}

AVX2_INLINE __m256 inside(__m256 c, struct ends e)
{
    return _mm256_and_ps(_mm256_cmp_ps(c, e.lo, _CMP_GT_OQ), _mm256_cmp_ps(c, e.hi, _CMP_LT_OQ));
}

/* How many of a lane's values a candidate (times 840) gives back. */
AVX2_INLINE __m256i count(const struct ends *keep, __m256 c)
{
    __m256i n = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = 0; i < Q4_GROUP; i++) {
        /* "not outside": level 0 has no ends and is always given back */
        __m256 out = _mm256_or_ps(_mm256_cmp_ps(c, keep[i].lo, _CMP_LE_OQ), _mm256_cmp_ps(c, keep[i].hi, _CMP_GE_OQ));
        n = _mm256_add_epi32(n, as_bits(out));
    }
    return n;
}

struct around { __m256 below, above; __m256i below_bits; };

AVX2_INLINE struct around enclose(__m256 t, enum q4_scale kind)
{
    struct around r;
    if (kind == Q4_BF16) {
        r.below_bits = _mm256_srli_epi32(as_bits(t), 16);
        r.below = as_float(_mm256_slli_epi32(r.below_bits, 16));
        r.above = as_float(_mm256_add_epi32(as_bits(r.below), _mm256_set1_epi32(0x10000)));
        return r;
    }
    __m128i h = _mm256_cvtps_ph(t, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    r.below_bits = _mm256_cvtepu16_epi32(h);
    r.below = _mm256_cvtph_ps(h);
    r.above = _mm256_cvtph_ps(_mm_add_epi16(h, _mm_set1_epi16(1)));
    return r;
}

/* Exact ends, without the widening: 16 significant bits. */
AVX2_INLINE __m256 exact_end(__m256 end)
{
    return as_float(_mm256_and_si256(_mm256_add_epi32(as_bits(end), _mm256_set1_epi32(0x80)), _mm256_set1_epi32(~0xff)));
}

struct result {
    __m256i nibbles[4];
    __m256i scale;              /* 16 bits */
    unsigned truth;             /* lanes to be left to the truth */
};

/* All ones in the lanes that take the upper candidate. */
AVX2_INLINE __m256 choose(const struct around *a, struct ends e, __m256 twice, __m256 in, const struct ends *keep)
{
    __m256 c_below = _mm256_mul_ps(a->below, _mm256_set1_ps(840)), c_above = _mm256_mul_ps(a->above, _mm256_set1_ps(840));
    __m256 below_in = inside(c_below, e), above_in = inside(c_above, e);
    __m256 nearer = _mm256_cmp_ps(_mm256_sub_ps(_mm256_add_ps(c_above, c_above), twice), _mm256_sub_ps(twice, _mm256_add_ps(c_below, c_below)), _CMP_LT_OQ);
    __m256 above = _mm256_and_ps(above_in, _mm256_or_ps(nearer, _mm256_andnot_ps(below_in, above_in)));
    __m256 none_in = _mm256_andnot_ps(_mm256_or_ps(below_in, above_in), in);
    if (_mm256_movemask_ps(none_in)) {
        __m256i nb = count(keep, c_below), na = count(keep, c_above);
        __m256 more = as_float(_mm256_cmpgt_epi32(na, nb)), equal = as_float(_mm256_cmpeq_epi32(na, nb));
        above = _mm256_blendv_ps(above, _mm256_or_ps(more, _mm256_and_ps(equal, nearer)), none_in);
    }
    return above;
}

AVX2_INLINE void recover8(const uint16_t *values, enum q4_scale kind, const uint8_t *table, struct result *out)
{
    __m256i p[PAIRS];
    struct ends keep[Q4_GROUP];
    transpose(values, p);
    transpose(values + Q4_GROUP / 2, p + 8);
    struct peaks k = find_peaks(p);
    const struct q4_domain dom = q4_domain(kind);
    __m256i zero = _mm256_cmpeq_epi32(k.top, _mm256_setzero_si256()), eight = _mm256_set1_epi32(8);
    __m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(k.top, _mm256_set1_epi32(dom.highest)), _mm256_cmpgt_epi32(k.top, _mm256_set1_epi32(dom.lowest - 1)));
    __m256 peak = even_of(_mm256_blendv_epi8(k.top, _mm256_set1_epi32(0x3f80), zero));

    /* The smallest m, from the exponent of the lowest bit set. */
    __m256i set = possible_m(p, peak, table);
    in = _mm256_andnot_si256(_mm256_cmpeq_epi32(set, _mm256_setzero_si256()), in);
    __m256i lowest = _mm256_and_si256(set, _mm256_sub_epi32(_mm256_setzero_si256(), set));
    __m256i m = _mm256_sub_epi32(_mm256_srli_epi32(as_bits(_mm256_cvtepi32_ps(lowest)), 23), _mm256_set1_epi32(126));
    __m256 ratio = _mm256_div_ps(_mm256_cvtepi32_ps(m), peak);

    /* Level +8 is possible with a negative step only. */
    __m256i up8 = _mm256_cmpeq_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(even_of(k.up), ratio)), eight);
    __m256i down8 = _mm256_cmpeq_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(even_of(k.down), ratio)), eight);
    in = _mm256_andnot_si256(_mm256_and_si256(up8, down8), in);
    __m256i sign = _mm256_slli_epi32(up8, 31);
    ratio = _mm256_xor_ps(ratio, as_float(sign));

    struct ends e = take_all(p, ratio, out->nibbles, keep);
    __m256 lo = exact_end(e.lo), hi = exact_end(e.hi);
    __m256 point = _mm256_and_ps(_mm256_cmp_ps(lo, hi, _CMP_EQ_OQ), _mm256_and_ps(_mm256_cmp_ps(e.lo, lo, _CMP_LT_OQ), _mm256_cmp_ps(e.hi, hi, _CMP_GT_OQ)));
    in = _mm256_and_si256(in, as_bits(_mm256_or_ps(_mm256_cmp_ps(lo, hi, _CMP_LT_OQ), point)));

    __m256 twice = _mm256_add_ps(lo, hi);
    struct around a = enclose(_mm256_mul_ps(twice, _mm256_set1_ps(1 / 1680.0f)), kind);
    __m256i above = as_bits(choose(&a, e, twice, as_float(in), keep));
    __m256i bits = _mm256_or_si256(_mm256_sub_epi32(a.below_bits, above), _mm256_srli_epi32(sign, 16));
    out->scale = _mm256_andnot_si256(zero, bits);
    out->truth = 0xff & ~(unsigned)_mm256_movemask_ps(as_float(_mm256_or_si256(in, zero)));
}

AVX2_INLINE void write_blocks(const struct result *r, uint8_t *blocks)
{
    __m256i a = _mm256_unpacklo_epi32(r->nibbles[0], r->nibbles[1]), b = _mm256_unpackhi_epi32(r->nibbles[0], r->nibbles[1]);
    __m256i c = _mm256_unpacklo_epi32(r->nibbles[2], r->nibbles[3]), d = _mm256_unpackhi_epi32(r->nibbles[2], r->nibbles[3]);
    __m256i g[4] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c), _mm256_unpacklo_epi64(b, d), _mm256_unpackhi_epi64(b, d)};
    uint32_t scale[LANES];
    _mm256_storeu_si256((__m256i *)scale, r->scale);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        uint8_t *to = blocks + i * Q4_BLOCK + 2;
        _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(g[i]));
        _mm_storeu_si128((__m128i *)(to + 4 * Q4_BLOCK), _mm256_extracti128_si256(g[i], 1));
    }
    for (int i = 0; i < LANES; i++)
        __builtin_memcpy(blocks + i * Q4_BLOCK, &scale[i], 2);
}

AVX2_INLINE size_t recover_all(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks)
{
    uint8_t table[Q4_RATIO_TABLE];
    struct result r;
    size_t i = 0;
    q4_ratio_table(table);
    for (; i + LANES <= n; i += LANES) {
        recover8(values + i * Q4_GROUP, kind, table, &r);
        write_blocks(&r, blocks + i * Q4_BLOCK);
        for (unsigned left = r.truth; left; left &= left - 1) {
            size_t g = i + (size_t)__builtin_ctz(left);
            if (!q4_recover_group(values + g * Q4_GROUP, kind, blocks + g * Q4_BLOCK))
                return g;
        }
    }
    return i + q4_recover_scalar(values + i * Q4_GROUP, n - i, kind, blocks + i * Q4_BLOCK);
}

AVX2 size_t q4_recover_avx2(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks)
{
    return kind == Q4_F16 ? recover_all(values, n, Q4_F16, blocks) : recover_all(values, n, Q4_BF16, blocks);
}
