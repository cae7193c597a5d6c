#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include "quant/recover.h"
#include "base/cpu.h"
#include "quant/q4_twin.h"
#include "quant/recover_twin.h"
#include "tensor/dtype.h"

enum { LCM = 840 };             /* of 1..8 */

/* The steps that reproduce a group, times LCM: positive magnitudes, ends exact. */
struct steps {
    double lo, hi;
    bool lo_in, hi_in;
};

struct hypothesis { int m, sign; };

static const struct hypothesis tried[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {8, 1}, {8, -1}};
enum { N_TRIED = sizeof tried / sizeof *tried };

static uint16_t magnitude(uint16_t x)
{
    return x & 0x7fff;
}

static uint16_t peak_of(const uint16_t *x)
{
    uint16_t peak = 0;
    for (int i = 0; i < Q4_GROUP; i++)
        if (magnitude(x[i]) > peak)
            peak = magnitude(x[i]);
    return peak;
}

/* The steps with which level q gives x.  Midpoints between bf16 neighbours are the float bit patterns half-way between. */
static struct steps steps_of(uint16_t x, int q)
{
    uint32_t bits = (uint32_t)magnitude(x) << 16;
    bool even = !(x & 1);
    int scale = LCM / abs(q);
    return (struct steps){(double)f32_from_bits(bits - 0x8000) * scale, (double)f32_from_bits(bits + 0x8000) * scale, even, even};
}

/* all := all ∩ one; false when nothing is left. */
static bool intersect(struct steps *all, struct steps one)
{
    if (one.lo > all->lo || (one.lo == all->lo && !one.lo_in)) {
        all->lo = one.lo;
        all->lo_in = one.lo_in;
    }
    if (one.hi < all->hi || (one.hi == all->hi && !one.hi_in)) {
        all->hi = one.hi;
        all->hi_in = one.hi_in;
    }
    return all->lo < all->hi || (all->lo == all->hi && all->lo_in && all->hi_in);
}

/* Levels of x under one hypothesis and the steps that reproduce all of it; false when there are none.  x is finite, peak > 0. */
static bool on_grid(const uint16_t *x, uint16_t peak, struct hypothesis h, int8_t *level, struct steps *s)
{
    double top = bf16_to_f32(peak);
    *s = (struct steps){0, INFINITY, false, false};
    for (int i = 0; i < Q4_GROUP; i++) {
        /* The product is exact and the quotient correctly rounded; its distance to a tie is far above a double's last bit. */
        int q = (int)rint((double)bf16_to_f32(x[i]) * h.sign * h.m / top);
        level[i] = (int8_t)q;
        if (q < -8 || q > 7)
            return false;
        if (q == 0 ? magnitude(x[i]) != 0 : !intersect(s, steps_of(x[i], q)))
            return false;
    }
    return true;
}

/* How many values bf16(level * scale) gives back. */
static int reproduced(const uint16_t *x, const int8_t *level, float scale)
{
    int n = 0;
    for (int i = 0; i < Q4_GROUP; i++) {
        uint16_t v = bf16_from_f32((float)level[i] * scale);
        n += v == x[i] || magnitude(v | x[i]) == 0;
    }
    return n;
}

/* Bits of the largest non-negative number of the type with 2 * LCM * number <= twice_middle. */
static uint16_t at_or_below(double twice_middle, enum q4_scale kind)
{
    float near = (float)(twice_middle / (2 * LCM));
    uint16_t largest = kind == Q4_F16 ? 0x7bff : 0x7f7f;
    uint16_t bits = kind == Q4_F16 ? f16_from_f32(near) : bf16_from_f32(near);
    if (bits > largest)
        bits = largest;
    while (bits > 0 && q4_scale_value(bits, kind) * (2.0 * LCM) > twice_middle)
        bits--;
    return bits;
}

struct choice {
    int count;                  /* values reproduced; 0 = no candidate yet */
    uint16_t bits;              /* magnitude */
};

/* The best 16-bit scale for the steps s; .count 0 when the type's finite non-zero numbers all lie to one side of them. */
static struct choice choose(const uint16_t *x, const int8_t *level, int sign, const struct steps *s, enum q4_scale kind)
{
    struct choice best = {0, 0};
    double twice_middle = s->lo + s->hi, best_distance = INFINITY;
    uint16_t largest = kind == Q4_F16 ? 0x7bff : 0x7f7f;
    double smallest = (double)q4_scale_value(1, kind) * LCM, top = (double)q4_scale_value(largest, kind) * LCM;
    if (s->hi < smallest || s->lo > top)
        return best;
    uint16_t below = at_or_below(twice_middle, kind);
    for (uint16_t bits = below; bits <= below + 1; bits++) {       /* rising, so that a full tie leaves the smaller one */
        if (bits == 0 || bits > largest)
            continue;
        float scale = q4_scale_value(bits, kind);
        int count = reproduced(x, level, (float)sign * scale);
        double distance = fabs(scale * (2.0 * LCM) - twice_middle);
        if (best.bits == 0 || count > best.count || (count == best.count && distance < best_distance)) {
            best = (struct choice){count, bits};
            best_distance = distance;
        }
    }
    return best;
}

