/* Grid recovery, 8 groups at a time: recover_avx512.c's method (its head says why it holds) in the means of AVX2 and F16C. */
#include <immintrin.h>
#include "quant/q4_twin.h"
#include "quant/recover_twin.h"

#define AVX2 __attribute__((target("avx2,fma,f16c,popcnt")))
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

/* Groups that are not next to each other: 8 of them at a time are brought together.  Returns the first, by place, that has no block. */
AVX2 static size_t recover_gathered(const uint16_t *values, const uint32_t *at, size_t n, enum q4_scale kind, uint8_t *blocks, struct q4_share *share)
{
    uint16_t x[LANES * Q4_GROUP];
    uint8_t made[LANES * Q4_BLOCK];
    const uint8_t *table = q4_ratio_table();
    struct result r;
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < n; i += LANES) {
        size_t k = n - i < LANES ? n - i : LANES;
        for (size_t j = 0; j < LANES; j++)
            __builtin_memcpy(x + j * Q4_GROUP, values + at[i + (j < k ? j : 0)] * Q4_GROUP, 2 * Q4_GROUP);
        recover8(x, kind, table, &r);
        write_blocks(&r, made);
        for (size_t j = 0; j < k; j++) {
            if (r.truth >> j & 1 && !q4_recover_group(x + j * Q4_GROUP, kind, made + j * Q4_BLOCK) && at[i + j] < first)
                first = at[i + j];
            __builtin_memcpy(blocks + at[i + j] * Q4_BLOCK, made + j * Q4_BLOCK, Q4_BLOCK);
        }
        if (share)
            q4_share_add(share, x, made, k, kind, false);
    }
    return first;
}

/* --- peaks at level -8 (recover_twin.h), a group in two registers; sets have value 8 a + 16 b + c, c < 8, at bit 8 b + 16 a + c ---------------------- */

AVX2_INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

AVX2_INLINE void store(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

/* Magnitude * 2 + sign of 32 values, the larger of value i and i + 16. */
AVX2_INLINE __m256i halved(const uint16_t *x)
{
    __m256i a = load(x), b = load(x + 16);
    a = _mm256_or_si256(_mm256_slli_epi16(a, 1), _mm256_srli_epi16(a, 15));
    b = _mm256_or_si256(_mm256_slli_epi16(b, 1), _mm256_srli_epi16(b, 15));
    return _mm256_max_epu16(a, b);
}

/* Of the largest value of each of 8 groups, the negative one where both signs have it. */
AVX2_INLINE __m256i find_keys(const uint16_t *values)
{
    __m256i a[4], b[2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i x = halved(values + 2 * i * Q4_GROUP), y = halved(values + (2 * i + 1) * Q4_GROUP);
        a[i] = _mm256_max_epu16(_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m256 x = as_float(a[2 * i]), y = as_float(a[2 * i + 1]);
        b[i] = _mm256_max_epu16(as_bits(_mm256_shuffle_ps(x, y, 0x88)), as_bits(_mm256_shuffle_ps(x, y, 0xdd)));
    }
    __m256i k = _mm256_max_epu16(_mm256_permute2x128_si256(b[0], b[1], 0x20), _mm256_permute2x128_si256(b[0], b[1], 0x31));
    return _mm256_and_si256(_mm256_max_epu16(k, _mm256_srli_epi32(k, 16)), _mm256_set1_epi32(0xffff));
}

AVX2_INLINE void put_words(uint16_t *to, __m256i dwords)
{
    __m256i words = _mm256_packus_epi32(_mm256_and_si256(dwords, _mm256_set1_epi32(0xffff)), _mm256_setzero_si256());
    _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(_mm256_permute4x64_epi64(words, 0x08)));
}

AVX2_INLINE unsigned lanes_of(__m256i all_ones)
{
    return (unsigned)_mm256_movemask_ps(as_float(all_ones));
}

/* What follows from the peaks of 8 groups, the chunk's from `at` on. */
AVX2_INLINE void find_c(const uint16_t *values, struct q4_chunk *c, size_t at)
{
    const struct q4_domain dom = q4_domain(Q4_BF16);
    __m256i key = find_keys(values + at * Q4_GROUP), top = _mm256_srli_epi32(key, 1), zero = _mm256_cmpeq_epi32(top, _mm256_setzero_si256());
    __m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(top, _mm256_set1_epi32(dom.highest)), _mm256_cmpgt_epi32(top, _mm256_set1_epi32(dom.lowest - 1)));
    top = _mm256_blendv_epi8(_mm256_set1_epi32(0x3f80), top, in);
    /* The step's sign: the peak's is the other one. */
    __m256i sign = _mm256_xor_si256(_mm256_slli_epi32(_mm256_and_si256(key, _mm256_set1_epi32(1)), 15), _mm256_set1_epi32(0x8000));
    _mm256_storeu_ps(c->ratio + at, _mm256_div_ps(_mm256_set1_ps(8), as_float(_mm256_slli_epi32(_mm256_or_si256(top, sign), 16))));
    put_words(c->exponent + at, _mm256_add_epi32(_mm256_sub_epi32(_mm256_and_si256(top, _mm256_set1_epi32(0x7f80)), _mm256_set1_epi32((127 + 3) << 7)), sign));
    put_words(c->mantissa + at, _mm256_and_si256(top, _mm256_set1_epi32(0x7f)));
    put_words(c->scale + at, _mm256_andnot_si256(zero, _mm256_add_epi32(_mm256_sub_epi32(top, _mm256_set1_epi32(3 << 7)), sign)));
    c->zero[at / 8] = (uint8_t)lanes_of(zero);
    c->out[at / 8] = (uint8_t)~lanes_of(_mm256_or_si256(in, zero));
}

