/* Launches on CUDA. */
#include "cuda/kernels.h"
#include "cuda/table.cuh"

const char *gk_cuda_launch(const struct gk_launch *l, void *stream)
{
    const void *kernel = nullptr, *argument = nullptr;

    switch (l->kernel) {
    case GK_LINEAR: kernel = gk_linear_kernel(&l->a.linear), argument = &l->a.linear; break;
    case GK_FINISH: kernel = gk_finish_kernel(), argument = &l->a.linear; break;
    case GK_ATTEND: kernel = gk_attend_kernel(), argument = &l->a.attend; break;
    case GK_EMBED: kernel = gk_embed_kernel(), argument = &l->a.embed; break;
    case GK_PREPARE: kernel = gk_prepare_kernel(), argument = &l->a.prepare; break;
    case GK_READ: kernel = gk_read_kernel(), argument = &l->a.read; break;
    }
    void *arguments[] = {(void *)argument};
    const cudaError_t e = cudaLaunchKernel(kernel, dim3(l->grid[0], l->grid[1], l->grid[2]), dim3(GK_THREADS), arguments, l->shared, (cudaStream_t)stream);
    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}
