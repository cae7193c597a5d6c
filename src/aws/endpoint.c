#include "aws/endpoint.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include "aws/prices.h"
#include "base/clock.h"

#define POLL 30.0
#define POLL_HERE 1.0
#define SETTLE 60                       /* seconds after a try of CreateEndpoint in which it may still land: its time limit, twice */
#define SETTLE_HERE 1                   /* a rehearsal's server is as near as its kernel: what it was sent has arrived */
#define CREATE_TRIES 5
#define CREATE_PAUSE 1.0                /* seconds after the first try, doubled each time */
#define PATIENCE 600.0                  /* of a watch without any answer */
#define PATIENCE_HERE 30.0              /* a rehearsal's server that is gone does not come back by waiting, and nothing of it bills */
#define ERROR_LINES 6

static bool is_here(const struct aws_session *s, const char *region)
{
    bool overridden = false;
    struct err ignored = {0};
    char *url = aws_config_url(s->config, "sagemaker", region, &overridden, &ignored);
    bool here = url && overridden && aws_url_is_loopback(url);
    free(url);
    return here;
}

double endpoint_poll(const struct aws_session *s, const char *region) { return is_here(s, region) ? POLL_HERE : POLL; }

bool endpoint_pause(double seconds, const volatile int *stop)
{
    for (double end = clock_seconds() + seconds, left; (left = end - clock_seconds()) > 0;) {
        if (stop && *stop) return false;
        if (left > 0.2) left = 0.2;
        nanosleep(&(struct timespec){.tv_nsec = (long)(left * 1e9)}, NULL);
    }
    return !stop || !*stop;
}

/* --- money ---------------------------------------------------------------------------------------------------------- */

time_t endpoint_age(time_t created)
{
    const time_t now = aws_time(time(NULL));
    return now > created ? now - created : 0;           /* a clock that is off by less than AWS minds */
}

double endpoint_usd(const char *region, const char *instance, time_t since)
{
    double rate = instance ? price_per_hour(region, instance) : -1;
    return rate < 0 ? -1 : since ? rate * (double)endpoint_age(since) / 3600 : 0;
}

void endpoint_cost(char *out, size_t n, const char *region, const char *instance, time_t since)
{
    double usd = endpoint_usd(region, instance, since);
    if (usd < 0) {
        snprintf(out, n, "price unknown (%s%s)", instance ? instance : "its instance is not known", instance ? " is not in data/prices.json" : "");
        return;
    }
    const char *of = price_region(region, instance);
    bool own = !strcmp(of, region);
    snprintf(out, n, "USD %.4f so far (%s at %.4f an hour, prices of %s%s%s)", usd, instance, price_per_hour(region, instance), own ? "" : of, own ? "" : ", ", price_date());
}

/* Not this program's own may have another config's name, more instances, more variants: then a price of one would be too low. */
char *endpoint_instance(struct aws_session *s, const char *region, const json_t *description)
{
    json_t *v = NULL;
    struct err ignored = {0};
    const char *config = json_string_value(json_object_get(description, "EndpointConfigName"));
    if (!config || sagemaker_describe(s, region, SAGEMAKER_CONFIG, config, &v, NULL, &ignored) || !v) return NULL;
    const json_t *variants = json_object_get(v, "ProductionVariants"), *variant = json_array_get(variants, 0);
    const char *type = json_string_value(json_object_get(variant, "InstanceType"));
    const bool single = json_array_size(variants) == 1 && json_integer_value(json_object_get(variant, "InitialInstanceCount")) == 1;
    char *copy = type && single ? xstrdup(type) : NULL;
    json_decref(v);
    return copy;
}

time_t endpoint_created(const json_t *description)
{
    return (time_t)json_number_value(json_object_get(description, "CreationTime"));
}

static void duration(char *out, size_t n, time_t seconds)
{
    if (seconds >= 3600) snprintf(out, n, "%ldh %02ldm", (long)seconds / 3600, (long)seconds / 60 % 60);
    else snprintf(out, n, "%ldm %02lds", (long)seconds / 60, (long)seconds % 60);
}

/* --- taking down ---------------------------------------------------------------------------------------------------- */

