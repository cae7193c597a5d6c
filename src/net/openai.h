/* The client's side of OpenAI's HTTP API: a request line to a POST, an answer (whole or streamed) to its text and counts.
 *
 * Owns: which path a body goes to, which fields are added to it, what in an answer is text, when a token arrived.
 * Times are clock_seconds() seconds.  Counts come from the server's usage block only: a chunk may hold several tokens or none.
 */
#ifndef NET_OPENAI_H
#define NET_OPENAI_H
#include <jansson.h>
#include "net/http.h"
#include "net/sse.h"

struct openai_request {
    char *url, *body;
    size_t body_n;
    bool stream;
};
/* From a line: OpenAI's body plus `id` (taken out).  `messages` goes to BASE/v1/chat/completions, `prompt` to BASE/v1/completions, `prompt_ids` there
 * too as a list of ids; a BASE that ends in /v1 is completed, not doubled.  `model` (may be NULL) is added where the body has none.  With `stream`,
 * or where the body asks for it, usage is asked for as well.  EXIT_DATA when the line is none of these. */
int openai_request(struct openai_request *q, const json_t *line, const char *base, const char *model, bool stream, struct err *e) MUST_CHECK;
void openai_request_free(struct openai_request *q);

/* The first model that the server lists, "" when it has no list.  Freed by the caller; NULL when it cannot be reached. */
char *openai_first_model(struct http_client *c, const char *base, const char *const *headers, struct err *e) MUST_CHECK;

struct openai_answer {
    struct buf *text;               /* by index of the choice */
    size_t choices;
    char *finish_reason;            /* of choice 0; NULL = none given */
    long prompt_tokens, completion_tokens;      /* -1 = the server did not say */
    double *chunk;                  /* when each chunk with content of choice 0 arrived */
    size_t chunks, chunk_cap;
    bool ended;                     /* the stream's [DONE], or a finish reason */
    struct sse sse;
};
void openai_answer_init(struct openai_answer *a);
void openai_answer_free(struct openai_answer *a);
/* A whole answer.  EXIT_DATA when it is none, or what an error object in it says. */
int openai_answer_whole(struct openai_answer *a, const char *body, size_t n, struct err *e) MUST_CHECK;
/* The next piece of a stream, arrived at `at`. */
int openai_answer_piece(struct openai_answer *a, const char *p, size_t n, double at, struct err *e) MUST_CHECK;

/* What a refusal says: the message inside an error object, else the start of the text. */
void openai_refusal(const char *body, size_t n, char *out, size_t out_n);
#endif
