/* The kernels, written once over v16; each kernels_LEVEL.c includes this file and so compiles its twin.  KERNELS is the table's name. */
#include "engine/kernels.h"
#include "engine/vec.h"

enum {
    BLOCK = 32,             /* columns that share an int4 scale, and lanes of a sum */
    SEGMENT = 512,          /* columns decoded at a time: 16 scales, one vector */
    TILE_ROWS = 4, TILE_TOKENS = 16,
    TILE_TERMS = 16,        /* rows that several tokens take from the nearest cache */
    FP8_BLOCK = 64,         /* fp8 weights that are widened together */
    SPAN_BLOCK = 256,       /* positions between two corrections of the running softmax */
    VALUE_ROWS = 16,        /* values that are added together, in the nearest cache */
    FLOATS_AHEAD = 4096, ROWS_AHEAD = 32    /* how far ahead keys and values are asked for, the less of the two */
};

/* Two more: an fp8 weight / 2^120 without its row's scale, in the order of v_fp8_64; int4 level x scale without rounding. */
#define RAW_FP8 ((enum weight_kind)(W_FP8 + 1))
#define RAW_INT4 ((enum weight_kind)(W_FP8 + 2))

/* 32 weights of one kind as float32. */
INLINE void decode32(enum weight_kind kind, const uint8_t *p, float scale, v16 *a, v16 *b)
{
    v16 s = v_set(scale);
    if (kind == RAW_INT4) {
        *a = v_mul(v_levels(p), s), *b = v_mul(v_levels(p + 8), s);
        return;
    }
    switch (kind) {
    case W_F32: *a = v_load(p); *b = v_load(p + 64); return;
    case W_BF16: *a = v_bf16(p); *b = v_bf16(p + 32); return;
    case W_F16: *a = v_f16(p); *b = v_f16(p + 32); return;
    case W_INT4: *a = v_round_bf16(v_mul(v_levels(p), s)); *b = v_round_bf16(v_mul(v_levels(p + 8), s)); return;
    case W_INT8: *a = v_mul(v_i8(p), s); *b = v_mul(v_i8(p + 16), s); return;
    case W_FP8: *a = v_mul(v_mul(v_fp8(p), v_set(0x1p120f)), s); *b = v_mul(v_mul(v_fp8(p + 16), v_set(0x1p120f)), s); return;
    }
}

/* Bytes of 32 columns. */
INLINE size_t block_bytes(enum weight_kind kind)
{
    return kind == W_F32 ? 128 : kind == W_BF16 || kind == W_F16 ? 64 : kind == W_INT4 || kind == RAW_INT4 ? 16 : 32;
}

/* The scales of the 16 blocks that start at column k. */
INLINE void segment_scales(const struct matrix *w, size_t row, size_t k, float scale[16])
{
    size_t size = w->scale_type == ST_F32 ? 4 : 2;
    const uint8_t *p = w->scale + row * w->scales * size;
    if (w->scales * BLOCK == w->cols) {
        v_store(scale, v_scale16(w->scale_type, p + k / BLOCK * size));
        return;
    }
    size_t group = w->cols / w->scales;
    for (size_t i = 0; i < 16 && k + i * BLOCK < w->cols; i++) {
        float wide[16];
        v_store(wide, v_scale16(w->scale_type, p + (k + i * BLOCK) / group * size));
        scale[i] = wide[0];
    }
}

INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Asks for what will follow the `lines` lines at p. */
INLINE void fetch_ahead(const uint8_t *p, size_t lines, struct pace pace)
{
    for (size_t i = 0; i < lines; i++) {
        v_prefetch(p + 64 * i + pace.far, false);
        v_prefetch(p + 64 * i + pace.near, true);
    }
}

/* One or two rows; each sum is in two chains, and one row's wait fills with the other's work. */
INLINE void dot_rows(enum weight_kind kind, int rows, const struct matrix *w, size_t row, const float *x, struct pace pace, float *y)
{
    const size_t step = block_bytes(kind), stride = w->cols / BLOCK * step;
    const uint8_t *p = w->data + row * stride;
    v16 low[2], high[2], a, b;
    float scale[2][16] = {{0}};

#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
        low[r] = high[r] = v_set(0);
    for (size_t k0 = 0; k0 < w->cols; k0 += SEGMENT) {
        size_t blocks = least(SEGMENT, w->cols - k0) / BLOCK;
        for (int r = 0; w->scale && r < rows; r++)
            segment_scales(w, row + (size_t)r, k0, scale[r]);
        for (size_t i = 0; i < blocks; i++, p += step, x += BLOCK) {
            const v16 u = v_load(x), v = v_load(x + 16);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                if (step >= 64 || i * step % 64 == 0)
                    fetch_ahead(p + (size_t)r * stride, (step + 63) / 64, pace);
                decode32(kind, p + (size_t)r * stride, scale[r][i], &a, &b);
                low[r] = v_fma(a, u, low[r]);
                high[r] = v_fma(b, v, high[r]);
            }
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
        y[r] = v_sum(v_add(low[r], high[r]));
}

/* dot_rows of one row of RAW_FP8, which memory gives faster than two abreast; x as prepare() leaves it. */
INLINE float dot_fp8(const struct matrix *w, size_t row, const float *x, struct pace pace)
{
    const uint8_t *p = w->data + row * w->cols;
    v16 low = v_set(0), high = v_set(0), v[4];

    for (size_t k = 0; k < w->cols; k += FP8_BLOCK) {
        fetch_ahead(p + k, 1, pace);
        v_fp8_64(p + k, v);
        low = v_fma(v[2], v_load(x + k + 32), v_fma(v[0], v_load(x + k), low));
        high = v_fma(v[3], v_load(x + k + 48), v_fma(v[1], v_load(x + k + 16), high));
    }
    return v_sum(v_add(low, high));
}

/* Rows of 16 and 32 bits go one by one, in order of address, as memory gives them fastest; what must be decoded is slower than that, and two share loads. */
INLINE void one_token(enum weight_kind kind, const struct matrix *w, size_t row0, size_t row1, const float *x, struct pace pace, float *y)
{
    size_t r = row0;

    for (; block_bytes(kind) < 64 && r + 2 <= row1; r += 2)
        dot_rows(kind, 2, w, r, x, pace, y + r);
    for (; r < row1; r++)
        dot_rows(kind, 1, w, r, x, pace, y + r);
}

/* acc [rows][tokens] lanes += tile rows x activations over n columns. */
INLINE void multiply(int rows, int tokens, const float *values, const float *x, size_t ldx, size_t n, float *acc)
{
    v16 s[2][4][2];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++) {
            s[r][t][0] = v_load(acc + (r * TILE_TOKENS + t) * BLOCK);
            s[r][t][1] = v_load(acc + (r * TILE_TOKENS + t) * BLOCK + 16);
        }
    for (size_t k = 0; k < n; k += BLOCK) {
        v16 w[2][2];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) {
            w[r][0] = v_load(values + r * SEGMENT + k);
            w[r][1] = v_load(values + r * SEGMENT + k + 16);
        }
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++) {
            v16 a = v_load(x + (size_t)t * ldx + k), b = v_load(x + (size_t)t * ldx + k + 16);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                s[r][t][0] = v_fma(w[r][0], a, s[r][t][0]);
                s[r][t][1] = v_fma(w[r][1], b, s[r][t][1]);
            }
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++) {
            v_store(acc + (r * TILE_TOKENS + t) * BLOCK, s[r][t][0]);
            v_store(acc + (r * TILE_TOKENS + t) * BLOCK + 16, s[r][t][1]);
        }
}

