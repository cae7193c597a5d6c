/* Load on an OpenAI-compatible server: request lines in, answer lines with timings out.
 *
 * Owns: when each request leaves (closed loop: as soon as one of `concurrency` places is free, the first ones half a millisecond apart; open loop: request i at i / rate seconds,
 * whatever is still running, or after exponential gaps), the clock, the order of the output (the input's), and what is in memory: at most LOAD_WINDOW lines between the
 * oldest unanswered request and the newest, and about LOAD_BYTES of them.  Nothing is sent twice, but for
 * a wire that knows that a refused request was not run; its line counts those in `retries`, and its times begin at the first try.
 * The caller's thread takes real-time priority where it may and more than one request can run.
 * Three threads: one reads and prepares lines, the caller's moves bytes and reads the clock, one writes; so neither a slow producer nor a slow reader of
 * the output shifts a time.
 *
 * An output line: id, request_id, status, scheduled_ms, sent_ms, ttft_ms, tpot_ms, e2e_ms, prompt_tokens, completion_tokens, finish_reason, text or error,
 * connect_ms, chunk_ms, request.  Times in ms: the first two since the start of the run, the others since sent_ms.
 *   ttft = t1 - t0, tpot = (tn - t1) / (completion_tokens - 1), e2e = te - t0
 * with t0 = just before the request is written to its connection, t1, tn = arrival of the first and last chunk with content, te = after the answer's last byte.
 */
#ifndef NET_LOAD_H
#define NET_LOAD_H
#include <stdio.h>
#include "base/err.h"
#include "base/json.h"
#include "net/openai.h"

#define LOAD_WINDOW 8192
#define LOAD_BYTES ((size_t)256 << 20)
#define LOAD_CONCURRENCY_MAX 4096

/* A way for requests to travel other than OpenAI's HTTP API in the open: a service that signs, frames and names errors in its own manner.  The functions are called
 * from the thread that sends, `url` from the one that reads. */
struct load_wire {
    void *ctx;
    char *(*url)(void *ctx, bool stream);                       /* freed by load */
    /* Header lines, just before sending; NULL = e tells. */
    char **(*headers)(void *ctx, const struct openai_request *q, struct err *e);
    void (*headers_free)(char **headers);
    /* Is this answer framed?  Then its bytes go through feed, and what is inside comes out by piece. */
    bool (*framed)(const struct http_reply *r, bool *events);   /* *events: server-sent events are inside, else one JSON text */
    void *(*open)(void *ctx);
    int (*feed)(void *state, const char *p, size_t n, int (*piece)(void *arg, const char *p, size_t n, struct err *e), void *arg, struct err *e);
    int (*end)(void *state, struct err *e);
    void (*close)(void *state);
    /* What a refusal means, in e; true: the request was not run, and may be sent again after *wait seconds. */
    bool (*refused)(void *ctx, const struct http_reply *r, const char *body, size_t n, int tries, double *wait, struct err *e);
    double plain_limit;             /* seconds that a plain call may last; 0 = any */
};

struct load_options {
    const char *url;            /* base */
    const char *authorization;  /* a header line, or NULL */
    long concurrency;
    double rate;                /* not above 0: closed loop */
    bool stream;
    double timeout;             /* seconds for a request */
    bool poisson;               /* gaps of the open loop are exponential, from seed */
    long seed;
    long warmup;                /* the first request so many times before the clock starts; their answers are dropped */
    double tokens_per_second;   /* what a plain call's length is estimated with until a call of this run has shown it */
    const struct load_wire *wire;       /* NULL = OpenAI's API at url */
};

struct load_summary {
    long lines, failed;
    struct err first;           /* of the first failed line in input order; says which line */
};

/* -1 only when reading the lines or writing the answers fails: the program is to end then, since a thread may still wait for a line.
 * A failed request is in the summary and in its line. */
int load_run(const struct load_options *o, struct jsonl *in, FILE *out, struct load_summary *sum, struct err *e) MUST_CHECK;
#endif
