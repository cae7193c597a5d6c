/* splice, F_SETPIPE_SZ and renameat2 are Linux. */
#define _GNU_SOURCE
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>
#include "base/cleanup.h"

#define PIPE_BYTES (1 << 20)            /* the most an unprivileged process may ask for */
#define PASS_MAX ((size_t)1 << 30)      /* one splice */
#define DIRECT ((size_t)1 << 16)        /* bytes that are written as they are, not gathered first */
#define PROBE 4                         /* bytes of zstd's magic number */
#define ZSTD_LEVEL 3

/* --- primitives ---------------------------------------------------------------------------------------------------- */

static long read_some(int fd, void *buf, size_t n)
{
    ssize_t got;
    do
        got = read(fd, buf, n);
    while (got < 0 && errno == EINTR);
    return (long)got;
}

static int write_all(int fd, const void *buf, size_t n)
{
    const char *p = buf;
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -1;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

static bool is_kind(int fd, mode_t kind)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}

/* A refusal is no fault: the pipe is slower, that is all. */
static void enlarge_pipe(int fd)
{
    if (is_kind(fd, S_IFIFO) && fcntl(fd, F_GETPIPE_SZ) < PIPE_BYTES)
        (void)fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES);
}

/* --- input --------------------------------------------------------------------------------------------------------- */

struct input {
    int fd;                 /* -1 with ops */
    const struct input_ops *ops;
    void *ctx;
    char *name;
    off_t origin;           /* where the data begin in a seekable file */
    bool regular;
    bool probed;            /* the first bytes were looked at */
    char ahead[PROBE];      /* probed bytes not yet handed out */
    size_t ahead_at, ahead_n;
    ZSTD_DStream *zstd;     /* NULL = plain */
    char *packed;           /* compressed bytes */
    ZSTD_inBuffer zin;
    size_t zneed;           /* 0 = between frames */
};

int io_open_code(int error)
{
    switch (error) {
    case EACCES: case EPERM: return EXIT_NOPERM;
    case EMFILE: case ENFILE: case ENOMEM: return EXIT_TEMPFAIL;
    case EIO: return EXIT_IO;
    default: return EXIT_NOINPUT;
    }
}

struct input *input_open(const char *path, struct err *e)
{
    bool std = strcmp(path, "-") == 0;
    if (std && isatty(STDIN_FILENO)) {
        err_set(e, EXIT_USAGE, "stdin: is a terminal: give a file or a pipe, or try %s --help", prog_name);
        return NULL;
    }
    int fd = std ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        err_errno(e, io_open_code(errno), "%s: cannot open", path);
        return NULL;
    }
    if (is_kind(fd, S_IFDIR)) {
        err_set(e, EXIT_NOINPUT, "%s: is a directory: name a file", path);
        close(fd);
        return NULL;
    }
    struct input *in = xcalloc(1, sizeof *in);
    in->fd = fd;
    in->name = xstrdup(std ? "stdin" : path);
    in->regular = is_kind(fd, S_IFREG);
    in->origin = in->regular ? lseek(fd, 0, SEEK_CUR) : 0;
    enlarge_pipe(fd);
    return in;
}

const char *input_name(const struct input *in)
{
    return in->name;
}

struct input *input_from(const char *name, const struct input_ops *ops, void *ctx)
{
    struct input *in = xcalloc(1, sizeof *in);
    in->fd = -1;
    in->ops = ops;
    in->ctx = ctx;
    in->name = xstrdup(name);
    in->regular = true;
    return in;
}

/* Bytes as they are stored, before any decompression. */
static long read_raw(struct input *in, void *buf, size_t n, struct err *e)
{
    if (in->ops)
        return in->ops->read(in->ctx, buf, n, e);
    long got = read_some(in->fd, buf, n);
    return got < 0 ? err_errno(e, EXIT_IO, "%s: read failed", in->name) : got;
}

