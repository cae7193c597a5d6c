#include "rehearse/frame.h"

#include <string.h>
#include "aws/eventstream.h"

static void add_u32(struct buf *b, size_t v)
{
    char bytes[4] = {(char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v};
    buf_add(b, bytes, sizeof bytes);
}

static void add_header(struct buf *b, const char *name, const char *value)
{
    size_t n = strlen(value);
    buf_char(b, (char)strlen(name));
    buf_str(b, name);
    char type_and_length[3] = {7, (char)(n >> 8), (char)n};
    buf_add(b, type_and_length, sizeof type_and_length);
    buf_str(b, value);
}

static void frame(struct buf *out, const struct buf *headers, const char *payload, size_t n)
{
    size_t from = out->n;
    add_u32(out, 16 + headers->n + n);
    add_u32(out, headers->n);
    add_u32(out, eventstream_crc32(out->data + from, 8));
    buf_add(out, headers->data, headers->n);
    buf_add(out, payload, n);
    add_u32(out, eventstream_crc32(out->data + from, out->n - from));
}

void frame_part(struct buf *out, const char *payload, size_t n)
{
    struct buf h = BUF_INIT;
    add_header(&h, ":message-type", "event");
    add_header(&h, ":event-type", "PayloadPart");
    add_header(&h, ":content-type", "application/octet-stream");
    frame(out, &h, payload, n);
    buf_free(&h);
}

void frame_exception(struct buf *out, const char *type, const char *json)
{
    struct buf h = BUF_INIT;
    add_header(&h, ":message-type", "exception");
    add_header(&h, ":exception-type", type);
    add_header(&h, ":content-type", "application/json");
    frame(out, &h, json, strlen(json));
    buf_free(&h);
}
