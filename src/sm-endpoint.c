/* sm-endpoint: SageMaker endpoints from a command line: bring one up, watch it, read its log, delete it, and see to it that nothing is left running. */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "aws/endpoint.h"
#include "aws/guard.h"
#include "aws/prices.h"
#include "aws/s3.h"
#include "base/io.h"
#include "base/opt.h"
#include "base/stop.h"

#define SWEEP_EXPIRY "2h"

static struct {
    const char *model, *instance, *region, *role, *schedule_role, *image, *ami, *expires, *profile, *from, *stream;
    struct opt_list env;
    bool no_wait, json, follow, sweep_up, keep;
    double poll, lag_alert, timeout;
    long startup, download, created, parallel;
} opt = {.lag_alert = 900, .startup = 1800, .download = 1800, .parallel = 8};

static volatile int stopped;

static void on_signal(int sig) { stopped = sig; }

static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal};
    sigemptyset(&a.sa_mask);
    stop_signal(SIGINT, &a);
    stop_signal(SIGTERM, &a);
    stop_signal(SIGHUP, &a);
}

/* What lives as long as the program. */
static struct aws_session session;

static void *keep(void *p)
{
    static void **kept;
    static size_t n;
    kept = xreallocarray(kept, n + 1, sizeof *kept);
    return kept[n++] = p;
}

/* --- what the options say ------------------------------------------------------------------------------------------- */

/* "a,b,c" as a NULL-terminated list; at least one item, which may be empty. */
static const char **split(const char *text)
{
    size_t n = 0;
    const char **list = keep(xcalloc(strlen(text) + 2, sizeof *list));
    for (char *p = keep(xstrdup(text)), *comma; p; p = comma) {
        if ((comma = strchr(p, ','))) *comma++ = 0;
        list[n++] = p;
    }
    return list;
}

static const char **regions(void)
{
    const char *text = opt.region ? opt.region : aws_config_region(session.config);
    if (!text || !*text) opt_usage("--region is missing: give one, or set AWS_REGION");
    const char **list = split(text);
    for (size_t i = 0; list[i]; i++) aws_region_check(list[i]);
    return list;
}

static const char *one_region(void)
{
    const char **list = regions();
    if (list[1]) opt_usage("%s and %s: one region here", list[0], list[1]);
    return list[0];
}

/* "2h", "90m", "45s", "1d". */
static time_t parse_duration(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    long unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 0;
    if (end == text || !unit || end[1] || n < 1 || n > 31L * 86400 / unit) opt_usage("--expires %s: expected a time like 45m, 2h or 1d, at most 31d", text);
    return (time_t)(n * unit);
}

static time_t expiry(void)
{
    const char *guard = getenv("Q4SWEEP_GUARD"), *text = opt.expires ? opt.expires : guard && *guard ? SWEEP_EXPIRY : "never";
    return strcmp(text, "never") ? time(NULL) + parse_duration(text) : 0;
}

/* K=V, or K alone for the value that it has here: a secret need not stand in a command line. */
static json_t *environment(void)
{
    json_t *v = json_object();
    for (size_t i = 0; i < opt.env.n; i++) {
        const char *text = opt.env.item[i], *equals = strchr(text, '=');
        size_t n = equals ? (size_t)(equals - text) : strlen(text);
        const char *value = equals ? equals + 1 : getenv(text);
        bool good = n && n <= 1024 && !isdigit((unsigned char)*text);
        for (size_t k = 0; k < n; k++) good = good && (isalnum((unsigned char)text[k]) || text[k] == '_');
        if (!good) opt_usage("--env %.*s: expected NAME=VALUE with a name of letters, digits and _", (int)n, text);
        if (!value) opt_usage("--env %s: is not set here: give %s=VALUE", text, text);
        if (strlen(value) > 1024) opt_usage("--env %.*s: a value has at most 1024 characters", (int)n, text);
        json_object_setn_new(v, text, n, json_message(value));
    }
    if (json_object_size(v) > 100) opt_usage("--env: at most 100");
    return v;
}

static bool is_plain(const char *text, const char *more, size_t most)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr(more, text[i])) return false;
    return n && n <= most;
}

