/* Linears of int4 weights, and the finishers alone.  Other formats are compiled apart (linear_bytes.cu, linear_wide.cu), so that all can be at once.
 *
 * gate: linear registers 128 blocks 2 shared 32832
 * gate: finish registers 128 blocks 2 shared 12384
 * (Registers a thread, blocks a multiprocessor of an L4 holds, bytes of shared memory a block: tests/cuda-gates.bats holds the compiler to them.)
 */
#include "cuda/linear.cuh"

namespace {

/* The finishers alone, for many tokens: a block a group and token (routing: one block). */
__global__ void __launch_bounds__(GK_THREADS) finish(const __grid_constant__ struct gk_linear a)
{
    GK_DYNAMIC(memory);
    end_room &end = *(end_room *)memory;

    wait_for_previous();
    let_next_start();
    if (a.finish == GK_ROUTE)
        finish_route(a, *(route_room *)(memory + sizeof(end_room)));
    else if (a.finish == GK_HEADS || a.finish == GK_PLE) {
        const int i = (int)blockIdx.x * WARPS + warp_id(), groups = a.finish == GK_HEADS ? a.f.heads.heads + a.f.heads.kv_heads * (a.f.heads.v_is_k ? 1 : 2) : a.f.ple.groups;
        if (i < groups)
            finish_token(a, i, (int)blockIdx.y);
    } else {
        finish_residual(a, (int)blockIdx.y, end.word);
    }
}

}  // namespace

const void *gk_linear_kernel(const struct gk_linear *a)
{
    const int columns = gk_columns(a);

    switch (a->kind) {
    case GK_INT4_BF16: return linear_of<GK_INT4_BF16>(columns);
    case GK_INT4_F16: return linear_of<GK_INT4_F16>(columns);
    case GK_INT8: case GK_FP8: case GK_BF16: return gk_linear_bytes_kernel(a);
    default: return gk_linear_wide_kernel(a);
    }
}
const void *gk_finish_kernel() { return (const void *)finish; }
