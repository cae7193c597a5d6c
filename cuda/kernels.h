/* The kernels of the GPU forward pass: one plain struct describes one launch, without a CUDA type.
 *
 * The same description is launched or captured into a graph (cuda/launch.cu), run by the host shim (cuda/host/), and counted by the graph builder.  All pointers in it
 * are device pointers.  What changes from token to token (ids, positions, pages, angles) lies in device memory behind these pointers, so a captured graph is replayed as it is.
 *
 * Three ideas carry all kernels:
 * 1. Weights are the 16-row operand of mma.m16n8k16 (bf16, f32 sums), tokens the 8 columns: M = 1..8 costs what M = 1 does, a prompt's tokens are more columns.
 *    Every stored level is exact in bf16 (int4, int8, e4m3), and scales are applied to the f32 sums: value = level x scale, unrounded (or rounded to bf16, where asked for).  The sum over 32 columns of a group is
 *    formed before its scale, in the tensor core's order.  A weight in f16 or f32 is the sum of two or three bf16 terms, exactly, and multiplied once for each.
 *    Compute capability 7.5 has no such instruction: there the lanes exchange words and use fused multiply-adds, with the same products (device.cuh).
 * 2. Activations travel "prepared": x = hi + lo, two bf16 terms (relative error <= 2^-17), in the order that the next matrix's bytes come out of their words (gk_order).
 *    For 8 columns 8i .. 8i + 7: 8 hi, then 8 lo: 32 bytes.  A vector of n columns has room for gk_padded(n) columns; those past n are zero, always.
 * 3. The block that finishes last of a group of rows (a head, or all) does what needs them together: norms, rope, residual, argmax.  Counters are zero before and after a launch.
 *    With tokens > 8 this is a launch of its own (GK_FINISH, a block a token and group).
 *
 * Where the GPU can (compute capability 9), a kernel starts while the one before still finishes: it loads its first weights, then waits for it (wait_for_previous).  So weights must not
 * be what a kernel just before has written.
 *
 * Sums have one fixed order for a given launch, so a result does not depend on timing.  Bound, each output of a linear: |y - exact| <= (2^-16 + (n / 8 + 16) 2^-23) sum |w x|, n = cols, times
 * two for weights in f16, times three in f32: tensor cores cut their sums off; n / 16 where sums are rounded, as in the host shim.
 *
 * K and V: bf16, zeroed when allocated, in pages of GK_PAGE positions, a pool a layer: page p of a layer at p * gk_page_values(): K as [kv_heads][GK_PAGE][head_dim], V as [kv_heads][head_dim][GK_PAGE].
 */
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GK_PAGE = 32, GK_SEGMENTS = 3, GK_OUTS = 3, GK_THREADS = 256, GK_MOST_HIDDEN = 6144, GK_END_BYTES = 64, GK_ROUTE_BYTES = 12320, GK_STRIPE = 128, GK_ATTEND_BYTES = 8544, GK_TOP = 96, GK_TOP_BYTES = 14656 };
/* The *_BYTES are shared memory: of a linear's end, of routing, of lists of the largest, of attention before its rows. */

/* A matrix [rows, cols] as in the file, rows one after another, 16-byte aligned, cols a multiple of 32.  int4: two a byte, low half first, level + 8, one scale (bf16, f16 or f32) for
 * every 32 << scale_shift columns; int8, e4m3: one f32 scale a row. */
enum gk_kind { GK_INT4_BF16, GK_INT4_F16, GK_INT4_F32, GK_INT8, GK_FP8, GK_BF16, GK_F16, GK_F32, GK_KINDS };
struct gk_matrix { const void *data, *scale; int rows; };

/* Order of columns within 8 (int4: 0 4 1 5 2 6 3 7; bytes: 0 2 1 3 4 6 5 7; 16 and 32 bits and q: as they are). */
enum gk_order { GK_PLAIN = 1, GK_BYTES = 2, GK_NIBBLES = 4 };
static inline enum gk_order gk_order_of(enum gk_kind k) { return k <= GK_INT4_F32 ? GK_NIBBLES : k <= GK_FP8 ? GK_BYTES : GK_PLAIN; }
static inline int gk_padded(int n) { return (n + 127) / 128 * 128; }
/* A prepared vector of one token is 2 * gk_padded(n) uint16_t. */

/* Where a finisher or an epilogue writes a prepared vector: token t at x + t * ld, normed by w [n] (NULL = weightless rms) unless raw. */
struct gk_out { uint16_t *x; int ld; enum gk_order order; int raw; const float *w; };

/* One token of a step, in device memory. */
struct gk_token { int id, position, seq, unused; };

/* A table whose rows are gathered by token id: the embedding, the per-layer embedding (which may lie in mapped host memory). */
struct gk_table { enum gk_kind kind; const void *data, *scale; int cols, scale_shift; };

/* Pages of a layer's cache: position p of sequence s lies in page pages[s * ld + p / GK_PAGE % ring]; ring = entries in use (full layers: as many as there are). */
struct gk_cache { uint16_t *k, *v; const int *pages; int ld, ring; };