static int start_zstd(struct input *in, struct err *e)
{
    in->zstd = ZSTD_createDStream();
    in->packed = xmalloc(IO_CHUNK);
    if (!in->zstd || ZSTD_isError(ZSTD_initDStream(in->zstd)))
        return err_set(e, EXIT_TEMPFAIL, "%s: out of memory for zstd", in->name);
    memcpy(in->packed, in->ahead, in->ahead_n);
    in->zin = (ZSTD_inBuffer){in->packed, in->ahead_n, 0};
    in->ahead_n = 0;
    in->zneed = 1;
    return 0;
}

/* Look at the first bytes; they decide whether the data are compressed. */
static int probe(struct input *in, struct err *e)
{
    static const unsigned char magic[PROBE] = {0x28, 0xb5, 0x2f, 0xfd};     /* RFC 8878, 3.1.1 */
    if (in->probed)
        return 0;
    in->probed = true;
    while (in->ahead_n < PROBE) {
        long n = read_raw(in, in->ahead + in->ahead_n, PROBE - in->ahead_n, e);
        if (n < 0)
            return -1;
        if (n == 0)
            return 0;
        in->ahead_n += (size_t)n;
    }
    return memcmp(in->ahead, magic, PROBE) == 0 ? start_zstd(in, e) : 0;
}

static long read_zstd(struct input *in, void *buf, size_t n, struct err *e)
{
    ZSTD_outBuffer out = {buf, n, 0};
    while (out.pos == 0) {
        if (in->zin.pos == in->zin.size) {
            long got = read_raw(in, in->packed, IO_CHUNK, e);
            if (got < 0)
                return -1;
            if (got == 0 && in->zneed == 0)
                return 0;
            if (got == 0)
                return err_set(e, EXIT_DATA, "%s: compressed data end early: the file is cut or its writer failed", in->name);
            in->zin = (ZSTD_inBuffer){in->packed, (size_t)got, 0};
        }
        in->zneed = ZSTD_decompressStream(in->zstd, &out, &in->zin);
        if (ZSTD_getErrorCode(in->zneed) == ZSTD_error_memory_allocation)
            return err_set(e, EXIT_TEMPFAIL, "%s: out of memory for zstd", in->name);
        if (ZSTD_isError(in->zneed))
            return err_set(e, EXIT_DATA, "%s: damaged zstd data: %s", in->name, ZSTD_getErrorName(in->zneed));
    }
    return (long)out.pos;
}

long input_read(struct input *in, void *buf, size_t n, struct err *e)
{
    if (probe(in, e) != 0)
        return -1;
    if (in->zstd)
        return n ? read_zstd(in, buf, n, e) : 0;
    if (in->ahead_n > 0) {
        size_t take = n < in->ahead_n ? n : in->ahead_n;
        memcpy(buf, in->ahead + in->ahead_at, take);
        in->ahead_at += take;
        in->ahead_n -= take;
        return (long)take;
    }
    return read_raw(in, buf, n, e);
}

static int ended_short(struct input *in, uint64_t missing, uint64_t wanted, const char *what, struct err *e)
{
    return err_set(e, EXIT_DATA, "%s: %s: ended %llu bytes short of %llu: the file is cut, or the stage before this one failed",
                   in->name, what, (unsigned long long)missing, (unsigned long long)wanted);
}

int input_read_full(struct input *in, void *buf, size_t n, const char *what, struct err *e)
{
    size_t have = 0;
    while (have < n) {
        long got = input_read(in, (char *)buf + have, n - have, e);
        if (got < 0)
            return -1;
        if (got == 0)
            return ended_short(in, n - have, n, what, e);
        have += (size_t)got;
    }
    return 0;
}

bool input_seekable(const struct input *in)
{
    return in->regular && in->probed && !in->zstd;
}

