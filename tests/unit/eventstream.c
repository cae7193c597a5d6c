/* Event streams: every recorded framing gives its events and its fault, in the recorded pieces, byte by byte, and whole. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "aws/eventstream.h"
#include "base/json.h"

struct seen { const json_t *events; size_t n; const char *id; };

static int check(void *arg, const struct eventstream_frame *f, struct err *e)
{
    struct seen *s = arg;
    const json_t *want = json_array_get(s->events, s->n++), *value;
    const char *key;
    char got[600];
    (void)e;
    assert(want);
    json_object_foreach((json_t *)json_object_get(want, "headers"), key, value) {
        if (!json_is_string(value)) continue;           /* other types are skipped over */
        assert(eventstream_header(f, key, got, sizeof got));
        assert(!strcmp(got, json_string_value(value)));
    }
    assert(!eventstream_header(f, ":no-such-header", got, sizeof got));
    const json_t *payload = json_object_get(want, "payload");
    if (payload) assert(f->payload_n == json_string_length(payload) && !memcmp(f->payload, json_string_value(payload), f->payload_n));
    return 0;
}

static char *unhex(const char *hex, size_t *n)
{
    *n = strlen(hex) / 2;
    char *out = xmalloc(*n + 1);
    for (size_t i = 0; i < *n; i++) {
        unsigned byte;
        assert(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        out[i] = (char)byte;
    }
    return out;
}

/* Feed in pieces: of `step` bytes, or as recorded when step is 0; exact copies, so that a sanitizer sees every byte too far. */
static void feed(const json_t *v, const char *data, size_t n, size_t step)
{
    struct seen s = {.events = json_object_get(v, "events"), .id = json_string_value(json_object_get(v, "id"))};
    struct eventstream stream = {0};
    struct err e = {0};
    const char *fault = json_string_value(json_object_get(v, "error"));
    size_t at = 0, piece = 0;
    int bad = 0;
    while (at < n && !bad) {
        size_t len = step ? step : (size_t)json_integer_value(json_array_get(json_object_get(v, "reads"), piece++));
        if (!len || len > n - at) len = n - at;
        char *copy = xmalloc(len);
        memcpy(copy, data + at, len);
        bad = eventstream_feed(&stream, copy, len, check, &s, &e);
        free(copy);
        at += len;
    }
    assert(s.n == json_array_size(s.events));
    if (!bad) bad = eventstream_end(&stream, &e);
    if (!fault) assert(!bad);
    else assert(bad && e.code == (strcmp(fault, "truncated") ? EXIT_DATA : EXIT_UNAVAILABLE));
    if (fault && strcmp(fault, "truncated") && strcmp(fault, "too long")) assert(strstr(e.msg, "checksum"));
    eventstream_free(&stream);
}

static int judge(void *arg, const struct eventstream_frame *f, struct err *e)
{
    *(int *)arg = eventstream_part(f, e);
    return 0;
}

static void parts(const char *id, const char *hex)
{
    struct eventstream s = {0};
    struct err fault = {0};
    size_t len;
    int last = 9;
    char *data = unhex(hex, &len);
    if (!eventstream_feed(&s, data, len, judge, &last, &fault)) {
        if (!strcmp(id, "exception")) assert(last == -1 && fault.code == EXIT_UNAVAILABLE && strstr(fault.msg, "ModelStreamError, StreamBroken: the container went away"));
        if (!strcmp(id, "exception-first")) assert(last == -1 && fault.code);
        if (!strcmp(id, "error-frame")) assert(last == -1 && strstr(fault.msg, "the stream ended with an error: InternalError: something broke"));
        if (!strcmp(id, "chat")) assert(last == 1);
    }
    free(data);
    eventstream_free(&s);
}

static void put32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (char)(v >> (24 - 8 * i));
}

static int nothing(void *arg, const struct eventstream_frame *f, struct err *e)
{
    (void)arg, (void)f, (void)e;
    return 0;
}

/* A frame of these lengths around one header, its checksums as they must be but for what is flipped. */
static void refused(uint32_t total, uint32_t headers, const char *header, size_t flip, const char *says)
{
    char frame[64] = {0};
    struct err e = {0};
    struct eventstream s = {0};
    put32(frame, total);
    put32(frame + 4, headers);
    put32(frame + 8, eventstream_crc32(frame, 8));
    memcpy(frame + 12, header, strlen(header));
    put32(frame + 28, eventstream_crc32(frame, 28));
    if (flip) frame[flip] ^= 1;
    assert(eventstream_feed(&s, frame, 32, nothing, NULL, &e) && e.code == EXIT_DATA);
    if (!strstr(e.msg, says)) fprintf(stderr, "expected \"%s\", found \"%s\"\n", says, e.msg);
    assert(strstr(e.msg, says));
    eventstream_free(&s);
}

static void faults_are_named(void)
{
    refused(32, 0, "", 8, "event stream: the checksum of a frame's length is wrong");
    refused(32, 100, "", 0, "event stream: a frame's lengths contradict each other");
    refused(1u << 30, 0, "", 0, "event stream: a frame of 1073741824 bytes is too long");
    refused(32, 0, "", 20, "event stream: the checksum of a frame is wrong");
    refused(32, 3, "\x7fxx", 0, "event stream: a frame's headers do not fit");
    puts("event stream: each fault in its words");
}

int main(void)
{
    prog_init("eventstream");
    struct err e = {0};
    char *path = xasprintf("%s/tests/golden/aws/eventstream.jsonl", getenv("Q4ROOT") ? getenv("Q4ROOT") : ".");
    struct jsonl *j = jsonl_open(path, &e);
    if (!j) die(&e);
    json_t *v;
    long line;
    int n = 0;
    while (jsonl_next(j, &v, &line, &e) == 1) {
        const char *id = json_string_value(json_object_get(v, "id")), *hex = json_string_value(json_object_get(v, "hex"));
        size_t len;
        char *data = unhex(hex, &len);
        feed(v, data, len, 0);
        for (size_t step = 1; step < 40 && step <= len; step++) feed(v, data, len, step);
        feed(v, data, len, len);
        parts(id, hex);
        printf("%s\n", id);
        free(data);
        json_decref(v);
        n++;
    }
    assert(n == 17);
    faults_are_named();
    assert(eventstream_crc32("123456789", 9) == 0xcbf43926u);
    jsonl_close(j);
    free(path);
    return 0;
}
