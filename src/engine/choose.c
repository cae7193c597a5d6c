#include "engine/choose.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"

enum { PIECE_ROWS = 256, GROUP = 32, SEGMENT = 512 };

struct chooser {
    const struct matrix *head;
    float softcap;
    struct id_span never;
    const struct kernels *k;
    struct par *par;
    bool fast, bounded;         /* for one token, for several */
    float *most;                /* [pieces] of one token */
    size_t blocks;
    float *norm;                /* [rows]; NULL until needed */
    float *upper, *lower;       /* [CHOOSE_TOKENS][blocks] */
    int32_t *offset; float *by; /* [CHOOSE_TOKENS][groups] */
    float slack[CHOOSE_TOKENS], least[CHOOSE_TOKENS];
};

static size_t pieces(const struct chooser *c) { return (c->head->rows + PIECE_ROWS - 1) / PIECE_ROWS; }

struct chooser *chooser_new(const struct matrix *head, float softcap, bool fast, struct id_span never, const struct kernels *k, struct par *par)
{
    struct chooser *c = xcalloc(1, sizeof *c);

    c->head = head, c->softcap = softcap, c->never = never, c->k = k, c->par = par;
    c->fast = fast;
    c->bounded = fast && k->bounds && head->kind == W_INT4 && head->scales * GROUP == head->cols && head->scale_type != ST_F32 && head->rows % BOUND_ROWS == 0 &&
        head->cols <= BOUND_COLS;
    c->blocks = head->rows / BOUND_ROWS;
    c->most = xcalloc(pieces(c), sizeof *c->most);
    return c;
}

void chooser_free(struct chooser *c)
{
    if (!c)
        return;
    free(c->most);
    free(c->norm);
    free(c->upper);
    free(c->lower);
    free(c->offset);
    free(c->by);
    free(c);
}

static size_t piece_end(const struct chooser *c, size_t i) { return (i + 1) * PIECE_ROWS < c->head->rows ? (i + 1) * PIECE_ROWS : c->head->rows; }

/* --- one token --- */

struct alone { struct chooser *c; const float *x; const uint8_t *act; const struct pace *pace; };

/* A piece's logits, and -infinity for those never chosen and up to a multiple of 16.  Returns their number. */
static size_t piece_logits(const struct alone *a, size_t i, float logit[PIECE_ROWS])
{
    const struct chooser *c = a->c;
    const size_t first = i * PIECE_ROWS;
    size_t n = piece_end(c, i) - first;
    const struct matrix rows = matrix_rows(c->head, first, n);

    c->k->linear_fast(&rows, 0, n, a->x, c->head->cols, a->act, 1, a->pace, logit, n);
    if (c->softcap > 0)
        c->k->softcap(logit, n, c->softcap);
    for (size_t j = 0; j < c->never.n; j++)
        if ((size_t)c->never.id[j] / PIECE_ROWS == i && (size_t)c->never.id[j] < c->head->rows)
            logit[(size_t)c->never.id[j] - first] = -INFINITY;
    for (; n % 16; n++)
        logit[n] = -INFINITY;
    return n;
}

static void most_of_piece(void *arg, size_t i)
{
    const struct alone *a = arg;
    _Alignas(64) float logit[PIECE_ROWS];
    const size_t n = piece_logits(a, i, logit);

    a->c->most[i] = a->c->k->most(logit, n);
}

/* The id is that of the first piece with the largest, which is computed once more. */
static bool choose_alone(struct alone *a, int *id)
{
    const struct chooser *c = a->c;
    float logit[PIECE_ROWS];
    size_t best = 0;

    par_for(c->par, pieces(c), most_of_piece, a);
    for (size_t i = 0; i < pieces(c); i++) {
        if (isnan(c->most[i]))
            return false;
        best = c->most[i] > c->most[best] ? i : best;
    }
    const size_t n = piece_logits(a, best, logit);
    *id = (int)(best * PIECE_ROWS) + sample_largest(logit, n);
    return c->most[best] > -INFINITY;
}

/* --- several tokens --- */

static void find_norms(void *arg, size_t i)
{
    const struct chooser *c = arg;

    c->k->norms(c->head, i * PIECE_ROWS, piece_end(c, i), c->norm + i * PIECE_ROWS);
}

static void make_room(struct chooser *c)
{
    if (c->norm)
        return;
    c->norm = xcalloc(c->head->rows, sizeof *c->norm);
    c->upper = xcalloc(CHOOSE_TOKENS * c->blocks, sizeof *c->upper);
    c->lower = xcalloc(CHOOSE_TOKENS * c->blocks, sizeof *c->lower);
    c->offset = xcalloc(CHOOSE_TOKENS * c->head->scales, sizeof *c->offset);
    c->by = xcalloc(CHOOSE_TOKENS * c->head->scales, sizeof *c->by);
    par_for(c->par, pieces(c), find_norms, c);
}

/* What a prepared token's high terms need beside them, and the norm of its low terms' part (kernels_body.h, prepare: 128 columns are 64 high even, 64 high odd, 64 low
 * even, 64 low odd; then a scale a group in the order of v_transpose). */
