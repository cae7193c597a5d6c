/* The versions of gemv.cu, for time.cu and for the test that holds them to the same judge. */
#ifndef CUDA_LAB_LAB_H
#define CUDA_LAB_LAB_H
#include <stdint.h>

/* y [rows] = data [rows, cols] (int4, a bf16 scale every 32 columns) x [cols]. */
struct lab_gemv { const uint8_t *data; const uint16_t *scale; const float *x; float *y; int rows, cols; };
struct lab_version { const char *name; void (*kernel)(const struct lab_gemv); int rows; };      /* rows a block */
enum { LAB_VERSIONS = 3 };
extern const struct lab_version lab_versions[LAB_VERSIONS];
#endif