/* The account refuses: say what runs on, and what to do. */
static int loud(struct aws_session *s, const struct journal_entry *x, const char *why, struct err *e)
{
    json_t *v = NULL;
    struct err ignored = {0};
    const char *state = "in an unknown state";
    char cost[200];
    if (!sagemaker_describe(s, x->region, SAGEMAKER_ENDPOINT, x->name, &v, NULL, &ignored) && v) state = json_string_value(json_object_get(v, "EndpointStatus"));
    endpoint_cost(cost, sizeof cost, x->region, x->instance, v ? endpoint_created(v) : x->created);
    err_set(e, EXIT_NOPERM, "%s@%s STILL RUNS: it may not be deleted (%s): it is %s, %s: with an identity that may, run: "
        "aws sagemaker delete-endpoint --endpoint-name %s --region %s", x->name, x->region, why, state ? state : "in an unknown state", cost, x->name, x->region);
    json_decref(v);
    return -1;
}

struct taking { struct aws_session *s; const struct journal_entry *x; const struct teardown *t; double poll, answered; bool seen, expired; };

/* A fault that may pass: 0 = go on trying, -1 = patience is at its end. */
static int endure(struct taking *k, const struct err *fault, struct err *e)
{
    if (k->t->patience > 0 && clock_seconds() - k->answered > k->t->patience)
        return err_set(e, EXIT_TEMPFAIL, "%s@%s may still run: %s: run sm-endpoint delete %s --region %s again", k->x->name, k->x->region, fault->msg, k->x->name, k->x->region);
    note_msg("%s@%s: %s", k->x->name, k->x->region, fault->msg);
    return 0;
}

static int rest(struct taking *k, double seconds, struct err *e)
{
    if (endpoint_pause(seconds, k->t->stop)) return 0;
    return err_set(e, EXIT_TEMPFAIL, "%s@%s is not gone yet: stopped while deleting it: run sm-endpoint delete %s --region %s", k->x->name, k->x->region, k->x->name,
        k->x->region);
}

/* One look and one push: 1 = gone, 0 = not yet, -1 = no use. */
static int push_endpoint(struct taking *k, struct err *e)
{
    const struct journal_entry *x = k->x;
    struct err fault = {0};
    struct aws_fault f = {"", ""};
    json_t *v = NULL;
    if (!sagemaker_delete(k->s, x->region, SAGEMAKER_ENDPOINT, x->name, &f, &fault)) {
        k->answered = clock_seconds();
        k->seen = true;
    } else if (aws_fault_is_gone(&f)) {
        k->answered = clock_seconds();
        return 1;
    } else if (aws_fault_is_busy(&f)) {
        k->answered = clock_seconds();
        k->seen = true;
        note_msg("%s@%s: in progress, not to be deleted yet", x->name, x->region);
    } else if (aws_code_is_expiry(f.code) && k->t->through_expiry) {
        if (!k->expired) warn_msg("%s@%s STILL RUNS: the credentials have expired: log in again; it is tried until then", x->name, x->region);
        k->expired = true;
        return endure(k, &fault, e);
    } else if (fault.code == EXIT_NOPERM) {
        return loud(k->s, x, fault.msg, e);
    } else if (endure(k, &fault, e)) {
        return -1;
    }
    fault = (struct err){0};
    if (sagemaker_describe(k->s, x->region, SAGEMAKER_ENDPOINT, x->name, &v, &f, &fault))
        return fault.code == EXIT_NOPERM ? 0 : endure(k, &fault, e);      /* may delete, but not look: DeleteEndpoint tells, too */
    k->answered = clock_seconds();
    bool gone = !v;
    json_decref(v);
    return gone;
}

/* Config and model do not bill, but are taken down as patiently. */
static int remove_kind(struct taking *k, enum sagemaker_kind kind, struct err *e)
{
    for (;;) {
        struct err fault = {0};
        struct aws_fault f = {"", ""};
        if (!sagemaker_delete(k->s, k->x->region, kind, k->x->name, &f, &fault) || aws_fault_is_gone(&f)) return 0;
        if (fault.code == EXIT_NOPERM) return err_set(e, EXIT_NOPERM, "%s@%s: the endpoint is gone, what it was made from is not: %s", k->x->name, k->x->region, fault.msg);
        if (fault.code == EXIT_DATA && !aws_fault_is_busy(&f)) return err_set(e, fault.code, "%s", fault.msg);
        if (endure(k, &fault, e) || rest(k, k->poll, e)) return -1;
    }
}

