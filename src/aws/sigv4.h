/* AWS Signature Version 4, header signing.
 *
 * Owns: canonical requests (path, query, header rules), the signing key and its reuse within a day, the time that is signed.
 * Refuses nothing: what is given is signed.  Secrets stay in the structs given here; sigv4_wipe() clears them.
 *
 * Rules: AWS General Reference "Create a signed AWS API request"; judged by the published suite (tests/golden/sigv4) and by requests as botocore signs them.
 *   path   every service but S3: dot segments and double slashes removed, then every byte outside A-Z a-z 0-9 - . _ ~ / percent-encoded: a path that
 *          arrives encoded is so encoded twice.  S3: as it stands.
 *   query  names and values decoded, encoded, sorted; a missing value is name=
 *   header name lower case, sorted; values trimmed, inner blanks one space; repeated ones joined by commas in their order
 */
#ifndef AWS_SIGV4_H
#define AWS_SIGV4_H
#include <stdbool.h>
#include <time.h>
#include "base/buf.h"
#include "base/hash.h"

#define SIGV4_DATE 17                   /* "20260304T050607Z" and a NUL */

/* Who signs, for what.  The key of the day is kept inside, until sigv4_wipe(). */
struct sigv4_signer {
    const char *key_id, *secret;        /* not owned */
    const char *region, *service;       /* not owned */
    bool s3;                            /* the path is not encoded again, nor normalized */
    bool raw_path;                      /* the path is not normalized (the suite's cases "unnormalized") */
    char day[9];                        /* of the derived key; empty = none yet */
    void *mac;                          /* … and libcrypto's state, made of it */
};

struct sigv4_request {
    const char *method, *path, *query;  /* as on the wire; query without '?', "" = none */
    const char *const *headers;         /* "Name: value", NULL-terminated: all of these are signed; Host must be among them, X-Amz-Date is added */
    const char *payload_sha256;         /* hex */
    char date[SIGV4_DATE];
};

/* authorization receives "AWS4-HMAC-SHA256 Credential=…"; canonical and to_sign (may be NULL) the texts in between. */
void sigv4_sign(struct sigv4_signer *s, const struct sigv4_request *q, struct buf *authorization, struct buf *canonical, struct buf *to_sign);
void sigv4_wipe(struct sigv4_signer *s);

/* Is this text a well-formed date as X-Amz-Date has it?  Fills when. */
bool sigv4_parse_date(const char *text, time_t *when);
void sigv4_format_date(time_t when, char date[SIGV4_DATE]);
#endif
