#include "mcp/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"

#define DESCRIPTORS 1024
#define CLEAN_UP_SECONDS 20             /* between the request to end and the end by force */

void command_add(struct command *c, const char *fmt, ...)
{
    struct buf text = BUF_INIT;
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    c->argv = xreallocarray(c->argv, c->argc + 2, sizeof *c->argv);
    c->argv[c->argc++] = text.data;
    c->argv[c->argc] = NULL;
}

void command_free(struct command *c)
{
    for (size_t i = 0; i < c->argc; i++) free(c->argv[i]);
    free(c->argv);
    buf_free(&c->input);
    *c = (struct command){0};
}

static void default_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < 32; sig++) signal(sig, SIG_DFL);
}

_Noreturn static void become(char **argv, const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0) _exit(127);
    for (int fd = 3; fd < DESCRIPTORS; fd++) close(fd);
    execv(argv[0], argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static int open_pipes(int fds[3][2], struct err *e)
{
    for (int i = 0; i < 3; i++)
        if (pipe(fds[i])) return err_process(e);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) fcntl(fds[i][k], F_SETFD, FD_CLOEXEC);
    fcntl(fds[0][1], F_SETFL, O_NONBLOCK);
    fcntl(fds[1][0], F_SETFL, O_NONBLOCK);
    fcntl(fds[2][0], F_SETFL, O_NONBLOCK);
    return 0;
}

static void close_all(int fds[3][2])
{
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++)
            if (fds[i][k] >= 0) close(fds[i][k]);
}

int job_start(struct job *j, struct command *c, struct err *e)
{
    int fds[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t me = getpid();
    if (open_pipes(fds, e)) {
        close_all(fds);
        return -1;
    }
    pid_t pid = fork();
    if (!pid) {
        setpgid(0, 0);
        default_signals();
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != me) _exit(127);
        become(c->argv, (int[]){fds[0][0], fds[1][1], fds[2][1]});
    }
    if (pid < 0) {
        err_process(e);
        close_all(fds);
        return -1;
    }
    setpgid(pid, pid);
    close(fds[0][0]);
    close(fds[1][1]);
    close(fds[2][1]);
    *j = (struct job){.pid = pid, .in = fds[0][1], .out = fds[1][0], .err = fds[2][0], .input = c->input};
    c->input = (struct buf)BUF_INIT;
    return 0;
}

size_t job_poll(const struct job *j, struct pollfd *p)
{
    size_t n = 0;
    if (j->in >= 0) p[n++] = (struct pollfd){.fd = j->in, .events = j->sent < j->input.n ? POLLOUT : 0};
    if (j->out >= 0) p[n++] = (struct pollfd){.fd = j->out, .events = POLLIN};
    if (j->err >= 0) p[n++] = (struct pollfd){.fd = j->err, .events = POLLIN};
    return n;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void feed(struct job *j)
{
    while (j->in >= 0 && j->sent < j->input.n) {
        ssize_t n = write(j->in, j->input.data + j->sent, j->input.n - j->sent);
        if (n > 0) j->sent += (size_t)n;
        else if (errno == EAGAIN) return;
        else if (errno != EINTR) break;                 /* it does not want the rest; its exit status says why */
    }
    close_fd(&j->in);
}

static void drain(int *fd, struct buf *b, size_t *dropped)
{
    char chunk[16384];
    for (int i = 0; *fd >= 0 && i < 256; i++) {         /* one that never stops must not keep the others waiting */
        ssize_t n = read(*fd, chunk, sizeof chunk);
        if (n > 0) {
            buf_add(b, chunk, (size_t)n);
            if (b->n > 2 * JOB_OUTPUT_MAX) {
                size_t gone = b->n - JOB_OUTPUT_MAX;
                memmove(b->data, b->data + gone, JOB_OUTPUT_MAX + 1);
                b->n = JOB_OUTPUT_MAX;
                *dropped += gone;
            }
        } else if (n < 0 && errno == EAGAIN) {
            return;
        } else if (n == 0 || errno != EINTR) {
            close_fd(fd);
        }
    }
}

bool job_step(struct job *j)
{
    int status;
    size_t dropped = 0;
    if (!j->pid) return true;
    pid_t ended = waitpid(j->pid, &status, WNOHANG);
    feed(j);
    drain(&j->out, &j->output, &j->dropped);
    drain(&j->err, &j->errors, &dropped);
    if (ended != j->pid) {
        if (j->stop_at > 0 && clock_seconds() - j->stop_at > CLEAN_UP_SECONDS) kill(-j->pid, SIGKILL);
        return false;
    }
    j->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    j->pid = 0;
    close_fd(&j->in);
    close_fd(&j->out);
    close_fd(&j->err);
    return true;
}

void job_stop(struct job *j)
{
    if (!j->pid || j->stop_at > 0) return;
    j->stop_at = clock_seconds();
    kill(-j->pid, SIGTERM);
}

void job_free(struct job *j)
{
    buf_free(&j->input);
    buf_free(&j->output);
    buf_free(&j->errors);
}
