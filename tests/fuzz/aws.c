/* Bytes as an event stream, cut at a place that they name themselves: the same frames and the same fault as in one piece.  And as lines of a container's log, and as an
 * error answer. */
#include <stdlib.h>
#include <string.h>
#include "aws/containerlog.h"
#include "aws/eventstream.h"
#include "aws/send.h"
#include "base/json.h"
#include "fuzz.h"

static int note(void *arg, const struct eventstream_frame *f, struct err *e)
{
    struct buf *out = arg;
    struct err fault = {0};
    char type[64];
    (void)e;
    buf_printf(out, "%zu %d %d;", f->payload_n, eventstream_part(f, &fault), eventstream_header(f, ":message-type", type, sizeof type));
    buf_add(out, f->payload, f->payload_n);
    return 0;
}

static void feed(const char *p, size_t n, size_t cut, struct buf *out)
{
    struct eventstream s = {0};
    struct err e = {0};
    int bad = eventstream_feed(&s, p, cut, note, out, &e);
    if (!bad) bad = eventstream_feed(&s, p + cut, n - cut, note, out, &e);
    if (!bad) bad = eventstream_end(&s, &e);
    buf_printf(out, "%d %s", bad, e.msg);
    eventstream_free(&s);
}

/* The fault of an answer, in JSON, XML or in its header lines. */
static void error_answer(const char *p, size_t n)
{
    struct aws_answer a = {.http.status = 400};
    char value[40];
    char *text = xstrndup(p, n);
    buf_add(&a.http.head, p, n);
    aws_read_error(&a.http, text, n, &a);
    if (strlen(a.code) >= sizeof a.code || strlen(a.message) >= sizeof a.message)
        abort();
    (void)aws_learn_clock(&a);
    if (aws_xml(text, "ETag", value, sizeof value) && strlen(value) >= sizeof value)
        abort();
    free(text);
    aws_answer_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *p = (const char *)data;
    struct buf whole = BUF_INIT, pieces = BUF_INIT;
    feed(p, n, n, &whole);
    feed(p, n, n ? data[n - 1] % (n + 1) : 0, &pieces);
    if (whole.n != pieces.n || memcmp(whole.data, pieces.data, whole.n)) abort();
    struct containerlog *l = containerlog_new();
    for (size_t at = 0, len; at < n; at += len + 1) {
        const char *end = memchr(p + at, '\n', n - at);
        len = end ? (size_t)(end - p) - at : n - at;
        containerlog_line(l, p + at, len);
    }
    json_t *facts = containerlog_facts(l);
    free(json_text(facts, true));
    json_decref(facts);
    containerlog_free(l);
    error_answer(p, n);
    buf_free(&whole);
    buf_free(&pieces);
    return 0;
}