/* Bytes asked for into L2 while there is nothing else to read: the next matrices. */
struct gk_ahead { const void *p; uint32_t bytes; };

/* --- linear ------------------------------------------------------------------------------------------------------------ */

enum gk_epilogue {
    GK_STORE,       /* y[t * ldy + row] = sum; rows of the segments counted on */
    GK_GATED,       /* segments 0 and 1 are gate and up: act = gelu(gate) * up */
    GK_GATE_BY,     /* act = gelu(sum) * by[t * ldby + row] */
    GK_HEAD         /* softcap; y (may be NULL) and best */
};
enum gk_finish { GK_NOTHING, GK_HEADS, GK_RESIDUAL, GK_EXPERTS, GK_PLE, GK_ROUTE, GK_BEST };

struct gk_best { float value; int id; };
/* The GK_TOP largest, falling, of equal ones the lower id first; fewer rows than that: then {-inf, -1}.  sum: of e^(value - most) over all rows. */
struct gk_top { struct gk_best best[GK_TOP]; float most, sum; };

/* Up to 8 (token, choice) pairs of one expert. */
struct gk_job { int expert, n; struct { int token, choice; } at[8]; };

/* Finishers, over y. */
struct gk_heads {               /* groups of head_dim rows: q heads, then k, then v heads.  q: norm, rope, prepared (GK_PLAIN) to q; k: norm, rope, to the cache; v: (weightless norm) to the cache */
    int head_dim, heads, kv_heads;      /* kv_heads 0: q alone */
    int v_is_k, v_norm;                 /* v_is_k: no v rows; k rows give both */
    const float *q_norm, *k_norm;
    const float *angles; int pairs;     /* [tokens][2][pairs] cosines, sines; pairs past it do not turn */
    uint16_t *q; int ldq;               /* elements a token; head i at i * 2 * head_dim */
    struct gk_cache cache;
};
struct gk_residual {            /* h += rms(y) w; h *= scalar; out[i] = prepared rms(h) out[i].w */
    float *h;                           /* [tokens][n] */
    int n;                              /* <= GK_MOST_HIDDEN */
    const float *w;
    float scalar;
    struct gk_out out[GK_OUTS]; int outs;
    /* GK_EXPERTS: y = rms(y) dense_w + rms(sum over choices of weight * ey) experts_w first */
    const float *dense_w, *experts_w;
    float *ey;                          /* [tokens][top_k][n]; changed */
    const float *weight;                /* [tokens][top_k] */
    int top_k;
};
struct gk_ple {                 /* groups of n rows: ple[t][group] = (rms(y * scale) w + table row * sqrt(n)) * sqrt(1/2) */
    int n, groups;
    float scale;
    const float *w;
    struct gk_table table;
    float *ple;                         /* [tokens][groups * n] */
};
struct gk_route {               /* softmax over experts, the top_k, renormalised, times expert_scale; kept by rising expert */
    int experts, top_k;
    const float *expert_scale;
    float *weight;                      /* [tokens][top_k] */
    struct gk_job *job; int *jobs;      /* room for gk_jobs(tokens, experts, top_k) */
};
static inline int gk_jobs(int tokens, int experts, int top_k)
{
    int all = tokens * top_k, most = experts + all / 8;
    return all < most ? all : most;
}
struct gk_choice {              /* argmax, banned ids left out; of equal ones the lowest id */
    struct gk_best *best;               /* [tokens] */
    struct gk_best *partial;            /* [tokens][blocks]: blocks = the shaped launch's grid[0] */
    const int *banned; int n_banned;
    struct gk_top *top;                 /* [tokens]: the largest of all, banned or not, which takes y; NULL = not wanted */
    struct gk_top *top_partial;         /* [tokens][blocks], in no order */
};

/* Experts: the matrices come from tables by the jobs that GK_ROUTE made. */
struct gk_expert { struct gk_matrix m[2]; };    /* gate and up; or down */

struct gk_linear {
    enum gk_kind kind;
    int scale_shift;
    int rounded;                                /* int4: the value is bf16(level x scale), as in exact mode */
    int tokens, cols;
    const uint16_t *x; int ldx;                 /* prepared; elements a token */
    struct gk_matrix m[GK_SEGMENTS]; int segments;
    enum gk_epilogue epilogue;
    float *y; int ldy;
    struct gk_out act; int act_n;               /* GK_GATED, GK_GATE_BY: raw */
    const float *by; int ldby;
    float softcap;                              /* 0 = none */
    enum gk_finish finish;
    float eps;                                  /* of every norm */
    int group_rows;                             /* rows a group, a multiple of 16; 0 = all */
    unsigned *count;                            /* [groups] */
    union { struct gk_heads heads; struct gk_residual residual; struct gk_ple ple; struct gk_route route; struct gk_choice choice; } f;
    const struct gk_token *token;
    /* Experts beside or instead of the segments: GK_GATED over m[0], m[1] with x from expert_x by token, act to expert_act by token * top_k + choice; GK_STORE over
     * m[0] with x from expert_x and y to expert_y, both by token * top_k + choice. */
    const struct gk_expert *expert; int expert_rows, expert_cols, top_k, max_jobs;
    const struct gk_job *job; const int *jobs;
    const uint16_t *expert_x; int expert_ldx;
    struct gk_out expert_act; float *expert_y; int expert_ldy;
    struct gk_ahead ahead[2];
    int tiles, wpt;                             /* filled by gk_shape(): tiles of 16 rows, warps that share one */
};