static const char **instances(void)
{
    const char **list = split(opt.instance);
    for (size_t i = 0; list[i]; i++)
        if (strncmp(list[i], "ml.", 3) || !is_plain(list[i], ".-", 40)) opt_usage("--instance %s: expected a type like ml.g6.xlarge", list[i]);
    return list;
}

static void check_up(void)
{
    if (!opt.model) opt_usage("--model is missing: ORG/NAME or s3://BUCKET/PREFIX/");
    if (!is_plain(opt.model, "-_./:@", 1024)) opt_usage("--model %s: expected ORG/NAME or s3://BUCKET/PREFIX/", opt.model);
    if (!opt.role) opt_usage("--role is missing: the ARN of the role that the endpoint runs as");
    const char *const arns[] = {opt.role, opt.schedule_role};
    for (size_t i = 0; i < 2; i++)
        if (arns[i] && (strncmp(arns[i], "arn:aws", 7) || !strstr(arns[i], ":iam::") || !strstr(arns[i], ":role/") || !is_plain(arns[i], ":/+=,.@_-", 2048)))
            opt_usage("--%s %s: expected arn:aws:iam::ACCOUNT:role/NAME", i ? "schedule-role" : "role", arns[i]);
    if (opt.image && !is_plain(opt.image, "-_./:@", 255)) opt_usage("--image %s: expected REGISTRY/REPOSITORY:TAG or @DIGEST", opt.image);
    if (opt.ami && !is_plain(opt.ami, "-", 100)) opt_usage("--ami %s: no name of an image", opt.ami);
}

static const char *endpoint_name(const char *text)
{
    if (!text) opt_usage("the endpoint's NAME is missing");
    char *at = strchr(text, '@');
    if (at) {                           /* NAME@REGION, as `up` prints it */
        if (opt.region && strcmp(opt.region, at + 1)) opt_usage("%s: --region says %s: which of the two?", text, opt.region);
        opt.region = at + 1;
        text = keep(xstrndup(text, (size_t)(at - text)));
    }
    aws_name_check(text);
    return text;
}

static void open_session(void)
{
    struct err e = {0};
    if (aws_session_open(&session, opt.profile, &e)) die(&e);
}

/* --- up, wait ------------------------------------------------------------------------------------------------------- */

static struct watch watching(void) { return (struct watch){opt.poll, opt.lag_alert, opt.timeout, &stopped}; }

static void print_endpoint(const char *name, const char *region, const struct watched *w, const char *state)
{
    char cost[200];
    double usd = endpoint_usd(region, w->instance, w->created);
    if (opt.json) {
        json_t *v = json_pack("{s:s, s:s, s:s, s:s?, s:I, s:I, s:o, s:O?}", "name", name, "region", region, "state", state, "instance", w->instance, "created",
            (json_int_t)w->created, "age_s", (json_int_t)endpoint_age(w->created), "usd", usd < 0 ? json_null() : json_real(usd), "facts", w->facts);
        if (json_line(stdout, v) || fflush(stdout)) die_stdout();
        endpoint_told();
        json_decref(v);
        return;
    }
    endpoint_cost(cost, sizeof cost, region, w->instance, w->created);
    printf("%s@%s\n", name, region);
    fflush(stdout);
    fprintf(stderr, "%s: %s@%s: %s, %s\n", prog_name, name, region, state, cost);
    endpoint_told();
}

/* What ends an endpoint that runs: a command, and what would come by itself. */
static void how_it_ends(char *text, size_t size, const char *name, const char *region)
{
    char schedule[120] = "";
    const char *guard = getenv("Q4SWEEP_GUARD");
    if (guard && *guard) snprintf(schedule, sizeof schedule, "; its guard deletes it when the guarded command ends");
    else if (opt.expires && expiry()) snprintf(schedule, sizeof schedule, "; its schedule deletes it from its expiry on (%s)", opt.expires);
    snprintf(text, size, "sm-endpoint delete %s --region %s deletes it%s", name, region, schedule);
}

