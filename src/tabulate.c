/* tabulate: result files (data/result.schema.json) to comparison tables.
 *
 * Owns: the figures of the study, each computed from the raw requests in the files, and their layout as Markdown and CSV.
 * Refuses: a file that is not of the schema, naming file and field; two files of one model, build and target; a ratio or an identity
 * between rows that were not measured alike.  What a file does not hold is shown as n/a (Markdown) or an empty cell (CSV), never guessed.
 *
 * Formulas, as the published study has them:
 *   decode    (long - short) / (median wall of the long replies - median wall of the short ones), tokens per second
 *   to text   decode / decode of the same model's text build, of the unrounded rates
 *   at once   median over the batches of tokens / wall, each rate rounded to 0.1 first
 *   right     questions whose answer matched
 *   as ...    questions answered with the same text, white space at both ends aside
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/opt.h"

static const char SCHEMA[] = "q4sweep-result/1";
static const char BASELINE[] = "text";

/* Classes of weights.bytes_by_class in the order of the table; a column of zeros is left out of Markdown. */
static const struct { const char *key, *title; } CLASSES[] = {
    {"linear", "linears"}, {"experts", "experts"}, {"ple", "per-layer embedding"}, {"embed", "embedding"}, {"head", "lm_head"},
    {"router", "routers"}, {"plain", "norms, scalars"}, {"tower", "towers"}, {"unknown", "unknown"},
};
enum { N_CLASSES = sizeof CLASSES / sizeof CLASSES[0] };

struct batch_rate { long long concurrency; double rate; };     /* rate: tokens/s of one batch, rounded to 0.1 */

struct answer {
    const char *id;
    char sha256[SHA256_HEX];    /* "" = not known */
};

struct result {
    const char *path;
    json_t *root;               /* owns all strings below */
    const char *model, *build, *target;
    long long short_tokens, long_tokens;
    double decode;              /* tokens/s; NAN = not computable */
    struct batch_rate *batch; size_t n_batches;
    long long disk;             /* bytes; -1 = not known */
    bool has_classes;
    long long class_bytes[N_CLASSES];
    struct answer *answer; size_t n_answers;
    long long right;            /* -1 = not all are known */
    char *setting;              /* one line: how it was measured; rows are compared only where it is equal */
};

struct results { struct result *item; size_t n; };

/* --- reading ---------------------------------------------------------------------------------------------------------- */

static const char *type_name(const json_t *v) {
    static const char *const names[] = {"an object", "an array", "a string", "an integer", "a real number", "true", "false", "null"};
    return v ? names[json_typeof(v)] : "nothing";
}

static int bad_field(const struct result *r, const char *field, const char *expected, const json_t *found, struct err *e) {
    char value[40] = "";

    if (json_is_integer(found))
        snprintf(value, sizeof value, " (%lld)", (long long)json_integer_value(found));
    else if (json_is_real(found))
        snprintf(value, sizeof value, " (%g)", json_real_value(found));
    return err_set(e, EXIT_DATA, "%s: %s: expected %s, found %s%s: not a result of pipelines/measure (data/result.schema.json)",
                   r->path, field, expected, type_name(found), value);
}

/* A member that may not be missing; `at` is the path of obj within the file, "" or ending in a dot. */
static int get_string(const struct result *r, const json_t *obj, const char *at, const char *key, const char **out, struct err *e) {
    const json_t *v = json_object_get(obj, key);
    char field[160];

    snprintf(field, sizeof field, "%s%s", at, key);
    if (!json_is_string(v) || json_string_length(v) == 0 || strlen(json_string_value(v)) != json_string_length(v))
        return bad_field(r, field, "a name", v, e);
    *out = json_string_value(v);
    return 0;
}

static int get_count(const struct result *r, const json_t *obj, const char *at, const char *key, long long min, long long *out,
                     struct err *e) {
    const json_t *v = json_object_get(obj, key);
    char field[160], expected[60];

    snprintf(field, sizeof field, "%s%s", at, key);
    snprintf(expected, sizeof expected, "an integer of at least %lld", min);
    if (!json_is_integer(v) || json_integer_value(v) < min)
        return bad_field(r, field, expected, v, e);
    *out = json_integer_value(v);
    return 0;
}

