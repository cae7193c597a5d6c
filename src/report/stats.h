/* Statistics of few samples: quantiles, and intervals by resampling.
 *
 * Owns: the definitions, so that every table means the same by a word.  Quantiles interpolate linearly between ranks (numpy's default).
 * The interval is the percentile bootstrap: each list is resampled with replacement on its own, the statistic is a function of the lists'
 * medians, and 2.5 % of STATS_RESAMPLES values lie below and above.  The generator is SplitMix64 from a fixed seed: same samples, same bytes.
 */
#ifndef REPORT_STATS_H
#define REPORT_STATS_H
#include <stdbool.h>
#include <stddef.h>

#define STATS_RESAMPLES 2000
#define STATS_INTERVAL_MIN 15       /* fewer samples in any list: no interval, only the range */

struct sample { double *v; size_t n; };                 /* owner frees v */
struct interval { double low, high; };

void sample_add(struct sample *s, double v);
void sample_sort(struct sample *s);
/* Of a sorted sample, 0 <= q <= 1; NAN when it is empty. */
double sample_quantile(const struct sample *sorted, double q);
/* Of an unsorted sample, which stays as it is; NAN when it is empty. */
double sample_median(const struct sample *s);
/* Medians of n lists in, one number out; NAN = this resample has none, and is left out. */
typedef double (*stats_of_medians)(const double *median, const void *ctx);
/* False when a list has fewer than STATS_INTERVAL_MIN values, or the statistic has no value in more than one resample of 20. */
bool stats_bootstrap(const struct sample *const *list, size_t n, stats_of_medians f, const void *ctx, struct interval *out);

/* Least squares: minimise sum over the rows of (x_row . b - y_row)^2; x is rows x cols, row by row.  False when the columns depend on each other. */
bool stats_least_squares(const double *x, const double *y, size_t rows, size_t cols, double *b);
#endif