int input_size(struct input *in, uint64_t *n, struct err *e)
{
    struct stat st;
    if (in->ops)
        return in->ops->size(in->ctx, n, e);
    if (fstat(in->fd, &st) != 0 || st.st_size < in->origin)
        return err_errno(e, EXIT_IO, "%s: cannot ask for its size", in->name);
    *n = (uint64_t)(st.st_size - in->origin);
    return 0;
}

int input_seek(struct input *in, uint64_t offset, struct err *e)
{
    in->ahead_n = 0;
    if (in->ops)
        return in->ops->seek(in->ctx, offset, e);
    if (!input_seekable(in) || lseek(in->fd, in->origin + (off_t)offset, SEEK_SET) < 0)
        return err_set(e, EXIT_BUG, "%s: cannot seek to %llu", in->name, (unsigned long long)offset);
    return 0;
}

int input_pread_full(struct input *in, void *buf, size_t n, uint64_t offset, const char *what, struct err *e)
{
    if (in->fd >= 0 && input_seekable(in))
        return io_pread_full(in->fd, buf, n, (uint64_t)in->origin + offset, what, e);
    return input_seek(in, offset, e) ? -1 : input_read_full(in, buf, n, what, e);
}

void input_close(struct input *in)
{
    if (!in)
        return;
    if (in->ops)
        in->ops->close(in->ctx);
    else if (in->fd != STDIN_FILENO)
        close(in->fd);
    ZSTD_freeDStream(in->zstd);
    free(in->packed);
    free(in->name);
    free(in);
}

/* --- output -------------------------------------------------------------------------------------------------------- */

struct output {
    int fd;
    char *name;             /* for messages */
    char *final, *tmp;      /* rename at commit; NULL = written directly */
    bool sync;              /* a regular file of ours: fsync at commit */
    char *buf;
    size_t n;
    ZSTD_CCtx *zstd;
    char *packed;
};

/* ".NAME.tmp.PID.N" beside path, so that the rename stays on one file system. */
static char *temporary_name(const char *path)
{
    static int counter;
    const char *slash = strrchr(path, '/');
    int dir = slash ? (int)(slash - path) + 1 : 0;
    return xasprintf("%.*s.%s.tmp.%ld.%d", dir, path, path + dir, (long)getpid(), counter++);
}

static struct output *output_new(int fd, const char *name)
{
    struct output *out = xcalloc(1, sizeof *out);
    out->fd = fd;
    out->name = xstrdup(name);
    out->buf = xmalloc(IO_CHUNK);
    enlarge_pipe(fd);
    return out;
}

static struct output *open_temporary(const char *path, struct err *e)
{
    char *tmp = temporary_name(path);
    cleanup_add(tmp);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        err_errno(e, errno == EACCES || errno == EPERM ? EXIT_NOPERM : EXIT_IO, "%s: cannot create", path);
        cleanup_forget(tmp);
        free(tmp);
        return NULL;
    }
    struct output *out = output_new(fd, path);
    out->tmp = tmp;
    out->final = xstrdup(path);
    out->sync = true;
    return out;
}

static struct output *open_direct(const char *path, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        err_errno(e, errno == EACCES || errno == EPERM ? EXIT_NOPERM : EXIT_IO, "%s: cannot open for writing", path);
        return NULL;
    }
    return output_new(fd, path);
}

static int add_zstd(struct output *out, struct err *e)
{
    out->zstd = ZSTD_createCCtx();
    out->packed = xmalloc(IO_CHUNK);
    if (!out->zstd || ZSTD_isError(ZSTD_CCtx_setParameter(out->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL))
        || ZSTD_isError(ZSTD_CCtx_setParameter(out->zstd, ZSTD_c_checksumFlag, 1)))
        return err_set(e, EXIT_TEMPFAIL, "%s: out of memory for zstd", out->name);
    return 0;
}

