/* Grid recovery, 16 groups at a time, a group in each lane of float32.
 *
 * The truth tries every (m, sign); here the smallest possible m is read off first.  A value on the grid has |x| / peak = (q / m)(1 ± 2^-7), so a table over 127 steps
 * of that ratio says which m allow it, and the AND over 32 values leaves a set that holds every m the group may be on the grid with.  Its smallest member
 * is checked with exact intervals.
 *
 * Why that gives the truth's block, for peaks well inside the type's range.  Fractions q / m with m <= 8 are at least 1/56 apart, more than the tolerance, so a group on
 * the grid with several m has them as multiples of the smallest; then all that the truth could find later are the same steps divided by 2 .. 8.  If the smallest
 * m is 1 or 2 the group has an exact scale there (the value at level 1).  If it is 3 or 4 the only multiple is its double, and halving a scale keeps
 * it a 16-bit number only if it was one.  Levels are nearest integers of a float32 product: quotients that are close to a tie belong to no grid.
 * Intervals are exact: an end has 9 significant bits, 840 / q has 7.  An end that belongs to its interval is moved outwards by 4 last places of a float32, so that all
 * comparisons are strict; distinct ends, and candidates, are 2^-18 and more apart.
 * Other groups (peak near the range's limits, NaN, off the grid) go to the truth.
 */
#include <immintrin.h>
#include "quant/q4_twin.h"
#include "quant/recover_twin.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")))
#define AVX512_INLINE AVX512 __attribute__((always_inline)) static inline

enum { LANES = 16, PAIRS = Q4_GROUP / 2 };
#define TO_INTEGER 0x1.8p23f            /* added to a small float32 it leaves its nearest integer in the low bits */

/* Row g of 16 dwords to lane g of 16 registers: out[j] holds dword j of every row. */
AVX512_INLINE void transpose(const uint16_t *values, __m512i out[PAIRS])
{
    __m512i a[16], b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        __m512i r0 = _mm512_loadu_si512(values + i * Q4_GROUP), r1 = _mm512_loadu_si512(values + (i + 1) * Q4_GROUP);
        a[i] = _mm512_unpacklo_epi32(r0, r1);
        a[i + 1] = _mm512_unpackhi_epi32(r0, r1);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {       /* 128-bit blocks: b[4 r + c] holds columns c, c + 4, … of rows 4 r .. 4 r + 3 */
        __m512i x = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88), y = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
        __m512i z = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd), w = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
        out[c] = _mm512_shuffle_i32x4(x, y, 0x88);
        out[c + 8] = _mm512_shuffle_i32x4(x, y, 0xdd);
        out[c + 4] = _mm512_shuffle_i32x4(z, w, 0x88);
        out[c + 12] = _mm512_shuffle_i32x4(z, w, 0xdd);
    }
}

AVX512_INLINE __m512 as_float(__m512i v)
{
    return _mm512_castsi512_ps(v);
}

AVX512_INLINE __m512i as_bits(__m512 v)
{
    return _mm512_castps_si512(v);
}

/* The lower and the upper bf16 of each lane as float32. */
AVX512_INLINE __m512 even_of(__m512i pair)
{
    return as_float(_mm512_slli_epi32(pair, 16));
}

AVX512_INLINE __m512 odd_of(__m512i pair)
{
    return as_float(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000u)));
}

struct peaks { __m512i up, down, top; };        /* largest positive and negative magnitude, and of both; bf16 bits in dwords */

AVX512_INLINE struct peaks find_peaks(const __m512i p[PAIRS])
{
    __m512i s = p[0], u = p[0];
#pragma GCC unroll 15
    for (int j = 1; j < PAIRS; j++) {
        s = _mm512_max_epi16(s, p[j]);
        u = _mm512_max_epu16(u, p[j]);
    }
    s = _mm512_max_epi16(_mm512_max_epi16(s, _mm512_srli_epi32(s, 16)), _mm512_setzero_si512());
    u = _mm512_max_epu16(u, _mm512_srli_epi32(u, 16));
    __m512i low = _mm512_set1_epi32(0xffff);
    struct peaks k;
    k.up = _mm512_and_si512(s, low);
    u = _mm512_and_si512(u, low);
    k.down = _mm512_maskz_and_epi32(_mm512_test_epi32_mask(u, _mm512_set1_epi32(0x8000)), u, _mm512_set1_epi32(0x7fff));
    k.top = _mm512_max_epi32(k.up, k.down);
    return k;
}

