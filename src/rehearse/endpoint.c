#include "rehearse/endpoint.h"

#include <fnmatch.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/self.h"
#include "base/text.h"
#include "rehearse/container.h"
#include "rehearse/faults.h"
#include "rehearse/logs.h"
#include "rehearse/script.h"

/* Seconds of the cloud (reference figures of recorded deployments). */
#define PLACED 260.0
#define STARTUP_WINDOW 480.0
#define BETWEEN_STARTS 120.0
#define RESPAWN 1.0
#define PING_EVERY 5.0
#define HEALTHY_FOR 45.0
#define DELETING 5.0
/* Real seconds. */
#define PING_AT_LEAST 0.1       /* between two pings, whatever the speed */
#define PING_IN_SERVICE 1.0
#define RESPAWN_AT_LEAST 0.5
#define LOAD_AT_LEAST 120.0
#define KILL_AFTER 3.0

struct live {
    struct live *next;
    struct world *w;
    char *region, *name;
    char stream[64];
    bool placed, gone;
    bool update;                    /* of the endpoint's next configuration, beside the one that serves */
    bool retired;                   /* replaced: only its container is still to end */
    int starts;
    double next_start;              /* by the real clock */
    double started;                 /* the present start */
    const struct script_line *script;   /* what is being played, NULL = nothing */
    long app, engine;               /* pids in the log */
    struct container c;
    char url[48];
    bool pinging, ready, doomed;    /* doomed: every further start fails */
    double next_ping, healthy, deleted;     /* 0 = not yet */
};

static struct live *lives;
static const struct endpoint_command *commands;
static size_t n_commands;

void endpoint_commands(const struct endpoint_command *list, size_t n)
{
    commands = list;
    n_commands = n;
}

/* --- the object ------------------------------------------------------------------------------------------------------ */

/* An update has an object like the endpoint's own in "next", and a life like a new endpoint's. */
static json_t *object(const struct live *l)
{
    json_t *ep = json_object_get(world_table(l->w, l->region, "endpoint"), l->name);
    return l->update ? json_object_get(ep, "next") : ep;
}

static bool status_is(const json_t *ep, const char *status) { return !strcmp(json_field(ep, "EndpointStatus"), status); }

static void set_status(const struct live *l, const char *status)
{
    json_t *ep = object(l);
    note_msg("endpoint %s in %s: %s%s", l->name, l->region, l->update ? "update: " : "", status);
    json_object_set_new(ep, "EndpointStatus", json_string(status));
    json_object_set_new(ep, "LastModifiedTime", world_time(world_now(l->w)));
    l->w->dirty = true;
}

static void fail(struct live *l, const char *reason)
{
    json_object_set_new(object(l), "FailureReason", json_string(reason));
    container_signal(&l->c, SIGKILL);
    l->script = NULL;
    set_status(l, "Failed");
}

static const json_t *plan(const json_t *ep) { return json_object_get(ep, "plan"); }
static bool planned(const json_t *ep, const char *kind) { return !strcmp(json_field(plan(ep), "kind"), kind); }
static double plan_seconds(const json_t *ep) { return json_number_value(json_object_get(plan(ep), "seconds")); }

/* Seconds of the cloud since creation. */
static double age(const struct live *l, const json_t *ep)
{
    return (world_now(l->w) - json_number_value(json_object_get(ep, "CreationTime"))) * l->w->speed;
}

static const json_t *variant(const json_t *ep) { return json_array_get(json_object_get(ep, "ProductionVariants"), 0); }
static const json_t *model(const json_t *ep) { return json_object_get(ep, "Model"); }
static const char *environment(const json_t *ep, const char *key) { return json_field(json_object_get(model(ep), "Environment"), key); }

static const char *first_type(const json_t *ep)
{
    const char *one = json_field(variant(ep), "InstanceType");
    return *one ? one : json_field(json_array_get(json_object_get(variant(ep), "InstancePools"), 0), "InstanceType");
}

static const char *hub_name(const json_t *ep)
{
    const char *name = environment(ep, "SM_VLLM_MODEL");
    return *name ? name : environment(ep, "HF_MODEL_ID");
}

