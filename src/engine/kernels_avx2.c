/* The kernels for AVX2 with FMA and F16C. */
#define VEC_AVX2
#define KERNELS kernels_avx2
#define KERNELS_SIMD SIMD_AVX2
#include "engine/kernels_body.h"
