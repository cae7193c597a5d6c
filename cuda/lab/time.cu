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

int main(int argc, char **argv)
{
    const int rows = argc > 2 ? atoi(argv[1]) : 21504, cols = argc > 2 ? atoi(argv[2]) : 5376;
    struct cudaDeviceProp p;
    if (rows < 1 || cols < 64 || cols % 64) {
        fprintf(stderr, "lab: %d x %d: expected rows and a multiple of 64 columns\n", rows, cols);
        return 64;
    }
    must(cudaGetDeviceProperties(&p, 0), "no GPU");
    const size_t n = (size_t)rows * (size_t)cols, bytes = n / 2 + n / 16;
    uint8_t *data = managed<uint8_t>(n / 2);
    uint16_t *scale = managed<uint16_t>(n / 32), *prepared = managed<uint16_t>(2 * (size_t)gk_padded(cols));
    float *x = managed<float>((size_t)cols), *y = managed<float>((size_t)rows);
    srand(1);
    for (size_t i = 0; i < n / 2; i++)
        data[i] = (uint8_t)rand();
    for (size_t i = 0; i < n / 32; i++)
        scale[i] = (uint16_t)(0x3c00 + rand() % 0x80);
    for (int i = 0; i < cols; i++) {    /* multiples of 1/64 below 2: exact in one bf16 term */
        x[i] = (float)(rand() % 256 - 128) / 64;
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        prepared[i / 8 * 16 + i % 4 * 2 + i % 8 / 4] = (uint16_t)(bits >> 16);
    }
    std::vector<double> want((size_t)rows), size((size_t)rows);
    for (size_t r = 0; r < (size_t)rows; r++)
        for (int k = 0; k < cols; k++) {
            const uint32_t s = (uint32_t)scale[r * (size_t)(cols / 32) + (size_t)k / 32] << 16;
            float f;
            memcpy(&f, &s, 4);
            const double v = ((data[(r * (size_t)cols + (size_t)k) / 2] >> k % 2 * 4 & 15) - 8) * (double)f * (double)x[k];
            want[r] += v, size[r] += fabs(v);
        }

    const struct gk_device d = {p.multiProcessorCount};
    struct gk_launch flush = {}, read = {}, product = {};
    unsigned *sink = managed<unsigned>(1);
    uint8_t *other = nullptr;
    must(cudaMalloc(&other, 256 << 20), "memory");
    flush.kernel = read.kernel = GK_READ;
    flush.a.read = {other, 256 << 20, sink};
    read.a.read = {data, n / 2, sink};
    product.kernel = GK_LINEAR;
    struct gk_linear &a = product.a.linear;
    a.kind = GK_INT4_BF16, a.tokens = 1, a.cols = cols, a.x = prepared, a.m[0] = {data, scale, rows}, a.segments = 1, a.y = y, a.ldy = rows;
    must(gk_shape(&flush, &d));
    must(gk_shape(&read, &d));
    must(gk_shape(&product, &d));

    printf("%s, %d x %d, %.1f MB\n", p.name, rows, cols, (double)bytes / 1e6);
    const double plain = (double)(n / 2) / time_of([&] { must(gk_cuda_launch(&read, nullptr, 0)); }, flush) / 1e3;
    printf("%-20s %34.0f GB/s\n", "plain read", plain);
    for (int v = 0; v <= LAB_VERSIONS; v++) {
        struct lab_gemv g = {data, scale, x, y, rows, cols};
        void *arguments[] = {&g};
        memset(y, 0, (size_t)rows * sizeof *y);
        const double us = time_of([&] {
            if (v == LAB_VERSIONS)
                must(gk_cuda_launch(&product, nullptr, 0));
            else
                must(cudaLaunchKernel((const void *)lab_versions[v].kernel, dim3((unsigned)((rows + lab_versions[v].rows - 1) / lab_versions[v].rows)), dim3(GK_THREADS), arguments, 0, 0),
                    "launch");
        }, flush);
        double worst = 0;
        for (size_t r = 0; r < (size_t)rows; r++)
            worst = fmax(worst, fabs((double)y[r] - want[r]) / size[r]);
        printf("%d %-18s %10.1f us %10.0f GB/s %5.0f %% of a plain read, error %.1e%s\n", v + 1, v < LAB_VERSIONS ? lab_versions[v].name : "linear.cu", us, (double)bytes / us / 1e3,
            100 * (double)bytes / us / 1e3 / plain, worst, worst < 1e-4 ? "" : ": WRONG");
        if (worst >= 1e-4)
            return 1;
    }
    return 0;
}
