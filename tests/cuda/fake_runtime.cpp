/* CUDA's runtime without a GPU: what cuda/device_cuda.c and cuda/launch.cu call, on this process's memory, the kernels in the host shim.  So those two files, which no other test
 * without a GPU runs, are held to the rules by which the real runtime goes:
 *   - a stream's work is done when somebody waits for it, not before; a copy's memory is pinned on one side, or on the device, all of it
 *   - while a graph is recorded nothing may be asked, allocated or waited for, nor a kernel launched whose code is not on the device yet: cudaErrorStreamCaptureUnsupported
 *   - arguments are copied when a kernel is launched or recorded; its grid, block and shared memory stay within what a launch may ask for
 *   - a launch that may start early follows a kernel
 *   - an error of a kernel stays: every later call gives it
 * What is broken is said on stderr ("fake CUDA: …"), and the call fails.  A program that ends well leaves nothing behind.
 *
 * From the environment: Q4_FAKE_CUDA="FUNCTION:N:CODE …": the Nth call of cudaFUNCTION fails with that code; Q4_FAKE_GPUS (1), Q4_FAKE_CC (90),
 * Q4_FAKE_MEMORY (bytes), Q4_FAKE_L2 (bytes).
 */
#include <cuda_runtime_api.h>
#include <mutex>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <string>
#include <vector>
#include "cuda/host/host.h"
#include "cuda/table.cuh"

namespace {

enum kind { DEVICE, PINNED, MAPPED };
struct range { const unsigned char *p; size_t n; kind what; };
struct op {
    enum { COPY, KERNEL, EVENT } what;
    void *to = NULL; const void *from = NULL; size_t n = 0;
    const void *kernel = NULL; std::vector<unsigned char> argument = {}; unsigned grid[3] = {1, 1, 1}; unsigned shared = 0; bool early = false;
};
using ops = std::vector<op>;

std::recursive_mutex lock;
std::vector<range> ranges;
std::set<const void *> loaded;
std::set<std::string> said;
cudaError_t stuck = cudaSuccess;
size_t used, objects;                   /* objects: streams, events, graphs that are there */

}  // namespace

struct CUstream_st { ops todo; bool capturing, invalid, kernel_last; ops captured; };        /* kernel_last: what came last is a kernel */
struct CUevent_st { bool recorded; };
struct CUgraph_st { ops all; };
struct CUgraphExec_st { ops all; };