/* level + 8 of 16 values, 0 .. 16, in words.  The even product is rounded to an integer in the low half of a float32, the odd one has it in the upper
 * half, with the half that turns cutting into rounding; what the lower value adds to the odd one is far from mattering. */
AVX2_INLINE __m256i levels(__m256i x, __m256 ratio)
{
    __m256i even = as_bits(_mm256_fmadd_ps(even_of(x), ratio, _mm256_set1_ps(0x1.8p23f + 8)));
    __m256i odd = as_bits(_mm256_fmadd_ps(as_float(x), ratio, _mm256_set1_ps(0x1.8p7f + 8.5f)));
    return _mm256_and_si256(_mm256_blend_epi16(even, odd, 0xaa), _mm256_set1_epi16(31));
}

struct tried {
    __m256i u;                  /* level + 8, bytes in the sets' order */
    __m256i d[2];               /* the source less what c gives: 0 or 0x8000 where it is that */
};

AVX2_INLINE __m256i look_up16(__m256i piece, __m256i u)         /* level 8 finds 0, which no source at that level is */
{
    return _mm256_shuffle_epi8(piece, _mm256_adds_epu8(u, _mm256_set1_epi8(0x70)));
}

AVX2_INLINE struct tried try_c(const uint16_t *x, const struct q4_eight *table, const struct q4_chunk *c, size_t g)
{
    const __m256i but_zero = _mm256_setr_epi16(-1, -1, -1, -1, -1, -1, -1, -1, 0, -1, -1, -1, -1, -1, -1, -1);
    __m256 ratio = _mm256_set1_ps(c->ratio[g]);
    __m256i a = load(x), b = load(x + 16), t = _mm256_load_si256((const __m256i *)table->value[c->mantissa[g]]);
    t = _mm256_add_epi16(t, _mm256_and_si256(but_zero, _mm256_set1_epi16((short)c->exponent[g])));
    __m256i bytes = _mm256_packus_epi16(_mm256_and_si256(t, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(t, 8));
    struct tried r = {.u = _mm256_packus_epi16(levels(a, ratio), levels(b, ratio))};
    __m256i low = look_up16(_mm256_permute4x64_epi64(bytes, 0x88), r.u), high = look_up16(_mm256_permute4x64_epi64(bytes, 0xdd), r.u);
    r.d[0] = _mm256_sub_epi16(a, _mm256_unpacklo_epi8(low, high));
    r.d[1] = _mm256_sub_epi16(b, _mm256_unpackhi_epi8(low, high));
    return r;
}

/* The set of values whose words are all ones. */
AVX2_INLINE uint32_t set_of(__m256i a, __m256i b)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_packs_epi16(a, b));
}

/* One group: its block as if c were the scale. */
AVX2_INLINE void make_block(const uint16_t *values, const struct q4_eight *table, uint8_t *blocks, struct q4_chunk *c, size_t g)
{
    const __m256i zero = _mm256_setzero_si256();
    struct tried r = try_c(values + g * Q4_GROUP, table, c, g);
    c->off[g] = ~set_of(_mm256_cmpeq_epi16(_mm256_slli_epi16(r.d[0], 1), zero), _mm256_cmpeq_epi16(_mm256_slli_epi16(r.d[1], 1), zero));
    c->odd[g] = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(r.u, 7));
    __m256i pair = _mm256_maddubs_epi16(_mm256_and_si256(r.u, _mm256_set1_epi8(15)), _mm256_set1_epi16(0x1001));
    pair = _mm256_packus_epi16(pair, pair);
    _mm_storeu_si128((__m128i *)(blocks + g * Q4_BLOCK + 2), _mm_unpacklo_epi32(_mm256_castsi256_si128(pair), _mm256_extracti128_si256(pair, 1)));
    __builtin_memcpy(blocks + g * Q4_BLOCK, &c->scale[g], 2);
}

