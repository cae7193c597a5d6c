/* sched_getaffinity is Linux: the pool's size follows the CPUs that this process may use. */
#define _GNU_SOURCE
#include "base/par.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include "base/err.h"

/* Turns that a thread waits for the others without sleeping, some tens of microseconds: falling asleep and being woken costs about as much.  Rounds that follow each
 * other quickly find everybody awake; a pool that is idle sleeps. */
enum { SPINS = 1000 };

struct par {
    int threads;            /* the caller included */
    int spins;              /* 0 when there are more threads than CPUs */
    pthread_t *worker;
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    atomic_bool stop;
    /* The round's number above LEFT_BITS bits, below them how many items nobody has taken.  A thread takes one by lowering it; as long as an item is not finished the
     * round stays, and count, fn and arg with it.  Nobody waits for a thread that has not taken any. */
    atomic_uint_fast64_t open;
    atomic_size_t finished;
    size_t count;
    void (*fn)(void *, size_t);
    void *arg;
};

#define LEFT_BITS 40
#define LEFT(v) ((v) & (((uint64_t)1 << LEFT_BITS) - 1))

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool take_item(struct par *p)
{
    uint_fast64_t v = atomic_load(&p->open);

    while (LEFT(v) && !atomic_compare_exchange_weak(&p->open, &v, v - 1))
        continue;
    if (!LEFT(v))
        return false;
    const size_t count = p->count;
    p->fn(p->arg, count - (size_t)LEFT(v));
    if (atomic_fetch_add(&p->finished, 1) + 1 == count) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
    return true;
}

static bool called(struct par *p)
{
    return LEFT(atomic_load(&p->open)) || atomic_load(&p->stop);
}

static void *work(void *arg)
{
    struct par *p = arg;
    for (;;) {
        for (int i = 0; i < p->spins && !called(p); i++)
            pause_cpu();
        if (!called(p)) {
            pthread_mutex_lock(&p->lock);
            while (!called(p))
                pthread_cond_wait(&p->start, &p->lock);
            pthread_mutex_unlock(&p->lock);
        }
        if (atomic_load(&p->stop))
            return NULL;
        while (take_item(p))
            continue;
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
    while (!all_finished(p))
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static int usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

struct par *par_new(int threads)
{
    struct par *p = xcalloc(1, sizeof *p);
    int want = threads > 0 ? threads : usable_cpus();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    p->worker = xcalloc((size_t)want, sizeof *p->worker);
    p->spins = want <= usable_cpus() ? SPINS : 0;
    p->threads = 1;
    while (p->threads < want && pthread_create(&p->worker[p->threads - 1], NULL, work, p) == 0)
        p->threads++;
    return p;
}

int par_threads(const struct par *p)
{
    return p->threads;
}

void par_start(struct par *p, size_t count, void (*fn)(void *arg, size_t i), void *arg)
{
    p->fn = fn;
    p->arg = arg;
    p->count = count;
    atomic_store(&p->finished, 0);
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->open, ((atomic_load(&p->open) >> LEFT_BITS) + 1) << LEFT_BITS | count);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

void par_wait(struct par *p)
{
    while (take_item(p))
        continue;
    wait_for_the_rest(p);
}

void par_for(struct par *p, size_t count, void (*fn)(void *arg, size_t i), void *arg)
{
    if (p->threads == 1 || count <= 1) {
        for (size_t i = 0; i < count; i++)
            fn(arg, i);
        return;
    }
    par_start(p, count, fn, arg);
    par_wait(p);
}

void par_free(struct par *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->threads - 1; i++)
        pthread_join(p->worker[i], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->start);
    pthread_cond_destroy(&p->done);
    free(p->worker);
    free(p);
}
