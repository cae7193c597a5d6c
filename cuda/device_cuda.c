/* cuda/device.h on CUDA's runtime. */
#include "cuda/device.h"
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct device_graph { cudaGraphExec_t exec; uint64_t launches; struct device_graph *next; };
struct held { void *p; enum { ON_DEVICE, PINNED, MAPPED } how; };

struct device {
    struct device_facts facts;
    cudaStream_t stream, lane[DEVICE_LANES];
    struct held *held; size_t n_held;
    struct device_graph *graphs;
    cudaEvent_t event[2];
    uint64_t launches, recorded;        /* recorded: in the graph that is being made */
    bool recording;
    bool after_kernel;                  /* the stream's last work is a kernel: what follows one may start early */
};

static int failed(cudaError_t code, const char *what, struct err *e)
{
    return err_set(e, code == cudaErrorMemoryAllocation ? EXIT_TEMPFAIL : EXIT_UNAVAILABLE, "the GPU: %s: %s", what, cudaGetErrorString(code));
}

#define PAUSE_CYCLES 60000      /* some 30 us */

#define TRY(call, what) do { const cudaError_t try_code = (call); if (try_code != cudaSuccess) return failed(try_code, what, e); } while (0)

static int too_old(struct err *e)
{
    int driver = 0, runtime = 0;

    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    return err_set(e, EXIT_UNAVAILABLE, "the driver is one for CUDA %d.%d, and this was built with %d.%d: install a newer driver, build with an older toolkit, or use --device cpu",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

static int find(struct device *d, struct err *e)
{
    struct cudaDeviceProp p;
    int n = 0;

    /* The runtime does not survive want of memory where there is no driver: without one it is not even asked. */
    if (!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL))
        return err_set(e, EXIT_UNAVAILABLE, "no GPU is here (no driver: libcuda.so.1 is not installed): use --device cpu");
    const cudaError_t code = cudaGetDeviceCount(&n);

    if (code == cudaErrorInsufficientDriver)
        return too_old(e);
    if (code != cudaSuccess || n == 0)
        return err_set(e, EXIT_UNAVAILABLE, "no GPU is here (%s): use --device cpu", code == cudaSuccess ? "the driver lists none" : cudaGetErrorString(code));
    TRY(cudaSetDevice(0), "cannot be used");
    TRY(cudaGetDeviceProperties(&p, 0), "does not say what it is");
    if (10 * p.major + p.minor < 75)
        return err_set(e, EXIT_UNAVAILABLE, "%s has compute capability %d.%d: the kernels need 7.5: use --device cpu", p.name, p.major, p.minor);
    d->facts = (struct device_facts){.kind = "cuda", .memory = p.totalGlobalMem, .l2 = p.l2CacheSize > 0 ? (uint64_t)p.l2CacheSize : 0, .sms = p.multiProcessorCount};
    memcpy(d->facts.name, p.name, sizeof d->facts.name - 1);
    TRY(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "no stream");
    for (int i = 0; i < DEVICE_LANES; i++)
        TRY(cudaStreamCreateWithFlags(&d->lane[i], cudaStreamNonBlocking), "no stream");
    return 0;
}

struct device *device_open(struct err *e)
{
    struct device *d = xcalloc(1, sizeof *d);

    if (find(d, e)) {
        device_close(d);
        return NULL;
    }
    return d;
}

void device_close(struct device *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n_held; i++) {
        switch (d->held[i].how) {
        case ON_DEVICE: cudaFree(d->held[i].p); break;
        case PINNED: cudaFreeHost(d->held[i].p); break;
        case MAPPED: cudaHostUnregister(d->held[i].p); break;
        }
    }
    while (d->graphs) {
        struct device_graph *g = d->graphs;
        d->graphs = g->next;
        cudaGraphExecDestroy(g->exec);
        free(g);
    }
    for (int i = 0; i < DEVICE_LANES; i++)
        if (d->lane[i])
            cudaStreamDestroy(d->lane[i]);
    for (int i = 0; i < 2; i++)
        if (d->event[i])
            cudaEventDestroy(d->event[i]);
    if (d->stream)
        cudaStreamDestroy(d->stream);
    free(d->held);
    free(d);
}

const struct device_facts *device_facts(const struct device *d) { return &d->facts; }
uint64_t device_launches(const struct device *d) { return d->launches; }

uint64_t device_unused(struct device *d)
{
    size_t unused = 0, all = 0;

    (void)d;
    return cudaMemGetInfo(&unused, &all) == cudaSuccess ? unused : 0;
}

static void *hold(struct device *d, void *p, int how)
{
    d->held = xreallocarray(d->held, d->n_held + 1, sizeof *d->held);
    d->held[d->n_held++] = (struct held){p, how};
    return p;
}

void *device_alloc(struct device *d, uint64_t bytes, struct err *e)
{
    void *p = NULL;
    cudaError_t code = cudaMalloc(&p, bytes ? bytes : 1);

    if (code == cudaSuccess) {
        hold(d, p, ON_DEVICE);
        code = cudaMemset(p, 0, bytes);
    }
    if (code == cudaSuccess)        /* the streams do not wait for it by themselves */
        code = cudaDeviceSynchronize();
    if (code == cudaSuccess)
        return p;
    const uint64_t unused = device_unused(d);
    (void)cudaGetLastError();
    if (code == cudaErrorMemoryAllocation)
        (void)err_set(e, EXIT_TEMPFAIL, "%s: no room for %.2f GB: %.2f of %.2f GB are unused: take a smaller build, or a smaller --max-context", d->facts.name,
            (double)bytes / 1e9, (double)unused / 1e9, (double)d->facts.memory / 1e9);
    else
        (void)failed(code, "memory", e);
    return NULL;
}

