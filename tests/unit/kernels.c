/* kernels: every kind of weight against a double sum within the stated bound; the twins bit for bit; any number of tokens the same as one. */
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "engine/kernels.h"
#include "quant/w8.h"

enum { ROWS = 29, TOKENS = 37 };

static uint64_t state = 1;
static uint32_t rnd(void) { state = state * 6364136223846793005u + 1442695040888963407u; return (uint32_t)(state >> 33); }
static float normal(void) { float s = 0; for (int i = 0; i < 6; i++) s += (float)rnd() / 2147483648.0f - 0.5f; return s * 1.4f; }

/* Random bytes that are finite weights of the kind. */
static struct matrix random_matrix(enum weight_kind kind, size_t cols, size_t scales, enum st_dtype scale_type)
{
    struct matrix m = {.kind = kind, .rows = ROWS, .cols = cols};
    const size_t bytes = ROWS * matrix_row_bytes(&m) + KERNEL_SLACK, scale_bytes = ROWS * scales * (scale_type == ST_F32 ? 4 : 2) + KERNEL_SLACK;
    uint8_t *data = xcalloc(bytes, 1), *scale = xcalloc(scale_bytes, 1);

    for (size_t i = 0; i < ROWS * cols; i++) {
        const float w = normal();
        const uint16_t b = bf16_from_f32(w), h = f16_from_f32(w);
        switch (kind) {
        case W_F32: memcpy(data + 4 * i, &w, 4); break;
        case W_BF16: memcpy(data + 2 * i, &b, 2); break;
        case W_F16: memcpy(data + 2 * i, &h, 2); break;
        case W_INT4: data[i / 2] |= (uint8_t)((rnd() & 15) << (i % 2 * 4)); break;
        case W_INT8: data[i] = (uint8_t)rnd(); break;
        case W_FP8: data[i] = (uint8_t)((rnd() % 127) | (rnd() & 128)); break;
        }
    }
    for (size_t i = 0; i < ROWS * scales; i++) {
        const float s = normal() / 16;
        const uint16_t b = bf16_from_f32(s), h = f16_from_f32(s);
        if (scale_type == ST_F32) memcpy(scale + 4 * i, &s, 4);
        else memcpy(scale + 2 * i, scale_type == ST_BF16 ? &b : &h, 2);
    }
    m.data = data;
    m.scale = kind >= W_INT4 ? scale : NULL;
    m.scale_type = scale_type;
    m.scales = scales;
    if (!m.scale)
        free(scale);
    return m;
}

static void free_matrix(struct matrix *m)
{
    free((void *)m->data);
    free((void *)m->scale);
}

/* The value of one weight, straight from the design's words. */
static float value(const struct matrix *m, size_t r, size_t k)
{
    const size_t i = r * m->cols + k;
    uint16_t half = 0;
    float f = 0, s = 0;

    if (m->scale) {
        const size_t at = r * m->scales + k / (m->cols / m->scales);
        if (m->scale_type == ST_F32) memcpy(&s, m->scale + 4 * at, 4);
        else memcpy(&half, m->scale + 2 * at, 2), s = m->scale_type == ST_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
    }
    switch (m->kind) {
    case W_F32: memcpy(&f, m->data + 4 * i, 4); return f;
    case W_BF16: memcpy(&half, m->data + 2 * i, 2); return bf16_to_f32(half);
    case W_F16: memcpy(&half, m->data + 2 * i, 2); return f16_to_f32(half);
    case W_INT4: return bf16_to_f32(bf16_from_f32((float)((m->data[i / 2] >> (i % 2 * 4) & 15) - 8) * s));
    case W_INT8: return (float)(int8_t)m->data[i] * s;
    case W_FP8: return w8_e4m3_to_f32(m->data[i]) * s;
    }
    return 0;
}

static const struct pace pace = {4096, 512, false}, tiled = {4096, 512, true};

static void same_as_scalar(const struct kernels *k, const struct matrix *m, const float *x, const float *want)
{
    float y[TOKENS * ROWS], row[2048];

    for (size_t tokens = 1; tokens <= TOKENS; tokens += tokens < 6 ? 1 : 31) {
        memset(y, 0, sizeof y);
        k->linear(m, 0, ROWS, x, m->cols, tokens, y, ROWS);
        assert(!memcmp(y, want, tokens * ROWS * sizeof *y));
    }
    k->linear(m, 3, 8, x, m->cols, 2, y, ROWS);
    assert(!memcmp(y + ROWS + 3, want + ROWS + 3, 5 * sizeof *y));
    k->row(m, 5, row);
    for (size_t i = 0; i < m->cols; i++)
        assert(row[i] == value(m, 5, i));
}