INLINE void decode_tile(enum weight_kind kind, const struct matrix *w, size_t row, size_t k0, size_t n, float *out)
{
    const size_t step = block_bytes(kind);
    const uint8_t *p = w->data + (row * (w->cols / BLOCK) + k0 / BLOCK) * step;
    float scale[16] = {0};
    if (w->scale)
        segment_scales(w, row, k0, scale);
    for (size_t i = 0; kind == RAW_FP8 && i < n; i += FP8_BLOCK) {
        v16 v[4];
        v_fp8_64(p + i, v);
        for (size_t j = 0; j < 4; j++)
            v_store(out + i + 16 * j, v[j]);
    }
    for (size_t i = 0; kind != RAW_FP8 && i * BLOCK < n; i++, p += step) {
        v16 a, b;
        decode32(kind, p, scale[i], &a, &b);
        v_store(out + i * BLOCK, a);
        v_store(out + i * BLOCK + 16, b);
    }
}

/* A few rows are decoded once for up to 16 tokens; the sums stay in memory between segments. */
INLINE void tile(enum weight_kind kind, const struct matrix *w, size_t row, size_t rows, const float *x, size_t ldx, size_t tokens, float *y, size_t ldy)
{
    _Alignas(64) float acc[TILE_ROWS * TILE_TOKENS * BLOCK];
    _Alignas(64) float values[TILE_ROWS * SEGMENT];
    memset(acc, 0, sizeof acc);
    for (size_t k0 = 0; k0 < w->cols; k0 += SEGMENT) {
        size_t n = least(SEGMENT, (kind == RAW_FP8 ? (w->cols + FP8_BLOCK - 1) / FP8_BLOCK * FP8_BLOCK : w->cols) - k0);
        for (size_t r = 0; r < rows; r++)
            decode_tile(kind, w, row + r, k0, n, values + r * SEGMENT);
        for (size_t r = 0; r < rows; r += 2) {
            size_t t = 0;
            for (; r + 2 <= rows && t + 4 <= tokens; t += 4)
                multiply(2, 4, values + r * SEGMENT, x + t * ldx + k0, ldx, n, acc + (r * TILE_TOKENS + t) * BLOCK);
            for (; t < tokens; t++)
                for (size_t i = r; i < least(r + 2, rows); i++)
                    multiply(1, 1, values + i * SEGMENT, x + t * ldx + k0, ldx, n, acc + (i * TILE_TOKENS + t) * BLOCK);
        }
    }
    for (size_t t = 0; t < tokens; t++)
        for (size_t r = 0; r < rows; r++)
            y[t * ldy + row + r] = v_sum(v_add(v_load(acc + (r * TILE_TOKENS + t) * BLOCK), v_load(acc + (r * TILE_TOKENS + t) * BLOCK + 16)));
}

INLINE void many_tokens(enum weight_kind kind, const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, size_t tokens, float *y, size_t ldy)
{
    for (size_t t = 0; t < tokens; t += TILE_TOKENS)
        for (size_t r = row0; r < row1; r += TILE_ROWS)
            tile(kind, w, r, least(TILE_ROWS, row1 - r), x + t * ldx, ldx, least(TILE_TOKENS, tokens - t), y + t * ldy, ldy);
}

#define FOR_KIND(call) \
    switch (w->kind) { \
    case W_F32: call(W_F32); break; \
    case W_BF16: call(W_BF16); break; \
    case W_F16: call(W_F16); break; \
    case W_INT4: call(W_INT4); break; \
    case W_INT8: call(W_INT8); break; \
    case W_FP8: call(W_FP8); break; \
    }

INLINE void paced_linear(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, size_t tokens, struct pace pace, float *y, size_t ldy)
{
#define ONE(kind) one_token(kind, w, row0, row1, x, pace, y)
#define MANY(kind) many_tokens(kind, w, row0, row1, x, ldx, tokens, y, ldy)
    if (tokens == 1)
        FOR_KIND(ONE)
    else
        FOR_KIND(MANY)
#undef ONE
#undef MANY
}

/* Of exact mode, which is bound by arithmetic but for 16 bits. */
static const struct pace usual = {2048, 512, false};

static void linear(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, size_t tokens, float *y, size_t ldy)
{
    paced_linear(w, row0, row1, x, ldx, tokens, usual, y, ldy);
}

/* --- two int8 terms -------------------------------------------------------------------------------------------------- */

/* One prepared vector: the terms, then a scale and an integer sum a group. */
struct act { const int8_t *term; const float *scale; const int32_t *sum; };

INLINE struct act act_of(const uint8_t *p, size_t cols)
{
    const size_t padded = (cols + SEGMENT - 1) / SEGMENT * SEGMENT;

    return (struct act){(const int8_t *)p, (const float *)(const void *)(p + 2 * padded), (const int32_t *)(const void *)(p + 2 * padded + padded / 8)};
}

INLINE struct terms terms_at(struct act a, size_t k) { return (struct terms){a.term + 2 * k, a.sum + k / BLOCK}; }

/* x = scale * q; NaN or infinity anywhere makes every product NaN. */
INLINE void prepare_kind(enum weight_kind kind, const float *x, size_t cols, uint8_t *to)
{
    const struct act a = act_of(to, cols);
    float *scale = (float *)(uintptr_t)a.scale;
    int32_t *sum = (int32_t *)(uintptr_t)a.sum;
    v16 bad = v_set(0);

    if (cols % SEGMENT)
        memset(to, 0, act_bytes(kind, cols));
    for (size_t k = 0; k < cols; k += BLOCK) {
        const v16 u = v_load(x + k), v = v_load(x + k + 16);
        bad = v_fma(u, v_set(0), v_fma(v, v_set(0), bad));
        const size_t group = k / BLOCK % 16, lane = k / SEGMENT * 16 + 4 * (group % 4) + group / 4;
        const float max = v_most(v_max(v_abs(u), v_abs(v))), inverse = max > 1e-33f ? 32639 / max : 0;      /* the inverse must be finite */
        int8_t *q = (int8_t *)to + k / 128 * 256 + (kind == W_INT4 ? k % 128 / 2 : k % 128 / 64 * 128 + k % 64);
        scale[lane] = inverse > 0 ? max / 32639 : 0;
        sum[lane] = v_split(kind == W_INT4, v_rint(v_mul(u, v_set(inverse))), v_rint(v_mul(v, v_set(inverse))), q) * (kind == W_INT4 ? 8 : 128);
    }
    if (v_sum(bad) != 0)        /* NaN: no integer says that, a scale does */
        scale[0] = NAN;
}

/* In the order in which v_fp8_64 leaves the weights, zeros after the last. */
INLINE void prepare_fp8(const float *x, size_t cols, float *to)
{
    for (size_t k = 0; k < cols; k += FP8_BLOCK, to += FP8_BLOCK) {
        float scaled[FP8_BLOCK] = {0};
        for (size_t i = 0; i < least(FP8_BLOCK, cols - k); i += 16)
            v_store(scaled + i, v_mul(v_load(x + k + i), v_set(0x1p60f)));
        for (size_t i = 0; i < FP8_BLOCK; i++)
            to[i % 4 * 16 + i / 4] = scaled[i];
    }
}

static void prepare(enum weight_kind kind, const float *x, size_t cols, uint8_t *to)
{
    if (kind == W_INT4)
        prepare_kind(W_INT4, x, cols, to);
    else if (kind == W_INT8)
        prepare_kind(W_INT8, x, cols, to);
    else
        prepare_fp8(x, cols, (float *)(void *)to);
}

static float row_scale(const struct matrix *w, size_t row)
{
    float scale[16];

    v_store(scale, v_scale16(w->scale_type, w->scale + row * (w->scale_type == ST_F32 ? 4 : 2)));
    return scale[0];
}

