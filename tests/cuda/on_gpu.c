/* The tests of tests/unit/cuda_*.cpp on a GPU: what they use of cuda/host/host.h, with memory that both sides see and launches on CUDA.  Faults of memory are compute-sanitizer's
 * to find there.  Without a GPU: exit status 69.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda/host/host.h"

bool gk_host_watches(void) { return false; }
void gk_host_cut_sums(bool yes) { (void)yes; }       /* a GPU's are */

void *gk_host_alloc(size_t bytes, const char *name)
{
    void *p = NULL;
    const cudaError_t e = cudaMallocManaged(&p, bytes, cudaMemAttachGlobal);

    (void)name;
    if (e != cudaSuccess) {
        printf("no GPU: %s\n", cudaGetErrorString(e));
        exit(69);
    }
    return memset(p, 0, bytes);
}
void gk_host_free(void *p) { (void)cudaFree(p); }

const char *gk_host_launch(const struct gk_launch *l)
{
    const char *words = gk_cuda_launch(l, NULL, 0);
    const cudaError_t e = cudaDeviceSynchronize();

    return words ? words : e == cudaSuccess ? NULL : cudaGetErrorString(e);
}
