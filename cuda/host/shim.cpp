/* See shim.h.  Fibers, the warp's and the block's meetings, and the watch over memory.  Compiled without instrumentation itself. */
#include "cuda/host/host.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#include "cuda/host/shim.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef GK_WATCH
#define WATCHES true
#else
#define WATCHES false
#endif

dim3 shim_thread, shim_block, shim_grid_dim, shim_block_dim;

namespace {

constexpr int MAX_THREADS = 1024;
constexpr size_t STACK = 128 << 10;

enum state { READY, AT_BARRIER, AT_WARP, ENDED };

struct fiber {
    state at;
    dim3 index;
    unsigned char *stack;
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
#ifdef __SANITIZE_ADDRESS__
    void *fake;                         /* kept from block to block: another one each time would take most of the time */
#endif
    const char *file; int line;         /* where it waits */
    bool waited;                        /* for the launch before this one */
    shim_op op;
    float *c; const uint32_t *a, *b;    /* of an mma */
};

struct warp { uint32_t word[2][32]; unsigned generation; uint32_t syncs; };

fiber fibers[MAX_THREADS];
warp warps[MAX_THREADS / 32];
int threads, running;
unsigned char *dynamic;
size_t dynamic_bytes;
uint32_t epoch;                         /* rises at every barrier and every block */
uint32_t first_epoch;                   /* of this launch */
bool follows, early;                    /* the next launch, this one, may begin before the one before it has ended */
bool faulted, inside;
char fault_text[400];

/* What every fiber runs. */
void (*entry)(const void *kernel, const void *argument);
const void *entry_kernel, *entry_argument;

/* --- switching --------------------------------------------------------------------------------------------------------- */

#ifdef __x86_64__
void *main_sp;
extern "C" void shim_switch(void **save, void *to);
asm(".text\n.globl shim_switch\n.type shim_switch, @function\nshim_switch:\n"
    "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15\n"
    "movq %rsp, (%rdi); movq %rsi, %rsp\n"
    "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret\n.size shim_switch, .-shim_switch\n");
#else
ucontext_t main_context;
#endif
#ifdef __SANITIZE_ADDRESS__
void *main_fake; const void *main_bottom; size_t main_size;
#endif

void to_fiber(int i)
{
    running = i;
    shim_thread = fibers[i].index;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&main_fake, fibers[i].stack, STACK);
#endif
#ifdef __x86_64__
    shim_switch(&main_sp, fibers[i].sp);
#else
    swapcontext(&main_context, &fibers[i].context);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(main_fake, NULL, NULL);
#endif
}
void to_main()
{
    fiber &f = fibers[running];
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&f.fake, main_bottom, main_size);
#endif
#ifdef __x86_64__
    shim_switch(&f.sp, main_sp);
#else
    swapcontext(&f.context, &main_context);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(f.fake, &main_bottom, &main_size);
#endif
}

void fiber_main()
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fibers[running].fake, &main_bottom, &main_size);
#endif
    entry(entry_kernel, entry_argument);
    fibers[running].at = ENDED;
    to_main();
    abort();
}

void make_fiber(int i, unsigned block_x, unsigned block_y)
{
    fiber &f = fibers[i];
    if (!f.stack) {
        f.stack = (unsigned char *)mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f.stack == MAP_FAILED) {
            fputs("host shim: no memory for stacks\n", stderr);
            exit(75);
        }
    }
    f.at = READY;
    f.waited = !early;
    f.index = {(unsigned)i % block_x, (unsigned)i / block_x % block_y, (unsigned)i / (block_x * block_y)};
#ifdef __x86_64__
    void **sp = (void **)(f.stack + STACK) - 2;         /* at entry the stack is 8 short of a multiple of 16 */
    *sp = (void *)fiber_main;
    f.sp = sp - 6;
    memset(f.sp, 0, 6 * sizeof *sp);
#else
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack;
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = NULL;
    makecontext(&f.context, fiber_main, 0);
#endif
}

/* --- faults ------------------------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 1, 2))) void fault(const char *format, ...)
{
    if (faulted)
        return;
    faulted = true;
    int n = snprintf(fault_text, sizeof fault_text, "block %u,%u thread %u: ", shim_block.x, shim_block.y, shim_thread.x);
    va_list ap;
    va_start(ap, format);
    vsnprintf(fault_text + n, sizeof fault_text - (size_t)n, format, ap);
    va_end(ap);
}
/* From within a fiber: the launch is over. */
void stop()
{
    fibers[running].at = ENDED;
    to_main();
    abort();
}