/* What a level's scales look like to the compiler; MIXED is everything that is not 16 bits for every 32 columns. */
#define MIXED ST_F32

INLINE v16 group_scales(enum st_dtype type, const struct matrix *w, size_t row, size_t k)
{
    float scale[16] = {0};

    if (type != MIXED)
        return v_scales(type, w->scale + (row * w->scales + k / BLOCK) * 2);
    segment_scales(w, row, k, scale);
    return v_transpose(v_load(scale));
}

INLINE void fetch(const uint8_t *p, size_t lines, bool near)
{
    for (size_t i = 0; i < lines; i++)
        v_prefetch(p + 64 * i, near);
}

/* sum + the products of `chunks` times 128 columns of a row from k on. */
INLINE v16 some_columns(enum weight_kind kind, enum st_dtype type, int chunks, const struct matrix *w, size_t row, size_t k, struct act a, v16 sum)
{
    const uint8_t *p = w->data + (row * (w->cols / BLOCK) + k / BLOCK) * block_bytes(kind);
    const struct terms t = terms_at(a, k);
    const v16 by = v_load(a.scale + k / BLOCK);

    return kind == W_INT4 ? v_fma(v_int4_sums(chunks, p, &t), v_mul(group_scales(type, w, row, k), by), sum) : v_fma(v_int8_sums(chunks, p, &t), by, sum);
}

INLINE v16 last_columns(enum weight_kind kind, enum st_dtype type, const struct matrix *w, size_t row, struct act a, v16 sum)
{
    const size_t rest = w->cols % SEGMENT, k = w->cols - rest;

    return rest > 256 ? some_columns(kind, type, 4, w, row, k, a, sum) : rest > 128 ? some_columns(kind, type, 2, w, row, k, a, sum) :
        rest ? some_columns(kind, type, 1, w, row, k, a, sum) : sum;
}

INLINE v16 whole_segments(enum weight_kind kind, enum st_dtype type, struct pace pace, const struct matrix *w, size_t row, struct act a)
{
    const size_t bytes = SEGMENT / BLOCK * block_bytes(kind);
    const uint8_t *p = w->data + row * (w->cols / BLOCK) * block_bytes(kind);
    v16 sum = v_set(0);

    for (size_t k = 0; k + SEGMENT <= w->cols; k += SEGMENT, p += bytes) {
        fetch_ahead(p, bytes / 64, pace);
        sum = some_columns(kind, type, 4, w, row, k, a, sum);
    }
    fetch_ahead(p, (w->cols % SEGMENT * bytes / SEGMENT + 63) / 64, pace);
    return sum;
}

#ifdef VEC_AVX512
/* Four rows of 512 n + 128 columns of int4: their last 128 share one vector. */
INLINE void four_rows_shared(enum st_dtype type, struct pace pace, const struct matrix *w, size_t row, struct act a, float *y)
{
    const size_t stride = w->cols / 2, scales = w->scales * 2, k = w->cols - 128;
    const struct terms t = terms_at(a, k);
    v16 sum[4];

#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++)
        sum[r] = whole_segments(W_INT4, type, pace, w, row + r, a);
    v_sum4_last(sum, v_int4_last(w->data + row * stride + k / 2, stride, &t),
        v_mul(v_last_scales(type, w->scale + row * scales + k / 16, scales), v_firsts(v_load(a.scale + k / BLOCK))), y);
}
#endif

enum { TILED_ROWS = 16, TILED_COLUMNS = 4096 };

/* TILED_ROWS rows in tiles, whose activations stay in the nearest cache, where those of a whole row would leave it no room; memory is asked for in order of address all the same. */
INLINE void tiled_rows(enum weight_kind kind, enum st_dtype type, struct pace pace, const struct matrix *w, size_t row, struct act a, float *y)
{
    const size_t bytes = SEGMENT / BLOCK * block_bytes(kind), stride = w->cols / BLOCK * block_bytes(kind);
    const uint8_t *p = w->data + row * stride, *next = p + pace.far, *scale = w->scale + row * w->scales * 2 + pace.far / 8;
    v16 sum[TILED_ROWS];

    for (size_t r = 0; r < TILED_ROWS; r++)
        sum[r] = v_set(0);
    for (size_t k0 = 0; k0 < w->cols; k0 += TILED_COLUMNS)
        for (size_t r = 0; r < TILED_ROWS; r++, scale += TILED_COLUMNS / 16) {
            v16 s = sum[r];
            if (type != MIXED)
                fetch(scale, TILED_COLUMNS / 16 / 64, false);
            for (size_t k = k0; k < k0 + TILED_COLUMNS && k + SEGMENT <= w->cols; k += SEGMENT, next += bytes) {
                fetch(next, bytes / 64, false);
                fetch(p + r * stride + k / BLOCK * block_bytes(kind) + pace.near, bytes / 64, true);
                s = some_columns(kind, type, 4, w, row + r, k, a, s);
            }
            sum[r] = s;
        }
    for (size_t r = 0; r < TILED_ROWS; r++)
        sum[r] = last_columns(kind, type, w, row + r, a, sum[r]);
    for (size_t r = 0; r < TILED_ROWS; r += 4)
        v_sum4(sum + r, y + r);
}

/* Up to four rows, in order of address. */
INLINE void four_rows(enum weight_kind kind, enum st_dtype type, struct pace pace, const struct matrix *w, size_t row, size_t rows, struct act a, float *y)
{
    v16 sum[4];
    float all[4];

    if (type != MIXED)
        fetch(w->scale + row * w->scales * 2 + pace.far / 8, (8 * w->scales + 63) / 64, false);
#ifdef VEC_AVX512
    if (kind == W_INT4 && type != MIXED && w->cols % SEGMENT == 128 && rows == 4) {
        four_rows_shared(type, pace, w, row, a, y);
        return;
    }
#endif
    for (size_t r = 0; r < 4; r++)
        sum[r] = r < rows ? last_columns(kind, type, w, row + r, a, whole_segments(kind, type, pace, w, row + r, a)) : v_set(0);
    v_sum4(sum, all);
    memcpy(y, all, rows * sizeof *y);
}

INLINE void rows_of_token(enum weight_kind kind, enum st_dtype type, struct pace pace, const struct matrix *w, size_t row0, size_t row1, struct act a, float *y)
{
    size_t r = row0;

    for (; pace.tiled && r + TILED_ROWS <= row1; r += TILED_ROWS)
        tiled_rows(kind, type, pace, w, r, a, y + r);
    for (; r < row1; r += 4)
        four_rows(kind, type, pace, w, r, least(4, row1 - r), a, y + r);
    if (kind == W_INT8)
        for (r = row0; r < row1; r++)
            y[r] *= row_scale(w, r);
}

INLINE void fine_rows(enum st_dtype type, struct pace pace, const struct matrix *w, size_t row0, size_t row1, struct act a, float *y)
{
    struct matrix m = *w;

    if (w->cols == 640) {       /* Gemma 3 270M's: a row so short that knowing its length is worth a quarter */
        m.cols = 640, m.scales = 20;
        rows_of_token(W_INT4, type, pace, &m, row0, row1, a, y);
    } else {
        rows_of_token(W_INT4, type, pace, &m, row0, row1, a, y);
    }
}

static void terms_rows(const struct matrix *w, size_t row0, size_t row1, struct act a, struct pace pace, float *y)
{
    const bool fine = w->scales * BLOCK == w->cols;

    if (w->kind == W_INT8)
        rows_of_token(W_INT8, MIXED, pace, w, row0, row1, a, y);
    else if (fine && w->scale_type == ST_F16)
        fine_rows(ST_F16, pace, w, row0, row1, a, y);
    else if (fine && w->scale_type == ST_BF16)
        fine_rows(ST_BF16, pace, w, row0, row1, a, y);
    else
        rows_of_token(W_INT4, MIXED, pace, w, row0, row1, a, y);
}

