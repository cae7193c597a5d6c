/* The kernels for AVX-512 with VNNI. */
#define VEC_AVX512
#define KERNELS kernels_avx512
#define KERNELS_SIMD SIMD_AVX512
#include "engine/kernels_body.h"
