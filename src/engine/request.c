#include "engine/request.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const json_t *field(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);

    return json_is_null(v) ? NULL : v;
}

/* --- numbers and flags ----------------------------------------------------------------------------------------------- */

static int integer(const json_t *obj, const char *key, long long min, long long max, long *out, struct err *e)
{
    const json_t *v = field(obj, key);
    const double real = json_is_real(v) ? json_real_value(v) : 0.5;

    if (!v)
        return 0;
    if (!json_is_integer(v) && (real != floor(real) || fabs(real) > 1e15))
        return err_set(e, EXIT_DATA, "%s: not an integer", key);
    const long long n = json_is_integer(v) ? json_integer_value(v) : (long long)real;
    if (n < min || n > max)
        return err_set(e, EXIT_DATA, "%s: %lld is not within %lld to %lld", key, n, min, max);
    *out = (long)n;
    return 0;
}

static int real(const json_t *obj, const char *key, double min, double max, double *out, struct err *e)
{
    const json_t *v = field(obj, key);

    if (!v)
        return 0;
    if (!json_is_number(v))
        return err_set(e, EXIT_DATA, "%s: a number is expected", key);
    if (!(json_number_value(v) >= min && json_number_value(v) <= max))
        return err_set(e, EXIT_DATA, "%s: %g is not within %g to %g", key, json_number_value(v), min, max);
    *out = json_number_value(v);
    return 0;
}

/* Above 0 as well. */
static int positive(const json_t *obj, const char *key, double max, double *out, struct err *e)
{
    if (real(obj, key, 0, max, out, e))
        return -1;
    return *out > 0 ? 0 : err_set(e, EXIT_DATA, "%s: 0 is not above 0", key);
}

static int flag(const json_t *obj, const char *key, bool *out, struct err *e)
{
    const json_t *v = field(obj, key);

    if (v && !json_is_boolean(v))
        return err_set(e, EXIT_DATA, "%s: neither true nor false", key);
    if (v)
        *out = json_is_true(v);
    return 0;
}

static int lengths(struct request *r, const json_t *obj, struct err *e)
{
    r->max_tokens = DEFAULT_MAX_TOKENS;
    if (integer(obj, "max_tokens", 1, 1 << 30, &r->max_tokens, e) || integer(obj, "max_completion_tokens", 1, 1 << 30, &r->max_tokens, e))
        return -1;
    return integer(obj, "min_tokens", 0, r->max_tokens, &r->min_tokens, e);
}

static int read_seed(struct request *r, const json_t *obj, struct err *e)
{
    long seed = 0;

    if (integer(obj, "seed", LONG_MIN, LONG_MAX, &seed, e))
        return -1;
    r->seed = (uint64_t)seed;
    return 0;
}

static int logit_biases(struct request *r, int vocab, const json_t *obj, struct err *e)
{
    const json_t *all = field(obj, "logit_bias"), *v;
    struct sampling *s = &r->sampling;
    const char *key;

    if (!all)
        return 0;
    if (!json_is_object(all))
        return err_set(e, EXIT_DATA, "logit_bias: not an object of token ids");
    s->bias = xcalloc(json_object_size(all) + 1, sizeof *s->bias);
    json_object_foreach((json_t *)all, key, v) {
        char *end;
        const long id = strtol(key, &end, 10);
        if (!*key || *end || id < 0 || id >= vocab)
            return err_set(e, EXIT_DATA, "logit_bias: \"%.40s\" names no token of this model (ids 0 to %d)", key, vocab - 1);
        if (!json_is_number(v) || !(fabs(json_number_value(v)) <= 100))
            return err_set(e, EXIT_DATA, "logit_bias: the bias of %ld is no number within -100 to 100", id);
        s->bias[s->n_bias++] = (struct logit_bias){(int)id, (float)json_number_value(v)};
    }
    return 0;
}

