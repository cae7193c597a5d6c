#include "base/stop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "base/err.h"

static int pipe_ends[2];
static bool insist;

static void on_signal(int sig)
{
    static volatile sig_atomic_t again;
    unsigned char byte = (unsigned char)sig;
    if (insist && again++) _exit(128 + sig);
    if (write(pipe_ends[1], &byte, 1) < 0) _exit(128 + sig);
}

void stop_signal(int sig, const struct sigaction *a)
{
    struct sigaction old;
    if (sig != SIGHUP || sigaction(sig, NULL, &old) || old.sa_handler != SIG_IGN) sigaction(sig, a, NULL);
}

void stop_catch(bool at_once)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    insist = at_once;
    struct err e = {0};
    if (pipe(pipe_ends) && err_process(&e)) die(&e);
    stop_signal(SIGTERM, &a);
    stop_signal(SIGINT, &a);
    stop_signal(SIGHUP, &a);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
}

int stop_asked(bool until_eof, int ms)
{
    struct pollfd p[2] = {{.fd = pipe_ends[0], .events = POLLIN}, {.fd = until_eof ? 0 : -1, .events = POLLIN}};
    char dropped[4096];
    unsigned char sig = 0;
    for (;;) {
        if (poll(p, 2, ms) <= 0) return STOP_NOT_YET;
        if (p[0].revents && read(pipe_ends[0], &sig, 1) == 1) return sig;
        ssize_t n = p[1].revents ? read(0, dropped, sizeof dropped) : 1;
        if (n == 0 || (n < 0 && errno != EINTR)) return STOP_EOF;
    }
}
