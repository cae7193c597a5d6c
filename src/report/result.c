#include "report/result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/json.h"

static const char SCHEMA[] = "q4sweep-result/1";

const struct weight_class CLASSES[N_CLASSES] = {
    {"linear", "linears"}, {"experts", "experts"}, {"ple", "per-layer embedding"}, {"embed", "embedding"}, [CLASS_HEAD] = {"head", "lm_head"},
    {"router", "routers"}, {"plain", "norms, scalars"}, {"tower", "towers"}, {"unknown", "unknown"},
};

/* --- fields ------------------------------------------------------------------------------------------------------------- */

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer", "a real number", "true", "false", "null"};
    return v ? names[json_typeof(v)] : "nothing";
}

static int bad_field(const struct result *r, const char *at, const char *key, const char *expected, const json_t *found, struct err *e)
{
    char value[40] = "";

    if (json_is_integer(found))
        snprintf(value, sizeof value, " (%lld)", (long long)json_integer_value(found));
    else if (json_is_real(found))
        snprintf(value, sizeof value, " (%g)", json_real_value(found));
    return err_set(e, EXIT_DATA, "%s: %s%s: expected %s, found %s%s: not a result of pipelines/measure (data/result.schema.json)", r->path, at, key,
                   expected, type_name(found), value);
}

/* Members that may not be missing; `at` is the path of obj within the file, "" or ending in a dot. */
static int get_string(const struct result *r, const json_t *obj, const char *at, const char *key, const char **out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);

    if (!json_is_string(v) || json_string_length(v) == 0 || strlen(json_string_value(v)) != json_string_length(v))
        return bad_field(r, at, key, "a name", v, e);
    *out = json_string_value(v);
    return 0;
}

#define COUNT_MAX (1ll << 40)          /* of tokens and bytes: the sums of all that fit into a file stay within 64 bits */

static int get_count(const struct result *r, const json_t *obj, const char *at, const char *key, long long min, long long *out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);
    const json_int_t x = json_integer_value(v);
    const bool large = x > COUNT_MAX;
    char expected[60];

    snprintf(expected, sizeof expected, "an integer of at %s %lld", large ? "most" : "least", large ? COUNT_MAX : min);
    if (!json_is_integer(v) || x < min || large)
        return bad_field(r, at, key, expected, v, e);
    *out = x;
    return 0;
}

static int get_ms(const struct result *r, const json_t *obj, const char *at, const char *key, double *out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);

    if (!json_is_number(v) || json_number_value(v) <= 0)
        return bad_field(r, at, key, "milliseconds above 0", v, e);
    *out = json_number_value(v);
    return 0;
}

static int get_member(const struct result *r, const json_t *obj, const char *at, const char *key, json_type type, const json_t **out, struct err *e)
{
    static const char *const names[] = {[JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array"};

    *out = json_object_get(obj, key);
    if (!*out || json_typeof(*out) != type)
        return bad_field(r, at, key, names[type], *out, e);
    return 0;
}

/* Members that may be missing or null. */
static int may_real(const struct result *r, const json_t *obj, const char *at, const char *key, double *out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);

    *out = NAN;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_number(v) || json_number_value(v) < 0)
        return bad_field(r, at, key, "a number of at least 0, or null", v, e);
    *out = json_number_value(v);
    return 0;
}

static int may_count(const struct result *r, const json_t *obj, const char *at, const char *key, long long *out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);

    *out = -1;
    return !v || json_is_null(v) ? 0 : get_count(r, obj, at, key, 0, out, e);
}

/* An object or list that old results lack: NULL. */
static int may_member(const struct result *r, const json_t *obj, const char *at, const char *key, json_type type, const json_t **out, struct err *e)
{
    *out = json_object_get(obj, key);
    if (!*out || json_is_null(*out)) {
        *out = NULL;
        return 0;
    }
    return get_member(r, obj, at, key, type, out, e);
}

/* --- the published method ----------------------------------------------------------------------------------------------- */

