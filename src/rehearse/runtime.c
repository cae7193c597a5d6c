#include "rehearse/runtime.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "net/http.h"
#include "rehearse/endpoint.h"
#include "rehearse/faults.h"
#include "rehearse/frame.h"

#define PLAIN_SECONDS 60.0
#define STREAM_SECONDS 480.0
#define PING_SECONDS 2.0
#define STOP_SECONDS 2.0
#define BODY_MAX 6291456u       /* the API model's limit */
#define CONNECTIONS 64
#define FAULTY_FRAME 64u        /* bytes a frame of a stream that a fault strikes: that its 3rd frame is there does not depend on how much the container sends at once */

/* One exchange with a container: an invocation, or a ping. */
struct job {
    struct job *next;
    struct world *w;
    char *url;
    const char **headers;
    /* a ping: */
    void (*pinged)(struct world *w, void *arg, bool ok);
    void *arg;
    /* an invocation: */
    struct call c;
    char endpoint[64], variant[64];
    bool stream, begun, over;       /* over: the call is answered */
    struct buf answer;              /* of the container, unless it is streamed */
    long frames, cut_at, error_at, crc_at;      /* number of the frame that a fault strikes; 0 = none */
};

struct proxy {
    struct world *w;
    struct http_client *client;
    pthread_t thread;
    pthread_mutex_t lock;
    struct job *first;              /* not started yet */
    bool stop;
};

static void job_free(struct job *j)
{
    for (size_t i = 0; j->headers && j->headers[i]; i++) free((char *)j->headers[i]);
    free(j->headers);
    free(j->url);
    free(j->c.path);
    free(j->c.query);
    buf_free(&j->answer);
    free(j);
}

static void submit(struct proxy *p, struct job *j)
{
    pthread_mutex_lock(&p->lock);
    struct job **at = &p->first;
    while (*at) at = &(*at)->next;
    *at = j;
    pthread_mutex_unlock(&p->lock);
    http_wake(p->client);
}

/* --- 424 ------------------------------------------------------------------------------------------------------------ */

static char *log_arn(const struct job *j)
{
    return xasprintf("arn:aws:logs:%s:" ACCOUNT ":log-group:/aws/sagemaker/Endpoints/%s", j->c.region, j->endpoint);
}

static void model_error(struct job *j, long status, const char *text, size_t n)
{
    char message[512];
    char *arn = log_arn(j);
    if (status) snprintf(message, sizeof message, "Received %s error (%ld) from primary with message \"%.*s\". See https://%s.console.aws.amazon.com/cloudwatch/home for more information.",
        status < 500 ? "client" : "server", status, n > 200 ? 200 : (int)n, text, j->c.region);
    else snprintf(message, sizeof message, "%s", text);
    json_t *original = json_stringn(text, n);
    json_t *o = json_pack("{s:o, s:I, s:o, s:s, s:s}", "Message", json_message(message), "OriginalStatusCode", (json_int_t)status, "OriginalMessage",
        original ? original : json_message(text), "LogStreamArn", arn, "ErrorCode", status && status < 500 ? "CLIENT_ERROR_FROM_MODEL" : "INTERNAL_FAILURE_FROM_MODEL");
    char *body = json_text(o, false);
    struct exchange *x = j->c.x;
    call_fields(&j->c);
    exchange_answer(x, 424, "application/json", body, strlen(body), "x-amzn-ErrorType: ModelError");
    j->over = true;
    free(body);
    json_decref(o);
    free(arn);
}

static void timed_out(struct job *j)
{
    char *text = xasprintf("Your invocation timed out while waiting for a response from container primary. Review the latency metrics for each container in Amazon CloudWatch, "
        "resolve the issue, and try again.");
    model_error(j, 0, text, strlen(text));
    free(text);
}

/* --- streams -------------------------------------------------------------------------------------------------------- */

static void invoked_fields(struct job *j)
{
    char line[128];
    call_fields(&j->c);
    snprintf(line, sizeof line, "x-Amzn-Invoked-Production-Variant: %s", j->variant);
    exchange_field(j->c.x, line);
}

static void end_with_exception(struct job *j, const char *code, const char *message)
{
    struct buf b = BUF_INIT;
    json_t *o = json_pack("{s:s, s:s}", "Message", message, "ErrorCode", code);
    char *text = json_text(o, false);
    frame_exception(&b, "ModelStreamError", text);
    exchange_push(j->c.x, b.data, b.n);
    exchange_end(j->c.x);
    j->over = true;
    free(text);
    json_decref(o);
    buf_free(&b);
}

static void begin_stream(struct job *j, const struct http_reply *r)
{
    char type[128] = "application/octet-stream", line[192];
    j->begun = true;
    invoked_fields(j);
    http_header(r, "Content-Type", type, sizeof type);
    snprintf(line, sizeof line, "X-Amzn-SageMaker-Content-Type: %s", type);
    exchange_field(j->c.x, line);
    exchange_type(j->c.x, "application/vnd.amazon.eventstream");
}