struct output *output_open(const char *path, bool zstd, struct err *e)
{
    struct stat st;
    struct output *out;
    if (strcmp(path, "-") == 0)
        out = output_new(STDOUT_FILENO, "stdout");
    else if (stat(path, &st) != 0 || S_ISREG(st.st_mode))
        out = open_temporary(path, e);
    else
        out = open_direct(path, e);
    if (out && zstd && add_zstd(out, e) != 0) {
        output_abort(out);
        return NULL;
    }
    return out;
}

static bool output_stat(const char *path, struct stat *st)
{
    return (strcmp(path, "-") == 0 ? fstat(STDOUT_FILENO, st) : stat(path, st)) == 0;
}

bool output_same(const char *a, const char *b)
{
    struct stat sa, sb;
    if (strcmp(a, "-") == 0 && strcmp(b, "-") == 0)
        return true;
    if (!output_stat(a, &sa) || !output_stat(b, &sb))
        return strcmp(a, b) == 0;
    return !S_ISCHR(sa.st_mode) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

const char *output_name(const struct output *out)
{
    return out->name;
}

static int put(struct output *out, const void *buf, size_t n, struct err *e)
{
    if (write_all(out->fd, buf, n) != 0)
        return err_errno(e, EXIT_IO, "%s: write failed", out->name);
    return 0;
}

static int compress(struct output *out, const void *buf, size_t n, ZSTD_EndDirective how, struct err *e)
{
    ZSTD_inBuffer in = {buf, n, 0};
    size_t left;
    do {
        ZSTD_outBuffer zout = {out->packed, IO_CHUNK, 0};
        left = ZSTD_compressStream2(out->zstd, &zout, &in, how);
        if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            return err_set(e, EXIT_TEMPFAIL, "%s: out of memory for zstd", out->name);
        if (ZSTD_isError(left))
            return err_set(e, EXIT_BUG, "%s: zstd: %s", out->name, ZSTD_getErrorName(left));
        if (put(out, out->packed, zout.pos, e) != 0)
            return -1;
    } while (how == ZSTD_e_end ? left != 0 : in.pos < in.size);
    return 0;
}

static int emit(struct output *out, const void *buf, size_t n, struct err *e)
{
    return out->zstd ? compress(out, buf, n, ZSTD_e_continue, e) : put(out, buf, n, e);
}

static int flush(struct output *out, struct err *e)
{
    size_t n = out->n;
    out->n = 0;
    return n ? emit(out, out->buf, n, e) : 0;
}

int output_write(struct output *out, const void *buf, size_t n, struct err *e)
{
    if (n < DIRECT && out->n + n <= IO_CHUNK) {
        if (n)
            memcpy(out->buf + out->n, buf, n);
        out->n += n;
        return 0;
    }
    if (flush(out, e) != 0)
        return -1;
    if (n >= DIRECT)
        return emit(out, buf, n, e);
    memcpy(out->buf, buf, n);
    out->n = n;
    return 0;
}

static int pass_by_copy(struct output *out, struct input *in, uint64_t n, uint64_t total, const char *what, struct err *e)
{
    char *buf = xmalloc(IO_CHUNK);
    int bad = 0;
    while (n > 0 && !bad) {
        long got = input_read(in, buf, n < IO_CHUNK ? (size_t)n : IO_CHUNK, e);
        if (got == 0)
            bad = ended_short(in, n, total, what, e);
        else
            bad = got < 0 ? -1 : output_write(out, buf, (size_t)got, e);
        n -= got > 0 ? (uint64_t)got : 0;
    }
    free(buf);
    return bad;
}

/* Bytes moved inside the kernel; -1 = this pair of files cannot be spliced (errno EINVAL) or an error. */
static long splice_some(int from, int to, size_t n)
{
    ssize_t moved;
    do
        moved = splice(from, NULL, to, NULL, n, SPLICE_F_MOVE);
    while (moved < 0 && errno == EINTR);
    return (long)moved;
}

int output_pass(struct output *out, struct input *in, uint64_t n, const char *what, struct err *e)
{
    uint64_t total = n;
    if (probe(in, e) != 0)
        return -1;
    if (in->zstd || in->ops || out->zstd || n < IO_CHUNK)
        return pass_by_copy(out, in, n, total, what, e);
    if (in->ahead_n > 0) {
        uint64_t first = in->ahead_n < n ? in->ahead_n : n;
        if (pass_by_copy(out, in, first, total, what, e) != 0)
            return -1;
        n -= first;
    }
    if (flush(out, e) != 0)
        return -1;
    while (n > 0) {
        long moved = splice_some(in->fd, out->fd, n < PASS_MAX ? (size_t)n : PASS_MAX);
        if (moved < 0 && errno == EINVAL)
            return pass_by_copy(out, in, n, total, what, e);
        if (moved < 0)
            return err_errno(e, EXIT_IO, "%s: cannot pass data on to %s", in->name, out->name);
        if (moved == 0)
            return ended_short(in, n, total, what, e);
        n -= (uint64_t)moved;
    }
    return 0;
}

static void output_free(struct output *out)
{
    ZSTD_freeCCtx(out->zstd);
    free(out->packed);
    free(out->buf);
    free(out->tmp);
    free(out->final);
    free(out->name);
    free(out);
}

/* The directory of `path`, for sync_parent: opened before a rename, since what needs memory after it could end the program between the result and its success.  -1 where it
 * cannot be opened. */
static int open_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? xstrndup(path, slash == path ? 1 : (size_t)(slash - path)) : xstrdup(".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    return fd;
}

/* The entry of a new file is on disk only when its directory is. A file system that cannot sync directories is no fault of ours. */
static int sync_parent(int fd, const char *path, struct err *e)
{
    return fd >= 0 && fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP ? err_errno(e, EXIT_IO, "%s: fsync failed", path) : 0;
}

static bool exchange(const char *a, const char *b)
{
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
}

/* The finished file gets its name by one rename.  When that cannot be made to last it is taken back, so that a failure leaves what was there before; only
 * where the file system cannot exchange two names is an old file gone by then, and the new one stays, whole. */
static int put_in_place(const char *tmp, const char *final, struct err *e)
{
    int dir = open_parent(final);
    bool exchanged = exchange(tmp, final), fresh = !exchanged && errno == ENOENT, named = exchanged || rename(tmp, final) == 0;
    int bad = named ? sync_parent(dir, final, e) : err_errno(e, EXIT_IO, "%s: cannot rename the finished file", final);
    if (dir >= 0)
        close(dir);
    if (bad && exchanged)
        (void)exchange(tmp, final);
    else if (bad && fresh && named)
        (void)rename(final, tmp);
    else if (exchanged)
        unlink(tmp);
    return bad;
}

static int settle(struct output *out, struct err *e)
{
    if (out->sync && fsync(out->fd) != 0)
        return err_errno(e, EXIT_IO, "%s: fsync failed", out->name);
    int fd = out->fd;
    out->fd = -1;
    if (close(fd) != 0)
        return err_errno(e, EXIT_IO, "%s: close failed", out->name);
    if (!out->final)
        return 0;
    if (put_in_place(out->tmp, out->final, e) != 0)
        return -1;
    cleanup_forget(out->tmp);
    free(out->tmp);
    out->tmp = NULL;
    return 0;
}

int output_commit(struct output *out, struct err *e)
{
    if (flush(out, e) != 0 || (out->zstd && compress(out, NULL, 0, ZSTD_e_end, e) != 0) || settle(out, e) != 0) {
        output_abort(out);
        return -1;
    }
    output_free(out);
    return 0;
}

void output_abort(struct output *out)
{
    if (!out)
        return;
    if (out->fd > STDERR_FILENO)
        close(out->fd);
    if (out->tmp) {
        unlink(out->tmp);
        cleanup_forget(out->tmp);
    }
    output_free(out);
}

int output_probe(const char *path, struct err *e)
{
    struct stat st;
    if (strcmp(path, "-") == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return 0;
    struct output *out = output_open(path, false, e);
    output_abort(out);
    return out ? 0 : -1;
}

int output_whole(struct output *out, const void *buf, size_t n, struct err *e)
{
    if (!out)
        return -1;
    if (output_write(out, buf, n, e) == 0)
        return output_commit(out, e);
    output_abort(out);
    return -1;
}

/* --- a directory that appears at once ------------------------------------------------------------------------------ */

struct outdir {
    char *final, *tmp;
    bool replace;
};

/* 1 a directory of plain files, 0 absent, -1 something that must not be replaced. */
static int existing(const char *dir, struct err *e)
{
    struct stat st;
    if (lstat(dir, &st) != 0)
        return errno == ENOENT ? 0 : err_errno(e, EXIT_IO, "%s: cannot be looked for", dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, EXIT_USAGE, "%s: exists and is no directory: name another", dir);
    DIR *d = opendir(dir);
    if (!d)
        return err_errno(e, errno == EACCES ? EXIT_NOPERM : EXIT_IO, "%s: exists, and cannot be looked at", dir);
    int kind = 1;
    for (struct dirent *f; kind == 1 && (f = readdir(d)); ) {
        if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            kind = err_set(e, EXIT_USAGE, "%s: holds the directory %s, so it was not made here: remove it yourself or name another",
                           dir, f->d_name);
    }
    closedir(d);
    return kind;
}

static char *without_trailing_slashes(const char *dir)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    return xstrndup(dir, n);
}

struct outdir *outdir_open(const char *dir, bool force, struct err *e)
{
    char *final = without_trailing_slashes(dir);
    const char *slash = strrchr(final, '/'), *base = slash ? slash + 1 : final;
    int there = -1;
    if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        err_set(e, EXIT_USAGE, "%s: not a name for a new directory", dir);
    else
        there = existing(final, e);
    if (there == 1 && !force)
        there = err_set(e, EXIT_USAGE, "%s: exists: --force replaces it", final);
    char *tmp = there < 0 ? NULL : temporary_name(final);
    if (tmp) {
        cleanup_add(tmp);
        if (mkdir(tmp, 0777) != 0) {
            err_errno(e, errno == EACCES || errno == EPERM ? EXIT_NOPERM : EXIT_IO, "%s: cannot create", final);
            cleanup_forget(tmp);
            free(tmp);
            tmp = NULL;
        }
    }
    if (!tmp) {
        free(final);
        return NULL;
    }
    struct outdir *d = xcalloc(1, sizeof *d);
    d->final = final;
    d->tmp = tmp;
    d->replace = there == 1;
    return d;
}

const char *outdir_tmp(const struct outdir *d)
{
    return d->tmp;
}

/* Create a file in the temporary directory; cleanup knows of it. */
static int create_in(struct outdir *d, const char *name, int mode, struct err *e)
{
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(e, EXIT_BUG, "%s: %s: no plain file name", d->final, name);
    char *path = xasprintf("%s/%s", d->tmp, name);
    cleanup_add(path);
    int fd = open(path, mode | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        err_errno(e, errno == EEXIST ? EXIT_DATA : EXIT_IO, "%s/%s: this file cannot be made", d->final, name);
    free(path);
    return fd;
}

struct output *outdir_file(struct outdir *d, const char *name, struct err *e)
{
    int fd = create_in(d, name, O_WRONLY, e);
    if (fd < 0)
        return NULL;
    char *shown = xasprintf("%s/%s", d->final, name);
    struct output *out = output_new(fd, shown);
    out->sync = true;
    free(shown);
    return out;
}

int outdir_fd(struct outdir *d, const char *name, uint64_t n, struct err *e)
{
    int fd = create_in(d, name, O_RDWR, e);
    if (fd >= 0 && ftruncate(fd, (off_t)n) != 0) {
        err_errno(e, EXIT_IO, "%s/%s: cannot make it %llu bytes long", d->final, name, (unsigned long long)n);
        close(fd);
        return -1;
    }
    return fd;
}

int io_sync_close(int fd, const char *what, struct err *e)
{
    int bad = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP ? err_errno(e, EXIT_IO, "%s: fsync failed", what) : 0;
    if (close(fd) != 0 && !bad)
        bad = err_errno(e, EXIT_IO, "%s: close failed", what);
    return bad;
}

/* Remove a flat directory and forget what cleanup knew of it.  Needs no memory of its own: the new one may be in place already. */
static int remove_flat(const char *dir, struct err *e)
{
    DIR *d = opendir(dir);
    if (!d)
        return err_errno(e, EXIT_IO, "%s: cannot remove", dir);
    int bad = 0;
    for (struct dirent *f; (f = readdir(d)); ) {
        if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(d), f->d_name, 0) != 0)
            bad = err_errno(e, EXIT_IO, "%s: cannot remove", dir);
    }
    closedir(d);
    if (!bad && rmdir(dir) != 0)
        bad = err_errno(e, EXIT_IO, "%s: cannot remove", dir);
    cleanup_forget(dir);
    return bad;
}

