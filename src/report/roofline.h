/* The memory-bound model of decoding, fitted to measured rows (least squares on the relative error of ms per token):
 *
 *   ms = int4 / BW4 + 8-bit / BW8 + 16-bit / BW16 + layers * per_layer + expert layers * per_moe_layer
 *
 * with bytes a token reads (gemma/bytes.h; K/V counts as 16-bit) and bandwidths in GB/s.  A term that no row has is left out.  Where the rows are
 * too few for it (terms + 2), or a constant comes out below zero: ms = bytes / BW + constant, then ms = bytes / BW.
 */
#ifndef REPORT_ROOFLINE_H
#define REPORT_ROOFLINE_H
#include "report/result.h"

enum { ROOF_INT4, ROOF_8BIT, ROOF_16BIT, ROOF_LAYER, ROOF_MOE, ROOF_BYTES, ROOF_CALL, ROOF_TERMS };

struct roofline {
    size_t rows;
    bool has[ROOF_TERMS];
    double b[ROOF_TERMS];       /* ms per GB, per layer, per token */
    double rms, worst;          /* relative errors; worst keeps its sign */
};

/* Is the row's rate and traffic known? */
bool roofline_row(const struct result *r);
/* Fit the n rows; false when there are none, or no model fits. */
bool roofline_fit(const struct result *const *row, size_t n, struct roofline *f);
double roofline_ms(const struct roofline *f, const struct result *r);
/* "int4 263 GB/s, 16-bit 245 GB/s, 60 us a layer" */
void roofline_text(const struct roofline *f, char *out, size_t size);
#endif