#if defined(VEC_AVX512) || defined(VEC_AVX2)
/* --- several tokens: 16 rows side by side ---
 * A lane is a row: a group of 32 columns becomes vectors of four columns each, and what one token adds to 16 rows costs 16 dot instructions, which are what the time
 * goes into; all else runs beside them.  The groups are visited in the order in which v_sum4 adds the lanes of a single row, so that the sums are the same bits. */

enum { SIDE_ROWS = 16, SIDE_TOKENS = 4, SIDE_GROUPS = 768, LANES = 16 };

/* 16 rows: where they lie; the vectors of each group (int8: two sets of them), kept when more tokens are to come than are worked on at first; its scales. */
struct side {
    _Alignas(64) uint8_t weight[2 * SIDE_GROUPS][4][64];
    _Alignas(64) float scale[SIDE_GROUPS][16];
    const uint8_t *rows; size_t stride;
    bool keep;
};

/* Where the terms of a group are: of the first of 32 bits of columns, of the same of the other half of them, of the low terms. */
struct place { size_t at, odd, low; };

INLINE struct place place_of(enum weight_kind kind, size_t g)
{
    const size_t in_chunk = g % 4;

    return kind == W_INT4 ? (struct place){g / 4 * 256 + in_chunk * 16, 64, 128} : (struct place){g / 4 * 256 + in_chunk / 2 * 128 + in_chunk % 2 * 32, 16, 64};
}

/* Asks for as much of the next 16 rows as a set holds, when a set is taken: all at once they would hold up the loads behind them. */
INLINE void side_fetch(const struct side *s, size_t set) { fetch(s->rows + SIDE_ROWS * s->stride + 256 * set, 4, false); }

#ifdef VEC_AVX512
/* 16 bytes of each of four rows, four rows apart: loads that leave the other lanes alone are cheaper than moves between them. */
INLINE __m512i side_quarters(const uint8_t *p, size_t stride)
{
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p));

    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128((const void *)(p + 4 * stride)));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128((const void *)(p + 8 * stride)));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128((const void *)(p + 12 * stride)));
}

/* 16 bytes of each of 16 rows as four vectors of 32 bits a row. */
INLINE void side_load(const uint8_t *p, size_t stride, __m512i to[4])
{
    __m512i row[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        row[i] = side_quarters(p + i * stride, stride);
    const __m512i a = _mm512_unpacklo_epi32(row[0], row[1]), b = _mm512_unpacklo_epi32(row[2], row[3]);
    const __m512i c = _mm512_unpackhi_epi32(row[0], row[1]), d = _mm512_unpackhi_epi32(row[2], row[3]);
    to[0] = _mm512_unpacklo_epi64(a, b), to[1] = _mm512_unpackhi_epi64(a, b);
    to[2] = _mm512_unpacklo_epi64(c, d), to[3] = _mm512_unpackhi_epi64(c, d);
}

/* Four vectors, moved side by side (fresh) or as they were kept: the moves go beside the first tokens' products, which leave their units free. */
INLINE void side_vectors(bool fresh, struct side *s, size_t set, size_t offset, __m512i to[4])
{
    if (!fresh) {
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++)
            to[k] = _mm512_load_si512(s->weight[set][k]);
        return;
    }
    side_fetch(s, set);
    side_load(s->rows + offset, s->stride, to);
    if (!s->keep)
        return;
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++)
        _mm512_store_si512(s->weight[set][k], to[k]);
}

INLINE void side_keep(struct side *s, size_t set, size_t offset)
{
    __m512i v[4];

    side_vectors(true, s, set, offset, v);
}

/* 16-bit elements [16][n], rows `stride` bytes apart, transposed and widened; n is 16 or less, and 16 are read. */
INLINE void side_transpose(enum st_dtype type, const uint8_t *p, size_t stride, size_t n, float (*to)[16])
{
    __m256i a[16], b[16];

#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
        a[i] = _mm256_loadu_si256((const void *)(p + i * stride));
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        b[2 * i] = _mm256_unpacklo_epi16(a[2 * i], a[2 * i + 1]), b[2 * i + 1] = _mm256_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
#pragma GCC unroll 4
    for (size_t i = 0; i < 16; i += 4) {
        a[i] = _mm256_unpacklo_epi32(b[i], b[i + 2]), a[i + 1] = _mm256_unpackhi_epi32(b[i], b[i + 2]);
        a[i + 2] = _mm256_unpacklo_epi32(b[i + 1], b[i + 3]), a[i + 3] = _mm256_unpackhi_epi32(b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        b[2 * i] = _mm256_unpacklo_epi64(a[i], a[i + 4]), b[2 * i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 4]);
        b[8 + 2 * i] = _mm256_unpacklo_epi64(a[8 + i], a[12 + i]), b[8 + 2 * i + 1] = _mm256_unpackhi_epi64(a[8 + i], a[12 + i]);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        if (i < n)
            v_store(to[i], v_widen(type, _mm256_permute2x128_si256(b[i], b[8 + i], 0x20)));
        if (8 + i < n)
            v_store(to[8 + i], v_widen(type, _mm256_permute2x128_si256(b[i], b[8 + i], 0x31)));
    }
}

#else
/* 16 bytes of each of 16 rows as four vectors of 32 bits a row, kept. */
INLINE void side_keep(struct side *s, size_t set, size_t offset)
{
    side_fetch(s, set);
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *p = s->rows + offset + 8 * half * s->stride;
        __m256i row[4];
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            row[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)(p + i * s->stride))),
                _mm_loadu_si128((const void *)(p + (i + 4) * s->stride)), 1);
        const __m256i a = _mm256_unpacklo_epi32(row[0], row[1]), b = _mm256_unpacklo_epi32(row[2], row[3]);
        const __m256i c = _mm256_unpackhi_epi32(row[0], row[1]), d = _mm256_unpackhi_epi32(row[2], row[3]);
        _mm256_store_si256((void *)(s->weight[set][0] + 32 * half), _mm256_unpacklo_epi64(a, b));
        _mm256_store_si256((void *)(s->weight[set][1] + 32 * half), _mm256_unpackhi_epi64(a, b));
        _mm256_store_si256((void *)(s->weight[set][2] + 32 * half), _mm256_unpacklo_epi64(c, d));
        _mm256_store_si256((void *)(s->weight[set][3] + 32 * half), _mm256_unpackhi_epi64(c, d));
    }
}
#endif

INLINE void side_scales(enum st_dtype type, const struct matrix *w, size_t row, size_t segment, float (*to)[16])
{
    float scale[16] = {0};

#ifdef VEC_AVX512
    if (type != MIXED) {
        side_transpose(type, w->scale + (row * w->scales + 16 * segment) * 2, w->scales * 2, least(16, w->scales - 16 * segment), to);
        return;
    }
#else
    (void)type;
#endif
    for (size_t r = 0; r < 16; r++) {
        segment_scales(w, row + r, segment * SEGMENT, scale);
        for (size_t i = 0; i < 16; i++)
            to[i][r] = scale[i];
    }
}

/* Makes s ready for tokens; keep: the first of several blocks of them, which is fresh, keeps the vectors. */
INLINE void side_start(enum weight_kind kind, enum st_dtype type, const struct matrix *w, size_t row, bool keep, struct side *s)
{
    const size_t groups = w->cols / BLOCK;

    s->stride = groups * block_bytes(kind);
    s->rows = w->data + row * s->stride;
    s->keep = keep;
    for (size_t g = 0; kind == W_INT4 && g < groups; g += 16)
        side_scales(type, w, row, g / 16, s->scale + g);
}