static void write_block(uint8_t *block, uint16_t scale, const int8_t *level)
{
    block[0] = (uint8_t)scale;
    block[1] = (uint8_t)(scale >> 8);
    for (int j = 0; j < Q4_GROUP / 2; j++)
        block[2 + j] = (uint8_t)((level[2 * j] + 8) | (level[2 * j + 1] + 8) << 4);
}

bool q4_recover_group(const uint16_t *x, enum q4_scale kind, uint8_t *block)
{
    int8_t level[Q4_GROUP] = {0};
    uint16_t peak = peak_of(x);
    if (peak >= 0x7f80)
        return false;
    if (peak == 0) {
        write_block(block, 0, level);
        return true;
    }
    bool found = false;
    for (int t = 0; t < N_TRIED; t++) {
        struct steps s;
        if (!on_grid(x, peak, tried[t], level, &s))
            continue;
        struct choice c = choose(x, level, tried[t].sign, &s, kind);
        bool exact = c.count == Q4_GROUP;
        if (c.bits != 0 && (exact || !found)) {
            write_block(block, c.bits | (tried[t].sign < 0 ? 0x8000 : 0), level);
            found = true;
        }
        if (exact)
            break;
    }
    return found;
}

size_t q4_recover_scalar(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks)
{
    for (size_t i = 0; i < n; i++)
        if (!q4_recover_group(values + i * Q4_GROUP, kind, blocks + i * Q4_BLOCK))
            return i;
    return n;
}

/* Counts what is given back as well, unless share is NULL. */
static size_t recover_by(const struct q4_twin *twin, const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks, struct q4_share *share)
{
    size_t most = n - n % twin->lanes, i = kind == Q4_F16 ? twin->f16(values, most, blocks) : 0, counted = kind == Q4_F16 ? 0 : most;
    for (size_t k; kind == Q4_BF16 && i < most; i += k) {
        k = most - i < Q4_CHUNK ? most - i : Q4_CHUNK;
        size_t done = twin->bf16(values + i * Q4_GROUP, k, blocks + i * Q4_BLOCK, share);
        if (done < k)
            return i + done;
    }
    if (i == most)
        i += q4_recover_scalar(values + i * Q4_GROUP, n - i, kind, blocks + i * Q4_BLOCK);
    if (share && i == n)
        q4_share_add(share, values + counted * Q4_GROUP, blocks + counted * Q4_BLOCK, n - counted, kind, false);
    return i;
}

static size_t recover(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks, struct q4_share *share)
{
    switch (simd_level()) {
    case SIMD_AVX512: return recover_by(&q4_twin_avx512, values, n, kind, blocks, share);
    case SIMD_AVX2: return recover_by(&q4_twin_avx2, values, n, kind, blocks, share);
    default: return q4_recover_scalar(values, n, kind, blocks);
    }
}

size_t q4_recover(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks)
{
    return recover(values, n, kind, blocks, NULL);
}

static uint8_t ratio_table[Q4_RATIO_TABLE];

static void make_ratio_table(void)
{
    const double tolerance = 0x1.02p-7, rounding = 0x1p-20;     /* (1 + 2^-8) / (1 - 2^-8) - 1; two float32 operations */
    for (int m = 1; m <= 8; m++) {
        ratio_table[0] |= (uint8_t)(1 << (m - 1));
        for (int q = 1; q <= m; q++) {
            double at = (double)Q4_RATIO_STEPS * q / m;
            int last = (int)ceil(at * (1 + tolerance + rounding));
            for (int i = (int)ceil(at * (1 - tolerance - rounding)); i <= last && i < Q4_RATIO_TABLE; i++)
                ratio_table[i] |= (uint8_t)(1 << (m - 1));
        }
    }
}

const uint8_t *q4_ratio_table(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_ratio_table);
    return ratio_table;
}

static struct q4_eight eight;

/* Is there a step, on more than one point, for a peak at level 8 and the odd parts that are there, some of them a place off c's value? */
static bool fits(const uint16_t *value, unsigned there, unsigned off, int place)
{
    struct steps s = steps_of(value[0], 8);
    bool some = true;
    for (unsigned k = 0; k < 3; k++)
        if (there >> k & 1)
            some &= intersect(&s, steps_of((uint16_t)(value[8 + 2 * k + 3] + (off >> k & 1 ? place : 0)), (int)(2 * k + 3)));
    return some && s.lo < s.hi;
}

