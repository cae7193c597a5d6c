#include "rehearse/container.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_MAX_BYTES 262144           /* a longer one is cut, as the service cuts events at 256 KiB */
#define DESCRIPTORS 1024
#define PIPE_BYTES 65536                /* what a pipe holds, and what one look takes from it: a container that writes without end must wait, not everything else */

extern char **environ;

int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0), port = 0;
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, n) && !getsockname(fd, (struct sockaddr *)&a, &n)) port = ntohs(a.sin_port);
    if (fd >= 0) close(fd);
    return port;
}

static bool has_name(char *const *env, const char *pair)
{
    size_t n = strcspn(pair, "=");
    for (; *env; env++)
        if (!strncmp(*env, pair, n) && (*env)[n] == '=') return true;
    return false;
}

/* This program's environment without credentials, then the container's. */
static char **merged(char *const *env)
{
    size_t n = 0, mine = 0;
    while (environ[mine]) mine++;
    while (env[n]) n++;
    char **list = xcalloc(mine + n + 1, sizeof *list);
    n = 0;
    for (size_t i = 0; i < mine; i++)
        if (strncmp(environ[i], "AWS_", 4) && !has_name(env, environ[i])) list[n++] = environ[i];
    for (; *env; env++) list[n++] = *env;
    return list;
}

_Noreturn static void become(const char *command, char **env, int in, int out, pid_t parent)
{
    static const int OURS[] = {SIGPIPE, SIGTERM, SIGINT, SIGHUP};
    sigset_t none;
    for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++) signal(OURS[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(127);
    for (int fd = 3; fd < DESCRIPTORS; fd++) close(fd);
    execle("/bin/sh", "sh", "-c", command, (char *)NULL, env);
    _exit(127);
}

int container_start(struct container *c, const char *command, char *const *env, struct err *e)
{
    int in[2], out[2];
    pid_t me = getpid();
    if (pipe(in)) return err_process(e);
    if (pipe(out)) {
        (void)err_process(e);
        close(in[0]);
        close(in[1]);
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(in[i], F_SETFD, FD_CLOEXEC);
        fcntl(out[i], F_SETFD, FD_CLOEXEC);
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    char **all = merged(env);
    /* A signal that meets the child before it is the command must end it, not run our handler. */
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    c->pid = fork();
    if (!c->pid) become(command, all, in[0], out[1], me);
    int failed = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(all);
    close(in[0]);
    close(out[1]);
    if (c->pid < 0) {
        close(in[1]);
        close(out[0]);
        c->pid = 0;
        errno = failed;
        return err_process(e);
    }
    setpgid(c->pid, c->pid);
    c->in = in[1];
    c->out = out[0];
    return 0;
}

static void take(struct container *c, const char *p, size_t n, void (*fn)(void *arg, const char *line, size_t n), void *arg)
{
    while (n) {
        const char *end = memchr(p, '\n', n);
        size_t len = end ? (size_t)(end - p) : n;
        buf_add(&c->line, p, len);
        if (end || c->line.n > LINE_MAX_BYTES) {
            fn(arg, c->line.data ? c->line.data : "", c->line.n);
            buf_free(&c->line);
        }
        p += len + (end != NULL);
        n -= len + (end != NULL);
    }
}

static void drain(struct container *c, void (*fn)(void *arg, const char *line, size_t n), void *arg)
{
    char chunk[16384];
    size_t taken = 0;
    for (ssize_t n; taken < PIPE_BYTES && (n = read(c->out, chunk, sizeof chunk)) > 0; taken += (size_t)n) take(c, chunk, (size_t)n, fn, arg);
}

bool container_poll(struct container *c, void (*fn)(void *arg, const char *line, size_t n), void *arg, int *status)
{
    if (!c->pid) return false;
    bool running = waitpid(c->pid, status, WNOHANG) == 0;
    drain(c, fn, arg);
    if (running) return true;
    kill(-c->pid, SIGKILL);             /* what it may have started itself */
    if (c->line.n) fn(arg, c->line.data, c->line.n);
    close(c->in);
    close(c->out);
    buf_free(&c->line);
    c->pid = 0;
    return false;
}

void container_signal(const struct container *c, int sig)
{
    if (c->pid) kill(-c->pid, sig);
}
