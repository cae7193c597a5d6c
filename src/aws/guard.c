#include "aws/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "aws/endpoint.h"

#define LOOK_MS 2000                    /* between two looks at expiry while the guard lives */
#define ROUNDS_FIRST 5.0                /* seconds before what could not be deleted is tried again; sooner where looks are (--poll) */
#define ROUNDS_MOST 300.0
#define DISK_ROUNDS 5                   /* of which the journal could not be read or written */
#define FINISH_LOOK_MS 200              /* between two looks at what the watcher says */
#define FINISH_PATIENCE 900.0           /* of a guard that deletes itself, because its watcher was killed */
#define HERE_PATIENCE 120.0             /* a rehearsal's server that is gone does not come back by waiting */

/* --- deleting what the journal names -------------------------------------------------------------------------------- */

static bool is_mine(const struct journal_entry *x, bool only_orphans, const char *own)
{
    if (x->guard && own && !strcmp(x->guard, own)) return true;
    if (x->guard) return !journal_guard_lives(x->guard);
    return !only_orphans;
}

static int delete_entry(const struct journal_entry *x, double poll, double patience, struct err *e)
{
    struct aws_session s;
    if (aws_session_open(&s, x->profile, e)) return -1;
    aws_config_pin(s.config, x->url);
    bool here = x->url && aws_url_is_loopback(x->url);
    struct teardown t = {.poll = poll, .patience = here && patience == 0 ? HERE_PATIENCE : patience, .through_expiry = patience == 0, .settle = true};
    int bad = endpoint_teardown(&s, x, &t, e);
    aws_session_close(&s);
    return bad;
}

int guard_sweep(bool only_orphans, const char *own, double poll, double patience, struct err *e)
{
    struct journal_entry *list;
    size_t n;
    int bad = 0;
    if (journal_load(&list, &n, e)) {
        fprintf(stderr, "%s: %s\n", prog_name, e->msg);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        struct err fault = {0};
        if (!is_mine(&list[i], only_orphans, own)) continue;
        fprintf(stderr, "%s: deleting %s@%s\n", prog_name, list[i].name, list[i].region);
        if (!delete_entry(&list[i], poll, patience, &fault)) {
            fprintf(stderr, "%s: %s@%s is gone\n", prog_name, list[i].name, list[i].region);
            continue;
        }
        fprintf(stderr, "%s: %s\n", prog_name, fault.msg);
        if (!bad || fault.code == EXIT_TEMPFAIL) *e = fault;            /* what is worth another round counts */
        bad = -1;
    }
    journal_free(list, n);
    return bad;
}

/* What has expired is deleted while its guard lives. */
static void sweep_expired(bool only_orphans, const char *own, double poll)
{
    struct journal_entry *list;
    struct err fault = {0};
    size_t n;
    time_t now = time(NULL);
    if (journal_load(&list, &n, &fault)) return;
    for (size_t i = 0; i < n; i++) {
        if (!list[i].expires || list[i].expires > now || !is_mine(&list[i], only_orphans, own)) continue;
        fprintf(stderr, "%s: %s@%s has expired: deleting it\n", prog_name, list[i].name, list[i].region);
        struct err e = {0};
        if (delete_entry(&list[i], poll, 60, &e)) fprintf(stderr, "%s: %s\n", prog_name, e.msg);
    }
    journal_free(list, n);
}

/* --- the watcher ---------------------------------------------------------------------------------------------------- */

