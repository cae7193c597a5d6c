#include "rehearse/call.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/percent.h"

/* --- answers -------------------------------------------------------------------------------------------------------- */

void call_fields(struct call *c)
{
    char line[128], date[40];
    struct tm tm;
    time_t t = (time_t)world_now(c->w);
    gmtime_r(&t, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    snprintf(line, sizeof line, "Date: %s", date);
    exchange_field(c->x, line);
    snprintf(line, sizeof line, c->wire == WIRE_XML ? "x-amz-request-id: %s" : "x-amzn-RequestId: %s", c->request_id);
    exchange_field(c->x, line);
}

static void answer(struct call *c, int status, const char *type, const char *text, size_t n)
{
    struct exchange *x = c->x;
    c->x = NULL;
    if (c->lose) exchange_cut(x);
    else exchange_answer(x, status, type, text, n, NULL);
}

static const char *type_of(const struct call *c)
{
    return c->wire == WIRE_JSON ? "application/x-amz-json-1.1" : c->wire == WIRE_REST ? "application/json" : c->wire == WIRE_QUERY ? "text/xml" : "application/xml";
}

void call_json(struct call *c, json_t *out)
{
    char *text = out ? json_text(out, false) : xstrdup("");
    call_fields(c);
    answer(c, 200, type_of(c), text, strlen(text));
    free(text);
    json_decref(out);
}

void call_xml(struct call *c, int status, const struct buf *xml)
{
    call_fields(c);
    answer(c, status, type_of(c), xml->data ? xml->data : "", xml->n);
}

static void xml_error(struct buf *b, const struct call *c, const char *code, const char *message)
{
    bool query = c->wire == WIRE_QUERY;
    if (query) buf_printf(b, "<ErrorResponse xmlns=\"https://%s.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>", c->service);
    else buf_str(b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
    buf_printf(b, "<Code>%s</Code><Message>", code);
    xml_escape(b, message);
    buf_str(b, "</Message>");
    if (query) buf_printf(b, "</Error><RequestId>%s</RequestId></ErrorResponse>", c->request_id);
    else buf_printf(b, "<RequestId>%s</RequestId></Error>", c->request_id);
}

static void json_error(struct buf *b, struct call *c, const char *code, const char *message)
{
    json_t *o = json_object();
    if (c->wire == WIRE_JSON) json_object_set_new(o, "__type", json_string(code));
    json_object_set_new(o, c->wire == WIRE_JSON ? "message" : "Message", json_message(message));
    char *text = json_text(o, false);
    buf_str(b, text);
    free(text);
    json_decref(o);
}

void call_error(struct call *c, int status, const char *code, const char *fmt, ...)
{
    char message[1024], line[128];
    struct buf b = BUF_INIT;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    note_msg("%s %s %s: %d %s: %s", c->service, c->region, c->op, status, code, message);
    call_fields(c);
    if (c->wire == WIRE_REST) {
        snprintf(line, sizeof line, "x-amzn-ErrorType: %s", code);
        exchange_field(c->x, line);
    }
    if (c->wire == WIRE_JSON || c->wire == WIRE_REST) json_error(&b, c, code, message);
    else xml_error(&b, c, code, message);
    answer(c, status, type_of(c), b.data, b.n);
    buf_free(&b);
}

void call_invalid(struct call *c, const char *fmt, ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    call_error(c, 400, "ValidationException", "%s", message);
}

/* --- requests ------------------------------------------------------------------------------------------------------- */

const char *call_str(const struct call *c, const char *key) { return json_string_value(json_object_get(c->in, key)); }

long call_int(const struct call *c, const char *key, long def)
{
    const json_t *v = json_object_get(c->in, key);
    return json_is_integer(v) ? (long)json_integer_value(v) : def;
}

char *url_decode(const char *p, size_t n, bool plus)
{
    struct buf b = BUF_INIT;
    percent_decode(&b, p, n, plus);
    buf_char(&b, 0);
    return b.data;
}

char *query_get(const char *query, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = query; *p;) {
        size_t n = strcspn(p, "&");
        if (n >= len && !strncmp(p, name, len) && (n == len || p[len] == '=')) return url_decode(p + len + (n > len), n - len - (n > len), true);
        p += n + (p[n] == '&');
    }
    return NULL;
}

void xml_escape(struct buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '<') buf_str(b, "&lt;");
        else if (*s == '>') buf_str(b, "&gt;");
        else if (*s == '&') buf_str(b, "&amp;");
        else if (*s == '"') buf_str(b, "&quot;");
        else if ((unsigned char)*s < ' ' || *s == 127) buf_printf(b, "&#%d;", *s);
        else buf_char(b, *s);
    }
}

static char *xml_unescape(const char *p, size_t n)
{
    static const struct { const char *name; char c; } ENTITIES[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
    char *out = xmalloc(n + 1), *w = out;
    for (size_t i = 0; i < n; i++) {
        size_t skip = 0;
        for (size_t k = 0; k < sizeof ENTITIES / sizeof *ENTITIES; k++) {
            size_t len = strlen(ENTITIES[k].name);
            if (n - i < len || memcmp(p + i, ENTITIES[k].name, len)) continue;
            *w++ = ENTITIES[k].c;
            skip = len;
            break;
        }
        if (skip) i += skip - 1;
        else *w++ = p[i];
    }
    *w = 0;
    return out;
}

char *xml_next(const char **at, const char *name)
{
    char open[64], close[64];
    snprintf(open, sizeof open, "<%s>", name);
    snprintf(close, sizeof close, "</%s>", name);
    const char *from = strstr(*at, open);
    const char *to = from ? strstr(from, close) : NULL;
    if (!to) return NULL;
    from += strlen(open);
    *at = to + strlen(close);
    return xml_unescape(from, (size_t)(to - from));
}