/* --- the log --------------------------------------------------------------------------------------------------------- */

static void log_line(void *arg, const char *line, size_t n)
{
    struct live *l = arg;
    while (n && line[n - 1] == '\r') n--;
    logs_add(l->w, l->region, l->name, l->stream, world_now(l->w), line, n);
}

static void play_line(struct live *l, const char *line, double now)
{
    struct buf b = BUF_INIT;
    const char *name = hub_name(object(l));
    const struct script_names names = {l->app, l->engine, *name ? name : "/opt/ml/model", now};
    script_text(&b, line, &names);
    logs_add(l->w, l->region, l->name, l->stream, now, b.data ? b.data : "", b.n);
    buf_free(&b);
}

static void play_all(struct live *l, const struct script_line *s)
{
    for (; s->text; s++) play_line(l, s->text, world_now(l->w));
}

static void next_pids(struct live *l)
{
    l->app = l->starts ? l->app + 143 : 14;
    l->engine = l->app + 62;
}

/* A log group of a run a day ago, under the same name. */
static void old_log(struct world *w, const char *region, const char *name)
{
    struct live l = {.w = w, .region = (char *)region, .name = (char *)name, .app = 14, .engine = 76, .stream = "AllTraffic/i-0fedcba9876543210"};
    for (const struct script_line *s = SCRIPT_SERVED; s->text; s++) play_line(&l, s->text, world_now(w) - 86400 + s->at);
}

/* --- the container's command ----------------------------------------------------------------------------------------- */

static char *quoted(const char *s)
{
    struct buf b = BUF_INIT;
    buf_char(&b, '\'');
    for (; *s; s++) buf_printf(&b, *s == '\'' ? "'\\''" : "%c", *s);
    buf_char(&b, '\'');
    return b.data;
}

/* s3://bucket/key as a path; NULL when it is none. */
static char *s3_path(const struct world *w, const char *uri)
{
    if (strncmp(uri, "s3://", 5) || !uri[5] || strstr(uri, "/../")) return NULL;
    char *path = xasprintf("%s/%s", w->s3, uri + 5);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    return path;
}

/* The directory with the model's files, NULL when there is none; tar: it is an archive. */
static char *model_directory(const struct world *w, const json_t *ep, bool *tar)
{
    const char *uri = json_field(json_object_get(json_object_get(model(ep), "ModelDataSource"), "S3DataSource"), "S3Uri"), *name = hub_name(ep);
    *tar = false;
    if (!*uri) uri = json_field(model(ep), "ModelDataUrl");
    if (!*uri && !strncmp(name, "s3://", 5)) uri = name;
    if (*uri) {
        *tar = ends_with(uri, ".tar.gz");
        return s3_path(w, uri);
    }
    return *name && w->hub && !strstr(name, "..") ? xasprintf("%s/%s", w->hub, name) : NULL;
}

static char *gpu_serve(void)
{
    char *bin = self_directory(), *path = bin ? xasprintf("%s/gpu-serve", bin) : xstrdup("gpu-serve"), *word = quoted(path);
    free(path);
    free(bin);
    return word;
}

/* The command that plays gpu-serve, with vLLM's variables that mean something to it. */
static char *serve_command(const json_t *ep)
{
    static const struct { const char *variable, *option; } OPTIONS[] = {{"SM_VLLM_MAX_MODEL_LEN", "--max-context"}, {"SM_VLLM_MAX_NUM_SEQS", "--batch"},
        {"SM_VLLM_SERVED_MODEL_NAME", "--served-model-name"}};
    struct buf b = BUF_INIT;
    char *program = gpu_serve();
    buf_printf(&b, "exec %s --model \"$MODEL_DIR\" --port \"$PORT\" --until-eof", program);
    free(program);
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++) {
        const char *v = environment(ep, OPTIONS[i].variable);
        if (!*v) continue;
        char *q = quoted(v);
        buf_printf(&b, " %s %s", OPTIONS[i].option, q);
        free(q);
    }
    return b.data;
}

/* The command that the user has named for this image; NULL: none, gpu-serve is played. */
static const char *named_command(const json_t *ep)
{
    for (size_t i = 0; i < n_commands; i++)
        if (!fnmatch(commands[i].image, json_field(model(ep), "Image"), 0)) return commands[i].command;
    return NULL;
}

