/* The kernels in plain C. */
#define VEC_SCALAR
#define KERNELS kernels_scalar
#define KERNELS_SIMD SIMD_SCALAR
#include "engine/kernels_body.h"
