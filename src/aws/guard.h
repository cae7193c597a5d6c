/* Whoever may die: what the journal names is deleted.
 *
 * Owns: the watcher, a process in a session of its own, without the terminal, deaf to every signal that can be ignored, which holds one end of a pipe whose other
 * end only its guard has: when that ends, however it ends, the watcher deletes every endpoint in the journal that no other living guard watches over,
 * and whatever has expired while the guard lives.  Its words go to guard-ID.log beside the journal, its lock tells others that it lives.
 */
#ifndef AWS_GUARD_H
#define AWS_GUARD_H
#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"

struct guard {
    char id[64];
    int hold, done, lock;
    char *log, *outer;          /* outer: the guard that this one runs under, NULL = none */
    double poll;
    bool narrow;                /* given: what stands in the journal without a guard is left alone */
};
/* Start a watcher and name it in the environment (Q4SWEEP_GUARD) for what is run under it. */
int guard_start(struct guard *g, double poll, struct err *e) MUST_CHECK;
/* Start another watcher if it died. */
int guard_check(struct guard *g, struct err *e) MUST_CHECK;
/* What stands in the journal under this guard is kept: it passes to the outer guard, or stands without one. */
int guard_release(const struct guard *g, struct err *e) MUST_CHECK;
/* Let go and wait until it has deleted all; copies what it says to stderr.  -1: something may still run.  A signal in *stop (may be NULL) ends the waiting, not the
 * deleting. */
int guard_finish(struct guard *g, const volatile int *stop, struct err *e) MUST_CHECK;

/* Delete what the journal holds that no living guard watches over; only orphans of dead guards, or all. */
int guard_sweep(bool only_orphans, const char *own_id, double poll, double patience, struct err *e) MUST_CHECK;
/* A watcher for orphans alone, in the background, if there are any; says so.  Never fails. */
void guard_adopt_orphans(void);
#endif