static void outdir_free(struct outdir *d)
{
    free(d->final);
    free(d->tmp);
    free(d);
}

/* The finished directory gets its name, unless something else has by now. */
static int rename_finished(struct outdir *d, struct err *e)
{
    if (rename(d->tmp, d->final) == 0)
        return 0;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
        return err_set(e, EXIT_USAGE, "%s: appeared while this was written, by another run: remove it or name another", d->final);
    return err_errno(e, EXIT_IO, "%s: cannot rename the finished directory", d->final);
}

/* The new directory gets the old one's place; where the file system cannot exchange two names, the old one steps aside first, under the name `aside`.  Where the old one lies then. */
static const char *swap(struct outdir *d, const char *aside, struct err *e)
{
    if (exchange(d->tmp, d->final))
        return d->tmp;
    if ((errno == EINVAL || errno == ENOSYS) && rename(d->final, aside) == 0) {
        if (rename_finished(d, e) == 0)
            return aside;
        (void)rename(aside, d->final);
        return NULL;
    }
    err_errno(e, EXIT_IO, "%s: cannot rename the finished directory", d->final);
    return NULL;
}

static void swap_back(struct outdir *d, const char *old)
{
    if (old && exchange(d->final, d->tmp))
        return;
    (void)rename(d->final, d->tmp);
    if (old)
        (void)rename(old, d->final);
}

