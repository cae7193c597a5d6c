/* One int4 matrix times one vector, in steps: what each change of the kernel is for.  `make lab` builds build/release/lab, which on a GPU checks every version against the
 * CPU and then times it, the second cache flushed before each run; tests/unit/cuda_lab.cpp checks them in the host shim.
 *
 *   1  a thread a row, 4 bytes a load: neighbours are a row apart, so each load of a warp touches 32 places
 *   2  a warp a row, 4 bytes a load: a warp's loads are one line of 128 bytes
 *   3  a warp a row, 16 bytes a load: a quarter of the loads for as many bytes on their way; from here on the arithmetic, about five instructions a weight, is what fast memories wait for
 *   4  linear.cu: tensor cores take 2,048 weights in some 190 instructions of a warp; the next chunks are loaded while these are multiplied; columns are shared among warps
 */
#include "cuda/device.cuh"
#include "cuda/lab/lab.h"

namespace {

/* Levels of a word times eight activations. */
GK_DEVICE float word_times(uint32_t w, const float *x)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum = fmaf((float)((int)(w >> 4 * i & 15) - 8), x[i], sum);
    return sum;
}
GK_DEVICE float scale_of(const struct lab_gemv &a, int row, int group) { return bf16_value(a.scale[row * (a.cols / 32) + group]); }

__global__ void __launch_bounds__(GK_THREADS) thread_a_row(const __grid_constant__ struct lab_gemv a)
{
    const int row = (int)(blockIdx.x * GK_THREADS + threadIdx.x);
    float sum = 0;

    if (row >= a.rows)
        return;
    const uint32_t *w = (const uint32_t *)a.data + (size_t)row * (size_t)(a.cols / 8);
    for (int i = 0; i < a.cols / 8; i++)
        sum = fmaf(scale_of(a, row, i / 4), word_times(w[i], a.x + 8 * i), sum);
    a.y[row] = sum;
}

__global__ void __launch_bounds__(GK_THREADS) warp_a_row(const __grid_constant__ struct lab_gemv a)
{
    const int row = (int)blockIdx.x * WARPS + warp_id();
    float sum = 0;

    if (row >= a.rows)
        return;
    const uint32_t *w = (const uint32_t *)a.data + (size_t)row * (size_t)(a.cols / 8);
    for (int i = lane_id(); i < a.cols / 8; i += 32)
        sum = fmaf(scale_of(a, row, i / 4), word_times(w[i], a.x + 8 * i), sum);
    sum = warp_sum(sum);
    if (lane_id() == 0)
        a.y[row] = sum;
}

__global__ void __launch_bounds__(GK_THREADS) wide_loads(const __grid_constant__ struct lab_gemv a)
{
    const int row = (int)blockIdx.x * WARPS + warp_id();
    float sum = 0;

    if (row >= a.rows)
        return;
    const uint4 *w = (const uint4 *)a.data + (size_t)row * (size_t)(a.cols / 32);
    for (int i = lane_id(); i < a.cols / 32; i += 32) {
        const uint4 v = load_weights(w + i);
        const float *x = a.x + 32 * i;
        sum = fmaf(scale_of(a, row, i), word_times(v.x, x) + word_times(v.y, x + 8) + word_times(v.z, x + 16) + word_times(v.w, x + 24), sum);
    }
    sum = warp_sum(sum);
    if (lane_id() == 0)
        a.y[row] = sum;
}

}  // namespace

const struct lab_version lab_versions[LAB_VERSIONS] = {
    {"a thread a row", thread_a_row, GK_THREADS},
    {"a warp a row", warp_a_row, WARPS},
    {"16 bytes a load", wide_loads, WARPS},
};