/* Groups into the lists they belong to.  Returns how many have c for their scale. */
AVX2_INLINE size_t sort_out(struct q4_chunk *c, size_t n)
{
    for (size_t g = 0; g < n; g++) {
        unsigned zero = c->zero[g / 8] >> g % 8 & 1, out = c->out[g / 8] >> g % 8 & 1;
        unsigned other = out | ((c->odd[g] == 0) & (zero ^ 1)), close = (other ^ 1) & (c->off[g] != 0);
        c->other[c->n_other] = c->close[c->n_close] = (uint32_t)g;
        c->n_other += other;
        c->n_close += close;
    }
    return n - c->n_other - c->n_close;
}

/* Number i of the groups that c does not give back: how its values lie. */
AVX2_INLINE void look_closer(const uint16_t *values, const struct q4_eight *table, struct q4_chunk *c, size_t i)
{
    /* Sets of levels by u = level + 8, a bit each from the top: powers of two; odd parts 3, 5, 7. */
    const __m256i kinds = _mm256_broadcastsi128_si256(_mm_setr_epi8(-128, 16, 64, 32, -128, 64, -128, -128, 0, -128, -128, 64, -128, 32, 64, 16));
    size_t g = c->close[i];
    struct tried r = try_c(values + g * Q4_GROUP, table, c, g);
    __m256i kind = look_up16(kinds, r.u), minus = _mm256_set1_epi16(-1), one = _mm256_set1_epi16(1);
    c->power[i] = (uint32_t)_mm256_movemask_epi8(kind);
    c->part[0][i] = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(kind, 1));
    c->part[1][i] = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(kind, 2));
    c->part[2][i] = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(kind, 3));
    c->below[i] = set_of(_mm256_cmpeq_epi16(r.d[0], minus), _mm256_cmpeq_epi16(r.d[1], minus));
    c->above[i] = set_of(_mm256_cmpeq_epi16(r.d[0], one), _mm256_cmpeq_epi16(r.d[1], one));
    c->apart[i] = c->off[g];
    c->side[i] = c->mantissa[g];
    c->c[i] = c->scale[g];
}

AVX2_INLINE __m256i count_bits(__m256i v)
{
    v = _mm256_sub_epi32(v, _mm256_and_si256(_mm256_srli_epi32(v, 1), _mm256_set1_epi32(0x55555555)));
    v = _mm256_add_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0x33333333)), _mm256_and_si256(_mm256_srli_epi32(v, 2), _mm256_set1_epi32(0x33333333)));
    v = _mm256_and_si256(_mm256_add_epi32(v, _mm256_srli_epi32(v, 4)), _mm256_set1_epi32(0x0f0f0f0f));
    return _mm256_srli_epi32(_mm256_mullo_epi32(v, _mm256_set1_epi32(0x01010101)), 24);
}

AVX2_INLINE __m256i some(__m256i v)             /* all ones in the lanes that are not 0 */
{
    return _mm256_xor_si256(_mm256_cmpeq_epi32(v, _mm256_setzero_si256()), _mm256_set1_epi32(-1));
}

struct settled {
    unsigned groups;            /* covered */
    __m256i scale, same;        /* values that it gives back */
};

AVX2_INLINE struct settled settle(const struct q4_chunk *c, const struct q4_eight *table, size_t at)
{
    __m256i above = load(c->above + at), below = load(c->below + at), off = load(c->apart + at), part[3], rebuilt = _mm256_setzero_si256();
    __m256i up = some(above), down = some(below);
    __m256i index = _mm256_slli_epi32(_mm256_add_epi32(load(c->side + at), _mm256_and_si256(up, _mm256_set1_epi32(Q4_PLACES))), 6);
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++) {
        part[k] = load(c->part[k] + at);
        __m256i is_off = some(_mm256_and_si256(part[k], off));
        index = _mm256_add_epi32(index, _mm256_and_si256(some(part[k]), _mm256_set1_epi32(1 << k)));
        index = _mm256_add_epi32(index, _mm256_and_si256(is_off, _mm256_set1_epi32(8 << k)));
        rebuilt = _mm256_or_si256(rebuilt, _mm256_and_si256(is_off, part[k]));
    }
    __m256i found = _mm256_i32gather_epi32((const int *)(const void *)table->side, index, 1), lost_beside = load(c->power + at);
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++)
        lost_beside = _mm256_or_si256(lost_beside, _mm256_and_si256(some(_mm256_and_si256(found, _mm256_set1_epi32(2 << k))), part[k]));
    __m256i lost = count_bits(off), scale = load(c->c + at);
    lost_beside = count_bits(lost_beside);
    __m256i beside = _mm256_cmpgt_epi32(lost, lost_beside);
    scale = _mm256_sub_epi32(scale, _mm256_and_si256(beside, up));
    scale = _mm256_add_epi32(scale, _mm256_and_si256(beside, down));
    __m256i one_side = _mm256_andnot_si256(_mm256_and_si256(up, down), _mm256_cmpeq_epi32(_mm256_or_si256(above, below), off));
    __m256i covered = _mm256_and_si256(some(_mm256_and_si256(found, _mm256_set1_epi32(1))), _mm256_and_si256(_mm256_cmpeq_epi32(rebuilt, off), one_side));
    return (struct settled){lanes_of(covered), scale, _mm256_sub_epi32(_mm256_set1_epi32(Q4_GROUP), _mm256_min_epi32(lost, lost_beside))};
}

