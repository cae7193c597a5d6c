/* A pool of threads that sleep when idle, after waiting some microseconds for the next work.  Each thread works on a run of neighbouring items as long as it has some, so that
 * items that read memory in order do so in order.  Results must not depend on the number of threads: callers split work by item, never by thread. */
#ifndef BASE_PAR_H
#define BASE_PAR_H
#include <stdbool.h>
#include <stddef.h>

struct par;
/* threads <= 0: one for each CPU that the process had at the first call (base/cpus.h).  With 1, everything runs in the caller. */
struct par *par_new(int threads);
int par_threads(const struct par *p);
/* Call fn(arg, i) for every i in [0, count), each once, on the pool and the caller; returns when all are done. */
void par_for(struct par *p, size_t count, void (*fn)(void *arg, size_t i), void *arg);
/* The same in two steps: between them the pool works and the caller does something else. par_wait helps with what is left; one round at a time. */
void par_start(struct par *p, size_t count, void (*fn)(void *arg, size_t i), void *arg);
void par_wait(struct par *p);

/* A sequence of pieces, each of which one thread takes, works on and gives, so that it stays in that thread's cache.  `take` is called for one piece at a time, in the
 * sequence's order, and says whether there was one; `give` likewise, in the same order, and says whether to go on: after a no nothing more is taken or given.  `work`, of several pieces
 * at once.  `lane` is below par_lanes(): the buffers that nobody else has meanwhile. */
struct relay {
    bool (*take)(void *arg, size_t lane);
    void (*work)(void *arg, size_t lane);
    bool (*give)(void *arg, size_t lane);
};
/* Lanes that par_relay uses: a thread each, `most` at most. */
size_t par_lanes(const struct par *p, size_t most);
void par_relay(struct par *p, size_t lanes, const struct relay *r, void *arg);
void par_free(struct par *p);
#endif
