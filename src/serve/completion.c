#include "serve/completion.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/json.h"
#include "serve/api.h"

struct choice {
    bool begun;                 /* its role has been streamed */
    size_t tokens;              /* of which logprobs have been streamed */
    size_t offset;              /* characters of text before those (text_offset) */
    json_t *whole;              /* of a whole answer, once it has ended */
    size_t prompt_tokens, completion_tokens;
};

struct completion {
    struct completion_context ctx;
    struct exchange *x;
    bool chat, stream, usage, every_usage, ids;
    char id[96];
    long long created;
    size_t per_prompt, n;       /* n of the body; sequences in all */
    struct choice *choice;
    int *logprobs;              /* by sequence: -1 = none */
};

/* --- errors --------------------------------------------------------------------------------------------------------- */

static const char *error_type(int status)
{
    switch (status) {
    case 401: return "AuthenticationError";
    case 404: return "NotFoundError";
    case 429: return "RateLimitError";
    default: return status < 500 ? "BadRequestError" : status == 503 ? "ServiceUnavailableError" : "InternalServerError";
    }
}

json_t *error_json(int status, const char *message)
{
    if (!strncmp(message, "request: ", 9)) message += 9;
    size_t n = strspn(message, "abcdefghijklmnopqrstuvwxyz_.[]0123456789");
    bool field = n && message[n] == ':' && message[0] >= 'a';
    json_t *param = field ? json_stringn(message, n) : json_null();
    return json_pack("{s:{s:o,s:s,s:o,s:i}}", "error", "message", json_message(message), "type", error_type(status), "param", param, "code", status);
}

void error_answer(struct exchange *x, int status, const struct err *e)
{
    json_t *v = error_json(status, e->msg);
    char *text = json_text(v, false);
    exchange_answer(x, status, "application/json", text, strlen(text), status == 429 || status == 503 ? "Retry-After: 1" : NULL);
    free(text);
    json_decref(v);
}

/* --- the body's own fields ------------------------------------------------------------------------------------------ */

static int stream_fields(struct completion *c, const json_t *body, struct err *e)
{
    const json_t *options = json_object_get(body, "stream_options");
    if (json_get_bool(body, "stream", false, &c->stream, "request", e)) return -1;
    if (!options || json_is_null(options)) return 0;
    if (!json_is_object(options)) return err_set(e, EXIT_DATA, "stream_options: expected an object");
    if (!c->stream) return err_set(e, EXIT_DATA, "stream_options: only allowed when stream is true");
    return json_get_bool(options, "include_usage", false, &c->usage, "stream_options", e)
        || json_get_bool(options, "continuous_usage_stats", false, &c->every_usage, "stream_options", e) ? -1 : 0;
}

/* "model" and the kind of every field that request_parse leaves alone. */
static int own_fields(struct completion *c, const json_t *body, struct err *e)
{
    const char *model, *user;
    long long n;
    if (json_get_str(body, "model", NULL, &model, "request", e) || json_get_str(body, "user", NULL, &user, "request", e)) return -1;
    if (model && strcmp(model, c->ctx.model)) return err_set(e, EXIT_NOINPUT, "model: the model `%s` does not exist: this server has `%s`", model, c->ctx.model);
    if (json_get_int(body, "n", 1, &n, "request", e)) return -1;
    if (n < 1 || n > API_CHOICES_MAX) return err_set(e, EXIT_DATA, "n: expected 1 to %d, found %lld", API_CHOICES_MAX, n);
    c->per_prompt = (size_t)n;
    if (json_get_bool(body, "return_token_ids", false, &c->ids, "request", e)) return -1;
    return stream_fields(c, body, e);
}

/* A completion's `prompt` may be one string or list of ids, or a list of them. */
static bool has_many(const json_t *body)
{
    const json_t *first = json_array_get(json_object_get(body, "prompt"), 0);
    return json_is_string(first) || json_is_array(first);
}

