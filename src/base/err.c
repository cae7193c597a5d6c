#include "base/err.h"
#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/cleanup.h"

const char *prog_name = "q4sweep";
int prog_verbosity;

/* A program started with one of 0..2 closed would otherwise get it for its first file and print errors into data.  What it
 * writes to a closed stdout is lost, and must not look written, nor a closed stdin like an empty one: the descriptors take no writes and give no reads. */
static void open_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == 1 ? O_RDONLY : O_WRONLY) < 0)
            _exit(EXIT_IO);
}

void prog_init(const char *argv0)
{
    if (argv0 && *argv0) {
        const char *slash = strrchr(argv0, '/');
        prog_name = slash ? slash + 1 : argv0;
    }
    open_standard_fds();
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN);               /* a file too large for its limit is a failed write, which cleans up */
    json_set_alloc_funcs(xmalloc, free);    /* its callers do not check for memory either */
    atexit(cleanup_now);
}

/* A core_pattern that pipes to a program heeds no limit but 1, which no file fits in either. */
void prog_no_core(void)
{
    if (setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1})) setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

/* Names come from files that others wrote: what could move the cursor is shown as \xNN.  Allocates nothing: want of memory is said this way too. */
static void escaped(char *out, size_t size, const char *s)
{
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)s; *p && n + 5 < size; p++) {
        if (*p < 0x20 || *p == 0x7f)
            n += (size_t)snprintf(out + n, size - n, "\\x%02x", *p);
        else
            out[n++] = (char)*p;
    }
    out[n] = 0;
}

static void escape_controls(char *s, size_t size)
{
    char out[sizeof ((struct err *)0)->msg];
    escaped(out, sizeof out, s);
    snprintf(s, size, "%s", out);
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (e->code)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    escape_controls(e->msg, sizeof e->msg);
    e->code = code;
    return -1;
}

bool err_of_machine(const struct err *e)
{
    return e->code == EXIT_IO || e->code == EXIT_TEMPFAIL || e->code == EXIT_UNAVAILABLE;
}

int err_errno(struct err *e, int code, const char *fmt, ...)
{
    int saved = errno;
    if (e->code)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    escape_controls(e->msg, sizeof e->msg);
    size_t n = strlen(e->msg);
    snprintf(e->msg + n, sizeof e->msg - n, ": %s", strerror(saved));
    e->code = saved == ENOMEM ? EXIT_TEMPFAIL : code;
    return -1;
}

_Noreturn static void leave(int code, const char *msg)
{
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", prog_name, msg);
    cleanup_now();
    exit(code ? code : EXIT_BUG);
}

void die(const struct err *e)
{
    leave(e->code, e->msg);
}

void die_msg(int code, const char *fmt, ...)
{
    struct err e = {0, ""};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e.msg, sizeof e.msg, fmt, ap);
    va_end(ap);
    escape_controls(e.msg, sizeof e.msg);
    leave(code, e.msg);
}

static void say(const char *kind, const char *fmt, va_list ap)
{
    char msg[sizeof ((struct err *)0)->msg];
    vsnprintf(msg, sizeof msg, fmt, ap);
    escape_controls(msg, sizeof msg);
    fprintf(stderr, "%s: %s%s\n", prog_name, kind, msg);
}

void warn_msg(const char *fmt, ...)
{
    if (prog_verbosity < 0)
        return;
    va_list ap;
    va_start(ap, fmt);
    say("warning: ", fmt, ap);
    va_end(ap);
}

void tell_msg(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

void note_msg(const char *fmt, ...)
{
    if (prog_verbosity < 1)
        return;
    va_list ap;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

void print_line(const char *fmt, ...)
{
    struct buf b = BUF_INIT;
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    const size_t size = 4 * b.n + 6;
    char *out = xmalloc(size);
    escaped(out, size, b.data);
    puts(out);
    free(out);
    buf_free(&b);
}

int err_process(struct err *e)
{
    return err_set(e, EXIT_TEMPFAIL, "no pipe or process to be had: %s: end some and try again", strerror(errno));
}

int err_thread(struct err *e)
{
    return err_set(e, EXIT_TEMPFAIL, "no thread to be had: end some programs and try again");
}

int err_stdout(struct err *e)
{
    return err_errno(e, EXIT_IO, "stdout: write failed");
}

void die_stdout(void)
{
    struct err e = {0, ""};
    err_stdout(&e);
    die(&e);
}

int finish_stdout(struct err *e)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (errno == 0)
            errno = EIO;        /* it failed earlier, and nobody knows why */
        return err_stdout(e);
    }
    /* close(2) is where a network file system reports a full disk. */
    if (close(STDOUT_FILENO) != 0)
        return err_errno(e, EXIT_IO, "stdout: close failed");
    return 0;
}

_Noreturn static void out_of_memory(size_t n)
{
    die_msg(EXIT_TEMPFAIL, "out of memory: %zu bytes wanted: free some and try again", n);
}

void *xmalloc(size_t n)
{
    void *p = malloc(n ? n : 1);
    if (!p)
        out_of_memory(n);
    return p;
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p)
        out_of_memory(n);
    return p;
}

void *xreallocarray(void *p, size_t n, size_t size)
{
    if (size > 0 && n > SIZE_MAX / size)
        out_of_memory(SIZE_MAX);
    size_t bytes = n * size;
    void *q = realloc(p, bytes > 0 ? bytes : 1);
    if (!q)
        out_of_memory(bytes);
    return q;
}

void *xaligned(size_t alignment, size_t n)
{
    void *p = aligned_alloc(alignment, n);
    if (!p)
        out_of_memory(n);
    return p;
}

int xregcomp(regex_t *re, const char *ere)
{
    int bad = regcomp(re, ere, REG_EXTENDED | REG_NOSUB);
    if (bad == REG_ESPACE)
        die_msg(EXIT_TEMPFAIL, "out of memory to compile the pattern \"%.100s\": free some, or write it shorter", ere);
    return bad;
}

bool xregexec(const regex_t *re, const char *s)
{
    errno = 0;
    bool matches = regexec(re, s, 0, NULL, 0) == 0;
    if (!matches && errno == ENOMEM)
        die_msg(EXIT_TEMPFAIL, "out of memory to match \"%.100s\": free some and try again", s);
    return matches;
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
    char *p = xmalloc(n + 1);
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *xasprintf(const char *fmt, ...)
{
    struct buf b = BUF_INIT;
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return b.data;
}
