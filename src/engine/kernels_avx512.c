/* The kernels for AVX-512. */
#define VEC_AVX512
#define KERNELS kernels_avx512
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#include "engine/kernels_body.h"
