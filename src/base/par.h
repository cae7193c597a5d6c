/* A pool of threads that sleep when idle, after waiting some microseconds for the next work.  Each thread works on a run of neighbouring items as long as it has some, so that
 * items that read memory in order do so in order.  Results must not depend on the number of threads: callers split work by item, never by thread. */
#ifndef BASE_PAR_H
#define BASE_PAR_H
#include <stddef.h>

struct par;
/* threads <= 0: the CPUs this process may run on.  With 1, everything runs in the caller. */
struct par *par_new(int threads);
int par_threads(const struct par *p);
/* Call fn(arg, i) for every i in [0, count), each once, on the pool and the caller; returns when all are done. */
void par_for(struct par *p, size_t count, void (*fn)(void *arg, size_t i), void *arg);
/* The same in two steps: between them the pool works and the caller does something else. par_wait helps with what is left; one round at a time. */
void par_start(struct par *p, size_t count, void (*fn)(void *arg, size_t i), void *arg);
void par_wait(struct par *p);
void par_free(struct par *p);
#endif
