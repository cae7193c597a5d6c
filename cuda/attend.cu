/* Attention of one token over its pages: up to 8 query heads of one KV head a block, the positions split over blocks.
 *
 * Both products are linears with the cache as the weights: scores = K q (a row a key), out = V^T p (a row a column of V; pages keep V that way).  Queries and probabilities
 * are prepared as all activations are: hi and lo.  A stripe is 128 positions, 4 pages:
 *   1. warp w: scores of keys 16 w .. 16 w + 15
 *   2. warp h: the running maximum and sum of head h, probabilities
 *   3. warp w: rows 16 w .., 16 (w + 8) .. of V^T
 * The block that finishes last of a token's heads joins the splits in their order.
 *
 * gate: attend registers 128 blocks 2 shared 24992
 */
#include "cuda/finish.cuh"
#include "cuda/table.cuh"

namespace {

constexpr int STRIPE = 4 * GK_PAGE, SCORES = STRIPE + 4, PROBS = STRIPE * 4 + 16, HEADS = 8, MOST_TILES = 4;
static_assert(STRIPE == GK_STRIPE && HEADS * (SCORES * 4 + PROBS + 4) + 64 == GK_ATTEND_BYTES, "shape.c counts shared memory by these");

struct span { int first, last, stripes, first_stripe; };    /* positions seen, both included */

GK_DEVICE span span_of(int position, int window)
{
    span s;
    s.first = window > 0 ? max(0, position - window + 1) : 0;
    s.last = position;
    s.first_stripe = s.first / STRIPE;
    s.stripes = position / STRIPE - s.first_stripe + 1;
    return s;
}

struct view {                           /* one KV head of one sequence's cache */
    const struct gk_cache &c;
    int seq, kv_heads, kv_head, head_dim;
};
/* The page that holds a position, counted in this KV head's blocks of GK_PAGE x head_dim. */
GK_DEVICE size_t block_of(const view &v, int position)
{
    const int page = v.c.pages[v.seq * v.c.ld + position / GK_PAGE % v.c.ring];
    return ((size_t)page * (size_t)v.kv_heads + (size_t)v.kv_head) * GK_PAGE * (size_t)v.head_dim;
}

GK_DEVICE void multiply_both(float (&c)[4], const uint4 &a, const uint4 &b, const uint4 &hi, const uint4 &lo)
{
    mma(c, a.x, b.x, a.y, b.y, hi.x, hi.y);
    mma(c, a.z, b.z, a.w, b.w, hi.z, hi.w);
    mma(c, a.x, b.x, a.y, b.y, lo.x, lo.y);
    mma(c, a.z, b.z, a.w, b.w, lo.z, lo.w);
}

/* Scores of 16 keys from `key` on, for 8 heads; -inf where the key is not seen. */
GK_DEVICE void score(const struct gk_attend &a, const view &v, const span &s, int key, const uint16_t *q, bool head, float *scores)
{
    const int g = lane_id() / 4, t = lane_id() % 4, column = key % STRIPE;
    float c[4] = {0, 0, 0, 0};

    if (key <= s.last && key + 15 >= s.first) {         /* the same for a whole warp */
        const uint16_t *k = v.c.k + block_of(v, key) + (size_t)(key % GK_PAGE + g) * (size_t)v.head_dim + 8 * t;
#pragma unroll 4
        for (int i = 0; i < v.head_dim / 32; i++) {
            const uint4 low = *(const uint4 *)(k + 32 * i), high = *(const uint4 *)(k + 8 * v.head_dim + 32 * i);
            const uint4 *from = (const uint4 *)q + 2 * (4 * i + t);
            uint4 hi = make_uint4(0, 0, 0, 0), lo = hi;
            if (head)
                hi = from[0], lo = from[1];
            multiply_both(c, low, high, hi, lo);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = g + i / 2 * 8;
        scores[(2 * t + i % 2) * SCORES + column + row] = key + row >= s.first && key + row <= s.last ? c[i] * a.scale : -INFINITY;
    }
}

/* One head's scores of a stripe become probabilities relative to the new maximum; by how much the old ones shrink. */
GK_DEVICE float probabilities(const float *scores, uint16_t *probs, float &most, float &sum)
{
    const float4 s = *(const float4 *)(scores + 4 * lane_id());
    float now = fmaxf(fmaxf(s.x, s.y), fmaxf(s.z, s.w));
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        now = fmaxf(now, __shfl_xor_sync(ALL, now, i));
    now = fmaxf(now, most);
    const float shrink = expf(most - now);
    const float p[4] = {expf(s.x - now), expf(s.y - now), expf(s.z - now), expf(s.w - now)};
    uint32_t hi[2], lo[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        hi[i] = pack_bf16x2(p[2 * i], p[2 * i + 1]);
        lo[i] = pack_bf16x2(p[2 * i] - bf16_value(hi[i] & 0xffff), p[2 * i + 1] - bf16_value(hi[i] >> 16));
    }
    /* Lane i has keys 4 i .. 4 i + 3: half a piece. */
    uint2 *to = (uint2 *)(probs + lane_id() / 2 * 16) + lane_id() % 2;
    to[0] = make_uint2(hi[0], hi[1]);
    to[2] = make_uint2(lo[0], lo[1]);
    sum = sum * shrink + warp_sum(p[0] + p[1] + p[2] + p[3]);
    most = now;
    return shrink;
}

/* Columns of the output, tile by tile. */
GK_DEVICE void weigh(const view &v, const span &s, int stripe, const uint8_t *probs, float shrink0, float shrink1, float (&out)[MOST_TILES][4])
{
    const int g = lane_id() / 4, t = lane_id() % 4;

#pragma unroll
    for (int n = 0; n < MOST_TILES; n++) {
        const int row = (warp_id() + 8 * n) * 16;
        if (row >= v.head_dim)
            break;
        out[n][0] *= shrink0, out[n][1] *= shrink1, out[n][2] *= shrink0, out[n][3] *= shrink1;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const int key = stripe * STRIPE + p * GK_PAGE;
            if (key > s.last || key + GK_PAGE - 1 < s.first)
                continue;
            const uint16_t *from = v.c.v + block_of(v, key) + (size_t)(row + g) * GK_PAGE + 8 * t;
            const uint4 *b = (const uint4 *)(probs + g * PROBS + p * 128 + t * 32);
            multiply_both(out[n], *(const uint4 *)from, *(const uint4 *)(from + 8 * GK_PAGE), b[0], b[1]);
        }
    }
}

/* Columns 8 piece .. of one head, from its splits: sum of out e^(m - M) / sum of sum e^(m - M).  A split's row: head_dim values, m, sum. */
GK_DEVICE floats8 join(const float *split, size_t step, int splits, int head_dim, int piece)
{
    floats8 x = {{0, 0, 0, 0, 0, 0, 0, 0}};
    float most = -INFINITY, sum = 0;

    for (int i = 0; i < splits; i++)
        most = fmaxf(most, split[(size_t)i * step + (size_t)head_dim]);
    for (int i = 0; i < splits; i++) {
        const float *from = split + (size_t)i * step, by = expf(from[head_dim] - most);
#pragma unroll
        for (int k = 0; k < 8; k++)
            x.v[k] = fmaf(by, from[8 * piece + k], x.v[k]);
        sum = fmaf(by, from[head_dim + 1], sum);
    }
#pragma unroll
    for (int k = 0; k < 8; k++)
        x.v[k] /= sum;
    return x;
}

__global__ void __launch_bounds__(GK_THREADS, 2) attend(const __grid_constant__ struct gk_attend a)
{
    GK_DYNAMIC(memory);
    ask_ahead(a.ahead);
    wait_for_previous();
    let_next_start();
    float *const scores = (float *)memory;                              /* [8][SCORES] */
    uint8_t *const probs = memory + HEADS * SCORES * 4;                 /* [8][PROBS] */
    float *const shrink = (float *)(probs + HEADS * PROBS);             /* [8] */
    unsigned *const flag = (unsigned *)(shrink + HEADS);
    float *const rows = (float *)(memory + GK_ATTEND_BYTES);            /* [8][head_dim + 2] */
    const int shared_by = a.heads / a.kv_heads, parts = (shared_by + 7) / 8, group = (int)blockIdx.y, token = (int)blockIdx.z;
    const int first_head = group / parts * shared_by + group % parts * 8, heads = min(8, shared_by - group % parts * 8);
    const struct gk_token at = a.token[token];
    const span s = span_of(at.position, a.window);
    const view v = {a.cache, at.seq, a.kv_heads, group / parts, a.head_dim};
    const int g = lane_id() / 4, t = lane_id() % 4, wide = a.head_dim + 2, splits = min(a.splits, s.stripes);
    const uint16_t *q = a.q + (size_t)token * (size_t)a.ldq + (size_t)(first_head + min(g, heads - 1)) * 2 * (size_t)a.head_dim;
    float out[MOST_TILES][4] = {}, most = -INFINITY, sum = 0;

    if ((int)blockIdx.x >= splits)
        return;
    for (int i = (int)blockIdx.x; i < s.stripes; i += splits) {
        const int stripe = s.first_stripe + i;
        score(a, v, s, stripe * STRIPE + 16 * warp_id(), q, g < heads, scores);
        __syncthreads();
        const float by = probabilities(scores + warp_id() * SCORES, (uint16_t *)(probs + warp_id() * PROBS), most, sum);
        if (lane_id() == 0)
            shrink[warp_id()] = by;
        __syncthreads();
        weigh(v, s, stripe, probs, shrink[2 * t], shrink[2 * t + 1], out);
    }
#pragma unroll
    for (int n = 0; n < MOST_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = (warp_id() + 8 * n) * 16 + g + i / 2 * 8;
            if (row < a.head_dim)
                rows[(2 * t + i % 2) * wide + row] = out[n][i];
        }
    if (lane_id() == 0)
        rows[warp_id() * wide + a.head_dim] = most, rows[warp_id() * wide + a.head_dim + 1] = sum;
    __syncthreads();

    const float *from = rows;
    if (splits > 1) {
        const int index = token * (int)gridDim.y + group;
        float *const all = a.partial + (size_t)index * (size_t)a.splits * 8 * (size_t)wide, *mine = all + (size_t)blockIdx.x * 8 * (size_t)wide;
        for (int i = (int)threadIdx.x; i < heads * wide; i += GK_THREADS)
            mine[i] = rows[i];
        if (!last_of(a.count + index, (unsigned)splits, flag))
            return;
        from = all;
    }
    for (int i = (int)threadIdx.x; i < heads * a.head_dim / 8; i += GK_THREADS) {
        const int head = i / (a.head_dim / 8), piece = i % (a.head_dim / 8);
        const floats8 x = join(from + head * wide, (size_t)8 * (size_t)wide, splits, a.head_dim, piece);
        put_piece(a.out.x + (size_t)token * (size_t)a.out.ld, (first_head + head) * a.head_dim / 8 + piece, a.out.order, x.v);
    }
}

}  // namespace

const void *gk_attend_kernel() { return (const void *)attend; }
