#include "net/openai.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"

#define CHOICES_MAX 128
#define LIST_MAX ((size_t)1 << 20)

/* --- requests ------------------------------------------------------------------------------------------------------- */

/* BASE without its slashes at the end, completed by /v1 and the path. */
static char *url_of(const char *base, const char *path)
{
    size_t n = strlen(base);
    while (n && base[n - 1] == '/') n--;
    bool v1 = n >= 3 && !memcmp(base + n - 3, "/v1", 3);
    return xasprintf("%.*s%s%s", (int)n, base, v1 ? "" : "/v1", path);
}

static void ask_for_usage(json_t *body)
{
    json_t *options = json_object_get(body, "stream_options");
    json_object_set_new(body, "stream", json_true());
    if (json_is_null(options) || !options) json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    else if (json_is_object(options) && !json_object_get(options, "include_usage")) {
        json_t *more = json_copy(options);
        json_object_set_new(more, "include_usage", json_true());
        json_object_set_new(body, "stream_options", more);
    }
}

int openai_request(struct openai_request *q, const json_t *line, const char *base, const char *model, bool stream, struct err *e)
{
    *q = (struct openai_request){0};
    if (!json_is_object(line)) return err_set(e, EXIT_DATA, "the line is no JSON object: give an OpenAI request body with an id");
    bool chat = json_object_get(line, "messages"), text = json_object_get(line, "prompt"), ids = json_object_get(line, "prompt_ids");
    if (chat + text + ids != 1)
        return err_set(e, EXIT_DATA, "expected one of messages, prompt and prompt_ids, found %s: give exactly one", chat + text + ids ? "several" : "none");
    json_t *body = json_copy((json_t *)line);
    json_object_del(body, "id");
    if (ids) {
        json_object_set(body, "prompt", json_object_get(body, "prompt_ids"));
        json_object_del(body, "prompt_ids");
    }
    if (model && *model && !json_object_get(body, "model")) json_object_set_new(body, "model", json_string(model));
    q->stream = stream || json_is_true(json_object_get(body, "stream"));
    if (q->stream) ask_for_usage(body);
    q->url = url_of(base, chat ? "/chat/completions" : "/completions");
    q->body = json_text(body, false);
    q->body_n = strlen(q->body);
    json_decref(body);
    return 0;
}

void openai_request_free(struct openai_request *q)
{
    free(q->url);
    free(q->body);
    *q = (struct openai_request){0};
}

