/* sm-invoke: request lines in, answer lines with timings out; closed- or open-loop load on an OpenAI-compatible server or a SageMaker endpoint. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include "aws/guard.h"
#include "aws/runtime.h"
#include "base/io.h"
#include "base/key.h"
#include "base/opt.h"
#include "net/http.h"
#include "net/load.h"

/* "Authorization: Bearer KEY" from the key's file. */
static char *authorization(const char *path)
{
    struct err e = {0};
    char *key = key_read(path, &e);
    if (!key) die(&e);
    char *header = xasprintf("Authorization: Bearer %s", key);
    key_free(key);
    return header;
}

/* Every running request is a connection. */
static void allow_connections(void)
{
    struct rlimit r;
    if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

/* NAME or NAME@REGION. */
static struct runtime *open_endpoint(const char *endpoint, const char *profile)
{
    static struct aws_session s;        /* as long as the program */
    struct err e = {0};
    const char *at = strchr(endpoint, '@');
    char *name = xstrndup(endpoint, at ? (size_t)(at - endpoint) : strlen(endpoint));
    aws_name_check(name);
    if (aws_session_open(&s, profile, &e)) die(&e);
    const char *region = at ? at + 1 : aws_config_region(s.config);
    if (!region) opt_usage("--endpoint %s: no region: give NAME@REGION, or set AWS_REGION", name);
    aws_region_check(region);
    struct runtime *r = runtime_new(&s, region, name, &e);
    if (!r) die(&e);
    free(name);
    return r;
}

static void check(const struct load_options *o, const char *endpoint, const char *key_file)
{
    if (!o->url == !endpoint) opt_usage(endpoint ? "--url and --endpoint exclude each other" : "--url is missing: give the server's base URL, or --endpoint NAME");
    if (o->url && strncasecmp(o->url, "http://", 7) && strncasecmp(o->url, "https://", 8)) opt_usage("--url %s: expected http:// or https://", o->url);
    if (o->url && http_names_user(o->url)) opt_usage("--url: a user or password in it would stand in results: give the server's key by --api-key-file");
    if (o->rate == 0) opt_usage("--rate 0: nothing would ever start: leave it out, and a request starts when one has ended");
    if (o->timeout == 0) opt_usage("--timeout 0: every request would be given up at once: name the seconds that one may take");
    if (o->rate > 0 && o->concurrency != 1) opt_usage("--rate and --concurrency exclude each other");
    if (o->poisson && !(o->rate > 0)) opt_usage("--poisson: gives --rate its gaps: name a rate");
    if (endpoint && key_file) opt_usage("--api-key-file: an endpoint takes AWS credentials");
}

int main(int argc, char **argv)
{
    prog_init(argv[0]);
    struct load_options o = {.concurrency = 1, .rate = -1, .timeout = 600, .tokens_per_second = 25, .seed = 1};
    const char *key_file = NULL, *endpoint = NULL, *profile = NULL;
    const struct opt opts[] = {
        {"url", 0, OPT_STR, &o.url, "URL", "base of the server: http://HOST:PORT; the path follows from each request", 0, 0},
        {"endpoint", 0, OPT_STR, &endpoint, "NAME[@REGION]", "a SageMaker endpoint instead", 0, 0},
        {"profile", 0, OPT_STR, &profile, "NAME", "profile of the AWS configuration", 0, 0},
        {"concurrency", 'c', OPT_INT, &o.concurrency, "N", "closed loop: keep N requests running", 1, LOAD_CONCURRENCY_MAX},
        {"rate", 'r', OPT_REAL, &o.rate, "R", "open loop: start R requests a second, whatever is still running", 0, 100000},
        {"poisson", 0, OPT_FLAG, &o.poisson, NULL, "with --rate: gaps as of independent users", 0, 0},
        {"seed", 0, OPT_INT, &o.seed, "N", "of --poisson", 0, 0},
        {"warmup", 0, OPT_INT, &o.warmup, "N", "send the first request N times before; those answers are dropped", 0, 100000},
        {"tokens-per-second", 0, OPT_REAL, &o.tokens_per_second, "R", "endpoint: what a plain call's length is estimated with", 1, 100000},
        {"stream", 's', OPT_FLAG, &o.stream, NULL, "ask for streams and time every chunk", 0, 0},
        {"timeout", 't', OPT_REAL, &o.timeout, "SECONDS", "give a request up after this long", 0, 86400},
        {"api-key-file", 0, OPT_STR, &key_file, "FILE", "send the key in FILE as a bearer token", 0, 0},
        {0}};
    const struct opt_spec spec = {
        .usage = "(--url URL | --endpoint NAME[@REGION]) [--concurrency N | --rate R] [--stream] < requests.jsonl > responses.jsonl",
        .about = "Send each line, an OpenAI request body with an id, to a server, and write a line with the answer and its times, in input order.\n"
                 "Nothing is sent twice that may have run.  A request that fails gives a line with \"error\"; the others go on.",
        .opts = opts,
        .examples = "sm-invoke --url http://127.0.0.1:8080 --concurrency 4 --stream < requests.jsonl > responses.jsonl\n"
                    "echo '{\"id\":1,\"messages\":[{\"role\":\"user\",\"content\":\"Why is the sky blue?\"}]}' | sm-invoke --url http://127.0.0.1:8080",
        .exits = "65 a line is no request, or was refused as such; 69 server not reachable or failing; 75 busy or too slow; 77 key refused"};
    opt_parse(&spec, argc, argv);
    check(&o, endpoint, key_file);
    struct err e = {0};
    struct load_summary sum;
    guard_adopt_orphans();
    struct runtime *runtime = endpoint ? open_endpoint(endpoint, profile) : NULL;
    if (runtime) {
        o.url = runtime_url(runtime);
        o.wire = runtime_wire(runtime);
        if (!o.stream && o.timeout > 70) o.timeout = 70;        /* SageMaker itself gives up after 60 */
    }
    char *auth = key_file ? authorization(key_file) : NULL;
    o.authorization = auth;
    struct jsonl *in = jsonl_open("-", &e);
    if (!in) die(&e);
    allow_connections();
    if (load_run(&o, in, stdout, &sum, &e)) die(&e);
    jsonl_close(in);
    runtime_free(runtime);
    key_free(auth);
    if (finish_stdout(&e)) die(&e);
    if (sum.failed) die_msg(sum.first.code, "%ld of %ld requests failed; the first: %s", sum.failed, sum.lines, sum.first.msg);
    return 0;
}
