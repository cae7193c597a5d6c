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

static const void *kernel_of(const struct gk_launch *l, const void **argument)
{
    switch (l->kernel) {
    case GK_LINEAR: *argument = &l->a.linear; return gk_linear_kernel(&l->a.linear);
    case GK_FINISH: *argument = &l->a.linear; return gk_finish_kernel();
    case GK_ATTEND: *argument = &l->a.attend; return gk_attend_kernel();
    case GK_EMBED: *argument = &l->a.embed; return gk_embed_kernel();
    case GK_PREPARE: *argument = &l->a.prepare; return gk_prepare_kernel();
    case GK_PAUSE: *argument = &l->a.pause; return gk_pause_kernel();
    default: *argument = &l->a.read; return gk_read_kernel();
    }
}

const char *gk_cuda_load(const struct gk_launch *l)
{
    const void *argument;
    cudaFuncAttributes f = {};
    (void)starts_early();               /* asks for a kernel of its own, which may not happen while a graph is recorded */
    const cudaError_t e = cudaFuncGetAttributes(&f, kernel_of(l, &argument));

    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}

const char *gk_cuda_launch(const struct gk_launch *l, void *stream, int follows)
{
    const void *argument = nullptr, *const kernel = kernel_of(l, &argument);
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
    c.numAttrs = follows && starts_early() ? 1 : 0;
    const cudaError_t e = cudaLaunchKernelExC(&c, kernel, arguments);
    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}