/* Ctrl-C: nothing is deleted behind anybody's back, and nothing is kept quiet. */
_Noreturn static void end_stopped(const char *name, const char *region, const struct watched *w)
{
    char cost[200], end[400];
    endpoint_cost(cost, sizeof cost, region, w->instance, w->created);
    how_it_ends(end, sizeof end, name, region);
    fprintf(stderr, "%s: %s@%s is still running, %s: %s\n", prog_name, name, region, cost, end);
    endpoint_told();
    signal(stopped, SIG_DFL);
    raise(stopped);
    exit(128 + stopped);
}

static int end_watch(const char *name, const char *region, struct watched *w)
{
    switch (w->outcome) {
    case OUTCOME_SERVING:
        print_endpoint(name, region, w, "InService");
        watched_free(w);
        return 0;
    case OUTCOME_STOPPED: end_stopped(name, region, w);
    case OUTCOME_LATE:
        print_endpoint(name, region, w, "Creating");
        die_msg(EXIT_TEMPFAIL, "%s@%s: not InService after %.0f s: it is still running: sm-endpoint wait goes on, sm-endpoint delete deletes it", name, region, opt.timeout);
    case OUTCOME_CAPACITY: die_msg(EXIT_TEMPFAIL, "%s@%s: no capacity: delete it and try another type or region", name, region);
    case OUTCOME_FAILED: die_msg(EXIT_UNAVAILABLE, "%s@%s: Failed: %s", name, region, w->reason);
    case OUTCOME_DIED: die_msg(EXIT_UNAVAILABLE, "%s@%s: InService, but its container answered pings and then died: sm-endpoint logs shows why", name, region);
    case OUTCOME_GONE: die_msg(EXIT_UNAVAILABLE, "%s@%s: there is no such endpoint", name, region);
    }
    return EXIT_BUG;
}

static int do_up(const char *operand)
{
    struct err e = {0};
    struct watched w;
    char region[32] = "", end[400];
    if (!opt.instance) opt_usage("--instance is missing: TYPE[,TYPE…]");
    const char *name = endpoint_name(operand), **types = instances();
    check_up();
    struct deployment d = {.name = name, .role = opt.role, .image = opt.image, .model = opt.model, .schedule_role = opt.schedule_role, .instances = types,
        .environment = environment(), .ami = opt.ami, .startup_s = opt.startup, .download_s = opt.download, .expires = expiry(), .wait = !opt.no_wait, .watch = watching()};
    open_session();
    d.regions = regions();
    if (aws_session_refresh(&session, &e)) die(&e);
    if (d.expires && session.credentials.expires && session.credentials.expires < d.expires)
        warn_msg("the credentials end before the endpoint expires: what is stuck then is deleted by its schedule alone");
    catch_signals();
    if (endpoint_up(&session, &d, opt.profile, region, &w, &e)) die(&e);
    json_decref(d.environment);
    if (d.wait) {
        const int code = end_watch(name, region, &w);
        if (code) return code;
    } else {
        print_endpoint(name, region, &w, "Creating");
        watched_free(&w);
    }
    how_it_ends(end, sizeof end, name, region);
    if (prog_verbosity >= 0) fprintf(stderr, "%s: it costs until it is gone: %s\n", prog_name, end);
    return 0;
}

static int do_wait(const char *operand)
{
    struct err e = {0};
    struct watched w;
    const char *name = endpoint_name(operand);
    open_session();
    const char *region = one_region();
    struct watch how = watching();
    catch_signals();
    if (endpoint_watch(&session, region, name, &how, &w, &e)) {
        fprintf(stderr, "%s: %s@%s may still be running: sm-endpoint delete %s --region %s deletes it\n", prog_name, name, region, name, region);
        die(&e);
    }
    return end_watch(name, region, &w);
}

/* --- status, facts, logs -------------------------------------------------------------------------------------------- */

static json_t *describe(const char *region, const char *name)
{
    struct err e = {0};
    json_t *v = NULL;
    if (sagemaker_describe(&session, region, SAGEMAKER_ENDPOINT, name, &v, NULL, &e)) die(&e);
    return v;
}

