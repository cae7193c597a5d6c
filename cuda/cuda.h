/* The forward pass on a GPU, behind C: no type of CUDA's here.
 *
 * Owns: the GPU's memory (weights, K/V, activations), its one stream, the graph of a token.  engine.c is its only caller and decides what runs; all of it is called
 * by one thread, except the buffers of cuda_memory().
 * Three implementations, chosen when a program is linked: cuda_none.c where there was no nvcc (nothing is ever there), cuda.c on CUDA's runtime (device_cuda.c), and cuda.c on the
 * host shim (device_host.c), which runs the same kernels on the CPU, slowly: for tests, and every result says so.
 * Errors of the runtime are EXIT_UNAVAILABLE when there is no device or it is lost, EXIT_TEMPFAIL for want of its memory.
 */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H
#include "engine/engine.h"
#include "engine/weights.h"

struct cuda;
struct cuda_seq;

struct cuda_facts {
    const char *device;         /* "cuda"; "host-shim" */
    const char *name;           /* "NVIDIA L4" */
    uint64_t memory;            /* bytes, all of the GPU's */
    uint64_t kv_bytes;          /* for K/V; 0 before cuda_load */
    int kernels;                /* of one token; 0 before cuda_load */
};

/* The first GPU that is visible. */
struct cuda *cuda_open(struct err *e) MUST_CHECK;
void cuda_close(struct cuda *c);                        /* NULL is fine */
const struct cuda_facts *cuda_facts(const struct cuda *c);

/* Where weights_load() puts the matrices; ple: the per-layer table too. */
const struct weights_memory *cuda_memory(struct cuda *c, bool ple);

struct cuda_options {
    bool exact;                 /* int4 weights rounded as the source has them */
    long max_context;           /* of one sequence */
    uint64_t kv_bytes;          /* 0 = nine tenths of what is free */
    const int *banned; size_t n_banned;     /* ids that are never chosen */
};
/* After weights_load: g and w are borrowed. */
int cuda_load(struct cuda *c, const struct gemma *g, const struct weights *w, const struct cuda_options *o, struct err *e) MUST_CHECK;

/* K/V of one sequence: pages of the pool, taken as tokens come in. */
struct cuda_seq *cuda_seq_new(struct cuda *c, long capacity);
void cuda_seq_free(struct cuda_seq *s);                 /* NULL is fine */
/* Bytes of pages that n tokens of one sequence take. */
uint64_t cuda_kv_bytes(const struct cuda *c, long n);

/* engine_step(). EXIT_TEMPFAIL when the pages are all taken: nothing was run. */
int cuda_step(struct cuda *c, struct engine_item *item, size_t n, struct err *e) MUST_CHECK;
/* The kernels of one step of this item (n = 1), each by itself: by name, in the order they first run.  The sequence stays where it is. */
struct cuda_part { const char *name; int kernels; uint64_t bytes; double us; };
enum { CUDA_PARTS = 24 };
int cuda_profile(struct cuda *c, struct engine_item *item, struct cuda_part part[CUDA_PARTS], size_t *n, struct err *e) MUST_CHECK;
uint64_t cuda_kernels_run(const struct cuda *c);
/* engine_read_weights(). */
uint64_t cuda_read_weights(struct cuda *c, struct err *e);
#endif
