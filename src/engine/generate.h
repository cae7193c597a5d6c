/* From a request to its text, a step at a time.
 *
 * Owns: the order prompt, tokens, text; the choice of tokens (sample.h); stop strings; text that is always whole UTF-8; and the reason for ending.  A
 * scheduler steps many of them together:
 *
 *     gen_next(g, budget, &item)      for each g: the run it wants, a piece of its prompt or one token
 *     engine_step(en, items, n, e)
 *     gen_take(g, e)                  for each g: chooses a token, extends the text, notices the end
 *     gen_delta(g, &n)                text that is now certain
 *
 * Same request, same seed: same tokens, whatever else runs.
 */
#ifndef ENGINE_GENERATE_H
#define ENGINE_GENERATE_H
#include "engine/request.h"

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
size_t gen_prompt_left(const struct gen *g);        /* tokens of the prompt that are not in yet */
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

/* The completion line: text, token_ids, prompt_tokens, completion_tokens, finish_reason, logprobs, and the facts of what
 * ran.  `id` is borrowed and may be NULL.  New reference. */
json_t *gen_result(const struct gen *g, json_t *id);
#endif
