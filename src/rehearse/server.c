#include "rehearse/server.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "rehearse/account.h"
#include "rehearse/auth.h"
#include "rehearse/call.h"
#include "rehearse/control.h"
#include "rehearse/faults.h"
#include "rehearse/logs.h"
#include "rehearse/runtime.h"
#include "rehearse/s3.h"
#include "rehearse/scheduler.h"

#define KEYS_SECONDS 3600
#define ROLE "rehearsal"

/* --- keys for programs on this machine ------------------------------------------------------------------------------ */

static void plain(struct exchange *x, int status, const char *type, const char *text) { exchange_answer(x, status, type, text, strlen(text), NULL); }

static void give_keys(struct world *w, struct exchange *x)
{
    pthread_mutex_lock(&w->lock);
    if (faults_strike(w, "token-429", NULL, NULL, NULL)) {
        pthread_mutex_unlock(&w->lock);
        plain(x, 429, "application/json", "{\"code\":\"ThrottlingException\",\"message\":\"An error occurred (429) when calling the CreateOAuth2Token operation: Rate exceeded\"}");
        return;
    }
    json_t *k = auth_issue(w, "arn:aws:sts::" ACCOUNT ":assumed-role/" ROLE "/local", KEYS_SECONDS);
    struct err e = {0};
    if (world_save(w, &e)) warn_msg("%s", e.msg);
    pthread_mutex_unlock(&w->lock);
    json_object_set(k, "Token", json_object_get(k, "SessionToken"));
    json_object_del(k, "SessionToken");
    json_object_set_new(k, "Code", json_string("Success"));
    json_object_set_new(k, "Type", json_string("AWS-HMAC"));
    char *text = json_text(k, false);
    plain(x, 200, "application/json", text);
    free(text);
    json_decref(k);
}

/* True = answered. */
static bool unsigned_path(struct world *w, struct exchange *x)
{
    static const char META[] = "/latest/meta-data/iam/security-credentials/";
    const char *path = exchange_path(x), *method = exchange_method(x);
    bool get = !strcmp(method, "GET");
    if (exchange_header(x, "Authorization")) return false;
    if (get && !strcmp(path, "/ping")) plain(x, 200, "text/plain", "");
    else if (get && !strcmp(path, "/credentials")) give_keys(w, x);
    else if (!strcmp(method, "PUT") && !strcmp(path, "/latest/api/token")) plain(x, 200, "text/plain", "AQAEAREHEARSAL==");
    else if (get && !strncmp(path, META, sizeof META - 1)) {
        if (!exchange_header(x, "X-aws-ec2-metadata-token")) plain(x, 401, "text/plain", "");
        else if (!path[sizeof META - 1]) plain(x, 200, "text/plain", ROLE);
        else if (!strcmp(path + sizeof META - 1, ROLE)) give_keys(w, x);
        else plain(x, 404, "text/plain", "");
    } else {
        return false;
    }
    return true;
}

/* --- what is asked -------------------------------------------------------------------------------------------------- */

static const struct { const char *prefix, *service; void (*fn)(struct call *); } TARGETS[] = {{"SageMaker.", "sagemaker", control_call}, {"Logs_20140328.", "logs", logs_call},
    {"ServiceQuotasV20190624.", "servicequotas", quotas_call}, {"AmazonEC2ContainerRegistry_V20150921.", "ecr", ecr_call}};

static json_t *form_fields(const struct buf *body)
{
    json_t *o = json_object();
    for (const char *p = body->data; p && *p;) {
        size_t n = strcspn(p, "&"), name = 0;
        while (name < n && p[name] != '=') name++;
        char *key = url_decode(p, name, true), *value = url_decode(p + name + (name < n), n - name - (name < n), true);
        json_t *v = json_string(value);
        if (v) json_object_set_new(o, key, v);
        free(key);
        free(value);
        p += n + (p[n] == '&');
    }
    return o;
}

static bool read_json(struct call *c)
{
    const struct buf *body = exchange_body(c->x);
    struct err e = {0};
    if (!body->n) {
        c->in = json_object();
        return true;
    }
    c->in = json_parse(body->data, body->n, "the body", &e);
    if (c->in && json_is_object(c->in)) return true;
    call_error(c, 400, "SerializationException", "%s", c->in ? "expected an object" : e.msg);
    return false;
}

static void scheduler_op(struct call *c)
{
    const char *m = exchange_method(c->x);
    bool one = strlen(c->path) > strlen("/schedules/");
    snprintf(c->op, sizeof c->op, "%s", !one ? "ListSchedules" : !strcmp(m, "POST") ? "CreateSchedule" : !strcmp(m, "PUT") ? "UpdateSchedule" : !strcmp(m, "GET") ? "GetSchedule" : "DeleteSchedule");
}

typedef void service_fn(struct call *);

