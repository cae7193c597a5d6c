/* The kernels for AVX-512 with VNNI. */
#define VEC_AVX512
#define KERNELS kernels_avx512
#define KERNELS_SIMD SIMD_AVX512
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#include "engine/kernels_body.h"