/* The directory itself reaches the disk, then its name does, in its parent `dir`; what cannot be made to last is taken back. */
static int appear(struct outdir *d, int dir, const char *aside, const char **old, struct err *e)
{
    int fd = open(d->tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = 0;
    *old = NULL;
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP))
        bad = err_errno(e, EXIT_IO, "%s: fsync failed", d->final);
    if (fd >= 0)
        close(fd);
    if (bad)
        return bad;
    if (d->replace)
        bad = (*old = swap(d, aside, e)) ? 0 : -1;
    else
        bad = rename_finished(d, e);
    if (!bad && (bad = sync_parent(dir, d->final, e)) != 0)
        swap_back(d, *old);
    return bad;
}

int outdir_commit(struct outdir *d, struct err *e)
{
    const char *old;
    char *aside = temporary_name(d->final);
    struct err fault = {0, ""};
    int dir = open_parent(d->final), bad = appear(d, dir, aside, &old, e);
    if (dir >= 0)
        close(dir);
    if (bad) {
        outdir_abort(d);
    } else {
        cleanup_forget(d->tmp);
        if (old && remove_flat(old, &fault) != 0)
            warn_msg("%s is complete and in place, but the old one is not gone: %s: remove %s yourself", d->final, fault.msg, old);
        outdir_free(d);
    }
    free(aside);
    return bad;
}

