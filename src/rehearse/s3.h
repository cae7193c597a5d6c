/* S3 over a directory: bucket/key is a file, so that what lies there (or is linked there) can be served, and what is put can be looked at.
 *
 * Owns: buckets, objects with their ETags and checksums (a file that did not come by a PUT has an ETag of its size and time), ranges, lists, multipart
 * uploads (parts in DIR/uploads).  Refuses: keys with empty, "." or ".." segments; copies, versions, presigned URLs, bodies signed chunk by chunk.
 */
#ifndef REHEARSE_S3_H
#define REHEARSE_S3_H
#include "rehearse/call.h"

/* The operation that method, path and query name, into c->op. */
void s3_name_op(struct call *c);
void s3_call(struct call *c);
#endif
