/* sample: greedy ties, cuts, penalties, bans, draws that follow the distribution and the seed alone. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "engine/sample.h"

#define N 8
static const struct sampling greedy = {.top_p = 1, .repetition_penalty = 1};
static const struct id_span nothing = {NULL, 0};

static int take(struct sampling s, const float *from, struct id_span seen, uint64_t seed, uint64_t index)
{
    float logits[N];
    int scratch[2 * N];

    memcpy(logits, from, sizeof logits);
    return sample_token(&s, logits, N, NULL, 0, seen, seed, index, scratch);
}

static void greedy_takes_the_lowest_of_equals(void)
{
    assert(take(greedy, (float[N]){1, 3, 3, 2, 0, 0, 0, 0}, nothing, 0, 0) == 1);
    assert(take(greedy, (float[N]){NAN, 3, 3, 2, 0, 0, 0, 0}, nothing, 0, 0) == -1);
    puts("greedy takes the lowest of equals, NaN is refused");
}

static void bans_biases_and_penalties(void)
{
    const float l[N] = {4, 3, -1, 2, 0, 0, 0, 0};
    float logits[N];
    const int ban[] = {0, 1}, past[] = {0, 0, 1};
    struct logit_bias bias = {6, 50};
    struct sampling s = greedy;

    memcpy(logits, l, sizeof l);
    assert(sample_token(&s, logits, N, &(struct id_span){ban, 2}, 1, nothing, 0, 0, NULL) == 3);
    s.bias = &bias, s.n_bias = 1;
    assert(take(s, l, nothing, 0, 0) == 6);
    s = greedy, s.repetition_penalty = 3;      /* 4/3 once, not twice; 3/3 */
    assert(take(s, l, (struct id_span){past, 3}, 0, 0) == 3);
    s.repetition_penalty = 1.9;                 /* 4/1.9 = 2.1 beats 2; twice it would not */
    assert(take(s, l, (struct id_span){past, 3}, 0, 0) == 0);
    puts("bans, biases and repetition penalties");
}

static void cuts(void)
{
    const float l[N] = {logf(0.5f), logf(0.25f), logf(0.125f), logf(0.0625f), logf(0.0625f), -50, -50, -50};
    struct sampling s = greedy;
    int seen[N];

    const struct { long k; double p, min; int allowed; } cases[] = {{1, 1, 0, 1}, {2, 1, 0, 2}, {0, 0.5, 0, 1}, {0, 0.51, 0, 2}, {0, 1, 0.2, 3}, {3, 0.9, 0, 3}, {0, 0.8, 0, 3}};
    s.temperature = 1;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        s.top_k = cases[c].k, s.top_p = cases[c].p, s.min_p = cases[c].min;
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < 2000; i++)
            seen[take(s, l, nothing, 7, i)]++;
        for (int i = 0; i < N; i++)
            assert((seen[i] > 0) == (i < cases[c].allowed));
    }
    puts("top_k, top_p and min_p let through exactly what they should");
}

static void draws_follow_the_distribution(void)
{
    const float l[N] = {0, 1, 2, 0, 1, 2, -1, 0.5f};
    struct sampling s = greedy;
    int seen[N] = {0};
    double sum = 0;
    const int draws = 40000;

    s.temperature = 2;
    for (int i = 0; i < N; i++)
        sum += exp(l[i] / 2);
    for (int i = 0; i < draws; i++)
        seen[take(s, l, nothing, 99, (uint64_t)i)]++;
    for (int i = 0; i < N; i++) {
        const double p = exp(l[i] / 2) / sum, off = seen[i] - draws * p;
        assert(fabs(off) < 5 * sqrt(draws * p * (1 - p)));
    }
    for (uint64_t i = 0; i < 50; i++)
        assert(take(s, l, nothing, 3, i) == take(s, l, nothing, 3, i));
    puts("draws follow softmax(logit / temperature), and the seed alone");
}

static void log_probabilities(void)
{
    const float l[N] = {0, 5, 2, 5, 1, 2, -1, 0.5f};
    int top[3];
    double sum = 0;

    sample_top(l, N, top, 3);
    assert(top[0] == 1 && top[1] == 3 && top[2] == 2);
    for (int i = 0; i < N; i++)
        sum += exp((double)l[i] - sample_log_sum(l, N));
    assert(fabs(sum - 1) < 1e-6);
    puts("the largest in order, and log probabilities that sum to one");
}

/* From the largest alone the same tokens come as from all. */
static void the_largest_are_enough(void)
{
    enum { MANY = 500, TOP = 96 };
    float all[MANY], logits[MANY], logit[TOP];
    int id[TOP], scratch[2 * MANY];
    const int ban[] = {3, 250};
    const struct id_span banned = {ban, 2};
    const struct { double t, p, min; long k; } cases[] = {{0, 1, 0, 0}, {1, 1, 0, 64}, {0.7, 0.9, 0, 64}, {1.5, 1, 0.1, 20}, {0.9, 0.5, 0.01, 94}, {1, 1, 0, 1}};

    for (uint64_t seed = 0; seed < 200; seed++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            struct sampling s = greedy;
            s.temperature = cases[c].t, s.top_p = cases[c].p, s.min_p = cases[c].min, s.top_k = cases[c].k;
            for (int i = 0; i < MANY; i++)
                all[i] = (float)(int)(12 * sample_uniform(seed, (uint64_t)i)) + (i % 5 ? 0 : (float)(3 * sample_uniform(seed + 1, (uint64_t)i)));
            sample_top(all, MANY, id, TOP);
            for (int i = 0; i < TOP; i++)
                logit[i] = all[id[i]];
            memcpy(logits, all, sizeof all);
            const int want = sample_token(&s, logits, MANY, &banned, 1, nothing, seed, c, scratch);
            assert(sample_of_largest(&s, id, logit, TOP, &banned, 1, seed, c) == want);
        }
    logit[0] = NAN;
    assert(sample_of_largest(&greedy, id, logit, TOP, NULL, 0, 0, 0) == -1);
    assert(sample_of_largest(&greedy, id, logit, 0, NULL, 0, 0, 0) == -1);
    puts("from the largest alone the same tokens come as from all; NaN is refused");
}

int main(void)
{
    greedy_takes_the_lowest_of_equals();
    bans_biases_and_penalties();
    cuts();
    draws_follow_the_distribution();
    log_probabilities();
    the_largest_are_enough();
    return 0;
}