/* Bit m - 1 of a lane: m allows these 16 of its values. */
AVX512_INLINE __m512i possible_m(const __m512i p[PAIRS / 2], __m512 peak, const uint8_t *table)
{
    __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64), set = _mm512_set1_epi32(-1);
    __m512 ratio = _mm512_div_ps(_mm512_set1_ps(Q4_RATIO_STEPS), peak), to_integer = _mm512_set1_ps(TO_INTEGER);
    enum { UP = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC };
#pragma GCC unroll 4
    for (int j = 0; j < PAIRS / 2; j += 2) {
        __m512i index = set;            /* four bytes, all replaced */
#pragma GCC unroll 2
        for (int i = j; i < j + 2; i++) {
            __m512i a = _mm512_and_si512(p[i], _mm512_set1_epi32(0x7fff7fff));
            index = _mm512_shrdi_epi32(index, as_bits(_mm512_fmadd_round_ps(even_of(a), ratio, to_integer, UP)), 8);
            index = _mm512_shrdi_epi32(index, as_bits(_mm512_fmadd_round_ps(odd_of(a), ratio, to_integer, UP)), 8);
        }
        set = _mm512_and_si512(set, _mm512_permutex2var_epi8(t0, index, t1));
    }
    set = _mm512_and_si512(set, _mm512_srli_epi32(set, 16));
    return _mm512_and_si512(_mm512_and_si512(set, _mm512_srli_epi32(set, 8)), _mm512_set1_epi32(0xff));
}

/* Intersection of the open intervals, and where they are for every value, signed as the value is (keep not NULL). */
struct ends { __m512 lo, hi; };

/* One value by the ends of its own interval, signed: its level into nibbles as the highest, the steps into all. */
AVX512_INLINE void take_value(__m512i inner, __m512i outer, __m512 ratio, __m512 part, __m512i *nibbles, struct ends *all, struct ends *keep)
{
    enum { ABS_MIN = 10, ABS_MAX = 11 };        /* of magnitudes; the sign is cleared; a NaN leaves the other operand */
    __m512i q = as_bits(_mm512_fmadd_ps(as_float(outer), ratio, _mm512_set1_ps(TO_INTEGER)));
    *nibbles = _mm512_shrdi_epi32(*nibbles, q, 4);
    __m512 f = _mm512_permutexvar_ps(q, part);
    __m512 lo = _mm512_mul_ps(as_float(inner), f), hi = _mm512_mul_ps(as_float(outer), f);
    all->lo = _mm512_range_ps(lo, all->lo, ABS_MAX);
    all->hi = _mm512_range_ps(hi, all->hi, ABS_MIN);
    if (keep)
        *keep = (struct ends){lo, hi};
}

AVX512_INLINE struct ends take_all(const __m512i p[PAIRS], __m512 ratio, __m512i nibbles[4], struct ends *keep)
{
    /* 840 / |q| by q & 15.  Level 0 takes only the value 0: its inner end is a NaN here, its outer one becomes infinite; any other value's inner end does. */
    const __m512 part = _mm512_setr_ps(__builtin_inff(), 840, 420, 280, 210, 168, 140, 120, 105, 120, 140, 168, 210, 280, 420, 840);
    struct ends all = {_mm512_setzero_ps(), _mm512_set1_ps(__builtin_inff())};
#pragma GCC unroll 4
    for (int d = 0; d < 4; d++) {
        __m512i acc = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int j = 4 * d; j < 4 * d + 4; j++) {
            /* Half a last place of bf16, and 4 of float32 more where the mantissa is even: for the lower value in the upper half and the other way
             * round, so that value and width meet in one float32.  Word x - 1 and width 0x10000 - w are x less w. */
            __m512i odd = _mm512_and_si512(_mm512_rol_epi32(p[j], 18), _mm512_set1_epi32(0x00040004));
            __m512i wide = _mm512_xor_si512(odd, _mm512_set1_epi32((int)0x80048004u));
            __m512i less = _mm512_sub_epi16(p[j], _mm512_set1_epi32(0x00010001)), rest = _mm512_sub_epi16(_mm512_setzero_si512(), wide);
            take_value(_mm512_shldi_epi32(less, rest, 16), _mm512_shldi_epi32(p[j], wide, 16), ratio, part, &acc, &all, keep ? &keep[2 * j] : NULL);
            take_value(_mm512_mask_blend_epi16(0xaaaaaaaa, rest, less), _mm512_mask_blend_epi16(0xaaaaaaaa, wide, p[j]), ratio, part, &acc, &all,
                       keep ? &keep[2 * j + 1] : NULL);
        }
        nibbles[d] = _mm512_xor_si512(acc, _mm512_set1_epi32((int)0x88888888u));
    }
    return all;
}