namespace {

std::vector<CUstream_st *> streams;

long setting(const char *name, long otherwise)
{
    const char *v = getenv(name);
    return v ? atol(v) : otherwise;
}
size_t memory() { return (size_t)setting("Q4_FAKE_MEMORY", 256 << 20); }

cudaError_t wrong(cudaError_t code, const char *function, const char *what)
{
    if (said.insert(std::string(function) + what).second)
        fprintf(stderr, "fake CUDA: %s: %s\n", function, what);
    return code;
}

/* What Q4_FAKE_CUDA says of this call; else what has gone wrong before. */
cudaError_t begin(const char *function)
{
    static std::vector<std::pair<std::string, long>> calls;
    long n = 0;
    for (auto &c : calls)
        if (c.first == function)
            n = ++c.second;
    if (!n)
        calls.push_back({function, n = 1});
    const char *plan = getenv("Q4_FAKE_CUDA");
    for (const char *p = plan; p && *p; p = strchr(p, ' ') ? strchr(p, ' ') + 1 : NULL) {
        char name[64];
        long at;
        int code;
        if (sscanf(p, "%63[^:]:%ld:%d", name, &at, &code) == 3 && !strcmp(name, function + strlen("cuda")) && at == n) {
            if (code >= 700 && code != cudaErrorStreamCaptureUnsupported)
                stuck = (cudaError_t)code;
            return (cudaError_t)code;
        }
    }
    return stuck;
}

/* Not while this stream, or any, is recorded. */
cudaError_t not_recording(const char *function)
{
    for (CUstream_st *s : streams)
        if (s->capturing) {
            s->invalid = true;
            return wrong(cudaErrorStreamCaptureUnsupported, function, "called while a graph is recorded");
        }
    return cudaSuccess;
}
#define CALL() \
    const std::lock_guard<std::recursive_mutex> guard(lock); \
    if (const cudaError_t begun = begin(__func__)) return begun
#define CALL_OUTSIDE() \
    CALL(); \
    if (const cudaError_t recording = not_recording(__func__)) return recording

/* What gives something back does so even when it says what went wrong before. */
#define GIVES_BACK() \
    const std::lock_guard<std::recursive_mutex> guard(lock); \
    cudaError_t said_of_it = begin(__func__); \
    if (!said_of_it) said_of_it = not_recording(__func__)

const range *holder(const void *p, size_t n, kind a, kind b)
{
    for (const range &r : ranges)
        if ((r.what == a || r.what == b) && (const unsigned char *)p >= r.p && (const unsigned char *)p + n <= r.p + r.n)
            return &r;
    return NULL;
}
cudaError_t drop(const char *function, const void *p, kind what)
{
    for (size_t i = 0; i < ranges.size(); i++)
        if (ranges[i].p == p && ranges[i].what == what) {
            used -= what == DEVICE ? ranges[i].n : 0;
            ranges.erase(ranges.begin() + (long)i);
            return cudaSuccess;
        }
    return wrong(cudaErrorInvalidValue, function, "no such memory");
}

template <class A> const char *run_as(const op &o)
{
    A a;
    memcpy(&a, o.argument.data(), sizeof a);
    return gk_host_kernel((void (*)(const A))(uintptr_t)o.kernel, a, o.grid, GK_THREADS, o.shared);
}
size_t argument_bytes(const void *kernel)
{
    return kernel == gk_attend_kernel() ? sizeof(struct gk_attend) : kernel == gk_embed_kernel() ? sizeof(struct gk_embed) : kernel == gk_prepare_kernel() ? sizeof(struct gk_prepare) :
        kernel == gk_read_kernel() ? sizeof(struct gk_read) : kernel == gk_pause_kernel() ? sizeof(struct gk_pause) : sizeof(struct gk_linear);
}
const char *run(const op &o)
{
    if (o.kernel == gk_attend_kernel())
        return run_as<struct gk_attend>(o);
    if (o.kernel == gk_embed_kernel())
        return run_as<struct gk_embed>(o);
    if (o.kernel == gk_prepare_kernel())
        return run_as<struct gk_prepare>(o);
    if (o.kernel == gk_read_kernel())
        return run_as<struct gk_read>(o);
    return o.kernel == gk_pause_kernel() ? run_as<struct gk_pause>(o) : run_as<struct gk_linear>(o);
}

cudaError_t finish(CUstream_st *s)
{
    for (const op &o : s->todo) {
        const char *fault = NULL;
        if (o.what == op::COPY)
            memcpy(o.to, o.from, o.n);
        else if (o.what == op::KERNEL) {
            if (o.early)
                gk_host_follows();
            fault = run(o);
        }
        if (fault) {
            stuck = cudaErrorIllegalAddress;
            return wrong(stuck, "a kernel", fault);
        }
    }
    s->todo.clear();
    return cudaSuccess;
}
ops &queue(CUstream_st *s) { return s->capturing ? s->captured : s->todo; }

/* No more is asked into the second cache than it holds besides what is read. */
bool asks_too_much(const op &o)
{
    const struct gk_ahead *ahead = o.kernel == gk_attend_kernel() ? ((const struct gk_attend *)o.argument.data())->ahead :
        argument_bytes(o.kernel) == sizeof(struct gk_linear) ? ((const struct gk_linear *)o.argument.data())->ahead : NULL;
    return ahead && (long)ahead[0].bytes + (long)ahead[1].bytes > setting("Q4_FAKE_L2", 48 << 20) / 2;
}

void report_left()
{
    if (objects || !ranges.empty())
        fprintf(stderr, "fake CUDA: left behind: %zu pieces of memory, %zu streams, events and graphs\n", ranges.size(), objects);
}

}  // namespace

