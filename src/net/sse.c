#include "net/sse.h"

#include <string.h>

#define EVENT_MAX ((size_t)16 << 20)

/* A complete line: a field, or the blank line that ends the event. */
static int line_done(struct sse *s, sse_event *fn, void *arg, struct err *e)
{
    int rc = 0;
    if (s->line.n == 0) {
        if (s->has_data) rc = fn(arg, s->data.data ? s->data.data : "", s->data.n, e);
        s->data.n = 0;
        s->has_data = false;
    } else if (s->line.n >= 5 && !memcmp(s->line.data, "data:", 5)) {
        size_t skip = s->line.n > 5 && s->line.data[5] == ' ' ? 6 : 5;
        if (s->has_data) buf_char(&s->data, '\n');
        buf_add(&s->data, s->line.data + skip, s->line.n - skip);
        s->has_data = true;
    }
    s->line.n = 0;
    return rc;
}

int sse_feed(struct sse *s, const char *p, size_t n, sse_event *fn, void *arg, struct err *e)
{
    const char *end = p + n;
    while (p < end) {
        if (s->after_cr && *p == '\n') {        /* the second half of \r\n */
            s->after_cr = false;
            p++;
            continue;
        }
        s->after_cr = false;
        size_t run = 0;
        while (p + run < end && p[run] != '\n' && p[run] != '\r') run++;
        if (run > EVENT_MAX - s->line.n || s->line.n + run > EVENT_MAX - s->data.n)
            return err_set(e, EXIT_DATA, "an event of more than 16 MiB in the stream");
        buf_add(&s->line, p, run);
        p += run;
        if (p == end) break;
        s->after_cr = *p++ == '\r';
        int rc = line_done(s, fn, arg, e);
        if (rc) return rc;
    }
    return 0;
}

bool sse_pending(const struct sse *s)
{
    return s->line.n || s->has_data;
}

void sse_free(struct sse *s)
{
    buf_free(&s->line);
    buf_free(&s->data);
}