static int remove_schedule(struct taking *k, struct err *e)
{
    struct err fault = {0};
    if (!k->x->expires) return 0;
    for (int i = 0; i < 3; i++) {
        fault = (struct err){0};
        if (!schedule_delete(k->s, k->x->region, k->x->name, &fault)) return 0;
        if (fault.code != EXIT_TEMPFAIL) break;
        if (rest(k, k->poll, e)) return -1;
    }
    /* It would only find nothing to delete, and ends by itself. */
    warn_msg("%s@%s: its schedule q4sweep-%s stays: %s", k->x->name, k->x->region, k->x->name, fault.msg);
    return 0;
}

int endpoint_teardown(struct aws_session *s, const struct journal_entry *x, const struct teardown *t, struct err *e)
{
    struct taking k = {s, x, t, t->poll > 0 ? t->poll : endpoint_poll(s, x->region), clock_seconds(), false, false};
    time_t settle = is_here(s, x->region) ? SETTLE_HERE : SETTLE;
    if (k.poll > 10) k.poll = 10;       /* two calls a round: still far from SageMaker's limit */
    for (bool gone = false; !gone;) {
        int got = push_endpoint(&k, e);
        if (got < 0) return -1;
        gone = got && !(t->settle && !k.seen && x->created && time(NULL) < x->created + settle);
        if (!gone && rest(&k, k.poll, e)) return -1;
    }
    if (remove_kind(&k, SAGEMAKER_CONFIG, e) || remove_kind(&k, SAGEMAKER_MODEL, e) || remove_schedule(&k, e)) return -1;
    return journal_gone(x, e);
}

/* --- watching ------------------------------------------------------------------------------------------------------- */

void watched_free(struct watched *w)
{
    free(w->reason);
    free(w->instance);
    json_decref(w->facts);
    *w = (struct watched){0};
}

struct watching {
    struct aws_session *s;
    const char *region, *name;
    const struct watch *w;
    struct watched *out;
    struct containerlog *log;
    json_t *events;
    time_t healthy_since, said_at;
    bool alerted, log_refused;
    char said[200];
};

static void read_log(struct watching *k)
{
    struct err fault = {0};
    json_t *events = NULL;
    if (k->log_refused) return;
    if (sagemaker_log(k->s, k->region, k->name, (long long)k->out->created * 1000, &events, &fault)) {
        k->log_refused = fault.code == EXIT_NOPERM;
        if (k->log_refused) warn_msg("%s@%s: its log cannot be read: %s", k->name, k->region, fault.msg);
        return;
    }
    json_decref(k->events);
    k->events = events;
    containerlog_free(k->log);
    k->log = containerlog_of(events, (long long)k->out->created * 1000, NULL);
}

/* A line when something changed, or five minutes went by. */
static void say(struct watching *k, const char *state)
{
    char text[200], age[32], cost[200];
    time_t now = time(NULL);
    const char *stage = k->log ? containerlog_stage(k->log) : NULL, *error = k->log ? containerlog_error(k->log) : NULL;
    snprintf(text, sizeof text, "%s%s%s%s%.120s", state, stage ? ", container: " : "", stage ? stage : "", error ? ", error: " : "", error ? error : "");
    if (prog_verbosity < 0 || (!strcmp(text, k->said) && now < k->said_at + 300)) return;
    duration(age, sizeof age, endpoint_age(k->out->created));
    endpoint_cost(cost, sizeof cost, k->region, k->out->instance, k->out->created);
    tell_msg("%s@%s: %s after %s, %s", k->name, k->region, text, age, cost);
    memcpy(k->said, text, sizeof text);
    k->said_at = now;
}