static void linears(enum weight_kind kind, size_t cols, size_t scales, enum st_dtype scale_type)
{
    struct matrix m = random_matrix(kind, cols, scales, scale_type);
    float *x = xcalloc(TOKENS * cols, sizeof *x), want[TOKENS * ROWS];

    for (size_t i = 0; i < TOKENS * cols; i++)
        x[i] = normal();
    for (size_t t = 0; t < TOKENS; t++)
        kernels_scalar.linear(&m, 0, ROWS, x + t * cols, cols, 1, want + t * ROWS, ROWS);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < cols; k++) {
                const double p = (double)value(&m, r, k) * (double)x[t * cols + k];
                sum += p, size += fabs(p);
            }
            assert(fabs(sum - (double)want[t * ROWS + r]) <= ((double)cols / 32 + 6) * 0x1p-24 * size);
        }
    same_as_scalar(&kernels_scalar, &m, x, want);
    if (simd_level() >= SIMD_AVX2)
        same_as_scalar(&kernels_avx2, &m, x, want);
    if (simd_level() >= SIMD_AVX512)
        same_as_scalar(&kernels_avx512, &m, x, want);
    free(x);
    free_matrix(&m);
}

/* Fast mode against double sums of unrounded products: rms over rms of the outputs; twins bit for bit; batches as single tokens. */
static double fast_error(enum weight_kind kind, size_t cols, bool outliers)
{
    const size_t scales = kind == W_INT4 ? cols / 32 : 1, stride = act_bytes(kind, cols);
    struct matrix m = random_matrix(kind, cols, scales, kind == W_INT4 ? ST_F16 : ST_F32);
    float *x = xcalloc(TOKENS * cols, sizeof *x), *judge = xcalloc(TOKENS * ROWS, sizeof *judge);
    uint8_t *act = aligned_alloc(64, TOKENS * stride), *again = aligned_alloc(64, TOKENS * stride);
    float y[TOKENS * ROWS], z[TOKENS * ROWS];
    double off = 0, size = 0;

    for (size_t i = 0; i < TOKENS * cols; i++)
        x[i] = normal() * (outliers && i % 96 == 5 ? 100.0f : 1.0f);
    memset(x, 0, 32 * sizeof *x);
    for (size_t t = 0; t < TOKENS; t++)
        kernels_scalar.prepare(kind, x + t * cols, cols, act + t * stride);
    kernels_scalar.linear_fast(&m, 0, ROWS, x, cols, act, TOKENS, &pace, y, ROWS);
    kernels_scalar.linear_judge(&m, 0, ROWS, x, cols, TOKENS, judge, ROWS);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0, absolute = 0;
            for (size_t k = 0; k < cols; k++) {
                const uint8_t byte = m.data[(r * cols + k) / 2];
                uint16_t half = 0;
                memcpy(&half, m.scale + 2 * (r * scales + k / 32), kind == W_INT4 ? 2 : 0);
                const double w = kind == W_INT4 ? (double)((byte >> (k % 2 * 4) & 15) - 8) * (double)f16_to_f32(half) : (double)value(&m, r, k);
                sum += w * (double)x[t * cols + k];
                absolute += fabs(w * (double)x[t * cols + k]);
            }
            const double d = (double)y[t * ROWS + r] - sum;
            off += d * d, size += sum * sum;
            assert(fabs((double)judge[t * ROWS + r] - sum) <= ((double)cols / 32 + 7) * 0x1p-24 * absolute);
        }
    const struct kernels *twins[] = {&kernels_scalar, &kernels_avx2, &kernels_avx512};
    for (int i = 0; i < 3; i++) {
        if (kernels_for(simd_level())->level < twins[i]->level)
            continue;
        for (size_t t = 0; t < TOKENS; t++)
            twins[i]->prepare(kind, x + t * cols, cols, again + t * stride);
        assert(!memcmp(act, again, TOKENS * stride));
        for (size_t t = 0; t < TOKENS; t++)
            twins[i]->linear_fast(&m, 0, ROWS, x + t * cols, cols, act + t * stride, 1, t % 2 ? &tiled : &pace, z + t * ROWS, ROWS);
        assert(!memcmp(y, z, sizeof y));
        memset(z, 0, sizeof z);
        twins[i]->linear_fast(&m, 0, ROWS, x, cols, act, TOKENS, &pace, z, ROWS);
        assert(!memcmp(y, z, sizeof y));
    }
    free(x);
    free(judge);
    free(act);
    free(again);
    free_matrix(&m);
    return sqrt(off / size);
}