void *device_pinned(struct device *d, size_t bytes, struct err *e)
{
    void *p = NULL;
    const cudaError_t code = cudaHostAlloc(&p, bytes, cudaHostAllocDefault);

    if (code == cudaSuccess)
        return memset(hold(d, p, PINNED), 0, bytes);
    (void)failed(code, "pinned memory", e);
    return NULL;
}

const void *device_map(struct device *d, const void *host, size_t bytes, struct err *e)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)host / page * page, to = ((uintptr_t)host + bytes + page - 1) / page * page;
    void *at = NULL;
    cudaError_t code = cudaHostRegister((void *)from, to - from, cudaHostRegisterMapped);

    if (code == cudaSuccess) {
        hold(d, (void *)from, MAPPED);
        code = cudaHostGetDevicePointer(&at, (void *)from, 0);
    }
    if (code == cudaSuccess)
        return (const char *)at + ((uintptr_t)host - from);
    (void)err_set(e, code == cudaErrorMemoryAllocation ? EXIT_TEMPFAIL : EXIT_UNAVAILABLE, "the GPU cannot read %.2f GB of this machine's memory (%s): use --ple gpu",
        (double)bytes / 1e9, cudaGetErrorString(code));
    return NULL;
}

int device_upload(struct device *d, void *to, const void *from, size_t n, struct err *e)
{
    d->after_kernel = false;
    TRY(cudaMemcpyAsync(to, from, n, cudaMemcpyHostToDevice, d->stream), "an upload");
    return 0;
}

int device_download(struct device *d, void *to, const void *from, size_t n, struct err *e)
{
    d->after_kernel = false;
    TRY(cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToHost, d->stream), "a download");
    return 0;
}

int device_copy(struct device *d, void *to, const void *from, size_t n, struct err *e)
{
    d->after_kernel = false;
    TRY(cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, d->stream), "a copy");
    return 0;
}

int device_launch(struct device *d, const struct gk_launch *l, struct err *e)
{
    const char *words = gk_cuda_launch(l, d->stream, d->after_kernel);

    d->after_kernel = true;
    *(d->recording ? &d->recorded : &d->launches) += 1;
    return words ? err_set(e, EXIT_UNAVAILABLE, "the GPU: kernel %s: %s", l->label, words) : 0;
}

int device_prepare(struct device *d, const struct gk_launch *l, struct err *e)
{
    const char *words = gk_cuda_load(l);

    (void)d;
    return words ? err_set(e, EXIT_UNAVAILABLE, "the GPU: kernel %s: %s", l->label, words) : 0;
}

int device_wait(struct device *d, struct err *e)
{
    TRY(cudaStreamSynchronize(d->stream), "failed while it ran");
    return 0;
}

int device_timed(struct device *d, const struct gk_launch *l, double *us, struct err *e)
{
    float ms = 0;

    for (int i = 0; i < 2; i++)
        if (!d->event[i])
            TRY(cudaEventCreate(&d->event[i]), "no event");
    /* The GPU waits until all is enqueued: else the host's time would be measured, which is more than most kernels take. */
    struct gk_launch pause = {.kernel = GK_PAUSE, .grid = {1, 1, 1}, .label = "pause", .a.pause = {PAUSE_CYCLES}};
    const char *words = gk_cuda_launch(&pause, d->stream, 0);
    if (words)
        return err_set(e, EXIT_UNAVAILABLE, "the GPU: kernel %s: %s", pause.label, words);
    TRY(cudaEventRecord(d->event[0], d->stream), "no time");
    d->after_kernel = false;
    if (device_launch(d, l, e))
        return -1;
    TRY(cudaEventRecord(d->event[1], d->stream), "no time");
    d->after_kernel = false;
    TRY(cudaStreamSynchronize(d->stream), "failed while it ran");
    TRY(cudaEventElapsedTime(&ms, d->event[0], d->event[1]), "no time");
    *us = 1e3 * (double)ms;
    return 0;
}

int device_record(struct device *d, struct err *e)
{
    TRY(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "no graph begins");
    d->recording = true;
    d->after_kernel = false;
    d->recorded = 0;
    return 0;
}

struct device_graph *device_recorded(struct device *d, struct err *e)
{
    cudaGraph_t graph = NULL;
    struct device_graph *g = xcalloc(1, sizeof *g);
    cudaError_t code = cudaStreamEndCapture(d->stream, &graph);

    d->recording = false;
    if (code == cudaSuccess)
        code = cudaGraphInstantiateWithFlags(&g->exec, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (code != cudaSuccess) {
        free(g);
        (void)failed(code, "no graph", e);
        return NULL;
    }
    g->launches = d->recorded;
    g->next = d->graphs;
    return d->graphs = g;
}

int device_replay(struct device *d, struct device_graph *g, struct err *e)
{
    d->after_kernel = false;
    TRY(cudaGraphLaunch(g->exec, d->stream), "a graph does not start");
    d->launches += g->launches;
    return 0;
}

int device_lane_upload(struct device *d, int lane, void *to, const void *pinned, size_t n, struct err *e)
{
    TRY(cudaMemcpyAsync(to, pinned, n, cudaMemcpyHostToDevice, d->lane[lane]), "an upload");
    return 0;
}

int device_lane_wait(struct device *d, int lane, struct err *e)
{
    TRY(cudaStreamSynchronize(d->lane[lane]), "an upload");
    return 0;
}
