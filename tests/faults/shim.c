/* LD_PRELOAD: makes one call of a program fail, or every transfer short.
 *
 *     FAULT_KIND   read | write | sync | rename | exchange | remove | open | mkdir | map | thread | malloc    what fails
 *                  close | stat | list | link | lock | poll | full | end                                   closing what was written, asking for a file's facts, opening a directory
 *                  recv | send | accept | socket | process                                the same of a network
 *                  short                              every transfer moves at most half of what was asked, and first says EINTR
 *     FAULT_AT     N       the N-th call of that kind fails, counted over the whole process from main on; a forked child counts on from its parent
 *                  N@SITE  the first call from that site fails, which was about the N-th of its thread: a site is the chain of the
 *                          program's own return addresses, each counted once, however deep a recursion, with the FAULT_FRAMES (0) innermost of libraries
 *                  P:N, P:N@SITE   the same in the process P alone: 0 is the first, 0.1 its first child, 0.2 its second, 0.1.1 a child's child;
 *                          each counts for itself, and a child that starts a program of this name is meant too
 *                  sites   none fails; P:N@SITE for each site that calls is written to the file FAULT_SITES, a line each
 *     FAULT_RUN    how many calls from the N-th on fail [1]
 *     FAULT_LOG    a file that is created when the call has failed: without it, there was no such call.  Where it exists already nothing
 *                  fails.
 *     FAULT_PROGRAM  only in programs of this name; others that a program starts are left alone
 *     FAULT_ASK, FAULT_SAY  two FIFOs: the program does not begin, but reads lines "KIND AT STDIN" and for each forks a child that begins with
 *                  that fault, stdin from STDIN, stdout and stderr to files of these names.  It answers with the child's pid, then with its exit
 *                  status (128 + signal), a line each.  That spares thousands of runs their start, and the addresses of all are the same.
 *
 * full: statvfs finds nothing free; end: a read is at the end of its file.
 * A failing read, sync, close, stat or list says EIO, a write ENOSPC, a removal EACCES, an exchange of names EINVAL as on a file system that has none, an open, socket or accepted connection EMFILE, a rename EIO, memory ENOMEM, a thread or process
 * EAGAIN, a transfer over a network ECONNRESET.
 *
 * What is taken before main does not count: the loader's memory, and that of the constructors of linked libraries (the CUDA runtime's die of its want), is not in
 * the program's hands, and none of its code has run that could answer.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <regex.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
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
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

static bool begun;      /* main has */
static char kind_wanted[16], process[32] = "0", process_wanted[32];
static long number_wanted, run_wanted;
static uint64_t site_wanted;
static bool sites_wanted;
static atomic_long calls;
static int frames_of_libraries;

static void want(const char *kind, const char *at)
{
    const char *number = strchr(at, ':');
    char *end;
    snprintf(kind_wanted, sizeof kind_wanted, "%s", kind);
    snprintf(process_wanted, sizeof process_wanted, "%.*s", number ? (int)(number - at) : 0, at);
    number = number ? number + 1 : at;
    run_wanted = getenv("FAULT_RUN") ? atol(getenv("FAULT_RUN")) : 1;
    frames_of_libraries = getenv("FAULT_FRAMES") ? atoi(getenv("FAULT_FRAMES")) : 0;
    sites_wanted = !strcmp(at, "sites");
    number_wanted = strtol(number, &end, 10);
    site_wanted = *end == '@' ? strtoull(end + 1, NULL, 16) : 0;
}

/* --- where a call comes from --------------------------------------------------------------------------------------- */

static int (*program_main)(int, char **, char **);

/* Where the file that holds this address begins in memory: the address less that is the same in every process. */
static uintptr_t file_of(uintptr_t at)
{
    struct dl_find_object file;
    return _dl_find_object((void *)at, &file) == 0 ? (uintptr_t)file.dlfo_map_start : 0;
}

