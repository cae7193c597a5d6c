#include "base/cleanup.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/err.h"

/* The handler reads these tables without a lock: a slot is published last and withdrawn first, and a table, once there, stays. */
#define SLOTS 256
struct table {
    char *volatile slot[SLOTS];
    volatile sig_atomic_t used;
    struct table *volatile more;
};
static struct table first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What was added last goes first: a directory after what lies in it. */
static void remove_all(struct table *t)
{
    if (t->more)
        remove_all(t->more);
    for (int i = t->used - 1; i >= 0; i--) {
        char *path = t->slot[i];
        if (path && unlink(path) != 0)
            rmdir(path);
    }
}

static void on_signal(int sig)
{
    remove_all(&first);
    signal(sig, SIG_DFL);
    raise(sig);
}

static void catch_signals(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU};
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
    struct table *spare = xcalloc(1, sizeof *spare);        /* not under the lock: it dies, and so cleans up, when there is no memory */
    pthread_mutex_lock(&lock);
    if (!catching) {
        catch_signals();
        catching = 1;
    }
    struct table *t = &first;
    int i;
    for (;; t = t->more) {
        for (i = 0; i < t->used && t->slot[i]; )
            i++;
        if (i < SLOTS)
            break;
        if (!t->more) {
            t->more = spare;
            spare = NULL;
        }
    }
    t->slot[i] = copy;
    if (i == t->used)
        t->used = i + 1;
    pthread_mutex_unlock(&lock);
    free(spare);
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
    for (struct table *t = &first; t; t = t->more) {
        for (int i = 0; i < t->used; i++)
            if (t->slot[i] && covered(path, t->slot[i])) {
                char *gone = t->slot[i];
                t->slot[i] = NULL;
                free(gone);
            }
        while (t->used > 0 && !t->slot[t->used - 1])
            t->used = t->used - 1;
    }
    pthread_mutex_unlock(&lock);
}

void cleanup_now(void)
{
    pthread_mutex_lock(&lock);
    remove_all(&first);
    for (struct table *t = &first; t; t = t->more)
        t->used = 0;
    pthread_mutex_unlock(&lock);
}