static char **container_env(const json_t *ep, const char *dir, const char *archive, int port)
{
    json_t *env = json_object_get(model(ep), "Environment"), *v;
    const char *key;
    char **list = xcalloc(json_object_size(env) + 4, sizeof *list);
    size_t n = 0;
    json_object_foreach(env, key, v) list[n++] = xasprintf("%s=%s", key, json_string_value(v));
    list[n++] = xasprintf("PORT=%d", port);
    if (dir) list[n++] = xasprintf("MODEL_DIR=%s", dir);
    if (archive) list[n] = xasprintf("MODEL_TAR=%s", archive);
    return list;
}

/* The command, after the archive with the model has been unpacked into *dir. */
static char *unpacking(const struct live *l, char *command, char **dir)
{
    *dir = xasprintf("%s/unpacked/%s-%s", l->w->dir, l->region, l->name);
    char *all = xasprintf("mkdir -p \"$MODEL_DIR\" && tar -xzf \"$MODEL_TAR\" -C \"$MODEL_DIR\" || exit\n%s", command);
    free(command);
    return all;
}

/* Start the process; false when there is no model to start it on. */
static bool spawn(struct live *l, const json_t *ep)
{
    struct err e = {0};
    bool tar;
    const char *named = named_command(ep);
    char *dir = model_directory(l->w, ep, &tar), *archive = NULL, *command = named ? xstrdup(named) : serve_command(ep);
    bool there = named || (dir && !access(dir, R_OK));
    if (there) {
        int port = free_port();
        snprintf(l->url, sizeof l->url, "http://127.0.0.1:%d", port);
        if (tar) {
            archive = dir;
            command = unpacking(l, command, &dir);
        }
        char **env = container_env(ep, dir, archive, port);
        if (!port) err_set(&e, EXIT_TEMPFAIL, "no port is free for a container");
        if (!port || container_start(&l->c, command, env, &e)) warn_msg("endpoint %s: %s", l->name, e.msg);     /* and tried again */
        for (char **p = env; *p; p++) free(*p);
        free(env);
    }
    free(dir);
    free(archive);
    free(command);
    return there;
}

/* --- starts ---------------------------------------------------------------------------------------------------------- */

/* The script of a start that is to fail, or NULL: it may serve. */
static const struct script_line *failing_start(const struct live *l, const json_t *ep)
{
    const char *word = json_field(plan(ep), "word");
    if (l->doomed) return script_failure("gpu-out-of-memory");
    if (planned(ep, "health-fail")) return script_failure(word);
    if (planned(ep, "hub-429")) return l->starts < 2 ? script_failure(word) : script_failure("hub-rate-limit");
    if (planned(ep, "second-start") && !l->starts) return script_failure(word);
    if (planned(ep, "recover") && age(l, ep) < PLACED + plan_seconds(ep)) return script_failure(word);
    return NULL;
}

static void begin_start(struct live *l, const json_t *ep)
{
    next_pids(l);
    play_all(l, SCRIPT_SPAWN);
    l->ready = false;
    l->healthy = 0;
    l->script = failing_start(l, ep);
    if (!l->script && !spawn(l, ep)) l->script = script_failure("hub-not-found");
    l->started = real_now();
    l->next_start = real_now() + BETWEEN_STARTS / l->w->speed;
    l->starts++;
}

static void go_on_playing(struct live *l)
{
    while (l->script && l->script->text && real_now() >= l->started + l->script->at / l->w->speed) {
        play_line(l, l->script->text, world_now(l->w));
        l->script++;
    }
    if (l->script && !l->script->text) l->script = NULL;
}

static void ended(struct live *l, int status)
{
    char line[160];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    double wait = RESPAWN / l->w->speed;
    snprintf(line, sizeof line, "{stamp} WARN exited: app (exit status %d; %s)", code, code ? "not expected" : "expected");
    play_line(l, line, world_now(l->w));
    l->ready = false;
    l->healthy = 0;
    l->next_start = real_now() + (wait > RESPAWN_AT_LEAST ? wait : RESPAWN_AT_LEAST);
}

