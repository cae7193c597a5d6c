/* Checkpoints behind HTTP, read by ranges and never stored: http(s)://…, hf://org/name[@revision][/file].
 *
 * Owns: which files there are, their sizes and identity (ETag), redirects and their expiry, several range requests in flight with the bytes
 * handed out in planned order, retries with backoff, the Hub's token.
 * Memory: `connections` chunks of REMOTE_CHUNK.
 *
 * Refuses: a server without range requests (EXIT_UNAVAILABLE); a file that changed while it was read, or whose answers contradict each other
 * (EXIT_DATA); a gated or unknown repository (EXIT_NOPERM, naming the page where access is granted).
 * A cut connection is resumed where it broke off; 408, 429, 5xx and cuts are tried again `retries` times without progress (Retry-After is
 * honoured, else 0.25 s doubling to 16 s), then EXIT_TEMPFAIL.
 * A token goes to the Hub's own host alone, in a header; it never follows a redirect to another host and stands in no message.
 *
 * Protocol: RFC 9110 sections 13.1.5 (If-Range), 14 (ranges); the Hub's: /api/models/ORG/NAME/revision/REV gives `sha` and
 * `siblings`, /ORG/NAME/resolve/SHA/FILE the file, as huggingface_hub uses them.
 */
#ifndef NET_REMOTE_H
#define NET_REMOTE_H
#include <stdbool.h>
#include <stdint.h>
#include "base/store.h"

#define REMOTE_CHUNK ((size_t)1 << 20)

struct remote_options {
    long connections, retries;
};

bool remote_is(const char *path);               /* has one of the schemes */

struct remote;
struct remote *remote_open(const char *url, const struct remote_options *o, struct err *e) MUST_CHECK;
void remote_close(struct remote *r);            /* NULL is fine */
/* The lone file that the URL names (".safetensors", or hf:// with a file), NULL for a checkpoint. */
const char *remote_file(const struct remote *r);
/* "hf://org/name@COMMIT", with the file if one is named; NULL for http(s). */
const char *remote_identity(const struct remote *r);
/* Bytes of files fetched so far. */
uint64_t remote_bytes(const struct remote *r);

/* Its files; closing the store does not close r.  Random reads through its inputs end a plan. */
struct store *remote_store(struct remote *r);

struct remote_range { const char *file; uint64_t begin, nbytes; };
/* What will be read next, in order; range is copied. Ends an earlier plan. */
int remote_plan(struct remote *r, const struct remote_range *range, size_t n, struct err *e) MUST_CHECK;
/* Some of the next bytes of the plan, at most n: how many, at *data until the next call; -1 error. */
long remote_next(struct remote *r, const char **data, size_t n, struct err *e) MUST_CHECK;
#endif