/* Values that the candidate below all steps loses, less those that the one above loses (both times 840). */
AVX512_INLINE __m512i compare_losses(const struct ends *keep, __m512 below, __m512 above)
{
    __m512i n = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
#pragma GCC unroll 8
    for (int i = 0; i < Q4_GROUP; i++) {
        /* A NaN compares false, infinity is above: level 0 is never lost. */
        n = _mm512_mask_add_epi32(n, _mm512_cmp_ps_mask(below, _mm512_abs_ps(keep[i].lo), _CMP_LE_OQ), n, one);
        n = _mm512_mask_sub_epi32(n, _mm512_cmp_ps_mask(above, _mm512_abs_ps(keep[i].hi), _CMP_GE_OQ), n, one);
    }
    return n;
}

/* The two 16-bit numbers around t as float32, and their bits. */
struct around { __m512 below, above; __m512i below_bits; };

AVX512_INLINE struct around enclose(__m512 t, enum q4_scale kind)
{
    struct around r;
    if (kind == Q4_BF16) {
        r.below_bits = _mm512_srli_epi32(as_bits(t), 16);
        r.below = as_float(_mm512_slli_epi32(r.below_bits, 16));
        r.above = as_float(_mm512_add_epi32(as_bits(r.below), _mm512_set1_epi32(0x10000)));
        return r;
    }
    __m256i h = _mm512_cvtps_ph(t, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    r.below_bits = _mm512_cvtepu16_epi32(h);
    r.below = _mm512_cvtph_ps(h);
    r.above = _mm512_cvtph_ps(_mm256_add_epi16(h, _mm256_set1_epi16(1)));
    return r;
}

/* Exact ends, without the widening: 16 significant bits. */
AVX512_INLINE __m512 exact_end(__m512 end)
{
    return as_float(_mm512_and_si512(_mm512_add_epi32(as_bits(end), _mm512_set1_epi32(0x80)), _mm512_set1_epi32(~0xff)));
}

struct result {
    __m512i nibbles[4];
    __m512i scale;              /* 16 bits */
    __mmask16 truth;            /* lanes to be left to the truth */
};

/* `all` = m from all values instead of the first half. */
AVX512_INLINE void recover16(const uint16_t *values, enum q4_scale kind, const uint8_t *table, bool all, struct result *out)
{
    __m512i p[PAIRS];
    struct ends keep[Q4_GROUP];
    transpose(values, p);
    struct peaks k = find_peaks(p);
    const struct q4_domain dom = q4_domain(kind);
    __mmask16 zero = _mm512_testn_epi32_mask(k.top, k.top);
    __mmask16 in = _mm512_cmpge_epi32_mask(k.top, _mm512_set1_epi32(dom.lowest)) & _mm512_cmple_epi32_mask(k.top, _mm512_set1_epi32(dom.highest));
    __m512i top = _mm512_mask_mov_epi32(k.top, zero, _mm512_set1_epi32(0x3f80));
    __m512 peak = even_of(top);

    /* The smallest m, from the exponent of the lowest bit set. */
    __m512i set = possible_m(p, peak, table);
    if (all)
        set = _mm512_and_si512(set, possible_m(p + PAIRS / 2, peak, table));
    in &= _mm512_test_epi32_mask(set, set);
    __m512i lowest = _mm512_and_si512(set, _mm512_sub_epi32(_mm512_setzero_si512(), set));
    __m512i m = _mm512_sub_epi32(_mm512_srli_epi32(as_bits(_mm512_cvtepi32_ps(lowest)), 23), _mm512_set1_epi32(126));
    __m512 ratio = _mm512_div_ps(_mm512_cvtepi32_ps(m), peak);

    /* Level +8 is possible with a negative step only. */
    __m512i eight = _mm512_set1_epi32(8);
    __mmask16 up8 = _mm512_cmpeq_epi32_mask(_mm512_cvtps_epi32(_mm512_mul_ps(even_of(k.up), ratio)), eight);
    __mmask16 down8 = _mm512_cmpeq_epi32_mask(_mm512_cvtps_epi32(_mm512_mul_ps(even_of(k.down), ratio)), eight);
    in &= (__mmask16)~(up8 & down8);
    __m512i sign = _mm512_maskz_set1_epi32(up8, (int)0x80000000u);
    ratio = as_float(_mm512_xor_si512(as_bits(ratio), sign));

    struct ends e = take_all(p, ratio, out->nibbles, kind == Q4_BF16 ? keep : NULL);
    __m512 lo = exact_end(e.lo), hi = exact_end(e.hi);
    __mmask16 point = _mm512_cmp_ps_mask(lo, hi, _CMP_EQ_OQ) & _mm512_cmp_ps_mask(e.lo, lo, _CMP_LT_OQ) & _mm512_cmp_ps_mask(e.hi, hi, _CMP_GT_OQ);
    in &= _mm512_cmp_ps_mask(lo, hi, _CMP_LT_OQ) | point;

    __m512 twice = _mm512_add_ps(lo, hi);
    struct around a = enclose(_mm512_mul_ps(twice, _mm512_set1_ps(1 / 1680.0f)), kind);
    __m512 c_below = _mm512_mul_ps(a.below, _mm512_set1_ps(840)), c_above = _mm512_mul_ps(a.above, _mm512_set1_ps(840));
    __mmask16 below_in = _mm512_cmp_ps_mask(c_below, e.lo, _CMP_GT_OQ) & _mm512_cmp_ps_mask(c_below, e.hi, _CMP_LT_OQ);
    __mmask16 above_in = _mm512_cmp_ps_mask(c_above, e.lo, _CMP_GT_OQ) & _mm512_cmp_ps_mask(c_above, e.hi, _CMP_LT_OQ);
    /* 2 * 840 * distance from the middle, exact. */
    __mmask16 nearer = _mm512_cmp_ps_mask(_mm512_sub_ps(_mm512_add_ps(c_above, c_above), twice), _mm512_sub_ps(twice, _mm512_add_ps(c_below, c_below)), _CMP_LT_OQ);
    __mmask16 take_above = (above_in & nearer) | (above_in & (__mmask16)~below_in);

    __mmask16 none_in = in & (__mmask16)~(below_in | above_in);
    if (none_in) {
        if (kind == Q4_F16)
            take_all(p, ratio, out->nibbles, keep);
        __m512i n = compare_losses(keep, c_below, c_above), equal = _mm512_setzero_si512();
        __mmask16 more = _mm512_cmpgt_epi32_mask(n, equal) | (_mm512_cmpeq_epi32_mask(n, equal) & nearer);
        take_above = (take_above & (__mmask16)~none_in) | (more & none_in);
    }
    __m512i bits = _mm512_mask_add_epi32(a.below_bits, take_above, a.below_bits, _mm512_set1_epi32(1));
    out->scale = _mm512_maskz_or_epi32((__mmask16)~zero, bits, _mm512_srli_epi32(sign, 16));
    out->truth = (__mmask16)~(in | zero);
}

AVX512_INLINE void write_blocks(const struct result *r, uint8_t *blocks)
{
    __m512i a = _mm512_unpacklo_epi32(r->nibbles[0], r->nibbles[1]), b = _mm512_unpackhi_epi32(r->nibbles[0], r->nibbles[1]);
    __m512i c = _mm512_unpacklo_epi32(r->nibbles[2], r->nibbles[3]), d = _mm512_unpackhi_epi32(r->nibbles[2], r->nibbles[3]);
    __m512i g[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d)};
    uint16_t scale[LANES];
    _mm256_storeu_si256((__m256i *)scale, _mm512_cvtepi32_epi16(r->scale));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        uint8_t *to = blocks + i * Q4_BLOCK + 2;
        _mm_storeu_si128((__m128i *)to, _mm512_extracti32x4_epi32(g[i], 0));
        _mm_storeu_si128((__m128i *)(to + 4 * Q4_BLOCK), _mm512_extracti32x4_epi32(g[i], 1));
        _mm_storeu_si128((__m128i *)(to + 8 * Q4_BLOCK), _mm512_extracti32x4_epi32(g[i], 2));
        _mm_storeu_si128((__m128i *)(to + 12 * Q4_BLOCK), _mm512_extracti32x4_epi32(g[i], 3));
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        __builtin_memcpy(blocks + i * Q4_BLOCK, &scale[i], 2);
}