/* --- health ---------------------------------------------------------------------------------------------------------- */

static void on_ping(struct world *w, void *arg, bool ok)
{
    struct live *l = arg;
    (void)w;
    l->pinging = false;
    if (!l->c.pid) return;
    if (ok && !l->healthy) l->healthy = real_now();
    if (!ok) l->healthy = 0;
    l->ready = ok;
}

static void ping(struct live *l)
{
    double every = PING_EVERY / l->w->speed, least = status_is(object(l), "Creating") ? PING_AT_LEAST : PING_IN_SERVICE;
    if (l->pinging || real_now() < l->next_ping) return;
    l->pinging = true;
    l->next_ping = real_now() + (every > least ? every : least);
    proxy_ping(l->w, l->url, on_ping, l);
}

/* The engine dies under a container that answered pings. */
static void die_if_planned(struct live *l, const json_t *ep)
{
    if (!planned(ep, "die") || l->doomed || !l->healthy || (real_now() - l->healthy) * l->w->speed < plan_seconds(ep)) return;
    int status;
    container_signal(&l->c, SIGKILL);
    for (double end = clock_seconds() + KILL_AFTER; container_poll(&l->c, log_line, l, &status) && clock_seconds() < end;)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    play_all(l, SCRIPT_DIE);
    l->doomed = true;
    l->ready = false;
    l->healthy = 0;
    l->next_start = real_now() + RESPAWN_AT_LEAST;
}

/* --- states ---------------------------------------------------------------------------------------------------------- */

static double startup_window(const json_t *ep)
{
    double planned_end = plan_seconds(ep);
    const json_t *v = json_object_get(variant(ep), "ContainerStartupHealthCheckTimeoutInSeconds");
    if (planned(ep, "health-fail") && planned_end > 0) return planned_end - PLACED;
    return json_is_number(v) ? json_number_value(v) : STARTUP_WINDOW;
}

static void run_container(struct live *l, const json_t *ep)
{
    int status = 0;
    if (l->c.pid && !container_poll(&l->c, log_line, l, &status)) ended(l, status);
    if (l->c.pid) {
        ping(l);
        die_if_planned(l, ep);
    } else if (l->script) {
        go_on_playing(l);
    } else if (real_now() >= l->next_start) {
        begin_start(l, ep);
    }
}

static void place(struct live *l)
{
    char id[37];
    random_uuid(id);
    snprintf(l->stream, sizeof l->stream, "%.40s/i-0%.8s%.4s%.4s", json_field(variant(object(l)), "VariantName"), id, id + 9, id + 14);
    l->placed = true;
    l->app = 14;
    l->engine = 76;
    play_all(l, SCRIPT_HEAD);
}

/* A process that loads a model is given real time, whatever the speed. */
static bool still_loads(const struct live *l, double window)
{
    return l->c.pid && real_now() - l->started < (window < LOAD_AT_LEAST ? window : LOAD_AT_LEAST);
}

static void creating(struct live *l, json_t *ep)
{
    char reason[512];
    double t = age(l, ep);
    const char *name = json_field(variant(ep), "VariantName");
    if (planned(ep, "capacity")) {
        if (t >= plan_seconds(ep)) fail(l, "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. Please retry using a different ML "
            "instance type or after some time.");
        return;
    }
    if (planned(ep, "start-error")) {
        snprintf(reason, sizeof reason, "CannotStartContainerError. Please ensure the model container for variant %s starts correctly when invoked with 'docker run <image> serve'", name);
        if (t >= plan_seconds(ep)) fail(l, reason);
        return;
    }
    if (t < PLACED) return;
    if (!l->placed) place(l);
    run_container(l, ep);
    double healthy = l->healthy ? (real_now() - l->healthy) * l->w->speed : 0, wanted = HEALTHY_FOR + (planned(ep, "lag") ? plan_seconds(ep) : 0);
    double window = startup_window(ep);
    if (l->healthy && healthy >= wanted) {
        set_status(l, "InService");
    } else if (!l->healthy && t - PLACED > window && !still_loads(l, window)) {
        snprintf(reason, sizeof reason, "The primary container for production variant %s did not pass the ping health check. Please check CloudWatch logs for this endpoint.", name);
        fail(l, reason);
    }
}