static void alert_lag(struct watching *k)
{
    time_t now = time(NULL);
    char waited[32], cost[200];
    if (!k->log || !containerlog_healthy(k->log)) {
        k->healthy_since = 0;
        return;
    }
    if (!k->healthy_since) k->healthy_since = now;
    if (k->alerted || (double)(now - k->healthy_since) < k->w->lag_alert) return;
    k->alerted = true;
    duration(waited, sizeof waited, now - k->healthy_since);
    endpoint_cost(cost, sizeof cost, k->region, k->out->instance, k->out->created);
    warn_msg("%s@%s: healthy container but still Creating: it has answered pings for %s: %s: it cannot be deleted before it leaves Creating; waiting goes on", k->name,
        k->region, waited, cost);
}

/* FailureReason, and the last lines of the log that carry an error. */
static void report_failure(struct watching *k)
{
    const char *lines[ERROR_LINES];
    size_t n = 0, i;
    json_t *event;
    tell_msg("%s@%s: Failed: %s", k->name, k->region, k->out->reason ? k->out->reason : "no FailureReason");
    json_array_foreach(k->events, i, event) {
        const char *text = json_string_value(json_object_get(event, "message"));
        if (!text || !containerlog_is_error(text)) continue;
        if (n == ERROR_LINES) memmove(lines, lines + 1, sizeof *lines * --n);
        lines[n++] = text;
    }
    for (i = 0; i < n; i++) tell_msg("log: %.*s", (int)strcspn(lines[i], "\r\n"), lines[i]);
    const char *error = k->log ? containerlog_error(k->log) : NULL;
    if (error) tell_msg("root error: %s", error);
    if (!n && !error) tell_msg("%s@%s: its log says nothing of it", k->name, k->region);
}

/* Case does not count: "InsufficientInstanceCapacity", "CapacityError". */
static bool speaks_of_capacity(const char *reason)
{
    for (const char *p = reason; p && *p; p++)
        if (!strncasecmp(p, "capacity", 8)) return true;
    return false;
}

/* One description: true = decided. */
static bool judge(struct watching *k, const json_t *v)
{
    const char *state = json_string_value(json_object_get(v, "EndpointStatus")), *reason = json_string_value(json_object_get(v, "FailureReason"));
    struct watched *out = k->out;
    out->created = endpoint_created(v);
    if (!out->instance) out->instance = endpoint_instance(k->s, k->region, v);
    if (!state) state = "unknown";
    read_log(k);
    say(k, state);
    if (!strcmp(state, "InService")) {
        out->outcome = k->log && containerlog_died(k->log) ? OUTCOME_DIED : OUTCOME_SERVING;
        return true;
    }
    if (!strcmp(state, "Failed") || !strcmp(state, "OutOfService") || !strcmp(state, "UpdateRollbackFailed")) {
        out->reason = reason ? xstrdup(reason) : xstrdup(state);
        out->outcome = speaks_of_capacity(reason) ? OUTCOME_CAPACITY : OUTCOME_FAILED;
        report_failure(k);
        return true;
    }
    alert_lag(k);
    return false;
}

int endpoint_watch(struct aws_session *s, const char *region, const char *name, const struct watch *w, struct watched *out, struct err *e)
{
    struct watching k = {.s = s, .region = region, .name = name, .w = w, .out = out};
    double poll = w->poll > 0 ? w->poll : endpoint_poll(s, region), start = clock_seconds(), answered = start;
    int bad = 0;
    *out = (struct watched){0};
    for (bool decided = false; !decided && !bad;) {
        struct err fault = {0};
        json_t *v = NULL;
        if (w->stop && *w->stop) {
            out->outcome = OUTCOME_STOPPED;
            break;
        }
        if (!sagemaker_describe(s, region, SAGEMAKER_ENDPOINT, name, &v, NULL, &fault)) {
            answered = clock_seconds();
            if (!v) out->outcome = OUTCOME_GONE;
            decided = !v || judge(&k, v);
        } else if (fault.code != EXIT_TEMPFAIL || clock_seconds() - answered > PATIENCE) {
            bad = err_set(e, fault.code, "%s", fault.msg);
        } else {
            note_msg("%s", fault.msg);
        }
        json_decref(v);
        if (!decided && !bad && w->timeout > 0 && clock_seconds() - start >= w->timeout) {
            out->outcome = OUTCOME_LATE;
            decided = true;
        }
        if (!decided && !bad) endpoint_pause(poll, w->stop);
    }
    if (k.log) out->facts = containerlog_facts(k.log);
    containerlog_free(k.log);
    json_decref(k.events);
    return bad;
}

