#include "quant/compare.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "quant/q4.h"
#include "quant/recover.h"
#include "quant/w8.h"

static float scale_at(const struct cmp_row *row, size_t i)
{
    const uint8_t *p = row->scales + i * st_dtype_bits(row->scale_dtype) / 8;
    uint32_t b = (uint32_t)p[0] | (uint32_t)p[1] << 8;

    if (row->scale_dtype == ST_F32)
        return f32_from_bits(b | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    return row->scale_dtype == ST_BF16 ? bf16_to_f32((uint16_t)b) : f16_to_f32((uint16_t)b);
}

/* The code of a value as a number. */
static float level_at(const struct cmp_row *row, size_t i)
{
    uint8_t b = row->codes[row->kind == CMP_INT4 ? i / 2 : i];

    if (row->kind == CMP_INT4)
        return (float)((i & 1 ? b >> 4 : b & 15) - 8);
    return row->kind == CMP_INT8 ? (float)(int8_t)b : w8_e4m3_to_f32(b);
}

/* The codes next to q, toward each side; q itself at the ends of the range. */
static void neighbours(enum cmp_kind kind, float q, float *below, float *above)
{
    static const float low[] = {-8, -448, -128}, high[] = {7, 448, 127};
    float step = 1;

    if (kind == CMP_FP8) {
        int e = 0;

        frexpf(q, &e);                          /* |q| = f * 2^e, f in [1/2, 1) */
        step = ldexpf(1, e - 4 < -9 || q == 0 ? -9 : e - 4);
    }
    *above = q + step > high[kind] ? q : q + step;
    *below = q - step < low[kind] ? q : q - step;
    if (kind == CMP_FP8 && q != 0 && step > ldexpf(1, -9)) {    /* at a power of two the step toward zero is half as wide */
        int e;

        if (frexpf(fabsf(q), &e) == 0.5f) {
            if (q > 0)
                *below = q - step / 2;
            else
                *above = q + step / 2;
        }
    }
}

/* No code is nearer, and the range did not cut more than half a step and what a 16-bit scale may be off. */
static bool is_nearest(enum cmp_kind kind, float q, double s, double x)
{
    float below, above;
    double err = fabs(x - q * s), slack = 1e-6 * fabs(x);

    neighbours(kind, q, &below, &above);
    if (fabs(x - below * s) < err - slack || fabs(x - above * s) < err - slack)
        return false;
    return err <= 0.5 * fabs(s) * (kind == CMP_FP8 ? fmax(fabs(above - q), fabs(q - below)) : 1) + fabs(x) / 128;
}

static uint16_t bits_of(float x)
{
    uint16_t b = bf16_from_f32(x);

    return b == 0x8000 ? 0 : b;
}

static bool is_exact(enum cmp_kind kind, float value, uint16_t source)
{
    if (kind == CMP_INT4)
        return bits_of(value) == (source == 0x8000 ? 0 : source);
    return value == bf16_to_f32(source);
}

/* How many of a group's values other codes and another scale would reproduce: the most that can be. */
static bool best_int4(const uint16_t *source, const struct cmp_row *row, uint64_t exact)
{
    uint8_t block[Q4_BLOCK];
    struct q4_tally t;
    enum q4_scale kind = row->scale_dtype == ST_BF16 ? Q4_BF16 : Q4_F16;

    if (row->group != Q4_GROUP || row->scale_dtype == ST_F32 || exact == Q4_GROUP)
        return true;
    if (q4_recover(source, 1, kind, block) != 1)
        return true;                            /* off the grid: nothing to hold it against */
    memset(&t, 0, sizeof t);
    q4_tally_add(&t, source, block, 1, kind);
    return exact >= t.written.values;
}

static bool best_8bit(const struct cmp_row *row, double peak, float s)
{
    float best = peak == 0 ? 1 : (float)peak / (row->kind == CMP_FP8 ? 448.0f : 127.0f);

    if (row->scale_dtype == ST_BF16)
        return bf16_from_f32(best) == bf16_from_f32(s);
    if (row->scale_dtype == ST_F16)
        return f16_from_f32(best) == f16_from_f32(s);
    return best == s;
}

static void add_group(struct cmp_tally *t, const uint16_t *source, size_t from, const struct cmp_row *row)
{
    float s = scale_at(row, from / row->group);
    uint64_t exact = 0, wrong = 0;
    double peak = 0, worst = 0;

    for (size_t i = from; i < from + row->group; i++) {
        float x = bf16_to_f32(source[i]), q = level_at(row, i), value = q * s;
        double err;
        bool same = is_exact(row->kind, value, source[i]);

        if (row->kind == CMP_INT4)
            value = bf16_to_f32(bf16_from_f32(value));
        err = fabs((double)value - (double)x);
        peak = fmax(peak, fabs((double)x));
        worst = !(err <= worst) ? err : worst;  /* a NaN stays */
        exact += same;
        if (!same && !is_nearest(row->kind, q, s, x)) {
            if (t->wrong + wrong == 0)
                t->first_wrong = t->values + (i - from);
            wrong++;
        }
    }
    t->values += row->group;
    t->groups++;
    t->exact += exact;
    t->exact_groups += exact == row->group;
    t->wrong += wrong;
    if (worst > 0 || worst != worst)
        t->worst = fmax(t->worst, worst == worst && peak > 0 ? worst / peak : INFINITY);
    if (!wrong)
        t->not_best += !(row->kind == CMP_INT4 ? best_int4(source + from, row, exact) : best_8bit(row, peak, s));
}

void cmp_row_add_each(struct cmp_tally *t, const uint16_t *source, size_t cols, const struct cmp_row *row)
{
    for (size_t from = 0; from < cols; from += row->group)
        add_group(t, source, from, row);
}

/* --- what is byte for byte what its source gives has no wrong value and the best scale ------------------------------- */

enum { GROUPS = 1024, VALUES = 1024 };   /* at a time */

static struct q4_share made_after(const struct cmp_tally *t)
{
    return (struct q4_share){.worst = t->worst};        /* only a larger one is worth finding */
}

static void add_made(struct cmp_tally *t, const struct q4_share *made, size_t n)
{
    t->values += n * Q4_GROUP;
    t->groups += n;
    t->exact += made->values;
    t->exact_groups += made->groups;
    t->worst = made->worst;
}

static void add_blocks(struct cmp_tally *t, const uint16_t *source, const uint8_t *blocks, size_t n, enum q4_scale kind)
{
    struct q4_tally made = {.written = made_after(t)};

    q4_tally_add(&made, source, blocks, n, kind);
    add_made(t, &made.written, n);
}

/* The blocks that n groups of the source give; one that gives none gets what differs from the stored one. */
static void recover_all(const uint16_t *source, size_t n, enum q4_scale kind, const uint8_t *stored, uint8_t *made)
{
    for (size_t i = 0; (i += q4_recover(source + i * Q4_GROUP, n - i, kind, made + i * Q4_BLOCK)) < n; i++)
        made[i * Q4_BLOCK] = (uint8_t)~stored[i * Q4_BLOCK];
}

static void add_int4(struct cmp_tally *t, const uint16_t *source, size_t cols, const struct cmp_row *row)
{
    enum q4_scale kind = row->scale_dtype == ST_BF16 ? Q4_BF16 : Q4_F16;
    uint8_t stored[GROUPS * Q4_BLOCK], made[GROUPS * Q4_BLOCK];

    for (size_t from = 0, groups = cols / Q4_GROUP, n; from < groups; from += n) {
        struct q4_share all = made_after(t);

        n = groups - from < GROUPS ? groups - from : GROUPS;
        q4_join(row->codes + from * 16, row->scales + from * 2, n, stored);
        if (q4_recover_shared(source + from * Q4_GROUP, n, kind, made, &all) == n && memcmp(stored, made, n * Q4_BLOCK) == 0) {
            add_made(t, &all, n);
            continue;
        }
        recover_all(source + from * Q4_GROUP, n, kind, stored, made);
        for (size_t i = 0, end; i < n; i = end + 1) {
            for (end = i; end < n && memcmp(stored + end * Q4_BLOCK, made + end * Q4_BLOCK, Q4_BLOCK) == 0; end++)
                ;
            add_blocks(t, source + (from + i) * Q4_GROUP, stored + i * Q4_BLOCK, end - i, kind);
            if (end < n)
                add_group(t, source, (from + end) * Q4_GROUP, row);
        }
    }
}

static void add_8bit(struct cmp_tally *t, const uint16_t *source, size_t cols, const struct cmp_row *row)
{
    enum w8_kind kind = row->kind == CMP_FP8 ? W8_FP8 : W8_INT8;
    struct w8_difference d = {0, 0};
    uint8_t *made = xmalloc(cols + 1);
    float scale, values[VALUES], peak = bf16_to_f32(w8_peak(source, cols));
    bool same = w8_quantize_row(kind, source, cols, made, &scale) < 0 && scale == scale_at(row, 0) && memcmp(made, row->codes, cols) == 0;

    free(made);
    if (!same) {
        cmp_row_add_each(t, source, cols, row);
        return;
    }
    for (size_t from = 0, n; from < cols; from += n) {
        n = cols - from < VALUES ? cols - from : VALUES;
        w8_dequantize_row(kind, row->codes + from, n, scale, values);
        w8_compare(values, source + from, n, &d);
    }
    t->values += cols;
    t->groups++;
    t->exact += d.same;
    t->exact_groups += d.same == cols;
    t->worst = d.largest > 0 ? fmax(t->worst, d.largest / peak) : t->worst;
}

void cmp_row_add(struct cmp_tally *t, const uint16_t *source, size_t cols, const struct cmp_row *row)
{
    if (row->kind == CMP_INT4 && row->group == Q4_GROUP && row->scale_dtype != ST_F32)
        add_int4(t, source, cols, row);
    else if (row->kind != CMP_INT4 && row->group == cols && row->scale_dtype == ST_F32)
        add_8bit(t, source, cols, row);
    else
        cmp_row_add_each(t, source, cols, row);
}

void cmp_tally_join(struct cmp_tally *a, const struct cmp_tally *b)
{
    if (a->wrong == 0 && b->wrong)
        a->first_wrong = a->values + b->first_wrong;
    a->values += b->values;
    a->exact += b->exact;
    a->groups += b->groups;
    a->exact_groups += b->exact_groups;
    a->wrong += b->wrong;
    a->not_best += b->not_best;
    a->worst = fmax(a->worst, b->worst);
}
