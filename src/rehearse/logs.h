/* CloudWatch Logs: groups, streams, events, kept in memory and in DIR/logs/REGION/NAME.jsonl.
 *
 * Owns: the events and their ids, reading them back at start, the calls of the service.  A group outlives the endpoint that wrote it, as there.
 * Groups are those of endpoints: /aws/sagemaker/Endpoints/NAME.
 */
#ifndef REHEARSE_LOGS_H
#define REHEARSE_LOGS_H
#include "rehearse/call.h"

#define LOG_GROUP_PREFIX "/aws/sagemaker/Endpoints/"

int logs_open(struct world *w, struct err *e) MUST_CHECK;
void logs_close(struct world *w);
bool logs_has_group(const struct world *w, const char *region, const char *endpoint);
/* One line, n bytes without its newline, at a time in seconds; the group is made by its first event. */
void logs_add(struct world *w, const char *region, const char *endpoint, const char *stream, double at, const char *text, size_t n);
void logs_call(struct call *c);
#endif
