#include "serve/api.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "base/json.h"
#include "base/opt.h"
#include "serve/completion.h"

enum phase { LOADING, READY, DRAINING };

struct api {
    struct completion_context ctx;
    time_t started;
    atomic_int phase;
};

static void answer_json(struct exchange *x, json_t *v)
{
    char *text = json_text(v, false);
    exchange_answer(x, 200, "application/json", text, strlen(text), NULL);
    free(text);
    json_decref(v);
}

static void refuse(struct exchange *x, int status, const char *message)
{
    struct err e = {0};
    err_set(&e, EXIT_DATA, "%s", message);
    error_answer(x, status, &e);
}

/* --- the small routes ----------------------------------------------------------------------------------------------- */

static void health(struct api *a, struct exchange *x)
{
    struct err e = {0};
    if (batch_works(a->ctx.batch, &e)) error_answer(x, 503, &e);
    else exchange_answer(x, 200, "text/plain", "", 0, NULL);
}

static void version(struct api *a, struct exchange *x)
{
    (void)a;
    answer_json(x, json_pack("{s:s}", "version", version_string()));
}

static void models(struct api *a, struct exchange *x)
{
    answer_json(x, json_pack("{s:s,s:[{s:s,s:s,s:I,s:s,s:I}]}", "object", "list", "data", "id", a->ctx.model, "object", "model", "created",
        (json_int_t)a->started, "owned_by", "q4sweep", "max_model_len", (json_int_t)engine_max_context(a->ctx.en)));
}

static void add_counter(struct buf *b, const char *name, const char *label, const char *help, double value)
{
    metric_head(b, name, "counter", help);
    metric_value(b, name, label, value);
}

static void add_gauge(struct buf *b, const char *name, const char *label, const char *help, double value)
{
    metric_head(b, name, "gauge", help);
    metric_value(b, name, label, value);
}

static void add_ends(struct buf *b, const char *label, const struct batch_facts *f)
{
    const struct { const char *reason; uint64_t n; } ends[] = {{"stop", f->stopped}, {"length", f->length}, {"abort", f->aborted}};
    metric_head(b, "vllm:request_success_total", "counter", "Count of successfully processed requests, by reason of their end.");
    for (int i = 0; i < 3; i++) {
        char *both = xasprintf("%s,finished_reason=\"%s\"", label, ends[i].reason);
        metric_value(b, "vllm:request_success_total", both, (double)ends[i].n);
        free(both);
    }
}

static void metrics(struct api *a, struct exchange *x)
{
    struct batch_facts f;
    struct buf b = BUF_INIT, label = BUF_INIT;
    batch_facts(a->ctx.batch, &f);
    buf_str(&label, "engine=\"0\",model_name=\"");
    for (const char *p = a->ctx.model; *p; p++) {
        if (*p == '"' || *p == '\\') buf_char(&label, '\\');
        if (*p == '\n') buf_str(&label, "\\n");
        else buf_char(&label, *p);
    }
    buf_char(&label, '"');
    const char *l = label.data;
    add_gauge(&b, "vllm:num_requests_running", l, "Number of requests in model execution batches.", (double)f.running);
    add_gauge(&b, "vllm:num_requests_waiting", l, "Number of requests waiting to be processed.", (double)f.waiting);
    add_gauge(&b, "vllm:kv_cache_usage_perc", l, "KV-cache usage. 1 means 100 percent usage.", f.kv_tokens ? (double)f.kv_used / (double)f.kv_tokens : 0);
    add_counter(&b, "vllm:prompt_tokens_total", l, "Number of prefill tokens processed.", (double)f.prompt_tokens);
    add_counter(&b, "vllm:generation_tokens_total", l, "Number of generation tokens processed.", (double)f.generated_tokens);
    add_counter(&b, "q4sweep:steps_total", l, "Number of steps of the engine.", (double)f.steps);
    add_gauge(&b, "q4sweep:kv_tokens", l, "Tokens that the KV budget holds.", (double)f.kv_tokens);
    add_ends(&b, l, &f);
    metric_histogram(&b, "vllm:time_to_first_token_seconds", l, "Histogram of time to first token in seconds.", &f.ttft);
    metric_histogram(&b, "vllm:inter_token_latency_seconds", l, "Histogram of inter-token latency in seconds.", &f.itl);
    metric_histogram(&b, "vllm:e2e_request_latency_seconds", l, "Histogram of e2e request latency in seconds.", &f.e2e);
    metric_histogram(&b, "vllm:request_queue_time_seconds", l, "Histogram of time spent in WAITING phase for request.", &f.queued);
    exchange_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.n, NULL);
    buf_free(&label);
    buf_free(&b);
}

