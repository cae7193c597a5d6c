/* The HTTP side of a server, by libmicrohttpd: one thread for all connections.
 *
 * Owns: sockets, whole request bodies up to a limit, the API key, answers that are written piece by piece, the notice that a client went away, one
 * log line for each request.  Knows nothing of what is asked: a handler gets each complete request.
 * Refuses before the handler sees it: a body over the limit (413), a wrong or missing key (401; /ping and /health need none).  A refused body
 * is read and dropped, so that the client sees the refusal and not a broken connection.
 *
 * An exchange belongs to the handler from its call until exchange_answer() or exchange_end(), which may come later and from any thread.
 */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H
#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

struct http_server;
struct exchange;
typedef void exchange_handler(void *arg, struct exchange *x);

struct http_server_options {
    const char *address;        /* numeric; "127.0.0.1" */
    long port;                  /* 0 = any free one */
    size_t body_max;
    unsigned connections;       /* more wait to be accepted */
    const char *key_file;       /* NULL = no key */
    void (*log)(const char *client, const char *method, const char *path, int status, const char *reason);    /* NULL = none */
};
/* Listens and answers from now on.  EXIT_UNAVAILABLE when the port is taken. */
struct http_server *http_server_start(const struct http_server_options *o, exchange_handler *fn, void *arg, struct err *e) MUST_CHECK;
const char *http_server_url(const struct http_server *s);
/* Every exchange has been answered by now: wait until the answers are out (at most 5 s), then close. */
void http_server_stop(struct http_server *s);

const char *exchange_method(const struct exchange *x);
const char *exchange_path(const struct exchange *x);
/* The request's target as it was sent: path and query, still encoded. */
const char *exchange_target(const struct exchange *x);
/* A request's header field; NULL when absent.  Only inside the handler. */
const char *exchange_header(const struct exchange *x, const char *name);
/* Every header field, in the order sent.  Only inside the handler. */
void exchange_each_header(const struct exchange *x, void (*fn)(void *arg, const char *name, const char *value), void *arg);
const struct buf *exchange_body(const struct exchange *x);

/* One more "Name: value" for the answer that will follow.  A Content-Type given so takes the place of the answer's. */
void exchange_field(struct exchange *x, const char *line);
/* A whole answer.  header: one more "Name: value", or NULL. */
void exchange_answer(struct exchange *x, int status, const char *type, const char *body, size_t n, const char *header);
/* A whole answer that is n bytes of an open file from offset; fd is closed afterwards. */
void exchange_answer_file(struct exchange *x, int status, const char *type, int fd, uint64_t offset, uint64_t n);
/* An answer in pieces: in the handler, say of which type; push any number of times (the first sends status 200); end. */
void exchange_type(struct exchange *x, const char *type);
void exchange_push(struct exchange *x, const char *p, size_t n);
void exchange_end(struct exchange *x);
/* Close the connection: behind the pieces pushed so far, which are sent first, or without any answer. */
void exchange_cut(struct exchange *x);
/* False once the client is gone; to be asked now and then, since nothing else tells while no answer is being written.  A client that
 * closed its writing side may still be reading: bytes without meaning (a blank, an SSE comment) are sent to find out. */
bool exchange_alive(struct exchange *x);
#endif