static int sampling(struct request *r, int vocab, const json_t *obj, struct err *e)
{
    struct sampling *s = &r->sampling;

    *s = (struct sampling){.temperature = 0, .top_p = 1, .min_p = 0, .repetition_penalty = 1, .top_k = 0};
    if (real(obj, "temperature", 0, 100, &s->temperature, e) || integer(obj, "top_k", -1, 1 << 30, &s->top_k, e) ||
        positive(obj, "top_p", 1, &s->top_p, e) || real(obj, "min_p", 0, 1, &s->min_p, e) ||
        positive(obj, "repetition_penalty", 100, &s->repetition_penalty, e) || read_seed(r, obj, e) || logit_biases(r, vocab, obj, e))
        return -1;
    if (s->top_k < 0)
        s->top_k = 0;
    if (s->temperature < 1e-5)          /* else the exponent overflows */
        s->temperature = 0;
    return 0;
}

/* Chat's form is true and top_logprobs, completions' a number. */
static int logprobs(struct request *r, const json_t *obj, struct err *e)
{
    const json_t *v = field(obj, "logprobs");
    long top = 0, n = -1;
    bool on = json_is_true(v);

    if (v && !json_is_boolean(v) && integer(obj, "logprobs", 0, MAX_TOP_LOGPROBS, &n, e))
        return -1;
    if (integer(obj, "top_logprobs", 0, MAX_TOP_LOGPROBS, &top, e))
        return -1;
    if (top && !on && n < 0)
        return err_set(e, EXIT_DATA, "top_logprobs: needs \"logprobs\": true");
    r->logprobs = on ? (int)top : (int)n;
    return 0;
}

static int add_stop(struct request *r, const json_t *v, struct err *e)
{
    if (!json_is_string(v) || json_string_length(v) == 0)
        return err_set(e, EXIT_DATA, "stop: neither a string nor a list of them, or an empty one");
    if (strlen(json_string_value(v)) != json_string_length(v))
        return err_set(e, EXIT_DATA, "stop: a stop string holds U+0000");
    if (r->n_stop == MAX_STOPS)
        return err_set(e, EXIT_DATA, "stop: more than %d strings", MAX_STOPS);
    r->stop[r->n_stop++] = xstrdup(json_string_value(v));
    return 0;
}

static int stops(struct request *r, const struct engine *en, const json_t *obj, struct err *e)
{
    const json_t *v = field(obj, "stop"), *item;
    size_t i;

    if (!v)
        return 0;
    if (json_is_array(v)) {
        json_array_foreach((json_t *)v, i, item)
            if (add_stop(r, item, e))
                return -1;
    } else if (add_stop(r, v, e)) {
        return -1;
    }
    if (r->n_stop && !engine_tokenizer(en))
        return err_set(e, EXIT_DATA, "stop: the model has no tokenizer.json, so there is no text to look at");
    return 0;
}

/* --- the prompt ------------------------------------------------------------------------------------------------------ */

static int ids_from(struct ids *out, const char *key, const json_t *list, struct err *e)
{
    const json_t *v;
    size_t i;

    json_array_foreach((json_t *)list, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return err_set(e, EXIT_DATA, "%s[%zu]: a token's id is expected, a whole number", key, i);
        ids_add(out, (int)json_integer_value(v));
    }
    return 0;
}

static int need_tokenizer(const struct engine *en, const char *key, struct err *e)
{
    return engine_tokenizer(en) ? 0 : err_set(e, EXIT_DATA, "%s: the model has no tokenizer.json: give prompt_ids", key);
}

static int encode(struct ids *out, const struct engine *en, const char *key, const char *text, size_t n, struct err *e)
{
    struct err inner = {0};

    if (need_tokenizer(en, key, e))
        return -1;
    if (tokenizer_encode(engine_tokenizer(en), text, n, out, &inner))
        return err_set(e, inner.code, "%s: %s", key, inner.msg);
    return 0;
}

