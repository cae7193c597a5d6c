#include "serve/metrics.h"

const double histogram_bounds[HISTOGRAM_BOUNDS] =
    {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

void histogram_add(struct histogram *h, double seconds)
{
    int i = 0;
    while (i < HISTOGRAM_BOUNDS && seconds > histogram_bounds[i]) i++;
    h->count[i]++;
    h->sum += seconds;
}

void metric_head(struct buf *b, const char *name, const char *kind, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void metric_value(struct buf *b, const char *name, const char *label, double value)
{
    buf_printf(b, "%s{%s} %.17g\n", name, label, value);
}

void metric_histogram(struct buf *b, const char *name, const char *label, const char *help, const struct histogram *h)
{
    uint64_t n = 0;
    metric_head(b, name, "histogram", help);
    for (int i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        n += h->count[i];
        if (i < HISTOGRAM_BOUNDS) buf_printf(b, "%s_bucket{%s,le=\"%g\"} %llu\n", name, label, histogram_bounds[i], (unsigned long long)n);
        else buf_printf(b, "%s_bucket{%s,le=\"+Inf\"} %llu\n", name, label, (unsigned long long)n);
    }
    buf_printf(b, "%s_sum{%s} %.17g\n%s_count{%s} %llu\n", name, label, h->sum, name, label, (unsigned long long)n);
}
