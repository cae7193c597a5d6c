/* HTTP client: many exchanges at once over kept connections, by libcurl's multi interface in the calling thread.
 *
 * Owns: connections, their reuse, the clock (a piece has arrived when its socket is found readable), the mapping of transport faults
 * to exit codes.  Refuses: redirects unless asked for, protocols other than http and https, retries (a caller that can repeat a
 * request does so itself, where it is seen and counted), also libcurl's own of what is no GET or HEAD.  A status of 400 or more is an answer, not an error.
 *
 * One client belongs to one thread; only http_wake() may be called from another.
 */
#ifndef NET_HTTP_H
#define NET_HTTP_H
#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"

struct http_client;
/* Keeps up to `connections` idle connections open. */
struct http_client *http_client_new(long connections, struct err *e) MUST_CHECK;
void http_client_free(struct http_client *c);   /* drops what still runs without calling done */

struct http_request {
    const char *method;             /* "GET", "POST", "HEAD", … */
    const char *url;
    const char *const *headers;     /* "Name: value", the last one followed by NULL; NULL = none.  Copied. */
    const void *body;               /* not copied: stays until done is called */
    size_t body_n;
    double timeout;                 /* seconds for all of it; 0 = no limit */
    double stall;                   /* seconds without one byte moving (whole ones count); 0 = no limit */
    bool redirects;                 /* follow up to 10 of them (GET and HEAD only) */
    long buffer;                    /* bytes a read from the connection may bring; 0 = libcurl's 16 KiB */
};

struct http_reply {
    long status;                    /* of the last answer; 0 = none came */
    struct buf head;                /* its header lines, each ending in \r\n, without the status line */
    struct buf body;                /* http_fetch() only */
    double sent, done;              /* clock_seconds() just before the request was written, and after the answer's last byte */
    double connect;                 /* seconds spent on a new connection, before that; 0 when a kept one was used */
};
/* The value of the named field (case does not count) copied into out without its blanks; false when absent or longer than n - 1. */
bool http_header(const struct http_reply *r, const char *name, char *out, size_t n);
/* The date that the named field says, in seconds since 1970; -1 when there is none. */
long long http_date(const struct http_reply *r, const char *name);
void http_reply_free(struct http_reply *r);

/* Who receives an exchange.  r lives until done returns.  Transport faults arrive in e (code 0 = the answer is complete): EXIT_UNAVAILABLE no
 * connection or broken off, EXIT_TEMPFAIL time ran out, EXIT_NOPERM certificate refused, EXIT_USAGE the URL is none. */
struct http_sink {
    int (*data)(void *arg, const struct http_reply *r, const char *p, size_t n, double at);     /* non-zero breaks off */
    void (*done)(void *arg, const struct http_reply *r, const struct err *e);
    void *arg;
};

/* Begin an exchange; -1 when it cannot even be set up (then neither function of the sink is called). */
int http_start(struct http_client *c, const struct http_request *q, const struct http_sink *s, struct err *e) MUST_CHECK;
/* Write what was begun since the last http_run() without moving anything else, so that its clock does not run while others are read.  Sinks may be called. */
int http_push(struct http_client *c, struct err *e) MUST_CHECK;
/* Move everything that can move, first waiting up to `wait` seconds for something to do; calls the sinks.  Returns how many
 * exchanges still run, -1 on a fault of the client itself. */
int http_run(struct http_client *c, double wait, struct err *e) MUST_CHECK;
/* End a running http_run()'s wait.  From any thread. */
void http_wake(struct http_client *c);

/* Whether a URL names a user or a password, which would stand in logs and provenance. */
bool http_names_user(const char *url);
/* Where `location`, seen at `url`, leads; freed by the caller, NULL when it is no http(s) URL. */
char *http_join(const char *url, const char *location);
/* Do both URLs name the same scheme, host and port? */
bool http_same_origin(const char *a, const char *b);

/* One exchange, waited for, whole body of at most `max` bytes.  A longer one is EXIT_DATA.  r is to be freed in either case. */
int http_fetch(struct http_client *c, const struct http_request *q, size_t max, struct http_reply *r, struct err *e) MUST_CHECK;
#endif
