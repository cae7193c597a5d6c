#include "base/jsonscan.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "base/utf8.h"

void jscan_init(struct jscan *s, const char *text, size_t n, const char *name, struct err *e)
{
    *s = (struct jscan){.begin = text, .at = text, .end = text + n, .name = name, .e = e, .text = BUF_INIT};
}

void jscan_free(struct jscan *s)
{
    buf_free(&s->text);
}

void jscan_fork(const struct jscan *s, struct jscan *copy)
{
    *copy = *s;
    copy->text = (struct buf)BUF_INIT;
}

int jscan_fail(struct jscan *s, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    size_t offset = (size_t)(s->at - s->begin);
    s->at = s->end;                     /* whatever is asked next fails as well */
    return err_set(s->e, EXIT_DATA, "%s: byte %zu: %s", s->name, offset, what);
}

/* --- tokens ----------------------------------------------------------------------------------------------------------- */

static void skip_space(struct jscan *s)
{
    const char *p = s->at;
    while (p < s->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    s->at = p;
}

static int unexpected(struct jscan *s, const char *wanted)
{
    if (s->at == s->end)
        return jscan_fail(s, "the JSON ends early: expected %s: the file is cut short", wanted);
    return jscan_fail(s, "expected %s, but found byte 0x%02x", wanted, (unsigned char)*s->at);
}

char jscan_peek(struct jscan *s)
{
    skip_space(s);
    if (s->at == s->end)
        return 0;
    char c = *s->at;
    switch (c) {
    case '{': case '[': case '"': case 't': case 'f': case 'n': return c;
    default: return c == '-' || (c >= '0' && c <= '9') ? '0' : 0;
    }
}

int jscan_open(struct jscan *s, char bracket)
{
    if (jscan_peek(s) != bracket)
        return unexpected(s, bracket == '{' ? "an object" : "an array");
    s->at++;
    s->fresh = true;
    return 0;
}

static int next_element(struct jscan *s, char close)
{
    skip_space(s);
    if (s->at < s->end && *s->at == close) {
        s->at++;
        s->fresh = false;
        return 0;
    }
    if (s->fresh) {
        s->fresh = false;
        return 1;
    }
    if (s->at == s->end || *s->at != ',')
        return unexpected(s, close == '}' ? "a comma or }" : "a comma or ]");
    s->at++;
    skip_space(s);
    return 1;
}

int jscan_item(struct jscan *s)
{
    return next_element(s, ']');
}

int jscan_key(struct jscan *s, const char **key, size_t *n)
{
    int r = next_element(s, '}');
    if (r <= 0)
        return r;
    if (jscan_string(s, key, n) != 0)
        return -1;
    skip_space(s);
    if (s->at == s->end || *s->at != ':')
        return unexpected(s, "a colon");
    s->at++;
    return 1;
}

/* --- strings ---------------------------------------------------------------------------------------------------------- */

static int hex4(struct jscan *s, uint32_t *v)
{
    *v = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        if (s->at == s->end)
            return unexpected(s, "four hexadecimal digits");
        const int digit = hex_digit(*s->at);
        if (digit < 0)
            return unexpected(s, "four hexadecimal digits");
        *v = *v << 4 | (uint32_t)digit;
    }
    return 0;
}

/* Behind "\u".  A high surrogate must be followed by a low one. */
static int unicode_escape(struct jscan *s)
{
    uint32_t c, low;
    if (hex4(s, &c) != 0)
        return -1;
    if (c >= 0xD800 && c < 0xDC00) {
        if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
            return jscan_fail(s, "a high surrogate without its low one");
        s->at += 2;
        if (hex4(s, &low) != 0)
            return -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return jscan_fail(s, "a high surrogate without its low one");
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    } else if (c >= 0xDC00 && c < 0xE000) {
        return jscan_fail(s, "a low surrogate without its high one");
    }
    utf8_add(&s->text, c);
    return 0;
}

static int escape(struct jscan *s)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    s->at++;
    if (s->at == s->end)
        return unexpected(s, "an escape");
    if (*s->at == 'u') {
        s->at++;
        return unicode_escape(s);
    }
    const char *f = *s->at ? strchr(from, *s->at) : NULL;
    if (f == NULL)
        return unexpected(s, "an escape");
    s->at++;
    buf_char(&s->text, to[f - from]);
    return 0;
}

