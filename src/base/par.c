#include "base/par.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include "base/cpus.h"
#include "base/err.h"

/* Turns that a thread waits for the others without sleeping, some tens of microseconds: falling asleep and being woken costs about as much.  Rounds that follow each
 * other quickly find everybody awake; a pool that is idle sleeps. */
enum { SPINS = 1000, MOST_STOLEN = 4 };
/* In a relay one waits for another's read or write, which may be for another process, which wants the CPU. */
enum { RELAY_SPINS = 100 };

/* The items of a round that nobody has taken yet, first and end in 32 bits each: every thread has a run of neighbours, which it takes from the front, so that memory is
 * read in order; one that is done takes some from the end of another's run.  Nobody waits for a thread that has not taken any. */
struct run { _Alignas(64) atomic_uint_fast64_t left; };

struct worker { struct par *par; int run; pthread_t thread; };

struct par {
    int threads;            /* wanted, the caller included */
    int started;            /* workers */
    int spins;              /* 0 when there are more threads than CPUs */
    struct worker *worker;  /* [threads - 1] */
    struct run *run;        /* [threads]; the caller's is the first; those of workers that could not be started are for the others to take */
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    atomic_bool stop, caller_sleeps;
    atomic_int sleepers;
    atomic_uint round;
    atomic_size_t finished;
    /* Written while no item is taken, read by those who have taken one: the round stays until that is finished. */
    size_t count;
    void (*fn)(void *, size_t);
    void *arg;
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static uint64_t span(size_t first, size_t end) { return (uint64_t)first << 32 | end; }

/* Takes one item from the front of a run, or from the end of another's up to MOST_STOLEN, but no more than half; their number. */
static size_t take(struct run *r, bool own, size_t *first)
{
    uint_fast64_t v = atomic_load(&r->left);

    for (;;) {
        const size_t start = (size_t)(v >> 32), end = (size_t)(v & UINT32_MAX), left = end - start;
        const size_t n = own || left < 2 ? 1 : left / 2 < MOST_STOLEN ? left / 2 : MOST_STOLEN;
        if (!left)
            return 0;
        if (atomic_compare_exchange_weak(&r->left, &v, own ? span(start + 1, end) : span(start, end - n))) {
            *first = own ? start : end - n;
            return n;
        }
    }
}

/* Runs items until none are left to take. */
static void run_items(struct par *p, int own)
{
    size_t done = 0, count = 0, first, n;

    for (int i = 0; i < p->threads; i++) {
        struct run *r = &p->run[(own + i) % p->threads];
        while ((n = take(r, i == 0, &first))) {
            count = p->count;
            for (size_t j = 0; j < n; j++)
                p->fn(p->arg, first + j);
            done += n;
        }
    }
    if (done && atomic_fetch_add(&p->finished, done) + done == count && atomic_load(&p->caller_sleeps)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
}

static bool called(struct par *p, unsigned seen) { return atomic_load(&p->round) != seen || atomic_load(&p->stop); }

static void *work(void *arg)
{
    const struct worker *w = arg;
    struct par *p = w->par;
    unsigned seen = 0;

    for (;;) {
        for (int i = 0; i < p->spins && !called(p, seen); i++)
            pause_cpu();
        if (!called(p, seen)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleepers, 1);
            while (!called(p, seen))
                pthread_cond_wait(&p->start, &p->lock);
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->lock);
        }
        if (atomic_load(&p->stop))
            return NULL;
        seen = atomic_load(&p->round);
        run_items(p, w->run);
    }
}

static bool all_finished(struct par *p) { return atomic_load(&p->finished) == p->count; }

static void wait_for_the_rest(struct par *p)
{
    for (int i = 0; i < p->spins && !all_finished(p); i++)
        pause_cpu();
    if (all_finished(p))
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (!all_finished(p))
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

static int cpus;
static void count_cpus(void) { cpus = cpus_usable("/proc", "/sys/fs/cgroup"); }

static int usable_cpus(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, count_cpus);
    return cpus;
}

struct par *par_new(int threads)
{
    struct par *p = xcalloc(1, sizeof *p);
    int want = threads > 0 ? threads : usable_cpus();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    p->worker = xcalloc((size_t)want, sizeof *p->worker);
    p->run = xaligned(sizeof *p->run, (size_t)want * sizeof *p->run);
    for (int i = 0; i < want; i++)
        atomic_init(&p->run[i].left, 0);
    p->spins = want <= usable_cpus() ? SPINS : 0;
    p->threads = want;
    int n = 1;
    for (; n < want; n++) {
        p->worker[n - 1] = (struct worker){.par = p, .run = n};
        if (pthread_create(&p->worker[n - 1].thread, NULL, work, &p->worker[n - 1]))
            break;
    }
    p->started = n - 1;
    return p;
}

