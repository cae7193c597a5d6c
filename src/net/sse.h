/* Server-sent events, put together again from pieces cut anywhere.
 *
 * Owns: lines (\n, \r\n or \r), "data:" fields joined by \n, comments and other fields skipped, one call for each event that has data.
 * An event without its closing blank line never happened (sse_pending tells).  An event of more than 16 MiB is EXIT_DATA.
 */
#ifndef NET_SSE_H
#define NET_SSE_H
#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"

struct sse { struct buf line, data; bool after_cr, has_data; };
/* data[0..n) is NUL-terminated too.  Non-zero stops and is returned by sse_feed. */
typedef int sse_event(void *arg, const char *data, size_t n, struct err *e);
int sse_feed(struct sse *s, const char *p, size_t n, sse_event *fn, void *arg, struct err *e) MUST_CHECK;
bool sse_pending(const struct sse *s);      /* bytes of an unfinished event are held */
void sse_free(struct sse *s);
#endif
