/* The control plane: SageMaker's models, endpoint configurations, endpoints and their tags. */
#ifndef REHEARSE_CONTROL_H
#define REHEARSE_CONTROL_H
#include "rehearse/call.h"

void control_call(struct call *c);
/* What a schedule's target does: DeleteEndpoint, DeleteEndpointConfig, DeleteModel.  NULL = done, else the error's message, freed by the caller. */
char *control_delete(struct world *w, const char *region, const char *op, const char *name);
#endif
