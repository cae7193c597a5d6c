#include "engine/pace.h"
#include <stdlib.h>
#include <time.h>
#include "base/err.h"

enum {
    ROUNDS = 15,                /* each choice is tried so often at most, and its median counts: other work on the machine disturbs single trials by more than choices differ */
    LEAST_ROUNDS = 3,
    TRIAL_BYTES = 1 << 19       /* of weights in one trial */
};

/* Less far ones let the hardware's own prefetching see one stream, and suit kernels that are much faster than memory; far ones suit those that are not.  Two lines ahead into
 * the first cache are what Zen 5 likes, eight Zen 4.  Tiles suit rows whose activations fill the nearest cache, and ask for about a tile's rows ahead. */
static const struct pace choices[] = {{8192, 512, false}, {8192, 128, false}, {32768, 1024, false}, {131072, 256, true}, {2048, 512, false}};
enum { IN_ORDER = 0, TILED = 3, NEAR = 4, CHOICES = sizeof choices / sizeof *choices };
#define CLEARLY 0.96        /* of the usual choice's time */

enum { NEAREST_CACHE = 24 << 10 };      /* of 32 KiB, what activations can have beside the weights that pass through */

/* The choice that stands where there is nothing to try, or no clear winner. */
static size_t usual(const struct matrix *w)
{
    if (w->kind != W_INT4 && w->kind != W_INT8)
        return w->kind == W_FP8 ? IN_ORDER : NEAR;
    return act_bytes(w->kind, w->cols) > NEAREST_CACHE ? TILED : IN_ORDER;
}

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

/* All matrices of a token but the experts', in order. */
static size_t all_matrices(const struct weights *w, int layers, const struct matrix **to)
{
    size_t n = 0;

    for (int i = 0; i < layers; i++) {
        const struct layer_weights *l = &w->layer[i];
        const struct matrix *m[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->ple_gate, &l->ple_projection};
        for (size_t j = 0; j < sizeof m / sizeof *m; j++)
            if (m[j]->rows)
                to[n++] = m[j];
    }
    to[n++] = &w->head;
    return n;
}

static bool alike(const struct matrix *a, const struct matrix *b) { return a->kind == b->kind && a->cols == b->cols; }

/* Places to try: each is read once, so that it comes from memory. */
static size_t places(const struct matrix *like, const struct matrix **all, size_t n_all, struct matrix *to, size_t most)
{
    size_t n = 0;

    for (size_t i = 0; i < n_all && n < most; i++)
        if (alike(all[i], like) && matrix_bytes(all[i]) >= TRIAL_BYTES / 4)
            n += cut(all[i], to + n, most - n);
    return n;
}

static double seconds_a_byte(const struct kernels *k, const struct matrix *w, const struct pace *pace, const float *x, const uint8_t *act, float *y)
{
    const double start = now();

    k->linear_fast(w, 0, w->rows, x, w->cols, act, 1, pace, y, w->rows);
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
    const size_t rounds = n / CHOICES, first = usual(place), cols = place->cols;
    size_t best = first, rows = 0;

    for (size_t i = 0; i < n; i++)
        rows = place[i].rows > rows ? place[i].rows : rows;
    uint8_t *act = xaligned(64, act_bytes(place->kind, cols));
    float *x = xcalloc(cols + 16, sizeof *x), *y = xcalloc(rows, sizeof *y);
    if (place->kind >= W_INT4)
        k->prepare(place->kind, x, cols, act);
    for (size_t i = 0; i < rounds * CHOICES; i++)
        taken[i % CHOICES][i / CHOICES] = seconds_a_byte(k, &place[i], &choices[i % CHOICES], x, act, y);
    for (size_t i = 0; i < CHOICES; i++) {
        qsort(taken[i], rounds, sizeof taken[i][0], by_value);
        median[i] = taken[i][rounds / 2];
    }
    for (size_t i = 0; i < CHOICES; i++)
        if (median[i] < CLEARLY * median[first] && median[i] < median[best])
            best = i;
    free(act);
    free(x);
    free(y);
    return choices[best];
}

static bool is_known(const struct paces *p, const struct matrix *w)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->of[i].kind == w->kind && p->of[i].cols == w->cols)
            return true;
    return false;
}

void paces_find(struct paces *p, const struct weights *w, int layers, const struct kernels *k)
{
    const struct matrix *all[9 * GEMMA_MAX_LAYERS + 1];
    struct matrix place[ROUNDS * CHOICES];
    const size_t n_all = all_matrices(w, layers, all);

    p->n = 0;
    for (size_t i = 0; i < n_all && p->n < PACES; i++) {
        if (is_known(p, all[i]))
            continue;
        const size_t n = places(all[i], all, n_all, place, sizeof place / sizeof *place);
        p->of[p->n].kind = all[i]->kind, p->of[p->n].cols = all[i]->cols;
        p->of[p->n++].pace = n >= LEAST_ROUNDS * CHOICES && k->level != SIMD_SCALAR ? best(k, place, n) : choices[usual(all[i])];
    }
}

const struct pace *pace_of(const struct paces *p, const struct matrix *w)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->of[i].kind == w->kind && p->of[i].cols == w->cols)
            return &p->of[i].pace;
    return &choices[usual(w)];
}
