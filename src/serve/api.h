/* OpenAI's HTTP API and SageMaker's container contract over a batch: bodies to requests, results to answers.
 *
 * Owns: the routes, the check of every field, the shapes of answers, chunks and errors (as vLLM's server writes them).
 *   GET|POST /ping   GET /health   GET /version   GET /metrics   GET /v1/models
 *   POST /v1/chat/completions   /v1/completions   /invocations   /tokenize   /detokenize
 * /invocations takes a body with `messages` as a chat, one with `prompt` (or `prompt_ids`) as a completion.
 * Until api_ready() everything but /version answers 503, and after api_drain() again.
 * Errors: {"error":{"message","type","param","code"}}, param being the field at fault.  400 bad field, 404 no such path or model, 405 method, 415 content type,
 * 429 with Retry-After when the queue is full, 503 not ready or shutting down.
 */
#ifndef SERVE_API_H
#define SERVE_API_H
#include "serve/batch.h"
#include "serve/http.h"

#define API_CHOICES_MAX 64      /* prompts of one body times n */

struct api;
struct api *api_new(void);
/* The exchange_handler; arg is the api. */
void api_handle(void *arg, struct exchange *x);
/* Serve from now on.  model is the name that /v1/models lists. */
void api_ready(struct api *a, struct engine *en, struct batch *b, const char *model);
void api_drain(struct api *a);
void api_free(struct api *a);
#endif
