/* What the last block of a group of rows does with them: norms, rope, residual, routing, argmax.
 *
 * A team works on one token: the whole block when there is one token, else a warp for each.  Vectors go in pieces of 8 columns.
 */
#ifndef CUDA_FINISH_CUH
#define CUDA_FINISH_CUH
#include "cuda/device.cuh"

struct floats8 { float v[8]; };

GK_DEVICE floats8 load8(const float *p)
{
    const float4 a = load_l2(p), b = load_l2(p + 4);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
GK_DEVICE floats8 ones() { return {{1, 1, 1, 1, 1, 1, 1, 1}}; }
GK_DEVICE void store8(float *p, const floats8 &v)
{
    ((float4 *)p)[0] = make_float4(v.v[0], v.v[1], v.v[2], v.v[3]);
    ((float4 *)p)[1] = make_float4(v.v[4], v.v[5], v.v[6], v.v[7]);
}
GK_DEVICE float square(const floats8 &x)
{
    float s = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        s = fmaf(x.v[i], x.v[i], s);
    return s;
}
/* x r w; w NULL = 1. */
GK_DEVICE floats8 normed(const floats8 &x, float r, const float *w)
{
    const floats8 by = w ? load8(w) : ones();
    floats8 y;
#pragma unroll
    for (int i = 0; i < 8; i++)
        y.v[i] = x.v[i] * r * by.v[i];
    return y;
}
GK_DEVICE float over_rms(float sum, int n, float eps) { return 1 / sqrtf(sum / (float)n + eps); }

/* Each warp's x to all of the block; what `shared` held has been read by then. */
GK_DEVICE void tell_block(float x, float *shared)
{
    __syncthreads();
    if (lane_id() == 0)
        shared[warp_id()] = x;
    __syncthreads();
}

/* Sum over a team; `shared` holds a word a warp.  Every thread of the block calls it. */
template <bool BLOCK> GK_DEVICE float team_sum(float x, float *shared)
{
    x = warp_sum(x);
    if (!BLOCK)
        return x;
    tell_block(x, shared);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        sum += shared[i];
    return sum;
}

/* Prepared vectors of one token's h [n]; the squares' sum is known. */
template <bool BLOCK> GK_DEVICE void put_outs(const struct gk_out *out, int outs, const float *h, int n, float r, int token)
{
    for (int o = 0; o < outs; o++)
        for (int p = rank_in_team<BLOCK>(); p < n / 8; p += team_size<BLOCK>()) {
            const floats8 x = load8(h + 8 * p), y = out[o].raw ? x : normed(x, r, out[o].w ? out[o].w + 8 * p : nullptr);
            put_piece(out[o].x + (size_t)token * (size_t)out[o].ld, p, out[o].order, y.v);
        }
}

/* --- residual ---------------------------------------------------------------------------------------------------------- */

/* y = rms(y) dense_w + rms(e) experts_w, e = the weighted sum of the experts' outputs; e takes the place of the first of them. */
template <bool BLOCK> GK_DEVICE void join_experts(const struct gk_residual &f, float eps, float *y, int token, float *shared)
{
    float *ey = f.ey + (size_t)token * (size_t)f.top_k * (size_t)f.n;
    const float *weight = f.weight + token * f.top_k;
    float dense = 0, experts = 0;

    for (int p = rank_in_team<BLOCK>(); p < f.n / 8; p += team_size<BLOCK>()) {
        floats8 e = {{0, 0, 0, 0, 0, 0, 0, 0}};
        for (int k = 0; k < f.top_k; k++) {
            const floats8 x = load8(ey + (size_t)k * (size_t)f.n + 8 * p);
#pragma unroll
            for (int i = 0; i < 8; i++)
                e.v[i] = fmaf(weight[k], x.v[i], e.v[i]);
        }
        store8(ey + 8 * p, e);
        experts += square(e);
        dense += square(load8(y + 8 * p));
    }
    const float rd = over_rms(team_sum<BLOCK>(dense, shared), f.n, eps), re = over_rms(team_sum<BLOCK>(experts, shared), f.n, eps);
    for (int p = rank_in_team<BLOCK>(); p < f.n / 8; p += team_size<BLOCK>()) {
        floats8 d = normed(load8(y + 8 * p), rd, f.dense_w + 8 * p);
        const floats8 e = normed(load8(ey + 8 * p), re, f.experts_w + 8 * p);
#pragma unroll
        for (int i = 0; i < 8; i++)
            d.v[i] += e.v[i];
        store8(y + 8 * p, d);
    }
}

/* h + y r w, then times scalar. */
GK_DEVICE floats8 added(const floats8 &h, const floats8 &y, float r, const floats8 &w, float scalar)
{
    floats8 x;
#pragma unroll
    for (int i = 0; i < 8; i++)
        x.v[i] = (h.v[i] + y.v[i] * r * w.v[i]) * scalar;
    return x;
}

/* One token, by a warp. */
GK_DEVICE void finish_residual_of(const struct gk_linear &a, int token, float *shared)
{
    const struct gk_residual &f = a.f.residual;
    float *y = a.y + (size_t)token * (size_t)a.ldy, *h = f.h + (size_t)token * (size_t)f.n;
    float sum = 0;

    if (a.finish == GK_EXPERTS)
        join_experts<false>(f, a.eps, y, token, shared);
    for (int p = lane_id(); p < f.n / 8; p += 32)
        sum += square(load8(y + 8 * p));
    const float r = over_rms(warp_sum(sum), f.n, a.eps);
    sum = 0;
    for (int p = lane_id(); p < f.n / 8; p += 32) {
        const floats8 x = added(load8(h + 8 * p), load8(y + 8 * p), r, load8(f.w + 8 * p), f.scalar);
        store8(h + 8 * p, x);
        sum += square(x);
    }
    put_outs<false>(f.out, f.outs, h, f.n, over_rms(warp_sum(sum), f.n, a.eps), token);
}

/* One token, by the block: the rest of the GPU waits for it, so everything is asked for at once and stays in registers. */
GK_DEVICE void finish_residual(const struct gk_linear &a, int token, float *shared)
{
    constexpr int KEPT = GK_MOST_HIDDEN / 8 / GK_THREADS;
    const struct gk_residual &f = a.f.residual;
    float *y = a.y + (size_t)token * (size_t)a.ldy, *h = f.h + (size_t)token * (size_t)f.n;
    floats8 vy[KEPT], vh[KEPT], vw[KEPT];
    float sum = 0;

    if (a.finish == GK_EXPERTS)
        join_experts<true>(f, a.eps, y, token, shared);
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        const int p = (int)threadIdx.x + i * GK_THREADS;
        if (p < f.n / 8)
            vy[i] = load8(y + 8 * p), vh[i] = load8(h + 8 * p), vw[i] = load8(f.w + 8 * p);
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++)
        sum += (int)threadIdx.x + i * GK_THREADS < f.n / 8 ? square(vy[i]) : 0;
    const float r = over_rms(team_sum<true>(sum, shared), f.n, a.eps);
    sum = 0;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        const int p = (int)threadIdx.x + i * GK_THREADS;
        if (p >= f.n / 8)
            break;
        vh[i] = added(vh[i], vy[i], r, vw[i], f.scalar);
        store8(h + 8 * p, vh[i]);
        sum += square(vh[i]);
        if (f.outs && f.out[0].w)
            vw[i] = load8(f.out[0].w + 8 * p);
    }
    const float r2 = over_rms(team_sum<true>(sum, shared), f.n, a.eps);
    for (int o = 0; o < f.outs; o++) {
        const struct gk_out &out = f.out[o];
#pragma unroll
        for (int i = 0; i < KEPT; i++) {
            const int p = (int)threadIdx.x + i * GK_THREADS;
            if (p >= f.n / 8)
                break;
            floats8 x = vh[i];
            if (!out.raw) {
                const floats8 w = !out.w ? ones() : o == 0 ? vw[i] : load8(out.w + 8 * p);
#pragma unroll
                for (int k = 0; k < 8; k++)
                    x.v[k] = x.v[k] * r2 * w.v[k];
            }
            put_piece(out.x + (size_t)token * (size_t)out.ld, p, out.order, x.v);
        }
    }
}

