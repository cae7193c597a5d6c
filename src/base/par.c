/* sched_getaffinity is Linux: the pool's size follows the CPUs that this process may use. */
#define _GNU_SOURCE
#include "base/par.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/err.h"

struct par {
    int threads;            /* the caller included */
    pthread_t *worker;
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    unsigned long round;    /* counts par_for calls: a worker runs once per round */
    int running;            /* workers still inside the round */
    bool stop;
    atomic_size_t next;
    size_t count;
    void (*fn)(void *, size_t);
    void *arg;
};

static void take_items(struct par *p)
{
    for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->count; )
        p->fn(p->arg, i);
}

static void *work(void *arg)
{
    struct par *p = arg;
    unsigned long seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->round == seen && !p->stop)
            pthread_cond_wait(&p->start, &p->lock);
        if (p->stop)
            break;
        seen = p->round;
        pthread_mutex_unlock(&p->lock);
        take_items(p);
        pthread_mutex_lock(&p->lock);
        if (--p->running == 0)
            pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
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
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->arg = arg;
    p->count = count;
    atomic_store(&p->next, 0);
    p->running = p->threads - 1;
    p->round++;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

void par_wait(struct par *p)
{
    take_items(p);
    pthread_mutex_lock(&p->lock);
    while (p->running > 0)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
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
    p->stop = true;
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
