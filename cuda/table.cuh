/* The kernels as functions to launch: each takes its struct by value. */
#ifndef CUDA_TABLE_CUH
#define CUDA_TABLE_CUH
#include "cuda/kernels.h"

const void *gk_linear_kernel(const struct gk_linear *a);
const void *gk_linear_bytes_kernel(const struct gk_linear *a);     /* of its kinds: gk_linear_kernel() asks them */
const void *gk_linear_wide_kernel(const struct gk_linear *a);
const void *gk_finish_kernel();
const void *gk_attend_kernel();
const void *gk_embed_kernel();
const void *gk_prepare_kernel();
const void *gk_read_kernel();
const void *gk_pause_kernel();
#endif
