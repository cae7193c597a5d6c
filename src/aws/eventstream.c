#include "aws/eventstream.h"

#include <string.h>
#include "base/json.h"

#define PRELUDE 12
#define FRAME_MAX (EVENTSTREAM_HEADERS_MAX + EVENTSTREAM_PAYLOAD_MAX + PRELUDE + 4)

/* The reflected polynomial 0xEDB88320, four bits at a time. */
uint32_t eventstream_crc32(const void *p, size_t n)
{
    static const uint32_t nibble[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const unsigned char *b = p;
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= b[i];
        c = (c >> 4) ^ nibble[c & 15];
        c = (c >> 4) ^ nibble[c & 15];
    }
    return ~c;
}

static uint32_t be32(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static size_t be16(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (size_t)(b[0] << 8 | b[1]);
}

/* Walk to the next header; 1 = found, 0 = end, -1 = they do not fit. */
static int next_header(const char **at, const char *end, const char **name, size_t *name_n, int *type, const char **value, size_t *value_n)
{
    static const size_t fixed[] = {0, 0, 1, 2, 4, 8, 0, 0, 8, 16};
    const char *p = *at;
    if (p == end) return 0;
    *name_n = (unsigned char)*p++;
    if ((size_t)(end - p) < *name_n + 1) return -1;
    *name = p;
    p += *name_n;
    *type = (unsigned char)*p++;
    if (*type > 9) return -1;
    *value_n = fixed[*type];
    if (*type == 6 || *type == 7) {
        if (end - p < 2) return -1;
        *value_n = be16(p);
        p += 2;
    }
    if ((size_t)(end - p) < *value_n) return -1;
    *value = p;
    *at = p + *value_n;
    return 1;
}

bool eventstream_header(const struct eventstream_frame *f, const char *name, char *out, size_t n)
{
    const char *at = f->headers, *key, *value;
    size_t key_n, value_n;
    int type;
    while (next_header(&at, f->headers + f->headers_n, &key, &key_n, &type, &value, &value_n) == 1) {
        if (key_n != strlen(name) || memcmp(key, name, key_n)) continue;
        if (type != 7 || value_n >= n) return false;
        memcpy(out, value, value_n);
        out[value_n] = 0;
        return true;
    }
    return false;
}

static int check_prelude(const char *p, struct err *e)
{
    uint32_t total = be32(p), headers = be32(p + 4);
    if (eventstream_crc32(p, 8) != be32(p + 8)) return err_set(e, EXIT_DATA, "event stream: the checksum of a frame's length is wrong");
    if (total < PRELUDE + 4 || headers > total - PRELUDE - 4) return err_set(e, EXIT_DATA, "event stream: a frame's lengths contradict each other");
    if (total > FRAME_MAX || headers > EVENTSTREAM_HEADERS_MAX || total - headers - PRELUDE - 4 > EVENTSTREAM_PAYLOAD_MAX)
        return err_set(e, EXIT_DATA, "event stream: a frame of %lu bytes is too long", (unsigned long)total);
    return 0;
}

static int take(const char *p, size_t total, eventstream_fn *fn, void *arg, struct err *e)
{
    size_t headers = be32(p + 4);
    struct eventstream_frame f = {p + PRELUDE, headers, p + PRELUDE + headers, total - headers - PRELUDE - 4};
    if (eventstream_crc32(p, total - 4) != be32(p + total - 4)) return err_set(e, EXIT_DATA, "event stream: the checksum of a frame is wrong");
    const char *at = f.headers, *key, *value;
    size_t key_n, value_n;
    int type, more;
    while ((more = next_header(&at, f.headers + headers, &key, &key_n, &type, &value, &value_n)) == 1) continue;
    if (more < 0) return err_set(e, EXIT_DATA, "event stream: a frame's headers do not fit");
    return fn(arg, &f, e);
}

int eventstream_feed(struct eventstream *s, const char *p, size_t n, eventstream_fn *fn, void *arg, struct err *e)
{
    struct buf *b = &s->frame;
    while (n) {
        size_t want = PRELUDE;
        if (b->n >= PRELUDE) want = be32(b->data);
        size_t step = want - b->n < n ? want - b->n : n;
        buf_add(b, p, step);
        p += step;
        n -= step;
        if (b->n < want) return 0;
        if (want == PRELUDE) {
            if (check_prelude(b->data, e)) return -1;
            continue;
        }
        int stop = take(b->data, want, fn, arg, e);
        b->n = 0;
        if (stop) return stop;
    }
    return 0;
}

int eventstream_end(const struct eventstream *s, struct err *e)
{
    if (!s->frame.n) return 0;
    return err_set(e, EXIT_UNAVAILABLE, "the event stream broke off inside a frame, after %zu of its bytes", s->frame.n);
}

void eventstream_free(struct eventstream *s)
{
    buf_free(&s->frame);
}

int eventstream_part(const struct eventstream_frame *f, struct err *e)
{
    char type[64], name[128] = "", code[128] = "", text[512] = "";
    if (!eventstream_header(f, ":message-type", type, sizeof type)) return 0;
    if (!strcmp(type, "event")) return eventstream_header(f, ":event-type", name, sizeof name) && !strcmp(name, "PayloadPart");
    if (!strcmp(type, "error")) {
        eventstream_header(f, ":error-code", name, sizeof name);
        eventstream_header(f, ":error-message", text, sizeof text);
        return err_set(e, EXIT_UNAVAILABLE, "the stream ended with an error: %s: %s", *name ? name : "no code", text);
    }
    if (strcmp(type, "exception")) return 0;
    eventstream_header(f, ":exception-type", name, sizeof name);
    struct err ignored = {0};
    json_t *body = json_parse(f->payload, f->payload_n, "exception", &ignored);
    const char *s = json_string_value(json_object_get(body, "Message"));
    if (!s) s = json_string_value(json_object_get(body, "message"));
    if (s) snprintf(text, sizeof text, "%s", s);
    s = json_string_value(json_object_get(body, "ErrorCode"));
    if (s) snprintf(code, sizeof code, "%s", s);
    json_decref(body);
    return err_set(e, !strcmp(code, "ModelInvocationTimeExceeded") ? EXIT_TEMPFAIL : EXIT_UNAVAILABLE, "the stream ended with %s%s%s: %s", *name ? name : "an exception",
        *code ? ", " : "", code, text);
}