#ifdef VEC_AVX512
INLINE __m512i four_of(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, 4);
    return _mm512_set1_epi32(four);
}

/* The weights of a group of 16 rows as eight vectors of four columns each: even columns and odd ones (int4) or the first 16 and the others, as prepare() leaves the terms. */
INLINE void side_columns(enum weight_kind kind, bool fresh, struct side *s, size_t g, __m512i w[8])
{
    __m512i v[8];

    side_vectors(fresh, s, kind == W_INT4 ? g : 2 * g, g * block_bytes(kind), v);
    if (kind == W_INT8)
        side_vectors(fresh, s, 2 * g + 1, g * block_bytes(kind) + 16, v + 4);
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) {
        w[k] = kind == W_INT4 ? _mm512_and_si512(v[k], _mm512_set1_epi8(15)) : _mm512_xor_si512(v[k], _mm512_set1_epi8((char)0x80));
        w[4 + k] = kind == W_INT4 ? _mm512_and_si512(_mm512_srli_epi16(v[k], 4), _mm512_set1_epi8(15)) : _mm512_xor_si512(v[4 + k], _mm512_set1_epi8((char)0x80));
    }
}

/* sum[t] of 16 rows += the products of eight vectors of columns with one of the terms of token t of n, which lie `stride` bytes apart, those of the other half `odd` bytes on. */
INLINE void side_term(int n, const __m512i w[8], const int8_t *q, size_t stride, size_t odd, __m512i *sum)
{
#pragma GCC unroll 8
    for (size_t k = 0; k < 8; k++)
#pragma GCC unroll 8
        for (int t = 0; t < n; t++)
            sum[t] = _mm512_dpbusd_epi32(sum[t], w[k], four_of(q + (size_t)t * stride + k / 4 * odd + 4 * (k % 4)));
}

/* Both terms of up to four tokens, in two chains: one for each token would wait for itself. */
INLINE void side_terms(int n, const __m512i w[8], const int8_t *q, size_t stride, size_t odd, size_t low, __m512i *sum)
{
    __m512i part[4];

#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        sum[t] = part[t] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (size_t k = 0; k < 8; k++)
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            const int8_t *x = q + (size_t)t * stride + k / 4 * odd + 4 * (k % 4);
            sum[t] = _mm512_dpbusd_epi32(sum[t], w[k], four_of(x));
            part[t] = _mm512_dpbusd_epi32(part[t], w[k], four_of(x + low));
        }
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        sum[t] = _mm512_add_epi32(_mm512_slli_epi32(sum[t], 8), part[t]);
}

/* value[t] of 16 rows: the exact sum of level x activation over a group, of n tokens prepared `stride` bytes apart; offset: the first one's. */
INLINE void side_values(enum weight_kind kind, int n, struct side *s, size_t g, const int8_t *term, size_t stride, const int32_t *offset, v16 *value)
{
    const struct place p = place_of(kind, g);
    __m512i w[8], q[8];

    side_columns(kind, false, s, g, w);
    if (n <= 4) {
        side_terms(n, w, term + p.at, stride, p.odd, p.low, q);
    } else {
#pragma GCC unroll 8
        for (int t = 0; t < n; t++)
            q[t] = _mm512_setzero_si512();
        side_term(n, w, term + p.at, stride, p.odd, q);
#pragma GCC unroll 8
        for (int t = 0; t < n; t++)
            q[t] = _mm512_slli_epi32(q[t], 8);
        side_term(n, w, term + p.at + p.low, stride, p.odd, q);
    }
#pragma GCC unroll 8
    for (int t = 0; t < n; t++)
        value[t] = v_of(_mm512_cvtepi32_ps(_mm512_sub_epi32(q[t], _mm512_set1_epi32(offset[(size_t)t * stride / 4]))));
}
#else
INLINE __m256i four_of(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, 4);
    return _mm256_set1_epi32(four);
}

/* The products of 32 columns of 8 rows with one term: eight pairs of levels up to 15 and terms down to -128 fit 16 bits. */
INLINE __m256i half_term(const __m256i w[8], const int8_t *q)
{
    __m256i sum = _mm256_maddubs_epi16(w[0], four_of(q));
#pragma GCC unroll 7
    for (size_t k = 1; k < 8; k++)
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[k], four_of(q + k / 4 * 64 + 4 * (k % 4))));
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

INLINE void side_values(enum weight_kind kind, int n, struct side *s, size_t g, const int8_t *term, size_t stride, const int32_t *offset, v16 *value)
{
    const struct place p = place_of(kind, g);
    const __m256i mask = _mm256_set1_epi8(15);

    for (size_t half = 0; half < 2; half++) {
        __m256i w[8];
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++) {
            const __m256i both = _mm256_load_si256((const void *)(s->weight[g][k] + 32 * half));
            w[k] = _mm256_and_si256(both, mask);
            w[4 + k] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
        }
#pragma GCC unroll 1
        for (int t = 0; t < n; t++) {       /* one after another: the registers are full */
            const int8_t *q = term + p.at + (size_t)t * stride;
            const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(half_term(w, q), 8), half_term(w, q + p.low));
            const __m256 f = _mm256_cvtepi32_ps(_mm256_sub_epi32(sum, _mm256_set1_epi32(offset[(size_t)t * stride / 4])));
            if (half == 0)
                value[t].a = f;
            else
                value[t].b = f;
        }
    }
}
#endif

/* sum[t] of 16 rows += the products of a group with token t of n, prepared `stride` bytes apart. */
INLINE void side_group(enum weight_kind kind, int n, struct side *s, size_t g, struct act a, size_t stride, v16 *sum)
{
    const size_t by = g / 16 * 16 + 4 * (g % 4) + g / 4 % 4;
    v16 value[8];

    side_values(kind, n, s, g, a.term, stride, a.sum + by, value);
#pragma GCC unroll 8
    for (int t = 0; t < n; t++) {
        const v16 scale = v_set(a.scale[(size_t)t * stride / 4 + by]);
        sum[t] = v_fma(value[t], kind == W_INT4 ? v_mul(v_load(s->scale[g]), scale) : scale, sum[t]);
    }
}

INLINE void side_lane(enum weight_kind kind, int n, struct side *s, size_t groups, size_t first, struct act a, size_t stride, float (*to)[16])
{
    v16 sum[8];

#pragma GCC unroll 8
    for (int t = 0; t < n; t++)
        sum[t] = v_set(0);
    for (size_t g = first; g < groups; g += 16)
        side_group(kind, n, s, g, a, stride, sum);
#pragma GCC unroll 8
    for (int t = 0; t < n; t++)
        v_store(to[t], sum[t]);
}

/* The lanes' sums added as v_sum4 does: lane [L][j]. */
INLINE v16 side_sum(float (*lane)[8][16], size_t t)
{
    v16 l[4];

#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        l[i] = v_add(v_add(v_load(lane[4 * i][t]), v_load(lane[4 * i + 2][t])), v_add(v_load(lane[4 * i + 1][t]), v_load(lane[4 * i + 3][t])));
    return v_add(v_add(l[0], l[2]), v_add(l[1], l[3]));
}

/* n tokens, of which `wanted` are written. */
INLINE void side_tokens(enum weight_kind kind, int n, struct side *s, const struct matrix *w, struct act a, size_t stride, size_t wanted, float *y, size_t ldy)
{
    _Alignas(64) float lane[LANES][8][16];

    for (size_t i = 0; i < LANES; i++)
        side_lane(kind, n, s, w->cols / BLOCK, i % 4 * 4 + i / 4, a, stride, lane[i]);
    for (size_t t = 0; t < wanted; t++)
        v_store(y + t * ldy, side_sum(lane, t));
}