const char *base_name(const char *path) { const char *slash = strrchr(path, '/'); return slash ? slash + 1 : path; }

/* --- meetings ---------------------------------------------------------------------------------------------------------- */

void wait(state how, const char *file, int line)
{
    fiber &f = fibers[running];
    f.at = how, f.file = file, f.line = line;
    to_main();
}

/* As tensor cores add (M. Fasi, N. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021; here what they found of an A100):
 * 8 exact products and c, each shifted to the largest one's exponent and cut off one bit past a float's last; their sum is cut off to a float. */
float cut_sum(float c, const float (&a)[16], const float (&b)[16][8], int n, int first)
{
    double most = fabs((double)c);
    for (int k = first; k < first + 8; k++)
        most = fmax(most, fabs((double)a[k] * (double)b[k][n]));
    if (!(most > 0 && most < INFINITY)) {
        double sum = c;
        for (int k = first; k < first + 8; k++)
            sum += (double)a[k] * (double)b[k][n];
        return (float)sum;
    }
    int exponent;
    frexp(most, &exponent);
    const double by = ldexp(1, 25 - exponent);
    double sum = trunc(c * by);
    for (int k = first; k < first + 8; k++)
        sum += trunc((double)a[k] * (double)b[k][n] * by);
    sum /= by;
    const float f = (float)sum;
    return fabs((double)f) > fabs(sum) ? nextafterf(f, 0) : f;
}

bool cuts = getenv("Q4_SHIM_CUTS");      /* sums are cut off */

/* c += a b over a warp: double sums, rounded once, unless they are cut off. */
void multiply(const fiber *lane)
{
    float a[16][16], b[16][8];
    for (int l = 0; l < 32; l++) {
        const int g = l / 4, t = l % 4;
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 2; i++)
                a[g + r % 2 * 8][2 * t + i + r / 2 * 8] = __uint_as_float(lane[l].a[r] >> 16 * i << 16);
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 2; i++)
                b[2 * t + i + r * 8][g] = __uint_as_float(lane[l].b[r] >> 16 * i << 16);
    }
    for (int row = 0; cuts && row < 16; row++)
        for (int n = 0; n < 8; n++) {
            float *c = &lane[row % 8 * 4 + n / 2].c[row / 8 * 2 + n % 2];
            *c = cut_sum(cut_sum(*c, a[row], b, n, 0), a[row], b, n, 8);
        }
    for (int row = 0; !cuts && row < 16; row++) {
        double sum[8] = {};
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                sum[n] += (double)a[row][k] * (double)b[k][n];
        for (int n = 0; n < 8; n++) {
            float *c = &lane[row % 8 * 4 + n / 2].c[row / 8 * 2 + n % 2];
            *c = (float)(*c + sum[n]);
        }
    }
}

/* Everybody who can has run: have all lanes of a warp come to the same operation? */
bool meet_warp(int w)
{
    fiber *lane = fibers + 32 * w;
    const int lanes = threads - 32 * w < 32 ? threads - 32 * w : 32;
    int waiting = 0, first = -1;
    for (int i = 0; i < lanes; i++)
        if (lane[i].at == AT_WARP) {
            waiting++;
            first = first < 0 ? i : first;
        }
    if (!waiting)
        return false;
    for (int i = 0; i < lanes; i++) {
        if (lane[i].at != AT_WARP || lane[i].line != lane[first].line || lane[i].op != lane[first].op || strcmp(lane[i].file, lane[first].file)) {
            shim_thread = lane[i].index;
            if (lane[i].at == ENDED)
                fault("divergence: has ended while lanes of its warp wait at %s:%d", base_name(lane[first].file), lane[first].line);
            else
                fault("divergence: waits at %s:%d while lane %d of its warp waits at %s:%d", base_name(lane[i].file), lane[i].line, first, base_name(lane[first].file), lane[first].line);
            return false;
        }
    }
    if (lane[0].op == SHIM_MMA)
        multiply(lane);
    if (lane[0].op == SHIM_SYNC)
        warps[w].syncs++;
    warps[w].generation++;
    for (int i = 0; i < lanes; i++)
        lane[i].at = READY;
    return true;
}

void run_warp(int w)
{
    do
        for (int i = 32 * w; i < 32 * w + 32 && i < threads; i++)
            if (fibers[i].at == READY) {
                to_fiber(i);
                if (faulted)
                    return;
            }
    while (meet_warp(w) && !faulted);
}