static void deleting(struct live *l, const json_t *ep)
{
    int status;
    double since = world_now(l->w) - json_number_value(json_object_get(ep, "LastModifiedTime"));
    if (since > KILL_AFTER) container_signal(&l->c, SIGKILL);
    if (container_poll(&l->c, log_line, l, &status) || since * l->w->speed < (plan_seconds(ep) > 0 && planned(ep, "slow-delete") ? plan_seconds(ep) : DELETING)) return;
    char *arn = world_arn(l->region, "endpoint", l->name);
    json_object_del(world_table(l->w, l->region, "tags"), arn);
    json_object_del(world_table(l->w, l->region, "endpoint"), l->name);
    free(arn);
    note_msg("endpoint %s in %s: gone", l->name, l->region);
    l->w->dirty = true;
    l->gone = true;
}

/* --- updates --------------------------------------------------------------------------------------------------------- */

static struct live *find(const char *region, const char *name);

static void retire(struct live *l)
{
    l->retired = true;
    l->ready = false;
    l->script = NULL;
    l->deleted = real_now();
    container_signal(&l->c, SIGTERM);
}

static void retired(struct live *l)
{
    int status;
    if (real_now() - l->deleted > KILL_AFTER) container_signal(&l->c, SIGKILL);
    l->gone = !container_poll(&l->c, log_line, l, &status);
}

/* The new configuration serves: it takes the endpoint over.  It never will: the old one stays. */
static void updating(struct live *l)
{
    static const char *const TAKEN[] = {"EndpointConfigName", "ProductionVariants", "Model", "plan"};
    json_t *next = object(l), *ep = json_object_get(world_table(l->w, l->region, "endpoint"), l->name);
    creating(l, next);
    bool serves = status_is(next, "InService");
    if (status_is(next, "Creating")) return;
    if (serves) {
        struct live *old = find(l->region, l->name);
        if (old) retire(old);
        for (size_t i = 0; i < sizeof TAKEN / sizeof *TAKEN; i++) {
            json_t *v = json_object_get(next, TAKEN[i]);
            if (v) json_object_set(ep, TAKEN[i], v);
            else json_object_del(ep, TAKEN[i]);
        }
        json_object_del(ep, "FailureReason");
        l->update = false;
    } else {
        json_object_set(ep, "FailureReason", json_object_get(next, "FailureReason"));
        retire(l);
    }
    json_object_del(ep, "next");
    set_status(serves ? l : find(l->region, l->name), "InService");
}

static bool step(struct live *l)
{
    json_t *ep = l->retired ? NULL : object(l);
    int status;
    if (l->retired) retired(l);
    else if (l->update) updating(l);
    else if (status_is(ep, "Creating")) creating(l, ep);
    else if (status_is(ep, "InService") || status_is(ep, "Updating")) run_container(l, ep);
    else if (status_is(ep, "Deleting")) deleting(l, ep);
    else container_poll(&l->c, log_line, l, &status);
    return !l->gone;
}

bool endpoint_tick(struct world *w)
{
    struct live **at = &lives;
    (void)w;
    while (*at) {
        struct live *l = *at;
        if ((l->gone || !step(l)) && !l->pinging) {
            *at = l->next;
            free(l->region);
            free(l->name);
            free(l);
        } else {
            at = &l->next;
        }
    }
    return lives != NULL;
}

/* --- beginnings and ends --------------------------------------------------------------------------------------------- */

static struct live *add(struct world *w, const char *region, const char *name)
{
    struct live *l = xcalloc(1, sizeof *l);
    *l = (struct live){.w = w, .region = xstrdup(region), .name = xstrdup(name), .next = lives};
    lives = l;
    return l;
}

static struct live *find(const char *region, const char *name)
{
    struct live *l = lives;
    while (l && (l->gone || l->update || l->retired || strcmp(l->region, region) || strcmp(l->name, name))) l = l->next;
    return l;
}

