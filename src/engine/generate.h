/* From a request to its text, a step at a time.
 *
 * Owns: the meaning of a request's fields (OpenAI's names), the prompt's tokens, the choice of tokens (sample.h), stop strings, text that is
 * always whole UTF-8, and the reason for ending.  A scheduler steps many of them together:
 *
 *     gen_next(g, budget, &item)      for each g: the run it wants, a piece of its prompt or one token
 *     engine_step(en, items, n, e)
 *     gen_take(g, e)                  for each g: chooses a token, extends the text, notices the end
 *     gen_delta(g, &n)                text that is now certain
 *
 * Same request, same seed: same tokens, whatever else runs.
 *
 * Prompt: "messages" through the chat template (no second bos), or "prompt" (a string: bos before it, no template), or "prompt_ids" (as they
 * are).  Exactly one of them.  Fields, and what is refused (EXIT_DATA, "FIELD: what is wrong"):
 *   max_tokens (or max_completion_tokens) 1…, default DEFAULT_MAX_TOKENS, cut to what the context leaves; min_tokens; temperature 0…2, default 0 = greedy; top_k (0 or -1 =
 *   off); top_p (0,1]; min_p [0,1]; repetition_penalty > 0; seed; logit_bias {"id": -100…100}; logprobs (true with top_logprobs 0…20, or a number
 *   0…20); ignore_eos; stop (a string or up to 16 of them); include_stop_str_in_output; skip_special_tokens (default true);
 *   enable_thinking (also inside chat_template_kwargs); tools.  Fields not named here are the caller's (id, model, stream, n, user …) and are left alone.
 */
#ifndef ENGINE_GENERATE_H
#define ENGINE_GENERATE_H
#include <jansson.h>
#include "engine/engine.h"

#define DEFAULT_MAX_TOKENS 256
#define MAX_TOP_LOGPROBS 20
#define MAX_STOPS 16

struct logit_bias { int id; float bias; };

struct request {
    int *ids; size_t n_ids;             /* the whole prompt */
    long max_tokens, min_tokens;
    double temperature, top_p, min_p, repetition_penalty;
    long top_k;                         /* 0 = off */
    uint64_t seed; bool seeded;         /* not seeded: 0 */
    struct logit_bias *bias; size_t n_bias;
    int logprobs;                       /* -1 = none, else how many alternatives */
    bool ignore_eos, skip_special, include_stop;
    char *stop[MAX_STOPS]; size_t n_stop;
};

/* Parse one JSON object.  On error r holds nothing. */
int request_parse(struct request *r, const struct engine *en, const json_t *obj, struct err *e) MUST_CHECK;
void request_free(struct request *r);

struct gen_alternative { int id; float logprob; };
struct gen_token {
    int id;
    float logprob;                      /* of the model's own distribution (temperature 1, nothing cut); valid with logprobs >= 0 */
    int n_top;
    struct gen_alternative top[MAX_TOP_LOGPROBS];
};

struct gen;
/* The request is copied; the sequence is made at the first gen_next. */
struct gen *gen_new(struct engine *en, const struct request *r);
void gen_free(struct gen *g);           /* NULL is fine; also before its end */

/* Look at the prompt's and the completion's positions (--logits, --trace); set before the first gen_next. */
void gen_watch(struct gen *g, const struct engine_watch *watch);
/* Fill the next run, at most `budget` >= 1 tokens.  False when it has ended. */
bool gen_next(struct gen *g, size_t budget, struct engine_item *item);
/* After the step that held its item. */
int gen_take(struct gen *g, struct err *e) MUST_CHECK;

bool gen_done(const struct gen *g);
bool gen_prefilling(const struct gen *g);           /* the prompt is not all in yet */
/* "stop" (an end token or stop string), "length"; NULL while it runs. */
const char *gen_finish_reason(const struct gen *g);
/* The stop string or end token that ended it: a JSON string or integer, null otherwise.  New reference. */
json_t *gen_stop_reason(const struct gen *g);
size_t gen_prompt_tokens(const struct gen *g);
/* Every token chosen so far, the end token included. */
const struct gen_token *gen_tokens(const struct gen *g, size_t *n);
/* Text that became certain since the last call: whole characters, no part of a possible stop string.  Not NUL-terminated; valid until the next
 * gen_take.  n = 0 and non-NULL when there is none. */
const char *gen_delta(struct gen *g, size_t *n);
/* All certain text. NULL when the model has no tokenizer. */
const char *gen_text(const struct gen *g, size_t *n);

/* The completion line of design section 4: text, token_ids, prompt_tokens, completion_tokens, finish_reason, logprobs, and the facts of what
 * ran.  `id` is borrowed and may be NULL.  New reference. */
json_t *gen_result(const struct gen *g, json_t *id);
#endif
