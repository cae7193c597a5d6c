#include "engine/sample.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/err.h"

double sample_uniform(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static void penalise(float *logits, size_t n, struct id_span seen, float penalty)
{
    uint8_t *done = xcalloc(n, 1);

    for (size_t i = 0; i < seen.n; i++) {
        float *l = &logits[seen.id[i]];
        if (done[seen.id[i]])
            continue;
        done[seen.id[i]] = 1;
        *l = *l > 0 ? *l / penalty : *l * penalty;
    }
    free(done);
}

static void adjust(const struct sampling *s, float *logits, size_t n, const struct id_span *banned, size_t n_banned, struct id_span seen)
{
    for (size_t i = 0; i < s->n_bias; i++)
        logits[s->bias[i].id] += s->bias[i].bias;
    if (s->repetition_penalty != 1)
        penalise(logits, n, seen, (float)s->repetition_penalty);
    for (size_t b = 0; b < n_banned; b++)
        for (size_t i = 0; i < banned[b].n; i++)
            if ((size_t)banned[b].id[i] < n)
                logits[banned[b].id[i]] = -INFINITY;
}

/* Eight chains, so that none waits for the one before. */
int sample_largest(const float *logits, size_t n)
{
    enum { CHAINS = 8 };
    float max[CHAINS];
    int nan = 0;

    for (int j = 0; j < CHAINS; j++)
        max[j] = -INFINITY;
    size_t i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
        for (int j = 0; j < CHAINS; j++) {
            const float l = logits[i + (size_t)j];
            max[j] = l > max[j] ? l : max[j];
            nan |= l != l;
        }
    for (; i < n; i++) {
        max[0] = logits[i] > max[0] ? logits[i] : max[0];
        nan |= isnan(logits[i]);
    }
    for (int j = 1; j < CHAINS; j++)
        max[0] = max[j] > max[0] ? max[j] : max[0];
    for (i = 0; !nan && max[0] > -INFINITY && i < n; i++)
        if (logits[i] == max[0])
            return (int)i;
    return -1;
}

/* --- a heap of ids, the most likely on top ----------------------------------------------------------------------------- */

static bool before(const float *logits, int a, int b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift(const float *logits, int *heap, size_t n, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(logits, heap[child + 1], heap[child]))
            child++;
        if (!before(logits, heap[child], heap[i]))
            return;
        int t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
    }
}

/* Takes the most likely out of heap[0, n), which is one shorter afterwards. */
static int pop(const float *logits, int *heap, size_t n)
{
    const int top = heap[0];

    heap[0] = heap[n - 1];
    sift(logits, heap, n - 1, 0);
    return top;
}

/* --- drawing --------------------------------------------------------------------------------------------------------- */

struct draw { const struct sampling *s; const float *logits; float max; };

static double mass(const struct draw *d, int id)
{
    return exp(((double)d->logits[id] - (double)d->max) / d->s->temperature);
}

static int draw_from(const struct draw *d, const int *id, size_t n, double total, double u)
{
    double left = u * total;

    for (size_t i = 0; i < n; i++) {
        left -= mass(d, id[i]);
        if (left < 0)
            return id[i];
    }
    return id[0];               /* rounding ate the last of it */
}

/* Ids that min_p lets through, by rising id. */
static size_t candidates(const struct draw *d, size_t n, int *id)
{
    const double least = d->s->min_p > 0 ? (double)d->max + d->s->temperature * log(d->s->min_p) : -INFINITY;
    size_t m = 0;

    for (size_t i = 0; i < n; i++)
        if ((double)d->logits[i] >= least && d->logits[i] > -INFINITY)
            id[m++] = (int)i;
    return m;
}

/* The most likely of the n candidates in falling order: top_k of them, and of those the fewest that hold top_p of their mass. */
static size_t cut(const struct draw *d, int *heap, size_t n, int *chosen, double *total)
{
    const bool count = d->s->top_k > 0 && (size_t)d->s->top_k < n;
    const size_t most = count ? (size_t)d->s->top_k : n;
    double all = 0, sum = 0;
    size_t k = 0;

    for (size_t i = n / 2; i-- > 0;)
        sift(d->logits, heap, n, i);
    for (size_t i = 0; i < most; i++) {
        if (count)
            chosen[i] = pop(d->logits, heap, n - i);
        all += mass(d, count ? chosen[i] : heap[i]);
    }
    do {
        if (!count)
            chosen[k] = pop(d->logits, heap, n - k);
        sum += mass(d, chosen[k++]);
    } while (k < most && sum < d->s->top_p * all);
    *total = sum;
    return k;
}

static int draw_token(const struct draw *d, size_t n, int *id, double u)
{
    const size_t m = candidates(d, n, id);
    double total = 0;

    if (d->s->top_k > 0 || d->s->top_p < 1) {
        const size_t kept = cut(d, id, m, id + n, &total);
        return draw_from(d, id + n, kept, total, u);
    }
    for (size_t i = 0; i < m; i++)
        total += mass(d, id[i]);
    return draw_from(d, id, m, total, u);
}

int sample_token(const struct sampling *s, float *logits, size_t n, const struct id_span *banned, size_t n_banned, struct id_span seen, uint64_t seed,
    uint64_t index, int *scratch)
{
    adjust(s, logits, n, banned, n_banned, seen);
    const int best = sample_largest(logits, n);

    if (best < 0 || s->temperature == 0)
        return best;
    return draw_token(&(struct draw){s, logits, logits[best]}, n, scratch, sample_uniform(seed, index));
}

static bool holds(const struct id_span *span, size_t n, int id)
{
    for (size_t b = 0; b < n; b++)
        for (size_t i = 0; i < span[b].n; i++)
            if (span[b].id[i] == id)
                return true;
    return false;
}

int sample_of_largest(const struct sampling *s, const int *id, const float *logit, size_t n, const struct id_span *banned, size_t n_banned, uint64_t seed, uint64_t index)
{
    float *left = xcalloc(n + 1, sizeof *left);         /* those that may be chosen, in their order */
    int *scratch = xcalloc(3 * n + 1, sizeof *scratch), *of = scratch + 2 * n, chosen = -1;
    size_t m = 0;

    for (size_t i = 0; i < n; i++)
        if (!holds(banned, n_banned, id[i]))
            left[m] = logit[i], of[m++] = id[i];
    if (m && left[0] > -INFINITY)       /* NaN is neither */
        chosen = of[s->temperature == 0 ? 0 : draw_token(&(struct draw){s, left, left[0]}, m, scratch, sample_uniform(seed, index))];
    free(left);
    free(scratch);
    return chosen;
}

/* --- log probabilities ----------------------------------------------------------------------------------------------- */

double sample_log_sum(const float *logits, size_t n)
{
    float max = -INFINITY;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - max);
    return (double)max + log(sum);
}

void sample_top(const float *logits, size_t n, int *id, size_t top)
{
    size_t k = 0;

    for (size_t i = 0; i < n && top; i++) {
        if (k == top && !(logits[i] > logits[id[k - 1]]))
            continue;
        size_t at = k < top ? k++ : k - 1;
        for (; at > 0 && logits[i] > logits[id[at - 1]]; at--)
            id[at] = id[at - 1];
        id[at] = (int)i;
    }
}
