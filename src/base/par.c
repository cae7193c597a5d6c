/* sched_getaffinity is Linux: the pool's size follows the CPUs that this process may use. */
#define _GNU_SOURCE
#include "base/par.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
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
    atomic_ulong round;     /* counts par_for calls: a worker runs once per round */
    atomic_int running;     /* workers still inside the round */
    atomic_bool stop;
    atomic_size_t next;
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

static void take_items(struct par *p)
{
    for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->count; )
        p->fn(p->arg, i);
}

static bool called(const struct par *p, unsigned long seen)
{
    return atomic_load(&p->round) != seen || atomic_load(&p->stop);
}

static void wait_for_round(struct par *p, unsigned long seen)
{
    for (int i = 0; i < p->spins && !called(p, seen); i++)
        pause_cpu();
    if (called(p, seen))
        return;
    pthread_mutex_lock(&p->lock);
    while (!called(p, seen))
        pthread_cond_wait(&p->start, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg)
{
    struct par *p = arg;
    unsigned long seen = 0;
    for (;;) {
        wait_for_round(p, seen);
        if (atomic_load(&p->stop))
            return NULL;
        seen++;
        take_items(p);
        if (atomic_fetch_sub(&p->running, 1) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void wait_for_workers(struct par *p)
{
    for (int i = 0; i < p->spins && atomic_load(&p->running) > 0; i++)
        pause_cpu();
    if (atomic_load(&p->running) == 0)
        return;
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->running) > 0)
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
    atomic_store(&p->next, 0);
    atomic_store(&p->running, p->threads - 1);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->round, 1);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

void par_wait(struct par *p)
{
    take_items(p);
    wait_for_workers(p);
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
