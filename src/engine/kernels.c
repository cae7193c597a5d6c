#include "engine/kernels.h"

static const unsigned bits_of[] = {[W_F32] = 32, [W_BF16] = 16, [W_F16] = 16, [W_INT4] = 4, [W_INT8] = 8, [W_FP8] = 8};

static size_t scale_bytes(const struct matrix *w)
{
    return w->scale ? w->scales * st_dtype_bits(w->scale_type) / 8 : 0;
}

size_t matrix_row_bytes(const struct matrix *w)
{
    return w->cols * bits_of[w->kind] / 8;
}

uint64_t matrix_bytes(const struct matrix *w)
{
    return (uint64_t)w->rows * (matrix_row_bytes(w) + scale_bytes(w));
}

struct matrix matrix_rows(const struct matrix *w, size_t row, size_t rows)
{
    struct matrix part = *w;
    part.rows = rows;
    part.data += row * matrix_row_bytes(w);
    if (part.scale)
        part.scale += row * scale_bytes(w);
    return part;
}

const struct kernels *kernels_for(enum simd level)
{
    return level == SIMD_AVX512 && cpu_has_vnni() ? &kernels_avx512 : level >= SIMD_AVX2 ? &kernels_avx2 : &kernels_scalar;
}
