#include "aws/session.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "aws/credentials.h"
#include "base/clock.h"

#define TRIES 5
#define BACKOFF_FIRST 0.5
#define BACKOFF_MOST 20.0
#define RENEW_BEFORE (15 * 60)          /* seconds before the end */
#define RENEW_PAUSE 60                  /* a source that gives short-lived ones is not asked for every call */

int aws_session_open(struct aws_session *s, const char *profile, struct err *e)
{
    *s = (struct aws_session){.explicit_profile = profile != NULL, .tries = TRIES};
    if (!(s->config = aws_config_load(profile, e))) return -1;
    s->http = http_client_new(8, e);
    return s->http ? 0 : -1;
}

void aws_session_close(struct aws_session *s)
{
    aws_credentials_free(&s->credentials);
    http_client_free(s->http);
    aws_config_free(s->config);
}

int aws_session_refresh(struct aws_session *s, struct err *e)
{
    struct aws_credentials fresh;
    time_t now = aws_now(), end = s->credentials.expires;
    if (s->credentials.key_id && (!end || end - now > RENEW_BEFORE || (end > now && time(NULL) - s->renewed < RENEW_PAUSE))) return 0;
    s->renewed = time(NULL);
    struct err fault = {0};
    if (aws_credentials_load(&fresh, s->config, s->explicit_profile, s->http, &fault)) {
        if (s->credentials.key_id && s->credentials.expires > aws_now()) return 0;     /* the old ones still pass */
        return err_set(e, fault.code, "%s", fault.msg);
    }
    aws_credentials_free(&s->credentials);
    s->credentials = fresh;
    return 0;
}

/* --- what an error means -------------------------------------------------------------------------------------------- */

static bool one_of(const char *code, const char *const list[])
{
    for (size_t i = 0; list[i]; i++)
        if (!strcmp(code, list[i])) return true;
    return false;
}

bool aws_code_is_throttling(const char *code)
{
    static const char *const LIST[] = {"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException", "RequestThrottled",
        "TooManyRequestsException", "RequestLimitExceeded", "LimitExceededException", "SlowDown", "PriorRequestNotComplete", NULL};
    return one_of(code, LIST);
}

bool aws_code_is_expiry(const char *code)
{
    static const char *const LIST[] = {"ExpiredTokenException", "ExpiredToken", "TokenRefreshRequired", NULL};
    return one_of(code, LIST);
}

static bool code_is_denial(const char *code)
{
    static const char *const LIST[] = {"AccessDeniedException", "AccessDenied", "UnrecognizedClientException", "InvalidClientTokenId", "InvalidAccessKeyId",
        "InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
        "RequestTimeTooSkewed", "AuthFailure", "OptInRequired", NULL};
    return one_of(code, LIST) || aws_code_is_expiry(code);
}

bool aws_fault_is_gone(const struct aws_fault *f)
{
    return !strncmp(f->message, "Could not find", 14) || !strcmp(f->code, "ResourceNotFound");
}

bool aws_fault_is_quota(const struct aws_fault *f) { return !strcmp(f->code, "ResourceLimitExceeded"); }
bool aws_fault_is_busy(const struct aws_fault *f) { return strstr(f->message, "in-progress") || !strcmp(f->code, "ResourceInUse"); }
bool aws_fault_exists(const struct aws_fault *f) { return strstr(f->message, "already existing") || strstr(f->message, "already exists"); }
bool aws_fault_is_denied(const struct aws_fault *f) { return code_is_denial(f->code); }

static bool worth_retrying(const struct aws_answer *a)
{
    long s = a->http.status;
    return s == 429 || s == 500 || s == 502 || s == 503 || s == 504 || aws_code_is_throttling(a->code);
}

static int exit_code(const struct aws_answer *a)
{
    if (code_is_denial(a->code) || a->http.status == 401 || a->http.status == 403) return EXIT_NOPERM;
    if (worth_retrying(a)) return EXIT_TEMPFAIL;
    if (!strcmp(a->code, "ResourceLimitExceeded") || !strncmp(a->message, "Could not find", 14) || a->http.status == 404
        || strstr(a->code, "NotFound"))
        return EXIT_UNAVAILABLE;
    return a->http.status >= 500 ? EXIT_TEMPFAIL : EXIT_DATA;
}