/* --- bringing up ---------------------------------------------------------------------------------------------------- */

struct rising {
    struct aws_session *s;
    const struct deployment *d;
    struct journal_entry entry;
    json_t *tags;
    const char *image;
    bool begun;                     /* something may have been created */
    struct watched *out;
};

static json_t *make_tags(const struct deployment *d)
{
    json_t *tags = json_array();
    const char *user = getenv("USER"), *sweep = getenv("Q4SWEEP_GUARD");
    char host[128] = "", expiry[32], owner[200];
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    snprintf(owner, sizeof owner, "%.60s@%.100s", user && *user ? user : "unknown", host);
    json_array_append_new(tags, json_pack("{s:s, s:s}", "Key", "q4sweep", "Value", "1"));
    json_array_append_new(tags, json_pack("{s:s, s:o}", "Key", "q4sweep:owner", "Value", json_message(owner)));
    json_array_append_new(tags, json_pack("{s:s, s:s}", "Key", "q4sweep:sweep", "Value", sweep && *sweep ? sweep : "none"));
    if (d->expires) {
        struct tm tm;
        gmtime_r(&d->expires, &tm);
        strftime(expiry, sizeof expiry, "%Y-%m-%dT%H:%M:%SZ", &tm);
        json_array_append_new(tags, json_pack("{s:s, s:s}", "Key", "q4sweep:expires", "Value", expiry));
    }
    return tags;
}

/* Nothing of that name may be there: it would be overwritten, or somebody else's. */
static int refuse_existing(struct rising *r, struct err *e)
{
    static const char *const NOUNS[] = {"endpoint", "endpoint configuration", "model"};
    for (int kind = SAGEMAKER_ENDPOINT; kind <= SAGEMAKER_MODEL; kind++) {
        json_t *v = NULL;
        if (sagemaker_describe(r->s, r->entry.region, (enum sagemaker_kind)kind, r->d->name, &v, NULL, e)) return -1;
        if (!v) continue;
        json_decref(v);
        return err_set(e, EXIT_USAGE, "%s@%s: there is an older %s of this name: delete it (sm-endpoint delete %s --region %s) or choose another name", r->d->name,
            r->entry.region, NOUNS[kind], r->d->name, r->entry.region);
    }
    return 0;
}

/* Since nothing of that name was there before, one that exists now is our own: an answer got lost on the way. */
static int made(int bad, const struct aws_fault *f, struct err *fault)
{
    if (bad && aws_fault_exists(f)) {
        *fault = (struct err){0};
        return 0;
    }
    return bad;
}

static int create_model(struct rising *r, struct aws_fault *f, struct err *e)
{
    const struct deployment *d = r->d;
    json_t *environment = json_copy(d->environment);
    char *uri = NULL;
    if (!strncmp(d->model, "s3://", 5)) uri = xasprintf("%s%s", d->model, d->model[strlen(d->model) - 1] == '/' ? "" : "/");
    else if (!json_object_get(environment, "SM_VLLM_MODEL")) json_object_set_new(environment, "SM_VLLM_MODEL", json_string(d->model));
    struct sagemaker_model m = {d->name, d->role, r->image, environment, uri, r->tags};
    struct err fault = {0};
    r->begun = !journal_intent(&r->entry, "CreateModel", e);
    int bad = !r->begun ? -1 : made(sagemaker_create_model(r->s, r->entry.region, &m, f, &fault), f, &fault);
    if (bad && fault.code) err_set(e, fault.code, "%s", fault.msg);
    json_decref(environment);
    free(uri);
    return bad;
}

static int create_config(struct rising *r, struct aws_fault *f, struct err *e)
{
    struct sagemaker_variant v = {r->entry.instance, r->d->ami, r->d->startup_s, r->d->download_s};
    struct err fault = {0};
    if (journal_intent(&r->entry, "CreateEndpointConfig", e)) return -1;
    if (!made(sagemaker_create_config(r->s, r->entry.region, r->d->name, &v, r->tags, f, &fault), f, &fault)) return 0;
    return err_set(e, fault.code, "%s", fault.msg);
}

