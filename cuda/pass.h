/* From the model's description to the launches of one pass over some tokens.
 *
 * Owns: the device memory of activations, the model's vectors there, and which launch does what: one for every node of engine/graph.h with up to 8 tokens, more with a
 * prompt's (kernels.h says where) and where q, k and v or gate and up are stored differently.  The same list is recorded into a graph, run one by one, and counted by tests.
 * Refuses (EXIT_UNAVAILABLE, saying --device cpu): experts of one layer that are stored differently.
 */
#ifndef CUDA_PASS_H
#define CUDA_PASS_H
#include "cuda/device.h"
#include "cuda/pages.h"
#include "engine/engine.h"
#include "engine/graph.h"
#include "engine/weights.h"

enum { PASS_TOKENS = ENGINE_STEP_TOKENS, HEAD_TOKENS = 8 };

/* Angles of one kind of rotary embedding, as forward.c has them. */
struct rope { int pairs; float *freq; };

struct passes {
    const struct gemma *g;
    struct weights w;           /* as loaded, but every vector on the device too */
    struct device *device;
    struct pages *pages;
    int *table;                 /* the pages' table, on the device */
    uint16_t *k, *v;            /* the pool */
    struct graph graph;
    bool experts_apart;
    int last_owner;             /* the last layer with K/V of its own: no later token sees more of this one than what it has written there */
    bool exact;                 /* int4 weights rounded as the source has them */
    struct rope rope[GEMMA_MAX_LAYERS]; int ropes, rope_of[GEMMA_MAX_LAYERS];
    const int *banned; int n_banned;    /* on the device */

    /* Activations, for PASS_TOKENS tokens. */
    float *h, *y; int ldy;
    float *ple, *weight, *expert_y, *partial;
    struct gk_job *job; int *jobs;
    struct gk_expert *expert_up[GEMMA_MAX_LAYERS], *expert_down[GEMMA_MAX_LAYERS];
    unsigned *count;
    uint16_t *x, *x_other, *x_experts, *x_again; int ldx;     /* x_other: for the per-layer projection, the router; x_again: x in another order, for what is stored otherwise */
    struct prepared { int n; uint16_t *x; } q[2], att[2], act[GK_SEGMENTS], expert_act, ple_act;
    float *logits;              /* [HEAD_TOKENS][vocab] */
    struct gk_best *best, *best_partial;
    struct gk_top *top, *top_partial;
    uint8_t *params;            /* struct params */
    uint64_t ahead;             /* most bytes of one matrix that are asked for into the second cache before they are wanted */
    struct gk_device shape;
};

/* A pass over all layers; or one over a prompt in two: until the last layer with K/V of its own has written them, and the rest, for the tokens of which more is wanted. */
enum pass_reach { PASS_WHOLE, PASS_FIRST, PASS_REST };

/* What a pass over `tokens` tokens reads besides weights and activations, written by the host before it: offsets into one block of memory, the same on both sides, from start to end.
 * The rest of a prompt has its own place there. */
struct params { size_t start, token, angles[GEMMA_MAX_LAYERS], from, end; };
struct params params_of(const struct passes *p, int tokens, enum pass_reach reach);

/* Everything but the K/V pool.  w is as weights_load left it with cuda_memory(). */
int passes_init(struct passes *p, struct device *d, const struct gemma *g, const struct weights *w, bool exact, bool ple_on_device, struct err *e) MUST_CHECK;
void passes_free(struct passes *p);     /* what is not the device's */

struct pass {
    struct gk_launch *launch; size_t n;
    size_t end[GEMMA_MAX_LAYERS + 1];   /* [i]: launches until h is the stream after layer i - 1; [0]: after the embedding */
};
/* Layers of `tokens` tokens, as far as it reaches. */
int pass_layers(struct pass *to, const struct passes *p, int tokens, enum pass_reach reach, struct err *e) MUST_CHECK;
/* After PASS_FIRST: the stream, queries and per-layer vectors of token `from` become those of token `to` <= from; the rest takes no more of it. */
int pass_move(const struct passes *p, int to, int from, struct err *e) MUST_CHECK;
/* Some of the tokens of a prompt's rest: those whose rows params.from lists from `first` on, where `tokens` is the pass's. */
struct pass_rows { int tokens, first; };
/* What is wanted besides the largest: the GK_TOP largest, all logits. */
enum pass_wants { PASS_TOP = 1, PASS_LOGITS = 2 };
/* Appends the head of up to HEAD_TOKENS tokens; rows NULL: of all that pass_layers was for, else of those. */
int pass_head(struct pass *to, const struct passes *p, int tokens, const struct pass_rows *rows, int wants, struct err *e) MUST_CHECK;
void pass_free(struct pass *to);
#endif
