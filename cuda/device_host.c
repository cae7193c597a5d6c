/* cuda/device.h on this process's memory: the kernels run in the host shim, one after another.
 *
 * As late as a GPU may: what is enqueued is done when somebody waits for it, not before.  So host memory that is changed too early shows in the results, and memory that is not
 * pinned is refused.
 */
#include "cuda/device.h"
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "cuda/host/host.h"

#define ROOM ((uint64_t)256 << 20)      /* what device_unused() says: tests need no more, and learn what happens when it is not enough */

struct op { bool copy; void *to; const void *from; size_t n; struct gk_launch launch; };
struct ops { struct op *op; size_t n; };
struct owned { void *p; uint64_t bytes; bool pinned; };
struct device_graph { struct ops ops; struct device_graph *next; };

struct device {
    struct device_facts facts;
    struct owned *owned; size_t n_owned;
    const void **lent; size_t n_lent;
    uint64_t used, launches;
    struct device_graph *graphs, *recording;
    struct ops stream, lane[DEVICE_LANES];      /* not done yet */
};

struct device *device_open(struct err *e)
{
    struct device *d = xcalloc(1, sizeof *d);

    (void)e;
    d->facts = (struct device_facts){.kind = "host-shim", .name = "CUDA kernels on the CPU", .memory = ROOM, .l2 = (uint64_t)48 << 20, .sms = 4};
    return d;
}

void device_close(struct device *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n_owned; i++)
        gk_host_free(d->owned[i].p);
    for (size_t i = 0; i < d->n_lent; i++)
        gk_host_unlend(d->lent[i]);
    free(d->lent);
    while (d->graphs) {
        struct device_graph *g = d->graphs;
        d->graphs = g->next;
        free(g->ops.op);
        free(g);
    }
    for (int i = 0; i < DEVICE_LANES; i++)
        free(d->lane[i].op);
    free(d->stream.op);
    free(d->owned);
    free(d);
}

const struct device_facts *device_facts(const struct device *d) { return &d->facts; }
uint64_t device_unused(struct device *d) { return d->used < ROOM ? ROOM - d->used : 0; }
uint64_t device_launches(const struct device *d) { return d->launches; }

static void *own(struct device *d, uint64_t bytes, bool pinned)
{
    void *p = gk_host_alloc(bytes ? bytes : 1, pinned ? "pinned memory" : "device memory");

    if (!p)
        return NULL;
    d->owned = xreallocarray(d->owned, d->n_owned + 1, sizeof *d->owned);
    d->owned[d->n_owned++] = (struct owned){p, bytes, pinned};
    return p;
}

/* Does it lie in memory of this kind? */
static bool owns(const struct device *d, const void *p, size_t n, bool pinned)
{
    for (size_t i = 0; i < d->n_owned; i++)
        if (d->owned[i].pinned == pinned && (uintptr_t)p - (uintptr_t)d->owned[i].p <= d->owned[i].bytes && n <= d->owned[i].bytes - ((uintptr_t)p - (uintptr_t)d->owned[i].p))
            return true;
    return false;
}

static void no_room(struct device *d, uint64_t bytes, struct err *e)
{
    (void)err_set(e, EXIT_TEMPFAIL, "%s: no room for %llu bytes: it has %llu unused", d->facts.name, (unsigned long long)bytes, (unsigned long long)device_unused(d));
}

void *device_alloc(struct device *d, uint64_t bytes, struct err *e)
{
    void *p = bytes <= device_unused(d) ? own(d, bytes, false) : NULL;

    if (!p)
        no_room(d, bytes, e);
    else
        d->used += bytes;
    return p;
}

void *device_pinned(struct device *d, size_t bytes, struct err *e)
{
    void *p = own(d, bytes, true);

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

static int run(struct device *d, const struct op *op, bool after_kernel, struct err *e)
{
    if (op->copy) {
        memcpy(op->to, op->from, op->n);
        return 0;
    }
    if (after_kernel)
        gk_host_follows();
    const char *fault = gk_host_launch(&op->launch);
    d->launches++;
    return fault ? err_set(e, EXIT_BUG, "kernel %s: %s", op->launch.label, fault) : 0;
}

static void append(struct ops *to, const struct op *op)
{
    to->op = xreallocarray(to->op, to->n + 1, sizeof *to->op);
    to->op[to->n++] = *op;
}

/* All that has been enqueued, in order. */
static int run_all(struct device *d, struct ops *ops, struct err *e)
{
    int failed = 0;

    for (size_t i = 0; i < ops->n && !failed; i++)
        failed = run(d, &ops->op[i], i && !ops->op[i - 1].copy, e);
    ops->n = 0;
    return failed;
}

static int copy(struct device *d, struct ops *ops, void *to, const void *from, size_t n, bool to_pinned, bool from_pinned, struct err *e)
{
    if (!owns(d, to, n, to_pinned) || !owns(d, from, n, from_pinned))
        return err_set(e, EXIT_BUG, "a copy of %zu bytes from or to memory of the wrong kind", n);
    append(ops, &(struct op){.copy = true, .to = to, .from = from, .n = n});
    return 0;
}
static struct ops *current(struct device *d) { return d->recording ? &d->recording->ops : &d->stream; }

int device_upload(struct device *d, void *to, const void *from, size_t n, struct err *e) { return copy(d, current(d), to, from, n, false, true, e); }
int device_download(struct device *d, void *to, const void *from, size_t n, struct err *e) { return copy(d, current(d), to, from, n, true, false, e); }
int device_copy(struct device *d, void *to, const void *from, size_t n, struct err *e) { return copy(d, current(d), to, from, n, false, false, e); }
int device_launch(struct device *d, const struct gk_launch *l, struct err *e)
{
    (void)e;
    append(current(d), &(struct op){.launch = *l});
    return 0;
}

int device_prepare(struct device *d, const struct gk_launch *l, struct err *e)
{
    (void)d, (void)l, (void)e;
    return 0;
}

int device_wait(struct device *d, struct err *e) { return run_all(d, &d->stream, e); }

int device_timed(struct device *d, const struct gk_launch *l, double *us, struct err *e)
{
    if (device_wait(d, e))
        return -1;
    const double start = clock_seconds();
    const int failed = device_launch(d, l, e) || device_wait(d, e);

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
    (void)e;
    for (size_t i = 0; i < g->ops.n; i++)
        append(&d->stream, &g->ops.op[i]);
    return 0;
}

int device_lane_upload(struct device *d, int lane, void *to, const void *pinned, size_t n, struct err *e) { return copy(d, &d->lane[lane], to, pinned, n, false, true, e); }
int device_lane_wait(struct device *d, int lane, struct err *e) { return run_all(d, &d->lane[lane], e); }