static int do_status(const char *operand)
{
    const char *name = endpoint_name(operand);
    open_session();
    const char *region = one_region();
    json_t *v = describe(region, name);
    if (!v) die_msg(EXIT_UNAVAILABLE, "%s@%s: there is no such endpoint", name, region);
    const char *state = json_string_value(json_object_get(v, "EndpointStatus")), *reason = json_string_value(json_object_get(v, "FailureReason"));
    struct watched w = {.instance = endpoint_instance(&session, region, v), .created = endpoint_created(v), .reason = reason ? xstrdup(reason) : NULL};
    if (opt.json) {
        print_endpoint(name, region, &w, state);
    } else {
        char cost[200];
        endpoint_cost(cost, sizeof cost, region, w.instance, w.created);
        printf("%s@%s\t%s\t%lds\t%s%s%s\n", name, region, state, (long)endpoint_age(w.created), cost, reason ? "\t" : "", reason ? reason : "");
    }
    watched_free(&w);
    json_decref(v);
    return 0;
}

static json_t *log_events(const char *region, const char *name, long long since_ms)
{
    struct err e = {0};
    json_t *events;
    if (sagemaker_log(&session, region, name, since_ms, &events, &e)) die(&e);
    return events;
}

static int do_facts(const char *operand)
{
    struct err e = {0};
    json_t *facts;
    if (opt.from) {
        if (operand) opt_usage("--from reads a saved log: NAME has no place beside it");
        facts = containerlog_read(opt.from, opt.created, opt.stream, &e);
        if (!facts) die(&e);
    } else {
        const char *name = endpoint_name(operand);
        open_session();
        const char *region = one_region();
        json_t *v = describe(region, name);
        long long since = v ? (long long)(json_number_value(json_object_get(v, "CreationTime")) * 1000) : 0;
        json_t *events = log_events(region, name, since);
        struct containerlog *l = containerlog_of(events, since, opt.stream);
        facts = containerlog_facts(l);
        containerlog_free(l);
        json_decref(events);
        json_decref(v);
    }
    if (json_line(stdout, facts)) die_stdout();
    json_decref(facts);
    return 0;
}

/* By eventId, since pages overlap in time. */
static void print_new(const json_t *events, json_t *seen)
{
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)events, i, v) {
        const char *id = json_string_value(json_object_get(v, "eventId")), *text = json_string_value(json_object_get(v, "message"));
        if (id && json_object_get(seen, id)) continue;
        if (id) json_object_set_new(seen, id, json_true());
        if (opt.json && json_line(stdout, v)) die_stdout();
        if (!opt.json) printf("%s\n", text ? text : "");
    }
    if (fflush(stdout)) die_stdout();
}

static int do_logs(const char *operand)
{
    const char *name = endpoint_name(operand);
    open_session();
    const char *region = one_region();
    json_t *v = describe(region, name), *seen = json_object();
    long long since = v ? (long long)(json_number_value(json_object_get(v, "CreationTime")) * 1000) : 0;
    catch_signals();
    do {
        json_t *events = log_events(region, name, since);
        print_new(events, seen);
        json_decref(events);
    } while (opt.follow && endpoint_pause(opt.poll > 0 ? opt.poll : endpoint_poll(&session, region), &stopped));
    json_decref(seen);
    json_decref(v);
    if (stopped) raise((signal(stopped, SIG_DFL), stopped));
    return 0;
}

/* --- delete, list --------------------------------------------------------------------------------------------------- */

/* The journal's entry, if it has one. */
static struct journal_entry entry_of(const char *name, const char *region)
{
    struct journal_entry *list, found = {.name = (char *)name, .region = (char *)region, .profile = (char *)opt.profile, .expires = 1};
    struct err e = {0};
    size_t n;
    bool overridden = false;
    char *url = aws_config_url(session.config, "sagemaker", region, &overridden, &e);
    if (!url || journal_load(&list, &n, &e)) die(&e);
    keep(url);
    keep(list);
    found.url = overridden ? url : NULL;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].name, name) && !strcmp(list[i].region, region) && !list[i].url == !found.url && (!found.url || !strcmp(list[i].url, found.url))) found = list[i];
    return found;                       /* the list stays: found points into it */
}

