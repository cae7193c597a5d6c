/* Linears of the formats that only others' checkpoints have: weights in f16 and f32, int4 with scales in f32. */
#include "cuda/linear.cuh"

const void *gk_linear_wide_kernel(const struct gk_linear *a)
{
    const int columns = gk_columns(a);

    return a->kind == GK_INT4_F32 ? linear_of<GK_INT4_F32>(columns) : a->kind == GK_F16 ? linear_of<GK_F16>(columns) : linear_of<GK_F32>(columns);
}