/* False: the block is over. */
bool meet_block()
{
    int first = -1;
    for (int i = 0; i < threads; i++)
        if (fibers[i].at == AT_BARRIER && first < 0)
            first = i;
    if (first < 0)
        return false;
    for (int i = 0; i < threads; i++) {
        shim_thread = fibers[i].index;
        if (fibers[i].at == ENDED)
            fault("divergence: has ended while thread %d waits at the barrier %s:%d", first, base_name(fibers[first].file), fibers[first].line);
        else if (fibers[i].line != fibers[first].line || strcmp(fibers[i].file, fibers[first].file))
            fault("divergence: waits at the barrier %s:%d while thread %d waits at %s:%d", base_name(fibers[i].file), fibers[i].line, first, base_name(fibers[first].file),
                fibers[first].line);
        if (faulted)
            return false;
    }
    for (int i = 0; i < threads; i++)
        fibers[i].at = READY;
    epoch++;
    return true;
}

void run_block(unsigned threads_x, unsigned threads_y)
{
    epoch++;
    memset(dynamic, 0xff, dynamic_bytes);               /* NaN in every format: nobody may rely on it */
    for (int i = 0; i < threads; i++)
        make_fiber(i, threads_x, threads_y);
    do
        for (int w = 0; 32 * w < threads && !faulted; w++)
            run_warp(w);
    while (!faulted && meet_block());
}

/* --- the watch over memory ---------------------------------------------------------------------------------------------- */

/* The last access of each kind to two bytes: in which epoch, by whom, and how many __syncwarp that thread's warp had seen. */
struct access { uint32_t epoch; uint16_t thread; uint16_t syncs; };
struct cell { access write, read, atomic; };
constexpr uint16_t SEVERAL = 0xffff, LANES = 0x8000;      /* threads of several warps; or several lanes of the warp whose number follows */

constexpr size_t GUARD = 256;           /* bytes on each side of memory, so that no two regions touch */

struct region { uintptr_t start; size_t bytes; const char *name; bool lent; cell *cells; region *next; };
region *regions, shared_region, static_region;

extern "C" { extern unsigned char __start_gk_shared[] __attribute__((weak)), __stop_gk_shared[] __attribute__((weak)), __executable_start[], end[]; }

