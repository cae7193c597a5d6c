/* The life of endpoints: Creating until a container really serves, or one of the faults has it otherwise; Deleting until it is gone.
 *
 * Owns: placement, starts and restarts of containers, their logs, pings, the moments at which a state changes.  An endpoint is the JSON object that
 * control.h made: {"EndpointName", "EndpointArn", "EndpointStatus", "CreationTime", …, "ProductionVariants", "Model": its container, "plan": the fault it meets}.
 *
 * Seconds of the cloud, as recorded runs showed them: placed 4:20 after creation, a start that fails every 2 min, pings every 5 s, InService 45 s after the first good
 * ping, Deleting 5 s.  A process that loads is given real time; a container that crashed is given up when the start-up window has passed.
 */
#ifndef REHEARSE_ENDPOINT_H
#define REHEARSE_ENDPOINT_H
#include "rehearse/runtime.h"

/* Which command plays which image; the first that matches. */
struct endpoint_command { const char *image, *command; };      /* image: a glob */
void endpoint_commands(const struct endpoint_command *list, size_t n);

/* Take up the endpoints of the state. */
void endpoint_resume(struct world *w);
/* A new object in the table begins to live.  The region's table holds it. */
void endpoint_begin(struct world *w, const char *region, json_t *ep);
void endpoint_delete(struct world *w, json_t *ep);
/* `next` (taken over), an object like ep, comes up beside it and replaces it, or fails and leaves it as it is. */
void endpoint_update(struct world *w, const char *region, json_t *ep, json_t *next);
/* What is due now.  From the main thread, several times a second; true while something is under way. */
bool endpoint_tick(struct world *w);
/* Stop every container, waiting up to `seconds`. */
void endpoint_stop_all(struct world *w, double seconds);

/* Where invocations of an InService endpoint go; false when there is none of that name and variant. */
bool endpoint_target(struct world *w, const char *region, const char *name, const char *variant, struct target *t);
/* How many instances of a type count against its quota: of every endpoint that is not Failed, each type that its pools list. */
long endpoint_instances(struct world *w, const char *region, const char *type);
#endif