/* Up to the closing quote or the next backslash. */
static int plain_run(struct jscan *s)
{
    while (s->at < s->end && *s->at != '"' && *s->at != '\\') {
        unsigned char c = (unsigned char)*s->at;
        if (c < 0x20)
            return jscan_fail(s, "a control character in a string");
        size_t len = c < 0x80 ? 1 : utf8_decode(s->at, (size_t)(s->end - s->at), NULL);
        if (len == 0)
            return jscan_fail(s, "a string that is invalid UTF-8");
        s->at += len;
    }
    return s->at < s->end ? 0 : unexpected(s, "the end of a string");
}

int jscan_string(struct jscan *s, const char **text, size_t *n)
{
    if (jscan_peek(s) != '"')
        return unexpected(s, "a string");
    const char *run = ++s->at;
    if (plain_run(s) != 0)
        return -1;
    if (*s->at == '"') {                /* no escapes: the input itself */
        *text = run;
        *n = (size_t)(s->at++ - run);
        return 0;
    }
    s->text.n = 0;
    for (;;) {
        buf_add(&s->text, run, (size_t)(s->at - run));
        if (*s->at == '"')
            break;
        if (escape(s) != 0)
            return -1;
        run = s->at;
        if (plain_run(s) != 0)
            return -1;
    }
    s->at++;
    *text = s->text.data;
    *n = s->text.n;
    return 0;
}

/* --- numbers and words -------------------------------------------------------------------------------------------------- */

static size_t digits(struct jscan *s)
{
    const char *p = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return (size_t)(s->at - p);
}

int jscan_int(struct jscan *s, long min, long max, long *v)
{
    if (jscan_peek(s) != '0')
        return unexpected(s, "a whole number");
    const char *start = s->at;
    bool negative = *s->at == '-';
    s->at += negative;
    const char *p = s->at;
    size_t n = digits(s);
    if (n == 0 || n > 15 || (n > 1 && *p == '0') || (s->at < s->end && strchr(".eE", *s->at) && *s->at)) {
        s->at = start;
        return jscan_fail(s, "expected a whole number from %ld to %ld", min, max);
    }
    long value = 0;
    for (; p < s->at; p++)
        value = value * 10 + (*p - '0');
    value = negative ? -value : value;
    if (value < min || value > max) {
        s->at = start;
        return jscan_fail(s, "%ld is not from %ld to %ld", value, min, max);
    }
    *v = value;
    return 0;
}

static int skip_number(struct jscan *s)
{
    s->at += *s->at == '-';
    const char *p = s->at;
    size_t n = digits(s);
    if (n == 0 || (n > 1 && *p == '0'))
        return unexpected(s, "a number");
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (digits(s) == 0)
            return unexpected(s, "a digit");
    }
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
            s->at++;
        if (digits(s) == 0)
            return unexpected(s, "a digit");
    }
    return 0;
}

static int word(struct jscan *s, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, w, n) != 0)
        return unexpected(s, w);
    s->at += n;
    return 0;
}

int jscan_bool(struct jscan *s, bool *v)
{
    char c = jscan_peek(s);
    if (c != 't' && c != 'f')
        return unexpected(s, "true or false");
    *v = c == 't';
    return word(s, *v ? "true" : "false");
}

/* --- whole values --------------------------------------------------------------------------------------------------------- */

static int skip_value(struct jscan *s, int depth)
{
    const char *text;
    size_t n;
    int r;
    char c = jscan_peek(s);
    switch (c) {
    case '"': return jscan_string(s, &text, &n);
    case '0': return skip_number(s);
    case 't': return word(s, "true");
    case 'f': return word(s, "false");
    case 'n': return word(s, "null");
    case '{': case '[': break;
    default: return unexpected(s, "a value");
    }
    if (depth == JSCAN_DEPTH)
        return jscan_fail(s, "nested more than %d deep", JSCAN_DEPTH);
    if (jscan_open(s, c) != 0)
        return -1;
    while ((r = c == '{' ? jscan_key(s, &text, &n) : jscan_item(s)) == 1)
        if (skip_value(s, depth + 1) != 0)
            return -1;
    return r;
}

int jscan_skip(struct jscan *s)
{
    return skip_value(s, 0);
}

int jscan_done(struct jscan *s)
{
    skip_space(s);
    return s->at == s->end ? 0 : unexpected(s, "the end of the file");
}
