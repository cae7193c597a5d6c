/* Continuous batching: one thread that steps every running sequence together.
 *
 * Owns: the queue (first come, first served), the places (max_running) and the budget of KV tokens, how a step is filled, and the figures of what ran.
 * Knows nothing of HTTP or JSON.
 * A step holds one token of each sequence that is generating, and pieces of the prompts that are coming in: half of their room is the oldest's, the
 * rest goes to those that are due first: a prompt is due some times its own computation after it came.  While anything generates those pieces are kept so
 * short that a step takes about 2.2 times a step without them at most: running streams keep their pace, and prompts do not wait much longer than for that.
 * A sequence reserves its prompt and max_tokens of the budget for its whole life, so nothing that was begun is ever put back.
 */
#ifndef SERVE_BATCH_H
#define SERVE_BATCH_H
#include "engine/generate.h"
#include "serve/metrics.h"

struct batch_options {
    long max_running;           /* sequences in a step, at most BATCH_RUNNING_MAX */
    long max_waiting;           /* sequences in the queue */
    long kv_tokens;             /* in all sequences */
};
#define BATCH_RUNNING_MAX 128
#define SHUTTING_DOWN "the server is shutting down: ask another, or wait for the next"

/* Who gets the results.  All of it is called on the batch's thread. */
struct batch_client {
    void *arg;
    bool (*alive)(void *arg);                                   /* asked before every step; false drops the job */
    /* Sequence i has a new token, or has ended (gen_done). */
    void (*moved)(void *arg, size_t i, struct gen *g);
    /* The last call: e->code is 0, or why the job failed (EXIT_NO: it was dropped). */
    void (*ended)(void *arg, const struct err *e);
};

struct batch;
struct batch *batch_start(struct engine *en, const struct batch_options *o, struct err *e) MUST_CHECK;
/* Enqueue a job of n sequences; the requests are copied.  EXIT_TEMPFAIL: the queue is full; EXIT_UNAVAILABLE: draining, or the device is lost; EXIT_DATA:
 * larger than the whole budget.  On -1 no function of the client is called. */
int batch_submit(struct batch *b, const struct request *r, size_t n, const struct batch_client *c, struct err *e) MUST_CHECK;
/* EXIT_UNAVAILABLE: a step has found the device lost; nothing will be computed any more. */
int batch_works(struct batch *b, struct err *e) MUST_CHECK;
/* Take nothing new from now on, and return when all that was taken has ended. */
void batch_drain(struct batch *b);
/* Only after batch_drain, and when nobody can call batch_submit any more.  NULL is fine. */
void batch_free(struct batch *b);

struct batch_facts {
    long running, waiting;      /* sequences */
    long kv_tokens, kv_used;    /* reserved of the budget */
    uint64_t steps, prompt_tokens, generated_tokens;
    uint64_t stopped, length, aborted;      /* sequences by their end */
    struct histogram ttft, itl, e2e, queued;        /* seconds */
};
void batch_facts(struct batch *b, struct batch_facts *f);
#endif
