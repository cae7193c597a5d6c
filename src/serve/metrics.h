/* Counts in the text format of Prometheus, under vLLM's names where the meaning is the same. */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H
#include <stdint.h>
#include "base/buf.h"

#define HISTOGRAM_BOUNDS 18
extern const double histogram_bounds[HISTOGRAM_BOUNDS];     /* seconds, rising */
struct histogram {
    uint64_t count[HISTOGRAM_BOUNDS + 1];   /* not cumulative; the last one is everything above */
    double sum;
};
void histogram_add(struct histogram *h, double seconds);

/* One value; kind is "gauge" or "counter"; label holds `name="value"` pairs. */
void metric_head(struct buf *b, const char *name, const char *kind, const char *help);
void metric_value(struct buf *b, const char *name, const char *label, double value);
void metric_histogram(struct buf *b, const char *name, const char *label, const char *help, const struct histogram *h);
#endif
