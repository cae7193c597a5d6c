/* A directory to a prefix in S3.
 *
 * Owns: which parts a file is sent in, what an earlier, broken-off run has left there and need not be sent again, several parts at a time, and the proof
 * afterwards: the object's ETag is the MD5 of its only part, or of its parts' MD5s, as S3 forms it.  (Each part's SHA-256 is part of its signature, so S3
 * refuses what was altered on the way.)  Where a bucket encrypts with KMS an ETag proves nothing: then the size is compared, with a warning, and a
 * run that goes on sends every part again.
 * MANIFEST.sha256 goes last: where it lies, all lies.  Memory: parallel x 16 MiB.
 */
#ifndef AWS_S3_H
#define AWS_S3_H
#include "aws/session.h"

struct s3_upload {
    const char *directory;          /* its regular files; no subdirectories */
    const char *destination;        /* "s3://BUCKET/PREFIX" */
    const char *region;
    long parallel;
};
int s3_upload(struct aws_session *s, const struct s3_upload *u, struct err *e) MUST_CHECK;
#endif