/* Each try has a journal line of its own: whoever deletes can tell until when one may still land, and none follows when the guard has gone. */
static int ask_for_endpoint(struct rising *r, struct aws_fault *f, struct err *e)
{
    int usual = r->s->tries, bad = -1;
    double wait = CREATE_PAUSE;
    r->s->tries = 1;
    for (int tries = 1;; tries++, wait *= 2) {
        struct err fault = {0};
        *f = (struct aws_fault){"", ""};
        if (journal_intent(&r->entry, "CreateEndpoint", e)) break;
        r->entry.created = time(NULL);
        if (!(bad = made(sagemaker_create_endpoint(r->s, r->entry.region, r->d->name, r->tags, f, &fault), f, &fault))) break;
        bool passing = fault.code == EXIT_TEMPFAIL || !strncmp(f->message, "Could not find endpoint configuration", 37);
        if (!passing || tries == CREATE_TRIES || !endpoint_pause(wait, r->d->watch.stop)) {
            err_set(e, fault.code, "%s", fault.msg);
            break;
        }
        note_msg("CreateEndpoint: %s: trying again", *f->code ? f->code : fault.msg);
    }
    r->s->tries = usual;
    return bad;
}

/* The schedule is there before the meter can run. */
static int create_endpoint(struct rising *r, struct aws_fault *f, struct err *e)
{
    struct err fault = {0};
    const char *role = r->d->schedule_role ? r->d->schedule_role : r->d->role;
    if (r->d->expires) {
        if (journal_intent(&r->entry, "CreateSchedule", e)) return -1;
        if (schedule_create(r->s, r->entry.region, r->d->name, role, aws_time(r->d->expires), &fault))
            return err_set(e, fault.code, "the schedule that would delete %s at its expiry cannot be made, so the endpoint is not: %s", r->d->name, fault.msg);
    }
    return ask_for_endpoint(r, f, e);
}

/* What was begun is taken back; the first error stays the one that is told. */
static void take_back(struct rising *r)
{
    struct err fault = {0};
    struct journal_entry *list;
    size_t n;
    r->entry.through = 0x7fffffffffffffff;
    if (!journal_load(&list, &n, &fault)) {
        for (size_t i = 0; i < n; i++)
            if (!strcmp(list[i].name, r->entry.name) && !strcmp(list[i].region, r->entry.region)) r->entry.through = list[i].through;
        journal_free(list, n);
    }
    const double asked = r->d->watch.timeout > 0 ? r->d->watch.timeout : PATIENCE_HERE;
    const bool here = is_here(r->s, r->entry.region);
    struct teardown t = {.poll = r->d->watch.poll, .patience = here ? fmin(asked, PATIENCE_HERE) : PATIENCE, .stop = r->d->watch.stop};
    if (endpoint_teardown(r->s, &r->entry, &t, &fault)) warn_msg("%s", fault.msg);
    else r->begun = false;
}

/* Whatever ends the process in between: what may exist is not kept quiet. */
static const struct rising *unfinished;

static void tell_unfinished(void)
{
    if (!unfinished || !unfinished->begun) return;
    const struct journal_entry *x = &unfinished->entry;
    if (x->guard) fprintf(stderr, "%s: %s@%s may exist: its guard deletes it\n", prog_name, x->name, x->region);
    else fprintf(stderr, "%s: %s@%s may exist: sm-endpoint delete %s --region %s deletes it\n", prog_name, x->name, x->region, x->name, x->region);
}

void endpoint_told(void) { unfinished = NULL; }

enum attempt { ATTEMPT_DONE, ATTEMPT_NEXT, ATTEMPT_END };