/* --- heads ------------------------------------------------------------------------------------------------------------- */

/* Columns 8p .. and those half a head further on, turned by the position's angles. */
GK_DEVICE void turn(floats8 &a, floats8 &b, const float *angles, int pairs, int piece)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int k = 8 * piece + i;
        if (k >= pairs)
            break;
        const float c = angles[k], s = angles[pairs + k], x = a.v[i], y = b.v[i];
        a.v[i] = x * c - y * s;
        b.v[i] = y * c + x * s;
    }
}

GK_DEVICE void put_key(uint16_t *k, const floats8 &v)
{
    *(uint4 *)k = make_uint4(pack_bf16x2(v.v[0], v.v[1]), pack_bf16x2(v.v[2], v.v[3]), pack_bf16x2(v.v[4], v.v[5]), pack_bf16x2(v.v[6], v.v[7]));
}
GK_DEVICE void put_value_row(uint16_t *v, const floats8 &x)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i * GK_PAGE] = (uint16_t)pack_bf16x2(x.v[i], 0);
}

/* One head of one token, by a warp: lane i has columns 8i .. and those half a head on (head_dim <= 512). */
GK_DEVICE void finish_head(const struct gk_linear &a, int head, int token)
{
    const struct gk_heads &f = a.f.heads;
    const int hd = f.head_dim, lane = lane_id(), half = hd / 2, kv = head - f.heads;
    const float *y = a.y + (size_t)token * (size_t)a.ldy + (size_t)head * (size_t)hd + 8 * lane;
    const bool mine = lane < half / 8;
    const bool is_q = kv < 0, is_k = !is_q && kv < f.kv_heads, to_v = !is_q && (!is_k || f.v_is_k);
    const floats8 x = mine ? load8(y) : floats8{{0, 0, 0, 0, 0, 0, 0, 0}}, z = mine ? load8(y + half) : x;
    const float r = over_rms(warp_sum(square(x) + square(z)), hd, a.eps);

    if (!mine)
        return;
    const struct gk_token at = a.token[token];
    const int page = is_q ? 0 : f.cache.pages[at.seq * f.cache.ld + at.position / GK_PAGE % f.cache.ring], slot = at.position % GK_PAGE;
    const size_t kv_head = (size_t)page * (size_t)f.kv_heads + (size_t)(is_q ? 0 : kv % f.kv_heads);     /* heads of all pages lie one after another */
    if (to_v) {
        uint16_t *to = f.cache.v + (kv_head * (size_t)hd + 8 * (size_t)lane) * GK_PAGE + (size_t)slot;
        put_value_row(to, f.v_norm ? normed(x, r, nullptr) : x);
        put_value_row(to + half * GK_PAGE, f.v_norm ? normed(z, r, nullptr) : z);
    }
    if (!is_q && !is_k)
        return;
    const float *w = (is_q ? f.q_norm : f.k_norm) + 8 * lane;
    floats8 low = normed(x, r, w), high = normed(z, r, w + half);
    turn(low, high, f.angles + (size_t)token * 2 * (size_t)f.pairs, f.pairs, lane);
    if (is_q) {
        uint16_t *to = f.q + (size_t)token * (size_t)f.ldq + (size_t)head * 2 * (size_t)hd;
        put_piece(to, lane, GK_PLAIN, low.v);
        put_piece(to, half / 8 + lane, GK_PLAIN, high.v);
    } else {
        uint16_t *to = f.cache.k + (kv_head * GK_PAGE + (size_t)slot) * (size_t)hd + 8 * lane;
        put_key(to, low);
        put_key(to + half, high);
    }
}