static void fast_mode(void)
{
    const size_t cols[] = {32, 640, 704, 1152, 1536, 2112, 6144, 12288};

    for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
        printf("K = %zu: rms error int4 %.1e, with outliers %.1e; int8 %.1e, %.1e; fp8 %.1e\n", cols[c], fast_error(W_INT4, cols[c], false),
            fast_error(W_INT4, cols[c], true), fast_error(W_INT8, cols[c], false), fast_error(W_INT8, cols[c], true), fast_error(W_FP8, cols[c], false));
        assert(fast_error(W_INT4, cols[c], false) <= 4e-5 && fast_error(W_INT4, cols[c], true) <= 1e-4);
        assert(fast_error(W_INT8, cols[c], false) <= 4e-5 && fast_error(W_INT8, cols[c], true) <= 1e-4);
        assert(fast_error(W_FP8, cols[c], false) <= 1e-6 && fast_error(W_FP8, cols[c], true) <= 1e-6);
    }
}

static void functions(const struct kernels *k)
{
    float x[1024], g[1024], u[1024], a[1024], b[1024];

    for (int i = 0; i < 1024; i++) {
        x[i] = (float)(i - 512) / 20;
        u[i] = normal();
    }
    k->gelu_mul(x, u, 1024, g);
    memcpy(a, x, sizeof a);
    k->softcap(a, 1021, 3);
    memcpy(b, x, sizeof b);
    const float sum = k->exp_sum(b, 1021, x[1020]);
    double want = 0;
    for (int i = 0; i < 1021; i++) {
        const double v = (double)x[i], gelu = 0.5 * v * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
        assert(fabs((double)g[i] - gelu * (double)u[i]) <= 4e-7 * fabs(v * (double)u[i]) + 1e-30);
        assert(fabs((double)a[i] - 3 * tanh(v / 3)) <= 2e-6);
        const double e = exp((double)(x[i] - x[1020]));
        assert(fabs((double)b[i] - e) <= 3e-7 * e + 1.3e-38);
        want += e;
    }
    assert(a[1021] == x[1021] && b[1021] == x[1021]);
    assert(fabs((double)sum - want) < 1e-6 * want);
    k->rms(u, NULL, 1024, 1e-6f, g);
    double ss = 0;
    for (int i = 0; i < 1024; i++)
        ss += (double)g[i] * (double)g[i];
    assert(fabs(ss / 1024 - 1) < 1e-5);
}

/* A number that is none shows in every output: it is no small one. */
static void not_a_number(const struct kernels *k)
{
    enum { COLS = 704 };
    float x[COLS], y[ROWS], like[4] = {1, NAN, -1, 2};

    for (size_t bad = 0; bad < COLS; bad += 37)
        for (int kind = W_F32; kind <= W_FP8; kind++) {
            struct matrix m = random_matrix((enum weight_kind)kind, COLS, kind == W_INT4 ? COLS / 32 : 1, kind == W_INT4 ? ST_F16 : ST_F32);
            uint8_t *act = aligned_alloc(64, act_bytes((enum weight_kind)kind, COLS));
            memset((void *)m.data, 0x33, ROWS * matrix_row_bytes(&m));     /* no weight is 0 */
            for (size_t i = 0; i < COLS; i++)
                x[i] = normal();
            x[bad] = bad % 2 ? NAN : -INFINITY;
            if (kind >= W_INT4)
                k->prepare((enum weight_kind)kind, x, COLS, act);
            k->linear_fast(&m, 0, ROWS, x, COLS, act, 1, &pace, y, ROWS);
            for (size_t r = 0; r < ROWS; r++)
                assert(!isfinite(y[r]));
            free(act);
            free_matrix(&m);
        }
    k->softcap(like, 4, 30);
    assert(isnan(like[1]) && isfinite(like[0]) && isfinite(like[2]));
    assert(isnan(k->exp_sum(like, 4, 2)));
}