char *openai_first_model(struct http_client *c, const char *base, const char *const *headers, struct err *e)
{
    char *url = url_of(base, "/models"), *name = NULL;
    struct http_reply r;
    struct http_request q = {.method = "GET", .url = url, .headers = headers, .timeout = 30};
    if (!http_fetch(c, &q, LIST_MAX, &r, e)) {
        struct err ignored = {0};
        json_t *list = r.status == 200 ? json_parse(r.body.data ? r.body.data : "", r.body.n, url, &ignored) : NULL;
        const char *id = json_string_value(json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
        name = xstrdup(id ? id : "");
        json_decref(list);
    }
    http_reply_free(&r);
    free(url);
    return name;
}

/* --- answers -------------------------------------------------------------------------------------------------------- */

void openai_answer_init(struct openai_answer *a)
{
    *a = (struct openai_answer){.prompt_tokens = -1, .completion_tokens = -1};
}

void openai_answer_free(struct openai_answer *a)
{
    for (size_t i = 0; i < a->choices; i++) buf_free(&a->text[i]);
    free(a->text);
    free(a->finish_reason);
    free(a->chunk);
    sse_free(&a->sse);
    openai_answer_init(a);
}

static struct buf *text_of(struct openai_answer *a, size_t index)
{
    if (index >= a->choices) {
        a->text = xreallocarray(a->text, index + 1, sizeof *a->text);
        for (size_t i = a->choices; i <= index; i++) a->text[i] = (struct buf)BUF_INIT;
        a->choices = index + 1;
    }
    return &a->text[index];
}

static void arrived(struct openai_answer *a, double at)
{
    if (a->chunks == a->chunk_cap) {
        a->chunk_cap = a->chunk_cap ? 2 * a->chunk_cap : 64;
        a->chunk = xreallocarray(a->chunk, a->chunk_cap, sizeof *a->chunk);
    }
    a->chunk[a->chunks++] = at;
}

static bool not_empty(const json_t *s)
{
    return json_string_length(s) > 0;
}

/* One element of `choices`: of a whole answer, or what a chunk adds to it. */
static int take_choice(struct openai_answer *a, const json_t *choice, double at, struct err *e)
{
    json_int_t index = json_integer_value(json_object_get(choice, "index"));
    const json_t *message = json_object_get(choice, "message");
    if (!message) message = json_object_get(choice, "delta");
    const json_t *text = message ? json_object_get(message, "content") : json_object_get(choice, "text");
    if (index < 0 || index >= CHOICES_MAX) return err_set(e, EXIT_DATA, "the answer has a choice with index %" JSON_INTEGER_FORMAT, index);
    struct buf *to = text_of(a, (size_t)index);
    if (not_empty(text)) buf_add(to, json_string_value(text), json_string_length(text));
    if (index > 0) return 0;
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    if (reason && !a->finish_reason) a->finish_reason = xstrdup(reason);
    if (reason) a->ended = true;
    if (not_empty(text) || not_empty(json_object_get(message, "reasoning")) || not_empty(json_object_get(message, "reasoning_content"))
        || json_array_size(json_object_get(message, "tool_calls")))
        arrived(a, at);
    return 0;
}

static int take(struct openai_answer *a, const char *p, size_t n, double at, struct err *e)
{
    json_t *v = json_parse(p, n, "the answer", e), *choice;
    size_t i;
    int rc = 0;
    if (!v) return -1;
    if (json_object_get(v, "error") && !json_is_null(json_object_get(v, "error"))) {
        char message[512];
        openai_refusal(p, n, message, sizeof message);
        rc = err_set(e, EXIT_UNAVAILABLE, "%s", message);
    } else if (!json_is_array(json_object_get(v, "choices"))) {
        rc = err_set(e, EXIT_DATA, "the answer has no choices: is this an OpenAI server");
    }
    if (!rc) json_array_foreach(json_object_get(v, "choices"), i, choice) {
        rc = take_choice(a, choice, at, e);
        if (rc) break;
    }
    const json_t *usage = json_object_get(v, "usage"), *in = json_object_get(usage, "prompt_tokens"), *out = json_object_get(usage, "completion_tokens");
    if (json_is_integer(in)) a->prompt_tokens = (long)json_integer_value(in);
    if (json_is_integer(out)) a->completion_tokens = (long)json_integer_value(out);
    json_decref(v);
    return rc;
}

int openai_answer_whole(struct openai_answer *a, const char *body, size_t n, struct err *e)
{
    int rc = take(a, body, n, 0, e);
    a->chunks = 0;                  /* nothing is known of when its tokens came */
    a->ended = !rc;
    return rc;
}

struct piece { struct openai_answer *a; double at; };

static int on_event(void *arg, const char *data, size_t n, struct err *e)
{
    struct piece *p = arg;
    if (n == 6 && !memcmp(data, "[DONE]", 6)) {
        p->a->ended = true;
        return 0;
    }
    return take(p->a, data, n, p->at, e);
}

int openai_answer_piece(struct openai_answer *a, const char *p, size_t n, double at, struct err *e)
{
    return sse_feed(&a->sse, p, n, on_event, &(struct piece){a, at}, e);
}

void openai_refusal(const char *body, size_t n, char *out, size_t out_n)
{
    struct err ignored = {0};
    json_t *v = json_parse(body, n, "", &ignored);
    const json_t *error = json_object_get(v, "error");
    const char *message = json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
    if (!message) message = json_string_value(json_object_get(v, "message"));
    if (message) snprintf(out, out_n, "%s", message);
    else if (n) snprintf(out, out_n, "%.*s", (int)(n < 300 ? n : 300), body);
    else snprintf(out, out_n, "no explanation");
    json_decref(v);
}