/* New references to bodies with one prompt each. */
static int split_prompts(const json_t *body, json_t **one, size_t *n, struct err *e)
{
    const json_t *prompt = json_object_get(body, "prompt");
    bool many = has_many(body);
    *n = many ? json_array_size(prompt) : 1;
    if (*n > API_CHOICES_MAX) return err_set(e, EXIT_DATA, "prompt: %zu prompts: at most %d", *n, API_CHOICES_MAX);
    if (json_is_array(prompt) && json_array_size(prompt) == 0) return err_set(e, EXIT_DATA, "prompt: is empty");
    for (size_t i = 0; many && i < *n; i++)     /* ["x"] is a prompt, [["x"]] is none */
        if (json_is_string(json_array_get(json_array_get(prompt, i), 0)))
            return err_set(e, EXIT_DATA, "prompt[%zu]: expected a string or token ids, found a list of strings", i);
    for (size_t i = 0; i < *n; i++) {
        one[i] = json_copy((json_t *)body);
        if (many) json_object_set(one[i], "prompt", json_array_get(prompt, i));
    }
    return 0;
}

/* What is wrong with one prompt of many is wrong with prompt[i]. */
static int name_prompt(size_t i, struct err *e)
{
    if (strncmp(e->msg, "prompt", 6) || (e->msg[6] != ':' && e->msg[6] != '[')) return -1;
    struct err whole = *e;
    *e = (struct err){0};
    return err_set(e, whole.code, "prompt[%zu]%s", i, whole.msg + 6);
}

/* n requests with the same prompt differ by their seeds. */
static int parse_all(struct completion *c, const json_t *body, struct request **out, struct err *e)
{
    json_t *one[API_CHOICES_MAX];
    size_t prompts = 0, done = 0;
    int rc = split_prompts(body, one, &prompts, e);
    if (rc) return rc;
    c->n = prompts * c->per_prompt;
    if (c->n > API_CHOICES_MAX) rc = err_set(e, EXIT_DATA, "n: %zu prompts of %zu choices: at most %d in all", prompts, c->per_prompt, API_CHOICES_MAX);
    struct request *r = xcalloc(c->n, sizeof *r);
    for (size_t i = 0; !rc && i < c->n; i++) {
        rc = request_parse(&r[i], c->ctx.en, one[i / c->per_prompt], e);
        if (!rc) r[i].seed += i % c->per_prompt;
        if (!rc) done++;
        else if (has_many(body)) rc = name_prompt(i / c->per_prompt, e);
    }
    for (size_t i = 0; i < prompts; i++) json_decref(one[i]);
    for (size_t i = 0; rc && i < done; i++) request_free(&r[i]);
    if (rc) free(r);
    else *out = r;
    return rc;
}

/* --- parts of answers ----------------------------------------------------------------------------------------------- */

static json_t *text_json(const char *s, size_t n)
{
    json_t *v = s ? json_stringn(s, n) : json_null();
    return v ? v : json_string("");
}

static json_t *token_text(const struct engine *en, int id)
{
    const struct tokenizer *t = engine_tokenizer(en);
    struct buf b = BUF_INIT;
    struct err ignored = {0};
    if (!t || tokenizer_decode(t, &id, 1, false, &b, &ignored)) return json_sprintf("token_id:%d", id);
    json_t *v = json_stringn(b.data ? b.data : "", b.n);
    buf_free(&b);
    return v ? v : json_string("\xef\xbf\xbd");
}

static json_t *bytes_json(const json_t *text)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_string_length(text); i++) json_array_append_new(list, json_integer((unsigned char)json_string_value(text)[i]));
    return list;
}

static json_t *chat_logprob(const struct engine *en, int id, float logprob)
{
    json_t *text = token_text(en, id);
    return json_pack("{s:o,s:f,s:o}", "token", text, "logprob", (double)logprob, "bytes", bytes_json(text));
}

/* Of the tokens from `from` on. */
static json_t *chat_logprobs(const struct engine *en, const struct gen_token *t, size_t from, size_t n)
{
    json_t *content = json_array();
    for (size_t i = from; i < n; i++) {
        json_t *entry = chat_logprob(en, t[i].id, t[i].logprob), *top = json_array();
        for (int k = 0; k < t[i].n_top; k++) json_array_append_new(top, chat_logprob(en, t[i].top[k].id, t[i].top[k].logprob));
        json_object_set_new(entry, "top_logprobs", top);
        json_array_append_new(content, entry);
    }
    return json_pack("{s:o}", "content", content);
}