/* Half the values allowed an m that the others do not, or a lane is not for us. */
AVX512 __attribute__((noinline)) static void recover16_again(const uint16_t *values, enum q4_scale kind, const uint8_t *table, struct result *out)
{
    recover16(values, kind, table, true, out);
}

/* Groups that are not next to each other: 16 of them at a time are brought together.  Returns the first, by place, that has no block. */
AVX512 static size_t recover_gathered(const uint16_t *values, const uint32_t *at, size_t n, enum q4_scale kind, uint8_t *blocks, struct q4_share *share)
{
    _Alignas(64) uint16_t x[LANES * Q4_GROUP];
    uint8_t made[LANES * Q4_BLOCK];
    const uint8_t *table = q4_ratio_table();
    struct result r;
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < n; i += LANES) {
        size_t k = n - i < LANES ? n - i : LANES;
        for (size_t j = 0; j < LANES; j++)
            _mm512_store_si512(x + j * Q4_GROUP, _mm512_loadu_si512(values + at[i + (j < k ? j : 0)] * Q4_GROUP));
        recover16(x, kind, table, false, &r);
        if (r.truth)
            recover16_again(x, kind, table, &r);
        write_blocks(&r, made);
        for (size_t j = 0; j < k; j++) {
            if (r.truth >> j & 1 && !q4_recover_group(x + j * Q4_GROUP, kind, made + j * Q4_BLOCK) && at[i + j] < first)
                first = at[i + j];
            __builtin_memcpy(blocks + at[i + j] * Q4_BLOCK, made + j * Q4_BLOCK, Q4_BLOCK);
        }
        if (share)
            q4_share_avx512(share, x, made, k, kind, false);
    }
    return first;
}