/* --- tokens --------------------------------------------------------------------------------------------------------- */

static json_t *token_list(const int *id, size_t n, long context)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(id[i]));
    return json_pack("{s:I,s:I,s:o}", "count", (json_int_t)n, "max_model_len", (json_int_t)context, "tokens", list);
}

static int no_tokenizer(const char *field, struct err *e) { return err_set(e, EXIT_DATA, "%s: the model has no tokenizer.json: texts and ids cannot be changed into each other", field); }

/* A prompt as it would be run; `add_special_tokens` false leaves the bos out. */
static int tokenize(struct api *a, struct exchange *x, const json_t *body, struct err *e)
{
    const json_t *prompt = json_object_get(body, "prompt");
    long context = engine_max_context(a->ctx.en);
    bool special;
    if (json_get_bool(body, "add_special_tokens", true, &special, "request", e)) return -1;
    if (prompt && !special) {
        struct ids ids = IDS_INIT;
        if (!json_is_string(prompt)) return err_set(e, EXIT_DATA, "prompt: not a string");
        if (!engine_tokenizer(a->ctx.en)) return no_tokenizer("prompt", e);
        if (tokenizer_encode(engine_tokenizer(a->ctx.en), json_string_value(prompt), json_string_length(prompt), &ids, e)) return -1;
        answer_json(x, token_list(ids.id, ids.n, context));
        ids_free(&ids);
        return 0;
    }
    struct request r;
    if (request_parse(&r, a->ctx.en, body, e)) return -1;
    answer_json(x, token_list(r.ids, r.n_ids, context));
    request_free(&r);
    return 0;
}

static int detokenize(struct api *a, struct exchange *x, const json_t *body, struct err *e)
{
    const json_t *tokens = json_object_get(body, "tokens"), *v;
    const struct tokenizer *t = engine_tokenizer(a->ctx.en);
    struct ids ids = IDS_INIT;
    struct buf b = BUF_INIT;
    size_t i;
    int rc = 0;
    if (!json_is_array(tokens)) return err_set(e, EXIT_DATA, "tokens: expected a list of ids");
    if (!t) return no_tokenizer("tokens", e);
    json_array_foreach(tokens, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= tokenizer_size(t)) {
            rc = err_set(e, EXIT_DATA, "tokens[%zu]: expected an id from 0 to %d", i, tokenizer_size(t) - 1);
            break;
        }
        ids_add(&ids, (int)json_integer_value(v));
    }
    if (!rc) rc = tokenizer_decode(t, ids.id, ids.n, false, &b, e);
    if (!rc) answer_json(x, json_pack("{s:o}", "prompt", json_stringn(b.data ? b.data : "", b.n)));
    ids_free(&ids);
    buf_free(&b);
    return rc;
}

/* --- routing -------------------------------------------------------------------------------------------------------- */

static int chat(struct api *a, struct exchange *x, const json_t *body, struct err *e)
{
    if (!json_object_get(body, "messages")) return err_set(e, EXIT_DATA, "messages: is missing");
    return completion_start(&a->ctx, x, body, true, e);
}

static int completion(struct api *a, struct exchange *x, const json_t *body, struct err *e)
{
    if (!json_object_get(body, "prompt") && !json_object_get(body, "prompt_ids")) return err_set(e, EXIT_DATA, "prompt: is missing");
    return completion_start(&a->ctx, x, body, false, e);
}

