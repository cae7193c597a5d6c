/* What stands at a token's beginning and end: gathered rows, prepared vectors; and the plain read that bandwidth is measured against, and a pause.
 *
 * gate: embed registers 64 blocks 4 shared 64
 * gate: prepare registers 64 blocks 4 shared 64
 * gate: read registers 64 blocks 4 shared 0
 * gate: pause registers 64 blocks 4 shared 0
 */
#include "cuda/finish.cuh"
#include "cuda/table.cuh"

namespace {

__global__ void __launch_bounds__(GK_THREADS, 4) embed(const __grid_constant__ struct gk_embed a)
{
    GK_DYNAMIC(memory);
    wait_for_previous();
    let_next_start();
    const int token = (int)blockIdx.x, n = a.table.cols, id = a.token[token].id;
    float *h = a.h + (size_t)token * (size_t)n, sum = 0;

    for (int p = (int)threadIdx.x; p < n / 8; p += GK_THREADS) {
        floats8 x = table_piece(a.table, id, p);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x.v[i] *= a.scale;
        store8(h + 8 * p, x);
        sum += square(x);
    }
    put_outs<true>(a.out, a.outs, h, n, over_rms(team_sum<true>(sum, (float *)memory), n, a.eps), token);
}

__global__ void __launch_bounds__(GK_THREADS, 4) prepare(const __grid_constant__ struct gk_prepare a)
{
    GK_DYNAMIC(memory);
    wait_for_previous();
    let_next_start();
    const int token = (int)blockIdx.x;
    const float *h = a.h + (size_t)(a.from ? a.from[token] : token) * (size_t)a.n;
    float sum = 0;

    for (int p = (int)threadIdx.x; p < a.n / 8; p += GK_THREADS)
        sum += square(load8(h + 8 * p));
    put_outs<true>(a.out, a.outs, h, a.n, over_rms(team_sum<true>(sum, (float *)memory), a.n, a.eps), token);
}

/* 16 bytes a thread, four on their way. */
__global__ void __launch_bounds__(GK_THREADS, 4) read(const __grid_constant__ struct gk_read a)
{
    wait_for_previous();
    const uint4 *p = (const uint4 *)a.p;
    const size_t n = a.bytes / 16, step = (size_t)gridDim.x * GK_THREADS;
    uint32_t all = 0;

    size_t i = (size_t)blockIdx.x * GK_THREADS + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = load_weights(p + i + (size_t)j * step);
#pragma unroll
        for (int j = 0; j < 4; j++)
            all ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < n; i += step) {
        const uint4 v = load_weights(p + i);
        all ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    atomicXor(a.sink, all);
}

__global__ void __launch_bounds__(GK_THREADS, 4) pause(const __grid_constant__ struct gk_pause a)
{
    const long long from = cycles_now();
    while (cycles_now() - from < a.cycles)
        ;
}

}  // namespace

const void *gk_embed_kernel() { return (const void *)embed; }
const void *gk_prepare_kernel() { return (const void *)prepare; }
const void *gk_read_kernel() { return (const void *)read; }
const void *gk_pause_kernel() { return (const void *)pause; }