/* How many frames of this file lie above the call. */
enum { OWN = 4 };
struct chain { int seen, of_libraries, n; uintptr_t program, at[64]; };

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *frame, void *to)
{
    struct chain *c = to;
    uintptr_t at = _Unwind_GetIP(frame);
    if (c->seen++ < OWN)
        return _URC_NO_REASON;
    uintptr_t file = file_of(at);
    if (file != c->program && c->of_libraries++ >= frames_of_libraries)
        return _URC_NO_REASON;
    at -= file;
    for (int i = 0; i < c->n; i++)
        if (c->at[i] == at)     /* recursion: how deep makes no other site */
            return _URC_NO_REASON;
    c->at[c->n++] = at;
    return c->n < 64 ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static uint64_t site(void)
{
    struct chain c = {.program = file_of((uintptr_t)program_main)};
    _Unwind_Backtrace(add_frame, &c);
    uint64_t h = 14695981039346656037u;
    for (int i = 0; i < c.n; i++)
        h = (h ^ c.at[i]) * 1099511628211u, h ^= h >> 29;
    return h | 1;
}

/* Writes a site down the first time it is seen. */
static void note_site(uint64_t s, long call)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t seen[1 << 16];
    const char *path = getenv("FAULT_SITES");
    /* A child begins anew. */
    static pid_t whose;
    pthread_mutex_lock(&one_at_a_time);
    if (whose != getpid())
        memset(seen, 0, sizeof seen);
    whose = getpid();
    size_t i = s % (1 << 16);
    while (seen[i] && seen[i] != s)
        i = (i + 1) % (1 << 16);
    if (path && !seen[i]) {
        seen[i] = s;
        char line[80];
        int n = snprintf(line, sizeof line, "%s:%ld@%llx\n", process, call, (unsigned long long)s);
        long fd = syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
        syscall(SYS_write, fd, line, n);
        syscall(SYS_close, fd);
    }
    pthread_mutex_unlock(&one_at_a_time);
}

/* --- which call fails ----------------------------------------------------------------------------------------------- */

/* False: another call has failed already. */
static bool leave_a_note(int flags)
{
    const char *log = getenv("FAULT_LOG");
    long fd = log ? syscall(SYS_openat, AT_FDCWD, log, O_CREAT | O_WRONLY | O_CLOEXEC | flags, 0600) : -1;
    if (fd >= 0)
        syscall(SYS_close, fd);
    return fd >= 0;
}

static bool is_it(void)
{
    static __thread long of_this_thread;
    static __thread bool looking;       /* what looking for the site calls is no call of the program */
    static atomic_bool met;
    if (!sites_wanted && !site_wanted) {
        long since = atomic_fetch_add(&calls, 1) + 1 - number_wanted;
        return since >= 0 && since < run_wanted;
    }
    if (looking || met || (++of_this_thread < number_wanted - number_wanted / 16 - 20 && site_wanted))
        return false;
    looking = true;
    uint64_t s = site();
    if (sites_wanted)
        note_site(s, of_this_thread);
    looking = false;
    return s == site_wanted && !atomic_exchange(&met, true);
}

static bool fails(const char *kind, int error)
{
    static atomic_int failed;
    if (!begun || strcmp(kind_wanted, kind) || (*process_wanted && strcmp(process, process_wanted)) || !is_it() || !leave_a_note(failed++ ? 0 : O_EXCL))
        return false;
    errno = error;
    return true;
}

static bool shortened(void) { return begun && !strcmp(kind_wanted, "short"); }