static int invocation(struct api *a, struct exchange *x, const json_t *body, struct err *e)
{
    if (json_object_get(body, "messages")) return chat(a, x, body, e);
    if (json_object_get(body, "prompt") || json_object_get(body, "prompt_ids")) return completion(a, x, body, e);
    return err_set(e, EXIT_DATA, "messages: cannot find suitable handler for request: expected messages or prompt");
}

struct route {
    const char *path, *methods;
    void (*get)(struct api *a, struct exchange *x);
    int (*post)(struct api *a, struct exchange *x, const json_t *body, struct err *e);     /* takes x, or fills e */
    bool always;                /* also while loading and draining */
};
static const struct route routes[] = {
    {"/ping", "GET, POST", health, NULL, false},
    {"/health", "GET", health, NULL, false},
    {"/version", "GET", version, NULL, true},
    {"/metrics", "GET", metrics, NULL, false},
    {"/v1/models", "GET", models, NULL, false},
    {"/v1/chat/completions", "POST", NULL, chat, false},
    {"/v1/completions", "POST", NULL, completion, false},
    {"/invocations", "POST", NULL, invocation, false},
    {"/tokenize", "POST", NULL, tokenize, false},
    {"/detokenize", "POST", NULL, detokenize, false},
};

static int status_of(int code)
{
    switch (code) {
    case EXIT_DATA: return 400;
    case EXIT_NOINPUT: return 404;
    case EXIT_TEMPFAIL: return 429;
    case EXIT_UNAVAILABLE: return 503;
    default: return 500;
    }
}

static void post(struct api *a, struct exchange *x, const struct route *r)
{
    const char *type = exchange_header(x, "Content-Type"), *coding = exchange_header(x, "Content-Encoding");
    const struct buf *b = exchange_body(x);
    struct err e = {0};
    if (!type || strncasecmp(type, "application/json", 16)) {
        refuse(x, 415, "Unsupported Media Type: only 'application/json' is allowed: send Content-Type: application/json");
        return;
    }
    if (coding && strcasecmp(coding, "identity")) {
        refuse(x, 415, "Unsupported Media Type: a compressed body is not read: send it without Content-Encoding");
        return;
    }
    json_t *body = json_parse(b->data ? b->data : "", b->n, "body", &e);
    if (body && !json_is_object(body)) err_set(&e, EXIT_DATA, "body: expected a JSON object");
    if (e.code || r->post(a, x, body, &e)) error_answer(x, status_of(e.code), &e);
    json_decref(body);
}

static bool method_allowed(const char *method, const char *methods)
{
    size_t n = strlen(method);
    const char *at = strstr(methods, !strcmp(method, "HEAD") ? "GET" : method);
    return n && at && (at == methods || at[-1] == ' ');
}

void api_handle(void *arg, struct exchange *x)
{
    struct api *a = arg;
    const struct route *r = NULL;
    int phase = atomic_load(&a->phase);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(routes[i].path, exchange_path(x))) r = &routes[i];
    if (!r) {
        refuse(x, 404, "no such path: there are /v1/chat/completions, /v1/completions, /v1/models, /invocations, /tokenize and /detokenize");
    } else if (!method_allowed(exchange_method(x), r->methods)) {
        char *allow = xasprintf("Allow: %s", r->methods), text[] = "{\"error\":{\"message\":\"method not allowed\",\"type\":\"BadRequestError\",\"param\":null,\"code\":405}}";
        exchange_answer(x, 405, "application/json", text, sizeof text - 1, allow);
        free(allow);
    } else if (phase != READY && !r->always) {
        refuse(x, 503, phase == LOADING ? "the model is being loaded: try again" : SHUTTING_DOWN);
    } else if (r->post) {
        post(a, x, r);
    } else {
        r->get(a, x);
    }
}

struct api *api_new(void)
{
    struct api *a = xcalloc(1, sizeof *a);
    a->started = time(NULL);
    atomic_init(&a->phase, LOADING);
    return a;
}

void api_ready(struct api *a, struct engine *en, struct batch *b, const char *model)
{
    a->ctx = (struct completion_context){en, b, model};
    atomic_store(&a->phase, READY);
}

void api_drain(struct api *a)
{
    atomic_store(&a->phase, DRAINING);
}

void api_free(struct api *a)
{
    free(a);
}