static json_t *text_logprobs(const struct engine *en, const struct gen_token *t, size_t from, size_t n, size_t *offset)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(), *offsets = json_array();
    for (size_t i = from; i < n; i++) {
        json_t *text = token_text(en, t[i].id), *top = json_object();
        for (int k = 0; k < t[i].n_top; k++) {
            json_t *name = token_text(en, t[i].top[k].id);
            json_object_setn_new(top, json_string_value(name), json_string_length(name), json_real(t[i].top[k].logprob));
            json_decref(name);
        }
        json_array_append_new(offsets, json_integer((json_int_t)*offset));
        for (size_t k = 0; k < json_string_length(text); k++) *offset += (json_string_value(text)[k] & 0xc0) != 0x80;
        json_array_append_new(tokens, text);
        json_array_append_new(logprobs, json_real(t[i].logprob));
        json_array_append_new(tops, top);
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "text_offset", offsets, "token_logprobs", logprobs, "tokens", tokens, "top_logprobs", tops);
}

/* Logprobs of the tokens that have not been told yet. */
static json_t *logprobs_json(struct completion *c, size_t i, const struct gen *g)
{
    size_t n, from = c->choice[i].tokens;
    const struct gen_token *t = gen_tokens(g, &n);
    if (c->logprobs[i] < 0) return json_null();
    c->choice[i].tokens = n;
    return c->chat ? chat_logprobs(c->ctx.en, t, from, n) : text_logprobs(c->ctx.en, t, from, n, &c->choice[i].offset);
}

static json_t *usage_json(const struct completion *c)
{
    size_t in = 0, out = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (i % c->per_prompt == 0) in += c->choice[i].prompt_tokens;
        out += c->choice[i].completion_tokens;
    }
    return json_pack("{s:I,s:I,s:I}", "prompt_tokens", (json_int_t)in, "completion_tokens", (json_int_t)out, "total_tokens", (json_int_t)(in + out));
}

static json_t *frame(const struct completion *c, const char *object, json_t *choices)
{
    return json_pack("{s:s,s:s,s:I,s:s,s:o}", "id", c->id, "object", object, "created", (json_int_t)c->created, "model", c->ctx.model, "choices", choices);
}

static json_t *ids_json(const struct gen *g)
{
    size_t n;
    const struct gen_token *t = gen_tokens(g, &n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(t[i].id));
    return list;
}

static void add_end(const struct completion *c, json_t *choice, const struct gen *g)
{
    const char *reason = gen_finish_reason(g);
    json_object_set_new(choice, "finish_reason", reason ? json_string(reason) : json_null());
    if (!reason) return;
    json_object_set_new(choice, "stop_reason", gen_stop_reason(g));
    if (c->ids) json_object_set_new(choice, "token_ids", ids_json(g));
}

/* --- the batch's calls ---------------------------------------------------------------------------------------------- */

static void push_event(struct completion *c, json_t *v)
{
    char *text = json_text(v, false);
    struct buf b = BUF_INIT;
    buf_printf(&b, "data: %s\n\n", text);
    exchange_push(c->x, b.data, b.n);
    buf_free(&b);
    free(text);
    json_decref(v);
}

static void push_chunk(struct completion *c, size_t i, struct gen *g, const char *delta, size_t n)
{
    bool done = gen_done(g);
    json_t *choice = json_pack("{s:I}", "index", (json_int_t)i);
    if (c->chat && !c->choice[i].begun) json_object_set_new(choice, "delta", json_pack("{s:s,s:o}", "role", "assistant", "content", text_json(delta, n)));
    else if (c->chat) json_object_set_new(choice, "delta", n ? json_pack("{s:o}", "content", text_json(delta, n)) : json_object());
    else json_object_set_new(choice, "text", delta ? text_json(delta, n) : json_string(""));
    c->choice[i].begun = true;
    json_object_set_new(choice, "logprobs", logprobs_json(c, i, g));
    if (done) add_end(c, choice, g);
    else json_object_set_new(choice, "finish_reason", json_null());
    json_t *v = frame(c, c->chat ? "chat.completion.chunk" : "text_completion", json_pack("[o]", choice));
    if (c->every_usage) json_object_set_new(v, "usage", usage_json(c));
    push_event(c, v);
}