/* Half of n, at least 1: what a transfer may move; and every other call is interrupted before it moves anything. */
static bool interrupted(void)
{
    static atomic_long transfers;
    if (!shortened() || atomic_fetch_add(&transfers, 1) % 2)
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

/* The disk is not asked: no run ends by want of power, and most of the time of many would be this. */
int fsync(int fd) { return fails("sync", EIO) || fcntl(fd, F_GETFD) < 0 ? -1 : 0; }
int fdatasync(int fd) { return fsync(fd); }

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
int unlinkat(int dir, const char *path, int flags) { return fails("remove", EACCES) ? -1 : (int)syscall(SYS_unlinkat, dir, path, flags); }
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

pid_t fork(void)
{
    static int children;
    if (fails("process", EAGAIN))
        return -1;
    pid_t pid = NEXT(fork)();
    children += pid != 0;
    if (pid == 0 && begun) {
        size_t n = strlen(process);
        snprintf(process + n, sizeof process - n, ".%d", children + 1);
        begun = false;                  /* this is no memory of the program's */
        setenv("FAULT_PROCESS", process, 1);
        begun = true;
        children = 0;
        if (*process_wanted)
            calls = 0;
    }
    return pid;
}

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
/* glibc 2.36's regcomp() frees twice and aborts when memory ends inside a part of an alternative or of a repetition, as for ^a$|^b$ or [^a]*[b]{1,9}; only a matcher of our
 * own could help that, so its allocations are neither counted nor failed: there a program of ours may end by glibc's abort instead of with 75. */
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

/* --- main, once or many times ---------------------------------------------------------------------------------------- */

/* The next word of a line from fd, which ends at a blank or the line's end; false at the end of the file. */
static bool read_word(int fd, char *word, size_t room)
{
    for (size_t n = 0; syscall(SYS_read, fd, word + n, 1) == 1; n++)
        if (word[n] == ' ' || word[n] == '\n' || n + 1 == room) {
            word[n] = 0;
            return true;
        }
    return false;
}

static void say_number(int fd, int n)
{
    char line[16];
    int len = snprintf(line, sizeof line, "%d\n", n);
    syscall(SYS_write, fd, line, len);
}

static void put_at(int fd, const char *path, int flags)
{
    int from = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
    if (from < 0)
        _exit(127);
    syscall(SYS_dup3, from, fd, 0);
    syscall(SYS_close, from);
}

/* In each child this returns, and main begins; in the first process it does not. */
static void fork_for_each_line(const char *ask_path, const char *say_path)
{
    /* Whoever asks holds both FIFOs open for reading and writing. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int ask = (int)syscall(SYS_openat, AT_FDCWD, ask_path, O_RDONLY | O_CLOEXEC), say = (int)syscall(SYS_openat, AT_FDCWD, say_path, O_WRONLY | O_CLOEXEC);
    syscall(SYS_unlink, ask_path);
    syscall(SYS_unlink, say_path);
    char kind[16], at[32], in[4096];
    while (read_word(ask, kind, sizeof kind) && read_word(ask, at, sizeof at) && read_word(ask, in, sizeof in)) {
        if (getenv("FAULT_LOG"))
            syscall(SYS_unlink, getenv("FAULT_LOG"));
        pid_t pid = NEXT(fork)();
        if (pid == 0) {
            syscall(SYS_close, ask);
            syscall(SYS_close, say);
            put_at(STDIN_FILENO, in, O_RDONLY);
            put_at(STDOUT_FILENO, "stdout", O_WRONLY | O_CREAT | O_TRUNC);
            put_at(STDERR_FILENO, "stderr", O_WRONLY | O_CREAT | O_TRUNC);
            /* For programs of the same name that it starts. */
            unsetenv("FAULT_ASK");
            setenv("FAULT_KIND", kind, 1);
            setenv("FAULT_AT", at, 1);
            want(kind, at);
            return;
        }
        say_number(say, pid);
        int status = 127 << 8;
        if (pid > 0)
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        say_number(say, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    _exit(0);
}

static int begin(int argc, char **argv, char **env)
{
    const char *only = getenv("FAULT_PROGRAM"), *ask = getenv("FAULT_ASK"), *kind = getenv("FAULT_KIND");
    if (getenv("FAULT_PROCESS"))
        snprintf(process, sizeof process, "%s", getenv("FAULT_PROCESS"));
    if (!only || !strcmp(only, program_invocation_short_name)) {
        if (ask)
            fork_for_each_line(ask, getenv("FAULT_SAY"));
        else if (kind)
            want(kind, getenv("FAULT_AT"));
        begun = true;
    }
    (void)env;
    return program_main(argc, argv, environ);
}

typedef int start_fn(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
start_fn __libc_start_main;
int __libc_start_main(int (*f)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    program_main = f;
    return ((start_fn *)(uintptr_t)dlsym(RTLD_NEXT, "__libc_start_main"))(begin, argc, argv, init, fini, rtld_fini, stack_end);
}
