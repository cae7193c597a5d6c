/* The choice of one token from its logits.
 *
 * Order (as vLLM's sampler): banned tokens and logit_bias; repetition penalty (a positive logit divided, a negative one multiplied, once for every token seen in
 * prompt or completion); temperature 0: the largest logit, of equal ones the lowest id.  Else softmax(logit / temperature), min_p against the largest
 * probability, the top_k largest, of those the fewest that reach top_p; one draw, in order of falling logit (rising id without top_k and
 * top_p).  The draw is a function of seed and index alone (splitmix64), so equal requests give equal tokens.
 */
#ifndef ENGINE_SAMPLE_H
#define ENGINE_SAMPLE_H
#include <stddef.h>
#include <stdint.h>

struct logit_bias { int id; float bias; };

struct sampling {
    double temperature, top_p, min_p, repetition_penalty;   /* 0, 1, 0, 1 = off */
    long top_k;                                             /* 0 = off */
    struct logit_bias *bias; size_t n_bias;
};

/* Ids that may not be chosen, and those that the repetition penalty counts. */
struct id_span { const int *id; size_t n; };

/* The token; -1 when a logit is NaN, or when nothing may be chosen.  Changes the logits.  `scratch` has room for 2 n ids; it may be NULL at temperature 0. */
int sample_token(const struct sampling *s, float *logits, size_t n, const struct id_span *banned, size_t n_banned, struct id_span seen, uint64_t seed,
    uint64_t index, int *scratch);

/* The same from the n largest logits alone, falling, of equal ones the lower id first, where no bias and no penalty changes them: enough of them are there when, besides those banned,
 * top_k are, or one at temperature 0.  They stay. */
int sample_of_largest(const struct sampling *s, const int *id, const float *logit, size_t n, const struct id_span *banned, size_t n_banned, uint64_t seed, uint64_t index);

/* The first of the largest; -1 when one is NaN or all are -infinity. */
int sample_largest(const float *logits, size_t n);

/* Uniform in [0, 1). */
double sample_uniform(uint64_t seed, uint64_t index);

/* log of the sum of exp over the logits, so that logprob = logit - it. */
double sample_log_sum(const float *logits, size_t n);
/* The ids of the `top` largest logits, falling, of equal ones the lower id first. */
void sample_top(const float *logits, size_t n, int *id, size_t top);
#endif