static void make_side(uint8_t side[64], const uint16_t *value, uint16_t c, int place)
{
    float neighbour = bf16_to_f32((uint16_t)(c + place));
    for (unsigned off = 1; off < 8; off++)
        for (unsigned there = off; there < 8; there++) {
            if ((there & off) != off || !fits(value, there, off, place))
                continue;
            side[there | off << 3] = 1;
            for (unsigned k = 0; k < 3; k++) {
                int source = value[8 + 2 * k + 3] + (off >> k & 1 ? place : 0);
                side[there | off << 3] |= (uint8_t)((bf16_from_f32((float)(2 * k + 3) * neighbour) != source) << (k + 1));
            }
        }
}

static void make_eight(void)
{
    for (unsigned i = 0; i < Q4_PLACES; i++) {
        uint16_t c = (uint16_t)(0x3f80 | i), *value = eight.value[i];
        for (int u = 0; u < 16; u++)
            value[u] = u == 8 ? 0 : bf16_from_f32((float)(u - 8) * bf16_to_f32(c));
        value[16] = (uint16_t)(magnitude(value[0]) + 2);        /* level 8: above the peak */
        for (int u = 17; u < 32; u++)
            value[u] = 0x7fff;
        make_side(eight.side + i * 64, value, c, -1);
        make_side(eight.side + (Q4_PLACES + i) * 64, value, c, 1);
    }
}

const struct q4_eight *q4_eight_table(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_eight);
    return &eight;
}

/* --- why a group has no block --------------------------------------------------------------------------------------- */

/* The most values that one step reproduces when x[ref] is at level m * sign and the others at the nearest level; *missed = the first value it misses.
 * A common point of the most intervals is the low end of one of them. */
static int best_cover(const uint16_t *x, int ref, struct hypothesis h, int *missed)
{
    struct steps s[Q4_GROUP];
    bool possible[Q4_GROUP];
    double unit = (double)fabsf(bf16_to_f32(x[ref]));
    for (int i = 0; i < Q4_GROUP; i++) {
        double q = rint((double)bf16_to_f32(x[i]) * h.sign * h.m / unit);
        possible[i] = q >= -8 && q <= 7 && (q != 0 || magnitude(x[i]) == 0);
        s[i] = possible[i] && q != 0 ? steps_of(x[i], (int)q) : (struct steps){0, INFINITY, true, true};
    }
    int best = 0;
    for (int j = 0; j < Q4_GROUP; j++) {
        int n = 0, first = -1;
        for (int i = 0; i < Q4_GROUP; i++) {
            if (possible[i] && s[i].lo <= s[j].lo && s[j].lo <= s[i].hi)
                n++;
            else if (first < 0)
                first = i;
        }
        if (possible[j] && n > best) {
            best = n;
            *missed = first;
        }
    }
    return best;
}

static int misfit(const uint16_t *x)
{
    int at = 0, best = 0;
    for (int ref = 0; ref < Q4_GROUP; ref++) {
        for (int t = 0; t < N_TRIED && magnitude(x[ref]) != 0; t++) {
            int missed = -1, n = best_cover(x, ref, tried[t], &missed);
            if (n > best && missed >= 0) {
                best = n;
                at = missed;
            }
        }
    }
    return at;
}

void q4_explain(const uint16_t *x, struct q4_fault *fault)
{
    uint16_t peak = peak_of(x);
    *fault = (struct q4_fault){Q4_NOT_FINITE, 0, 0};
    if (peak >= 0x7f80) {
        while (magnitude(x[fault->at]) < 0x7f80)
            fault->at++;
        return;
    }
    for (int t = 0; t < N_TRIED; t++) {
        int8_t level[Q4_GROUP];
        struct steps s;
        if (on_grid(x, peak, tried[t], level, &s)) {
            fault->kind = Q4_STEP_RANGE;
            fault->step = (s.lo + s.hi) / (2 * LCM) * tried[t].sign;
            while (magnitude(x[fault->at]) != peak)
                fault->at++;
            return;
        }
    }
    fault->kind = Q4_OFF_GRID;
    fault->at = misfit(x);
}

/* --- what the blocks give back -------------------------------------------------------------------------------------- */

struct q4_difference q4_compare_scalar(const uint16_t *a, const uint16_t *b)
{
    struct q4_difference d = {0, 0, peak_of(a)};
    for (int i = 0; i < Q4_GROUP; i++) {
        float distance = fabsf(bf16_to_f32(a[i]) - bf16_to_f32(b[i]));
        d.same += a[i] == b[i] || magnitude(a[i] | b[i]) == 0;
        d.largest = distance > d.largest ? distance : d.largest;
    }
    return d;
}