static void push_frame(struct job *j, const char *p, size_t n)
{
    struct buf b = BUF_INIT;
    frame_part(&b, p, n);
    j->frames++;
    if (j->frames == j->error_at) {
        end_with_exception(j, "StreamBroken", "The model's stream has been broken off");
    } else if (j->frames == j->cut_at) {
        exchange_push(j->c.x, b.data, b.n / 2);
        exchange_cut(j->c.x);
        j->over = true;
    } else {
        if (j->frames == j->crc_at) b.data[b.n - 1] = (char)(b.data[b.n - 1] ^ 1);
        exchange_push(j->c.x, b.data, b.n);
    }
    buf_free(&b);
}

static int on_data(void *arg, const struct http_reply *r, const char *p, size_t n, double at)
{
    struct job *j = arg;
    (void)at;
    if (j->over || j->pinged) return j->over;
    if (!j->stream || r->status / 100 != 2) {
        buf_add(&j->answer, p, n);
        return 0;
    }
    if (!j->begun) begin_stream(j, r);
    const size_t most = j->cut_at || j->error_at || j->crc_at ? FAULTY_FRAME : n;
    for (size_t done = 0; done < n && !j->over; done += most) push_frame(j, p + done, n - done < most ? n - done : most);
    return j->over;
}

/* --- the end of an exchange ------------------------------------------------------------------------------------------ */

static void finish_plain(struct job *j, const struct http_reply *r)
{
    char type[128] = "application/octet-stream", line[160];
    const char *text = j->answer.data ? j->answer.data : "";
    if (r->status / 100 != 2) {
        model_error(j, r->status, text, j->answer.n);
        return;
    }
    invoked_fields(j);
    http_header(r, "Content-Type", type, sizeof type);
    snprintf(line, sizeof line, "Content-Type: %s", type);
    exchange_field(j->c.x, line);
    exchange_answer(j->c.x, 200, "application/json", text, j->answer.n, NULL);
    j->over = true;
}

static void finish(struct job *j, const struct http_reply *r, const struct err *e)
{
    if (!e->code && j->stream && r->status / 100 == 2) {
        if (!j->begun) begin_stream(j, r);
        exchange_end(j->c.x);
        j->over = true;
    } else if (!e->code) {
        finish_plain(j, r);
    } else if (j->begun) {
        bool late = e->code == EXIT_TEMPFAIL;
        end_with_exception(j, late ? "ModelInvocationTimeExceeded" : "StreamBroken", late ? "The model took too long" : "The model's stream has been broken off");
    } else if (e->code == EXIT_TEMPFAIL) {
        timed_out(j);
    } else {
        static const char TEXT[] = "The container closed the connection, or accepts none";
        model_error(j, 0, TEXT, strlen(TEXT));
    }
}

static void on_done(void *arg, const struct http_reply *r, const struct err *e)
{
    struct job *j = arg;
    if (j->pinged) {
        pthread_mutex_lock(&j->w->lock);
        j->pinged(j->w, j->arg, !e->code && r->status == 200);
        pthread_mutex_unlock(&j->w->lock);
    } else if (!j->over) {
        finish(j, r, e);
    }
    job_free(j);
}

/* --- the thread ------------------------------------------------------------------------------------------------------ */

static void start(struct proxy *p, struct job *j)
{
    struct err e = {0};
    const struct buf *body = j->pinged ? NULL : exchange_body(j->c.x);
    const struct http_request q = {.method = j->pinged ? "GET" : "POST", .url = j->url, .headers = j->headers, .body = body ? body->data ? body->data : "" : NULL,
        .body_n = body ? body->n : 0, .timeout = j->pinged ? PING_SECONDS : j->stream ? STREAM_SECONDS : PLAIN_SECONDS};
    const struct http_sink s = {on_data, on_done, j};
    if (!http_start(p->client, &q, &s, &e)) return;
    struct http_reply none = {0};
    on_done(j, &none, &e);
}

static void *proxy_thread(void *arg)
{
    struct proxy *p = arg;
    double end = 0;
    for (;;) {
        struct err e = {0};
        pthread_mutex_lock(&p->lock);
        struct job *j = p->first;
        p->first = NULL;
        bool stop = p->stop;
        if (stop && end == 0) end = clock_seconds() + STOP_SECONDS;
        pthread_mutex_unlock(&p->lock);
        while (j) {
            struct job *next = j->next;
            start(p, j);
            j = next;
        }
        int running = http_run(p->client, stop ? 0.1 : 10, &e);
        if (running < 0) die(&e);
        if (stop && (!running || clock_seconds() > end)) return NULL;
    }
}

