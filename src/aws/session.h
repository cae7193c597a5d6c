/* Calls to AWS services, with what every caller wants around them.
 *
 * Owns: credentials and their renewal (at less than 15 minutes before their end, or when a service calls them expired), the cure of a clock that is off (once),
 * and the documented retries: throttling, HTTP 429, 500, 502, 503, 504 and broken connections, 5 tries, exponential with jitter, each signed anew.
 * Every call made here may be sent twice; one that creates something may therefore meet its own work (sagemaker.h takes care).
 *
 * Exit codes in e: EXIT_NOPERM the account says no or does not know us, EXIT_TEMPFAIL after the last try, EXIT_UNAVAILABLE quota or "Could not find",
 * EXIT_DATA the service calls the request wrong.
 */
#ifndef AWS_SESSION_H
#define AWS_SESSION_H
#include "aws/config.h"
#include "aws/send.h"
#include "base/json.h"

struct aws_session {
    struct aws_config *config;
    struct http_client *http;
    struct aws_credentials credentials;
    bool explicit_profile;
    int tries;                          /* of a call; 5 */
    time_t renewed;                     /* when the credentials were last asked for */
};
/* profile NULL = from the environment. */
int aws_session_open(struct aws_session *s, const char *profile, struct err *e) MUST_CHECK;
void aws_session_close(struct aws_session *s);
/* Renew the credentials when they end soon; load them when there are none yet. */
int aws_session_refresh(struct aws_session *s, struct err *e) MUST_CHECK;

/* Fills c's service and region, and its url unless it is given; a as aws_send.  0 = a 2xx answer. */
int aws_session_call(struct aws_session *s, const char *service, const char *region, struct aws_call *c, struct aws_answer *a, struct err *e) MUST_CHECK;

/* JSON 1.1: POST body to target.  *out NULL when the answer is empty; out may be NULL.  fault (may be NULL) receives AWS's code and message. */
struct aws_fault { char code[128], message[1024]; };
int aws_json(struct aws_session *s, const char *service, const char *region, const char *target, const json_t *body, json_t **out, struct aws_fault *fault,
    struct err *e) MUST_CHECK;
/* The text of a request body as botocore writes it. */
char *aws_json_text(const json_t *body);

bool aws_fault_is_gone(const struct aws_fault *f);      /* "Could not find …" */
bool aws_fault_is_quota(const struct aws_fault *f);
bool aws_fault_is_busy(const struct aws_fault *f);      /* "Cannot update in-progress …" */
bool aws_fault_exists(const struct aws_fault *f);       /* "Cannot create already existing …" */
bool aws_fault_is_denied(const struct aws_fault *f);
bool aws_code_is_throttling(const char *code);
bool aws_code_is_expiry(const char *code);
#endif
