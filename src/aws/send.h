/* One signed exchange with an AWS service.
 *
 * Owns: the service clock (this machine's plus what a refusal's Date header taught), the headers of a signed request, what an error answer says.
 * Refuses: redirects.  Tries nothing twice: session.h does.
 * AWS_SIGNING_CLOCK=20260304T050607Z in the environment stops the clock, for tests.
 */
#ifndef AWS_SEND_H
#define AWS_SEND_H
#include <jansson.h>
#include "aws/sigv4.h"
#include "net/http.h"

struct aws_credentials {
    char *key_id, *secret, *token;      /* token NULL = none */
    time_t expires;                     /* 0 = never */
    char source[80];                    /* where they came from, for -v */
};
void aws_credentials_free(struct aws_credentials *c);   /* wipes them */

struct aws_call {
    const char *url;                    /* base of the service */
    const char *service, *region;       /* of the signature */
    const char *method, *path, *query;  /* NULL = POST, "/", "" */
    const char *content_type;           /* NULL = none */
    const char *target;                 /* X-Amz-Target, NULL = none */
    const char *const *extra;           /* more header lines, signed too; NULL = none */
    const void *body; size_t body_n;
    double timeout;                     /* seconds; 0 = 30 */
};

struct aws_answer {
    struct http_reply http;
    char code[128], message[1024];      /* of an error answer */
    char request_id[80];
    time_t signed_offset;               /* of AWS's clock, as it was known when the request was signed */
};
void aws_answer_free(struct aws_answer *a);

/* -1 only when no answer came (e as http.h says); an error answer is 0 with a->code set.  credentials NULL: not signed.  a is to be freed in either case. */
int aws_send(struct http_client *http, const struct aws_credentials *credentials, const struct aws_call *c, struct aws_answer *a, struct err *e) MUST_CHECK;

/* Header lines of a signed request; each and the array freed by aws_headers_free. */
char **aws_headers(struct sigv4_signer *s, const struct aws_credentials *credentials, const struct aws_call *c);
void aws_headers_free(char **headers);

/* The time that AWS believes in, for signatures: AWS_SIGNING_CLOCK counts. */
time_t aws_now(void);
/* What AWS's clock shows, as far as it is known, when this machine's shows `here`. */
time_t aws_time(time_t here);
/* An answer that blames the clock moves it: true when the request was signed by another one, so that one more try is worth it. */
bool aws_learn_clock(const struct aws_answer *a);

/* From an error answer, as JSON or XML, or from its headers.  body[n] is a NUL, as in a struct buf. */
void aws_read_error(const struct http_reply *r, const char *body, size_t n, struct aws_answer *a);
/* What follows <tag> up to the next '<', entities decoded, copied into out; false when absent or too long. */
bool aws_xml(const char *text, const char *tag, char *out, size_t n);
/* "2026-03-04T05:06:07Z", with a fraction or +00:00 perhaps. */
bool aws_parse_iso8601(const char *text, time_t *when);
#endif