INLINE void side_rows(enum weight_kind kind, enum st_dtype type, const struct matrix *w, size_t row, const uint8_t *act, size_t tokens, float *y, size_t ldy)
{
    const size_t bytes = act_bytes(kind, w->cols);
    struct side s;
    size_t t = 0;

    if (type != MIXED)
        fetch(w->scale + (row + SIDE_ROWS) * w->scales * 2, SIDE_ROWS * w->scales * 2 / 64 + 1, false);
    side_start(kind, type, w, row, true, &s);
    for (size_t g = 0; g < w->cols / BLOCK; g++) {      /* at once: both terms leave no registers for it */
        side_keep(&s, kind == W_INT4 ? g : 2 * g, g * block_bytes(kind));
        if (kind == W_INT8)
            side_keep(&s, 2 * g + 1, g * block_bytes(kind) + 16);
    }
    for (; t + 8 <= tokens; t += 8)
        side_tokens(kind, 8, &s, w, act_of(act + t * bytes, w->cols), bytes, 8, y + t * ldy, ldy);
    for (; t + 4 <= tokens; t += 4)
        side_tokens(kind, 4, &s, w, act_of(act + t * bytes, w->cols), bytes, 4, y + t * ldy, ldy);
    for (; t < tokens; t += 2)          /* an odd one twice */
        side_tokens(kind, 2, &s, w, act_of(act + t * bytes, w->cols), t + 1 < tokens ? bytes : 0, least(2, tokens - t), y + t * ldy, ldy);
    for (t = 0; kind == W_INT8 && t < tokens; t++)
        for (size_t r = 0; r < SIDE_ROWS; r++)
            y[t * ldy + r] *= row_scale(w, row + r);
}

#ifdef VEC_AVX512
/* --- bounds: the high terms alone --- */

/* sum[t] of 16 rows: the high terms' products of n tokens, the first of them token t0. */
INLINE void high_tokens(int n, bool fresh, struct side *s, const struct screened *x, size_t cols, size_t t0, v16 *sum)
{
    const size_t bytes = act_bytes(W_INT4, cols);

#pragma GCC unroll 8
    for (int t = 0; t < n; t++)
        sum[t] = v_set(0);
    for (size_t g = 0; g < x->groups; g++) {
        const int32_t *offset = x->offset + t0 * x->groups + g;
        const float *by = x->by + t0 * x->groups + g;
        const v16 scale = v_load(s->scale[g]);
        __m512i w[8], high[8];

        side_columns(W_INT4, fresh, s, g, w);
#pragma GCC unroll 8
        for (int t = 0; t < n; t++)
            high[t] = _mm512_set1_epi32(offset[(size_t)t * x->groups]);
        side_term(n, w, (const int8_t *)x->act + t0 * bytes + g / 4 * 256 + g % 4 * 16, bytes, 64, high);
#pragma GCC unroll 8
        for (int t = 0; t < n; t++)
            sum[t] = v_fma(v_of(_mm512_cvtepi32_ps(high[t])), v_mul(scale, v_set(by[(size_t)t * x->groups])), sum[t]);
    }
}

/* The bounds of 16 rows and those before them, lane by lane. */
INLINE void bound_tokens(int n, bool fresh, struct side *s, const struct screened *x, size_t cols, size_t t0, const float *norm, bool first, float (*upper)[16], float (*lower)[16])
{
    v16 sum[8];

    high_tokens(n, fresh, s, x, cols, t0, sum);
#pragma GCC unroll 8
    for (int t = 0; t < n; t++) {
        const size_t i = t0 + (size_t)t;
        const v16 off = v_mul(v_load(norm), v_set(x->slack[i])), up = v_add(sum[t], off), down = v_sub(sum[t], off);
        v_store(upper[i], first ? up : v_max(v_load(upper[i]), up));
        v_store(lower[i], first ? down : v_max(v_load(lower[i]), down));
    }
}

static void bounds(const struct matrix *w, size_t row0, size_t row1, const struct screened *x, const float *norm, float *upper, float *lower, size_t ld)
{
    _Alignas(64) float up[BOUND_TOKENS][16], down[BOUND_TOKENS][16];
    struct side s;

    for (size_t r = row0; r + SIDE_ROWS <= row1; r += SIDE_ROWS) {
        const bool first = r % BOUND_ROWS == 0;
        size_t t = 0;
        fetch(w->scale + (r + SIDE_ROWS) * w->scales * 2, SIDE_ROWS * w->scales * 2 / 64 + 1, false);
        side_start(W_INT4, w->scale_type == ST_F16 ? ST_F16 : ST_BF16, w, r, x->tokens != 8 && x->tokens != 4 && x->tokens != 1, &s);
        for (; t + 8 <= x->tokens; t += 8)
            if (t == 0)
                bound_tokens(8, true, &s, x, w->cols, 0, norm + r, first, up, down);
            else
                bound_tokens(8, false, &s, x, w->cols, t, norm + r, first, up, down);
        for (; t + 4 <= x->tokens; t += 4)
            bound_tokens(4, t == 0, &s, x, w->cols, t, norm + r, first, up, down);
        for (; t < x->tokens; t++)
            bound_tokens(1, t == 0, &s, x, w->cols, t, norm + r, first, up, down);
        for (t = 0; (r + SIDE_ROWS) % BOUND_ROWS == 0 && t < x->tokens; t++) {
            upper[t * ld + r / BOUND_ROWS] = v_most(v_load(up[t]));
            lower[t * ld + r / BOUND_ROWS] = v_most(v_load(down[t]));
        }
    }
}
#define BOUNDS bounds
#else
#define BOUNDS NULL
#endif

/* Whether it did the 16 rows: for two or three tokens one after another is faster. */
static bool sixteen_rows(const struct matrix *w, size_t row, size_t rows, const uint8_t *act, size_t tokens, float *y, size_t ldy)
{
    if (rows < SIDE_ROWS || tokens < SIDE_TOKENS || w->cols > SIDE_GROUPS * BLOCK)
        return false;
#ifdef VEC_AVX512
    if (w->kind == W_INT8)
        side_rows(W_INT8, MIXED, w, row, act, tokens, y, ldy);
    else if (w->scales * BLOCK == w->cols && w->scale_type == ST_F16)
        side_rows(W_INT4, ST_F16, w, row, act, tokens, y, ldy);
    else if (w->scales * BLOCK == w->cols && w->scale_type == ST_BF16)
        side_rows(W_INT4, ST_BF16, w, row, act, tokens, y, ldy);
    else
        side_rows(W_INT4, MIXED, w, row, act, tokens, y, ldy);
#else
    if (w->kind == W_INT8)      /* its levels and terms do not fit 16 bits in pairs */
        return false;
    side_rows(W_INT4, MIXED, w, row, act, tokens, y, ldy);
#endif
    return true;
}
#else
#define BOUNDS NULL
static bool sixteen_rows(const struct matrix *w, size_t row, size_t rows, const uint8_t *act, size_t tokens, float *y, size_t ldy)
{
    return (void)w, (void)row, (void)rows, (void)act, (void)tokens, (void)y, (void)ldy, false;
}
#endif

static void terms_tokens(const struct matrix *w, size_t row0, size_t row1, const uint8_t *act, size_t tokens, struct pace pace, float *y, size_t ldy)
{
    for (size_t r = row0; r < row1; r += TILE_TERMS) {
        const size_t end = least(r + TILE_TERMS, row1);
        if (sixteen_rows(w, r, end - r, act, tokens, y + r, ldy))
            continue;
        if (tokens == 1) {
            terms_rows(w, row0, row1, act_of(act, w->cols), pace, y);
            return;
        }
        for (size_t t = 0; t < tokens; t++)
            terms_rows(w, r, end, act_of(act + t * act_bytes(w->kind, w->cols), w->cols), pace, y + t * ldy);
    }
}

