#include "engine/pace.h"
#include <stdlib.h>
#include <time.h>
#include "base/err.h"

enum {
    ROUNDS = 9,                 /* each choice is tried so often at most, and its median counts: other work on the machine disturbs single trials by more than choices differ */
    LEAST_ROUNDS = 3,
    TRIAL_BYTES = 1 << 19       /* of weights in one trial */
};

/* The first is taken where there is nothing to try. */
static const struct pace choices[] = {{12288, false}, {16384, false}, {8192, false}, {4096, true}, {2048, true}};
#define CHOICES (sizeof choices / sizeof *choices)
#define CLEARLY 0.92        /* of the first choice's time */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A matrix in pieces, at most `most`. */
static size_t cut(const struct matrix *m, struct matrix *to, size_t most)
{
    const size_t rows = TRIAL_BYTES / matrix_row_bytes(m) / 16 * 16 + 16;
    size_t n = 0;

    for (size_t row = 0; n < most && row < m->rows; row += rows)
        to[n++] = matrix_rows(m, row, rows < m->rows - row ? rows : m->rows - row);
    return n;
}

/* Places to try: each is read once, so that it comes from memory. */
static size_t places(enum weight_kind kind, bool longer, const struct weights *w, int layers, struct matrix *to, size_t most)
{
    size_t n = 0;

    for (int i = 0; i < layers && n < most; i++) {
        const struct layer_weights *l = &w->layer[i];
        const struct matrix *m[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof m / sizeof *m; j++)
            if (m[j]->rows && m[j]->kind == kind && (m[j]->cols > 1024) == longer && matrix_bytes(m[j]) >= TRIAL_BYTES / 4)
                n += cut(m[j], to + n, most - n);
    }
    if (w->head.kind == kind && (w->head.cols > 1024) == longer)
        n += cut(&w->head, to + n, most - n);
    return n;
}

static double seconds_a_byte(const struct kernels *k, const struct matrix *w, const struct pace *pace, const uint8_t *act, float *y)
{
    const double start = now();

    k->linear_fast(w, 0, w->rows, NULL, 0, act, 1, pace, y, w->rows);
    return (now() - start) / (double)matrix_bytes(w);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static struct pace best(const struct kernels *k, const struct matrix *place, size_t n)
{
    double taken[CHOICES][ROUNDS], median[CHOICES];
    const size_t rounds = n / CHOICES;
    size_t best = 0, cols = 0, rows = 0;

    for (size_t i = 0; i < n; i++) {
        cols = place[i].cols > cols ? place[i].cols : cols;
        rows = place[i].rows > rows ? place[i].rows : rows;
    }
    uint8_t *act = xaligned(64, act_bytes(place->kind, cols));
    float *x = xcalloc(cols + 16, sizeof *x), *y = xcalloc(rows, sizeof *y);
    k->prepare(place->kind, x, cols, act);
    for (size_t i = 0; i < rounds * CHOICES; i++)
        taken[i % CHOICES][i / CHOICES] = seconds_a_byte(k, &place[i], &choices[i % CHOICES], act, y);
    for (size_t i = 0; i < CHOICES; i++) {
        qsort(taken[i], rounds, sizeof taken[i][0], by_value);
        median[i] = taken[i][rounds / 2];
        if (median[i] < CLEARLY * median[0] && median[i] < median[best])
            best = i;
    }
    free(act);
    free(x);
    free(y);
    return choices[best];
}

void paces_find(struct paces *p, const struct weights *w, int layers, const struct kernels *k)
{
    struct matrix place[ROUNDS * CHOICES];

    for (int kind = 0; kind <= W_FP8; kind++)
        for (int longer = 0; longer < 2; longer++) {
            p->of[kind][longer] = choices[0];
            if ((kind != W_INT4 && kind != W_INT8) || k->level == SIMD_SCALAR)
                continue;
            const size_t n = places((enum weight_kind)kind, longer, w, layers, place, sizeof place / sizeof *place);
            if (n >= LEAST_ROUNDS * CHOICES)
                p->of[kind][longer] = best(k, place, n);
        }
}
