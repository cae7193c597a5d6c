/* gpu-serve: a build directory behind HTTP: SageMaker's container contract and OpenAI's API, with continuous batching. */
#define _XOPEN_SOURCE 700           /* realpath */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/opt.h"
#include "base/stop.h"
#include "serve/api.h"
#include "serve/log.h"

#define GIB (1024.0 * 1024 * 1024)
#define MEMORY_READS 3
#define MEMORY_LEAST (64u << 20)    /* bytes; above any L3 that a few threads fill */

/* Whoever held the other end of stdin is gone, and what still runs is for nobody: it may not keep the process for longer. */
#define EOF_SECONDS 2

static void on_alarm(int sig)
{
    (void)sig;
    _exit(0);
}

static void limit_the_end(void)
{
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
    alarm(EOF_SECONDS);
}

/* Every client is a descriptor. */
static unsigned allow_connections(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r)) return 512;
    r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
    setrlimit(RLIMIT_NOFILE, &r);
    return r.rlim_cur > 128 ? (unsigned)r.rlim_cur - 64 : 64;
}

/* Tokens for K/V: what was asked for, else what half of the free memory holds, and never more than all places can use. */
static long kv_tokens(const struct engine *en, long asked, long places)
{
    long context = engine_max_context(en);
    double bytes = engine_facts(en)->kv_room ? (double)engine_facts(en)->kv_room : memory_available("/proc", "/sys/fs/cgroup") / 2, each = (double)engine_kv_bytes(en, context), most = (double)places * (double)context;
    double fits = asked ? (double)asked : each > 0 && bytes > 0 ? bytes / each * (double)context : most;
    return (long)(fits < most ? fits : most);
}

/* 650783 as "650,783". */
static const char *grouped(long n, char out[32])
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%ld", n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

/* What decoding here can be measured against: a plain read of the weights.  Those that a cache may hold say nothing of the memory. */
static void log_memory(struct engine *en)
{
    if (engine_facts(en)->token_bytes < MEMORY_LEAST) return;
    double best = 0;
    struct err e = {0};
    for (int i = 0; i < MEMORY_READS; i++) {
        double start = clock_seconds(), bytes = (double)engine_read_weights(en, &e), rate = bytes / (clock_seconds() - start);
        if (e.code) die(&e);
        if (rate > best) best = rate;
    }
    serve_log("Memory read: %.1f GB/s (the weights of a token, plainly read by %d threads, best of %d)", best / 1e9, engine_facts(en)->threads, MEMORY_READS);
}

static void log_start(struct engine *en, const char *dir, long kv)
{
    const struct engine_facts *f = engine_facts(en);
    long context = engine_max_context(en);
    double each = (double)engine_kv_bytes(en, context) / (double)context;
    serve_log("Initializing a V1 LLM engine (v%s) with config: model='%s', max_seq_len=%ld, device_config=%s, math=%s, simd=%s, threads=%d", version_string(), dir,
        context, f->device, f->math, f->simd ? f->simd : f->gpu, f->threads);
    serve_log("Using max model len %ld", context);
    serve_log("Model loading took %.2f GiB memory and %.6f seconds", (double)f->weight_bytes / GIB, f->load_seconds);
    log_memory(en);
    serve_log("Available KV cache memory: %.2f GiB", each * (double)kv / GIB);
    char tokens[32], each_request[32];
    serve_log("GPU KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx", grouped(kv, tokens), grouped(context, each_request),
        (double)kv / (double)context);
}

static void log_request(const char *client, const char *method, const char *path, int status, const char *reason)
{
    serve_log_http("%s - \"%s %s HTTP/1.1\" %d %s", client, method, path, status, reason);
}

static char *last_part(const char *dir)
{
    size_t n = strlen(dir), from;
    while (n > 1 && dir[n - 1] == '/') n--;
    for (from = n; from && dir[from - 1] != '/'; from--) { }
    return xstrndup(dir + from, n - from);
}

/* The last part of the directory's name; a dot stands for one. */
static char *model_name(const char *dir)
{
    char *name = last_part(dir), *whole = !strcmp(name, ".") || !strcmp(name, "..") ? realpath(dir, NULL) : NULL;
    if (!whole) return name;
    free(name);
    name = last_part(whole);
    free(whole);
    return name;
}

static void announce(const char *url)
{
    struct err e = {0};
    serve_log_http("Application startup complete.");
    printf("%s\n", url);
    if (finish_stdout(&e)) die(&e);
}

struct options {
    struct engine_options engine;
    struct batch_options batch;
    struct http_server_options http;
    const char *model, *name, *ple;
    long threads, body_max;
    bool until_eof;
};

