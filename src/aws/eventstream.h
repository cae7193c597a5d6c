/* AWS event stream frames (application/vnd.amazon.eventstream), put together from pieces cut anywhere.
 *
 * Owns: the frame layout, both checksums, the caps.  Refuses (EXIT_DATA): a wrong checksum, a frame longer than 24 MiB + 128 KiB, headers that
 * do not fit their frame.  The end of the body inside a frame is EXIT_UNAVAILABLE (eventstream_end).
 *
 * Layout, big-endian: total length u32, headers length u32, CRC-32 of these 8 bytes, headers, payload, CRC-32 of all before it.  A header: name length u8,
 * name, type u8, value; types 0 true, 1 false, 2 i8, 3 i16, 4 i32, 5 i64, 6 bytes and 7 string (u16 length), 8 time, 9 UUID.
 */
#ifndef AWS_EVENTSTREAM_H
#define AWS_EVENTSTREAM_H
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

#define EVENTSTREAM_HEADERS_MAX ((size_t)128 << 10)
#define EVENTSTREAM_PAYLOAD_MAX ((size_t)24 << 20)

struct eventstream { struct buf frame; };       /* zero-initialised */

struct eventstream_frame {
    const char *headers; size_t headers_n;
    const char *payload; size_t payload_n;
};
/* The string value of a header copied into out; false when absent, no string, or too long. */
bool eventstream_header(const struct eventstream_frame *f, const char *name, char *out, size_t n);

/* Called for each whole, sound frame; non-zero stops and is returned. */
typedef int eventstream_fn(void *arg, const struct eventstream_frame *f, struct err *e);
int eventstream_feed(struct eventstream *s, const char *p, size_t n, eventstream_fn *fn, void *arg, struct err *e) MUST_CHECK;
int eventstream_end(const struct eventstream *s, struct err *e) MUST_CHECK;
void eventstream_free(struct eventstream *s);

/* What a frame of an invocation is: 1 = a PayloadPart, 0 = an event to skip, -1 = an exception or error, described in e with its exit code
 * (EXIT_UNAVAILABLE; EXIT_TEMPFAIL for a model that took too long). */
int eventstream_part(const struct eventstream_frame *f, struct err *e) MUST_CHECK;

uint32_t eventstream_crc32(const void *p, size_t n);    /* zlib's */
#endif