static int read_walls(const struct result *r, const char *key, long long tokens, long long repeats, struct sample *out, struct err *e)
{
    const json_t *list, *reply;
    char at[80], expected[80];
    size_t i;

    if (get_member(r, r->root, "", key, JSON_ARRAY, &list, e))
        return -1;
    json_array_foreach(list, i, reply) {
        long long got;
        double wall;
        snprintf(at, sizeof at, "%s[%zu].", key, i);
        if (get_count(r, reply, at, "completion_tokens", 1, &got, e) || get_ms(r, reply, at, "e2e_ms", &wall, e))
            return -1;
        if (got != tokens) {
            snprintf(expected, sizeof expected, "%lld as settings.%s_tokens says", tokens, key);
            return bad_field(r, at, "completion_tokens", expected, json_object_get(reply, "completion_tokens"), e);
        }
        sample_add(out, wall);
    }
    if (out->n && (long long)out->n != repeats)
        return err_set(e, EXIT_DATA, "%s: %s: %zu replies, settings.repeats says %lld: a partial result: measure again", r->path, key, out->n, repeats);
    return 0;
}

double result_decode(const struct result *r, double short_ms, double long_ms)
{
    return long_ms > short_ms ? (double)(r->long_tokens - r->short_tokens) / ((long_ms - short_ms) / 1000) : NAN;
}

static int read_published(struct result *r, struct err *e)
{
    const json_t *p;
    double decode, per_call;

    if (may_member(r, r->root, "", "published", JSON_OBJECT, &p, e) || !p)
        return e->code ? -1 : 0;
    if (may_real(r, p, "published.", "decode_tok_s", &decode, e) || may_real(r, p, "published.", "per_call_s", &per_call, e))
        return -1;
    if (r->long_ms.n == 0 && isfinite(decode)) {
        r->decode = decode;
        r->decode_published = true;
    }
    if (!isfinite(r->per_call_s) && isfinite(per_call)) {
        r->per_call_s = per_call;
        r->per_call_published = true;
    }
    return 0;
}

/* The range of the rate: each long wall in turn against the median short one. */
static int read_decode(struct result *r, long long repeats, struct err *e)
{
    double short_ms;

    if (read_walls(r, "short", r->short_tokens, repeats, &r->short_ms, e) || read_walls(r, "long", r->long_tokens, repeats, &r->long_ms, e))
        return -1;
    short_ms = sample_median(&r->short_ms);
    r->decode = result_decode(r, short_ms, sample_median(&r->long_ms));
    r->decode_range = (struct interval){INFINITY, -INFINITY};
    for (size_t i = 0; i < r->long_ms.n; i++) {
        const double v = result_decode(r, short_ms, r->long_ms.v[i]);
        if (isfinite(v) && v < r->decode_range.low)
            r->decode_range.low = v;
        if (isfinite(v) && v > r->decode_range.high)
            r->decode_range.high = v;
    }
    r->per_call_s = short_ms / 1000 - (double)r->short_tokens / r->decode;
    return read_published(r, e);
}

/* Rounded in decimal, as a printed rate is. */
static double round_to_tenth(double v)
{
    char text[400];
    snprintf(text, sizeof text, "%.1f", v);
    return strtod(text, NULL);
}

/* A batch's own requests, where they were kept, must give its tokens and its wall. */
static int check_batch(const struct result *r, const char *at, const json_t *batch, long long tokens, double wall_ms, struct err *e)
{
    const json_t *list = json_object_get(batch, "requests"), *q;
    double first = INFINITY, last = -INFINITY;
    long long sum = 0;
    size_t i;

    if (!json_is_array(list))
        return bad_field(r, at, "requests", "an array", list, e);
    json_array_foreach(list, i, q) {
        const double sent = json_number_value(json_object_get(q, "sent_ms")), wall = json_number_value(json_object_get(q, "e2e_ms"));
        long long got;
        char inner[120];
        snprintf(inner, sizeof inner, "%srequests[%zu].", at, i);
        if (get_count(r, q, inner, "completion_tokens", 0, &got, e))
            return -1;
        sum += got;
        first = fmin(first, sent);
        last = fmax(last, sent + wall);
    }
    if (json_array_size(list) == 0)
        return 0;
    if (sum != tokens)
        return err_set(e, EXIT_DATA, "%s: %stokens: %lld, but its requests have %lld: the file contradicts itself", r->path, at, tokens, sum);
    if (json_is_number(json_object_get(json_array_get(list, 0), "sent_ms")) && fabs(last - first - wall_ms) > 1)
        return err_set(e, EXIT_DATA, "%s: %swall_ms: %.3f, but its requests took %.3f: the file contradicts itself", r->path, at, wall_ms, last - first);
    return 0;
}