void outdir_abort(struct outdir *d)
{
    if (!d)
        return;
    struct err ignored = {0, ""};
    (void)remove_flat(d->tmp, &ignored);
    outdir_free(d);
}

int io_free_space(const char *path, uint64_t n, struct err *e)
{
    char *bare = without_trailing_slashes(path);
    char *slash = strrchr(bare, '/');
    const char *dir = slash == bare ? "/" : slash ? bare : ".";
    if (slash && slash != bare)
        *slash = 0;
    struct statvfs v;
    int bad = 0;
    if (statvfs(dir, &v) != 0)
        bad = err_errno(e, EXIT_IO, "%s: cannot ask for free space", dir);
    else if ((uint64_t)v.f_bavail * v.f_frsize < n)
        bad = err_set(e, EXIT_IO, "%s: %llu bytes free, %llu needed: make room or write elsewhere", dir,
                      (unsigned long long)((uint64_t)v.f_bavail * v.f_frsize), (unsigned long long)n);
    free(bare);
    return bad;
}

/* --- whole files and spools ---------------------------------------------------------------------------------------- */

int input_slurp(struct input *in, size_t max, char **buf, size_t *n, struct err *e)
{
    size_t cap = 4096, have = 0;
    char *data = xmalloc(cap + 1);
    long got;
    while ((got = input_read(in, data + have, cap - have, e)) > 0) {
        have += (size_t)got;
        if (have > max) {
            got = err_set(e, EXIT_DATA, "%s: larger than %zu bytes", input_name(in), max);
            break;
        }
        if (have == cap) {
            cap *= 2;
            data = xreallocarray(data, cap + 1, 1);
        }
    }
    if (got < 0) {
        free(data);
        return -1;
    }
    data[have] = 0;
    *buf = data;
    *n = have;
    return 0;
}