static void keep_whole(struct completion *c, size_t i, struct gen *g)
{
    size_t n = 0;
    const char *text = gen_text(g, &n);
    json_t *choice = json_pack("{s:I}", "index", (json_int_t)i);
    if (c->chat) json_object_set_new(choice, "message", json_pack("{s:s,s:o}", "role", "assistant", "content", text_json(text, n)));
    else json_object_set_new(choice, "text", text_json(text, n));
    json_object_set_new(choice, "logprobs", logprobs_json(c, i, g));
    add_end(c, choice, g);
    c->choice[i].whole = choice;
}

static void on_moved(void *arg, size_t i, struct gen *g)
{
    struct completion *c = arg;
    size_t n, text;
    gen_tokens(g, &n);
    c->choice[i].completion_tokens = n;
    c->choice[i].prompt_tokens = gen_prompt_tokens(g);
    bool done = gen_done(g);
    if (!c->stream) {
        if (done) keep_whole(c, i, g);
        return;
    }
    const char *delta = gen_delta(g, &text);
    if (text || done || (c->logprobs[i] >= 0 && n > c->choice[i].tokens)) push_chunk(c, i, g, delta, text);
}

static bool on_alive(void *arg)
{
    struct completion *c = arg;
    return exchange_alive(c->x);
}

static void completion_free(struct completion *c)
{
    for (size_t i = 0; i < c->n; i++) json_decref(c->choice[i].whole);
    free(c->choice);
    free(c->logprobs);
    free(c);
}

static void end_stream(struct completion *c, const struct err *e)
{
    if (e->code) push_event(c, error_json(500, e->msg));
    if (!e->code && c->usage) {
        json_t *v = frame(c, c->chat ? "chat.completion.chunk" : "text_completion", json_array());
        json_object_set_new(v, "usage", usage_json(c));
        push_event(c, v);
    }
    exchange_push(c->x, "data: [DONE]\n\n", 14);
    exchange_end(c->x);
}

static void end_whole(struct completion *c, const struct err *e)
{
    if (e->code) {
        error_answer(c->x, 500, e);
        return;
    }
    json_t *choices = json_array();
    for (size_t i = 0; i < c->n; i++) json_array_append(choices, c->choice[i].whole);
    json_t *v = frame(c, c->chat ? "chat.completion" : "text_completion", choices);
    json_object_set_new(v, "usage", usage_json(c));
    char *text = json_text(v, false);
    exchange_answer(c->x, 200, "application/json", text, strlen(text), NULL);
    free(text);
    json_decref(v);
}

static void on_ended(void *arg, const struct err *e)
{
    struct completion *c = arg;
    if (c->stream) end_stream(c, e);
    else end_whole(c, e);
    completion_free(c);
}

/* --- start ---------------------------------------------------------------------------------------------------------- */

/* The client's X-Request-ID, where it is a plain word, so that both sides' records name the same thing. */
static void name_it(struct completion *c)
{
    static atomic_ulong count;
    const char *given = exchange_header(c->x, "X-Request-ID"), *kind = c->chat ? "chatcmpl" : "cmpl";
    size_t n = given ? strspn(given, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") : 0;
    if (n && !given[n] && n <= 64) snprintf(c->id, sizeof c->id, "%s-%s", kind, given);
    else snprintf(c->id, sizeof c->id, "%s-%llx-%lx", kind, c->created, atomic_fetch_add(&count, 1) + 1);
}

int completion_start(const struct completion_context *ctx, struct exchange *x, const json_t *body, bool chat, struct err *e)
{
    struct completion *c = xcalloc(1, sizeof *c);
    struct request *r = NULL;
    *c = (struct completion){.ctx = *ctx, .x = x, .chat = chat, .created = (long long)time(NULL)};
    name_it(c);
    if (own_fields(c, body, e) || parse_all(c, body, &r, e)) {
        c->n = 0;
        completion_free(c);
        return -1;
    }
    c->choice = xcalloc(c->n, sizeof *c->choice);
    c->logprobs = xcalloc(c->n, sizeof *c->logprobs);
    size_t n = c->n;
    for (size_t i = 0; i < n; i++) c->logprobs[i] = r[i].logprobs;
    if (c->stream) exchange_type(x, "text/event-stream; charset=utf-8");
    int rc = batch_submit(ctx->batch, r, n, &(struct batch_client){c, on_alive, on_moved, on_ended}, e);
    if (rc) completion_free(c);
    for (size_t i = 0; i < n; i++) request_free(&r[i]);
    free(r);
    return rc;
}
