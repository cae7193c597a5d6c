/* sm-local: a SageMaker on this machine that really serves: rehearsals of deployments, with every fault on demand and nothing billed. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/opt.h"
#include "base/stop.h"
#include "rehearse/auth.h"
#include "rehearse/endpoint.h"
#include "rehearse/faults.h"
#include "rehearse/logs.h"
#include "rehearse/runtime.h"
#include "rehearse/scheduler.h"
#include "rehearse/server.h"
#include "rehearse/world.h"
#include "serve/http.h"

#define BODY_MAX ((size_t)256 << 20)    /* a part of a multipart upload */
#define TICK_MS 40
#define IDLE_TICK_MS 200
#define STOP_SECONDS 5.0

struct options {
    struct http_server_options http;
    const char *state, *s3, *hub;
    double speed, until_idle;
    struct opt_list faults, commands;
    bool until_eof;
};

static void parse(struct options *o, int argc, char **argv)
{
    char *faults = faults_help();
    char *about = xasprintf("Play the parts of AWS that q4sweep uses on one port: SageMaker's control plane and runtime, CloudWatch Logs, Service Quotas, ECR's list of images, STS,\n"
        "EventBridge Scheduler and S3, with signatures verified.  An endpoint is a real process (gpu-serve on the model's directory); nothing is billed.  Prints its URL as one\n"
        "line when ready: clients take it as AWS_ENDPOINT_URL.  Keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of this program's environment, else\n"
        "%s and %s.\n\n%s", DEFAULT_KEY_ID, DEFAULT_SECRET, faults);
    const struct opt opts[] = {
        {"port", 0, OPT_INT, &o->http.port, "PORT", "listen on PORT; 0 picks a free one", 0, 65535},
        {"fault", 0, OPT_LIST, &o->faults, "KIND[:ARG[,ARG]...]", "let this go wrong; may be repeated", 0, 0},
        {"speed", 0, OPT_REAL, &o->speed, "N", "the cloud's minutes pass N times faster", 1, 100000},
        {"state", 0, OPT_STR, &o->state, "DIR", "keep the account here (default: for a fixed port $XDG_STATE_HOME/q4sweep/sm-local/PORT, for port 0 nowhere)", 0, 0},
        {"s3", 0, OPT_STR, &o->s3, "DIR", "the buckets: s3://BUCKET/KEY is DIR/BUCKET/KEY (default: in the state)", 0, 0},
        {"hub", 0, OPT_STR, &o->hub, "DIR", "models that are named ORG/NAME lie in DIR/ORG/NAME", 0, 0},
        {"image", 0, OPT_LIST, &o->commands, "GLOB=COMMAND", "play images that match by a shell command, which serves on $PORT ($MODEL_DIR has the model)", 0, 0},
        {"address", 0, OPT_STR, &o->http.address, "ADDRESS", "listen on this numeric address", 0, 0},
        {"until-idle", 0, OPT_REAL, &o->until_idle, "SECONDS", "stop when there has been no endpoint and no call for so long", 0, 86400},
        {"until-eof", 0, OPT_FLAG, &o->until_eof, NULL, "stop when stdin ends", 0, 0},
        {0}};
    const struct opt_spec spec = {
        .usage = "--port PORT|0 [--fault KIND[:ARG]]... [options]",
        .about = about,
        .opts = opts,
        .examples = "sm-local --port 8700 --s3 buckets --fault capacity:us-east-1\n"
                    "AWS_ENDPOINT_URL=http://127.0.0.1:8700 aws sagemaker list-endpoints --region us-east-1",
        .exits = "69 the port is taken; 75 another sm-local uses the state"};
    opt_parse(&spec, argc, argv);
    free(about);
    free(faults);
    if (o->http.port < 0) opt_usage("--port is missing: give a port, or 0 for any free one");
}

static char *private_directory;

static void remove_private(void) { remove_tree(private_directory); }

