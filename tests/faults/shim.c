/* LD_PRELOAD: makes one call of a program fail, or every transfer short.
 *
 *     FAULT_KIND   read | write | sync | rename | exchange | remove | open | mkdir | map | thread | malloc    what fails
 *                  close | stat | list | link | lock | poll | full | end                                   closing what was written, asking for a file's facts, opening a directory
 *                  recv | send | accept | socket | process                                the same of a network
 *                  short                              every transfer moves at most half of what was asked, and first says EINTR
 *     FAULT_AT     n: the n-th call of that kind fails, counted over the whole process; a forked child counts on from its parent
 *     FAULT_RUN    how many calls from the n-th on fail [1]
 *     FAULT_LOG    a file that is created when the call has failed: without it, n was beyond the last call.  Where it exists already nothing
 *                  fails: of all processes of a run, one call does.
 *     FAULT_PROGRAM  only in programs of this name; others that a program starts are left alone
 *
 * full: statvfs finds nothing free; end: a read is at the end of its file.
 * A failing read, sync, close, stat or list says EIO, a write ENOSPC, a removal EACCES, an exchange of names EINVAL as on a file system that has none, an open, socket or accepted connection EMFILE, a rename EIO, memory ENOMEM, a thread or process
 * EAGAIN, a transfer over a network ECONNRESET.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <regex.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The environment is read on the first call, which may come before any constructor has run; a sanitizer maps memory even before there is one. */
static const char *kind_wanted(void)
{
    static const char *kind;
    if (!kind && environ && *program_invocation_short_name) {
        const char *k = getenv("FAULT_KIND"), *program = getenv("FAULT_PROGRAM");
        bool other = program && strcmp(program, program_invocation_short_name);
        kind = k && !other ? k : "";
    }
    return kind ? kind : "";
}

/* False: another call has failed already. */
static bool leave_a_note(int flags)
{
    const char *log = getenv("FAULT_LOG");
    long fd = log ? syscall(SYS_openat, AT_FDCWD, log, O_CREAT | O_WRONLY | O_CLOEXEC | flags, 0600) : -1;
    if (fd >= 0)
        syscall(SYS_close, fd);
    return fd >= 0;
}

/* Memory counts from main on: what the loader and the constructors of others' libraries (the CUDA runtime's, linked in) take before is not in the
 * program's hands, and the latter die of its want. */
static atomic_bool begun;
static int (*program_main)(int, char **, char **);

static int begin(int argc, char **argv, char **env)
{
    begun = true;
    return program_main(argc, argv, env);
}

typedef int start_fn(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
start_fn __libc_start_main;
int __libc_start_main(int (*f)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    program_main = f;
    return ((start_fn *)(uintptr_t)dlsym(RTLD_NEXT, "__libc_start_main"))(begin, argc, argv, init, fini, rtld_fini, stack_end);
}

/* Is this the call that fails? */
static bool fails(const char *kind, int error)
{
    static atomic_long calls;
    const char *at = getenv("FAULT_AT"), *run = getenv("FAULT_RUN");
    if (!begun && !strcmp(kind, "malloc"))
        return false;
    if (strcmp(kind_wanted(), kind) || !at)
        return false;
    long since = atomic_fetch_add(&calls, 1) + 1 - strtol(at, NULL, 10);
    if (since < 0 || since >= (run ? strtol(run, NULL, 10) : 1) || !leave_a_note(since == 0 ? O_EXCL : 0))
        return false;
    errno = error;
    return true;
}

static bool shortened(void) { return !strcmp(kind_wanted(), "short"); }

/* Half of n, at least 1: what a transfer may move; and every other call is interrupted before it moves anything. */
static bool interrupted(void)
{
    static atomic_long calls;
    if (!shortened() || atomic_fetch_add(&calls, 1) % 2)
        return false;
    leave_a_note(0);
    errno = EINTR;
    return true;
}
static size_t cut(size_t n) { return shortened() && n > 1 ? n / 2 : n; }

#define NEXT(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

/* --- reading and writing ------------------------------------------------------------------------------------------ */

/* What the program's own threads and processes tell each other through is memory of the kernel: it knows no such fault. */
static atomic_bool wakes[1024];
static bool wakeful(int fd) { return fd >= 0 && fd < 1024 && wakes[fd]; }

static void is_wakeful(int fd)
{
    if (fd >= 0 && fd < 1024)
        wakes[fd] = true;
}

int eventfd(unsigned value, int flags)
{
    int fd = (int)syscall(SYS_eventfd2, value, flags);
    is_wakeful(fd);
    return fd;
}

int pipe(int fd[2])
{
    if (fails("process", EMFILE) || syscall(SYS_pipe2, fd, 0))
        return -1;
    is_wakeful(fd[0]);
    is_wakeful(fd[1]);
    return 0;
}

int close(int fd)
{
    if (wakeful(fd))
        wakes[fd] = false;
    else if (fails("close", EIO))
        return syscall(SYS_close, fd), errno = EIO, -1;
    return (int)syscall(SYS_close, fd);
}

ssize_t read(int fd, void *buf, size_t n)
{
    if (wakeful(fd))
        return syscall(SYS_read, fd, buf, n);
    if (fails("end", 0))
        return 0;
    return fails("read", EIO) || interrupted() ? -1 : syscall(SYS_read, fd, buf, cut(n));
}

ssize_t write(int fd, const void *buf, size_t n)
{
    if (fd == STDERR_FILENO || wakeful(fd))
        return syscall(SYS_write, fd, buf, n);
    return fails("write", ENOSPC) || interrupted() ? -1 : syscall(SYS_write, fd, buf, cut(n));
}

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    if (fails("end", 0))
        return 0;
    return fails("read", EIO) || interrupted() ? -1 : syscall(SYS_pread64, fd, buf, cut(n), at);
}
ssize_t pread64(int fd, void *buf, size_t n, off64_t at) { return pread(fd, buf, n, at); }

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
    return fails("write", ENOSPC) || interrupted() ? -1 : syscall(SYS_pwrite64, fd, buf, cut(n), at);
}
ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at) { return pwrite(fd, buf, n, at); }

