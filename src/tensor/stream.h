/* Reading and writing one safetensors file as a byte stream: header first, then every tensor in offset order.
 *
 * A filter is: open, look at the header, build the output header, then
 *     while ((t = st_next(r, &e))) … st_read / st_pass / st_write …
 * A plan stream (metadata plan = 1, no data) makes st_next end at once and the writer write the header alone, so a filter plans without code
 * of its own.  Memory: buffers of IO_CHUNK plus the header.  Truncation and trailing bytes are EXIT_DATA.
 */
#ifndef TENSOR_STREAM_H
#define TENSOR_STREAM_H
#include "base/io.h"
#include "tensor/header.h"

struct st_reader;
/* "-" = stdin, or a file.  Reads and checks the header; for a regular file also its length. */
struct st_reader *st_open(const char *path, struct err *e) MUST_CHECK;
/* The same of an open input, which the reader then owns (also when this fails). */
struct st_reader *st_open_input(struct input *in, struct err *e) MUST_CHECK;
const struct st_header *st_header_of(const struct st_reader *r);
const char *st_reader_name(const struct st_reader *r);
/* The next tensor, skipping what is unread of the current one.  NULL at the end (checks that nothing follows) or on error (e->code set). */
const struct st_tensor *st_next(struct st_reader *r, struct err *e);
uint64_t st_left(const struct st_reader *r);            /* bytes unread of the current tensor */
int st_read(struct st_reader *r, void *buf, size_t n, struct err *e) MUST_CHECK;    /* exactly n, n <= st_left */
bool st_seekable(const struct st_reader *r);
uint64_t st_data_offset(const struct st_reader *r);     /* where in the file the tensors begin */
/* Back to before the first tensor; only when st_seekable. */
int st_rewind(struct st_reader *r, struct err *e) MUST_CHECK;
/* Make tensor number i of the header the current one, unread; only when st_seekable. */
int st_seek(struct st_reader *r, size_t i, struct err *e) MUST_CHECK;
/* Skip n bytes of the current tensor; a seekable input is not read. */
int st_skip(struct st_reader *r, uint64_t n, struct err *e) MUST_CHECK;
/* n bytes of tensor t of the header from `offset` within it; only when st_seekable.  Of a file from any number of threads; not between st_next and st_read. */
int st_read_at(struct st_reader *r, const struct st_tensor *t, uint64_t offset, void *buf, size_t n, struct err *e) MUST_CHECK;
void st_close(struct st_reader *r);

struct st_writer;
/* Writes the header at once.  The header must stay valid until close. `zstd` compresses. */
struct st_writer *st_create(const char *path, const struct st_header *h, bool zstd, struct err *e) MUST_CHECK;
int st_write(struct st_writer *w, const void *buf, size_t n, struct err *e) MUST_CHECK;
/* n bytes of r's current tensor, unchanged; spliced where possible. */
int st_pass(struct st_writer *w, struct st_reader *r, uint64_t n, struct err *e) MUST_CHECK;
/* The next n bytes of a plain input (a side file). */
int st_pass_input(struct st_writer *w, struct input *in, uint64_t n, struct err *e) MUST_CHECK;
/* Finishes: EXIT_BUG when fewer or more bytes than the header promised were written.  Frees w in either case. */
int st_finish(struct st_writer *w, struct err *e) MUST_CHECK;
void st_abandon(struct st_writer *w);                   /* NULL is fine */
#endif