cell *cells_for(size_t bytes)
{
    void *p = mmap(NULL, (bytes / 2 + 1) * sizeof(cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : (cell *)p;
}

region *last_hit;
bool holds(const region *r, uintptr_t p) { return p - r->start < r->bytes; }
region *find(uintptr_t p)
{
    if (last_hit && holds(last_hit, p))
        return last_hit;
    if (holds(&shared_region, p))
        return &shared_region;
    if (holds(&static_region, p))
        return &static_region;
    for (region *r = regions; r; r = r->next)
        if (holds(r, p))
            return last_hit = r;
    return NULL;
}
/* The region that an address has just left. */
const region *nearest(uintptr_t p, size_t *past)
{
    const region *best = NULL;
    *past = GUARD;
    for (const region *r = regions; r; r = r->next)
        if (p >= r->start + r->bytes && p - r->start - r->bytes < *past)
            best = r, *past = p - r->start - r->bytes;
    if (shared_region.bytes && p >= shared_region.start + shared_region.bytes && p - shared_region.start - shared_region.bytes < *past)
        best = &shared_region, *past = p - shared_region.start - shared_region.bytes;
    return best;
}

void stray(uintptr_t p, size_t n, bool write)
{
    size_t past;
    const region *r = nearest(p, &past);
    if (r)
        fault("out of bounds: %s of %zu bytes, %zu past the end of '%s' (%zu bytes)", write ? "write" : "read", n, past, r->name, r->bytes);
    else
        fault("out of bounds: %s of %zu bytes at %p, which is no registered memory", write ? "write" : "read", n, (void *)p);
    stop();
}

/* Whether an earlier access in this block may have happened at the same time. */
bool concurrent(const access &was, int thread)
{
    if (was.epoch != epoch || was.thread == thread)
        return false;
    if (was.thread == SEVERAL)
        return true;
    const int warp = was.thread & LANES ? was.thread & ~LANES : was.thread / 32;
    return warp != thread / 32 || was.syncs == (uint16_t)warps[warp].syncs;
}
void note(access &a, int thread)
{
    const int warp = thread / 32;
    const uint16_t syncs = (uint16_t)warps[warp].syncs;
    uint16_t who = (uint16_t)thread;
    if (a.epoch == epoch && a.thread != thread) {
        const bool same = a.thread != SEVERAL && (a.thread & LANES ? a.thread & ~LANES : a.thread / 32) == warp;
        who = !same ? SEVERAL : a.syncs == syncs ? (uint16_t)(LANES | warp) : who;
    }
    a = {epoch, who, syncs};
}

enum how { READ, WRITE, ATOMIC };

/* Whole models three times as fast, for the tests whose question is another. */
const bool unwatched = getenv("Q4_SHIM_UNWATCHED");

[[maybe_unused]] void watch(uintptr_t p, size_t n, how h, bool aligned = true)
{
    if (!inside || unwatched)
        return;
    const fiber &f = fibers[running];
    if (p - (uintptr_t)f.stack < STACK)
        return;
    if (aligned && p % n) {
        fault("misaligned: %s of %zu bytes at %p", h == READ ? "read" : "write", n, (void *)p);
        stop();
    }
    region *r = find(p);
    if (!r) {
        if (h == READ && p >= (uintptr_t)__executable_start && p < (uintptr_t)end)
            return;                     /* constants, and the shim's own words */
        stray(p, n, h != READ);
    }
    if (p + n > r->start + r->bytes)
        stray(r->start + r->bytes, p + n - r->start - r->bytes, h != READ);
    if (r->lent) {
        if (h != READ) {
            fault("write to '%s', which is lent for reading", r->name);
            stop();
        }
        return;
    }
    for (size_t i = (p - r->start) / 2; i <= (p + n - 1 - r->start) / 2; i++) {
        cell &c = r->cells[i];
        if (!f.waited && r != &shared_region && r != &static_region && (h != READ || (c.write.epoch && c.write.epoch < first_epoch))) {
            fault("too early: %s of '%s' at byte %zu before wait_for_previous()", h == READ ? "read" : "write", r->name, 2 * i);
            stop();
        }
        const access *bad = concurrent(c.write, running) ? &c.write : h != READ && concurrent(c.read, running) ? &c.read : h != ATOMIC && concurrent(c.atomic, running) ? &c.atomic : NULL;
        if (bad) {
            char other[32] = "other threads";
            if (!(bad->thread & LANES))
                snprintf(other, sizeof other, "thread %d", bad->thread);
            fault("race: %s of '%s' at byte %zu, which %s %s with no barrier between", h == READ ? "read" : h == WRITE ? "write" : "atomic", r->name, 2 * i, other,
                bad == &c.read ? "read" : "wrote");
            stop();
        }
        note(h == READ ? c.read : h == WRITE ? c.write : c.atomic, running);
    }
}

}  // namespace

/* --- called by kernels -------------------------------------------------------------------------------------------------- */

unsigned char *shim_dynamic() { return dynamic; }
int shim_lane() { return running % 32; }
void shim_waited() { fibers[running].waited = true; }
long long shim_cycles()
{
    static long long now;
    return now += 1000;
}
void shim_misaligned(const void *p, unsigned n, bool write)
{
    fault("misaligned: %s of %u bytes at %p", write ? "write" : "read", n, p);
    if (inside)
        stop();
}
void shim_barrier(const char *file, int line) { wait(AT_BARRIER, file, line); }

const uint32_t *shim_exchange(shim_op op, unsigned mask, uint32_t word, const char *file, int line)
{
    warp &w = warps[running / 32];
    const unsigned at = w.generation % 2;               /* two rooms: a lane may be one operation ahead of another's reading */
    if (mask != 0xffffffffu) {
        fault("a mask of %#x at %s:%d: only whole warps meet here", mask, base_name(file), line);
        stop();
    }
    w.word[at][running % 32] = word;
    fibers[running].op = op;
    wait(AT_WARP, file, line);
    return w.word[at];
}
void shim_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const char *file, int line)
{
    fiber &f = fibers[running];
    f.c = c, f.a = a, f.b = b, f.op = SHIM_MMA;
    wait(AT_WARP, file, line);
}

/* --- what -fsanitize=thread calls ---------------------------------------------------------------------------------------- */

