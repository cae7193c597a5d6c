/* The lab on a GPU: every version of gemv.cu, and linear.cu, checked against the CPU and timed beside a plain read of as many bytes.  lab [ROWS COLS] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <functional>
#include <vector>
#include "cuda/kernels.h"
#include "cuda/lab/lab.h"

static void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "lab: %s: %s\n", what, cudaGetErrorString(e));
    exit(69);
}
static void must(const char *wrong)
{
    if (!wrong)
        return;
    fprintf(stderr, "lab: %s\n", wrong);
    exit(70);
}
template <class T> static T *managed(size_t n)
{
    T *p = nullptr;
    must(cudaMallocManaged(&p, n * sizeof(T)), "memory");
    memset((void *)p, 0, n * sizeof(T));
    return p;
}

/* The median of some runs in microseconds; before each, 256 MiB are read, more than any second cache. */
static double time_of(const std::function<void()> &run, struct gk_launch &flush)
{
    cudaEvent_t from, to;
    std::vector<float> ms(15);
    must(cudaEventCreate(&from), "event");
    must(cudaEventCreate(&to), "event");
    for (float &m : ms) {
        must(gk_cuda_launch(&flush, nullptr, 0));
        must(cudaEventRecord(from), "event");
        run();
        must(cudaEventRecord(to), "event");
        must(cudaEventSynchronize(to), "kernel");
        must(cudaEventElapsedTime(&m, from, to), "event");
    }
    std::sort(ms.begin(), ms.end());
    return 1000 * (double)ms[ms.size() / 2];
}

/* A matrix and a vector, prepared too; want: the exact product, size: the sum of |w x|, which errors are held to. */
struct problem {
    int rows, cols;
    uint8_t *data;
    uint16_t *scale, *prepared;
    float *x, *y;
    std::vector<double> want, size;
};

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static void judge(problem &p)
{
    for (size_t r = 0; r < (size_t)p.rows; r++)
        for (size_t k = 0; k < (size_t)p.cols; k++) {
            const size_t at = r * (size_t)p.cols + k;
            const int level = (p.data[at / 2] >> k % 2 * 4 & 15) - 8;
            const double v = level * (double)from_bits((uint32_t)p.scale[at / 32] << 16) * (double)p.x[k];
            p.want[r] += v, p.size[r] += fabs(v);
        }
}

static problem make_problem(int rows, int cols)
{
    const size_t n = (size_t)rows * (size_t)cols;
    problem p = {rows, cols, managed<uint8_t>(n / 2), managed<uint16_t>(n / 32), managed<uint16_t>(2 * (size_t)gk_padded(cols)), managed<float>((size_t)cols), managed<float>((size_t)rows),
        std::vector<double>((size_t)rows), std::vector<double>((size_t)rows)};

    srand(1);
    for (size_t i = 0; i < n / 2; i++)
        p.data[i] = (uint8_t)rand();
    for (size_t i = 0; i < n / 32; i++)
        p.scale[i] = (uint16_t)(0x3c00 + rand() % 0x80);
    for (int i = 0; i < cols; i++) {    /* multiples of 1/64 below 2: exact in one bf16 term */
        p.x[i] = (float)(rand() % 256 - 128) / 64;
        uint32_t bits;
        memcpy(&bits, &p.x[i], 4);
        p.prepared[i / 8 * 16 + i % 4 * 2 + i % 8 / 4] = (uint16_t)(bits >> 16);
    }
    judge(p);
    return p;
}

static double worst_error(const problem &p)
{
    double worst = 0;
    for (size_t r = 0; r < (size_t)p.rows; r++)
        worst = fmax(worst, fabs((double)p.y[r] - p.want[r]) / p.size[r]);
    return worst;
}

static struct gk_launch read_of(const void *from, uint64_t bytes, unsigned *sink, const struct gk_device &d)
{
    struct gk_launch l = {};
    l.kernel = GK_READ;
    l.a.read = {from, bytes, sink};
    must(gk_shape(&l, &d));
    return l;
}

static struct gk_launch product_of(const problem &p, const struct gk_device &d)
{
    struct gk_launch l = {};
    struct gk_linear &a = l.a.linear;
    l.kernel = GK_LINEAR;
    a.kind = GK_INT4_BF16, a.tokens = 1, a.cols = p.cols, a.x = p.prepared, a.m[0] = {p.data, p.scale, p.rows}, a.segments = 1, a.y = p.y, a.ldy = p.rows;
    must(gk_shape(&l, &d));
    return l;
}

static void run_version(const problem &p, const struct lab_version &v)
{
    struct lab_gemv g = {p.data, p.scale, p.x, p.y, p.rows, p.cols};
    void *arguments[] = {&g};
    must(cudaLaunchKernel((const void *)v.kernel, dim3((unsigned)((p.rows + v.rows - 1) / v.rows)), dim3(GK_THREADS), arguments, 0, 0), "launch");
}

int main(int argc, char **argv)
{
    const int rows = argc > 2 ? atoi(argv[1]) : 21504, cols = argc > 2 ? atoi(argv[2]) : 5376;
    if (rows < 1 || cols < 64 || cols % 64) {
        fprintf(stderr, "lab: %d x %d: expected rows and a multiple of 64 columns\n", rows, cols);
        return 64;
    }
    struct cudaDeviceProp gpu;
    must(cudaGetDeviceProperties(&gpu, 0), "no GPU");
    problem p = make_problem(rows, cols);
    const size_t levels = (size_t)rows * (size_t)cols / 2, bytes = levels + levels / 8;

    const struct gk_device d = {gpu.multiProcessorCount};
    unsigned *sink = managed<unsigned>(1);
    uint8_t *other = nullptr;
    must(cudaMalloc(&other, 256 << 20), "memory");
    struct gk_launch flush = read_of(other, 256 << 20, sink, d), read = read_of(p.data, levels, sink, d), product = product_of(p, d);

    printf("%s, %d x %d, %.1f MB\n", gpu.name, rows, cols, (double)bytes / 1e6);
    const double plain = (double)levels / time_of([&] { must(gk_cuda_launch(&read, nullptr, 0)); }, flush) / 1e3;
    printf("%-20s %34.0f GB/s\n", "plain read", plain);
    for (int v = 0; v <= LAB_VERSIONS; v++) {
        const bool last = v == LAB_VERSIONS;
        memset(p.y, 0, (size_t)rows * sizeof *p.y);
        const double us = time_of([&] { last ? must(gk_cuda_launch(&product, nullptr, 0)) : run_version(p, lab_versions[v]); }, flush);
        const double rate = (double)bytes / us / 1e3, worst = worst_error(p);
        printf("%d %-18s %10.1f us %10.0f GB/s %5.0f %% of a plain read, error %.1e%s\n", v + 1, last ? "linear.cu" : lab_versions[v].name, us, rate, 100 * rate / plain, worst,
            worst < 1e-4 ? "" : ": WRONG");
        if (worst >= 1e-4)
            return 1;
    }
    return 0;
}