/* With special tokens, bos before it, unless the text spells it. */
static int from_text(struct ids *out, const struct engine *en, const json_t *text, bool special, struct err *e)
{
    const int bos = special ? engine_model(en)->bos : -1;
    struct ids body = IDS_INIT;

    if (json_string_length(text) == 0)
        return err_set(e, EXIT_DATA, "prompt: empty");
    if (encode(&body, en, "prompt", json_string_value(text), json_string_length(text), e))
        return -1;
    if (bos >= 0 && !(body.n && body.id[0] == bos))
        ids_add(out, bos);
    for (size_t i = 0; i < body.n; i++)
        ids_add(out, body.id[i]);
    ids_free(&body);
    return 0;
}

static int from_messages(struct ids *out, const struct engine *en, const json_t *obj, struct err *e)
{
    struct buf text = BUF_INIT;

    if (need_tokenizer(en, "messages", e))
        return -1;
    const int failed = chat_render(engine_chat(en), obj, &text, e) || encode(out, en, "messages", text.data, text.n, e);
    buf_free(&text);
    return failed ? -1 : 0;
}

static int any_prompt(struct ids *out, const struct engine *en, const json_t *obj, struct err *e)
{
    const json_t *messages = field(obj, "messages"), *prompt = field(obj, "prompt"), *ids = field(obj, "prompt_ids");

    bool special = !messages;

    if (!messages + !prompt + !ids != 2)
        return err_set(e, EXIT_DATA, "%s: exactly one of messages, prompt and prompt_ids is needed", messages ? "messages" : "prompt");
    if (flag(obj, "add_special_tokens", &special, e))
        return -1;
    if (messages)
        return special ? err_set(e, EXIT_DATA, "add_special_tokens: the chat template writes its own: leave it out") : from_messages(out, en, obj, e);
    if (json_is_string(prompt))
        return from_text(out, en, prompt, special, e);
    if (json_is_array(prompt) && json_array_size(prompt) == 1 && json_is_string(json_array_get(prompt, 0)))
        return from_text(out, en, json_array_get(prompt, 0), special, e);
    const json_t *list = prompt ? prompt : ids;
    const char *key = prompt ? "prompt" : "prompt_ids";
    return json_is_array(list) ? ids_from(out, key, list, e) : err_set(e, EXIT_DATA, "%s: not %s", key, prompt ? "a string or a list of token ids" : "a list of token ids");
}

static int prompt(struct request *r, const struct engine *en, const json_t *obj, struct err *e)
{
    const char *key = field(obj, "messages") ? "messages" : field(obj, "prompt") ? "prompt" : "prompt_ids";
    const long context = engine_max_context(en);
    struct ids ids = IDS_INIT;
    const int failed = any_prompt(&ids, en, obj, e);

    r->ids = ids.id;
    r->n_ids = ids.n;
    if (failed)
        return -1;
    if (ids.n == 0)
        return err_set(e, EXIT_DATA, "%s: empty", key);
    for (size_t i = 0; i < ids.n; i++)
        if (ids.id[i] >= engine_model(en)->vocab)
            return err_set(e, EXIT_DATA, "%s: token %d (number %zu) is not in the model's table of %d", key, ids.id[i], i, engine_model(en)->vocab);
    if ((long)ids.n >= context)
        return err_set(e, EXIT_DATA, "%s: %zu tokens leave no room in a context of %ld: shorten it", key, ids.n, context);
    if (r->max_tokens > context - (long)ids.n)
        r->max_tokens = context - (long)ids.n;
    if (r->min_tokens > r->max_tokens)
        r->min_tokens = r->max_tokens;
    return 0;
}

/* --- what is not done ------------------------------------------------------------------------------------------------ */

/* A value that asks for nothing. */
static bool idle(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0);
}