extern "C" {

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorDevicesUnavailable: return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    default: return "some error";
    }
}
cudaError_t cudaGetLastError(void) { return stuck; }
cudaError_t cudaDriverGetVersion(int *v) { *v = 12040; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = (int)setting("Q4_FAKE_GPUS", 1);
    CALL_OUTSIDE();
    atexit(report_left);
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { CALL_OUTSIDE(); return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    CALL_OUTSIDE();
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Fake GPU");
    p->totalGlobalMem = memory();
    p->major = (int)setting("Q4_FAKE_CC", 90) / 10, p->minor = (int)setting("Q4_FAKE_CC", 90) % 10;
    p->multiProcessorCount = 4;
    p->l2CacheSize = (int)setting("Q4_FAKE_L2", 48 << 20);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    CALL_OUTSIDE();
    if (flags != cudaStreamNonBlocking)
        return wrong(cudaErrorInvalidValue, __func__, "a stream that waits for the default one");
    streams.push_back(*s = new CUstream_st());
    objects++;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    GIVES_BACK();
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == s)
            streams.erase(streams.begin() + (long)i);
    delete s;
    objects--;
    return said_of_it;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) { CALL_OUTSIDE(); *e = new CUevent_st(); objects++; return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t e) { GIVES_BACK(); delete e; objects--; return said_of_it; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { CALL_OUTSIDE(); e->recorded = true; s->todo.push_back({op::EVENT}), s->kernel_last = false; return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    CALL_OUTSIDE();
    *ms = 0.01f;
    return a->recorded && b->recorded ? cudaSuccess : wrong(cudaErrorInvalidResourceHandle, __func__, "an event that was never recorded");
}
cudaError_t cudaMemGetInfo(size_t *unused, size_t *all) { CALL_OUTSIDE(); *all = memory(), *unused = memory() - used; return cudaSuccess; }
cudaError_t cudaMalloc(void **p, size_t n)
{
    CALL_OUTSIDE();
    if (!n)
        return wrong(cudaErrorInvalidValue, __func__, "no bytes");
    if (n > memory() - used || !(*p = gk_host_alloc(n, "device memory")))
        return cudaErrorMemoryAllocation;
    memset(*p, 0xff, n);                /* what nobody has set is no number */
    ranges.push_back({(unsigned char *)*p, n, DEVICE});
    used += n;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
    GIVES_BACK();
    const cudaError_t e = drop(__func__, p, DEVICE);
    if (!e)
        gk_host_free(p);
    return said_of_it ? said_of_it : e;
}
cudaError_t cudaMemset(void *p, int c, size_t n)
{
    CALL_OUTSIDE();
    if (n && !holder(p, n, DEVICE, DEVICE))
        return wrong(cudaErrorInvalidValue, __func__, "memory that is not the device's");
    memset(p, c, n);
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    CALL_OUTSIDE();
    for (CUstream_st *s : streams)
        if (const cudaError_t e = finish(s))
            return e;
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
    CALL_OUTSIDE();
    if (!n)
        return wrong(cudaErrorInvalidValue, __func__, "no bytes");
    if (!(*p = gk_host_alloc(n, "pinned memory")))
        return cudaErrorMemoryAllocation;
    ranges.push_back({(unsigned char *)*p, n, PINNED});
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
    GIVES_BACK();
    const cudaError_t e = drop(__func__, p, PINNED);
    if (!e)
        gk_host_free(p);
    return said_of_it ? said_of_it : e;
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags)
{
    CALL_OUTSIDE();
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if ((uintptr_t)p % page || n % page || !n)
        return wrong(cudaErrorInvalidValue, __func__, "no whole pages");
    if (!(flags & cudaHostRegisterMapped))
        return wrong(cudaErrorInvalidValue, __func__, "memory that kernels are to read, and no address for them");
    for (const range &r : ranges)
        if (r.what != DEVICE && r.p < (unsigned char *)p + n && (unsigned char *)p < r.p + r.n)
            return wrong(cudaErrorHostMemoryAlreadyRegistered, __func__, "registered already");
    /* pinned pages are written to: those of a file that is mapped for reading are not taken */
    bool writable = false;
    if (FILE *maps = fopen("/proc/self/maps", "r")) {
        char line[512], may[8];
        unsigned long from, to;
        while (fgets(line, sizeof line, maps))
            if (sscanf(line, "%lx-%lx %7s", &from, &to, may) == 3 && (uintptr_t)p >= from && (uintptr_t)p < to)
                writable = may[1] == 'w';
        fclose(maps);
    }
    if (!writable)
        return wrong(cudaErrorInvalidValue, __func__, "memory that may only be read, without cudaHostRegisterReadOnly");
    if (!gk_host_lend(p, n, "mapped memory"))
        return cudaErrorMemoryAllocation;
    ranges.push_back({(unsigned char *)p, n, MAPPED});
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    GIVES_BACK();
    const cudaError_t e = drop(__func__, p, MAPPED);
    if (!e)
        gk_host_unlend(p);
    return said_of_it ? said_of_it : e;
}
cudaError_t cudaHostGetDevicePointer(void **to, void *p, unsigned)
{
    CALL_OUTSIDE();
    *to = p;
    return holder(p, 1, MAPPED, PINNED) ? cudaSuccess : wrong(cudaErrorInvalidValue, __func__, "memory that is not mapped");
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind how, cudaStream_t s)
{
    CALL();
    const bool up = how == cudaMemcpyHostToDevice, down = how == cudaMemcpyDeviceToHost;
    if (!n || !holder(to, n, down ? PINNED : DEVICE, down ? PINNED : DEVICE) || !holder(from, n, up ? PINNED : DEVICE, up ? PINNED : DEVICE))
        return wrong(cudaErrorInvalidValue, __func__, "memory that is not pinned, or not the device's, or nothing");
    queue(s).push_back({op::COPY, to, from, n});
    s->kernel_last = false;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    CALL_OUTSIDE();
    return finish(s);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
    CALL_OUTSIDE();
    s->capturing = true, s->invalid = s->kernel_last = false;
    s->captured.clear();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    CALL();
    s->capturing = false;
    if (s->invalid)
        return cudaErrorStreamCaptureInvalidated;
    *g = new CUgraph_st{s->captured};
    objects++;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long) { CALL_OUTSIDE(); *e = new CUgraphExec_st{g->all}; objects++; return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t g) { GIVES_BACK(); delete g; objects--; return said_of_it; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { GIVES_BACK(); delete e; objects--; return said_of_it; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    CALL_OUTSIDE();
    s->kernel_last = false;
    s->todo.insert(s->todo.end(), e->all.begin(), e->all.end());
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *f, const void *kernel)
{
    CALL();
    if (!loaded.count(kernel))
        if (const cudaError_t e = not_recording(__func__))
            return e;
    loaded.insert(kernel);
    memset(f, 0, sizeof *f);
    f->ptxVersion = (int)setting("Q4_FAKE_CC", 90);
    return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel, void **arguments)
{
    CALL();
    if (!loaded.count(kernel))
        if (const cudaError_t e = not_recording(__func__))
            return e;
    loaded.insert(kernel);
    const dim3 &g = c->gridDim, &b = c->blockDim;
    if (b.x * b.y * b.z != GK_THREADS || !g.x || !g.y || !g.z || g.x > 0x7fffffff || g.y > 65535 || g.z > 65535)
        return wrong(cudaErrorInvalidConfiguration, __func__, "a grid that no launch may have");
    if (c->dynamicSmemBytes > 48 << 10)
        return wrong(cudaErrorInvalidValue, __func__, "more than 48 KiB of shared memory, which no attribute allows");
    if (c->numAttrs && !c->stream->kernel_last)
        return wrong(cudaErrorInvalidValue, __func__, "to start early, after what is no kernel");
    op o = {op::KERNEL};
    o.kernel = kernel;
    o.argument.assign((unsigned char *)arguments[0], (unsigned char *)arguments[0] + argument_bytes(kernel));
    o.grid[0] = g.x, o.grid[1] = g.y, o.grid[2] = g.z;
    o.shared = (unsigned)c->dynamicSmemBytes;
    o.early = c->numAttrs;
    if (asks_too_much(o))
        return wrong(cudaErrorInvalidValue, __func__, "more asked into the second cache than it can hold until it is wanted");
    queue(c->stream).push_back(o);
    c->stream->kernel_last = true;
    return cudaSuccess;
}

}  // extern "C"