void endpoint_resume(struct world *w)
{
    json_t *table, *ep;
    const char *region, *name;
    json_object_foreach(world_section(w, "regions"), region, table)
        json_object_foreach(json_object_get(table, "endpoint"), name, ep) {
            struct live *l = add(w, region, name);
            if (status_is(ep, "InService") || status_is(ep, "Updating")) place(l);
            if (json_object_get(ep, "next")) add(w, region, name)->update = true;
        }
}

/* Which of the faults that decide a whole life does this endpoint meet? */
static void make_plan(struct world *w, const char *region, json_t *ep)
{
    static const char *const KINDS[] = {"capacity", "start-error", "health-fail", "hub-429", "recover", "second-start", "die", "lag", "slow-delete"};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        const struct fault *f = faults_strike(w, KINDS[i], region, first_type(ep), NULL);
        if (!f) continue;
        const char *word = f->word && script_failure(f->word) ? f->word : "gpu-out-of-memory";
        json_object_set_new(ep, "plan", json_pack("{s:s, s:f, s:s}", "kind", f->kind, "seconds", f->seconds, "word", word));
        return;
    }
}

void endpoint_begin(struct world *w, const char *region, json_t *ep)
{
    const char *name = json_field(ep, "EndpointName");
    make_plan(w, region, ep);
    if (!logs_has_group(w, region, name) && faults_strike(w, "old-log", region, NULL, NULL)) old_log(w, region, name);
    add(w, region, name);
    w->dirty = true;
}

void endpoint_update(struct world *w, const char *region, json_t *ep, json_t *next)
{
    make_plan(w, region, next);
    json_object_set_new(ep, "next", next);
    json_object_set_new(ep, "EndpointStatus", json_string("Updating"));
    json_object_set_new(ep, "LastModifiedTime", world_time(world_now(w)));
    add(w, region, json_field(ep, "EndpointName"))->update = true;
    w->dirty = true;
}

void endpoint_delete(struct world *w, json_t *ep)
{
    struct live *l = lives;
    while (l && (l->retired || object(l) != ep)) l = l->next;
    if (!l) return;
    set_status(l, "Deleting");
    l->script = NULL;
    l->ready = false;
    container_signal(&l->c, SIGTERM);
    (void)w;
}

void endpoint_stop_all(struct world *w, double seconds)
{
    int status;
    bool running = true;
    (void)w;
    for (struct live *l = lives; l; l = l->next) container_signal(&l->c, SIGTERM);
    for (double end = clock_seconds() + seconds; running && clock_seconds() < end;) {
        running = false;
        for (struct live *l = lives; l; l = l->next) running |= container_poll(&l->c, log_line, l, &status);
        if (running) nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    for (struct live *l = lives; l; l = l->next) container_signal(&l->c, SIGKILL);
}

bool endpoint_target(struct world *w, const char *region, const char *name, const char *wanted, struct target *t)
{
    const struct live *l = find(region, name);
    const json_t *ep = l ? object(l) : NULL;
    (void)w;
    *t = (struct target){0};
    if (!ep || !(status_is(ep, "InService") || status_is(ep, "Updating"))) return false;
    t->variant = json_field(variant(ep), "VariantName");
    if (wanted && strcmp(wanted, t->variant)) return false;
    t->ready = l->ready;
    t->url = l->c.pid ? xstrdup(l->url) : NULL;
    return true;
}

static long instances_of(const json_t *ep, const char *type)
{
    const json_t *v = variant(ep), *given = json_object_get(v, "InitialInstanceCount");
    long n = 0, count = json_is_integer(given) ? (long)json_integer_value(given) : 1;
    json_t *pool;
    size_t i;
    if (!strcmp(json_field(v, "InstanceType"), type)) n += count;
    json_array_foreach(json_object_get(v, "InstancePools"), i, pool)
        if (!strcmp(json_field(pool, "InstanceType"), type)) n += count;
    return n;
}

long endpoint_instances(struct world *w, const char *region, const char *type)
{
    long n = 0;
    json_t *ep;
    const char *name;
    json_object_foreach(world_table(w, region, "endpoint"), name, ep)
        if (!status_is(ep, "Failed")) n += instances_of(ep, type) + instances_of(json_object_get(ep, "next"), type);
    return n;
}