/* --- per-layer embeddings ---------------------------------------------------------------------------------------------- */

/* Columns 8 piece .. of a table's row; int4 rounded to bf16 as the CPU's gathered rows are. */
GK_DEVICE floats8 table_piece(const struct gk_table &t, int row, int piece)
{
    const size_t at = (size_t)row * (size_t)t.cols + 8 * (size_t)piece;
    floats8 v;

    switch (t.kind) {
    case GK_INT4_BF16: case GK_INT4_F16: case GK_INT4_F32: {
        const uint32_t w = *(const uint32_t *)((const uint8_t *)t.data + at / 2);
        const size_t group = (size_t)row * (size_t)(t.cols / 32 >> t.scale_shift) + (size_t)(piece / 4 >> t.scale_shift);
        const float s = t.kind == GK_INT4_F32 ? ((const float *)t.scale)[group] : t.kind == GK_INT4_F16 ? f16_value(((const uint16_t *)t.scale)[group]) : bf16_value(((const uint16_t *)t.scale)[group]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v.v[i] = bf16_value(pack_bf16x2((float)((int)(w >> 4 * i & 15) - 8) * s, 0) & 0xffff);
        return v;
    }
    case GK_INT8: case GK_FP8: {
        const uint8_t *p = (const uint8_t *)t.data + at;
        const float s = ((const float *)t.scale)[row];
#pragma unroll
        for (int i = 0; i < 8; i++)
            v.v[i] = (t.kind == GK_INT8 ? (float)(int8_t)p[i] : __uint_as_float((p[i] & 0x80u) << 24 | (p[i] & 0x7fu) << 20) * 0x1p120f) * s;
        return v;
    }
    case GK_F32: {
        const float *p = (const float *)t.data + at;
#pragma unroll
        for (int i = 0; i < 8; i++)
            v.v[i] = p[i];
        return v;
    }
    default: {
        const uint16_t *p = (const uint16_t *)t.data + at;
#pragma unroll
        for (int i = 0; i < 8; i++)
            v.v[i] = t.kind == GK_F16 ? f16_value(p[i]) : bf16_value(p[i]);
        return v;
    }
    }
}

/* One layer's vector of one token, by a warp. */
GK_DEVICE void finish_ple(const struct gk_linear &a, int group, int token)
{
    const struct gk_ple &f = a.f.ple;
    const float *y = a.y + (size_t)token * (size_t)a.ldy + (size_t)group * (size_t)f.n;
    float *to = f.ple + (size_t)token * (size_t)f.n * (size_t)f.groups + (size_t)group * (size_t)f.n;
    float sum = 0;

    for (int p = lane_id(); p < f.n / 8; p += 32)
        sum += square(load8(y + 8 * p));
    /* rms(y s) = y s / sqrt(s^2 mean(y^2) + eps) */
    const float r = f.scale * over_rms(warp_sum(sum) * f.scale * f.scale, f.n, a.eps), root = sqrtf((float)f.n);
    for (int p = lane_id(); p < f.n / 8; p += 32) {
        floats8 x = normed(load8(y + 8 * p), r, f.w + 8 * p);
        const floats8 row = table_piece(f.table, a.token[token].id, group * f.n / 8 + p);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x.v[i] = fmaf(row.v[i], root, x.v[i]) * 0.70710678118654752f;
        store8(to + 8 * p, x);
    }
}

/* --- routing ----------------------------------------------------------------------------------------------------------- */

constexpr int MAX_EXPERTS = GK_THREADS, MAX_CHOICES = 1024;     /* tokens x top_k */

struct route_room { float score[WARPS][MAX_EXPERTS]; int choice[MAX_CHOICES]; int jobs[WARPS]; };

/* Softmax, choice and weights of one token, by a warp. */
GK_DEVICE void choose(const struct gk_linear &a, int token, route_room &room)
{
    const struct gk_route &f = a.f.route;
    const float *y = a.y + (size_t)token * (size_t)a.ldy;
    float *score = room.score[warp_id()], most = -INFINITY, sum = 0;

    __syncwarp();
    for (int i = lane_id(); i < f.experts; i += 32) {
        score[i] = y[i];
        most = fmaxf(most, score[i]);
    }
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        most = fmaxf(most, __shfl_xor_sync(ALL, most, i));
    __syncwarp();
    /* The place of an expert among the chosen is how many chosen ones have lower numbers; its rank, how many are better (equal ones: the lower number first). */
    int before = 0;
    for (int first = 0; first < f.experts; first += 32) {
        const int i = first + lane_id();
        int better = 0;
        for (int j = 0; j < f.experts && i < f.experts; j++)
            better += score[j] > score[i] || (score[j] == score[i] && j < i);
        const bool chosen = i < f.experts && better < f.top_k;
        const unsigned votes = __ballot_sync(ALL, chosen);
        const int nth = before + __popc(votes & ((1u << lane_id()) - 1));
        if (chosen && nth < f.top_k) {          /* nothing is better than NaN: of a broken model's scores more may be chosen than there is room for */
            const int place = token * f.top_k + nth;
            const float e = expf(score[i] - most);
            room.choice[place] = i;
            f.weight[place] = e * f.expert_scale[i];
            sum += e;
        }
        before += __popc(votes);
    }
    sum = warp_sum(sum);
    __syncwarp();
    for (int i = lane_id(); i < f.top_k; i += 32)
        f.weight[token * f.top_k + i] /= sum;
}

/* All tokens, by the block; then each expert's pairs in order of token, 8 a job. */
GK_DEVICE void finish_route(const struct gk_linear &a, route_room &room)
{
    const struct gk_route &f = a.f.route;
    const int all = a.tokens * f.top_k, expert = (int)threadIdx.x;

    for (int t = warp_id(); t < a.tokens; t += WARPS)
        choose(a, t, room);
    __syncthreads();
    int n = 0;
    for (int i = 0; i < all; i++)
        n += room.choice[i] == expert;
    /* Where this expert's jobs begin: a sum over the experts before it, in its warp, then over warps. */
    const int mine = (n + 7) / 8;
    int upto = mine;
    for (int i = 1; i < 32; i *= 2) {
        const int from = __shfl_sync(ALL, upto, lane_id() - i);
        upto += lane_id() >= i ? from : 0;
    }
    if (lane_id() == 31)
        room.jobs[warp_id()] = upto;
    __syncthreads();
    int first = upto - mine;
    for (int i = 0; i < warp_id(); i++)
        first += room.jobs[i];
    if (expert == GK_THREADS - 1)
        *f.jobs = first + mine;
    int k = 0;
    for (int i = 0; i < all && k < n; i++) {
        if (room.choice[i] != expert)
            continue;
        struct gk_job *job = f.job + first + k / 8;
        if (k % 8 == 0) {
            job->expert = expert;
            job->n = min(n - k, 8);
        }
        job->at[k % 8].token = i / f.top_k;
        job->at[k % 8].choice = i % f.top_k;
        k++;
    }
}

/* --- argmax ------------------------------------------------------------------------------------------------------------ */

GK_DEVICE bool is_better(float value, int id, const struct gk_best &than) { return value > than.value || (value == than.value && id < than.id); }
GK_DEVICE struct gk_best better_of_warp(struct gk_best b)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const float value = __shfl_xor_sync(ALL, b.value, i);
        const int id = __shfl_xor_sync(ALL, b.id, i);
        if (is_better(value, id, b))
            b = {value, id};
    }
    return b;
}
GK_DEVICE void finish_best(const struct gk_choice &f, int token, int blocks)
{
    struct gk_best b = {-INFINITY, 0x7fffffff};

    for (int i = lane_id(); i < blocks; i += 32) {
        const struct gk_best &p = f.partial[(size_t)token * (size_t)blocks + (size_t)i];
        if (is_better(p.value, p.id, b))
            b = p;
    }
    b = better_of_warp(b);
    if (lane_id() == 0)
        f.best[token] = b;
}