/* The weights / 2^120 meet activations * 2^60, so that neither they nor the sums leave float32's range. */
static void fp8_rows(const struct matrix *w, size_t row0, size_t row1, const uint8_t *act, size_t tokens, struct pace pace, float *y, size_t ldy)
{
    const float *x = (const float *)(const void *)act;
    struct matrix raw = *w;

    raw.scale = NULL;
    if (tokens == 1) {
        for (size_t r = row0; r < row1; r++)
            y[r] = dot_fp8(&raw, r, x, pace);
    } else
        many_tokens(RAW_FP8, &raw, row0, row1, x, act_bytes(W_FP8, w->cols) / sizeof *x, tokens, y, ldy);
    for (size_t r = row0; r < row1; r++)
        for (size_t t = 0; t < tokens; t++)
            y[t * ldy + r] *= 0x1p60f * row_scale(w, r);
}

static void norms(const struct matrix *w, size_t row0, size_t row1, float *to)
{
    float scale[16] = {0};

    for (size_t r = row0; r < row1; r++) {
        const uint8_t *p = w->data + r * matrix_row_bytes(w);
        v16 low = v_set(0), high = low, a, b;
        for (size_t k = 0; k < w->cols; k += BLOCK, p += block_bytes(W_INT4)) {
            if (k % SEGMENT == 0)
                segment_scales(w, r, k, scale);
            decode32(RAW_INT4, p, scale[k % SEGMENT / BLOCK], &a, &b);
            low = v_fma(a, a, low), high = v_fma(b, b, high);
        }
        *to++ = sqrtf(v_sum(v_add(low, high)));
    }
}

static void linear_judge(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, size_t tokens, float *y, size_t ldy)
{
    if (w->kind != W_INT4)
        linear(w, row0, row1, x, ldx, tokens, y, ldy);
    else if (tokens == 1)
        one_token(RAW_INT4, w, row0, row1, x, usual, y);
    else
        many_tokens(RAW_INT4, w, row0, row1, x, ldx, tokens, y, ldy);
}

static void linear_fast(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, const uint8_t *act, size_t tokens, const struct pace *pace, float *y, size_t ldy)
{
    if (w->kind == W_INT4 || w->kind == W_INT8)
        terms_tokens(w, row0, row1, act, tokens, *pace, y, ldy);
    else if (w->kind == W_FP8)
        fp8_rows(w, row0, row1, act, tokens, *pace, y, ldy);
    else
        paced_linear(w, row0, row1, x, ldx, tokens, *pace, y, ldy);
}

static void row(const struct matrix *w, size_t r, float *out)
{
    for (size_t k = 0; k < w->cols; k += SEGMENT) {
        size_t n = least(SEGMENT, w->cols - k);
#define DECODE(kind) decode_tile(kind, w, r, k, n, out + k)
        FOR_KIND(DECODE)
#undef DECODE
    }
}

INLINE float dot(const float *a, const float *b, size_t n)
{
    v16 low = v_set(0), high = v_set(0);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        low = v_fma(v_load(a + i), v_load(b + i), low);
        high = v_fma(v_load(a + i + 16), v_load(b + i + 16), high);
    }
    if (i < n)
        low = v_fma(v_load(a + i), v_load(b + i), low);
    return v_sum(v_add(low, high));
}

static void rms(const float *x, const float *w, size_t n, float eps, float *y)
{
    v16 r = v_set(1.0f / sqrtf(dot(x, x, n) / (float)n + eps));
    for (size_t i = 0; i < n; i += 16) {
        v16 v = v_mul(v_load(x + i), r);
        v_store(y + i, w ? v_mul(v, v_load(w + i)) : v);
    }
}

INLINE v16 v_exp(v16 x)
{
    x = v_min(v_set(88.0f), v_max(v_set(-87.0f), x));       /* in this order a NaN stays one */
    v16 n = v_rint(v_mul(x, v_set(1.44269504f)));
    v16 r = v_fma(n, v_set(-0.693359375f), x);              /* ln 2 in two parts, the first with few bits */
    r = v_fma(n, v_set(2.12194440e-4f), r);
    v16 p = v_set(1.0f / 5040);
    p = v_fma(p, r, v_set(1.0f / 720));
    p = v_fma(p, r, v_set(1.0f / 120));
    p = v_fma(p, r, v_set(1.0f / 24));
    p = v_fma(p, r, v_set(1.0f / 6));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r, v_set(1.0f));
    p = v_fma(p, r, v_set(1.0f));
    return v_mul(p, v_pow2(n));
}

/* 0.5 x (1 + tanh u) = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3): no cancellation near 0. */
static void gelu_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += 16) {
        v16 x = v_load(gate + i);
        v16 u = v_mul(x, v_fma(v_mul(x, x), v_set(0.044715f), v_set(1.0f)));
        v16 g = v_div(x, v_add(v_set(1.0f), v_exp(v_mul(u, v_set(-2 * 0.797884561f)))));
        v_store(y + i, v_mul(g, v_load(up + i)));
    }
}

/* tanh y = 1 - 2 / (exp(2y) + 1): saturates instead of overflowing. */
INLINE v16 v_softcap(v16 x, v16 cap)
{
    v16 y = v_div(x, cap), one = v_set(1.0f), two = v_set(2.0f);
    return v_mul(cap, v_sub(one, v_div(two, v_add(v_exp(v_mul(two, y)), one))));
}

static void softcap(float *x, size_t n, float cap)
{
    v16 c = v_set(cap);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v_store(x + i, v_softcap(v_load(x + i), c));
    if (i < n) {
        float last[16] = {0};
        memcpy(last, x + i, (n - i) * sizeof *x);
        v_store(last, v_softcap(v_load(last), c));
        memcpy(x + i, last, (n - i) * sizeof *x);
    }
}

static float most(const float *x, size_t n)
{
    v16 largest = v_set(-INFINITY), numbers = v_set(0);
    float result;

    for (size_t i = 0; i < n; i += 16) {
        const v16 v = v_load(x + i);
        largest = v_max(v, largest);
        numbers = v_fma(v, v_set(0), numbers);
    }
    result = v_most(largest);
    for (size_t i = 0; isnan(v_sum(numbers)) && i < n; i++)     /* a NaN, or only an infinity */
        result = isnan(x[i]) ? x[i] : result;
    return result;
}

static float exp_sum(float *x, size_t n, float max)
{
    v16 sum = v_set(0), m = v_set(max);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 e = v_exp(v_sub(v_load(x + i), m));
        v_store(x + i, e);
        sum = v_add(sum, e);
    }
    if (i < n) {
        float last[16] = {0};
        memcpy(last, x + i, (n - i) * sizeof *x);
        v_store(last, v_exp(v_sub(v_load(last), m)));
        memset(last + (n - i), 0, (16 - (n - i)) * sizeof *last);
        memcpy(x + i, last, (n - i) * sizeof *x);
        sum = v_add(sum, v_load(last));
    }
    return v_sum(sum);
}

static uint64_t read_bytes(const uint8_t *p, size_t n)
{
    v16 a = v_set(0), b = a, c = a, d = a;
    uint32_t bits[16];

    for (size_t i = 0; i < n; i += 256) {
        v_prefetch(p + i + 4096, false);
        v_prefetch(p + i + 4160, false);
        v_prefetch(p + i + 4224, false);
        v_prefetch(p + i + 4288, false);
        a = v_max(a, v_load(p + i)), b = v_max(b, v_load(p + i + 64));
        c = v_max(c, v_load(p + i + 128)), d = v_max(d, v_load(p + i + 192));
    }
    a = v_max(v_max(a, b), v_max(c, d));
    memcpy(bits, &a, sizeof bits);
    return bits[0];
}

