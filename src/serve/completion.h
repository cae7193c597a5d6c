/* One request for text: a chat or a completion, whole or streamed, from its body to its last byte. */
#ifndef SERVE_COMPLETION_H
#define SERVE_COMPLETION_H
#include <jansson.h>
#include "serve/batch.h"
#include "serve/http.h"

struct completion_context {
    struct engine *en;
    struct batch *batch;
    const char *model;
};
/* Starts it, or fills e and leaves x alone: EXIT_DATA "FIELD: what is wrong", EXIT_NOINPUT another model, EXIT_TEMPFAIL queue full, EXIT_UNAVAILABLE. */
int completion_start(const struct completion_context *ctx, struct exchange *x, const json_t *body, bool chat, struct err *e) MUST_CHECK;
/* {"error": …} with status; param is the field that a message of the form "FIELD: …" names. */
void error_answer(struct exchange *x, int status, const struct err *e);
/* The error object alone. New reference. */
json_t *error_json(int status, const char *message);
#endif