/* --- the largest ------------------------------------------------------------------------------------------------------- */

/* (value, id) as one number, the better one larger: of equal values the lower id.  Nobody: less than anybody. */
GK_DEVICE uint64_t key_of(const struct gk_best &b)
{
    const uint32_t bits = __float_as_uint(b.value + 0.0f);      /* -0 is 0 */
    return (uint64_t)(bits & 0x80000000u ? ~bits : bits | 0x80000000u) << 32 | ~(uint32_t)b.id;
}
GK_DEVICE struct gk_best best_of(uint64_t key)
{
    const uint32_t bits = (uint32_t)(key >> 32);
    return {__uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits), (int)~(uint32_t)key};
}
GK_DEVICE uint64_t nobody() { return key_of({-INFINITY, -1}); }

struct top_room { unsigned bins[256]; uint64_t list[GK_TOP]; float word[WARPS]; unsigned n, unused; };

/* The `want`th of a team's n keys, or a number between it and the next: as many as wanted are not less (nobody may be there several times).  A digit of 8 bits at a time. */
template <bool BLOCK, class KEYS> GK_DEVICE uint64_t least_wanted(const KEYS &keys, int n, unsigned want, top_room &room)
{
    uint64_t least = 0, above = 0;

    for (int shift = 56;; above |= (uint64_t)255 << shift, shift -= 8) {
        for (int i = rank_in_team<BLOCK>(); i < 256; i += team_size<BLOCK>())
            room.bins[i] = 0;
        team_sync<BLOCK>();
        for (int i = rank_in_team<BLOCK>(); i < n; i += team_size<BLOCK>()) {
            const uint64_t key = keys(i);
            if (!((key ^ least) & above))
                atomicAdd(&room.bins[key >> shift & 255], 1u);
        }
        team_sync<BLOCK>();
        /* Every warp counts for itself, from the last bin down: eight bins a lane. */
        unsigned mine = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            mine += room.bins[255 - 8 * lane_id() - i];
        unsigned upto = mine;
        for (int i = 1; i < 32; i *= 2) {
            const unsigned from = __shfl_sync(ALL, upto, lane_id() - i);
            upto += lane_id() >= i ? from : 0;
        }
        const int lane = __ffs((int)__ballot_sync(ALL, upto >= want)) - 1;
        unsigned before = __shfl_sync(ALL, upto - mine, lane);
        int digit = 255 - 8 * lane;
        for (; before + room.bins[digit] < want; digit--)
            before += room.bins[digit];
        least |= (uint64_t)(unsigned)digit << shift;
        want -= before;
        const bool found = room.bins[digit] == want || shift == 0;
        team_sync<BLOCK>();
        if (found)
            return least;
    }
}