static int get_ms(const struct result *r, const json_t *obj, const char *at, const char *key, double *out, struct err *e) {
    const json_t *v = json_object_get(obj, key);
    char field[160];

    snprintf(field, sizeof field, "%s%s", at, key);
    if (!json_is_number(v) || json_number_value(v) <= 0)
        return bad_field(r, field, "milliseconds above 0", v, e);
    *out = json_number_value(v);
    return 0;
}

static int get_member(const struct result *r, const char *key, json_type type, const char *expected, const json_t **out, struct err *e) {
    *out = json_object_get(r->root, key);
    if (!*out || json_typeof(*out) != type)
        return bad_field(r, key, expected, *out, e);
    return 0;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v; n > 0.  Of an even number, the mean of the middle two. */
static double median(double *v, size_t n) {
    qsort(v, n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Median wall in ms of the replies in root[key], each of `tokens` tokens; NAN when there are none. */
static int read_walls(const struct result *r, const char *key, long long tokens, double *out, struct err *e) {
    const json_t *list, *reply;
    size_t i;

    *out = NAN;
    if (get_member(r, key, JSON_ARRAY, "an array of replies", &list, e))
        return -1;
    if (json_array_size(list) == 0)
        return 0;
    double *wall = xreallocarray(NULL, json_array_size(list), sizeof *wall);
    json_array_foreach(list, i, reply) {
        char at[80], expected[60];
        long long got;
        snprintf(at, sizeof at, "%s[%zu].", key, i);
        if (get_count(r, reply, at, "completion_tokens", 1, &got, e) || get_ms(r, reply, at, "e2e_ms", &wall[i], e))
            goto out;
        if (got != tokens) {
            snprintf(at, sizeof at, "%s[%zu].completion_tokens", key, i);
            snprintf(expected, sizeof expected, "%lld as settings.%s_tokens says", tokens, key);
            bad_field(r, at, expected, json_object_get(reply, "completion_tokens"), e);
            goto out;
        }
    }
    *out = median(wall, json_array_size(list));
out:
    free(wall);
    return e->code ? -1 : 0;
}

static int read_decode(struct result *r, struct err *e) {
    double short_ms, long_ms;

    if (read_walls(r, "short", r->short_tokens, &short_ms, e) || read_walls(r, "long", r->long_tokens, &long_ms, e))
        return -1;
    r->decode = long_ms > short_ms ? (double)(r->long_tokens - r->short_tokens) / ((long_ms - short_ms) / 1000) : NAN;
    return 0;
}

/* Rounded in decimal, as a printed rate is. */
static double round_to_tenth(double v) {
    char text[400];
    snprintf(text, sizeof text, "%.1f", v);
    return strtod(text, NULL);
}

static int read_parallel(struct result *r, struct err *e) {
    const json_t *list, *batch;
    size_t i;

    if (get_member(r, "parallel", JSON_ARRAY, "an array of batches", &list, e))
        return -1;
    r->batch = xcalloc(json_array_size(list) + 1, sizeof *r->batch);
    json_array_foreach(list, i, batch) {
        char at[80];
        long long tokens;
        double wall_ms;
        snprintf(at, sizeof at, "parallel[%zu].", i);
        if (get_count(r, batch, at, "concurrency", 1, &r->batch[i].concurrency, e) ||
            get_count(r, batch, at, "tokens", 1, &tokens, e) || get_ms(r, batch, at, "wall_ms", &wall_ms, e))
            return -1;
        r->batch[i].rate = round_to_tenth((double)tokens / (wall_ms / 1000));
        r->n_batches++;
    }
    return 0;
}

static int read_weights(struct result *r, struct err *e) {
    const json_t *weights, *classes, *disk;
    const char *key;
    json_t *v;

    if (get_member(r, "weights", JSON_OBJECT, "an object", &weights, e))
        return -1;
    r->disk = -1;
    disk = json_object_get(weights, "bytes_on_disk");
    if (!json_is_null(disk) && get_count(r, weights, "weights.", "bytes_on_disk", 0, &r->disk, e))
        return -1;
    classes = json_object_get(weights, "bytes_by_class");
    if (json_is_null(classes))
        return 0;
    if (!json_is_object(classes))
        return bad_field(r, "weights.bytes_by_class", "an object or null", classes, e);
    json_object_foreach((json_t *)classes, key, v) {
        size_t c = 0;
        while (c < N_CLASSES && strcmp(CLASSES[c].key, key))
            c++;
        if (c == N_CLASSES)
            return bad_field(r, "weights.bytes_by_class", "classes of the schema only", v, e);
        if (get_count(r, classes, "weights.bytes_by_class.", key, 0, &r->class_bytes[c], e))
            return -1;
    }
    r->has_classes = true;
    return 0;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The answer's hash: stored, or of the stored text without white space at both ends; "" when neither is there. */
static int read_answer(const struct result *r, const json_t *question, const char *at, char sha256[SHA256_HEX], struct err *e) {
    const json_t *text = json_object_get(question, "answer"), *hash = json_object_get(question, "answer_sha256");
    char field[160];

    if (text && !json_is_string(text) && !json_is_null(text)) {
        snprintf(field, sizeof field, "%sanswer", at);
        return bad_field(r, field, "a string or null", text, e);
    }
    if (hash && !json_is_null(hash) &&
        (json_string_length(hash) != 64 || strspn(json_string_value(hash), "0123456789abcdef") != 64)) {
        snprintf(field, sizeof field, "%sanswer_sha256", at);
        return bad_field(r, field, "64 hexadecimal digits or null", hash, e);
    }
    if (json_is_string(text)) {
        const char *s = json_string_value(text), *end = s + json_string_length(text);
        while (s < end && is_space(*s))
            s++;
        while (s < end && is_space(end[-1]))
            end--;
        sha256_of(s, (size_t)(end - s), sha256);
    } else if (json_is_string(hash)) {
        memcpy(sha256, json_string_value(hash), SHA256_HEX);
    }
    return 0;
}

static const struct answer *find_answer(const struct result *r, const char *id) {
    for (size_t i = 0; i < r->n_answers; i++)
        if (!strcmp(r->answer[i].id, id))
            return &r->answer[i];
    return NULL;
}

static int read_questions(struct result *r, struct err *e) {
    const json_t *list, *question;
    bool all_known = true;
    size_t i;

    if (get_member(r, "questions", JSON_ARRAY, "an array of questions", &list, e))
        return -1;
    r->answer = xcalloc(json_array_size(list) + 1, sizeof *r->answer);
    json_array_foreach(list, i, question) {
        const json_t *right = json_object_get(question, "right");
        struct answer *a = &r->answer[i];
        char at[80], field[100];
        snprintf(at, sizeof at, "questions[%zu].", i);
        if (get_string(r, question, at, "id", &a->id, e) || read_answer(r, question, at, a->sha256, e))
            return -1;
        snprintf(field, sizeof field, "%sid", at);
        if (find_answer(r, a->id))
            return err_set(e, EXIT_DATA, "%s: %s: %s was answered before: one answer a question", r->path, field, a->id);
        snprintf(field, sizeof field, "%sright", at);
        if (!json_is_boolean(right) && !json_is_null(right))
            return bad_field(r, field, "true, false or null", right, e);
        r->right += json_is_true(right);
        all_known &= json_is_boolean(right);
        r->n_answers++;
    }
    if (!all_known || r->n_answers == 0)
        r->right = -1;
    return 0;
}

static const char *text_or(const json_t *obj, const char *key, const char *absent) {
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : absent;
}

/* How the row was measured, in one line: rows whose lines differ are not compared. */
static int read_setting(struct result *r, struct err *e) {
    const json_t *settings = json_object_get(r->root, "settings"), *machine, *engine;
    long long repeats, parallel_tokens, batches, question_tokens;
    struct buf b = BUF_INIT;

    if (get_member(r, "machine", JSON_OBJECT, "an object", &machine, e) || get_member(r, "engine", JSON_OBJECT, "an object", &engine, e) ||
        get_count(r, settings, "settings.", "repeats", 1, &repeats, e) || get_count(r, settings, "settings.", "batches", 0, &batches, e) ||
        get_count(r, settings, "settings.", "parallel_tokens", 1, &parallel_tokens, e) ||
        get_count(r, settings, "settings.", "question_tokens", 1, &question_tokens, e))
        return -1;
    buf_printf(&b, "%s", text_or(engine, "name", "engine not named"));
    if (json_is_string(json_object_get(engine, "version")))
        buf_printf(&b, " %s", text_or(engine, "version", ""));
    buf_printf(&b, " (%s) on %s", r->target, text_or(machine, "gpu", text_or(machine, "cpu", "a machine not named")));
    if (json_is_integer(json_object_get(machine, "cpus")) && !json_is_string(json_object_get(machine, "gpu")))
        buf_printf(&b, ", %lld CPUs", (long long)json_integer_value(json_object_get(machine, "cpus")));
    if (json_is_string(json_object_get(machine, "instance")))
        buf_printf(&b, ", %s", text_or(machine, "instance", ""));
    buf_printf(&b, "; replies of %lld and %lld tokens, %lld each; %lld tokens a reply at once, %s", r->short_tokens, r->long_tokens,
               repeats, parallel_tokens, batches == 1 ? "1 batch" : "");
    if (batches != 1)
        buf_printf(&b, "%lld batches", batches);
    buf_printf(&b, "; answers of at most %lld tokens", question_tokens);
    if (json_is_true(json_object_get(settings, "reduced")))
        buf_str(&b, " (the reduced defaults for nano models)");
    r->setting = b.data;
    return 0;
}

static int read_result(const char *path, struct result *r, struct err *e) {
    const char *schema;
    const json_t *settings;

    r->path = path;
    r->root = json_parse_file(path, e);
    if (!r->root)
        return -1;
    if (!json_is_object(r->root))
        return bad_field(r, "result", "an object", r->root, e);
    if (get_string(r, r->root, "", "schema", &schema, e))
        return -1;
    if (strcmp(schema, SCHEMA))
        return err_set(e, EXIT_DATA, "%s: schema: expected %s, found %s: measure this build with the tools of this version", path, SCHEMA,
                       schema);
    if (get_string(r, r->root, "", "model", &r->model, e) || get_string(r, r->root, "", "build", &r->build, e) ||
        get_string(r, r->root, "", "target", &r->target, e) || get_member(r, "settings", JSON_OBJECT, "an object", &settings, e) ||
        get_count(r, settings, "settings.", "short_tokens", 1, &r->short_tokens, e) ||
        get_count(r, settings, "settings.", "long_tokens", r->short_tokens + 1, &r->long_tokens, e))
        return -1;
    if (read_decode(r, e) || read_parallel(r, e) || read_weights(r, e) || read_questions(r, e))
        return -1;
    return read_setting(r, e);
}

/* Where item[n] belongs: behind the last row of its model before it, or at n.  Refuses a row that is there already. */
static int place(const struct results *rs, size_t n, size_t *at, struct err *e) {
    const struct result *r = &rs->item[n];

    *at = n;
    for (size_t k = 0; k < n; k++) {
        const struct result *o = &rs->item[k];
        if (strcmp(o->model, r->model))
            continue;
        if (!strcmp(o->build, r->build) && !strcmp(o->target, r->target))
            return err_set(e, EXIT_DATA, "%s: %s %s on %s is in %s already: give one file of a build", r->path, r->model, r->build,
                           r->target, o->path);
        *at = k + 1;
    }
    return 0;
}

/* In the order given; files of one model are brought together at its first place. */
static int read_results(char **path, size_t n, struct results *rs, struct err *e) {
    rs->item = xcalloc(n, sizeof *rs->item);
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

/* --- figures of a row ------------------------------------------------------------------------------------------------- */

/* The row that r is compared with: the text build of its model and target; NULL when there is none measured alike. */
static const struct result *baseline(const struct results *rs, const struct result *r) {
    for (size_t i = 0; i < rs->n; i++) {
        const struct result *o = &rs->item[i];
        if (!strcmp(o->model, r->model) && !strcmp(o->target, r->target) && !strcmp(o->build, BASELINE))
            return strcmp(o->setting, r->setting) ? NULL : o;
    }
    return NULL;
}

static double ratio(const struct results *rs, const struct result *r) {
    const struct result *base = baseline(rs, r);
    return base ? r->decode / base->decode : NAN;
}

/* Median over the batches; NAN = none. */
static double parallel_rate(const struct result *r, long long concurrency) {
    double *rate = xcalloc(r->n_batches + 1, sizeof *rate), v;
    size_t n = 0;

    for (size_t i = 0; i < r->n_batches; i++)
        if (r->batch[i].concurrency == concurrency)
            rate[n++] = r->batch[i].rate;
    v = n ? median(rate, n) : NAN;
    free(rate);
    return v;
}

/* Questions that a and b answered alike; -1 unless both were asked the same ones in one way and all answers are known. */
static long long identical(const struct result *a, const struct result *b) {
    long long same = 0;

    if (a->n_answers == 0 || a->n_answers != b->n_answers || strcmp(a->model, b->model))
        return -1;
    if (json_integer_value(json_object_get(json_object_get(a->root, "settings"), "question_tokens")) !=
        json_integer_value(json_object_get(json_object_get(b->root, "settings"), "question_tokens")))
        return -1;
    for (size_t i = 0; i < a->n_answers; i++) {
        const struct answer *other = find_answer(b, a->answer[i].id);
        if (!other || !a->answer[i].sha256[0] || !other->sha256[0])
            return -1;
        same += !strcmp(a->answer[i].sha256, other->sha256);
    }
    return same;
}

static long long tensor_bytes(const struct result *r) {
    long long sum = 0;
    for (size_t c = 0; c < N_CLASSES; c++)
        sum += r->class_bytes[c];
    return sum;
}

/* All levels of concurrency in the files, rising. */
static size_t levels(const struct results *rs, double **level) {
    size_t n = 0, total = 0;

    for (size_t i = 0; i < rs->n; i++)
        total += rs->item[i].n_batches;
    *level = xcalloc(total + 1, sizeof **level);
    for (size_t i = 0; i < rs->n; i++)
        for (size_t k = 0; k < rs->item[i].n_batches; k++)
            (*level)[n++] = (double)rs->item[i].batch[k].concurrency;
    qsort(*level, n, sizeof **level, ascending);
    total = n;
    n = 0;
    for (size_t i = 0; i < total; i++)
        if (n == 0 || (*level)[n - 1] != (*level)[i])
            (*level)[n++] = (*level)[i];
    return n;
}

/* --- cells -------------------------------------------------------------------------------------------------------------- */

/* What a name may do to a table: Markdown's own signs are escaped, control characters become spaces. */
static void md_text(struct buf *b, const char *s) {
    for (; *s; s++) {
        if (strchr("\\|`*_[]<>&#", *s))
            buf_char(b, '\\');
        buf_char(b, (unsigned char)*s < 32 || *s == 127 ? ' ' : *s);
    }
}

static void md_real(struct buf *b, double v, int decimals) {
    if (isfinite(v))
        buf_printf(b, " %.*f |", decimals, v);
    else
        buf_str(b, " n/a |");
}

/* 1234567 as 1,234,567; negative = n/a. */
static void md_count(struct buf *b, long long v) {
    char digits[32];
    size_t n;

    if (v < 0) {
        buf_str(b, " n/a |");
        return;
    }
    n = (size_t)snprintf(digits, sizeof digits, "%lld", v);
    buf_char(b, ' ');
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            buf_char(b, ',');
        buf_char(b, digits[i]);
    }
    buf_str(b, " |");
}

static void md_of(struct buf *b, long long v, size_t n) {
    if (v < 0)
        buf_str(b, " n/a |");
    else
        buf_printf(b, " %lld of %zu |", v, n);
}

/* The build, and where it was served when the model's rows differ in that. */
static void md_row_name(struct buf *b, const struct results *rs, const struct result *r) {
    md_text(b, r->build);
    for (size_t i = 0; i < rs->n; i++)
        if (!strcmp(rs->item[i].model, r->model) && strcmp(rs->item[i].target, r->target)) {
            buf_str(b, " on ");
            md_text(b, r->target);
            return;
        }
}

static void md_rule(struct buf *b, size_t numbers) {
    buf_str(b, "\n| --- |");
    while (numbers--)
        buf_str(b, " ---: |");
    buf_char(b, '\n');
}

/* --- Markdown ----------------------------------------------------------------------------------------------------------- */

/* rs here and below: the rows of one model. */
static void md_speed(struct buf *b, const struct results *rs) {
    double *level;
    size_t n_levels = levels(rs, &level);

    buf_str(b, "| build | decode tok/s | to text |");
    for (size_t k = 0; k < n_levels; k++)
        buf_printf(b, " tok/s, %.0f at once |", level[k]);
    buf_str(b, " bytes on disk | right answers | answers as text |");
    md_rule(b, n_levels + 5);
    for (size_t i = 0; i < rs->n; i++) {
        const struct result *r = &rs->item[i], *base = baseline(rs, r);
        buf_str(b, "| ");
        md_row_name(b, rs, r);
        buf_str(b, " |");
        md_real(b, r->decode, 1);
        md_real(b, ratio(rs, r), 2);
        for (size_t k = 0; k < n_levels; k++)
            md_real(b, parallel_rate(r, (long long)level[k]), 2);
        md_count(b, r->disk);
        md_of(b, r->right, r->n_answers);
        md_of(b, base ? identical(base, r) : -1, r->n_answers);
        buf_char(b, '\n');
    }
    free(level);
}

static bool class_present(const struct results *rs, size_t c) {
    for (size_t i = 0; i < rs->n; i++)
        if (rs->item[i].class_bytes[c])
            return true;
    return false;
}

static void md_bytes(struct buf *b, const struct results *rs) {
    size_t shown = 0, known = 0;

    for (size_t i = 0; i < rs->n; i++)
        known += rs->item[i].has_classes;
    if (!known)
        return;
    buf_str(b, "\nBytes by class:\n\n| build |");
    for (size_t c = 0; c < N_CLASSES; c++)
        if (class_present(rs, c)) {
            buf_printf(b, " %s |", CLASSES[c].title);
            shown++;
        }
    buf_str(b, " all tensors |");
    md_rule(b, shown + 1);
    for (size_t i = 0; i < rs->n; i++) {
        const struct result *r = &rs->item[i];
        buf_str(b, "| ");
        md_row_name(b, rs, r);
        buf_str(b, " |");
        for (size_t c = 0; c < N_CLASSES; c++)
            if (class_present(rs, c))
                md_count(b, r->has_classes ? r->class_bytes[c] : -1);
        md_count(b, r->has_classes ? tensor_bytes(r) : -1);
        buf_char(b, '\n');
    }
}

static void md_identity(struct buf *b, const struct results *rs) {
    if (rs->n < 2)
        return;
    buf_str(b, "\nIdentical answers:\n\n| build |");
    for (size_t k = 0; k < rs->n; k++) {
        buf_char(b, ' ');
        md_row_name(b, rs, &rs->item[k]);
        buf_str(b, " |");
    }
    md_rule(b, rs->n);
    for (size_t i = 0; i < rs->n; i++) {
        buf_str(b, "| ");
        md_row_name(b, rs, &rs->item[i]);
        buf_str(b, " |");
        for (size_t k = 0; k < rs->n; k++)
            if (k == i)
                buf_str(b, " - |");
            else
                md_of(b, identical(&rs->item[i], &rs->item[k]), rs->item[i].n_answers);
        buf_char(b, '\n');
    }
}

/* Formulas, and each setting once with the rows that it holds for. */
static void md_notes(struct buf *b, const struct results *rs) {
    bool mixed = false;

    buf_str(b, "\ndecode = (long - short) / (median wall of the long replies - median wall of the short ones). "
               "At once = median over the batches of tokens / wall. n/a = not in the files, or not comparable.\n");
    for (size_t i = 0; i < rs->n; i++) {
        bool seen = false;
        for (size_t k = 0; k < i; k++)
            seen |= !strcmp(rs->item[k].setting, rs->item[i].setting);
        mixed |= strcmp(rs->item[i].setting, rs->item[0].setting) != 0;
        if (seen)
            continue;
        buf_str(b, "\nMeasured (");
        for (size_t k = i, first = 1; k < rs->n; k++)
            if (!strcmp(rs->item[k].setting, rs->item[i].setting)) {
                buf_str(b, first ? "" : ", ");
                md_row_name(b, rs, &rs->item[k]);
                first = 0;
            }
        buf_str(b, "): ");
        md_text(b, rs->item[i].setting);
        buf_str(b, ".\n");
    }
    if (mixed)
        buf_str(b, "\nRows measured in different ways are not compared: their ratio is n/a.\n");
}

static void markdown(struct buf *b, const struct results *rs) {
    for (size_t from = 0, to; from < rs->n; from = to) {
        struct results one;
        for (to = from; to < rs->n && !strcmp(rs->item[to].model, rs->item[from].model); to++)
            continue;
        one = (struct results){rs->item + from, to - from};
        if (from)
            buf_char(b, '\n');
        buf_str(b, "### ");
        md_text(b, one.item[0].model);
        buf_str(b, "\n\n");
        md_speed(b, &one);
        md_bytes(b, &one);
        md_identity(b, &one);
        md_notes(b, &one);
    }
}

/* --- CSV (RFC 4180, lines end in \n) ---------------------------------------------------------------------------------------- */

/* Quoted where needed; a leading sign that spreadsheets take for a formula gets an apostrophe before it. */
static void csv_text(struct buf *b, const char *s) {
    bool formula = s[0] && strchr("=+-@\t\r", s[0]), quote = strpbrk(s, ",\"\r\n\t") != NULL;

    if (quote)
        buf_char(b, '"');
    if (formula)
        buf_char(b, '\'');
    for (; *s; s++) {
        if (*s == '"')
            buf_char(b, '"');
        buf_char(b, *s);
    }
    if (quote)
        buf_char(b, '"');
}

static void csv_real(struct buf *b, double v, int decimals) {
    buf_char(b, ',');
    if (isfinite(v))
        buf_printf(b, "%.*f", decimals, v);
}

static void csv_count(struct buf *b, long long v) {
    buf_char(b, ',');
    if (v >= 0)
        buf_printf(b, "%lld", v);
}

static void csv_header(struct buf *b, const double *level, size_t n_levels) {
    buf_str(b, "model,build,target,decode_tok_s,ratio_to_text");
    for (size_t k = 0; k < n_levels; k++)
        buf_printf(b, ",tok_s_at_%.0f", level[k]);
    buf_str(b, ",bytes_on_disk,tensor_bytes");
    for (size_t c = 0; c < N_CLASSES; c++)
        buf_printf(b, ",bytes_%s", CLASSES[c].key);
    buf_str(b, ",right,questions,identical_to_text,setting\n");
}

static void csv_row(struct buf *b, const struct results *rs, const struct result *r, const double *level, size_t n_levels) {
    const struct result *base = baseline(rs, r);

    csv_text(b, r->model);
    buf_char(b, ',');
    csv_text(b, r->build);
    buf_char(b, ',');
    csv_text(b, r->target);
    csv_real(b, r->decode, 3);
    csv_real(b, ratio(rs, r), 4);
    for (size_t k = 0; k < n_levels; k++)
        csv_real(b, parallel_rate(r, (long long)level[k]), 2);
    csv_count(b, r->disk);
    csv_count(b, r->has_classes ? tensor_bytes(r) : -1);
    for (size_t c = 0; c < N_CLASSES; c++)
        csv_count(b, r->has_classes ? r->class_bytes[c] : -1);
    csv_count(b, r->right);
    csv_count(b, (long long)r->n_answers);
    csv_count(b, base ? identical(base, r) : -1);
    buf_char(b, ',');
    csv_text(b, r->setting);
    buf_char(b, '\n');
}

static void csv(struct buf *b, const struct results *rs) {
    double *level;
    size_t n_levels = levels(rs, &level);

    csv_header(b, level, n_levels);
    for (size_t i = 0; i < rs->n; i++)
        csv_row(b, rs, &rs->item[i], level, n_levels);
    free(level);
}

/* --- the job ------------------------------------------------------------------------------------------------------------ */

static void free_results(struct results *rs) {
    for (size_t i = 0; i < rs->n; i++) {
        free(rs->item[i].batch);
        free(rs->item[i].answer);
        free(rs->item[i].setting);
        json_decref(rs->item[i].root);
    }
    free(rs->item);
}

int main(int argc, char **argv) {
    const char *format = "md";
    const struct opt opts[] = {
        {"format", 0, OPT_CHOICE, &format, "md|csv", "layout of the tables", 0, 0},
        {0},
    };
    const struct opt_spec spec = {
        .usage = "[--format md|csv] RESULT.json...",
        .about = "Print comparison tables of measured builds: decode tok/s and its ratio to the text build, bytes on disk and by class,\n"
                 "right answers, identical answers between builds.  Every figure is computed from the raw requests in the files.",
        .opts = opts,
        .examples = "  tabulate out/e2b-nano/text.json out/e2b-nano/emb4.json\n  tabulate --format csv text.json emb4.json > table.csv",
        .min_operands = 1, .max_operands = -1,
    };
    struct results rs = {NULL, 0};
    struct buf out = BUF_INIT;
    struct err e = {0};
    int first;

    prog_init(argv[0]);
    first = opt_parse(&spec, argc, argv);
    if (read_results(argv + first, (size_t)(argc - first), &rs, &e))
        die(&e);
    if (!strcmp(format, "csv"))
        csv(&out, &rs);
    else
        markdown(&out, &rs);
    fwrite(out.data, 1, out.n, stdout);
    if (finish_stdout(&e))
        die(&e);
    buf_free(&out);
    free_results(&rs);
    return 0;
}
