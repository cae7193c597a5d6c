/* What somebody wants generated: OpenAI's fields, checked once, and the prompt as tokens.
 *
 * Prompt: "messages" through the chat template (which writes bos), or "prompt" (a string: bos before it, no template), or "prompt_ids" (as they
 * are; OpenAI's "prompt": [ids] too).  Exactly one of them.
 *
 * Fields, and what is refused (EXIT_DATA, "FIELD: what is wrong"):
 *   max_tokens (or max_completion_tokens) 1…, default DEFAULT_MAX_TOKENS, cut to what the context leaves; min_tokens 0…max_tokens;
 *   temperature 0…100, default 0 = greedy; top_k (0 or -1 = off); top_p (0,1]; min_p [0,1]; repetition_penalty (0,100]; seed, default 0;
 *   logit_bias {"id": -100…100}; logprobs (true with top_logprobs 0…20, or a number 0…20); ignore_eos; stop (a string or up to 16 of
 *   them); include_stop_str_in_output; skip_special_tokens (default true); with messages all that chat_render() takes.
 * Fields of OpenAI's and vLLM's that are not done here (presence_penalty, response_format, stop_token_ids, guided_json …) are refused when they ask for anything.
 * Other fields are the caller's (id, model, stream, n, user …) and are left alone.
 * Prompts that are empty, too long for the context, not UTF-8, or with ids that the model has no embedding for are refused.
 */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H
#include <jansson.h>
#include "engine/engine.h"
#include "engine/sample.h"

#define DEFAULT_MAX_TOKENS 256
#define MAX_TOP_LOGPROBS 20
#define MAX_STOPS 16

struct request {
    int *ids; size_t n_ids;             /* the whole prompt */
    long max_tokens, min_tokens;
    struct sampling sampling;
    uint64_t seed;
    int logprobs;                       /* -1 = none, else how many alternatives */
    bool ignore_eos, skip_special, include_stop;
    char *stop[MAX_STOPS]; size_t n_stop;
};

/* Parse one JSON object.  On error r holds nothing. */
int request_parse(struct request *r, const struct engine *en, const json_t *obj, struct err *e) MUST_CHECK;
void request_copy(struct request *to, const struct request *from);
void request_free(struct request *r);
#endif
