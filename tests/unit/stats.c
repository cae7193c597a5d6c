/* Statistics: quantiles and least squares against numpy's numbers; what the bootstrap interval covers on simulated data. */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/stats.h"

static void near(const char *what, double got, double want)
{
    printf("%s: %s: %.17g, numpy %.17g\n", fabs(got - want) < 1e-12 * fmax(1, fabs(want)) ? "ok" : "WRONG", what, got, want);
    assert(fabs(got - want) < 1e-12 * fmax(1, fabs(want)));
}

/* numpy.quantile, default method, of the same lists. */
static void quantiles(void)
{
    static const double v[] = {3.1, 0.2, 9.7, 4.4, 4.4, 1.0, 7.25, 2.5, 6.0, 8.8, 5.5}, w[] = {2.0, 7.0, 1.5, 3.25};
    static const struct { double q, want; } of_v[] = {{0, 0.2}, {0.01, 0.28}, {0.25, 2.8}, {0.5, 4.4}, {0.9, 8.8}, {0.99, 9.61}, {1, 9.7}}, of_w[] = {{0.1, 1.65}, {0.33, 1.995}, {0.95, 6.437499999999998}};
    struct sample a = {NULL, 0}, b = {NULL, 0}, none = {NULL, 0};

    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        sample_add(&a, v[i]);
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        sample_add(&b, w[i]);
    near("median of four", sample_median(&b), 2.625);
    assert(b.v[0] == 2.0);
    sample_sort(&a);
    sample_sort(&b);
    for (size_t i = 0; i < sizeof of_v / sizeof *of_v; i++)
        near("quantile of eleven", sample_quantile(&a, of_v[i].q), of_v[i].want);
    for (size_t i = 0; i < sizeof of_w / sizeof *of_w; i++)
        near("quantile of four", sample_quantile(&b, of_w[i].q), of_w[i].want);
    assert(isnan(sample_quantile(&none, 0.5)) && isnan(sample_median(&none)));
    free(a.v);
    free(b.v);
}

static void least_squares(void)
{
    static const double x[] = {1, 2, 0.5, 2, 1, 1.5, 3, 3, 0.1, 4, 1, 2.2, 5, 0, 7, 6, 2, 1}, y[] = {1, 2, 3.5, 4, 9, 6.2}, want[] = {0.8637119259760937, 0.08335869402689622, 0.6097912800260346};
    static const double twice[] = {1, 2, 2, 4, 3, 6};
    double b[3];

    assert(stats_least_squares(x, y, 6, 3, b));
    for (int k = 0; k < 3; k++)
        near("least squares", b[k], want[k]);
    assert(!stats_least_squares(twice, y, 3, 2, b));
    assert(!stats_least_squares(x, y, 2, 3, b));
    printf("ok: dependent columns and too few rows are refused\n");
}

/* The simulation's own generator (xorshift64*), not the one under test. */
static uint64_t rng = 88172645463325252u;
static double uniform(void)
{
    rng ^= rng >> 12;
    rng ^= rng << 25;
    rng ^= rng >> 27;
    return ((double)((rng * 2685821657736338717u) >> 11) + 0.5) / 9007199254740992.0;
}
static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

/* As the decode rate is made: (long - short) of one build over that of the other. */
static double ratio(const double *m, const void *ctx)
{
    (void)ctx;
    return (m[3] - m[2]) / (m[1] - m[0]);
}

/* Walls with 3 % of log-normal noise, n each; the true ratio is 1.25. */
static double covered(size_t n, int trials, double *width)
{
    static const double center[] = {50, 850, 50, 1050};
    int hits = 0;

    *width = 0;
    for (int t = 0; t < trials; t++) {
        struct sample s[4] = {{NULL, 0}};
        const struct sample *list[4];
        struct interval in;
        for (int k = 0; k < 4; k++) {
            for (size_t i = 0; i < n; i++)
                sample_add(&s[k], center[k] * exp(0.03 * normal()));
            list[k] = &s[k];
        }
        assert(stats_bootstrap(list, 4, ratio, NULL, &in));
        hits += in.low <= 1.25 && 1.25 <= in.high;
        *width += (in.high - in.low) / trials;
        for (int k = 0; k < 4; k++)
            free(s[k].v);
    }
    return (double)hits / trials;
}

static void coverage(void)
{
    double wide, narrow;
    const double at15 = covered(15, 300, &wide), at60 = covered(60, 100, &narrow);

    printf("%s: the 95 %% interval covers the truth in %.1f %% of simulations at n = 15 (width %.3f), %.1f %% at 60 (%.3f)\n",
        at15 > 0.92 && at15 < 0.99 && at60 > 0.90 && narrow < wide ? "ok" : "WRONG", at15 * 100, wide, at60 * 100, narrow);
    assert(at15 > 0.92 && at15 < 0.99 && at60 > 0.90 && narrow < wide);
}

static void bootstrap_is_fixed(void)
{
    struct sample s = {NULL, 0};
    struct interval a, b;

    for (int i = 0; i < 15; i++)
        sample_add(&s, 100 + i * i % 7);
    const struct sample *list[] = {&s, &s, &s, &s};
    const struct sample few = {s.v, 14}, *short_list[] = {&s, &few};
    assert(!stats_bootstrap(list, 4, ratio, NULL, &a));     /* the statistic divides by differences that are often 0 */
    assert(!stats_bootstrap(short_list, 2, ratio, NULL, &a));
    struct sample longer = {NULL, 0};
    for (int i = 0; i < 15; i++)
        sample_add(&longer, 900 + i);
    const struct sample *good[] = {&s, &longer, &s, &longer};
    assert(stats_bootstrap(good, 4, ratio, NULL, &a) && stats_bootstrap(good, 4, ratio, NULL, &b));
    assert(a.low == b.low && a.high == b.high && a.low <= 1 && a.high >= 1);
    printf("ok: fewer than 15 values give no interval, the same values the same interval\n");
    free(s.v);
    free(longer.v);
}

int main(void)
{
    quantiles();
    least_squares();
    bootstrap_is_fixed();
    coverage();
    return 0;
}
