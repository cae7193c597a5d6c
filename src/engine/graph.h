/* The kernels of one decoded token, in order: what the GPU runs as one graph.
 *
 * Owns: how the forward pass (forward.h says what it computes) is cut into kernels.  Norms, residuals and activations have none of their own: a kernel begins with the
 * norm of its input, which every block computes for itself, and ends with what needs no other block.  So a dense layer takes five, two more for a
 * per-layer embedding, two more for experts.
 * The list follows from the model's description alone: --info counts it, the GPU runs it, the tests hold both to it.
 */
#ifndef ENGINE_GRAPH_H
#define ENGINE_GRAPH_H
#include "gemma/config.h"
#include "tensor/header.h"

enum graph_part {
    PART_EMBED,                 /* the token's row, scaled */
    PART_PLE,                   /* the per-layer vectors: projection, norm, the table's row */
    PART_QKV,                   /* the end of the layer before, norm, q, k, v */
    PART_ATTENTION,             /* norm and rotation of q and k, K/V written, scores, sum */
    PART_O,
    PART_GATE_UP,               /* residual, norm, gate and up, GELU; the router's scores beside them */
    PART_DOWN,
    PART_EXPERTS_UP,            /* choice of experts, their gate and up, GELU */
    PART_EXPERTS_DOWN,          /* their down, weighted */
    PART_PLE_GATE,              /* the residual, the gate of the per-layer vector */
    PART_PLE_OUT,               /* its projection */
    PART_HEAD,                  /* residual, norm, lm_head, soft-cap, argmax */
    PARTS
};
const char *graph_part_name(enum graph_part p);         /* "embed", "ple", "qkv", … */

struct graph_node { enum graph_part part; int layer; }; /* layer -1: once a token */
struct graph {
    struct graph_node node[GEMMA_MAX_LAYERS * 9 + 3];
    size_t n;
};
void graph_make(struct graph *graph, const struct gemma *g);
/* Kernels that layer i takes. */
int graph_kernels_of(const struct graph *graph, int layer);

/* The kernel that reads this tensor of the text model, however it is spelled; head_stored: there is an lm_head. */
enum graph_part graph_part_of(const struct st_tensor *t, bool head_stored);
#endif