struct proxy *proxy_start(struct world *w, struct err *e)
{
    struct proxy *p = xcalloc(1, sizeof *p);
    p->w = w;
    p->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    p->client = http_client_new(CONNECTIONS, e);
    if (p->client && pthread_create(&p->thread, NULL, proxy_thread, p) == 0) return p;
    err_thread(e);
    http_client_free(p->client);
    free(p);
    return NULL;
}

void proxy_stop(struct world *w)
{
    struct proxy *p = w->proxy;
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_mutex_unlock(&p->lock);
    http_wake(p->client);
    pthread_join(p->thread, NULL);
    http_client_free(p->client);
    free(p);
    w->proxy = NULL;
}

void proxy_ping(struct world *w, const char *url, void (*done)(struct world *w, void *arg, bool ok), void *arg)
{
    struct job *j = xcalloc(1, sizeof *j);
    *j = (struct job){.w = w, .url = xasprintf("%s/ping", url), .pinged = done, .arg = arg};
    submit(w->proxy, j);
}

/* --- the call -------------------------------------------------------------------------------------------------------- */

/* What SageMaker hands on to the container. */
static const char **container_headers(const struct call *c)
{
    static const char *const KEPT[] = {"Content-Type", "Accept", "X-Amzn-SageMaker-Custom-Attributes", "X-Amzn-SageMaker-Inference-Id"};
    const char **list = xcalloc(sizeof KEPT / sizeof *KEPT + 1, sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < sizeof KEPT / sizeof *KEPT; i++) {
        const char *v = exchange_header(c->x, KEPT[i]);
        if (!strcmp(KEPT[i], "Accept") && !v) v = exchange_header(c->x, "X-Amzn-SageMaker-Accept");
        if (v) list[n++] = xasprintf("%s: %s", KEPT[i], v);
        else if (!i) list[n++] = xstrdup("Content-Type: application/octet-stream");
    }
    return list;
}

static long frame_fault(const struct world *w, const char *kind)
{
    const struct fault *f = faults_find(w, kind, NULL, NULL, NULL);
    return f ? f->count : 0;
}

/* Faults that answer before the container is asked. */
static bool struck(struct call *c)
{
    if (faults_strike(c->w, "unavailable", c->region, NULL, NULL)) call_error(c, 503, "ServiceUnavailable", "Service unavailable");
    else if (faults_strike(c->w, "not-ready", c->region, NULL, NULL)) call_error(c, 429, "ModelNotReadyException", "The model is not ready for inference: it is being loaded");
    return !c->x;
}

void runtime_invoke(struct call *c)
{
    struct world *w = c->w;
    char name[64] = "", rest[64] = "";
    struct target t;
    bool form = sscanf(c->path, "/endpoints/%63[A-Za-z0-9-]/%63s", name, rest) == 2;
    bool stream = !strcmp(rest, "invocations-response-stream");
    pthread_mutex_lock(&w->lock);
    if (!form || !endpoint_target(w, c->region, name, exchange_header(c->x, "X-Amzn-SageMaker-Target-Variant"), &t)) {
        call_error(c, 400, "ValidationError", "Endpoint %s of account " ACCOUNT " not found.", name);
        goto out;
    }
    if (exchange_body(c->x)->n > BODY_MAX) call_error(c, 400, "ValidationError", "Request body of %zu bytes is larger than %u", exchange_body(c->x)->n, BODY_MAX);
    else if (!struck(c) && t.url && !t.ready) call_error(c, 429, "ModelNotReadyException", "The model is not ready for inference: it is being loaded");
    if (!c->x) {
        free(t.url);
        goto out;
    }
    struct job *j = xcalloc(1, sizeof *j);
    *j = (struct job){.w = w, .c = *c, .stream = stream, .headers = NULL, .url = t.url ? xasprintf("%s/invocations", t.url) : NULL};
    c->x = NULL;
    c->path = c->query = NULL;
    snprintf(j->endpoint, sizeof j->endpoint, "%s", name);
    snprintf(j->variant, sizeof j->variant, "%s", t.variant);
    free(t.url);
    j->cut_at = frame_fault(w, "cut-stream");
    j->error_at = frame_fault(w, "stream-error");
    j->crc_at = frame_fault(w, "bad-crc");
    bool error = faults_strike(w, "model-error", j->c.region, NULL, NULL), late = faults_strike(w, "timeout", j->c.region, NULL, NULL);
    if (error) model_error(j, 500, "{\"error\":{\"message\":\"EngineCore encountered an issue\",\"type\":\"InternalServerError\",\"code\":500}}", 95);
    else if (late) timed_out(j);
    else if (!j->url) model_error(j, 0, "The container does not run", 26);
    else j->headers = container_headers(&j->c);
    pthread_mutex_unlock(&w->lock);
    if (j->over) job_free(j);
    else submit(w->proxy, j);
    return;
out:
    pthread_mutex_unlock(&w->lock);
}