/* The GK_TOP largest of a team's n keys into room.list, in no order; nobody where there are fewer. */
template <bool BLOCK, class KEYS> GK_DEVICE void collect_top(const KEYS &keys, int n, top_room &room)
{
    const uint64_t least = least_wanted<BLOCK>(keys, n, (unsigned)min(n, GK_TOP), room);

    for (int i = rank_in_team<BLOCK>(); i < GK_TOP; i += team_size<BLOCK>())
        room.list[i] = nobody();
    if (rank_in_team<BLOCK>() == 0)
        room.n = 0;
    team_sync<BLOCK>();
    for (int i = rank_in_team<BLOCK>(); i < n; i += team_size<BLOCK>()) {
        const uint64_t key = keys(i);
        if (key >= least && key != nobody())
            room.list[atomicAdd(&room.n, 1u)] = key;
    }
    team_sync<BLOCK>();
}

/* Largest over a team, as team_sum. */
template <bool BLOCK> GK_DEVICE float team_most(float x, float *shared)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL, x, i));
    if (!BLOCK)
        return x;
    tell_block(x, shared);
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        x = fmaxf(x, shared[i]);
    return x;
}

/* What this block has computed of one token's logits: rows of tiles that it walked, `run` rows at a time. */
template <bool BLOCK> GK_DEVICE void leave_top_of(const struct gk_linear &a, int token, int run, int n, top_room &room)
{
    const float *y = a.y + (size_t)token * (size_t)a.ldy;
    struct gk_top &to = a.f.choice.top_partial[(size_t)token * gridDim.x + blockIdx.x];
    const auto row_of = [&](int i) { return ((int)blockIdx.x + i / run * (int)gridDim.x) * run + i % run; };
    const auto keys = [&](int i) {
        const int row = row_of(i);
        return row < a.m[0].rows ? key_of({y[row], row}) : nobody();
    };

    collect_top<BLOCK>(keys, n, room);
    float most = -INFINITY, sum = 0;
    for (int i = rank_in_team<BLOCK>(); i < GK_TOP; i += team_size<BLOCK>()) {
        to.best[i] = best_of(room.list[i]);
        most = fmaxf(most, to.best[i].value);
    }
    most = team_most<BLOCK>(most, room.word);
    for (int i = rank_in_team<BLOCK>(); i < n; i += team_size<BLOCK>())
        sum += row_of(i) < a.m[0].rows ? expf(y[row_of(i)] - most) : 0;
    sum = team_sum<BLOCK>(sum, room.word);
    if (rank_in_team<BLOCK>() == 0)
        to.most = most, to.sum = sum;
}

