#include "aws/runtime.h"

#include <stdlib.h>
#include <string.h>
#include "aws/eventstream.h"
#include "base/clock.h"

#define TRIES 4
#define RENEWED_LATELY 5.0              /* seconds in which an expiry is that of the credentials before */

struct runtime {
    struct aws_session *s;
    char *region, *name, *url, *path[2];        /* plain, stream */
    struct sigv4_signer signer;
    double renewed;                 /* when the account last called the credentials expired */
    struct load_wire wire;
};

/* --- sending -------------------------------------------------------------------------------------------------------- */

static char *wire_url(void *ctx, bool stream)
{
    const struct runtime *r = ctx;
    return xasprintf("%s%s", r->url, r->path[stream]);
}

static char **wire_headers(void *ctx, const struct openai_request *q, struct err *e)
{
    static const char *const STREAM[] = {"X-Amzn-SageMaker-Accept: text/event-stream", NULL};
    struct runtime *r = ctx;
    if (aws_session_refresh(r->s, e)) return NULL;
    if (r->signer.secret != r->s->credentials.secret) sigv4_wipe(&r->signer);
    r->signer.key_id = r->s->credentials.key_id;
    r->signer.secret = r->s->credentials.secret;
    struct aws_call c = {.url = r->url, .service = "sagemaker", .region = r->region, .path = r->path[q->stream], .content_type = "application/json",
        .extra = q->stream ? STREAM : NULL, .body = q->body, .body_n = q->body_n};
    return aws_headers(&r->signer, &r->s->credentials, &c);
}

/* --- answers -------------------------------------------------------------------------------------------------------- */

struct frames { struct eventstream stream; int (*piece)(void *arg, const char *p, size_t n, struct err *e); void *arg; };

static bool wire_framed(const struct http_reply *r, bool *events)
{
    char type[128], inner[128] = "";
    if (!http_header(r, "Content-Type", type, sizeof type) || strncmp(type, "application/vnd.amazon.eventstream", 34)) return false;
    http_header(r, "X-Amzn-SageMaker-Content-Type", inner, sizeof inner);
    *events = strncmp(inner, "application/json", 16) != 0;
    return true;
}

static void *wire_open(void *ctx)
{
    (void)ctx;
    return xcalloc(1, sizeof(struct frames));
}

static int on_frame(void *arg, const struct eventstream_frame *f, struct err *e)
{
    struct frames *s = arg;
    int what = eventstream_part(f, e);
    if (what < 1) return what;
    return s->piece(s->arg, f->payload, f->payload_n, e);
}

static int wire_feed(void *state, const char *p, size_t n, int (*piece)(void *arg, const char *p, size_t n, struct err *e), void *arg, struct err *e)
{
    struct frames *s = state;
    s->piece = piece;
    s->arg = arg;
    return eventstream_feed(&s->stream, p, n, on_frame, s, e);
}

static int wire_end(void *state, struct err *e) { return eventstream_end(&((struct frames *)state)->stream, e); }

static void wire_close(void *state)
{
    struct frames *s = state;
    eventstream_free(&s->stream);
    free(s);
}

/* --- refusals ------------------------------------------------------------------------------------------------------- */

/* The container's own answer inside a ModelError: its status says whose fault it was. */
static void model_error(const struct aws_answer *a, const char *body, size_t n, struct err *e)
{
    struct err ignored = {0};
    char why[600];
    json_t *v = json_parse(body, n, "ModelError", &ignored);
    json_int_t status = json_integer_value(json_object_get(v, "OriginalStatusCode"));
    const char *original = json_string_value(json_object_get(v, "OriginalMessage"));
    int code = status == 0 || status == 429 || status == 503 ? EXIT_TEMPFAIL : status >= 400 && status < 500 ? EXIT_DATA : EXIT_UNAVAILABLE;
    if (original && *original) openai_refusal(original, strlen(original), why, sizeof why);
    else snprintf(why, sizeof why, "%.590s", a->message);
    err_set(e, code, "the container answers %lld: %s", (long long)status, why);
    json_decref(v);
}

static bool wire_refused(void *ctx, const struct http_reply *reply, const char *body, size_t n, int tries, double *wait, struct err *e)
{
    struct runtime *r = ctx;
    struct aws_answer a = {.http = *reply};
    struct err ignored = {0};
    aws_read_error(reply, body, n, &a);
    *wait = 0;
    if (tries == 1 && aws_learn_clock(&a)) return true;
    if (tries == 1 && aws_code_is_expiry(a.code)) {                 /* the first of those that were under way renews for all */
        const double now = clock_seconds();
        if (r->renewed && now - r->renewed < RENEWED_LATELY) return true;
        r->renewed = now;
        r->s->credentials.expires = 1;
        return !aws_session_refresh(r->s, &ignored);
    }
    bool busy = aws_code_is_throttling(a.code) || !strcmp(a.code, "ModelNotReadyException") || !strcmp(a.code, "ServiceUnavailable") || reply->status == 429
        || reply->status == 503;
    if (busy && tries <= TRIES) {
        *wait = 0.25 * (double)(1 << tries);
        return true;
    }
    if (!strcmp(a.code, "ModelError")) model_error(&a, body, n, e);
    else if (reply->status == 401 || reply->status == 403 || aws_code_is_expiry(a.code) || strstr(a.code, "Signature") || strstr(a.code, "UnrecognizedClient"))
        err_set(e, EXIT_NOPERM, "%s: %s", a.code, a.message);
    else if (busy) err_set(e, EXIT_TEMPFAIL, "%s: %s: tried %d times", a.code, *a.message ? a.message : "no message", tries);
    else if (reply->status >= 500 || strstr(a.message, "not found") || aws_code_is_throttling(a.code)) err_set(e, EXIT_UNAVAILABLE, "%s: %s", a.code, a.message);
    else err_set(e, EXIT_DATA, "%s: %s", a.code, a.message);
    return false;
}

/* -------------------------------------------------------------------------------------------------------------------- */

struct runtime *runtime_new(struct aws_session *s, const char *region, const char *endpoint, struct err *e)
{
    struct runtime *r = xcalloc(1, sizeof *r);
    r->s = s;
    r->region = xstrdup(region);
    r->name = xstrdup(endpoint);
    r->path[0] = xasprintf("/endpoints/%s/invocations", endpoint);
    r->path[1] = xasprintf("/endpoints/%s/invocations-response-stream", endpoint);
    r->signer = (struct sigv4_signer){.region = r->region, .service = "sagemaker"};
    r->wire = (struct load_wire){.ctx = r, .url = wire_url, .headers = wire_headers, .headers_free = aws_headers_free, .framed = wire_framed, .open = wire_open,
        .feed = wire_feed, .end = wire_end, .close = wire_close, .refused = wire_refused, .plain_limit = RUNTIME_PLAIN_LIMIT};
    r->url = aws_config_url(s->config, "sagemaker-runtime", region, NULL, e);
    if (r->url && !aws_session_refresh(s, e)) return r;
    runtime_free(r);
    return NULL;
}

void runtime_free(struct runtime *r)
{
    if (!r) return;
    sigv4_wipe(&r->signer);
    free(r->region);
    free(r->name);
    free(r->url);
    free(r->path[0]);
    free(r->path[1]);
    free(r);
}

const struct load_wire *runtime_wire(const struct runtime *r) { return &r->wire; }
const char *runtime_url(const struct runtime *r) { return r->url; }
