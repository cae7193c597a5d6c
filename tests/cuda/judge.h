/* What the kernels' tests share: weights of every kind with their values, prepared vectors, and a judge in double.  No code of the kernels. */
#ifndef TESTS_CUDA_JUDGE_H
#define TESTS_CUDA_JUDGE_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
#include "cuda/host/host.h"

static int cases, failures;
#define CHECK(yes, ...) do { cases++; if (!(yes)) { failures++; printf("not ok: %s:%d: ", __FILE__, __LINE__); printf(__VA_ARGS__); printf("\n"); } } while (0)

static uint64_t seed = 1;
static inline uint32_t draw(void) { seed = seed * 6364136223846793005u + 1442695040888963407u; return (uint32_t)(seed >> 33); }
static inline float uniform(void) { return (float)(draw() % 65536) / 32768 - 1; }
/* Mostly small, now and then large: activations. */
static inline float activation(void) { const float u = uniform(); return u * u * u * (draw() % 64 ? 1 : 60); }

static inline float bits_to_float(uint32_t b) { float f; memcpy(&f, &b, 4); return f; }
static inline uint32_t float_to_bits(float f) { uint32_t b; memcpy(&b, &f, 4); return b; }
static inline uint16_t to_bf16(float f) { const uint32_t b = float_to_bits(f); return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16); }
static inline float from_bf16(uint16_t h) { return bits_to_float((uint32_t)h << 16); }
static inline float from_f16(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    return (float)((h & 0x8000 ? -1 : 1) * (e ? ldexp(1024 + m, e - 25) : ldexp(m, -24)));
}
static inline float from_e4m3(uint8_t b)
{
    const int e = b >> 3 & 15, m = b & 7;
    return (float)((b & 0x80 ? -1 : 1) * (e ? ldexp(8 + m, e - 10) : ldexp(m, -9)));
}

/* Device memory that is freed at the end of a test. */
static std::vector<void *> owned;
template <class T> static T *device(size_t n, const char *name)
{
    T *p = (T *)gk_host_alloc(n * sizeof(T), name);
    if (!p)
        exit(75);
    owned.push_back(p);
    return p;
}
static inline void free_all(void)
{
    for (void *p : owned)
        gk_host_free(p);
    owned.clear();
}

static inline bool is_int4(enum gk_kind k) { return k <= GK_INT4_F32; }
static inline bool has_scale(enum gk_kind k) { return k <= GK_FP8; }
static inline size_t row_bytes(enum gk_kind k, size_t cols) { return is_int4(k) ? cols / 2 : k == GK_F32 ? 4 * cols : has_scale(k) ? cols : 2 * cols; }
static inline size_t scale_row_bytes(enum gk_kind k, size_t cols) { return is_int4(k) ? cols / 32 * (k == GK_INT4_F32 ? 4 : 2) : has_scale(k) ? 4 : 0; }
/* bf16 terms that make one weight. */
static inline int terms_of(enum gk_kind k) { return k == GK_F16 ? 2 : k == GK_F32 ? 3 : 1; }

/* A matrix in device memory and what its weights are worth, unrounded. */
struct weights { struct gk_matrix m; std::vector<double> value; int cols; };

