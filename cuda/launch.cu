/* Launches on CUDA. */
#include "cuda/kernels.h"
#include "cuda/table.cuh"

/* Do the kernels that run here wait for the ones before them (device.cuh: compiled for 9.0 and up; code for older GPUs that the driver translated does not)? */
static bool starts_early()
{
    static const bool yes = [] {
        cudaFuncAttributes f = {};
        return cudaFuncGetAttributes(&f, gk_finish_kernel()) == cudaSuccess && f.ptxVersion >= 90;
    }();
    return yes;
}

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
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(l->grid[0], l->grid[1], l->grid[2]);
    c.blockDim = dim3(GK_THREADS);
    c.dynamicSmemBytes = l->shared;
    c.stream = (cudaStream_t)stream;
    c.attrs = &early;
    c.numAttrs = starts_early() ? 1 : 0;
    const cudaError_t e = cudaLaunchKernelExC(&c, kernel, arguments);
    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}