/* --- peaks at level -8 (recover_twin.h), a group a register ------------------------------------------------------------ */

/* Magnitude * 2 + sign of the largest value of each of 16 groups, the negative one where both signs have it. */
AVX512_INLINE __m512i find_keys(const uint16_t *values)
{
    __m512i a[8], b[4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        __m512i x = _mm512_loadu_si512(values + 2 * i * Q4_GROUP), y = _mm512_loadu_si512(values + (2 * i + 1) * Q4_GROUP);
        x = _mm512_shldi_epi16(x, x, 1);
        y = _mm512_shldi_epi16(y, y, 1);
        a[i] = _mm512_max_epu16(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 x = as_float(a[2 * i]), y = as_float(a[2 * i + 1]);
        b[i] = _mm512_max_epu16(as_bits(_mm512_shuffle_ps(x, y, 0x88)), as_bits(_mm512_shuffle_ps(x, y, 0xdd)));
    }
    __m512i c = _mm512_max_epu16(_mm512_shuffle_i32x4(b[0], b[1], 0x44), _mm512_shuffle_i32x4(b[0], b[1], 0xee));
    __m512i d = _mm512_max_epu16(_mm512_shuffle_i32x4(b[2], b[3], 0x44), _mm512_shuffle_i32x4(b[2], b[3], 0xee));
    __m512i k = _mm512_max_epu16(_mm512_shuffle_i32x4(c, d, 0x88), _mm512_shuffle_i32x4(c, d, 0xdd));
    return _mm512_and_si512(_mm512_max_epu16(k, _mm512_srli_epi32(k, 16)), _mm512_set1_epi32(0xffff));
}

/* level + 8 of each value in the low five bits of its word, 0 .. 16.  The even product is rounded to an integer in the low half of a float32, the odd one
 * has it in the upper half, with the half that turns cutting into rounding; what the lower value adds to the odd one is far from mattering. */
AVX512_INLINE __m512i levels(__m512i x, float ratio)
{
    const __m512 r = _mm512_set1_ps(ratio), low = _mm512_set1_ps(0x1.8p23f + 8), high = _mm512_set1_ps(0x1.8p7f + 8.5f);
    __m512i even = as_bits(_mm512_fmadd_ps(even_of(x), r, low)), odd = as_bits(_mm512_fmadd_ps(as_float(x), r, high));
    return _mm512_mask_blend_epi16(0xaaaaaaaa, even, odd);
}

/* The source less what c gives: 0 or 0x8000 where it is that. */
AVX512_INLINE __m512i from_c(__m512i x, __m512i u, const struct q4_eight *table, unsigned mantissa, uint16_t exponent)
{
    __m512i t = _mm512_load_si512(table->value[mantissa]);
    t = _mm512_mask_add_epi16(t, (__mmask32)~(1u << 8), t, _mm512_set1_epi16((short)exponent));
    return _mm512_sub_epi16(x, _mm512_permutexvar_epi16(u, t));
}

AVX512_INLINE void put_words(uint16_t *to, __m512i dwords)
{
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(dwords));
}

