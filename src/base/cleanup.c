#include "base/cleanup.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/err.h"

/* The handler reads this table without a lock: a slot is published last and withdrawn first. */
#define SLOTS 4096
static char *volatile slot[SLOTS];
static volatile sig_atomic_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void remove_all(void)
{
    for (int i = used - 1; i >= 0; i--) {
        char *path = slot[i];
        if (path && unlink(path) != 0)
            rmdir(path);
    }
}

static void on_signal(int sig)
{
    remove_all();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void catch_signals(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++) {
        struct sigaction old, act;
        memset(&act, 0, sizeof act);
        act.sa_handler = on_signal;
        sigemptyset(&act.sa_mask);
        /* A program with a handler of its own keeps it, and one started with nohup stays deaf. */
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(caught[i], &act, NULL);
    }
}

void cleanup_add(const char *path)
{
    static int catching;
    char *copy = xstrdup(path);
    pthread_mutex_lock(&lock);
    if (!catching) {
        catch_signals();
        catching = 1;
    }
    int i = 0;
    while (i < used && slot[i])
        i++;
    int full = i == SLOTS;
    if (!full) {
        slot[i] = copy;
        if (i == used)
            used = i + 1;
    }
    pthread_mutex_unlock(&lock);
    if (full)
        die_msg(EXIT_BUG, "more than %d unfinished files", SLOTS);
}

/* path itself, or something in the directory path */
static int covered(const char *path, const char *registered)
{
    size_t n = strlen(path);
    return strncmp(path, registered, n) == 0 && (registered[n] == 0 || registered[n] == '/');
}

void cleanup_forget(const char *path)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < used; i++)
        if (slot[i] && covered(path, slot[i])) {
            char *gone = slot[i];
            slot[i] = NULL;
            free(gone);
        }
    while (used > 0 && !slot[used - 1])
        used = used - 1;
    pthread_mutex_unlock(&lock);
}

void cleanup_now(void)
{
    pthread_mutex_lock(&lock);
    remove_all();
    used = 0;
    pthread_mutex_unlock(&lock);
}
