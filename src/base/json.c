#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "base/utf8.h"

#define JSON_FILE_MAX ((size_t)256 << 20)
#define REAL_DIGITS JSON_REAL_PRECISION(17)

json_t *json_parse(const char *text, size_t n, const char *name, struct err *e)
{
    json_error_t je;
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    size_t bad = v ? n : utf8_check(text, n);
    if (bad < n)
        err_set(e, EXIT_DATA, "%s: not JSON: byte %zu (0x%02x): invalid UTF-8", name, bad, (unsigned char)text[bad]);
    else if (!v)
        err_set(e, EXIT_DATA, "%s: not JSON: line %d, column %d: %s", name, je.line, je.column, je.text);
    return v;
}

json_t *json_parse_file(const char *path, struct err *e)
{
    char *text;
    size_t n;
    if (io_slurp(path, JSON_FILE_MAX, &text, &n, e) != 0)
        return NULL;
    json_t *v = json_parse(text, n, path, e);
    free(text);
    return v;
}

static char *text_of(const json_t *v, size_t flags)
{
    char *s = json_dumps(v, flags | JSON_ENCODE_ANY | REAL_DIGITS);
    if (!s)
        die_msg(EXIT_BUG, "a value that is no JSON");
    return s;
}

char *json_text(const json_t *v, bool sort)
{
    return text_of(v, JSON_COMPACT | (sort ? JSON_SORT_KEYS : 0));
}

char *json_text_indented(const json_t *v)
{
    return text_of(v, JSON_INDENT(2));
}

int json_line(FILE *f, const json_t *v)
{
    char *s = json_text(v, false);
    int bad = fputs(s, f) == EOF || fputc('\n', f) == EOF;
    free(s);
    return bad ? -1 : 0;
}

/* The field, or NULL when it is missing or null. */
static const json_t *field(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_null(v) ? NULL : v;
}

static int wrong_type(const char *where, const char *key, const char *want, struct err *e)
{
    return err_set(e, EXIT_DATA, "%s: %s: not %s", where, key, want);
}

int json_get_int(const json_t *obj, const char *key, long long def, long long *out, const char *where, struct err *e)
{
    const json_t *v = field(obj, key);
    if (v && !json_is_integer(v))
        return wrong_type(where, key, "an integer", e);
    *out = v ? json_integer_value(v) : def;
    return 0;
}

int json_get_real(const json_t *obj, const char *key, double def, double *out, const char *where, struct err *e)
{
    const json_t *v = field(obj, key);
    if (v && !json_is_number(v))
        return wrong_type(where, key, "a number", e);
    *out = v ? json_number_value(v) : def;
    return 0;
}

int json_get_bool(const json_t *obj, const char *key, bool def, bool *out, const char *where, struct err *e)
{
    const json_t *v = field(obj, key);
    if (v && !json_is_boolean(v))
        return wrong_type(where, key, "true or false", e);
    *out = v ? json_is_true(v) : def;
    return 0;
}

int json_get_str(const json_t *obj, const char *key, const char *def, const char **out, const char *where, struct err *e)
{
    const json_t *v = field(obj, key);
    if (v && !json_is_string(v))
        return wrong_type(where, key, "a string", e);
    *out = v ? json_string_value(v) : def;
    return 0;
}

/* A copy with '?' for every byte that is no UTF-8. */
static char *repaired(const char *text, size_t n)
{
    char *copy = xmalloc(n + 1);
    memcpy(copy, text, n);
    copy[n] = 0;
    for (size_t i = utf8_check(copy, n); i < n; i += utf8_check(copy + i, n - i))
        copy[i] = '?';
    return copy;
}

json_t *json_repaired(const char *text, size_t n)
{
    char *copy = repaired(text, n);
    json_t *s = json_stringn(copy, n);
    free(copy);
    if (!s)
        die_msg(EXIT_BUG, "a repaired message is no UTF-8");
    return s;
}

const char *json_field(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

json_t *json_message(const char *msg)
{
    return json_repaired(msg, strlen(msg));
}

struct jsonl {
    struct input *in;
    char *data;             /* a window of the input */
    size_t begin, end, cap;
    bool eof;
    long line;
    const char *text;       /* the latest line, in the window; size bytes */
    size_t size;
};

struct jsonl *jsonl_open(const char *path, struct err *e)
{
    struct input *in = input_open(path, e);
    if (!in)
        return NULL;
    struct jsonl *j = xcalloc(1, sizeof *j);
    j->in = in;
    return j;
}

/* More bytes into the window. 0 = end of input. */
static long fill(struct jsonl *j, struct err *e)
{
    if (j->begin > 0) {
        memmove(j->data, j->data + j->begin, j->end - j->begin);
        j->end -= j->begin;
        j->begin = 0;
    }
    if (j->cap - j->end < IO_CHUNK) {
        j->cap = j->cap ? j->cap * 2 : 2 * IO_CHUNK;
        j->data = xreallocarray(j->data, j->cap, 1);
    }
    long n = input_read(j->in, j->data + j->end, j->cap - j->end, e);
    if (n > 0)
        j->end += (size_t)n;
    return n;
}

/* The next line into [*s, *s + *n). 1, 0 at the end, -1 error. */
static int next_line(struct jsonl *j, char **s, size_t *n, struct err *e)
{
    size_t scanned = 0;
    for (;;) {
        size_t have = j->end - j->begin;
        char *nl = have > scanned ? memchr(j->data + j->begin + scanned, '\n', have - scanned) : NULL;
        if (nl || (j->eof && have)) {
            *s = j->data + j->begin;
            *n = nl ? (size_t)(nl - *s) : have;
            j->begin += *n + (nl ? 1 : 0);
            return 1;
        }
        if (j->eof)
            return 0;
        if (have > JSONL_LINE_MAX) {
            (void)err_set(e, EXIT_DATA, "%s: line %ld: longer than %zu bytes: expected JSON Lines, one value a line", input_name(j->in), j->line + 1, JSONL_LINE_MAX);
            return -1;
        }
        scanned = have;
        long got = fill(j, e);
        if (got < 0)
            return -1;
        j->eof = got == 0;
    }
}

static bool blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return false;
    return true;
}

int jsonl_next(struct jsonl *j, json_t **v, long *line, struct err *e)
{
    for (;;) {
        char *s;
        size_t n;
        int got = next_line(j, &s, &n, e);
        if (got <= 0)
            return got < 0 ? -2 : 0;
        *line = ++j->line;
        j->text = s;
        j->size = n;
        if (blank(s, n))
            continue;
        char where[256];
        snprintf(where, sizeof where, "%s: line %ld", input_name(j->in), j->line);
        *v = json_parse(s, n, where, e);
        return *v ? 1 : -1;
    }
}

json_t *jsonl_refused_id(const struct jsonl *j)
{
    char *text = repaired(j->text, j->size);
    struct err ignored = {0};
    json_t *v = json_parse(text, j->size, "", &ignored), *id = json_incref(json_object_get(v, "id"));
    json_decref(v);
    free(text);
    return id;
}

void jsonl_close(struct jsonl *j)
{
    if (!j)
        return;
    input_close(j->in);
    free(j->data);
    free(j);
}