static void parse(struct options *o, int argc, char **argv)
{
    const struct opt opts[] = {
        {"model", 'm', OPT_STR, &o->model, "DIR", "the build or checkpoint to serve", 0, 0},
        {"port", 0, OPT_INT, &o->http.port, "PORT", "listen on PORT; 0 picks a free one", 0, 65535},
        {"address", 0, OPT_STR, &o->http.address, "ADDRESS", "listen on this numeric address", 0, 0},
        {"until-eof", 0, OPT_FLAG, &o->until_eof, NULL, "stop when stdin ends, within 2 seconds whatever runs", 0, 0},
        {"api-key-file", 0, OPT_STR, &o->http.key_file, "FILE", "require the key in FILE as a bearer token", 0, 0},
        {"served-model-name", 0, OPT_STR, &o->name, "NAME", "name in /v1/models (default: DIR's last part)", 0, 0},
        {"device", 0, OPT_CHOICE, &o->engine.device, "auto|cpu|cuda", "where to compute", 0, 0},
        {"ple", 0, OPT_CHOICE, &o->ple, "host|gpu", "where the per-layer-embedding table stays when a GPU runs", 0, 0},
        {"math", 0, OPT_CHOICE, &o->engine.math, "exact|fast", "arithmetic of the engine (default: fast)", 0, 0},
        {"mmap", 0, OPT_FLAG, &o->engine.mapped, NULL, "leave the weights in the files, mapped, where memory is short: slower; on the CPU", 0, 0},
        {"threads", 'j', OPT_INT, &o->threads, "N", "threads of the engine; 0 = one per CPU", 0, 1024},
        {"max-context", 0, OPT_INT, &o->engine.max_context, "N", "tokens of prompt and completion; 0 = what the model was made for", 0, 1 << 24},
        {"batch", 0, OPT_INT, &o->batch.max_running, "N", "sequences that run together", 1, BATCH_RUNNING_MAX},
        {"max-queue", 0, OPT_INT, &o->batch.max_waiting, "N", "sequences that may wait; more are answered 429", 0, 100000},
        {"kv-tokens", 0, OPT_INT, &o->batch.kv_tokens, "N", "tokens of all sequences together; 0 = from free memory", 0, 1L << 30},
        {"body-max", 0, OPT_SIZE, &o->body_max, "BYTES", "largest request body", 1024, 1L << 30},
        {0}};
    const struct opt_spec spec = {
        .usage = "--model DIR --port PORT|0 [--address ADDRESS] [--until-eof] [options]",
        .about = "Serve a model over HTTP: /ping and /invocations as a SageMaker container does, OpenAI's /v1 routes with streaming, /metrics.\n"
                 "Prints its URL as one line when ready.  SIGTERM finishes what runs, refuses what is new and exits 0.",
        .opts = opts,
        .examples = "gpu-serve --model build/e2b-emb4 --port 8080\n"
                    "curl -s http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' -d '{\"prompt\":\"The sky is\",\"max_tokens\":16}'",
        .exits = "69 the port is taken or the device is not there"};
    opt_parse(&spec, argc, argv);
    if (!o->model) opt_usage("--model is missing: give the build to serve");
    if (o->http.port < 0) opt_usage("--port is missing: give a port, or 0 for any free one");
    o->engine.threads = (int)o->threads;
    o->engine.ple_on_gpu = !strcmp(o->ple, "gpu");
    o->http.body_max = (size_t)o->body_max;
    o->http.log = log_request;
}

int main(int argc, char **argv)
{
    prog_init(argv[0]);
    struct options o = {.engine = {.device = "auto"}, .batch = {.max_running = 32, .max_waiting = 256}, .http = {.address = "127.0.0.1", .port = -1},
        .body_max = 16L << 20, .ple = "host"};
    struct err e = {0};
    parse(&o, argc, argv);
    o.http.connections = allow_connections();
    struct api *api = api_new();
    struct http_server *http = http_server_start(&o.http, api_handle, api, &e);
    struct engine *en = http ? engine_open(o.model, &o.engine, &e) : NULL;
    if (!en) die(&e);
    stop_catch(true);
    o.batch.kv_tokens = kv_tokens(en, o.batch.kv_tokens, o.batch.max_running);
    log_start(en, o.model, o.batch.kv_tokens);
    struct batch *batch = batch_start(en, &o.batch, &e);
    if (!batch) die(&e);
    char *name = o.name ? xstrdup(o.name) : model_name(o.model);
    api_ready(api, en, batch, name);
    announce(http_server_url(http));
    int sig;
    while ((sig = stop_asked(o.until_eof, -1)) == STOP_NOT_YET) {}
    serve_log_http("Shutting down");
    if (sig == STOP_EOF) limit_the_end();
    api_drain(api);
    batch_drain(batch);
    http_server_stop(http);
    batch_free(batch);
    api_free(api);
    engine_close(en);
    free(name);
    return sig == SIGINT || sig == SIGHUP ? 128 + sig : 0;
}