/* Where the account is kept; freed by the caller.  With port 0 nobody can come back to it: a directory that is removed in the end. */
static char *state_directory(const struct options *o)
{
    const char *home = getenv("XDG_STATE_HOME"), *tmp = getenv("TMPDIR");
    if (o->state) return xstrdup(o->state);
    if (o->http.port && home && *home == '/') return xasprintf("%s/q4sweep/sm-local/%ld", home, o->http.port);
    if (o->http.port && getenv("HOME")) return xasprintf("%s/.local/state/q4sweep/sm-local/%ld", getenv("HOME"), o->http.port);
    char *dir = xasprintf("%s/sm-local.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    struct err e = {0};
    if (!mkdtemp(dir) && err_errno(&e, EXIT_IO, "%s: cannot make this directory", dir)) die(&e);
    private_directory = xstrdup(dir);
    atexit(remove_private);
    return dir;
}

/* Lives as long as the program. */
static struct endpoint_command *image_commands(const struct opt_list *given)
{
    struct endpoint_command *list = xcalloc(given->n + 1, sizeof *list);
    for (size_t i = 0; i < given->n; i++) {
        const char *equals = strchr(given->item[i], '=');
        if (!equals || equals == given->item[i] || !equals[1]) opt_usage("--image %s: expected GLOB=COMMAND", given->item[i]);
        list[i] = (struct endpoint_command){xstrndup(given->item[i], (size_t)(equals - given->item[i])), equals + 1};
    }
    return list;
}

static void open_account(struct world *w, const struct options *o)
{
    struct err e = {0};
    w->speed = o->speed;
    w->last_call = clock_seconds();
    w->hub = o->hub;
    w->s3 = o->s3 ? xstrdup(o->s3) : xasprintf("%s/s3", w->dir);
    for (size_t i = 0; i < o->faults.n; i++)
        if (faults_add(w, o->faults.item[i], &e)) die(&e);
    endpoint_commands(image_commands(&o->commands), o->commands.n);
    if (io_make_directories(w->s3, 0777, &e) || logs_open(w, &e)) die(&e);
    auth_init(w);
    if (world_save(w, &e) || !(w->proxy = proxy_start(w, &e))) die(&e);
}

/* What is due, again and again, until a signal comes (returned), or 0: stdin has ended, or nothing was asked for long. */
static int run(struct world *w, const struct options *o)
{
    for (;;) {
        struct err e = {0};
        pthread_mutex_lock(&w->lock);
        bool busy = endpoint_tick(w);
        scheduler_tick(w);
        if (world_save(w, &e)) warn_msg("%s", e.msg);
        if (busy) w->last_call = clock_seconds();
        double idle = clock_seconds() - w->last_call;
        pthread_mutex_unlock(&w->lock);
        if (o->until_idle > 0 && idle > o->until_idle) return 0;
        int sig = stop_asked(o->until_eof, busy ? TICK_MS : IDLE_TICK_MS);
        if (sig != STOP_NOT_YET) return sig;
    }
}

static void stop(struct world *w, struct http_server *http)
{
    struct err e = {0};
    pthread_mutex_lock(&w->lock);
    endpoint_stop_all(w, STOP_SECONDS);
    if (world_save(w, &e)) warn_msg("%s", e.msg);
    pthread_mutex_unlock(&w->lock);
    proxy_stop(w);
    http_server_stop(http);
    logs_close(w);
    faults_free(w);
}

int main(int argc, char **argv)
{
    prog_init(argv[0]);
    struct options o = {.http = {.address = "127.0.0.1", .port = -1, .body_max = BODY_MAX, .connections = 512}, .speed = 60};
    struct err e = {0};
    parse(&o, argc, argv);
    char *dir = state_directory(&o);
    struct world *w = world_open(dir, &e);
    if (!w) die(&e);
    open_account(w, &o);
    stop_catch(false);
    struct http_server *http = http_server_start(&o.http, server_handle, w, &e);
    if (!http) die(&e);
    pthread_mutex_lock(&w->lock);
    w->url = http_server_url(http);
    endpoint_resume(w);
    pthread_mutex_unlock(&w->lock);
    printf("%s\n", http_server_url(http));
    if (finish_stdout(&e)) die(&e);
    int sig = run(w, &o);
    stop(w, http);
    world_close(w);
    free(o.faults.item);
    free(o.commands.item);
    free(dir);
    return sig == SIGINT || sig == SIGHUP ? 128 + sig : 0;
}
