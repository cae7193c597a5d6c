/* The kernels of one decoded token, in order: what the GPU runs as one graph.
 *
 * Owns: how the forward pass (forward.h says what it computes) is cut into kernels.  Norms, residuals, rotations and the choice of a token have none of their own: the block
 * that finishes a kernel's last rows does them.  So a dense layer takes five, two more for a per-layer embedding, one more for the router of experts, whose products
 * run beside the dense ones where they are stored alike, else in two kernels of their own.
 * The list follows from the model's description alone: --info counts it, the GPU runs it, the tests hold both to it.
 */
#ifndef ENGINE_GRAPH_H
#define ENGINE_GRAPH_H
#include <stdbool.h>
#include "gemma/config.h"
#include "tensor/header.h"

enum graph_part {
    PART_EMBED,                 /* the token's row, scaled; the first norm */
    PART_PLE,                   /* the per-layer vectors: projection, norm, the table's row */
    PART_QKV,                   /* q, k, v; their norms and rotation; K/V written */
    PART_ATTENTION,
    PART_O,                     /* and residual, norm */
    PART_ROUTER,                /* and the choice of experts */
    PART_GATE_UP,               /* and GELU; the experts' too */
    PART_EXPERTS_UP,            /* where they are stored otherwise than the dense ones */
    PART_DOWN,                  /* and residual, norm; the experts' too */
    PART_EXPERTS_DOWN,
    PART_PLE_GATE,
    PART_PLE_OUT,               /* and residual, norm */
    PART_HEAD,                  /* lm_head, soft-cap, argmax */
    PARTS
};
const char *graph_part_name(enum graph_part p);         /* "embed", "ple", "qkv", … */

struct graph_node { enum graph_part part; int layer; }; /* layer -1: once a token */
struct graph {
    struct graph_node node[GEMMA_MAX_LAYERS * 9 + 3];
    size_t n;
};
/* experts_apart: the experts' matrices are stored otherwise than the dense MLP's. */
void graph_make(struct graph *graph, const struct gemma *g, bool experts_apart);
/* Kernels that layer i takes. */
int graph_kernels_of(const struct graph *graph, int layer);

/* The kernel that reads this tensor of the text model, however it is spelled; head_stored: there is an lm_head. */
enum graph_part graph_part_of(const struct st_tensor *t, bool head_stored, bool experts_apart);
#endif