#ifdef GK_WATCH
extern "C" {
#define ACCESS(n) \
    void __tsan_read##n(void *p) { watch((uintptr_t)p, n, READ); } \
    void __tsan_write##n(void *p) { watch((uintptr_t)p, n, WRITE); } \
    void __tsan_unaligned_read##n(void *p) { watch((uintptr_t)p, n, READ, false); } \
    void __tsan_unaligned_write##n(void *p) { watch((uintptr_t)p, n, WRITE, false); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_read_range(void *p, size_t n) { watch((uintptr_t)p, n, READ, false); }
void __tsan_write_range(void *p, size_t n) { watch((uintptr_t)p, n, WRITE, false); }
uint32_t __tsan_atomic32_fetch_add(uint32_t *p, uint32_t v, int) { watch((uintptr_t)p, 4, ATOMIC); return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
uint32_t __tsan_atomic32_fetch_xor(uint32_t *p, uint32_t v, int) { watch((uintptr_t)p, 4, ATOMIC); return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }
uint32_t __tsan_atomic32_exchange(uint32_t *p, uint32_t v, int) { watch((uintptr_t)p, 4, ATOMIC); return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }
}
#endif

/* --- called by the host -------------------------------------------------------------------------------------------------- */

bool gk_host_watches(void) { return WATCHES && !unwatched; }
void gk_host_follows(void) { follows = true; }
void gk_host_cut_sums(bool yes) { cuts = yes; }

static bool add_region(void *p, size_t bytes, const char *name, bool lent)
{
    region *r = (region *)calloc(1, sizeof *r);
    if (!r)
        return false;
    *r = {(uintptr_t)p, bytes, name, lent, lent || !WATCHES ? NULL : cells_for(bytes), regions};
    if (WATCHES && !lent && !r->cells) {
        free(r);
        return false;
    }
    regions = r;
    return true;
}
static void drop_region(const void *p)
{
    for (region **r = &regions; *r; r = &(*r)->next)
        if ((*r)->start == (uintptr_t)p) {
            region *gone = *r;
            *r = gone->next;
            if (gone->cells)
                munmap(gone->cells, (gone->bytes / 2 + 1) * sizeof(cell));
            free(gone);
            last_hit = NULL;
            return;
        }
}

void *gk_host_alloc(size_t bytes, const char *name)
{
    const size_t guard = WATCHES ? GUARD : 0;
    void *all = NULL;
    if (posix_memalign(&all, 256, bytes + 2 * guard))   /* not a byte more: under ASan its own guards lie beyond */
        return NULL;
    unsigned char *const p = (unsigned char *)all;
    memset(p, 0, bytes + 2 * guard);
    if (!add_region(p + guard, bytes, name, false)) {
        free(p);
        return NULL;
    }
    return p + guard;
}
void gk_host_free(void *p)
{
    if (!p)
        return;
    drop_region(p);
    free((unsigned char *)p - (WATCHES ? GUARD : 0));
}
bool gk_host_lend(const void *p, size_t bytes, const char *name) { return add_region((void *)(uintptr_t)p, bytes, name, true); }
void gk_host_unlend(const void *p) { drop_region(p); }

/* Steps of this length come to every one of so many blocks, neighbours seldom one after another. */
static uint64_t step_through(uint64_t all)
{
    for (uint64_t step = all * 5 / 8;; step++) {
        uint64_t a = all, b = step;
        while (b) {
            const uint64_t rest = a % b;
            a = b, b = rest;
        }
        if (a == 1)                     /* no common divisor */
            return step;
    }
}

const char *gk_host_run(void (*with)(const void *, const void *), const void *kernel, const void *argument, const unsigned grid[3], unsigned block, unsigned shared)
{
    assert(block <= MAX_THREADS && !inside);
    threads = (int)block;
    dynamic_bytes = shared;
    void *room = NULL;
    if (posix_memalign(&room, 256, shared + (WATCHES ? GUARD : 1)))
        return "no memory for shared memory";
    dynamic = (unsigned char *)room;
    entry = with, entry_kernel = kernel, entry_argument = argument;
    faulted = false;
    shared_region = {(uintptr_t)dynamic, shared, "shared memory", false, WATCHES ? cells_for(shared) : NULL, NULL};
    static_region = {(uintptr_t)__start_gk_shared, (size_t)(__stop_gk_shared - __start_gk_shared), "static shared memory", false, NULL, NULL};
    static_region.cells = WATCHES ? cells_for(static_region.bytes) : NULL;
    shim_grid_dim = {grid[0], grid[1], grid[2]};
    shim_block_dim = {block, 1, 1};
    early = follows, follows = false;
    first_epoch = epoch + 1;
    inside = true;
    const uint64_t all = (uint64_t)grid[0] * grid[1] * grid[2], step = step_through(all);
    for (uint64_t i = 0, at = all / 2; i < all && !faulted; i++, at = (at + step) % all) {
        shim_block = {(unsigned)(at % grid[0]), (unsigned)(at / grid[0] % grid[1]), (unsigned)(at / grid[0] / grid[1])};
        run_block(block, 1);
    }
    inside = false;
    if (WATCHES) {
        munmap(shared_region.cells, (shared_region.bytes / 2 + 1) * sizeof(cell));
        munmap(static_region.cells, (static_region.bytes / 2 + 1) * sizeof(cell));
    }
    free(dynamic);
    return faulted ? fault_text : NULL;
}
