/* Instance types for endpoints, and the account's quota of each. */
#ifndef REHEARSE_INSTANCES_H
#define REHEARSE_INSTANCES_H
#include "rehearse/world.h"

/* All types, the last one followed by NULL. */
extern const char *const INSTANCE_TYPES[];
bool instance_known(const char *type);
/* How many may run for endpoints in a region, faults considered. */
long instance_quota(struct world *w, const char *region, const char *type);
#endif
