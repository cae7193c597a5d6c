/* Server-sent events: the same events however the bytes are cut, every line end, what is no event. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "net/sse.h"

static int collect(void *arg, const char *data, size_t n, struct err *e)
{
    struct buf *out = arg;
    (void)e;
    assert(data[n] == 0);
    buf_char(out, '<');
    buf_add(out, data, n);
    buf_char(out, '>');
    return n == 4 && !memcmp(data, "stop", 4) ? -1 : 0;
}

/* Feed text in pieces of `step` bytes. */
static int feed(const char *text, size_t step, struct buf *out, bool *pending)
{
    struct sse s = {0};
    struct err e = {0};
    int rc = 0;
    size_t n = strlen(text);
    out->n = 0;
    for (size_t i = 0; i < n && !rc; i += step) rc = sse_feed(&s, text + i, n - i < step ? n - i : step, collect, out, &e);
    *pending = sse_pending(&s);
    sse_free(&s);
    return rc;
}

static void gives(const char *text, const char *events, bool left)
{
    struct buf out = BUF_INIT;
    bool pending;
    for (size_t step = 1; step <= strlen(text); step++) {
        assert(feed(text, step, &out, &pending) == 0);
        if (out.n != strlen(events) || (out.n && memcmp(out.data, events, out.n)) || pending != left) {
            printf("%s in pieces of %zu: expected %s, got %s\n", text, step, events, out.n ? out.data : "");
            assert(0);
        }
    }
    buf_free(&out);
}

int main(void)
{
    gives("data: a\n\ndata: b\n\n", "<a><b>", false);
    gives("data: a\r\n\r\ndata: b\r\rdata:c\n\n", "<a><b><c>", false);
    puts("all three line ends, cut anywhere");
    gives("data: a\ndata: b\n\n", "<a\nb>", false);
    gives("data:  two\n\ndata\n\n", "< two>", false);
    gives(": note\nid: 7\nevent: x\nretry: 1\n\ndata: a\n\n", "<a>", false);
    gives("data:\n\n", "<>", false);
    puts("fields, comments, several data lines");
    gives("data: a\n\ndata: cut", "<a>", true);
    gives("data: a\n\ndata: cut\n", "<a>", true);
    puts("an event without its end never happened");
    struct buf out = BUF_INIT;
    bool pending;
    assert(feed("data: stop\n\ndata: b\n\n", 3, &out, &pending) == -1 && !strcmp(out.data, "<stop>"));
    puts("a handler can stop it");
    struct sse s = {0};
    struct err e = {0};
    char much[65536];
    int rc = 0;
    memset(much, 'x', sizeof much);
    for (int i = 0; i < 300 && !rc; i++) rc = sse_feed(&s, much, sizeof much, collect, &out, &e);
    assert(rc == -1 && e.code == EXIT_DATA && s.line.n <= (size_t)17 << 20);
    sse_free(&s);
    buf_free(&out);
    puts("a line without end is refused");
    return 0;
}