ssize_t writev(int fd, const struct iovec *v, int n)
{
    return fails("write", ENOSPC) || interrupted() ? -1 : syscall(SYS_writev, fd, v, shortened() ? 1 : n);
}

ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags)
{
    return fails("write", ENOSPC) || interrupted() ? -1 : syscall(SYS_splice, in, in_at, out, out_at, cut(n), flags);
}

ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags)
{
    return fails("write", ENOSPC) || interrupted() ? -1 : syscall(SYS_copy_file_range, in, in_at, out, out_at, cut(n), flags);
}

int ftruncate(int fd, off_t n) { return fails("write", ENOSPC) ? -1 : (int)syscall(SYS_ftruncate, fd, n); }

/* stdio writes through calls of its own inside libc: its flush fails as a whole, and the stream remembers it. */
int fflush(FILE *f)
{
    if (f == stderr || !fails("write", ENOSPC))
        return NEXT(fflush)(f);
    if (f)
        f->_flags |= _IO_ERR_SEEN;
    return EOF;
}

int fsync(int fd) { return fails("sync", EIO) ? -1 : (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return fails("sync", EIO) ? -1 : (int)syscall(SYS_fdatasync, fd); }

/* --- names -------------------------------------------------------------------------------------------------------- */

int rename(const char *from, const char *to) { return fails("rename", EIO) ? -1 : (int)syscall(SYS_rename, from, to); }

int renameat(int a, const char *from, int b, const char *to)
{
    return fails("rename", EIO) ? -1 : (int)syscall(SYS_renameat2, a, from, b, to, 0);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (flags && fails("exchange", EINVAL))
        return -1;
    return fails("rename", EIO) ? -1 : (int)syscall(SYS_renameat2, a, from, b, to, flags);
}

int stat(const char *restrict path, struct stat *restrict s) { return fails("stat", EIO) ? -1 : NEXT(stat)(path, s); }
int lstat(const char *restrict path, struct stat *restrict s) { return fails("stat", EIO) ? -1 : NEXT(lstat)(path, s); }
int fstat(int fd, struct stat *s) { return fails("stat", EIO) ? -1 : NEXT(fstat)(fd, s); }
int statvfs(const char *restrict path, struct statvfs *restrict s)
{
    if (fails("stat", EIO) || NEXT(statvfs)(path, s))
        return -1;
    if (fails("full", 0))
        s->f_bavail = s->f_bfree = 0;
    return 0;
}
ssize_t readlink(const char *restrict path, char *restrict to, size_t n) { return fails("link", ENOENT) ? -1 : (ssize_t)syscall(SYS_readlink, path, to, n); }
int flock(int fd, int how) { return fails("lock", ENOLCK) ? -1 : (int)syscall(SYS_flock, fd, how); }
int poll(struct pollfd *p, nfds_t n, int ms) { return fails("poll", ENOMEM) ? -1 : NEXT(poll)(p, n, ms); }
DIR *opendir(const char *path) { return fails("list", EIO) ? NULL : NEXT(opendir)(path); }

int unlink(const char *path) { return fails("remove", EACCES) ? -1 : (int)syscall(SYS_unlink, path); }
int rmdir(const char *path) { return fails("remove", EACCES) ? -1 : (int)syscall(SYS_rmdir, path); }

int mkdir(const char *path, mode_t mode) { return fails("mkdir", ENOSPC) ? -1 : (int)syscall(SYS_mkdir, path, mode); }

static mode_t mode_of(int flags, va_list more)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    return fails("open", EMFILE) ? -1 : (int)syscall(SYS_openat, dir, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int dir, const char *path, int flags, ...) __attribute__((alias("openat")));

FILE *fopen(const char *path, const char *mode) { return fails("open", EMFILE) ? NULL : NEXT(fopen)(path, mode); }

/* --- networks and processes ---------------------------------------------------------------------------------------- */

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    return fails("recv", ECONNRESET) ? -1 : syscall(SYS_recvfrom, fd, buf, cut(n), flags, NULL, NULL);
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    return fails("send", ECONNRESET) ? -1 : syscall(SYS_sendto, fd, buf, cut(n), flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    struct msghdr first = *m;
    if (shortened() && first.msg_iovlen > 1)
        first.msg_iovlen = 1;
    return fails("send", ECONNRESET) ? -1 : syscall(SYS_sendmsg, fd, &first, flags);
}

ssize_t sendfile64(int out, int in, off64_t *at, size_t n)
{
    return fails("send", ECONNRESET) ? -1 : syscall(SYS_sendfile, out, in, at, cut(n));
}

int accept(int fd, struct sockaddr *restrict a, socklen_t *restrict n) { return fails("accept", EMFILE) ? -1 : (int)syscall(SYS_accept4, fd, a, n, 0); }

int accept4(int fd, struct sockaddr *restrict a, socklen_t *restrict n, int flags)
{
    return fails("accept", EMFILE) ? -1 : (int)syscall(SYS_accept4, fd, a, n, flags);
}

int socket(int domain, int type, int protocol) { return fails("socket", EMFILE) ? -1 : (int)syscall(SYS_socket, domain, type, protocol); }
int bind(int fd, const struct sockaddr *a, socklen_t n) { return fails("socket", EADDRINUSE) ? -1 : (int)syscall(SYS_bind, fd, a, n); }
int listen(int fd, int n) { return fails("socket", EADDRINUSE) ? -1 : (int)syscall(SYS_listen, fd, n); }
int connect(int fd, const struct sockaddr *a, socklen_t n) { return fails("socket", ECONNREFUSED) ? -1 : (int)syscall(SYS_connect, fd, a, n); }

pid_t fork(void) { return fails("process", EAGAIN) ? -1 : NEXT(fork)(); }

/* --- memory and threads ------------------------------------------------------------------------------------------- */

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return fails("map", ENOMEM) ? MAP_FAILED : (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset) { return mmap(at, n, prot, flags, fd, offset); }

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    return fails("thread", EAGAIN) ? EAGAIN : NEXT(pthread_create)(t, attr, run, arg);
}

/* glibc's own entry points: dlsym() itself may allocate. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t alignment, size_t n);

#ifndef NO_MALLOC
/* glibc 2.36's regcomp() frees twice when memory ends inside it (regcomp.c, free_dfa_content after a failed parse): only a matcher of our own could help that, so
 * its allocations are neither counted nor failed: there a program of ours may end by glibc's abort instead of with 75. */
static __thread int in_regcomp;
int regcomp(regex_t *restrict re, const char *restrict pattern, int flags)
{
    in_regcomp++;
    int r = NEXT(regcomp)(re, pattern, flags);
    in_regcomp--;
    return r;
}
static int no_memory(void) { return !in_regcomp && fails("malloc", ENOMEM); }

void *malloc(size_t n) { return no_memory() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return no_memory() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return no_memory() ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t alignment, size_t n) { return no_memory() ? NULL : __libc_memalign(alignment, n); }
int posix_memalign(void **p, size_t alignment, size_t n)
{
    void *got = aligned_alloc(alignment, n);
    if (!got)
        return ENOMEM;
    *p = got;
    return 0;
}
#endif
