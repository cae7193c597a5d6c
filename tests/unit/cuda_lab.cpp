/* The lab's kernels against the judge, in the host shim. */
#include "tests/cuda/judge.h"
#include "cuda/lab/lab.h"

static void test_gemv(const struct lab_version &v, int rows, int cols)
{
    const weights w = make_weights(GK_INT4_BF16, rows, cols);
    float *x = device<float>((size_t)cols, "x"), *y = device<float>((size_t)rows, "y");
    for (int i = 0; i < cols; i++)
        x[i] = activation();
    const struct lab_gemv a = {(const uint8_t *)w.m.data, (const uint16_t *)w.m.scale, x, y, rows, cols};
    const unsigned grid[3] = {(unsigned)((rows + v.rows - 1) / v.rows), 1, 1};
    const char *fault = gk_host_kernel(v.kernel, a, grid, GK_THREADS, 0);
    CHECK(!fault, "%s: %s", v.name, fault);
    double worst = 0;
    for (int r = 0; r < rows; r++) {
        const product want = multiply(w, r, x);
        worst = fmax(worst, fabs(y[r] - want.value) / linear_bound(cols, want.size));
    }
    CHECK(worst <= 1, "%s, %d x %d: %g times the bound", v.name, rows, cols, worst);
    free_all();
}

int main(void)
{
    for (const struct lab_version &v : lab_versions)
        for (int rows : {1, 33, 300})
            for (int cols : {64, 1536})
                test_gemv(v, rows, cols);
    return finish_tests();
}