static int read_parallel(struct result *r, struct err *e)
{
    const json_t *list, *batch;
    size_t i;

    if (get_member(r, r->root, "", "parallel", JSON_ARRAY, &list, e))
        return -1;
    r->batch = xcalloc(json_array_size(list) + 1, sizeof *r->batch);
    json_array_foreach(list, i, batch) {
        struct batch *b = &r->batch[i];
        char at[80];
        long long tokens;
        double wall_ms;
        snprintf(at, sizeof at, "parallel[%zu].", i);
        if (get_count(r, batch, at, "concurrency", 1, &b->concurrency, e) || get_count(r, batch, at, "batch", 0, &b->batch, e) ||
            get_count(r, batch, at, "tokens", 1, &tokens, e) || get_ms(r, batch, at, "wall_ms", &wall_ms, e) ||
            check_batch(r, at, batch, tokens, wall_ms, e))
            return -1;
        for (size_t k = 0; k < i; k++)
            if (r->batch[k].concurrency == b->concurrency && r->batch[k].batch == b->batch)
                return err_set(e, EXIT_DATA, "%s: %sbatch: batch %lld of %lld at once is there already", r->path, at, b->batch, b->concurrency);
        b->rate = round_to_tenth((double)tokens / (wall_ms / 1000));
        r->n_batches++;
    }
    return 0;
}

double result_rate_at(const struct result *r, long long concurrency)
{
    struct sample s = {NULL, 0};

    for (size_t i = 0; i < r->n_batches; i++)
        if (r->batch[i].concurrency == concurrency)
            sample_add(&s, r->batch[i].rate);
    const double v = sample_median(&s);
    free(s.v);
    return v;
}

/* --- streams ------------------------------------------------------------------------------------------------------------ */

