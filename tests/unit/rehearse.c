/* Event-stream frames as sm-local writes them: byte for byte, and read back by the client's parser. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "aws/eventstream.h"
#include "rehearse/frame.h"

/* A PayloadPart with "data: {}\n\n" and a ModelStreamError, both accepted by botocore's parser. */
static const char PART[] =
    "0000007300000059c9e7ac260d3a6d6573736167652d747970650700056576656e740b3a6576656e742d7479706507000b5061796c6f6164506172740d3a636f6e74656e742d747970650700186170706c69636174"
    "696f6e2f6f637465742d73747265616d646174613a207b7d0a0af36f36e9";
static const char EXCEPTION[] =
    "000000980000005e0887cf4b0d3a6d6573736167652d74797065070009657863657074696f6e0f3a657863657074696f6e2d747970650700104d6f64656c53747265616d4572726f720d3a636f6e74656e742d7479"
    "70650700106170706c69636174696f6e2f6a736f6e7b224d657373616765223a2278222c224572726f72436f6465223a2253747265616d42726f6b656e227db53d3885";

static void is_hex(const struct buf *b, const char *hex)
{
    char two[3];
    assert(b->n == strlen(hex) / 2);
    for (size_t i = 0; i < b->n; i++) {
        snprintf(two, sizeof two, "%02x", (unsigned char)b->data[i]);
        assert(!memcmp(two, hex + 2 * i, 2));
    }
}

static int take(void *arg, const struct eventstream_frame *f, struct err *e)
{
    struct buf *got = arg;
    int part = eventstream_part(f, e);
    if (part == 1) buf_add(got, f->payload, f->payload_n);
    return part < 0 ? -1 : 0;
}

int main(void)
{
    struct buf out = BUF_INIT, got = BUF_INIT;
    struct eventstream s = {0};
    struct err e = {0};
    frame_part(&out, "data: {}\n\n", 10);
    is_hex(&out, PART);
    puts("ok a part's bytes");
    buf_free(&out);
    frame_exception(&out, "ModelStreamError", "{\"Message\":\"x\",\"ErrorCode\":\"StreamBroken\"}");
    is_hex(&out, EXCEPTION);
    puts("ok an exception's bytes");
    buf_free(&out);
    frame_part(&out, "one, ", 5);
    frame_part(&out, "", 0);
    frame_part(&out, "two", 3);
    for (size_t i = 0; i < out.n; i++) assert(!eventstream_feed(&s, out.data + i, 1, take, &got, &e));
    assert(!eventstream_end(&s, &e) && !strcmp(got.data, "one, two"));
    puts("ok frames read back, a byte at a time");
    out.data[out.n - 1] = (char)(out.data[out.n - 1] ^ 1);
    assert(eventstream_feed(&s, out.data, out.n, take, &got, &e) < 0 && e.code == EXIT_DATA);
    puts("ok a wrong checksum is seen");
    eventstream_free(&s);
    buf_free(&out);
    buf_free(&got);
    return 0;
}