static void look_at_terms(struct chooser *c, size_t t, const float *x, const uint8_t *act)
{
    const size_t cols = c->head->cols, groups = c->head->scales, padded = (cols + SEGMENT - 1) / SEGMENT * SEGMENT;
    const int8_t *term = (const int8_t *)act + t * act_bytes(W_INT4, cols);
    const float *scale = (const float *)(const void *)(term + 2 * padded);
    double low_part = 0, whole = 0;

    for (size_t g = 0; g < groups; g++) {
        const int8_t *q = term + g / 4 * 256 + g % 4 * 16;
        const float s = scale[g / 16 * 16 + 4 * (g % 4) + g / 4 % 4];
        int sum = 0, squares = 0;
        for (size_t i = 0; i < 16; i++) {
            sum += q[i] + q[64 + i];
            squares += q[128 + i] * q[128 + i] + q[192 + i] * q[192 + i];
        }
        c->offset[t * groups + g] = -8 * sum;
        c->by[t * groups + g] = 256 * s;
        low_part += (double)s * (double)s * squares;
    }
    for (size_t i = 0; i < cols; i++)
        whole += (double)x[i] * (double)x[i];
    c->slack[t] = (float)(1.001 * sqrt(low_part) + 1e-5 * sqrt(whole));
}

struct search { struct chooser *c; struct screened x; const uint8_t *act; const struct pace *pace; int *id; };

static void bound_piece(void *arg, size_t i)
{
    const struct search *s = arg;
    const struct chooser *c = s->c;

    c->k->bounds(c->head, i * PIECE_ROWS, piece_end(c, i), &s->x, c->norm, c->upper, c->lower, c->blocks);
}

static bool is_never(const struct chooser *c, size_t id)
{
    for (size_t i = 0; i < c->never.n; i++)
        if ((size_t)c->never.id[i] == id)
            return true;
    return false;
}

static bool holds_never(const struct chooser *c, size_t block)
{
    for (size_t i = 0; i < c->never.n; i++)
        if ((size_t)c->never.id[i] / BOUND_ROWS == block)
            return true;
    return false;
}

/* Capped logits are equal, or out of order, over a little range: below 3.5 times the cap at most 4e-5 of it. */
static float flat(const struct chooser *c) { return c->softcap * 3e-4f; }

struct found { float raw, logit; int id; };

/* The exact logits of a block. */
static void look_into(const struct search *s, size_t t, size_t b, struct found *best)
{
    const struct chooser *c = s->c;
    const struct matrix rows = matrix_rows(c->head, b * BOUND_ROWS, BOUND_ROWS);
    float raw[BOUND_ROWS], logit[BOUND_ROWS];

    c->k->linear_fast(&rows, 0, BOUND_ROWS, NULL, 0, s->act + t * act_bytes(W_INT4, c->head->cols), 1, s->pace, raw, BOUND_ROWS);
    memcpy(logit, raw, sizeof logit);
    if (c->softcap > 0)
        c->k->softcap(logit, BOUND_ROWS, c->softcap);
    for (size_t i = 0; i < BOUND_ROWS; i++) {
        const int id = (int)(b * BOUND_ROWS + i);
        if (!(logit[i] >= best->logit) || is_never(c, (size_t)id))
            continue;
        best->raw = raw[i] > best->raw ? raw[i] : best->raw;
        if (logit[i] > best->logit || id < best->id)
            best->logit = logit[i], best->id = id;
    }
}

/* The blocks that may hold the largest, the most promising first: what it holds rules out most of the others. */
static void search_token(void *arg, size_t t)
{
    const struct search *s = arg;
    const struct chooser *c = s->c;
    const float *upper = c->upper + t * c->blocks;
    struct found best = {-INFINITY, -INFINITY, -1};
    size_t first = 0;

    for (size_t b = 1; b < c->blocks; b++)
        first = upper[b] > upper[first] ? b : first;
    look_into(s, t, first, &best);
    for (size_t b = 0; b < c->blocks; b++)
        if (b != first && !(upper[b] < c->least[t]) && !(upper[b] < best.raw - flat(c)))
            look_into(s, t, b, &best);
    s->id[t] = best.id;
}

/* The best lower bound; the range over which capped logits are equal belongs to the candidates too.  false: it is no number, or the cap flattens everything. */
static bool find_least(struct chooser *c, size_t t)
{
    const float *lower = c->lower + t * c->blocks;
    float least = -INFINITY;

    for (size_t b = 0; b < c->blocks; b++)
        if (!(lower[b] <= least) && !(c->never.n && holds_never(c, b)))
            least = lower[b];
    c->least[t] = least - flat(c);
    return isfinite(least) && (c->softcap <= 0 || least < 3.5f * c->softcap);
}

bool choose(struct chooser *c, const float *x, size_t n, const uint8_t *act, const struct pace *pace, int *id)
{
    struct search s = {.c = c, .act = act, .pace = pace, .id = id};

    if (n == 1 && c->fast)
        return choose_alone(&(struct alone){c, x, act, pace}, id);
    if (!c->bounded)
        return false;
    make_room(c);
    for (size_t t = 0; t < n; t++)
        look_at_terms(c, t, x + t * c->head->cols, act);
    s.x = (struct screened){.act = act, .offset = c->offset, .by = c->by, .slack = c->slack, .groups = c->head->scales, .tokens = n};
    par_for(c->par, pieces(c), bound_piece, &s);
    for (size_t t = 0; t < n; t++)
        if (!find_least(c, t))
            return false;
    par_for(c->par, n, search_token, &s);
    return true;
}

int choose_of_logits(const struct chooser *c, float *logits)
{
    for (size_t i = 0; i < c->never.n; i++)
        if ((size_t)c->never.id[i] < c->head->rows)
            logits[c->never.id[i]] = -INFINITY;
    return sample_largest(logits, c->head->rows);
}