/* A region's fault keeps no other from its turn: it is said, and the first decides the exit status. */
static void go_on(const struct err *e, int *code)
{
    fprintf(stderr, "%s: %s\n", prog_name, e->msg);
    if (!*code) *code = e->code;
}

static int do_delete(const char *operand)
{
    const char *name = endpoint_name(operand);
    int code = 0;
    open_session();
    const char **where = regions();
    catch_signals();
    for (size_t i = 0; where[i]; i++) {
        struct err e = {0};
        struct journal_entry x = entry_of(name, where[i]);
        bool here = aws_url_is_loopback(x.url ? x.url : "");
        struct teardown t = {.poll = opt.poll, .patience = opt.timeout > 0 ? opt.timeout : here ? 30 : 900, .stop = &stopped};
        if (endpoint_teardown(&session, &x, &t, &e)) {
            go_on(&e, &code);
            if (stopped) raise((signal(stopped, SIG_DFL), stopped));
        } else if (prog_verbosity >= 0) {
            fprintf(stderr, "%s: %s@%s is gone\n", prog_name, name, where[i]);
        }
    }
    return code;
}

static int print_listed(const char *region, const json_t *v, struct err *e)
{
    const char *name = json_string_value(json_object_get(v, "EndpointName")), *arn = json_string_value(json_object_get(v, "EndpointArn"));
    const char *state = json_string_value(json_object_get(v, "EndpointStatus"));
    char sweep[128] = "";
    bool ours = false;
    json_t *described = NULL;
    if (!name || !arn) return err_set(e, EXIT_DATA, "ListEndpoints: no names");
    if (sagemaker_tag(&session, region, arn, "q4sweep", sweep, sizeof sweep, &ours, e) ||
        sagemaker_describe(&session, region, SAGEMAKER_ENDPOINT, name, &described, NULL, e)) return -1;
    if (!described) return 0;           /* gone since */
    char *instance = endpoint_instance(&session, region, described), cost[200];
    json_decref(described);
    time_t created = endpoint_created(v);
    double usd = endpoint_usd(region, instance, created);
    if (opt.json) {
        json_t *line = json_pack("{s:s, s:s, s:s?, s:s?, s:I, s:I, s:o, s:s, s:b}", "name", name, "region", region, "state", state, "instance", instance, "created",
            (json_int_t)created, "age_s", (json_int_t)endpoint_age(created), "usd", usd < 0 ? json_null() : json_real(usd), "prices", price_date(), "ours", ours);
        if (json_line(stdout, line)) die_stdout();
        json_decref(line);
    } else {
        endpoint_cost(cost, sizeof cost, region, instance, created);
        printf("%s@%s\t%s\t%lds\t%s\t%s\n", name, region, state ? state : "unknown", (long)endpoint_age(created), cost, ours ? "q4sweep" : "not ours");
    }
    free(instance);
    return 0;
}

/* For people: silence could also mean that nobody looked. */
static void say_of_regions(const char *what, const char **where)
{
    if (prog_verbosity < 0 || opt.json) return;
    fprintf(stderr, "%s: %s", prog_name, what);
    for (size_t i = 0; where[i]; i++) fprintf(stderr, "%s %s", i ? "," : "", where[i]);
    putc('\n', stderr);
}

static int list_region(const char *region, size_t *n, struct err *e)
{
    json_t *list, *v;
    size_t i;
    int bad = 0;
    if (sagemaker_list(&session, region, SAGEMAKER_ENDPOINT, &list, e)) return -1;
    json_array_foreach(list, i, v)
        if (!bad) bad = print_listed(region, v, e);
    *n += json_array_size(list);
    json_decref(list);
    return bad;
}

static int do_list(void)
{
    size_t n = 0;
    int code = 0;
    open_session();
    const char **where = regions();
    for (size_t i = 0; where[i]; i++) {
        struct err e = {0};
        if (list_region(where[i], &n, &e)) go_on(&e, &code);
    }
    if (!n && !code) say_of_regions("no endpoint in", where);
    return code;
}

/* --- quota, image, upload ------------------------------------------------------------------------------------------- */