static double member(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* A reply that succeeded; late: what it waited before it was sent, counted in open loop. */
static void add_reply(const struct result *r, struct streamed *s, const json_t *q, double late)
{
    const double ttft = member(q, "ttft_ms") + late, e2e = member(q, "e2e_ms") + late, tpot = member(q, "tpot_ms"), prompt = member(q, "prompt_tokens");
    const json_t *chunks = json_object_get(q, "chunk_ms");
    size_t i;

    s->tokens += json_integer_value(json_object_get(q, "completion_tokens"));
    if (isfinite(ttft))
        sample_add(&s->ttft, ttft);
    if (isfinite(tpot))
        sample_add(&s->tpot, tpot);
    sample_add(&s->e2e, e2e);
    if (isfinite(prompt) && member(q, "ttft_ms") > 0)
        sample_add(&s->prefill, prompt / (member(q, "ttft_ms") / 1000));
    if (isfinite(prompt) && s->prompt_tokens < 0)
        s->prompt_tokens = (long long)prompt;
    for (i = 1; i < json_array_size(chunks); i++)
        sample_add(&s->itl, json_number_value(json_array_get(chunks, i)) - json_number_value(json_array_get(chunks, i - 1)));
    /* A reply of one token has no tpot: it meets that limit. */
    s->good += !(ttft > r->limit_ttft) && !(tpot > r->limit_tpot) && !(e2e > r->limit_e2e);
}

static int read_requests(const struct result *r, const char *at, const json_t *list, struct streamed *s, struct err *e)
{
    double first = INFINITY, last = -INFINITY;
    const json_t *q;
    size_t i;

    json_array_foreach(list, i, q) {
        const double sent = member(q, "sent_ms"), scheduled = member(q, "scheduled_ms"), e2e = member(q, "e2e_ms");
        const double start = s->rate > 0 && isfinite(scheduled) ? scheduled : sent;
        char inner[120];
        snprintf(inner, sizeof inner, "%srequests[%zu].", at, i);
        s->sent++;
        if (json_is_string(json_object_get(q, "error"))) {
            s->failed++;
            continue;
        }
        const json_t *tokens = json_object_get(q, "completion_tokens");
        if (!json_is_object(q) || !isfinite(sent) || !(e2e > 0) || !json_is_integer(tokens) || json_integer_value(tokens) < 0 || json_integer_value(tokens) > COUNT_MAX)
            return bad_field(r, inner, "e2e_ms", "a reply with sent_ms, e2e_ms and completion_tokens, or an error", json_object_get(q, "e2e_ms"), e);
        first = fmin(first, start);
        last = fmax(last, sent + e2e);
        sample_add(&s->lag, isfinite(scheduled) ? sent - scheduled : 0);
        add_reply(r, s, q, sent - start);
    }
    s->window_s = last > first ? (last - first) / 1000 : NAN;
    sample_sort(&s->ttft);
    sample_sort(&s->tpot);
    sample_sort(&s->itl);
    sample_sort(&s->e2e);
    sample_sort(&s->lag);
    sample_sort(&s->prefill);
    return 0;
}

/* prefill, stream, load: lists of {how, requests}. */
static int read_streamed(struct result *r, const char *key, struct err *e)
{
    const json_t *list, *one, *requests;
    size_t i;

    if (may_member(r, r->root, "", key, JSON_ARRAY, &list, e))
        return -1;
    json_array_foreach(list, i, one) {
        char at[80];
        r->streamed = xreallocarray(r->streamed, r->n_streamed + 1, sizeof *r->streamed);
        struct streamed *s = &r->streamed[r->n_streamed++];
        *s = (struct streamed){.prompt_tokens = -1};
        snprintf(at, sizeof at, "%s[%zu].", key, i);
        if (!strcmp(key, "load") ? get_ms(r, one, at, "rate", &s->rate, e) : get_count(r, one, at, "concurrency", 1, &s->concurrency, e))
            return -1;
        if (!strcmp(key, "prefill") && get_count(r, one, at, "prompt_tokens", 1, &s->asked, e))
            return -1;
        if (get_member(r, one, at, "requests", JSON_ARRAY, &requests, e) || read_requests(r, at, requests, s, e))
            return -1;
    }
    return 0;
}

static int read_limits(struct result *r, const json_t *settings, struct err *e)
{
    const json_t *goodput;

    r->limit_ttft = r->limit_tpot = r->limit_e2e = NAN;
    if (may_member(r, settings, "settings.", "goodput", JSON_OBJECT, &goodput, e))
        return -1;
    return may_real(r, goodput, "settings.goodput.", "ttft_ms", &r->limit_ttft, e) ||
                   may_real(r, goodput, "settings.goodput.", "tpot_ms", &r->limit_tpot, e) ||
                   may_real(r, goodput, "settings.goodput.", "e2e_ms", &r->limit_e2e, e)
               ? -1
               : 0;
}

static int read_pings(struct result *r, struct err *e)
{
    const json_t *list, *v;
    size_t i;

    if (may_member(r, r->root, "", "ping_ms", JSON_ARRAY, &list, e))
        return -1;
    json_array_foreach(list, i, v) {
        if (!json_is_number(v) || json_number_value(v) < 0)
            return bad_field(r, "", "ping_ms", "milliseconds", v, e);
        sample_add(&r->ping_ms, json_number_value(v));
    }
    sample_sort(&r->ping_ms);
    return 0;
}

/* --- the build ---------------------------------------------------------------------------------------------------------- */

static int read_classes(struct result *r, const json_t *weights, struct err *e)
{
    const json_t *classes = json_object_get(weights, "bytes_by_class");
    const char *key;
    json_t *v;

    if (json_is_null(classes))
        return 0;
    if (!json_is_object(classes))
        return bad_field(r, "weights.", "bytes_by_class", "an object or null", classes, e);
    json_object_foreach((json_t *)classes, key, v) {
        size_t c = 0;
        while (c < N_CLASSES && strcmp(CLASSES[c].key, key))
            c++;
        if (c == N_CLASSES)
            return bad_field(r, "weights.", "bytes_by_class", "classes of the schema only", v, e);
        if (get_count(r, classes, "weights.bytes_by_class.", key, 0, &r->class_bytes[c], e))
            return -1;
    }
    r->has_classes = true;
    r->classes_planned = json_is_true(json_object_get(weights, "planned"));
    return 0;
}

static int read_per_token(struct result *r, const json_t *weights, struct err *e)
{
    static const char at[] = "weights.read_per_token.";
    const json_t *o;

    r->read_int4 = r->read_8bit = r->read_16bit = r->read_kv = NAN;
    if (may_member(r, weights, "weights.", "read_per_token", JSON_OBJECT, &o, e) || !o)
        return e->code ? -1 : 0;
    if (may_real(r, o, at, "int4", &r->read_int4, e) || may_real(r, o, at, "8bit", &r->read_8bit, e) || may_real(r, o, at, "16bit", &r->read_16bit, e) ||
        may_real(r, o, at, "kv", &r->read_kv, e) || get_count(r, o, at, "layers", 1, &r->layers, e) || get_count(r, o, at, "moe_layers", 0, &r->moe_layers, e))
        return -1;
    return 0;
}

static int read_weights(struct result *r, struct err *e)
{
    const json_t *weights;

    if (get_member(r, r->root, "", "weights", JSON_OBJECT, &weights, e) || read_classes(r, weights, e) || read_per_token(r, weights, e) ||
        may_member(r, weights, "weights.", "regrid", JSON_OBJECT, &r->regrid, e))
        return -1;
    return may_count(r, weights, "weights.", "bytes_on_disk", &r->disk, e);
}

double result_read(const struct result *r) { return r->read_int4 + r->read_8bit + r->read_16bit + r->read_kv; }

long long result_tensor_bytes(const struct result *r)
{
    long long sum = 0;

    for (size_t c = 0; c < N_CLASSES; c++)
        sum += r->class_bytes[c];
    return r->has_classes ? sum : -1;
}

/* --- questions ---------------------------------------------------------------------------------------------------------- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static int read_answer(const struct result *r, const json_t *question, const char *at, struct answer *a, struct err *e)
{
    const json_t *text = json_object_get(question, "answer"), *hash = json_object_get(question, "answer_sha256");

    if (text && !json_is_string(text) && !json_is_null(text))
        return bad_field(r, at, "answer", "a string or null", text, e);
    if (hash && !json_is_null(hash) && (json_string_length(hash) != 64 || strspn(json_string_value(hash), "0123456789abcdef") != 64))
        return bad_field(r, at, "answer_sha256", "64 hexadecimal digits or null", hash, e);
    if (json_is_string(text)) {
        const char *s = json_string_value(text), *end = s + json_string_length(text);
        a->text = s;
        while (s < end && is_space(*s))
            s++;
        while (s < end && is_space(end[-1]))
            end--;
        sha256_of(s, (size_t)(end - s), a->sha256);
        if (json_is_string(hash) && strcmp(a->sha256, json_string_value(hash)))
            return err_set(e, EXIT_DATA, "%s: %sanswer_sha256: is not the hash of the answer: the file contradicts itself", r->path, at);
    } else if (json_is_string(hash)) {
        memcpy(a->sha256, json_string_value(hash), SHA256_HEX);
    }
    return 0;
}

const struct answer *result_answer(const struct result *r, const char *id)
{
    for (size_t i = 0; i < r->n_answers; i++)
        if (!strcmp(r->answer[i].id, id))
            return &r->answer[i];
    return NULL;
}

static int read_questions(struct result *r, struct err *e)
{
    const json_t *list, *question;
    bool all_known = true;
    size_t i;

    if (get_member(r, r->root, "", "questions", JSON_ARRAY, &list, e))
        return -1;
    r->answer = xcalloc(json_array_size(list) + 1, sizeof *r->answer);
    json_array_foreach(list, i, question) {
        const json_t *right = json_object_get(question, "right");
        struct answer *a = &r->answer[i];
        char at[80];
        snprintf(at, sizeof at, "questions[%zu].", i);
        if (get_string(r, question, at, "id", &a->id, e) || read_answer(r, question, at, a, e))
            return -1;
        if (result_answer(r, a->id))
            return err_set(e, EXIT_DATA, "%s: %sid: %s was answered before: one answer a question", r->path, at, a->id);
        if (!json_is_boolean(right) && !json_is_null(right))
            return bad_field(r, at, "right", "true, false or null", right, e);
        a->right = json_is_null(right) ? -1 : json_is_true(right);
        r->right += a->right > 0;
        all_known &= a->right >= 0;
        r->n_answers++;
    }
    if (!all_known || r->n_answers == 0)
        r->right = -1;
    return 0;
}

/* --- how it was measured ------------------------------------------------------------------------------------------------ */

const char *result_fact(const struct result *r, const char *object, const char *key)
{
    return json_string_value(json_object_get(json_object_get(r->root, object), key));
}

static int read_facts(struct result *r, struct err *e)
{
    const json_t *machine, *engine;

    if (get_member(r, r->root, "", "machine", JSON_OBJECT, &machine, e) || get_member(r, r->root, "", "engine", JSON_OBJECT, &engine, e) ||
        may_real(r, machine, "machine.", "usd_per_hour", &r->usd_per_hour, e) || may_real(r, machine, "machine.", "memory_gb_per_s", &r->peak_gb_s, e) ||
        may_real(r, engine, "engine.", "weights_gib", &r->weights_gib, e) || may_real(r, engine, "engine.", "load_s", &r->load_s, e) ||
        may_real(r, engine, "engine.", "max_concurrency", &r->max_concurrency, e) ||
        may_real(r, engine, "engine.", "peak_activation_gib", &r->peak_activation_gib, e) ||
        may_count(r, engine, "engine.", "kv_tokens", &r->kv_tokens, e) || may_count(r, engine, "engine.", "max_model_len", &r->max_model_len, e))
        return -1;
    r->engine = result_fact(r, "engine", "name");
    r->engine_version = result_fact(r, "engine", "version");
    r->device = result_fact(r, "machine", "gpu") ? result_fact(r, "machine", "gpu") : result_fact(r, "machine", "cpu");
    return 0;
}

static void setting_of_engine(const struct result *r, struct buf *b)
{
    const json_t *machine = json_object_get(r->root, "machine"), *engine = json_object_get(r->root, "engine");

    buf_printf(b, "%s", r->engine ? r->engine : "engine not named");
    if (r->engine_version)
        buf_printf(b, " %s", r->engine_version);
    buf_printf(b, " (%s) on %s", r->target, r->device ? r->device : "a machine not named");
    if (json_is_integer(json_object_get(machine, "cpus")) && !result_fact(r, "machine", "gpu"))
        buf_printf(b, ", %lld CPUs", (long long)json_integer_value(json_object_get(machine, "cpus")));
    if (result_fact(r, "machine", "instance"))
        buf_printf(b, ", %s", result_fact(r, "machine", "instance"));
    if (r->max_model_len > 0)
        buf_printf(b, "; at most %lld tokens a sequence", r->max_model_len);
    if (json_is_integer(json_object_get(engine, "max_num_seqs")))
        buf_printf(b, ", %lld sequences", (long long)json_integer_value(json_object_get(engine, "max_num_seqs")));
    if (json_is_number(json_object_get(engine, "gpu_memory_utilization")))
        buf_printf(b, ", GPU memory %g", json_number_value(json_object_get(engine, "gpu_memory_utilization")));
}

static int read_setting(struct result *r, const json_t *settings, long long repeats, struct err *e)
{
    long long parallel_tokens, batches, question_tokens;
    struct buf b = BUF_INIT;

    if (get_count(r, settings, "settings.", "batches", 0, &batches, e) ||
        get_count(r, settings, "settings.", "parallel_tokens", 1, &parallel_tokens, e) ||
        get_count(r, settings, "settings.", "question_tokens", 1, &question_tokens, e))
        return -1;
    setting_of_engine(r, &b);
    buf_printf(&b, "; replies of %lld and %lld tokens, %lld each; %lld tokens a reply at once, ", r->short_tokens, r->long_tokens, repeats, parallel_tokens);
    if (batches == 1)
        buf_str(&b, "1 batch");
    else
        buf_printf(&b, "%lld batches", batches);
    buf_printf(&b, "; answers of at most %lld tokens", question_tokens);
    if (json_is_true(json_object_get(settings, "pair")))
        buf_str(&b, "; in turns with another build");
    if (json_is_true(json_object_get(settings, "reduced")))
        buf_str(&b, " (the reduced defaults for nano models)");
    r->setting = b.data;
    return 0;
}

static int read_settings(struct result *r, struct err *e)
{
    const json_t *settings;
    long long repeats;

    if (get_member(r, r->root, "", "settings", JSON_OBJECT, &settings, e) ||
        get_count(r, settings, "settings.", "short_tokens", 1, &r->short_tokens, e) ||
        get_count(r, settings, "settings.", "long_tokens", r->short_tokens + 1, &r->long_tokens, e) ||
        get_count(r, settings, "settings.", "repeats", 1, &repeats, e) || read_limits(r, settings, e) || read_decode(r, repeats, e))
        return -1;
    return read_setting(r, settings, repeats, e);
}

/* --- completeness ------------------------------------------------------------------------------------------------------- */

/* What settings.parts says was measured, which old results lack, is there; a server may have made the later parts impossible, which `skipped` then says. */
static int check_parts(const struct result *r, struct err *e)
{
    static const struct { const char *part, *key; bool may_skip; } KEPT[] = {{"replies", "short", false}, {"replies", "long", false}, {"parallel", "parallel", false},
        {"questions", "questions", false}, {"ping", "ping_ms", true}, {"stream", "stream", true}, {"prefill", "prefill", true}, {"load", "load", true}};
    const json_t *parts = json_object_get(json_object_get(r->root, "settings"), "parts"), *part;
    const bool skipped = json_array_size(json_object_get(r->root, "skipped")) > 0;
    size_t i;

    json_array_foreach(parts, i, part)
        for (size_t k = 0; k < sizeof KEPT / sizeof *KEPT; k++) {
            const char *name = json_string_value(part);
            if (!name || strcmp(name, KEPT[k].part) || (skipped && KEPT[k].may_skip) || json_array_size(json_object_get(r->root, KEPT[k].key)))
                continue;
            return err_set(e, EXIT_DATA, "%s: %s: is empty, though settings.parts has %s: a partial result: measure again", r->path, KEPT[k].key, name);
        }
    return 0;
}

/* --- files -------------------------------------------------------------------------------------------------------------- */

static int read_result(const char *path, struct result *r, struct err *e)
{
    const char *schema;

    r->path = xstrdup(path);
    r->root = json_parse_file(path, e);
    if (!r->root)
        return -1;
    if (!json_is_object(r->root))
        return bad_field(r, "", "result", "an object", r->root, e);
    if (get_string(r, r->root, "", "schema", &schema, e))
        return -1;
    if (strcmp(schema, SCHEMA))
        return err_set(e, EXIT_DATA, "%s: schema: expected %s, found %s: measure this build with the tools of this version", path, SCHEMA, schema);
    if (get_string(r, r->root, "", "model", &r->model, e) || get_string(r, r->root, "", "build", &r->build, e) ||
        get_string(r, r->root, "", "target", &r->target, e) || read_facts(r, e) || read_settings(r, e) || read_parallel(r, e) ||
        read_streamed(r, "stream", e) || read_streamed(r, "prefill", e) || read_streamed(r, "load", e) || read_pings(r, e) || read_weights(r, e))
        return -1;
    return read_questions(r, e) ? -1 : check_parts(r, e);
}

/* Where item[n] belongs: behind the last row of its model before it, or at n.  Refuses a row that is there already. */
static int place(const struct results *rs, size_t n, size_t *at, struct err *e)
{
    const struct result *r = &rs->item[n];

    *at = n;
    for (size_t k = 0; k < n; k++) {
        const struct result *o = &rs->item[k];
        if (strcmp(o->model, r->model))
            continue;
        if (!strcmp(o->build, r->build) && !strcmp(o->target, r->target))
            return err_set(e, EXIT_DATA, "%s: %s %s on %s is in %s already: give one file of a build", r->path, r->model, r->build, r->target, o->path);
        *at = k + 1;
    }
    return 0;
}

int results_read(char **path, size_t n, struct results *rs, struct err *e)
{
    *rs = (struct results){xcalloc(n, sizeof *rs->item), 0};
    while (rs->n < n) {
        struct result r;
        size_t i = rs->n++, at;
        if (read_result(path[i], &rs->item[i], e) || place(rs, i, &at, e))
            return -1;
        r = rs->item[i];
        memmove(&rs->item[at + 1], &rs->item[at], (i - at) * sizeof r);
        rs->item[at] = r;
    }
    return 0;
}

static void free_result(struct result *r)
{
    for (size_t k = 0; k < r->n_streamed; k++) {
        struct streamed *s = &r->streamed[k];
        free(s->ttft.v);
        free(s->tpot.v);
        free(s->itl.v);
        free(s->e2e.v);
        free(s->lag.v);
        free(s->prefill.v);
    }
    free(r->streamed);
    free(r->short_ms.v);
    free(r->long_ms.v);
    free(r->ping_ms.v);
    free(r->batch);
    free(r->answer);
    free(r->setting);
    json_decref(r->root);
    free(r->path);
}

void results_free(struct results *rs)
{
    for (size_t i = 0; i < rs->n; i++)
        free_result(&rs->item[i]);
    free(rs->item);
}

/* What KEY of --where is in a result: NULL = not known there, which matches nothing. */
static const char *where_value(const struct result *r, const char *key, size_t n)
{
    static const char *const of_machine[] = {"instance", "region", "gpu"};

    if (n == 5 && !strncmp(key, "model", n)) return r->model;
    if (n == 5 && !strncmp(key, "build", n)) return r->build;
    if (n == 6 && !strncmp(key, "target", n)) return r->target;
    if (n == 6 && !strncmp(key, "engine", n)) return r->engine;
    for (size_t i = 0; i < sizeof of_machine / sizeof *of_machine; i++)
        if (strlen(of_machine[i]) == n && !strncmp(key, of_machine[i], n))
            return result_fact(r, "machine", of_machine[i]);
    return NULL;
}

static bool where_holds(const struct result *r, const char *where)
{
    const char *at = strchr(where, '='), *v = where_value(r, where, (size_t)(at - where));

    while (v && *at) {
        const size_t n = strcspn(++at, ",");
        if (strlen(v) == n && !strncmp(at, v, n))
            return true;
        at += n;
    }
    return false;
}

int results_where(struct results *rs, const char *const *where, size_t n, struct err *e)
{
    static const char keys[] = " model build target engine instance region gpu ";

    for (size_t i = 0; i < n; i++) {
        char word[40];
        const size_t k = strcspn(where[i], "=");
        snprintf(word, sizeof word, " %.*s ", (int)(k < 30 ? k : 30), where[i]);
        if (!where[i][k] || !strstr(keys, word))
            return err_set(e, EXIT_USAGE, "--where %s: expected KEY=VALUE, KEY one of model, build, target, engine, instance, region, gpu", where[i]);
        size_t kept = 0;
        for (size_t j = 0; j < rs->n; j++)
            if (where_holds(&rs->item[j], where[i]))
                rs->item[kept++] = rs->item[j];
            else
                free_result(&rs->item[j]);
        rs->n = kept;
    }
    return rs->n ? 0 : err_set(e, EXIT_NO, "no result is left after --where");
}