static inline weights make_weights(enum gk_kind kind, int rows, int cols, int shift = 0)
{
    weights w = {{NULL, NULL, rows}, std::vector<double>((size_t)rows * (size_t)cols), cols};
    const size_t n = w.value.size(), scales = is_int4(kind) ? (size_t)(cols / 32 >> shift) : 1;
    std::vector<double> scale((size_t)rows * scales, 1);

    if (has_scale(kind)) {
        if (kind == GK_INT4_BF16 || kind == GK_INT4_F16) {
            uint16_t *s = device<uint16_t>(scale.size(), "scales");
            for (size_t i = 0; i < scale.size(); i++) {
                const float f = 0.02f + 0.01f * uniform();
                s[i] = kind == GK_INT4_BF16 ? to_bf16(f) : (uint16_t)(0x2000 + draw() % 0x500 + (draw() % 2 << 15));
                scale[i] = kind == GK_INT4_BF16 ? from_bf16(s[i]) : from_f16(s[i]);
            }
            w.m.scale = s;
        } else {
            float *s = device<float>(scale.size(), "scales");
            for (size_t i = 0; i < scale.size(); i++)
                scale[i] = s[i] = (is_int4(kind) ? 20 : 1) * (0.001f + 0.0005f * uniform());
            w.m.scale = s;
        }
    }
    uint8_t *p = device<uint8_t>((size_t)rows * row_bytes(kind, (size_t)cols), "weights");
    w.m.data = p;
    for (size_t i = 0; i < n; i++) {
        const size_t row = i / (size_t)cols, col = i % (size_t)cols;
        uint32_t b = draw();
        if (is_int4(kind)) {
            p[i / 2] = (uint8_t)(p[i / 2] | (b & 15) << i % 2 * 4);
            w.value[i] = ((int)(b & 15) - 8) * scale[row * scales + (col / 32 >> shift)];
        } else if (kind == GK_BF16) {
            ((uint16_t *)p)[i] = to_bf16(uniform() * 0.05f);
            w.value[i] = from_bf16(((uint16_t *)p)[i]);
        } else if (kind == GK_F16) {        /* subnormal ones too */
            ((uint16_t *)p)[i] = (uint16_t)((b % 16 ? b % 0x2800 : b >> 4 & 0x3ff) | (b >> 8 & 0x8000));
            w.value[i] = from_f16(((uint16_t *)p)[i]);
        } else if (kind == GK_F32) {
            w.value[i] = ((float *)p)[i] = uniform() * 0.05f * (1 + uniform() / 65536);
        } else {
            if (kind == GK_FP8 && (b & 0x7f) == 0x7f)
                b = 0;
            p[i] = (uint8_t)b;
            w.value[i] = (kind == GK_INT8 ? (int8_t)(uint8_t)b : from_e4m3((uint8_t)b)) * scale[row];
        }
    }
    return w;
}

static inline int place_of(int column, int order)
{
    static const int nibbles[8] = {0, 2, 4, 6, 1, 3, 5, 7}, bytes[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    const int i = column % 8;
    return column / 8 * 16 + (order == GK_NIBBLES ? nibbles[i] : order == GK_BYTES ? bytes[i] : i);
}
static inline void prepare(uint16_t *to, const float *x, int n, int order)
{
    for (int i = 0; i < n; i++) {
        const uint16_t hi = to_bf16(x[i]);
        to[place_of(i, order)] = hi;
        to[place_of(i, order) + 8] = to_bf16(x[i] - from_bf16(hi));
    }
}
static inline double prepared(const uint16_t *x, int column, int order) { return (double)from_bf16(x[place_of(column, order)]) + from_bf16(x[place_of(column, order) + 8]); }

/* Row r of w times x, and the sum of magnitudes that bounds the error. */
struct product { double value, size; };
static inline product multiply(const weights &w, int row, const float *x)
{
    product p = {0, 0};
    for (int k = 0; k < w.cols; k++) {
        const double v = w.value[(size_t)row * (size_t)w.cols + (size_t)k] * (double)x[k];
        p.value += v, p.size += fabs(v);
    }
    return p;
}
/* The bounds that kernels.h states: of sums that are cut off as tensor cores do, and of rounded ones. */
static bool cut_sums;
static inline void set_cut_sums(bool yes) { gk_host_cut_sums(cut_sums = yes); }
static inline double linear_bound(int cols, double size) { return (ldexp(1, -16) + (cols / (cut_sums ? 8.0 : 16.0) + 16) * ldexp(1, -23)) * size + 1e-30; }

static inline double gelu_of(double x) { return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))); }

static inline const char *run(struct gk_launch &l, int sms)
{
    const struct gk_device d = {sms};
    const char *wrong = gk_shape(&l, &d);
    return wrong ? wrong : gk_host_launch(&l);
}
static inline int finish_tests(void)
{
    printf("%d checks, %d failed\n", cases, failures);
    return failures != 0;
}
#endif