/* What follows from the peaks of 16 groups, the chunk's from `at` on. */
AVX512_INLINE void find_c(const uint16_t *values, struct q4_chunk *c, size_t at)
{
    const struct q4_domain dom = q4_domain(Q4_BF16);
    __m512i key = find_keys(values + at * Q4_GROUP), top = _mm512_srli_epi32(key, 1);
    __mmask16 zero = _mm512_testn_epi32_mask(top, top), minus = _mm512_test_epi32_mask(key, _mm512_set1_epi32(1));
    __mmask16 in = _mm512_cmpge_epi32_mask(top, _mm512_set1_epi32(dom.lowest)) & _mm512_cmple_epi32_mask(top, _mm512_set1_epi32(dom.highest));
    top = _mm512_mask_mov_epi32(_mm512_set1_epi32(0x3f80), in, top);
    __m512i sign = _mm512_maskz_set1_epi32((__mmask16)~minus, 0x8000);          /* of the step: the peak's is the other one */
    _mm512_storeu_ps(c->ratio + at, _mm512_div_ps(_mm512_set1_ps(8), as_float(_mm512_slli_epi32(_mm512_or_si512(top, sign), 16))));
    put_words(c->exponent + at, _mm512_add_epi32(_mm512_sub_epi32(_mm512_and_si512(top, _mm512_set1_epi32(0x7f80)), _mm512_set1_epi32((127 + 3) << 7)), sign));
    put_words(c->mantissa + at, _mm512_and_si512(top, _mm512_set1_epi32(0x7f)));
    put_words(c->scale + at, _mm512_maskz_add_epi32((__mmask16)~zero, _mm512_sub_epi32(top, _mm512_set1_epi32(3 << 7)), sign));
    __mmask16 out = (__mmask16)~(in | zero);
    __builtin_memcpy(c->zero + at / 8, &zero, sizeof zero);
    __builtin_memcpy(c->out + at / 8, &out, sizeof out);
}

/* One group: its block as if c were the scale. */
AVX512_INLINE void try_c(const uint16_t *values, const struct q4_eight *table, uint8_t *blocks, struct q4_chunk *c, size_t g)
{
    __m512i x = _mm512_loadu_si512(values + g * Q4_GROUP), u = levels(x, c->ratio[g]);
    __m512i pair = _mm512_madd_epi16(_mm512_and_si512(u, _mm512_set1_epi32(0x000f000f)), _mm512_set1_epi32(0x00100001));
    c->off[g] = _mm512_test_epi16_mask(from_c(x, u, table, c->mantissa[g], c->exponent[g]), _mm512_set1_epi16(0x7fff));
    c->odd[g] = _mm512_test_epi16_mask(u, _mm512_set1_epi16(1));
    _mm_storeu_si128((__m128i *)(blocks + g * Q4_BLOCK + 2), _mm512_cvtepi32_epi8(pair));
    __builtin_memcpy(blocks + g * Q4_BLOCK, &c->scale[g], 2);
}