/* What a settled group adds to the tally.  No value is off by more than one part in 128 + mantissa of the peak. */
AVX2_INLINE void count_settled(struct q4_share *share, const uint16_t *x, const uint8_t *block, unsigned mantissa, unsigned same)
{
    share->values += same;
    if (share->worst * (Q4_PLACES + mantissa) < 1.0001) {
        struct q4_share one = {0, 0, share->worst};
        q4_share_add(&one, x, block, 1, Q4_BF16, false);
        share->worst = one.worst;
    }
}

/* 8 groups of the list from `at` on, of which n are there: scales, or they go the general way. */
AVX2_INLINE void take_settled(const uint16_t *values, const struct q4_eight *table, uint8_t *blocks, struct q4_chunk *c, size_t at, size_t n, struct q4_share *share)
{
    struct settled s = settle(c, table, at);
    uint16_t scale[LANES];
    uint32_t same[LANES];
    put_words(scale, s.scale);
    store(same, s.same);
    for (size_t i = 0; i < n; i++) {
        size_t g = c->close[at + i];
        bool covered = s.groups >> i & 1;
        __builtin_memcpy(blocks + g * Q4_BLOCK, &scale[i], 2);
        c->other[c->n_other] = (uint32_t)g;
        c->n_other += !covered;
        if (share && covered)
            count_settled(share, values + g * Q4_GROUP, blocks + g * Q4_BLOCK, c->side[at + i], same[i]);
    }
}

/* The last 8 of the list may be fewer: nothing is known of the others, and they find nothing. */
AVX2_INLINE void close_list(struct q4_chunk *c)
{
    uint32_t *const place[] = {c->side, c->above, c->apart, c->part[0], c->part[1], c->part[2]};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        store(place[i] + c->n_close, _mm256_setzero_si256());
}

/* Up to Q4_CHUNK groups, a multiple of 8.  Returns their number, or the first that has no block. */
AVX2 static size_t recover_chunk(const uint16_t *values, size_t n, uint8_t *blocks, struct q4_share *share)
{
    const struct q4_eight *table = q4_eight_table();
    struct q4_chunk c;
    c.n_close = c.n_other = 0;
    for (size_t i = 0; i < n; i += LANES)
        find_c(values, &c, i);
    for (size_t g = 0; g < n; g++)
        make_block(values, table, blocks, &c, g);
    size_t exact = sort_out(&c, n);
    for (size_t i = 0; i < c.n_close; i++)
        look_closer(values, table, &c, i);
    close_list(&c);
    for (size_t i = 0; i < c.n_close; i += LANES)
        take_settled(values, table, blocks, &c, i, c.n_close - i < LANES ? c.n_close - i : LANES, share);
    size_t first = recover_gathered(values, c.other, c.n_other, Q4_BF16, blocks, share);
    if (first != SIZE_MAX)
        return first;
    if (share) {
        share->values += exact * Q4_GROUP;
        share->groups += exact;
    }
    return n;
}

/* A multiple of 8 groups. */
AVX2 static size_t recover_f16(const uint16_t *values, size_t n, uint8_t *blocks)
{
    const uint8_t *table = q4_ratio_table();
    struct result r;
    for (size_t i = 0; i < n; i += LANES) {
        recover8(values + i * Q4_GROUP, Q4_F16, table, &r);
        write_blocks(&r, blocks + i * Q4_BLOCK);
        for (unsigned left = r.truth; left; left &= left - 1) {
            size_t g = i + (size_t)__builtin_ctz(left);
            if (!q4_recover_group(values + g * Q4_GROUP, Q4_F16, blocks + g * Q4_BLOCK))
                return g;
        }
    }
    return n;
}

const struct q4_twin q4_twin_avx2 = {LANES, recover_chunk, recover_f16};