static void detach(int log)
{
    static const int DEAF[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU};
    for (size_t i = 0; i < sizeof DEAF / sizeof *DEAF; i++) signal(DEAF[i], SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(log, 2);
    if (null > 2) close(null);
    setvbuf(stderr, NULL, _IOLBF, 0);
    if (chdir("/")) fprintf(stderr, "%s: stays in its directory\n", prog_name);
}

/* Until the guard's end of the pipe is closed. */
static void watch_guard(int hold, const struct guard *g)
{
    for (;;) {
        struct pollfd p = {.fd = hold, .events = POLLIN};
        int got = poll(&p, 1, LOOK_MS);
        if (got > 0 || (got < 0 && errno != EINTR)) return;     /* nothing is ever written: this is the end */
        sweep_expired(g->narrow, g->id, g->poll);
    }
}

/* Rounds until all is gone; only what needs a person, or a disk that fails again and again, ends them early.  What the guard's command still asks for meanwhile is deleted in the next round. */
static int clean_up(const char *id, bool only_orphans, double poll_s)
{
    int disk = 0;
    double first = poll_s > 0 && poll_s < ROUNDS_FIRST ? poll_s : ROUNDS_FIRST;
    for (double wait = first;; wait = wait * 2 < ROUNDS_MOST ? wait * 2 : ROUNDS_MOST) {
        struct err e = {0};
        int ended = 0;
        if (!guard_sweep(only_orphans, id, poll_s, 0, &e) && (ended = journal_guard_end(id, &e)) > 0) return 0;
        if (!e.code) wait = first;
        else if (e.code == EXIT_IO && ++disk < DISK_ROUNDS) wait = first;
        else if (e.code != EXIT_TEMPFAIL || strstr(e.msg, "127.0.0.1") || strstr(e.msg, "localhost")) return e.code;
        if (e.code) endpoint_pause(wait, NULL);
    }
}

/* Runs as the watcher; never returns. */
_Noreturn static void be_watcher(const struct guard *g, int hold, int done, int log)
{
    int rc;
    detach(log);
    if (hold >= 0) watch_guard(hold, g);
    rc = clean_up(g->id, g->narrow, g->poll);
    fprintf(stderr, "%s: %s\n", prog_name, rc ? "something may still run: see above" : "nothing is left");
    bool told = done >= 0 && write(done, &(unsigned char){(unsigned char)rc}, 1) == 1;
    if (!rc && !told) unlink(g->log);           /* nobody is left to read it, and the journal says what became of all */
    _exit(rc);
}

/* Forks twice, so that the watcher is nobody's child.  It inherits the guard's lock. */
static int spawn_watcher(struct guard *g, int *hold_end, int *done_end, struct err *e)
{
    int hold[2] = {-1, -1}, done[2] = {-1, -1};
    int log = open(g->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0) return err_errno(e, EXIT_IO, "%s: the watcher's log cannot be written", g->log);
    if (hold_end && (pipe(hold) || pipe(done))) return err_process(e);
    fflush(stderr);
    pid_t pid = fork();
    if (pid < 0) return err_process(e);
    if (pid == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        for (int fd = 3; fd < 256; fd++)
            if (fd != hold[0] && fd != done[1] && fd != log && fd != g->lock) close(fd);
        be_watcher(g, hold[0], done[1], log);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    close(log);
    if (!hold_end) return 0;
    close(hold[0]);
    close(done[1]);
    fcntl(hold[1], F_SETFD, FD_CLOEXEC);
    fcntl(done[0], F_SETFD, FD_CLOEXEC);
    *hold_end = hold[1];
    *done_end = done[0];
    return 0;
}

static int name_log(struct guard *g, double poll_s, struct err *e)
{
    const char *dir = journal_directory(e);
    if (!dir) return -1;
    g->poll = poll_s;
    g->log = xasprintf("%s/guard-%s.log", dir, g->id);
    return 0;
}

static int warn_of_others(const struct guard *g, struct err *e)
{
    struct journal_entry *list;
    size_t n;
    if (journal_load(&list, &n, e)) return -1;
    for (size_t i = 0; i < n; i++)
        if (is_mine(&list[i], g->narrow, g->id)) warn_msg("%s@%s is in the journal already: it will be deleted, too", list[i].name, list[i].region);
    journal_free(list, n);
    return 0;
}

int guard_start(struct guard *g, double poll_s, struct err *e)
{
    const char *outer = getenv("Q4SWEEP_GUARD");
    g->outer = outer && *outer ? xstrdup(outer) : NULL;
    snprintf(g->id, sizeof g->id, "%lx-%lx", (unsigned long)time(NULL), (unsigned long)getpid());
    if (name_log(g, poll_s, e) || warn_of_others(g, e)) return -1;
    if ((g->lock = journal_guard_lock(g->id, e)) < 0 || spawn_watcher(g, &g->hold, &g->done, e)) return -1;
    return setenv("Q4SWEEP_GUARD", g->id, 1) ? err_errno(e, EXIT_TEMPFAIL, "the environment cannot hold the guard's name") : 0;
}

int guard_check(struct guard *g, struct err *e)
{
    struct pollfd p = {.fd = g->done, .events = POLLIN};
    if (poll(&p, 1, 0) <= 0) return 0;
    warn_msg("the watcher was killed: starting another");
    close(g->done);
    close(g->hold);
    return spawn_watcher(g, &g->hold, &g->done, e);
}

int guard_release(const struct guard *g, struct err *e)
{
    struct journal_entry *list;
    size_t n;
    int bad = 0;
    if (journal_load(&list, &n, e)) return -1;
    for (size_t i = 0; i < n && !bad; i++) {
        if (!list[i].guard || strcmp(list[i].guard, g->id)) continue;
        struct journal_entry kept = list[i];
        kept.guard = g->outer;
        bad = journal_intent(&kept, "Keep", e);
    }
    journal_free(list, n);
    return bad;
}

/* What was added to the log since `from`. */
static off_t show_log(const char *path, off_t from)
{
    char part[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = pread(fd, part, sizeof part, from)) > 0; from += n)
        if (write(2, part, (size_t)n) != n) break;
    if (fd >= 0) close(fd);
    return from;
}

/* Waits for the watcher's last word: 1 = told, 0 = it was killed, -1 = a signal came. */
static int await_watcher(const struct guard *g, const volatile int *stop, off_t *shown, unsigned char *rc)
{
    struct pollfd p = {.fd = g->done, .events = POLLIN};
    while (poll(&p, 1, FINISH_LOOK_MS) <= 0) {
        if (prog_verbosity >= 0) *shown = show_log(g->log, *shown);
        if (stop && *stop) return -1;
    }
    return read(g->done, rc, 1) == 1;
}

int guard_finish(struct guard *g, const volatile int *stop, struct err *e)
{
    unsigned char rc = EXIT_BUG;
    off_t shown = 0;
    struct err fault = {0};
    int told;
    close(g->hold);
    while (!(told = await_watcher(g, stop, &shown, &rc))) {
        warn_msg("the watcher was killed while it deleted: starting another");
        close(g->done);
        if (spawn_watcher(g, &g->hold, &g->done, &fault)) break;
        close(g->hold);
    }
    if (told < 0) return err_set(e, 128 + *stop, "the watcher goes on deleting by itself; what it does is in %s", g->log);
    if (told) close(g->done);
    if (prog_verbosity >= 0 || rc) show_log(g->log, shown);
    if (!told) {
        warn_msg("%s: deleting what is left without one", fault.msg);
        rc = guard_sweep(g->narrow, g->id, g->poll, FINISH_PATIENCE, e) || journal_guard_end(g->id, e) <= 0;
    }
    close(g->lock);
    if (rc) return err_set(e, told ? rc : EXIT_TEMPFAIL, "not everything could be deleted: see above: sm-endpoint guard --sweep-up tries again");
    unlink(g->log);
    return 0;
}

/* Takes the dead guard's place: whoever comes next finds its lock held. */
static void adopt(const struct journal_entry *x)
{
    struct guard g = {.lock = -1, .narrow = true};
    struct err e = {0}, taken = {0};
    snprintf(g.id, sizeof g.id, "%s", x->guard);
    if ((g.lock = journal_guard_lock(g.id, &taken)) < 0) return;
    warn_msg("%s@%s was left running by a guard that was killed: deleting it in the background", x->name, x->region);
    if (name_log(&g, 0, &e) || spawn_watcher(&g, NULL, NULL, &e)) warn_msg("%s", e.msg);
    else note_msg("what becomes of it is in %s", g.log);
    close(g.lock);
    free(g.log);
}

void guard_adopt_orphans(void)
{
    struct journal_entry *list;
    struct err fault = {0};
    size_t n;
    if (journal_load(&list, &n, &fault)) {
        warn_msg("%s: what a killed guard left running is not known", fault.msg);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (journal_is_orphan(&list[i])) adopt(&list[i]);
    journal_free(list, n);
}