static struct q4_difference compare(const uint16_t *x, const uint16_t *value)
{
    return simd_level() >= SIMD_AVX2 ? q4_compare_avx2(x, value) : q4_compare_scalar(x, value);
}

static void add_worst(struct q4_share *share, const struct q4_difference *d)
{
    double error = d->largest > 0 ? (double)d->largest / bf16_to_f32(d->peak) : 0;
    share->worst = error > share->worst ? error : share->worst;
}

void q4_share_worst(struct q4_share *share, const uint16_t *x, const uint16_t *value)
{
    struct q4_difference d = compare(x, value);
    add_worst(share, &d);
}

static void share_add(struct q4_share *share, const uint16_t *x, const uint16_t *value)
{
    struct q4_difference d = compare(x, value);
    share->values += d.same;
    share->groups += d.same == Q4_GROUP;
    add_worst(share, &d);
}

/* The same blocks with scales rounded to bf16. */
static void round_scales(const uint8_t *blocks, size_t n, uint8_t *rounded)
{
    memcpy(rounded, blocks, n * Q4_BLOCK);
    for (uint8_t *b = rounded; b < rounded + n * Q4_BLOCK; b += Q4_BLOCK) {
        uint16_t scale = bf16_from_f32(f16_to_f32((uint16_t)(b[0] | b[1] << 8)));
        b[0] = (uint8_t)scale;
        b[1] = (uint8_t)(scale >> 8);
    }
}

enum { TALLY = 64 };            /* groups at a time */

static void share_some(struct q4_share *share, const uint16_t *x, const uint8_t *blocks, size_t n, enum q4_scale kind, bool rounded)
{
    uint16_t value[TALLY * Q4_GROUP];
    uint8_t scaled[TALLY * Q4_BLOCK];
    if (rounded)
        round_scales(blocks, n, scaled);
    q4_to_bf16(rounded ? scaled : blocks, n, rounded ? Q4_BF16 : kind, value);
    for (size_t i = 0; i < n; i++)
        share_add(share, x + i * Q4_GROUP, value + i * Q4_GROUP);
}

void q4_share_add(struct q4_share *share, const uint16_t *x, const uint8_t *blocks, size_t n, enum q4_scale kind, bool rounded)
{
    if (simd_level() == SIMD_AVX512)
        q4_share_avx512(share, x, blocks, n, kind, rounded);
    else
        for (size_t i = 0; i < n; i += TALLY)
            share_some(share, x + i * Q4_GROUP, blocks + i * Q4_BLOCK, n - i < TALLY ? n - i : TALLY, kind, rounded);
}

/* All of a tally but `written`. */
static void tally_rest(struct q4_tally *t, const uint16_t *values, const uint8_t *blocks, size_t n, enum q4_scale kind)
{
    uint64_t zero = 0, negative = 0;    /* not in *t, which blocks might be part of for all that the compiler knows */
    for (size_t i = 0; i < n; i++) {
        unsigned high = blocks[i * Q4_BLOCK + 1], none = ((high & 0x7f) | blocks[i * Q4_BLOCK]) == 0;
        zero += none;
        negative += high >> 7 & ~none;
    }
    t->groups += n;
    t->zero += zero;
    t->negative += negative;
    if (kind == Q4_F16)
        q4_share_add(&t->as_bf16, values, blocks, n, kind, true);
    else
        t->as_bf16 = t->written;
}

void q4_tally_add(struct q4_tally *t, const uint16_t *values, const uint8_t *blocks, size_t n, enum q4_scale kind)
{
    q4_share_add(&t->written, values, blocks, n, kind, false);
    tally_rest(t, values, blocks, n, kind);
}

enum { COUNTED = Q4_CHUNK };    /* groups at a time: their blocks are in the first cache when they are counted */

size_t q4_recover_shared(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks, struct q4_share *share)
{
    size_t done = recover(values, n, kind, blocks, share);
    if (simd_level() == SIMD_SCALAR)
        q4_share_add(share, values, blocks, done, kind, false);
    return done;
}

size_t q4_recover_counted(const uint16_t *values, size_t n, enum q4_scale kind, uint8_t *blocks, struct q4_tally *t)
{
    size_t i = 0;
    for (size_t k; i < n; i += k) {
        k = n - i < COUNTED ? n - i : COUNTED;
        size_t done = q4_recover_shared(values + i * Q4_GROUP, k, kind, blocks + i * Q4_BLOCK, &t->written);
        tally_rest(t, values + i * Q4_GROUP, blocks + i * Q4_BLOCK, done, kind);
        if (done < k)
            return i + done;
    }
    return i;
}