/* Service, wire format and operation; the function of the service, NULL for the runtime. */
static service_fn *recognise(struct call *c)
{
    const char *target = exchange_header(c->x, "X-Amz-Target"), *type = exchange_header(c->x, "Content-Type");
    c->wire = WIRE_JSON;
    for (size_t i = 0; target && i < sizeof TARGETS / sizeof *TARGETS; i++) {
        size_t n = strlen(TARGETS[i].prefix);
        if (strncmp(target, TARGETS[i].prefix, n)) continue;
        snprintf(c->service, sizeof c->service, "%s", TARGETS[i].service);
        snprintf(c->op, sizeof c->op, "%s", target + n);
        return TARGETS[i].fn;
    }
    if (!strncmp(c->path, "/endpoints/", 11) && strcmp(c->service, "s3")) {
        c->wire = WIRE_REST;
        snprintf(c->service, sizeof c->service, "runtime");
        snprintf(c->op, sizeof c->op, strstr(c->path, "-response-stream") ? "InvokeEndpointWithResponseStream" : "InvokeEndpoint");
        return NULL;
    }
    if (!strncmp(c->path, "/schedules", 10) && strcmp(c->service, "s3")) {
        c->wire = WIRE_REST;
        snprintf(c->service, sizeof c->service, "scheduler");
        scheduler_op(c);
        return scheduler_call;
    }
    if (!strcmp(c->service, "sts") || !strcmp(c->service, "iam") || (!*c->service && type && !strncmp(type, "application/x-www-form-urlencoded", 33))) {
        c->wire = WIRE_QUERY;
        if (!*c->service) snprintf(c->service, sizeof c->service, "sts");
        c->in = form_fields(exchange_body(c->x));
        snprintf(c->op, sizeof c->op, "%s", call_str(c, "Action") ? call_str(c, "Action") : "");
        return sts_call;
    }
    if (*c->service && strcmp(c->service, "s3")) return control_call;       /* no target: refused there */
    c->wire = WIRE_XML;
    snprintf(c->service, sizeof c->service, "s3");
    s3_name_op(c);
    return s3_call;
}

/* --- faults that may meet any call ---------------------------------------------------------------------------------- */

static void throttled(struct call *c)
{
    if (c->wire == WIRE_XML) call_error(c, 503, "SlowDown", "Please reduce your request rate.");
    else call_error(c, !strcmp(c->service, "scheduler") ? 429 : 400, c->wire == WIRE_QUERY ? "Throttling" : !strcmp(c->service, "servicequotas") ? "TooManyRequestsException"
        : "ThrottlingException", "Rate exceeded");
}

static void denied(struct call *c)
{
    const char *prefix = !strcmp(c->service, "runtime") ? "sagemaker" : c->service;
    if (c->wire == WIRE_XML) call_error(c, 403, "AccessDenied", "Access Denied");
    else call_error(c, c->wire == WIRE_JSON ? 400 : 403, c->wire == WIRE_QUERY ? "AccessDenied" : "AccessDeniedException",
        "User: %s is not authorized to perform: %s:%s because no identity-based policy allows the %s:%s action", auth_arn(c->w, c->key_id), prefix, c->op, prefix, c->op);
}

static bool struck(struct call *c)
{
    if (faults_strike(c->w, "network", c->region, NULL, c->op)) {
        exchange_cut(c->x);
        c->x = NULL;
    } else if (faults_strike(c->w, "throttle", c->region, NULL, c->op)) throttled(c);
    else if (faults_strike(c->w, "denied", c->region, NULL, c->op)) denied(c);
    else if (faults_strike(c->w, "internal", c->region, NULL, c->op)) call_error(c, 500, c->wire == WIRE_XML ? "InternalError" : "InternalFailure", "The request processing has failed because of an unknown error.");
    else c->lose = faults_strike(c->w, "lost-reply", c->region, NULL, c->op) != NULL;
    return !c->x;
}

/* --- a call ---------------------------------------------------------------------------------------------------------- */

static bool allowed(struct call *c)
{
    if (!strcmp(c->op, "AssumeRoleWithWebIdentity")) return !struck(c);
    return auth_check(c) && !struck(c);
}

static void answer(struct call *c, service_fn *fn)
{
    struct err e = {0};
    pthread_mutex_lock(&c->w->lock);
    c->w->last_call = clock_seconds();
    bool on = allowed(c);
    if (on && fn && (c->in || c->wire == WIRE_XML || read_json(c))) fn(c);
    if (world_save(c->w, &e)) warn_msg("%s", e.msg);
    pthread_mutex_unlock(&c->w->lock);
    if (on && !fn) runtime_invoke(c);
}

void server_handle(void *arg, struct exchange *x)
{
    const char *target = exchange_target(x);
    size_t n = strcspn(target, "?");
    if (unsigned_path(arg, x)) return;
    struct call c = {.w = arg, .x = x, .path = xstrndup(target, n), .query = xstrdup(target[n] ? target + n + 1 : "")};
    random_uuid(c.request_id);
    auth_scope(&c);
    if (!*c.region) snprintf(c.region, sizeof c.region, "us-east-1");
    answer(&c, recognise(&c));
    json_decref(c.in);
    free(c.path);
    free(c.query);
}