/* The blocks' lists of one token become one, in order. */
template <bool BLOCK> GK_DEVICE void finish_top_of(const struct gk_choice &f, int token, int blocks, top_room &room)
{
    const struct gk_top *from = f.top_partial + (size_t)token * (size_t)blocks;
    struct gk_top &to = f.top[token];
    const auto keys = [&](int i) {
        const float2 b = load_l2_pair((const float *)&from[i / GK_TOP].best[i % GK_TOP]);
        return key_of({b.x, (int)__float_as_uint(b.y)});
    };
    float most = -INFINITY, sum = 0;

    collect_top<BLOCK>(keys, blocks * GK_TOP, room);
    for (int i = rank_in_team<BLOCK>(); i < GK_TOP; i += team_size<BLOCK>()) {
        const uint64_t key = room.list[i];
        int rank = 0;
        for (int j = 0; j < GK_TOP; j++)
            rank += room.list[j] > key || (room.list[j] == key && j < i);
        to.best[rank] = best_of(key);
    }
    for (int i = rank_in_team<BLOCK>(); i < blocks; i += team_size<BLOCK>())
        most = fmaxf(most, load_l2_pair(&from[i].most).x);
    most = team_most<BLOCK>(most, room.word);
    for (int i = rank_in_team<BLOCK>(); i < blocks; i += team_size<BLOCK>()) {
        const float2 b = load_l2_pair(&from[i].most);
        sum += b.y * expf(b.x - most);
    }
    sum = team_sum<BLOCK>(sum, room.word);
    if (rank_in_team<BLOCK>() == 0)
        to.most = most, to.sum = sum;
}

/* --- one group, for all its tokens -------------------------------------------------------------------------------------- */

GK_DEVICE void finish_token(const struct gk_linear &a, int group, int token)
{
    if (a.finish == GK_HEADS)
        finish_head(a, group, token);
    else if (a.finish == GK_PLE)
        finish_ple(a, group, token);
}
#endif
