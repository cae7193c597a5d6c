/* The kernels, written once over v16; each kernels_LEVEL.c includes this file and so compiles its twin.  KERNELS is the table's name. */
#include "engine/kernels.h"
#include "engine/vec.h"

enum {
    BLOCK = 32,             /* columns that share an int4 scale, and lanes of a sum */
    SEGMENT = 512,          /* columns decoded at a time: 16 scales, one vector */
    TILE_ROWS = 4, TILE_TOKENS = 16,
    SPAN_BLOCK = 256        /* positions between two corrections of the running softmax */
};

/* Two more for decode32: an fp8 weight / 256 without its row's scale; int4 level x scale without rounding. */
#define RAW_FP8 ((enum weight_kind)(W_FP8 + 1))
#define RAW_INT4 ((enum weight_kind)(W_FP8 + 2))

/* 32 weights of one kind as float32. */
INLINE void decode32(enum weight_kind kind, const uint8_t *p, float scale, v16 *a, v16 *b)
{
    v16 s = v_set(scale);
    if (kind == RAW_FP8) {
        *a = v_fp8(p), *b = v_fp8(p + 16);
        return;
    }
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
    case W_FP8: *a = v_mul(v_mul(v_fp8(p), v_set(256)), s); *b = v_mul(v_mul(v_fp8(p + 16), v_set(256)), s); return;
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

INLINE float dot_row(enum weight_kind kind, const struct matrix *w, size_t row, const float *x)
{
    const size_t step = block_bytes(kind);
    const uint8_t *p = w->data + row * (w->cols / BLOCK) * step;
    v16 low = v_set(0), high = v_set(0), a, b;
    float scale[16] = {0};
    for (size_t k0 = 0; k0 < w->cols; k0 += SEGMENT) {
        size_t blocks = least(SEGMENT, w->cols - k0) / BLOCK;
        if (w->scale)
            segment_scales(w, row, k0, scale);
        for (size_t i = 0; i < blocks; i++, p += step, x += BLOCK) {
            v_prefetch(p + 4096);
            decode32(kind, p, scale[i], &a, &b);
            low = v_fma(a, v_load(x), low);
            high = v_fma(b, v_load(x + 16), high);
        }
    }
    return v_sum(v_add(low, high));
}

INLINE void one_token(enum weight_kind kind, const struct matrix *w, size_t row0, size_t row1, const float *x, float *y)
{
    for (size_t r = row0; r < row1; r++)
        y[r] = dot_row(kind, w, r, x);
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
    for (size_t i = 0; i * BLOCK < n; i++, p += step) {
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
        size_t n = least(SEGMENT, w->cols - k0);
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

static void linear(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, size_t tokens, float *y, size_t ldy)
{
#define ONE(kind) one_token(kind, w, row0, row1, x, y)
#define MANY(kind) many_tokens(kind, w, row0, row1, x, ldx, tokens, y, ldy)
    if (tokens == 1)
        FOR_KIND(ONE)
    else
        FOR_KIND(MANY)
#undef ONE
#undef MANY
}

/* --- two int8 terms -------------------------------------------------------------------------------------------------- */

/* One prepared vector: the terms, then a scale and an integer sum a group. */
struct act { int8_t *term; float *scale; int32_t *sum; size_t padded; };

INLINE struct act act_of(const uint8_t *p, size_t cols)
{
    const size_t padded = (cols + SEGMENT - 1) / SEGMENT * SEGMENT;
    uint8_t *q = (uint8_t *)(uintptr_t)p;

    return (struct act){(int8_t *)q, (float *)(void *)(q + 2 * padded), (int32_t *)(void *)(q + 2 * padded + padded / 8), padded};
}

INLINE struct terms terms_at(const struct act *a, enum weight_kind kind, size_t k)
{
    const size_t quarter = a->padded / 2;

    if (kind == W_INT4)
        return (struct terms){a->term + k / 2, a->term + quarter + k / 2, a->term + 2 * quarter + k / 2, a->term + 3 * quarter + k / 2, a->sum + k / BLOCK};
    return (struct terms){a->term + k, NULL, a->term + a->padded + k, NULL, a->sum + k / BLOCK};
}

/* x = scale * q, q = 256 high + low within -32639..32639. */
static void prepare(enum weight_kind kind, const float *x, size_t cols, uint8_t *to)
{
    const struct act a = act_of(to, cols);

    memset(to, 0, 2 * a.padded + a.padded / 4);
    for (size_t k = 0; k < cols; k += BLOCK) {
        const v16 u = v_load(x + k), v = v_load(x + k + 16);
        const size_t group = k / BLOCK % 16, lane = k / SEGMENT * 16 + 4 * (group % 4) + group / 4;
        float all[16], q[BLOCK], max = 0;
        int32_t sum = 0;
        v_store(all, v_max(v_abs(u), v_abs(v)));
        for (int i = 0; i < 16; i++)
            max = all[i] > max ? all[i] : max;
        if (!(max > 1e-33f))        /* its inverse must be finite */
            continue;
        v_store(q, v_rint(v_mul(u, v_set(32639 / max))));
        v_store(q + 16, v_rint(v_mul(v, v_set(32639 / max))));
        const struct terms t = terms_at(&a, kind, k);
        int8_t *high[2] = {(int8_t *)(uintptr_t)t.high, (int8_t *)(uintptr_t)t.high_odd}, *low[2] = {(int8_t *)(uintptr_t)t.low, (int8_t *)(uintptr_t)t.low_odd};
        for (int i = 0; i < BLOCK; i++) {
            const int n = (int)q[i], h = (n + 128) >> 8, half = kind == W_INT4 ? i % 2 : 0, at = kind == W_INT4 ? i / 2 : i;
            high[half][at] = (int8_t)h;
            low[half][at] = (int8_t)(n - 256 * h);
            sum += n;
        }
        a.scale[lane] = max / 32639;
        a.sum[lane] = sum;
    }
}

INLINE float terms_row(enum weight_kind kind, const struct matrix *w, size_t row, const struct act *a)
{
    const size_t bytes = kind == W_INT4 ? SEGMENT / 2 : SEGMENT;
    const uint8_t *p = w->data + row * (w->cols / BLOCK) * block_bytes(kind);
    v16 sum = v_set(0);
    float scale[16] = {0};

    for (size_t k = 0; k < w->cols; k += SEGMENT, p += bytes) {
        const struct terms t = terms_at(a, kind, k);
        v16 by = v_load(a->scale + k / BLOCK);
        for (size_t i = 0; i < bytes; i += 64)
            v_prefetch(p + 8192 + i);
        if (kind == W_INT4) {
            segment_scales(w, row, k, scale);
            by = v_mul(v_transpose(v_load(scale)), by);
        }
        sum = v_fma(kind == W_INT4 ? v_int4_sums(p, &t) : v_int8_sums(p, &t), by, sum);
    }
    return v_sum(sum);
}

static float row_scale(const struct matrix *w, size_t row)
{
    float scale[16];

    v_store(scale, v_scale16(w->scale_type, w->scale + row * (w->scale_type == ST_F32 ? 4 : 2)));
    return scale[0];
}

INLINE void terms_rows(enum weight_kind kind, const struct matrix *w, size_t row0, size_t row1, const uint8_t *act, size_t tokens, float *y, size_t ldy)
{
    for (size_t r = row0; r < row1; r++) {
        const float scale = kind == W_INT4 ? 1 : row_scale(w, r);
        for (size_t t = 0; t < tokens; t++) {
            const struct act a = act_of(act + t * act_bytes(w->cols), w->cols);
            y[t * ldy + r] = terms_row(kind, w, r, &a) * scale;
        }
    }
}

static void fp8_rows(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, size_t tokens, float *y, size_t ldy)
{
    struct matrix raw = *w;

    raw.scale = NULL;
    if (tokens == 1)
        one_token(RAW_FP8, &raw, row0, row1, x, y);
    else
        many_tokens(RAW_FP8, &raw, row0, row1, x, ldx, tokens, y, ldy);
    for (size_t r = row0; r < row1; r++)
        for (size_t t = 0; t < tokens; t++)
            y[t * ldy + r] *= 256 * row_scale(w, r);
}

static void linear_judge(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, size_t tokens, float *y, size_t ldy)
{
    if (w->kind != W_INT4)
        linear(w, row0, row1, x, ldx, tokens, y, ldy);
    else if (tokens == 1)
        one_token(RAW_INT4, w, row0, row1, x, y);
    else
        many_tokens(RAW_INT4, w, row0, row1, x, ldx, tokens, y, ldy);
}

static void linear_fast(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, const uint8_t *act, size_t tokens, float *y, size_t ldy)
{
    if (w->kind == W_INT4)
        terms_rows(W_INT4, w, row0, row1, act, tokens, y, ldy);
    else if (w->kind == W_INT8)
        terms_rows(W_INT8, w, row0, row1, act, tokens, y, ldy);
    else if (w->kind == W_FP8)
        fp8_rows(w, row0, row1, x, ldx, tokens, y, ldy);
    else
        linear(w, row0, row1, x, ldx, tokens, y, ldy);
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
    x = v_min(v_max(x, v_set(-87.0f)), v_set(88.0f));
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
        v_prefetch(p + i + 4096);
        v_prefetch(p + i + 4160);
        v_prefetch(p + i + 4224);
        v_prefetch(p + i + 4288);
        a = v_max(a, v_load(p + i)), b = v_max(b, v_load(p + i + 64));
        c = v_max(c, v_load(p + i + 128)), d = v_max(d, v_load(p + i + 192));
    }
    a = v_max(v_max(a, b), v_max(c, d));
    memcpy(bits, &a, sizeof bits);
    return bits[0];
}

/* out = out * keep + sum over i of p[i] * v[i]. */
static void add_values(float *out, size_t head_dim, float keep, const float *p, const float *const *v, size_t n)
{
    v16 k = v_set(keep);
    size_t d = 0;
    for (; d + 64 <= head_dim; d += 64) {
        v16 a = v_mul(v_load(out + d), k), b = v_mul(v_load(out + d + 16), k);
        v16 c = v_mul(v_load(out + d + 32), k), e = v_mul(v_load(out + d + 48), k);
        for (size_t i = 0; i < n; i++) {
            v16 w = v_set(p[i]);
            const float *s = v[i] + d;
            a = v_fma(w, v_load(s), a);
            b = v_fma(w, v_load(s + 16), b);
            c = v_fma(w, v_load(s + 32), c);
            e = v_fma(w, v_load(s + 48), e);
        }
        v_store(out + d, a);
        v_store(out + d + 16, b);
        v_store(out + d + 32, c);
        v_store(out + d + 48, e);
    }
    for (; d < head_dim; d += 16) {
        v16 a = v_mul(v_load(out + d), k);
        for (size_t i = 0; i < n; i++)
            a = v_fma(v_set(p[i]), v_load(v[i] + d), a);
        v_store(out + d, a);
    }
}

/* The blocks are counted from the first visible position, so that they do not depend on where the ring wraps. */
static void attend(const float *q, size_t head_dim, float scale, const struct kv_span *span, size_t spans, float *out)
{
    float score[SPAN_BLOCK], max = -INFINITY, sum = 0;
    const float *value[SPAN_BLOCK];
    size_t at = 0, offset = 0;
    memset(out, 0, head_dim * sizeof *out);
    while (at < spans) {
        size_t n = 0;
        float top = max;
        for (; n < SPAN_BLOCK && at < spans; n++) {
            score[n] = scale * dot(q, span[at].k + offset * head_dim, head_dim);
            value[n] = span[at].v + offset * head_dim;
            top = score[n] > top ? score[n] : top;
            if (++offset == span[at].n)
                at++, offset = 0;
        }
        float keep = expf(max - top);
        sum = sum * keep + exp_sum(score, n, top);
        add_values(out, head_dim, keep, score, value, n);
        max = top;
    }
    v16 whole = v_set(sum);
    for (size_t d = 0; d < head_dim; d += 16)
        v_store(out + d, v_div(v_load(out + d), whole));
}

const struct kernels KERNELS = {KERNELS_SIMD, linear, linear_judge, prepare, linear_fast, row, rms, gelu_mul, softcap, exp_sum, read_bytes, attend};
