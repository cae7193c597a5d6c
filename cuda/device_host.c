/* cuda/device.h on this process's memory: the kernels run in the host shim, one after another. */
#include "cuda/device.h"
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "cuda/host/host.h"

#define ROOM ((uint64_t)256 << 20)      /* what device_unused() says: tests need no more, and learn what happens when it is not enough */

struct op { bool copy; void *to; const void *from; size_t n; struct gk_launch launch; };
struct device_graph { struct op *op; size_t n; struct device_graph *next; };

struct device {
    struct device_facts facts;
    void **owned; size_t n_owned;
    const void **lent; size_t n_lent;
    uint64_t used, launches;
    struct device_graph *graphs, *recording;
};

struct device *device_open(struct err *e)
{
    struct device *d = xcalloc(1, sizeof *d);

    (void)e;
    d->facts = (struct device_facts){.kind = "host-shim", .name = "CUDA kernels on the CPU", .memory = ROOM, .sms = 4};
    return d;
}

void device_close(struct device *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n_owned; i++)
        gk_host_free(d->owned[i]);
    for (size_t i = 0; i < d->n_lent; i++)
        gk_host_unlend(d->lent[i]);
    free(d->lent);
    while (d->graphs) {
        struct device_graph *g = d->graphs;
        d->graphs = g->next;
        free(g->op);
        free(g);
    }
    free(d->owned);
    free(d);
}

const struct device_facts *device_facts(const struct device *d) { return &d->facts; }
uint64_t device_unused(struct device *d) { return d->used < ROOM ? ROOM - d->used : 0; }
uint64_t device_launches(const struct device *d) { return d->launches; }

static void *own(struct device *d, uint64_t bytes, const char *name)
{
    void *p = gk_host_alloc(bytes ? bytes : 1, name);

    if (!p)
        return NULL;
    d->owned = xreallocarray(d->owned, d->n_owned + 1, sizeof *d->owned);
    return d->owned[d->n_owned++] = p;
}

static void no_room(struct device *d, uint64_t bytes, struct err *e)
{
    (void)err_set(e, EXIT_TEMPFAIL, "%s: no room for %llu bytes: it has %llu unused", d->facts.name, (unsigned long long)bytes, (unsigned long long)device_unused(d));
}

void *device_alloc(struct device *d, uint64_t bytes, struct err *e)
{
    void *p = bytes <= device_unused(d) ? own(d, bytes, "device memory") : NULL;

    if (!p)
        no_room(d, bytes, e);
    else
        d->used += bytes;
    return p;
}

void *device_pinned(struct device *d, size_t bytes, struct err *e)
{
    void *p = own(d, bytes, "pinned memory");

    if (!p)
        no_room(d, bytes, e);
    return p;
}

const void *device_map(struct device *d, const void *host, size_t bytes, struct err *e)
{
    if (!gk_host_lend(host, bytes, "mapped memory")) {
        no_room(d, bytes, e);
        return NULL;
    }
    d->lent = xreallocarray(d->lent, d->n_lent + 1, sizeof *d->lent);
    return d->lent[d->n_lent++] = host;
}

static int run(struct device *d, const struct op *op, struct err *e)
{
    if (op->copy) {
        memcpy(op->to, op->from, op->n);
        return 0;
    }
    const char *fault = gk_host_launch(&op->launch);
    d->launches++;
    return fault ? err_set(e, EXIT_BUG, "kernel %s: %s", op->launch.label, fault) : 0;
}

static int enqueue(struct device *d, const struct op *op, struct err *e)
{
    struct device_graph *g = d->recording;

    if (!g)
        return run(d, op, e);
    g->op = xreallocarray(g->op, g->n + 1, sizeof *g->op);
    g->op[g->n++] = *op;
    return 0;
}

int device_up(struct device *d, void *to, const void *from, size_t n, struct err *e) { return enqueue(d, &(struct op){.copy = true, .to = to, .from = from, .n = n}, e); }
int device_down(struct device *d, void *to, const void *from, size_t n, struct err *e) { return device_up(d, to, from, n, e); }
int device_copy(struct device *d, void *to, const void *from, size_t n, struct err *e) { return device_up(d, to, from, n, e); }
int device_launch(struct device *d, const struct gk_launch *l, struct err *e) { return enqueue(d, &(struct op){.launch = *l}, e); }

int device_wait(struct device *d, struct err *e)
{
    (void)d, (void)e;
    return 0;
}

int device_timed(struct device *d, const struct gk_launch *l, double *us, struct err *e)
{
    const double start = clock_seconds();
    const int failed = device_launch(d, l, e);

    *us = 1e6 * (clock_seconds() - start);
    return failed;
}

int device_record(struct device *d, struct err *e)
{
    (void)e;
    d->recording = xcalloc(1, sizeof *d->recording);
    return 0;
}

struct device_graph *device_recorded(struct device *d, struct err *e)
{
    struct device_graph *g = d->recording;

    (void)e;
    d->recording = NULL;
    g->next = d->graphs;
    return d->graphs = g;
}

int device_replay(struct device *d, struct device_graph *g, struct err *e)
{
    for (size_t i = 0; i < g->n; i++)
        if (run(d, &g->op[i], e))
            return -1;
    return 0;
}

int device_lane_up(struct device *d, int lane, void *to, const void *pinned, size_t n, struct err *e)
{
    (void)d, (void)lane, (void)e;
    memcpy(to, pinned, n);
    return 0;
}

int device_lane_wait(struct device *d, int lane, struct err *e)
{
    (void)d, (void)lane, (void)e;
    return 0;
}