/* 16 groups into the lists they belong to.  Returns those for which c is the scale. */
AVX512_INLINE __mmask16 sort_out(struct q4_chunk *c, size_t at)
{
    __m512i off = _mm512_loadu_si512(c->off + at), odd = _mm512_loadu_si512(c->odd + at);
    __mmask16 zero, out;
    __builtin_memcpy(&zero, c->zero + at / 8, sizeof zero);
    __builtin_memcpy(&out, c->out + at / 8, sizeof out);
    __mmask16 other = out | (_mm512_testn_epi32_mask(odd, odd) & (__mmask16)~zero), close = (__mmask16)~other & _mm512_test_epi32_mask(off, off);
    __m512i group = _mm512_add_epi32(_mm512_set1_epi32((int)at), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    _mm512_storeu_si512(c->other + c->n_other, _mm512_maskz_compress_epi32(other, group));
    _mm512_storeu_si512(c->close + c->n_close, _mm512_maskz_compress_epi32(close, group));
    c->n_close += (unsigned)__builtin_popcount(close);
    c->n_other += (unsigned)__builtin_popcount(other);
    return (__mmask16)~(close | other);
}

/* Number i of the groups that c does not give back: how its values lie. */
AVX512_INLINE void look_closer(const uint16_t *values, const struct q4_eight *table, struct q4_chunk *c, size_t i)
{
    /* Sets of levels by u = level + 8: powers of two 1; odd parts 3, 5, 7 are 2, 4, 8. */
    const __m512i kinds = _mm512_zextsi256_si512(_mm256_setr_epi16(1, 8, 2, 4, 1, 2, 1, 1, 0, 1, 1, 2, 1, 4, 2, 8));
    size_t g = c->close[i];
    __m512i x = _mm512_loadu_si512(values + g * Q4_GROUP), u = levels(x, c->ratio[g]);
    __m512i d = from_c(x, u, table, c->mantissa[g], c->exponent[g]), kind = _mm512_permutexvar_epi16(u, kinds);
    c->power[i] = _mm512_test_epi16_mask(kind, _mm512_set1_epi16(1));
    c->part[0][i] = _mm512_test_epi16_mask(kind, _mm512_set1_epi16(2));
    c->part[1][i] = _mm512_test_epi16_mask(kind, _mm512_set1_epi16(4));
    c->part[2][i] = _mm512_test_epi16_mask(kind, _mm512_set1_epi16(8));
    c->below[i] = _mm512_cmpeq_epi16_mask(d, _mm512_set1_epi16(-1));
    c->above[i] = _mm512_cmpeq_epi16_mask(d, _mm512_set1_epi16(1));
    c->apart[i] = c->off[g];
    c->side[i] = c->mantissa[g];
    c->c[i] = c->scale[g];
}

AVX512_INLINE __m512i count_bits(__m512i v)
{
    v = _mm512_sub_epi32(v, _mm512_and_si512(_mm512_srli_epi32(v, 1), _mm512_set1_epi32(0x55555555)));
    v = _mm512_add_epi32(_mm512_and_si512(v, _mm512_set1_epi32(0x33333333)), _mm512_and_si512(_mm512_srli_epi32(v, 2), _mm512_set1_epi32(0x33333333)));
    v = _mm512_and_si512(_mm512_add_epi32(v, _mm512_srli_epi32(v, 4)), _mm512_set1_epi32(0x0f0f0f0f));
    return _mm512_srli_epi32(_mm512_mullo_epi32(v, _mm512_set1_epi32(0x01010101)), 24);
}

struct settled {
    __mmask16 groups;           /* covered */
    __m512i scale, same;        /* values that it gives back */
};

AVX512_INLINE struct settled settle(const struct q4_chunk *c, const struct q4_eight *table, size_t at)
{
    __m512i above = _mm512_loadu_si512(c->above + at), below = _mm512_loadu_si512(c->below + at), off = _mm512_loadu_si512(c->apart + at);
    __m512i index = _mm512_loadu_si512(c->side + at), part[3], rebuilt = _mm512_setzero_si512();
    __mmask16 up = _mm512_test_epi32_mask(above, above), down = _mm512_test_epi32_mask(below, below);
    index = _mm512_slli_epi32(_mm512_mask_add_epi32(index, up, index, _mm512_set1_epi32(Q4_PLACES)), 6);
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++) {
        part[k] = _mm512_loadu_si512(c->part[k] + at);
        __mmask16 is_off = _mm512_test_epi32_mask(part[k], off);
        index = _mm512_mask_add_epi32(index, _mm512_test_epi32_mask(part[k], part[k]), index, _mm512_set1_epi32(1 << k));
        index = _mm512_mask_add_epi32(index, is_off, index, _mm512_set1_epi32(8 << k));
        rebuilt = _mm512_mask_or_epi32(rebuilt, is_off, rebuilt, part[k]);
    }
    __m512i found = _mm512_i32gather_epi32(index, table->side, 1), lost_beside = _mm512_loadu_si512(c->power + at);
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++)
        lost_beside = _mm512_mask_or_epi32(lost_beside, _mm512_test_epi32_mask(found, _mm512_set1_epi32(2 << k)), lost_beside, part[k]);
    __m512i lost = count_bits(off), scale = _mm512_loadu_si512(c->c + at);
    lost_beside = count_bits(lost_beside);
    __mmask16 beside = _mm512_cmplt_epi32_mask(lost_beside, lost);
    scale = _mm512_mask_add_epi32(scale, beside & up, scale, _mm512_set1_epi32(1));
    scale = _mm512_mask_sub_epi32(scale, beside & down, scale, _mm512_set1_epi32(1));
    __mmask16 one_side = _mm512_cmpeq_epi32_mask(_mm512_or_si512(above, below), off) & (__mmask16)~(up & down);
    return (struct settled){_mm512_test_epi32_mask(found, _mm512_set1_epi32(1)) & _mm512_cmpeq_epi32_mask(rebuilt, off) & one_side, scale,
                            _mm512_sub_epi32(_mm512_set1_epi32(Q4_GROUP), _mm512_min_epi32(lost, lost_beside))};
}