/* --- attention ------------------------------------------------------------------------------------------------------- */

/* Heads that share keys and are worked on together: as many as there are registers for. */
#ifdef VEC_AVX512
#define HEADS 4
#else
#define HEADS 1
#endif

/* Rows of keys, then of their values, in the order in which they are read, which is that of their addresses; then those to come, as far as they are asked for ahead. */
struct kv_rows { const float *row[2 * SPAN_BLOCK + ROWS_AHEAD]; size_t n, ahead; };

/* The next rows of the spans from position `offset` of span `at` on, which move on. */
static void list_rows(const struct kv_span *span, size_t spans, size_t head_dim, size_t *at, size_t *offset, struct kv_rows *r)
{
    const float *value[SPAN_BLOCK];

    for (r->n = 0; r->n < SPAN_BLOCK && *at < spans; r->n++) {
        r->row[r->n] = span[*at].k + *offset * head_dim;
        value[r->n] = span[*at].v + *offset * head_dim;
        if (++*offset == span[*at].n)
            ++*at, *offset = 0;
    }
    memcpy(r->row + r->n, value, r->n * sizeof *value);
    for (size_t i = 0; i < ROWS_AHEAD; i++)         /* addresses to ask for; the first are also read as keys of nobody */
        r->row[2 * r->n + i] = *at < spans && i < span[*at].n - *offset ? span[*at].k + (*offset + i) * head_dim : value[r->n - 1];
}

/* score[h][0 … 3] = scale * q[h] . key[0 … 3]: one chain of 16 lanes each. */
INLINE void four_scores(int heads, const float *q, size_t head_dim, float scale, const float *const *key, const float *ahead, float (*score)[SPAN_BLOCK])
{
    v16 sum[HEADS][4];
    float four[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++)
            sum[h][i] = v_set(0);
        for (size_t d = 0; d < head_dim; d += 16, ahead += 16) {
            const v16 k = v_load(key[i] + d);
            v_prefetch(ahead, false);
#pragma GCC unroll 4
            for (int h = 0; h < heads; h++)
                sum[h][i] = v_fma(v_load(q + (size_t)h * head_dim + d), k, sum[h][i]);
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
        v_sum4(sum[h], four);
        for (int i = 0; i < 4; i++)
            score[h][i] = scale * four[i];
    }
}

/* out[h] = out[h] * keep[h] + sum over i of p[h][i] * v[i], for 16 * wide columns from d on. */
INLINE void add_columns(int heads, int wide, float *out, size_t head_dim, size_t d, const float *keep, float (*p)[SPAN_BLOCK], const float *const *v, size_t n, const float *ahead)
{
    v16 a[HEADS][4];

#pragma GCC unroll 4
    for (int h = 0; h < heads; h++)
#pragma GCC unroll 4
        for (int c = 0; c < wide; c++)
            a[h][c] = v_mul(v_load(out + (size_t)h * head_dim + d + 16 * (size_t)c), v_set(keep[h]));
    for (size_t i = 0; i < n; i++) {
        v16 s[4];
#pragma GCC unroll 4
        for (int c = 0; c < wide; c++, ahead += 16) {
            s[c] = v_load(v[i] + d + 16 * (size_t)c);
            v_prefetch(ahead, false);
        }
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) {
            const v16 w = v_set(p[h][i]);
#pragma GCC unroll 4
            for (int c = 0; c < wide; c++)
                a[h][c] = v_fma(w, s[c], a[h][c]);
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++)
#pragma GCC unroll 4
        for (int c = 0; c < wide; c++)
            v_store(out + (size_t)h * head_dim + d + 16 * (size_t)c, a[h][c]);
}

/* out[h] = out[h] * keep[h] + sum over all values i of p[h][i] * v[i], a few rows at a time and all their columns, so that they come in order of address.  keep[h] becomes 1. */
INLINE void add_values(int heads, float *out, size_t head_dim, float *keep, float (*p)[SPAN_BLOCK], const struct kv_rows *r)
{
    for (size_t i = 0; i < r->n; i += VALUE_ROWS) {
        const size_t n = least(VALUE_ROWS, r->n - i);
        const float *const *v = r->row + r->n + i, *ahead = v[r->ahead];
        float (*from)[SPAN_BLOCK] = (float (*)[SPAN_BLOCK])(p[0] + i);
        size_t d = 0;
        for (; d + 64 <= head_dim; d += 64)
            add_columns(heads, 4, out, head_dim, d, keep, from, v, n, ahead + d * n);
        for (; d < head_dim; d += 16)
            add_columns(heads, 1, out, head_dim, d, keep, from, v, n, ahead + d * n);
        for (int h = 0; h < heads; h++)
            keep[h] = 1;
    }
}

/* The blocks are counted from the first visible position, so that they do not depend on where the ring wraps. */
INLINE void attend_heads(int heads, const float *q, size_t head_dim, float scale, const struct kv_span *span, size_t spans, float *out)
{
    float score[HEADS][SPAN_BLOCK], max[HEADS], sum[HEADS], keep[HEADS];
    struct kv_rows r;
    size_t at = 0, offset = 0;

    r.ahead = least(FLOATS_AHEAD / head_dim, ROWS_AHEAD);
    memset(out, 0, (size_t)heads * head_dim * sizeof *out);
    for (int h = 0; h < heads; h++)
        max[h] = -INFINITY, sum[h] = 0;
    while (at < spans) {
        list_rows(span, spans, head_dim, &at, &offset, &r);
        for (size_t i = 0; i < r.n; i += 4)
            four_scores(heads, q, head_dim, scale, r.row + i, r.row[i + r.ahead], (float (*)[SPAN_BLOCK])(score[0] + i));
        for (int h = 0; h < heads; h++) {
            float top = max[h];
            for (size_t i = 0; i < r.n; i++)
                top = score[h][i] > top ? score[h][i] : top;
            keep[h] = expf(max[h] - top);
            sum[h] = sum[h] * keep[h] + exp_sum(score[h], r.n, top);
            max[h] = top;
        }
        add_values(heads, out, head_dim, keep, score, &r);
    }
    for (size_t i = 0; i < (size_t)heads * head_dim; i += 16)
        v_store(out + i, v_div(v_load(out + i), v_set(sum[i / head_dim])));
}

static void attend(const float *q, size_t heads, size_t head_dim, float scale, const struct kv_span *span, size_t spans, float *out)
{
    size_t h = 0;

    for (; h + HEADS <= heads; h += HEADS)
        attend_heads(HEADS, q + h * head_dim, head_dim, scale, span, spans, out + h * head_dim);
#if HEADS > 2
    for (; h + 2 <= heads; h += 2)
        attend_heads(2, q + h * head_dim, head_dim, scale, span, spans, out + h * head_dim);
#endif
    for (; h < heads; h++)
        attend_heads(1, q + h * head_dim, head_dim, scale, span, spans, out + h * head_dim);
}

/* x[i], x[i + half] = x[i] c - x[i + half] s, x[i + half] c + x[i] s. */
static void rotate(float *x, size_t half, const float *c, const float *s, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        const v16 a = v_load(x + i), b = v_load(x + half + i), cos = v_load(c + i), sin = v_load(s + i);
        v_store(x + i, v_sub(v_mul(a, cos), v_mul(b, sin)));
        v_store(x + half + i, v_add(v_mul(b, cos), v_mul(a, sin)));
    }
}

const struct kernels KERNELS = {KERNELS_SIMD, linear, linear_judge, prepare, linear_fast, BOUNDS, norms, row, rms, gelu_mul, softcap, most, exp_sum, read_bytes, attend, rotate};
