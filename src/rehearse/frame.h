/* Event-stream frames, written: the other side of aws/eventstream.h, where the layout is described. */
#ifndef REHEARSE_FRAME_H
#define REHEARSE_FRAME_H
#include "base/buf.h"

/* A PayloadPart event of n bytes. */
void frame_part(struct buf *out, const char *payload, size_t n);
/* An exception: ModelStreamError or InternalStreamFailure. */
void frame_exception(struct buf *out, const char *type, const char *json);
#endif