/* What settled groups add to the tally.  No value is off by more than one part in 128 + mantissa of the peak. */
AVX512_INLINE void count_settled(struct q4_share *share, const uint16_t *values, const uint8_t *blocks, const struct q4_chunk *c, size_t at, const struct settled *s)
{
    __m512 most = _mm512_div_ps(_mm512_set1_ps(1.0001f), _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_set1_epi32(Q4_PLACES), _mm512_loadu_si512(c->side + at))));
    share->values += (unsigned)_mm512_mask_reduce_add_epi32(s->groups, s->same);
    for (unsigned left = _mm512_mask_cmp_ps_mask(s->groups, most, _mm512_set1_ps((float)share->worst), _CMP_GT_OQ); left; left &= left - 1) {
        size_t g = c->close[at + (size_t)__builtin_ctz(left)];
        struct q4_share one = {0, 0, share->worst};
        q4_share_avx512(&one, values + g * Q4_GROUP, blocks + g * Q4_BLOCK, 1, Q4_BF16, false);
        share->worst = one.worst;
    }
}

/* 16 groups of the list from `at` on, of which n are there: scales, or they go the general way. */
AVX512_INLINE void take_settled(const uint16_t *values, const struct q4_eight *table, uint8_t *blocks, struct q4_chunk *c, size_t at, size_t n, struct q4_share *share)
{
    struct settled s = settle(c, table, at);
    uint16_t scale[LANES];
    put_words(scale, s.scale);
    for (size_t i = 0; i < n; i++)
        __builtin_memcpy(blocks + c->close[at + i] * Q4_BLOCK, &scale[i], 2);
    __mmask16 there = n < LANES ? (__mmask16)((1u << n) - 1) : (__mmask16)0xffff, other = there & (__mmask16)~s.groups;
    _mm512_storeu_si512(c->other + c->n_other, _mm512_maskz_compress_epi32(other, _mm512_loadu_si512(c->close + at)));
    c->n_other += (unsigned)__builtin_popcount(other);
    s.groups &= there;
    if (share)
        count_settled(share, values, blocks, c, at, &s);
}

/* The last 16 of the list may be fewer: nothing is known of the others, and they find nothing. */
AVX512_INLINE void close_list(struct q4_chunk *c)
{
    uint32_t *const place[] = {c->side, c->above, c->apart, c->part[0], c->part[1], c->part[2]};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        _mm512_storeu_si512(place[i] + c->n_close, _mm512_setzero_si512());
}

/* Up to Q4_CHUNK groups, a multiple of 16.  Returns their number, or the first that has no block. */
AVX512 static size_t recover_chunk(const uint16_t *values, size_t n, uint8_t *blocks, struct q4_share *share)
{
    const struct q4_eight *table = q4_eight_table();
    struct q4_chunk c;
    uint64_t exact = 0;
    c.n_close = c.n_other = 0;
    for (size_t i = 0; i < n; i += LANES)
        find_c(values, &c, i);
#pragma GCC unroll 4
    for (size_t g = 0; g < n; g++)
        try_c(values, table, blocks, &c, g);
    for (size_t i = 0; i < n; i += LANES)
        exact += (unsigned)__builtin_popcount(sort_out(&c, i));
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

/* A multiple of 16 groups. */
AVX512 static size_t recover_f16(const uint16_t *values, size_t n, uint8_t *blocks)
{
    const uint8_t *table = q4_ratio_table();
    struct result r;
    for (size_t i = 0; i < n; i += LANES) {
        recover16(values + i * Q4_GROUP, Q4_F16, table, false, &r);
        if (r.truth)
            recover16_again(values + i * Q4_GROUP, Q4_F16, table, &r);
        write_blocks(&r, blocks + i * Q4_BLOCK);
        for (unsigned left = r.truth; left; left &= left - 1) {
            size_t g = i + (size_t)__builtin_ctz(left);
            if (!q4_recover_group(values + g * Q4_GROUP, Q4_F16, blocks + g * Q4_BLOCK))
                return g;
        }
    }
    return n;
}

const struct q4_twin q4_twin_avx512 = {LANES, recover_chunk, recover_f16};
