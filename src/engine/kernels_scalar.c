/* The kernels in plain C. */
#define VEC_SCALAR
#define KERNELS kernels_scalar
#include "engine/kernels_body.h"