int par_threads(const struct par *p)
{
    return p->started + 1;
}

void par_start(struct par *p, size_t count, void (*fn)(void *arg, size_t i), void *arg)
{
    const size_t runs = (size_t)p->threads;

    if (count > UINT32_MAX)
        die_msg(EXIT_BUG, "%zu items in one round", count);
    p->fn = fn;
    p->arg = arg;
    p->count = count;
    atomic_store(&p->finished, 0);
    for (size_t i = 0; i < runs; i++)
        atomic_store(&p->run[i].left, span(count * i / runs, count * (i + 1) / runs));
    atomic_fetch_add(&p->round, 1);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->start);
        pthread_mutex_unlock(&p->lock);
    }
}

void par_wait(struct par *p)
{
    run_items(p, 0);
    wait_for_the_rest(p);
}

void par_for(struct par *p, size_t count, void (*fn)(void *arg, size_t i), void *arg)
{
    if (p->started == 0 || count <= 1) {
        for (size_t i = 0; i < count; i++)
            fn(arg, i);
        return;
    }
    par_start(p, count, fn, arg);
    par_wait(p);
}

/* --- relays ------------------------------------------------------------------------------------------------------------ */

struct race {
    const struct relay *relay;
    void *arg;
    int spins;
    pthread_mutex_t taking;
    size_t taken;               /* pieces; under `taking`, as is ended */
    bool ended;
    pthread_mutex_t lock;       /* for the waiters' sleep */
    pthread_cond_t given;
    atomic_size_t turn;         /* the piece that is to be given next */
    atomic_int sleeping;
    atomic_bool stopped;
};

/* The next piece and its number; false at the end. */
static bool take_piece(struct race *x, size_t lane, size_t *number)
{
    bool locked = false;

    for (int i = 0; i < x->spins && !(locked = pthread_mutex_trylock(&x->taking) == 0); i++)
        pause_cpu();
    if (!locked)
        pthread_mutex_lock(&x->taking);
    if (!x->ended)
        x->ended = atomic_load(&x->stopped) || !x->relay->take(x->arg, lane);
    bool have = !x->ended;
    *number = have ? x->taken++ : 0;
    pthread_mutex_unlock(&x->taking);
    return have;
}

static void wait_turn(struct race *x, size_t number)
{
    for (int i = 0; i < x->spins && atomic_load(&x->turn) != number; i++)
        pause_cpu();
    if (atomic_load(&x->turn) == number)
        return;
    pthread_mutex_lock(&x->lock);
    atomic_fetch_add(&x->sleeping, 1);
    while (atomic_load(&x->turn) != number)
        pthread_cond_wait(&x->given, &x->lock);
    atomic_fetch_sub(&x->sleeping, 1);
    pthread_mutex_unlock(&x->lock);
}

static void pass_turn(struct race *x)
{
    atomic_fetch_add(&x->turn, 1);
    if (!atomic_load(&x->sleeping))
        return;
    pthread_mutex_lock(&x->lock);
    pthread_cond_broadcast(&x->given);
    pthread_mutex_unlock(&x->lock);
}

static void run_lane(void *arg, size_t lane)
{
    struct race *x = arg;

    for (size_t number; take_piece(x, lane, &number); pass_turn(x)) {
        x->relay->work(x->arg, lane);
        wait_turn(x, number);
        if (!atomic_load(&x->stopped) && !x->relay->give(x->arg, lane))
            atomic_store(&x->stopped, true);
    }
}

size_t par_lanes(const struct par *p, size_t most)
{
    const size_t threads = (size_t)par_threads(p);
    return threads < most ? threads : most;
}

void par_relay(struct par *p, size_t lanes, const struct relay *r, void *arg)
{
    struct race x = {.relay = r, .arg = arg, .spins = p->spins ? RELAY_SPINS : 0};

    pthread_mutex_init(&x.taking, NULL);
    pthread_mutex_init(&x.lock, NULL);
    pthread_cond_init(&x.given, NULL);
    atomic_init(&x.turn, 0);
    atomic_init(&x.sleeping, 0);
    atomic_init(&x.stopped, false);
    par_for(p, lanes, run_lane, &x);
    pthread_mutex_destroy(&x.taking);
    pthread_mutex_destroy(&x.lock);
    pthread_cond_destroy(&x.given);
}

void par_free(struct par *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->worker[i].thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->start);
    pthread_cond_destroy(&p->done);
    free(p->worker);
    free(p->run);
    free(p);
}
