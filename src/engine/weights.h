/* A model's weights in memory, as the file has them.
 *
 * Owns: which tensor plays which part (by the list of names in the model's config and, for quantized modules, quantization_config), the one anonymous mapping
 * that all matrices lie in (transparent huge pages where the system has them), and the small vectors widened to float32.  Every tensor begins on a
 * multiple of 64 bytes.  Or the matrices stay in the mapped files, whose pages the system may drop and read again: slower, and a file that shrinks meanwhile ends the program.
 *
 * Refuses (EXIT_DATA, naming the tensor): a missing one; one of another dtype or shape than config.json or the quantization scheme says; a tensor of the
 * text model that no part of it uses; groups that are no multiple of 32; NaN or infinity in weights, scales or norms.  EXIT_TEMPFAIL when the weights are larger
 * than the machine's memory.  Towers, dead K/V tensors of shared layers and an lm_head that config.json says is tied are left out and said once.
 */
#ifndef ENGINE_WEIGHTS_H
#define ENGINE_WEIGHTS_H
#include <stdbool.h>
#include "base/par.h"
#include "ct/scheme.h"
#include "engine/kernels.h"
#include "gemma/config.h"
#include "tensor/checkpoint.h"

struct layer_weights {
    float *input_norm, *post_attention_norm, *pre_mlp_norm, *post_mlp_norm;    /* [hidden] */
    struct matrix q, k, v, o;               /* k, v: rows 0 where the layer has none */
    float *q_norm, *k_norm;                 /* [head_dim]; k_norm NULL on shared layers */
    struct matrix gate, up, down;
    float scalar;                           /* 1 for Gemma 3 */
    struct matrix ple_gate, ple_projection; /* [ple, hidden], [hidden, ple] */
    float *ple_norm;
    struct matrix router;                   /* [experts, hidden] */
    float *router_scale;                    /* router.scale * hidden^-0.5 */
    float *expert_scale;                    /* [experts] */
    float *post_mlp_norm_1, *pre_mlp_norm_2, *post_mlp_norm_2;
    struct matrix *expert_gate, *expert_up, *expert_down;      /* [experts] each */
};

struct weights {
    struct matrix embed, head;              /* the same bytes when tied */
    struct matrix ple_table;                /* [vocab, layers * ple] */
    struct matrix ple_model_projection;     /* [layers * ple, hidden] */
    float *ple_projection_norm;
    float *norm;
    struct layer_weights layer[GEMMA_MAX_LAYERS];
    uint64_t huge_bytes;                    /* of the mapping that lie in transparent huge pages, as the kernel says */
    bool mapped;                            /* the matrices lie in the files */
    uint64_t bytes;                         /* of all matrices, each once */
    uint64_t token_bytes;                   /* read for one token: everything but the embedding tables' other rows and the experts not chosen */
    void *map; size_t map_bytes;
    void **owned; size_t n_owned, cap_owned;   /* the vectors and the experts' tables */
};

/* A memory that this process cannot write itself: a GPU's.  The bytes go there in the file's layout, through buffers that the memory lends. */
struct weights_memory {
    void *arg;
    /* Room for all that follows, asked for once; NULL with e set when there is none. */
    uint8_t *(*room)(void *arg, uint64_t bytes, struct err *e);
    /* A buffer of WEIGHTS_PIECE bytes to fill, and n of them to put at `to`; n 0 gives it back unused.  Called by any number of threads. */
    uint8_t *(*lend)(void *arg);
    int (*put)(void *arg, uint8_t *lent, uint8_t *to, size_t n, struct err *e);
    bool ple;                   /* the per-layer table goes there too, else it stays in this process's memory */
};
#define WEIGHTS_PIECE ((size_t)4 << 20)

/* q NULL = nothing is quantized.  memory NULL = this process's; else the matrices' data and scales lie there, those of the per-layer table as it says.
 * mapped: the matrices stay in the files, without such a memory. */
int weights_load(struct weights *w, const struct gemma *g, const struct ckpt *c, const struct ct_quant *q, struct par *par, const struct weights_memory *memory,
    bool mapped, struct err *e) MUST_CHECK;
/* Where the matrices begin: w->bytes and more lie there. */
const uint8_t *weights_start(const struct weights *w);
void weights_free(struct weights *w);
#endif