/* One place and type.  ATTEMPT_NEXT: no quota or no capacity there; e tells. */
static enum attempt attempt(struct rising *r, struct err *e)
{
    struct aws_fault f = {"", ""};
    const struct deployment *d = r->d;
    if (refuse_existing(r, e)) return ATTEMPT_END;
    if (create_model(r, &f, e) || create_config(r, &f, e) || create_endpoint(r, &f, e)) {
        if (r->begun) take_back(r);
        return aws_fault_is_quota(&f) ? ATTEMPT_NEXT : ATTEMPT_END;
    }
    if (!d->wait) return ATTEMPT_DONE;
    if (endpoint_watch(r->s, r->entry.region, d->name, &d->watch, r->out, e)) return ATTEMPT_END;
    switch (r->out->outcome) {
    case OUTCOME_SERVING: case OUTCOME_STOPPED: case OUTCOME_LATE: return ATTEMPT_DONE;
    case OUTCOME_CAPACITY:
        err_set(e, EXIT_TEMPFAIL, "%s has no capacity for %s", r->entry.region, r->entry.instance);
        take_back(r);
        return ATTEMPT_NEXT;
    case OUTCOME_DIED: err_set(e, EXIT_UNAVAILABLE, "%s@%s: InService, but its container answered pings and then died: what its log says is above", d->name, r->entry.region); break;
    case OUTCOME_GONE: err_set(e, EXIT_UNAVAILABLE, "%s@%s: was deleted while it came up", d->name, r->entry.region); break;
    case OUTCOME_FAILED: err_set(e, EXIT_UNAVAILABLE, "%s@%s: Failed: %s", d->name, r->entry.region, r->out->reason); break;
    }
    take_back(r);
    return ATTEMPT_END;
}

/* The image of a region, unless one was named. */
static int find_image(struct rising *r, char **found, struct err *e)
{
    char *tag = NULL;
    free(*found);
    *found = NULL;
    r->image = r->d->image;
    if (r->image) return 0;
    if (!(*found = image_newest(r->s, r->entry.region, &tag, e))) return -1;
    note_msg("%s: image %s", r->entry.region, tag);
    free(tag);
    r->image = *found;
    return 0;
}

int endpoint_up(struct aws_session *s, const struct deployment *d, const char *profile, char region[32], struct watched *out, struct err *e)
{
    const char *guard = getenv("Q4SWEEP_GUARD");
    static struct rising r;             /* what is up and not told yet outlives this call */
    r = (struct rising){.s = s, .d = d, .out = out, .tags = make_tags(d),
        .entry = {.name = (char *)d->name, .profile = (char *)profile, .guard = guard && *guard ? (char *)guard : NULL, .expires = d->expires}};
    enum attempt got = ATTEMPT_NEXT;
    struct err last = {0};
    char *image = NULL;
    bool capacity = false;
    *out = (struct watched){0};
    unfinished = &r;
    atexit(tell_unfinished);
    for (size_t i = 0; d->regions[i] && got == ATTEMPT_NEXT; i++) {
        bool overridden = false;
        r.entry.region = (char *)d->regions[i];
        char *url = aws_config_url(s->config, "sagemaker", r.entry.region, &overridden, e);
        if (!url || find_image(&r, &image, e)) got = ATTEMPT_END;
        r.entry.url = overridden ? url : NULL;
        for (size_t k = 0; d->instances[k] && got == ATTEMPT_NEXT; k++) {
            struct err fault = {0};
            r.entry.instance = (char *)d->instances[k];
            watched_free(out);
            got = attempt(&r, &fault);
            if (got == ATTEMPT_NEXT) {
                warn_msg("%s", fault.msg);
                capacity = capacity || fault.code == EXIT_TEMPFAIL;
                last = fault;
            } else if (got == ATTEMPT_END) {
                err_set(e, fault.code, "%s", fault.msg);
            }
        }
        snprintf(region, 32, "%s", r.entry.region);
        free(url);
    }
    if (got == ATTEMPT_DONE && !out->instance) out->instance = xstrdup(r.entry.instance);
    if (got == ATTEMPT_DONE && !out->created) out->created = aws_time(r.entry.created);
    if (got == ATTEMPT_NEXT)
        err_set(e, capacity ? EXIT_TEMPFAIL : EXIT_UNAVAILABLE, "%s: no instance type in any region had quota and capacity; the last: %s: add --instance or --region, "
            "or try later", d->name, last.msg);
    if (got != ATTEMPT_DONE && !r.begun) unfinished = NULL;
    json_decref(r.tags);
    free(image);
    return got == ATTEMPT_DONE ? 0 : -1;
}