int io_slurp(const char *path, size_t max, char **buf, size_t *n, struct err *e)
{
    struct input *in = input_open(path, e);
    int bad = in ? input_slurp(in, max, buf, n, e) : -1;
    input_close(in);
    return bad;
}

int io_make_directories(const char *path, unsigned mode, struct err *e)
{
    char *p = xstrdup(path);
    int rc = 0;
    for (char *at = p + 1; !rc; at++) {
        if (*at && *at != '/')
            continue;
        const char kept = *at;
        *at = 0;
        if (mkdir(p, mode) && errno != EEXIST)
            rc = err_errno(e, EXIT_IO, "%s: cannot make this directory", p);
        *at = kept;
        if (!kept)
            break;
    }
    free(p);
    return rc;
}

int io_spool_fd(struct err *e)
{
    const char *dir = getenv("TMPDIR");
    char *path = xasprintf("%s/q4sweep.XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        err_errno(e, EXIT_IO, "%s: no temporary file can be made there: set TMPDIR", path);
    else
        unlink(path);
    free(path);
    return fd;
}

int io_pwrite_full(int fd, const void *buf, size_t n, uint64_t offset, const char *what, struct err *e)
{
    const char *p = buf;
    while (n > 0) {
        ssize_t put_n = pwrite(fd, p, n, (off_t)offset);
        if (put_n < 0 && errno == EINTR)
            continue;
        if (put_n < 0)
            return err_errno(e, EXIT_IO, "%s: write failed", what);
        p += put_n;
        n -= (size_t)put_n;
        offset += (uint64_t)put_n;
    }
    return 0;
}

int io_pread_full(int fd, void *buf, size_t n, uint64_t offset, const char *what, struct err *e)
{
    char *p = buf;
    while (n > 0) {
        ssize_t got = pread(fd, p, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(e, EXIT_IO, "%s: read failed", what);
        if (got == 0)
            return err_set(e, EXIT_DATA, "%s: ends %zu bytes early: the file is cut", what, n);
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}