static void print_quota(const char *region, const char *type, json_t *quota)
{
    if (!opt.json) {
        printf("%s\t%s\t%lld\n", region, type, (long long)json_integer_value(quota));
        return;
    }
    json_t *line = json_pack("{s:s, s:s, s:O}", "region", region, "instance", type, "quota", quota);
    if (json_line(stdout, line)) die_stdout();
    json_decref(line);
}

static int do_quota(void)
{
    struct err e = {0};
    open_session();
    const char **where = regions(), **types = opt.instance ? instances() : NULL;
    bool enough = true;
    for (size_t i = 0; where[i]; i++) {
        json_t *quotas, *v;
        const char *type;
        if (quota_endpoint_usage(&session, where[i], &quotas, &e)) die(&e);
        for (size_t k = 0; types && types[k]; k++) {
            enough = enough && json_integer_value(json_object_get(quotas, types[k])) > 0;
            if (!json_object_get(quotas, types[k])) json_object_set_new(quotas, types[k], json_integer(0));
        }
        json_object_foreach(quotas, type, v) {
            bool asked = !types && json_integer_value(v) > 0;
            for (size_t k = 0; types && types[k]; k++) asked = asked || !strcmp(types[k], type);
            if (asked) print_quota(where[i], type, v);
        }
        json_decref(quotas);
    }
    return enough ? 0 : EXIT_NO;
}

static int do_image(void)
{
    struct err e = {0};
    char *tag;
    open_session();
    const char **where = regions();
    for (size_t i = 0; where[i]; i++) {
        char *image = image_newest(&session, where[i], &tag, &e);
        if (!image) die(&e);
        printf("%s\t%s\n", image, tag);
        free(image);
        free(tag);
    }
    return 0;
}

static int do_upload(const char *directory, const char *destination)
{
    struct err e = {0};
    if (!directory || !destination) opt_usage("upload: expected DIRECTORY s3://BUCKET/PREFIX");
    open_session();
    struct s3_upload u = {.directory = directory, .destination = destination, .region = one_region(), .parallel = opt.parallel};
    if (s3_upload(&session, &u, &e)) die(&e);
    return 0;
}

/* --- guard ---------------------------------------------------------------------------------------------------------- */

/* Is this resource one of ours, and not yet among those taken? */
static bool wanted_by_tag(const char *region, const json_t *v, enum sagemaker_kind kind, const json_t *taken, int *code)
{
    struct err e = {0};
    const char *name = json_string_value(json_object_get(v, sagemaker_name_field(kind))), *arn = json_string_value(json_object_get(v, sagemaker_arn_field(kind)));
    char value[64];
    bool ours = false;
    if (!name || !arn || json_object_get(taken, name)) return false;
    if (sagemaker_tag(&session, region, arn, "q4sweep", value, sizeof value, &ours, &e)) go_on(&e, code);
    return ours;
}

/* Every tagged endpoint of a region, and the tagged configs and models that a schedule has left alone, whatever any journal says. */
static int sweep_region(const char *region)
{
    int code = 0;
    json_t *taken = json_object();
    for (int kind = SAGEMAKER_ENDPOINT; kind <= SAGEMAKER_MODEL; kind++) {
        struct err e = {0};
        json_t *list, *v;
        size_t i;
        if (sagemaker_list(&session, region, (enum sagemaker_kind)kind, &list, &e)) {
            go_on(&e, &code);
            continue;
        }
        json_array_foreach(list, i, v) {
            if (!wanted_by_tag(region, v, (enum sagemaker_kind)kind, taken, &code)) continue;
            const char *name = json_string_value(json_object_get(v, sagemaker_name_field((enum sagemaker_kind)kind)));
            struct err fault = {0};
            struct journal_entry x = entry_of(name, region);
            struct teardown t = {.poll = opt.poll, .patience = opt.timeout > 0 ? opt.timeout : 900, .stop = &stopped};
            fprintf(stderr, "%s: deleting %s@%s\n", prog_name, name, region);
            if (endpoint_teardown(&session, &x, &t, &fault)) go_on(&fault, &code);
            json_object_set_new(taken, name, json_true());
        }
        json_decref(list);
    }
    json_decref(taken);
    return code;
}

