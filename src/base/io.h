/* Bytes in and out.  The only module that calls read(2), write(2), splice(2) on data.
 *
 * Owns: inputs (file, stdin as "-"; zstd recognised by its magic bytes and decompressed), outputs (file by temporary name + fsync +
 * rename, stdout as "-"), pipes enlarged to 1 MiB where allowed, reads of 256 KiB and more.  A short read is never taken for
 * success; a full disk or failed close is EXIT_IO.  Messages call "-" stdin or stdout.
 */
#ifndef BASE_IO_H
#define BASE_IO_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

#define IO_CHUNK ((size_t)1 << 18)      /* 256 KiB: what one read or write moves (performance.md D.2) */

struct input;
/* Open for reading from the start.  EXIT_NOINPUT when it does not exist, EXIT_USAGE when "-" is a terminal. */
struct input *input_open(const char *path, struct err *e) MUST_CHECK;
/* An input whose bytes come from elsewhere (a remote file).  read, seek and size as below; `ctx` is given back to each and to close. */
struct input_ops {
    long (*read)(void *ctx, void *buf, size_t n, struct err *e);
    int (*seek)(void *ctx, uint64_t offset, struct err *e);
    int (*size)(void *ctx, uint64_t *n, struct err *e);
    void (*close)(void *ctx);
};
struct input *input_from(const char *name, const struct input_ops *ops, void *ctx);
const char *input_name(const struct input *in);
/* The exit code for an open(2) that failed with this errno: EXIT_NOINPUT, EXIT_NOPERM, and EXIT_TEMPFAIL where files or memory ran out. */
int io_open_code(int error);
/* Up to n bytes; 0 at the end of the data; -1 error. */
long input_read(struct input *in, void *buf, size_t n, struct err *e) MUST_CHECK;
/* Exactly n bytes, or -1; when the input ends early: EXIT_DATA, "ended N bytes short of …". `what` names the thing read. */
int input_read_full(struct input *in, void *buf, size_t n, const char *what, struct err *e) MUST_CHECK;
/* A plain regular file (not compressed, not a pipe): can be read again. */
bool input_seekable(const struct input *in);
/* Bytes from the start of the data to the end of a seekable input. */
int input_size(struct input *in, uint64_t *n, struct err *e) MUST_CHECK;
int input_seek(struct input *in, uint64_t offset, struct err *e) MUST_CHECK;
/* Exactly n bytes from `offset` of a seekable input.  Of a file from any number of threads; any other input is moved there. */
int input_pread_full(struct input *in, void *buf, size_t n, uint64_t offset, const char *what, struct err *e) MUST_CHECK;
void input_close(struct input *in);

struct output;
/* "-" or a path.  A path that is a regular file or absent is written beside itself under a temporary name and appears at
 * output_commit(); anything else (FIFO, /dev/null) is written directly.  An existing file is replaced.  zstd compresses (level 3). */
struct output *output_open(const char *path, bool zstd, struct err *e) MUST_CHECK;
/* For what is written at the end of long work: can it be made?  An error now is better than one then.  What is there stays; a FIFO or device is not tried. */
int output_probe(const char *path, struct err *e) MUST_CHECK;
/* Would two outputs ("-" is stdout) be one file or pipe?  A device is one that both may have: /dev/null. */
bool output_same(const char *a, const char *b);
const char *output_name(const struct output *out);
int output_write(struct output *out, const void *buf, size_t n, struct err *e) MUST_CHECK;
/* Move n bytes from in to out, spliced inside the kernel where both sides allow it. */
int output_pass(struct output *out, struct input *in, uint64_t n, const char *what, struct err *e) MUST_CHECK;
/* Flush, fsync (regular files and the name in its directory), rename, close.  Frees out in either case; an error leaves what was there before. */
int output_commit(struct output *out, struct err *e) MUST_CHECK;
/* These n bytes and no more, then commit; out NULL (it could not be opened: e says why) is -1. */
int output_whole(struct output *out, const void *buf, size_t n, struct err *e) MUST_CHECK;
void output_abort(struct output *out);  /* leaves nothing behind; NULL is fine */

/* A directory that appears by one rename.  outdir_open makes a temporary sibling of DIR; outdir_file() makes files in it (their commit
 * fsyncs).  An existing DIR is EXIT_USAGE unless force; with force the old one is removed only after the new one is complete. */
struct outdir;
struct outdir *outdir_open(const char *dir, bool force, struct err *e) MUST_CHECK;
const char *outdir_tmp(const struct outdir *d);                     /* the temporary path, for messages and readers */
struct output *outdir_file(struct outdir *d, const char *name, struct err *e) MUST_CHECK;  /* name without slashes */
/* A file of n bytes that is filled in any order with io_pwrite_full (and can be read back); the caller ends it with io_sync_close. -1 = error. */
int outdir_fd(struct outdir *d, const char *name, uint64_t n, struct err *e) MUST_CHECK;
int io_sync_close(int fd, const char *what, struct err *e) MUST_CHECK;  /* fsync and close, in either case */
/* Frees d.  An error, also that the new name cannot be made to last, leaves what was there before; an old directory that cannot be removed is a warning. */
int outdir_commit(struct outdir *d, struct err *e) MUST_CHECK;
void outdir_abort(struct outdir *d);
/* EXIT_IO unless the file system of `path`'s parent has n bytes free. */
int io_free_space(const char *path, uint64_t n, struct err *e) MUST_CHECK;

/* Whole small files. *buf gets a NUL after the n bytes; freed by the caller.  Larger than max: EXIT_DATA. */
int io_slurp(const char *path, size_t max, char **buf, size_t *n, struct err *e) MUST_CHECK;
/* What is left of an input, likewise. */
int input_slurp(struct input *in, size_t max, char **buf, size_t *n, struct err *e) MUST_CHECK;
/* mkdir -p: with this mode those that are missing. */
int io_make_directories(const char *path, unsigned mode, struct err *e) MUST_CHECK;
/* An unlinked temporary file in $TMPDIR (or /tmp): a spool. */
int io_spool_fd(struct err *e) MUST_CHECK;
int io_pwrite_full(int fd, const void *buf, size_t n, uint64_t offset, const char *what, struct err *e) MUST_CHECK;
int io_pread_full(int fd, void *buf, size_t n, uint64_t offset, const char *what, struct err *e) MUST_CHECK;
#endif
