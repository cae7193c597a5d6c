#include "report/roofline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool roofline_row(const struct result *r) { return isfinite(r->decode) && r->decode > 0 && isfinite(result_read(r)); }

static double term(const struct result *r, int t)
{
    switch (t) {
    case ROOF_INT4: return r->read_int4 / 1e9;
    case ROOF_8BIT: return r->read_8bit / 1e9;
    case ROOF_16BIT: return (r->read_16bit + r->read_kv) / 1e9;
    case ROOF_LAYER: return (double)r->layers;
    case ROOF_MOE: return (double)r->moe_layers;
    case ROOF_BYTES: return result_read(r) / 1e9;
    default: return 1;
    }
}

double roofline_ms(const struct roofline *f, const struct result *r)
{
    double ms = 0;

    for (int t = 0; t < ROOF_TERMS; t++)
        if (f->has[t])
            ms += f->b[t] * term(r, t);
    return ms;
}

static void errors(struct roofline *f, const struct result *const *row, size_t n)
{
    double sum = 0;

    f->worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double error = roofline_ms(f, row[i]) * row[i]->decode / 1000 - 1;
        sum += error * error;
        if (fabs(error) > fabs(f->worst))
            f->worst = error;
    }
    f->rms = sqrt(sum / (double)n);
    f->rows = n;
}

/* Each row is divided by its measured ms, so that the residual is relative. */
static bool solve(const struct result *const *row, size_t n, const int *terms, size_t n_terms, size_t spare, struct roofline *f)
{
    int used[ROOF_TERMS];
    size_t k = 0;
    double b[ROOF_TERMS];
    bool ok;

    for (size_t t = 0; t < n_terms; t++)
        for (size_t i = 0; i < n; i++)
            if (term(row[i], terms[t]) > 0) {
                used[k++] = terms[t];
                break;
            }
    if (k == 0 || n < k + spare)
        return false;
    double *x = xcalloc(n * k, sizeof *x), *y = xcalloc(n, sizeof *y);
    for (size_t i = 0; i < n; i++) {
        y[i] = 1;
        for (size_t c = 0; c < k; c++)
            x[i * k + c] = term(row[i], used[c]) * row[i]->decode / 1000;
    }
    ok = stats_least_squares(x, y, n, k, b);
    free(x);
    free(y);
    memset(f, 0, sizeof *f);
    for (size_t c = 0; c < k && ok; c++) {
        f->has[used[c]] = true;
        f->b[used[c]] = b[c];
        ok &= b[c] >= 0;
    }
    if (ok)
        errors(f, row, n);
    return ok;
}

bool roofline_fit(const struct result *const *row, size_t n, struct roofline *f)
{
    static const int by_format[] = {ROOF_INT4, ROOF_8BIT, ROOF_16BIT, ROOF_LAYER, ROOF_MOE}, simple[] = {ROOF_BYTES, ROOF_CALL};

    return solve(row, n, by_format, 5, 2, f) || solve(row, n, simple, 2, 2, f) || solve(row, n, simple, 1, 0, f);
}

void roofline_text(const struct roofline *f, char *out, size_t size)
{
    static const char *const names[ROOF_TERMS] = {[ROOF_INT4] = "int4", [ROOF_8BIT] = "8-bit", [ROOF_16BIT] = "16-bit", [ROOF_BYTES] = "all bytes"};
    size_t n = 0;

    out[0] = 0;
    for (int t = 0; t < ROOF_TERMS && n < size; t++) {
        const char *comma = n ? ", " : "";
        if (!f->has[t])
            continue;
        if (names[t])
            n += (size_t)snprintf(out + n, size - n, "%s%s %.0f GB/s", comma, names[t], 1000 / f->b[t]);
        else if (t == ROOF_CALL)
            n += (size_t)snprintf(out + n, size - n, "%s%.2f ms a token", comma, f->b[t]);
        else
            n += (size_t)snprintf(out + n, size - n, "%s%.0f us %s", comma, 1000 * f->b[t], t == ROOF_MOE ? "more for one with experts" : "a layer");
    }
}
