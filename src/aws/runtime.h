/* Requests to a SageMaker endpoint: the way that net/load.h takes them.
 *
 * Owns: path and headers of InvokeEndpoint and InvokeEndpointWithResponseStream, their signature (the key of the day is kept), the unwrapping of event
 * streams, and what a refusal means: ThrottlingException, ModelNotReadyException and ServiceUnavailable were not run and are sent again, 4 times at most,
 * after 0.5 s doubling; a clock that is off and credentials that ended are mended once.  ModelError is the container's own answer.
 */
#ifndef AWS_RUNTIME_H
#define AWS_RUNTIME_H
#include "aws/session.h"
#include "net/load.h"

#define RUNTIME_PLAIN_LIMIT 60.0        /* seconds after which SageMaker cuts a plain call off */

struct runtime;
/* session stays the caller's, and is used from the sending thread alone. */
struct runtime *runtime_new(struct aws_session *s, const char *region, const char *endpoint, struct err *e) MUST_CHECK;
void runtime_free(struct runtime *r);
const struct load_wire *runtime_wire(const struct runtime *r);
const char *runtime_url(const struct runtime *r);
#endif