/* Nothing makes the model call a function, and its reply is text: what asks for more than that. */
static int refuse_choices(const json_t *obj, struct err *e)
{
    static const char *const choice[] = {"tool_choice", "function_call", NULL};
    const json_t *modalities = field(obj, "modalities"), *v;
    size_t k;

    for (int i = 0; choice[i]; i++) {
        const char *text = json_string_value(field(obj, choice[i]));
        if (field(obj, choice[i]) && (!text || (strcmp(text, "auto") && strcmp(text, "none"))))
            return err_set(e, EXIT_DATA, "%s: only \"auto\" and \"none\" are supported", choice[i]);
    }
    if (modalities && !json_is_array(modalities))
        return err_set(e, EXIT_DATA, "modalities: only [\"text\"] is supported");
    json_array_foreach(modalities, k, v)
        if (!json_is_string(v) || strcmp(json_string_value(v), "text"))
            return err_set(e, EXIT_DATA, "modalities: only [\"text\"] is supported");
    return 0;
}

/* Asking for what is not done here must not look as if it were done. */
static int refuse_unsupported(const json_t *obj, struct err *e)
{
    static const char *const zero[] = {"presence_penalty", "frequency_penalty", NULL};
    static const char *const absent[] = {"suffix", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "functions", "stop_token_ids",
        "bad_words", "allowed_token_ids", "prompt_logprobs", "truncate_prompt_tokens", "use_beam_search", "logits_processors", "chat_template", "documents", "audio",
        "web_search_options", NULL};

    for (int i = 0; zero[i]; i++) {
        const json_t *v = field(obj, zero[i]);
        if (v && (!json_is_number(v) || json_number_value(v) != 0))
            return err_set(e, EXIT_DATA, "%s: only 0 is supported", zero[i]);
    }
    for (int i = 0; absent[i]; i++)
        if (!idle(json_object_get(obj, absent[i])))
            return err_set(e, EXIT_DATA, "%s: that is not done here: leave it out", absent[i]);
    const json_t *format = field(obj, "response_format"), *best = field(obj, "best_of");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format && (!type || strcmp(type, "text")))
        return err_set(e, EXIT_DATA, "response_format: only {\"type\":\"text\"} is supported");
    if (best && json_integer_value(best) != 1)
        return err_set(e, EXIT_DATA, "best_of: only 1 is supported");
    if (json_is_true(json_object_get(obj, "echo")))
        return err_set(e, EXIT_DATA, "echo: only false is supported");
    return refuse_choices(obj, e);
}

/* --- the whole ------------------------------------------------------------------------------------------------------- */

int request_parse(struct request *r, const struct engine *en, const json_t *obj, struct err *e)
{
    *r = (struct request){.logprobs = -1, .skip_special = true};
    if (!json_is_object(obj))
        return err_set(e, EXIT_DATA, "request: not a JSON object");
    if (lengths(r, obj, e) || sampling(r, engine_model(en)->vocab, obj, e) || logprobs(r, obj, e) || stops(r, en, obj, e) ||
        flag(obj, "ignore_eos", &r->ignore_eos, e) || flag(obj, "skip_special_tokens", &r->skip_special, e) ||
        flag(obj, "include_stop_str_in_output", &r->include_stop, e) || refuse_unsupported(obj, e) || prompt(r, en, obj, e)) {
        request_free(r);
        return -1;
    }
    return 0;
}

static void *copy(const void *p, size_t n)
{
    void *q = xmalloc(n ? n : 1);

    return n ? memcpy(q, p, n) : q;
}

void request_copy(struct request *to, const struct request *from)
{
    *to = *from;
    to->ids = copy(from->ids, from->n_ids * sizeof *from->ids);
    to->sampling.bias = copy(from->sampling.bias, from->sampling.n_bias * sizeof *from->sampling.bias);
    for (size_t i = 0; i < from->n_stop; i++)
        to->stop[i] = xstrdup(from->stop[i]);
}

void request_free(struct request *r)
{
    free(r->ids);
    free(r->sampling.bias);
    for (size_t i = 0; i < r->n_stop; i++)
        free(r->stop[i]);
    *r = (struct request){0};
}
