/* The runtime: invocations of endpoints, carried to their containers by a thread of its own.
 *
 * Owns: the HTTP client to the containers, time limits (60 s plain, 8 min streamed), the mapping of a container's answer to the runtime's: what is not 2xx
 * is 424 ModelError; a stream's pieces become event-stream frames.  Also asks containers for their health.
 */
#ifndef REHEARSE_RUNTIME_H
#define REHEARSE_RUNTIME_H
#include "rehearse/call.h"

struct proxy *proxy_start(struct world *w, struct err *e) MUST_CHECK;
void proxy_stop(struct world *w);       /* waits 2 seconds for what still runs */

/* Where an invocation goes. */
struct target {
    char *url;                  /* base of the container; NULL = it does not run */
    const char *variant;        /* borrowed */
    bool ready;                 /* it has answered a ping since its start */
};
/* Answers the call, now or later.  Without the lock held. */
void runtime_invoke(struct call *c);

/* GET /ping, 2 seconds; done is called in the proxy's thread with the lock held. */
void proxy_ping(struct world *w, const char *url, void (*done)(struct world *w, void *arg, bool ok), void *arg);
#endif