static int sweep_tagged(void)
{
    int code = 0;
    open_session();
    const char **where = regions();
    for (size_t i = 0; where[i]; i++) {
        const int got = sweep_region(where[i]);
        if (!code) code = got;
    }
    if (!code) say_of_regions("nothing with this program's tag is left in", where);
    return code;
}

static int do_sweep_up(void)
{
    struct err e = {0};
    catch_signals();
    int code = guard_sweep(false, NULL, opt.poll, opt.timeout > 0 ? opt.timeout : 900, &e) ? e.code : 0;
    const char *set = getenv("AWS_REGION");
    const int tagged = opt.region || (set && *set) ? sweep_tagged() : 0;
    return code ? code : tagged;
}

static int exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/* Signals meant for us go on to the command; it is its end that ends us. */
static int run_guarded(struct guard *g, char **command)
{
    struct err e = {0};
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0 && err_process(&e)) die(&e);
    if (pid == 0) {
        execvp(command[0], command);
        fprintf(stderr, "%s: %s: %s\n", prog_name, command[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    for (int sent = 0;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR)) return exit_status(status);
        if (stopped != sent && (sent = stopped) != SIGINT) kill(pid, sent);         /* a terminal's Ctrl-C has reached it already */
        if (guard_check(g, &e)) warn_msg("%s", e.msg);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}

static int do_guard(char **command)
{
    struct guard g = {.narrow = opt.keep};
    struct err e = {0};
    if (opt.sweep_up) {
        if (*command) opt_usage("--sweep-up runs no command");
        return do_sweep_up();
    }
    if (!*command) opt_usage("guard: the command is missing: -- COMMAND…");
    if (guard_start(&g, opt.poll, &e)) die(&e);
    catch_signals();
    int code = run_guarded(&g, command);
    if (opt.keep && !code && guard_release(&g, &e)) die(&e);
    stopped = 0;                        /* that one was the command's */
    if (guard_finish(&g, &stopped, &e)) die(&e);
    free(g.log);
    free(g.outer);
    return code;
}

/* -------------------------------------------------------------------------------------------------------------------- */

static int run(const char *verb, char **operand, int operands)
{
    static const struct { const char *verb; int (*one)(const char *), (*none)(void); } VERBS[] = {
        {"up", do_up, NULL}, {"wait", do_wait, NULL}, {"status", do_status, NULL}, {"facts", do_facts, NULL}, {"logs", do_logs, NULL}, {"delete", do_delete, NULL},
        {"list", NULL, do_list}, {"quota", NULL, do_quota}, {"image", NULL, do_image}};
    if (!strcmp(verb, "guard")) return do_guard(operand);
    if (!opt.from) guard_adopt_orphans();
    if (!strcmp(verb, "upload")) {
        if (operands > 2) opt_usage("%s: one operand too many", operand[2]);
        return do_upload(operands ? operand[0] : NULL, operands > 1 ? operand[1] : NULL);
    }
    for (size_t i = 0; i < sizeof VERBS / sizeof *VERBS; i++) {
        if (strcmp(VERBS[i].verb, verb)) continue;
        if (operands > (VERBS[i].one ? 1 : 0)) opt_usage("%s: one operand too many", operand[VERBS[i].one ? 1 : 0]);
        return VERBS[i].one ? VERBS[i].one(operands ? operand[0] : NULL) : VERBS[i].none();
    }
    opt_usage("%s: expected up, wait, status, facts, logs, delete, list, quota, image, upload or guard", verb);
}

int main(int argc, char **argv)
{
    prog_init(argv[0]);
    const struct opt opts[] = {
        {"model", 0, OPT_STR, &opt.model, "MODEL", "up: ORG/NAME on the Hub, or s3://BUCKET/PREFIX/", 0, 0},
        {"instance", 0, OPT_STR, &opt.instance, "TYPE[,TYPE...]", "up, quota: instance types, in order of preference", 0, 0},
        {"region", 0, OPT_STR, &opt.region, "R[,R...]", "regions; default AWS_REGION, then the profile's", 0, 0},
        {"role", 0, OPT_STR, &opt.role, "ARN", "up: the role that the endpoint runs as", 0, 0},
        {"schedule-role", 0, OPT_STR, &opt.schedule_role, "ARN", "up: the role that deletes it at its expiry; default --role", 0, 0},
        {"image", 0, OPT_STR, &opt.image, "URI", "up: the container; default AWS's newest for vLLM", 0, 0},
        {"ami", 0, OPT_STR, &opt.ami, "NAME", "up: InferenceAmiVersion", 0, 0},
        {"env", 0, OPT_LIST, &opt.env, "K=V", "up: the container's environment; K alone takes its value here", 0, 0},
        {"expires", 0, OPT_STR, &opt.expires, "TIME", "up: delete it after this long, by a schedule in the account: 2h under a guard, else never", 0, 0},
        {"no-wait", 0, OPT_FLAG, &opt.no_wait, NULL, "up: return once it is asked for", 0, 0},
        {"startup-timeout", 0, OPT_INT, &opt.startup, "SECONDS", "up: until the container must answer pings", 60, 3600},
        {"download-timeout", 0, OPT_INT, &opt.download, "SECONDS", "up: for model data from S3", 60, 3600},
        {"poll", 0, OPT_REAL, &opt.poll, "SECONDS", "between two questions; default 30, on this machine 1", 0, 3600},
        {"lag-alert", 0, OPT_REAL, &opt.lag_alert, "SECONDS", "up, wait: warn when it is healthy but Creating for so long", 0, 86400},
        {"timeout", 0, OPT_REAL, &opt.timeout, "SECONDS", "up, wait, delete: give up after this long", 0, 864000},
        {"profile", 0, OPT_STR, &opt.profile, "NAME", "profile of the AWS configuration", 0, 0},
        {"json", 0, OPT_FLAG, &opt.json, NULL, "print JSON lines", 0, 0},
        {"follow", 'f', OPT_FLAG, &opt.follow, NULL, "logs: go on", 0, 0},
        {"from", 0, OPT_STR, &opt.from, "LOG.jsonl", "facts: of saved events, one a line", 0, 0},
        {"created", 0, OPT_INT, &opt.created, "MS", "facts --from: ignore events before this time", 0, 0},
        {"stream", 0, OPT_STR, &opt.stream, "NAME", "facts: of this log stream; default the newest", 0, 0},
        {"parallel", 'j', OPT_INT, &opt.parallel, "N", "upload: parts at a time", 1, 64},
        {"keep", 0, OPT_FLAG, &opt.keep, NULL, "guard: keep what COMMAND made, if it exits with 0", 0, 0},
        {"sweep-up", 0, OPT_FLAG, &opt.sweep_up, NULL, "guard: delete what the journal and the tags in --region name", 0, 0},
        {0}};
    const struct opt_spec spec = {
        .usage = "up NAME --model MODEL --instance TYPE[,TYPE...] --region R[,R...] --role ARN [options]\n"
                 "wait|status|facts|logs NAME [--region R]\ndelete NAME [--region R[,R...]]\nlist|quota|image [--region R[,R...]]\nfacts --from LOG.jsonl\n"
                 "upload DIRECTORY s3://BUCKET/PREFIX\nguard [--keep] -- COMMAND...\nguard --sweep-up [--region R[,R...]]",
        .about = "Deploy SageMaker endpoints, watch them, and always stop the meter.\n"
                 "A line in the journal precedes every call that creates something; guard deletes all that the journal names, however its command ends.",
        .opts = opts,
        .examples = "sm-endpoint guard -- make sweep TARGET=sagemaker\nsm-endpoint list --region us-east-1,us-east-2,us-west-2",
        .exits = "1 no quota; 65 refused as wrong; 69 no quota, failed, or not there; 75 no capacity, throttled, unreachable; 77 not permitted, no credentials",
        .min_operands = 1, .max_operands = -1};
    int first = opt_parse(&spec, argc, argv);
    struct err e = {0};
    int code = run(argv[first], argv + first + 1, argc - first - 1);
    aws_session_close(&session);
    if (finish_stdout(&e)) die(&e);
    return code;
}
