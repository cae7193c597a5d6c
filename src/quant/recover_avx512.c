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
#include "quant/recover_twin.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")))
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

AVX512_INLINE size_t recover_all(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks)
{
    uint8_t table[Q4_RATIO_TABLE];
    struct result r;
    size_t i = 0;
    q4_ratio_table(table);
    for (; i + LANES <= n; i += LANES) {
        recover16(values + i * Q4_GROUP, kind, table, false, &r);
        if (r.truth)
            recover16_again(values + i * Q4_GROUP, kind, table, &r);
        write_blocks(&r, blocks + i * Q4_BLOCK);
        for (unsigned left = r.truth; left; left &= left - 1) {
            size_t g = i + (size_t)__builtin_ctz(left);
            if (!q4_recover_group(values + g * Q4_GROUP, kind, blocks + g * Q4_BLOCK))
                return g;
        }
    }
    return i + q4_recover_scalar(values + i * Q4_GROUP, n - i, kind, blocks + i * Q4_BLOCK);
}

AVX512 size_t q4_recover_avx512(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks)
{
    return kind == Q4_F16 ? recover_all(values, n, Q4_F16, blocks) : recover_all(values, n, Q4_BF16, blocks);
}
