/* What a vLLM container's log says: facts of its last start, and whether it serves.
 *
 * Owns: the wording of vLLM's and the AWS container's lines, over versions; what an error is called.
 * Takes CloudWatch events {timestamp, message, logStreamName} in order of time.  A fact that the log does not hold is null, never 0.
 *
 * Facts are the last that were said; `starts` counts processes seen or implied, `exits` "exited: app" lines.  `error` is the first root error of the last failed
 * start, and null when the container serves: an exception that another one followed directly ("… the direct cause of …") gives way to that one, and the
 * echoes that vLLM makes of an error elsewhere are no errors.
 */
#ifndef AWS_CONTAINERLOG_H
#define AWS_CONTAINERLOG_H
#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"

struct containerlog;
struct containerlog *containerlog_new(void);
void containerlog_free(struct containerlog *l);
/* Begin anew: what was said before belongs to another stream. */
void containerlog_reset(struct containerlog *l);
void containerlog_line(struct containerlog *l, const char *message, size_t n);

bool containerlog_serving(const struct containerlog *l);        /* startup complete, then no exit */
bool containerlog_healthy(const struct containerlog *l);        /* … and at least one ping was answered */
bool containerlog_died(const struct containerlog *l);           /* served once and does not now */
const char *containerlog_error(const struct containerlog *l);   /* NULL = none */
const char *containerlog_stage(const struct containerlog *l);   /* where the last start has got to, a few words; NULL = nothing said */
/* The facts in fixed order.  New reference. */
json_t *containerlog_facts(const struct containerlog *l);

/* From events in any order, as FilterLogEvents gives them: those since created_ms, of one stream or (NULL) of the one that spoke last. */
struct containerlog *containerlog_of(const json_t *events, long long created_ms, const char *stream);
/* Does this line report an error? */
bool containerlog_is_error(const char *message);

/* Facts of saved events, one a line. */
json_t *containerlog_read(const char *path, long long created_ms, const char *stream, struct err *e) MUST_CHECK;
#endif
