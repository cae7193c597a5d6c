/* A model in memory and the forward pass over many sequences at once.
 *
 * Owns: the weights (resident once, in the layout of the file), the model's description, its tokenizer and chat template, the thread pool, and the
 * sequences' K/V.  Knows nothing of requests, sampling or HTTP: generate.h stands on it.
 *
 * Opens (EXIT_DATA, naming file and tensor, for everything else): bf16 checkpoints of Gemma 3 and 4 (wrapped, with towers, which are skipped with a
 * note; or text-only) and compressed-tensors builds of them with int4, int8 and fp8 weights.  EXIT_NOINPUT when there is no such directory,
 * EXIT_UNAVAILABLE for a device that is not there.
 *
 * A result does not depend on what else is in a step, on how a prompt is cut into runs, nor on the number of threads: every output of
 * every linear is summed in one fixed order (kernels.h).
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "engine/chat.h"
#include "engine/tokenizer.h"
#include "gemma/config.h"

struct engine;
struct seq;

/* exact: float32 activations, every weight as it is stored.  fast: activations of int4 and int8 weights in two int8 terms, int4 weights not rounded
 * (kernels.h).  judge: exact's way of computing fast's products; for tests. */
enum engine_math { MATH_EXACT, MATH_FAST, MATH_JUDGE };

struct engine_options {
    const char *device;     /* "auto", "cpu", "cuda" */
    const char *math;       /* "exact", "fast", "judge"; NULL = fast */
    int threads;            /* <= 0: as many as CPUs */
    long max_context;       /* tokens a sequence may hold; 0 = what the model was made for */
    bool mapped;            /* the weights stay in the mapped files, where memory is short; on the CPU */
    bool ple_on_gpu;        /* the per-layer-embedding table too, not one row a token from this machine's memory */
};

struct engine *engine_open(const char *dir, const struct engine_options *opt, struct err *e) MUST_CHECK;
void engine_close(struct engine *en);

/* What ran, as it stands in every result. */
struct engine_facts {
    const char *device;     /* "cpu", "cuda"; "host-shim": the CUDA kernels on the CPU, in tests only */
    const char *gpu;        /* its name, NULL on the CPU */
    const char *math;       /* "exact", "fast" */
    const char *simd;       /* "scalar", "avx2", "avx512"; NULL on a GPU */
    const char *size;       /* gemma_size_name() */
    int threads;
    const char *pages;      /* where the weights lie: "huge" (at least nine tenths of them in transparent huge pages), "small", "file" (mapped); "gpu" */
    uint64_t huge_bytes;    /* in transparent huge pages, as the kernel says */
    uint64_t weight_bytes;  /* resident, on the GPU where there is one */
    uint64_t kv_room;       /* bytes for K/V on the GPU; 0 on the CPU: what is free */
    int kernels;            /* of one token on the GPU; 0 on the CPU */
    uint64_t token_bytes;   /* of weights read for one token of one sequence, embeddings' single rows left out */
    double load_seconds;
};
const struct engine_facts *engine_facts(const struct engine *en);
const struct gemma *engine_model(const struct engine *en);
const struct tokenizer *engine_tokenizer(const struct engine *en);  /* NULL: the model has no tokenizer.json */
const struct chat *engine_chat(const struct engine *en);            /* NULL: no template known */
long engine_max_context(const struct engine *en);
/* End tokens: generation_config.json's, else config.json's.  Suppressed tokens: generation_config.json's, never sampled. */
const int *engine_eos(const struct engine *en, size_t *n);
const int *engine_suppressed(const struct engine *en, size_t *n);

/* One sequence's K/V and position.  It holds up to `capacity` tokens; memory becomes resident as tokens come in, and layers
 * with a sliding window keep that window only. */
struct seq *seq_new(struct engine *en, long capacity);
void seq_free(struct seq *s);           /* NULL is fine */
long seq_position(const struct seq *s); /* tokens it holds */
long seq_capacity(const struct seq *s);
/* Bytes that a sequence of n tokens occupies. */
uint64_t engine_kv_bytes(const struct engine *en, long n);
/* What it takes of a room for K/V that is counted in tokens of a sequence of full length: on a GPU, whose room is not to be overdrawn, more than n where windows make long
 * sequences cheaper; on the CPU n. */
long engine_kv_tokens(const struct engine *en, long n);

/* Looks at every token of an item, called on the stepping thread in order of position.  A non-zero return ends the step with -1 (the callee fills e). */
struct engine_watch {
    void *arg;
    int (*logits)(void *arg, long position, const float *row, struct err *e);               /* [vocab]; may be NULL */
    int (*hidden)(void *arg, long position, int layer, const float *row, struct err *e);    /* [hidden]; layer 0 = after the embedding, i + 1 = after layer i; may be NULL */
};

/* The largest logits after a token, falling, of equal ones the lower id first, suppressed ones among them; and the log of the sum of exp over all logits. */
#define ENGINE_TOP 96
struct engine_top { size_t n; int id[ENGINE_TOP]; float logit[ENGINE_TOP]; double log_sum; };
/* Whether steps fill them: on a GPU, where all logits would have to come up the bus. */
bool engine_makes_top(const struct engine *en);

/* A run of tokens appended to one sequence. A step holds each sequence at most once. */
struct engine_item {
    struct seq *seq;
    const int *ids;
    size_t n;               /* >= 1; all within the vocabulary, position + n <= capacity: the caller's duty */
    float *logits;          /* [vocab]: those after the last token, soft-capped; NULL = not wanted (a prompt's earlier runs) */
    const struct engine_watch *watch;   /* NULL = none */
    int *chosen;            /* the id with the largest logit after the last token, of equal ones the lowest, suppressed ones left out; -1 when there is none.  NULL = not
                               wanted */
    struct engine_top *top; /* only where engine_makes_top(); NULL = not wanted */
};

/* Reads the weights' bytes of one token once, on all threads, and does nothing with them; the bytes read, or 0 and e set when a GPU failed.  What decoding is measured against. */
uint64_t engine_read_weights(struct engine *en, struct err *e);

/* What each kernel of a step of this item (one token) takes on the GPU, run by itself: {"part", "kernels", "bytes" (of weights), "us"}.  The sequence stays where it is.  New
 * reference; an empty list on the CPU. */
json_t *engine_profile(struct engine *en, struct engine_item *item, struct err *e) MUST_CHECK;
/* Kernels that the GPU has run so far; 0 on the CPU. */
uint64_t engine_kernels_run(const struct engine *en);

/* Tokens that one step may hold in all its items; longer prompts go in runs. */
#define ENGINE_STEP_TOKENS 128

/* Run all items; on return each sequence has advanced by its n.  -1 when a watch ended it; on a GPU also EXIT_TEMPFAIL when its room for K/V is full (nothing has run),
 * EXIT_UNAVAILABLE when it is lost. */
int engine_step(struct engine *en, struct engine_item *item, size_t n, struct err *e) MUST_CHECK;
#endif
