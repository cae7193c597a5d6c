/* Launches on the host shim. */
#include "cuda/host/host.h"
#include "cuda/table.cuh"

template <class A> static const char *run(const void *kernel, const struct gk_launch *l, const A &a)
{
    return gk_host_kernel((void (*)(const A))(uintptr_t)kernel, a, l->grid, GK_THREADS, l->shared);
}

const char *gk_host_launch(const struct gk_launch *l)
{
    switch (l->kernel) {
    case GK_LINEAR: return run(gk_linear_kernel(&l->a.linear), l, l->a.linear);
    case GK_FINISH: return run(gk_finish_kernel(), l, l->a.linear);
    case GK_ATTEND: return run(gk_attend_kernel(), l, l->a.attend);
    case GK_EMBED: return run(gk_embed_kernel(), l, l->a.embed);
    case GK_PREPARE: return run(gk_prepare_kernel(), l, l->a.prepare);
    case GK_READ: return run(gk_read_kernel(), l, l->a.read);
    case GK_PAUSE: return run(gk_pause_kernel(), l, l->a.pause);
    default: return "no such kernel";
    }
}
