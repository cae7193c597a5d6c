#include "report/stats.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"

void sample_add(struct sample *s, double v)
{
    if ((s->n & (s->n - 1)) == 0)           /* full at every power of two */
        s->v = xreallocarray(s->v, s->n ? 2 * s->n : 1, sizeof *s->v);
    s->v[s->n++] = v;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sample_sort(struct sample *s)
{
    if (s->n)
        qsort(s->v, s->n, sizeof *s->v, ascending);
}

double sample_quantile(const struct sample *s, double q)
{
    if (s->n == 0)
        return NAN;
    const double at = q * (double)(s->n - 1);
    const size_t low = (size_t)at, high = low + 1 < s->n ? low + 1 : low;
    return s->v[low] + (at - (double)low) * (s->v[high] - s->v[low]);
}

/* Sorts v; of an even number, the mean of the middle two. */
static double median_of(double *v, size_t n)
{
    qsort(v, n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double sample_median(const struct sample *s)
{
    if (s->n == 0)
        return NAN;
    double *copy = xreallocarray(NULL, s->n, sizeof *copy);
    memcpy(copy, s->v, s->n * sizeof *copy);
    const double m = median_of(copy, s->n);
    free(copy);
    return m;
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double resampled_median(const struct sample *s, double *scratch, uint64_t *state)
{
    for (size_t i = 0; i < s->n; i++)
        scratch[i] = s->v[next(state) % s->n];
    return median_of(scratch, s->n);
}

bool stats_bootstrap(const struct sample *const *list, size_t n, stats_of_medians f, const void *ctx, struct interval *out)
{
    struct sample value = {NULL, 0};
    uint64_t state = 2026;
    size_t longest = 0;

    for (size_t i = 0; i < n; i++) {
        if (list[i]->n < STATS_INTERVAL_MIN)
            return false;
        longest = list[i]->n > longest ? list[i]->n : longest;
    }
    double *scratch = xreallocarray(NULL, longest, sizeof *scratch), *median = xreallocarray(NULL, n, sizeof *median);
    for (int k = 0; k < STATS_RESAMPLES; k++) {
        for (size_t i = 0; i < n; i++)
            median[i] = resampled_median(list[i], scratch, &state);
        const double v = f(median, ctx);
        if (isfinite(v))
            sample_add(&value, v);
    }
    free(scratch);
    free(median);
    const bool enough = value.n * 20 >= (size_t)STATS_RESAMPLES * 19;
    if (enough) {
        sample_sort(&value);
        *out = (struct interval){sample_quantile(&value, 0.025), sample_quantile(&value, 0.975)};
    }
    free(value.v);
    return enough;
}

/* Householder QR on [x | y], column by column; columns are few and first scaled to length 1, so that a small pivot means dependence. */
bool stats_least_squares(const double *x, const double *y, size_t rows, size_t cols, double *b)
{
    const size_t w = cols + 1;
    double *a = xreallocarray(NULL, rows * w, sizeof *a), *scale = xcalloc(cols, sizeof *scale);
    bool ok = rows >= cols;

    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < cols; k++) {
            a[i * w + k] = x[i * cols + k];
            scale[k] += x[i * cols + k] * x[i * cols + k];
        }
        a[i * w + cols] = y[i];
    }
    for (size_t k = 0; k < cols; k++) {
        scale[k] = sqrt(scale[k]);
        ok &= scale[k] > 0;
        for (size_t i = 0; i < rows && ok; i++)
            a[i * w + k] /= scale[k];
    }
    for (size_t k = 0; k < cols && ok; k++) {
        double norm = 0;
        for (size_t i = k; i < rows; i++)
            norm += a[i * w + k] * a[i * w + k];
        norm = a[k * w + k] > 0 ? -sqrt(norm) : sqrt(norm);
        if (fabs(norm) < 1e-9) {
            ok = false;
            break;
        }
        const double head = a[k * w + k] - norm, beta = head * norm;     /* v = column with its head replaced; H = 1 + v v' / beta */
        for (size_t j = k + 1; j < w; j++) {
            double dot = head * a[k * w + j];
            for (size_t i = k + 1; i < rows; i++)
                dot += a[i * w + k] * a[i * w + j];
            dot /= beta;
            a[k * w + j] += dot * head;
            for (size_t i = k + 1; i < rows; i++)
                a[i * w + j] += dot * a[i * w + k];
        }
        a[k * w + k] = norm;
    }
    for (size_t k = cols; k-- > 0 && ok;) {
        double v = a[k * w + cols];
        for (size_t j = k + 1; j < cols; j++)
            v -= a[k * w + j] * b[j];
        b[k] = v / a[k * w + k];
    }
    for (size_t k = 0; k < cols && ok; k++)
        b[k] /= scale[k];
    free(a);
    free(scale);
    return ok;
}