/* --- a call --------------------------------------------------------------------------------------------------------- */

static void back_off(int tries)
{
    double most = BACKOFF_FIRST;
    for (int i = 1; i < tries && most < BACKOFF_MOST; i++) most *= 2;
    /* Half fixed, half at random: callers that were refused together come back apart.  The clock's low digits are random enough. */
    double wait = most / 2 + most / 2 * ((double)((long)(clock_seconds() * 1e7) % 1000) / 1000);
    struct timespec t = {(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
    nanosleep(&t, NULL);
}

/* After an answer or its absence: is one more try worth it?  Prepares it. */
static bool prepare_retry(struct aws_session *s, const struct aws_answer *a, int sent, int tries, bool *clock_cured, bool *renewed)
{
    struct err ignored = {0};
    if (!sent && !*clock_cured && aws_learn_clock(a)) return *clock_cured = true;
    if (!sent && !*renewed && aws_code_is_expiry(a->code)) {
        *renewed = true;
        s->credentials.expires = 1;
        return !aws_session_refresh(s, &ignored);
    }
    if (tries >= s->tries || (!sent && !worth_retrying(a))) return false;
    back_off(tries);
    return true;
}

int aws_session_call(struct aws_session *s, const char *service, const char *region, struct aws_call *c, struct aws_answer *a, struct err *e)
{
    bool clock_cured = false, renewed = false;
    const char *what = c->target ? c->target : c->path ? c->path : service;
    const char *given = c->url;
    char *url = given ? xstrdup(given) : aws_config_url(s->config, service, region, NULL, e);
    if (!url) return -1;
    c->url = url;
    c->region = region;
    c->service = !strcmp(service, "sagemaker-runtime") ? "sagemaker" : !strcmp(service, "service-quotas") ? "servicequotas" : service;
    int bad = 0;
    for (int tries = 1;; tries++) {
        struct err fault = {0};
        *a = (struct aws_answer){0};
        if ((bad = aws_session_refresh(s, e))) break;
        int sent = aws_send(s->http, &s->credentials, c, a, &fault);
        if (!sent && !*a->code) break;
        bool retry = (!sent || fault.code == EXIT_UNAVAILABLE || fault.code == EXIT_TEMPFAIL) && prepare_retry(s, a, sent, tries, &clock_cured, &renewed);
        if (retry) {
            note_msg("%s: %s: trying again", what, sent ? fault.msg : a->code);
            aws_answer_free(a);
            continue;
        }
        if (sent) bad = err_set(e, fault.code == EXIT_UNAVAILABLE ? EXIT_TEMPFAIL : fault.code, "%s", fault.msg);
        else bad = err_set(e, exit_code(a), "%s in %s: %s: %s%s%s", what, region, a->code, *a->message ? a->message : "no message",
                 *a->request_id ? ", request " : "", a->request_id);
        break;
    }
    c->url = given;
    free(url);
    return bad;
}

char *aws_json_text(const json_t *body)
{
    char *text = json_dumps(body, JSON_ENSURE_ASCII);
    if (!text) die_msg(EXIT_BUG, "a request that is no JSON");
    return text;
}

int aws_json(struct aws_session *s, const char *service, const char *region, const char *target, const json_t *body, json_t **out, struct aws_fault *fault, struct err *e)
{
    char *text = aws_json_text(body);
    struct aws_call c = {.target = target, .content_type = "application/x-amz-json-1.1", .body = text, .body_n = strlen(text)};
    struct aws_answer a = {0};
    if (out) *out = NULL;
    int bad = aws_session_call(s, service, region, &c, &a, e);
    if (fault) {
        memcpy(fault->code, a.code, sizeof fault->code);
        memcpy(fault->message, a.message, sizeof fault->message);
    }
    if (!bad && out && a.http.body.n && !(*out = json_parse(a.http.body.data, a.http.body.n, target, e))) bad = -1;
    aws_answer_free(&a);
    free(text);
    return bad;
}
