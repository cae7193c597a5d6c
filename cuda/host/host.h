/* The kernels on the CPU: memory that the shim knows, and launches.  One thread at a time. */
#ifndef CUDA_HOST_HOST_H
#define CUDA_HOST_HOST_H
#include <stdbool.h>
#include <stddef.h>
#include "cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif
/* "Device memory", zeroed: kernels may touch nothing else.  `name` stands in reports and must outlive it.  NULL when there is no memory. */
void *gk_host_alloc(size_t bytes, const char *name);
void gk_host_free(void *p);
/* Memory of somebody else's that kernels may read: a mapped file, say. */
bool gk_host_lend(const void *p, size_t bytes, const char *name);
void gk_host_unlend(const void *p);
/* Whether accesses are watched in this build (not under a sanitizer). */
bool gk_host_watches(void);
/* Tensor cores' sums from now on as GPUs form them, cut off instead of rounded; as they are, sums are closer than any GPU's. */
void gk_host_cut_sums(bool yes);
/* The next launch may begin before the one before it has ended, as on a GPU of compute capability 9: what that one writes may be touched after wait_for_previous() alone. */
void gk_host_follows(void);
/* with(kernel, argument) in every thread of every block; NULL or the first fault, in words that stay until the next launch. */
const char *gk_host_run(void (*with)(const void *kernel, const void *argument), const void *kernel, const void *argument, const unsigned grid[3], unsigned threads, unsigned shared);
#ifdef __cplusplus
}

/* A kernel that takes one struct by value. */
template <class A> const char *gk_host_kernel(void (*kernel)(const A), const A &argument, const unsigned (&grid)[3], unsigned threads, unsigned shared)
{
    return gk_host_run([](const void *k, const void *a) { ((void (*)(const A))(uintptr_t)k)(*(const A *)a); }, (const void *)kernel, &argument, grid, threads, shared);
}
#endif
#endif
