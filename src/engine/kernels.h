/* The arithmetic of the forward pass: rows of weights against activations, attention, norms, activations.
 *
 * Owns: the value of a stored weight, and one fixed order of every sum.  The code is written once (kernels_body.h) over a vector of 16 floats
 * (vec.h) and compiled for plain C, AVX2 and AVX-512; all three give the same bits, which tests/unit/kernels.c holds them to.
 *
 * The value of a weight: int4: bf16(level * scale); int8 and fp8: the float32 product of level and scale; 16 and 32 bits: itself.
 * A linear's output is sum over k of w[k] * x[k] in float32: lane k % 32 of 32 partial sums takes fma(w, x, lane) in order of k, then lanes
 * i and i + 16 are added, then i and i + 8, 4, 2, 1.  Error bound against the exact sum: (K / 32 + 6) * 2^-24 * sum |w x|.
 * Fast mode. Activations for int4 and int8 weights are scale * q, scale = max|x| / 32639 for every 32, q = rint(x / scale) as two int8 terms, 256 high + low; the sum of
 * level * q over 32 is exact in integers; lane i of 16 takes fma(sum, scale of weights * scale of activations, lane) for the groups g with 4 (g % 4) + g / 4 % 4 = i; the
 * lanes are added as above; an int8 row's scale multiplies at the end.  rms error of an output <= 4e-5 of the outputs' rms on normal activations, 1e-4 with outliers.  fp8 weights: the
 * sum of exact mode over unscaled weights in another order of the columns (columns 4 i + j of every 64 at 16 j + i), times the row's scale.  16 and 32 bits: as exact mode.
 *
 * exp is a degree-7 polynomial after reduction by ln 2, within 2 ulp on [-87, 88], clamped outside; gelu and tanh stand on it.
 */
#ifndef ENGINE_KERNELS_H
#define ENGINE_KERNELS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/cpu.h"
#include "tensor/dtype.h"

enum weight_kind { W_F32, W_BF16, W_F16, W_INT4, W_INT8, W_FP8 };

/* A weight [rows, cols] where the file's bytes lie: rows one after another; int4 two a byte, low half first, offset by 8 (compressed-tensors
 * reference, section 2.2).  cols is a multiple of 32.  Up to KERNEL_SLACK bytes past data and scales are read: those past data
 * count for nothing, those past scales are multiplied by 0 and so must be finite numbers of their type (zeros, other scales). */
struct matrix {
    enum weight_kind kind;
    size_t rows, cols;
    const uint8_t *data;
    const uint8_t *scale;           /* NULL for 16 and 32 bits */
    enum st_dtype scale_type;       /* ST_BF16, ST_F16, ST_F32 */
    size_t scales;                  /* a row: 1, or cols / group with group a multiple of 32 */
};
#define KERNEL_SLACK 512

size_t matrix_row_bytes(const struct matrix *w);
/* Bytes of weights and scales in all. */
uint64_t matrix_bytes(const struct matrix *w);
/* Rows [row, row + rows) as a matrix of their own. */
struct matrix matrix_rows(const struct matrix *w, size_t row, size_t rows);

/* Keys and values of consecutive positions: n rows of head_dim floats each. */
struct kv_span { const float *k, *v; size_t n; };

/* Bytes of one vector prepared for linear_fast, a multiple of 64. */
static inline size_t act_bytes(enum weight_kind kind, size_t cols) { return kind == W_FP8 ? (cols + 63) / 64 * 256 : (cols + 511) / 512 * 512 / 4 * 9; }

/* How a product of one token walks memory, which changes its speed, never its result: how many bytes ahead it asks for, into the second cache and into the first; rows of int4 or int8 in tiles or
 * one after another. */
struct pace { size_t far, near; bool tiled; };

/* Tokens prepared for linear_fast and for bounds(): [tokens] of each, `groups` apart, in order of the columns. */
struct screened {
    const uint8_t *act;
    const int32_t *offset;      /* -8 times the sum of a group's high terms */
    const float *by;            /* 256 times its scale */
    const float *slack;         /* [tokens], at most BOUND_TOKENS: how far a row of norm 1 may be from what the high terms say */
    size_t groups, tokens;
};
enum { BOUND_ROWS = 64, BOUND_TOKENS = 16, BOUND_COLS = 24576 /* at most */ };

struct kernels {
    enum simd level;
    /* y[t * ldy + r] = row r of w . x[t * ldx …], r in [row0, row1), t in [0, tokens). */
    void (*linear)(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, size_t tokens, float *y, size_t ldy);
    /* linear with int4 weights not rounded: what fast mode approximates; for tests. */
    void (*linear_judge)(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, size_t tokens, float *y, size_t ldy);
    /* x [cols] for weights of this kind (int4, int8, fp8); `to` is aligned to 64 bytes. */
    void (*prepare)(enum weight_kind kind, const float *x, size_t cols, uint8_t *to);
    /* The same as linear within the bound of fast mode; act: the tokens prepared, one after another (int4, int8, fp8), else unused. */
    void (*linear_fast)(const struct matrix *w, size_t row0, size_t row1, const float *x, size_t ldx, const uint8_t *act, size_t tokens, const struct pace *pace,
        float *y, size_t ldy);
    /* Where the largest of linear_fast's outputs can be, at half its price: int4 weights with a scale for every 32, high terms only.  [row0, row1) in blocks of BOUND_ROWS;
     * no output of block b for token t is above upper[t * ld + b], the largest is not below lower[t * ld + b].  norm: norms() of all rows.  NULL: not at this level. */
    void (*bounds)(const struct matrix *w, size_t row0, size_t row1, const struct screened *x, const float *norm, float *upper, float *lower, size_t ld);
    /* Euclidean norms of the rows [row0, row1) of int4, unrounded products of level and scale. */
    void (*norms)(const struct matrix *w, size_t row0, size_t row1, float *to);
    /* One row's values. */
    void (*row)(const struct matrix *w, size_t row, float *out);
    /* y = x / sqrt(mean(x^2) + eps) * w; w NULL = 1.  n a multiple of 16; y may be x. */
    void (*rms)(const float *x, const float *w, size_t n, float eps, float *y);
    /* y = gelu_tanh(gate) * up; n a multiple of 16; y may be gate. */
    void (*gelu_mul)(const float *gate, const float *up, size_t n, float *y);
    /* x = cap * tanh(x / cap). */
    void (*softcap)(float *x, size_t n, float cap);
    /* The largest of x [n], NaN when one is; n a multiple of 16. */
    float (*most)(const float *x, size_t n);
    /* x = exp(x - max) and their sum. */
    float (*exp_sum)(float *x, size_t n, float max);
    /* Reads n bytes, a multiple of 256, as fast as this level can; the result only keeps the reads alive. */
    uint64_t (*read)(const uint8_t *p, size_t n);
    /* out [heads][head_dim] = softmax(scale * q [heads][head_dim] . k) v over the spans in their order; head_dim a multiple of 16. */
    void (*attend)(const float *q, size_t heads, size_t head_dim, float scale, const struct kv_span *span, size_t spans, float *out);
    /* Pairs (x[i], x[i + half]) turned by the angles whose cosines and sines are c[i] and s[i], i < n, a multiple of 16. */
    void (*rotate)(float *x, size_t half, const float *c, const float *s, size_t n);
};
/* The best of them up to a level; AVX-512 without VNNI runs as AVX2. */
const struct kernels *kernels_for(enum simd level);
extern const struct kernels kernels_scalar, kernels_avx2, kernels_avx512;
#endif
