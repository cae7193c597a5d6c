/* Linears of int8, e4m3 and bf16 weights. */
#include "cuda/linear.cuh"

const void *gk_linear_bytes_kernel(const struct gk_linear *a)
{
    const int columns = gk_columns(a);

    return a->kind == GK_INT8 ? linear_of<GK_INT8>(columns) : a->kind == GK_FP8 ? linear_of<GK_FP8>(columns) : linear_of<GK_BF16>(columns);
}