/* The largest wherever it is, infinities or not; NaN wherever it is. */
static void largest(const struct kernels *k)
{
    float x[64];

    for (size_t at = 0; at < 64; at++) {
        for (size_t i = 0; i < 64; i++)
            x[i] = -1 - fabsf(normal());
        x[at] = -0.5f;
        assert(k->most(x, 64) == -0.5f);
        x[63 - at] = -INFINITY;
        assert(k->most(x, 64) == (at == 63 - at ? x[at] : -0.5f));
        x[at] = INFINITY;
        assert(k->most(x, 64) == INFINITY);
        x[at] = NAN;
        assert(isnan(k->most(x, 64)));
    }
    for (size_t i = 0; i < 64; i++)
        x[i] = -INFINITY;
    assert(k->most(x, 64) == -INFINITY);
}

/* Attention over two spans against softmax in double; fewer keys: less than is asked for ahead, and no multiple of four. */
static void attention(const struct kernels *k, int keys, int cut)
{
    enum { HEADS = 7, HD = 80, KEYS = 701 };
    static float q[HEADS * HD], key[KEYS * HD], val[KEYS * HD], out[HEADS * HD], same[HEADS * HD];

    for (int i = 0; i < HEADS * HD; i++)
        q[i] = normal();
    for (int i = 0; i < KEYS * HD; i++)
        key[i] = normal(), val[i] = normal();
    const struct kv_span span[2] = {{key, val, (size_t)cut}, {key + cut * HD, val + cut * HD, (size_t)(keys - cut)}};
    k->attend(q, HEADS, HD, 0.25f, span, cut < keys ? 2 : 1, out);
    kernels_scalar.attend(q, HEADS, HD, 0.25f, span, cut < keys ? 2 : 1, same);
    assert(!memcmp(out, same, sizeof out));
    for (int h = 0; h < HEADS; h++) {
        double p[KEYS], sum = 0, max = -1e30;
        for (int i = 0; i < keys; i++) {
            p[i] = 0;
            for (int d = 0; d < HD; d++)
                p[i] += 0.25 * (double)q[h * HD + d] * (double)key[i * HD + d];
            max = p[i] > max ? p[i] : max;
        }
        for (int i = 0; i < keys; i++)
            sum += p[i] = exp(p[i] - max);
        for (int d = 0; d < HD; d++) {
            double want = 0;
            for (int i = 0; i < keys; i++)
                want += p[i] / sum * (double)val[i * HD + d];
            assert(fabs(want - (double)out[h * HD + d]) < 2e-6);
        }
    }
}

static void other_kernels(const struct kernels *k)
{
    static const int keys[][2] = {{701, 333}, {1, 1}, {3, 2}, {37, 37}, {256, 5}, {258, 256}, {515, 514}};

    functions(k);
    largest(k);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        attention(k, keys[i][0], keys[i][1]);
    not_a_number(k);
}

int main(void)
{
    (void)kernels_for(SIMD_SCALAR);
    const size_t cols[] = {32, 640, 1056, 2048};
    for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
        for (int kind = W_F32; kind <= W_FP8; kind++)
            linears((enum weight_kind)kind, cols[c], kind == W_INT4 ? cols[c] / 32 : 1, kind == W_INT4 ? ST_F16 : ST_F32);
        linears(W_INT4, cols[c], 1, ST_BF16);
    }
    linears(W_INT4, 2048, 2048 / 128, ST_BF16);
    linears(W_INT8, 2048, 1, ST_BF16);
    puts("linears: the value of every kind of weight, within the bound, twins and batches bit for bit");
    fast_mode();
    puts("fast mode: within its bound, twins and batches bit for bit");
    other_kernels(&kernels_scalar);
    if (simd_level() >= SIMD_AVX2)
        other_kernels(&kernels_avx2);
    if (simd_level() >= SIMD_AVX512)
        other_kernels(&kernels_avx512);
    puts("gelu, softcap, exp, rms, attention against double; a NaN shows");
    return 0;
}