/* Columns of the tensor core's tiles: 1, 4, 8 or 64 (linear.cuh).  1: one token, int4 with a scale every 32 columns and an even number of them a row.  int4 with scales in f32 has no 64. */
static inline int gk_columns(const struct gk_linear *a)
{
    const int pairs = (!a->segments || a->cols % 64 == 0) && (!a->max_jobs || a->expert_cols % 64 == 0);

    if (a->tokens == 1 && (a->kind == GK_INT4_BF16 || a->kind == GK_INT4_F16) && !a->scale_shift && !a->rounded && pairs)
        return 1;
    return a->tokens <= 4 ? 4 : a->tokens <= 8 || !a->segments || a->kind == GK_INT4_F32 ? 8 : 64;
}

/* --- attention --------------------------------------------------------------------------------------------------------- */

struct gk_attend {
    int tokens, heads, kv_heads, head_dim, window;      /* window 0 = full; head_dim a multiple of 32, <= 512 */
    float scale;
    const uint16_t *q; int ldq;
    struct gk_cache cache;
    const struct gk_token *token;
    int splits;                                 /* blocks that may share the positions of one token and head group, GK_STRIPE at a time in turn */
    float *partial;                             /* gk_attend_partial() floats */
    unsigned *count;                            /* gk_attend_groups() */
    struct gk_out out;                          /* [heads * head_dim], raw */
    struct gk_ahead ahead[2];
};
static inline int gk_head_groups(int heads, int kv_heads) { return kv_heads * ((heads / kv_heads + 7) / 8); }     /* up to 8 query heads of one KV head */
static inline int gk_attend_groups(int tokens, int heads, int kv_heads) { return tokens * gk_head_groups(heads, kv_heads); }
static inline size_t gk_attend_partial(int tokens, int heads, int kv_heads, int head_dim, int splits)
{
    return (size_t)gk_attend_groups(tokens, heads, kv_heads) * (size_t)splits * 8 * (size_t)(head_dim + 2);
}

/* --- embedding --------------------------------------------------------------------------------------------------------- */

struct gk_embed {               /* h = row(id) * scale; out[i] prepared from it */
    int tokens;
    struct gk_table table;
    const struct gk_token *token;
    float scale, eps;
    float *h;                           /* [tokens][cols] */
    struct gk_out out[GK_OUTS]; int outs;
};

/* out[i] = prepared vectors from h rows, e.g. the final norm of chosen tokens: token t of the output is row from[t] of h. */
struct gk_prepare { int tokens, n; float eps; const float *h; const int *from; struct gk_out out[GK_OUTS]; int outs; };

/* Plain read of n bytes, a multiple of 16: what bandwidth is measured against.  *sink ^= all words. */
struct gk_read { const void *p; uint64_t bytes; unsigned *sink; };

/* Nothing, for some cycles of the multiprocessors' clock: until what is to be timed has all been enqueued. */
struct gk_pause { int64_t cycles; };

/* --- a launch ---------------------------------------------------------------------------------------------------------- */

enum gk_kernel { GK_LINEAR, GK_FINISH, GK_ATTEND, GK_EMBED, GK_PREPARE, GK_READ, GK_PAUSE };

struct gk_launch {
    enum gk_kernel kernel;
    unsigned grid[3];           /* filled by gk_shape() */
    unsigned shared;            /* bytes of dynamic shared memory; filled by gk_shape() */
    uint64_t bytes;             /* weights and K/V read: for the builder's predictions, filled by it */
    const char *label;
    union { struct gk_linear linear; struct gk_attend attend; struct gk_embed embed; struct gk_prepare prepare; struct gk_read read; struct gk_pause pause; } a;   /* GK_FINISH: linear's */
};

struct gk_device { int sms; };
/* The launch's grid and shared memory.  NULL, or what is wrong with its shapes.  Plain C: no device needed. */
const char *gk_shape(struct gk_launch *l, const struct gk_device *d);

/* Enqueue on a stream (a cudaStream_t); NULL or CUDA's words.  follows: what the stream did last is a kernel of these, so this one may start early.  Only with nvcc. */
const char *gk_cuda_launch(const struct gk_launch *l, void *stream, int follows);
/* Brings the kernel's code to the GPU, so that its first launch needs nothing but launching: a graph may be recorded. */
const char *gk_cuda_load(const struct gk_launch *l);
/* Run to the end on the CPU; NULL or the first fault that was found (static text). */
const char *gk_host_launch(const struct gk_launch *l);

#ifdef __cplusplus
}
#endif
#endif
