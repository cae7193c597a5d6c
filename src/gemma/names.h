/* Tensor names: which class a tensor belongs to, how text-only builds spell it, which modules the loader fuses.
 *
 * Spellings accepted for the language model: `model.language_model.`, `model.`, `language_model.model.`, `language_model.`; lm_head as `lm_head.` or
 * `language_model.lm_head.`.  Towers (`model.vision_tower.` …) are never mistaken for text although they number `layers.N` of their own.
 */
#ifndef GEMMA_NAMES_H
#define GEMMA_NAMES_H
#include <stdbool.h>
#include <stddef.h>
#include "gemma/config.h"

enum gemma_class {
    GC_LINEAR,              /* projections of the language model incl. the per-layer ones; one expert's matrix */
    GC_EXPERTS,             /* a fused 3-D bank, `experts.gate_up_proj`, `experts.down_proj` */
    GC_ROUTER,              /* router.proj: a matrix that is never quantized */
    GC_EMBED, GC_PLE, GC_HEAD,
    GC_PLAIN,               /* norms, scalars, router scales */
    GC_TOWER,               /* vision, audio, their embedders and projections */
    GC_FILE,                /* "file:NAME" */
    GC_UNKNOWN
};

/* Class of a tensor by name.  Accepts the suffixes .weight, .weight_q4, _q4 (banks), .weight_packed, .weight_scale, .weight_shape, … */
enum gemma_class gemma_classify(const char *name);
const char *gemma_class_name(enum gemma_class c);       /* "linear", "experts", … */
/* The text-only spelling ("model.…", "lm_head.…") into out; false for towers, files and unknown names. */
bool gemma_text_name(const char *name, char *out, size_t size);
/* Layer number of a text tensor, -1 = none. */
int gemma_layer_of(const char *name);
/* The key of the group that the loader fuses this module into ("model.layers.3.self_attn.qkv_proj", "….gate_up_proj", "….experts"), or the
 * module's own text-only name when it stands alone.  Modules with equal keys must share one scheme. */
bool gemma_fused_key(const char *name, char *out, size_t size);

/* One tensor that a model of this config has, bf16 form. */
struct gemma_tensor {
    char name[120];         /* text-only spelling; a tower's own name */
    enum gemma_class cls;
    int layer;              /* of the language model; -1 = global, or a tower's */
    int ndim;
    uint64_t shape[4];
};
/* All of them (fused expert banks; no lm_head when tied), in the order of st-extract: embed_tokens, lm_head, per-layer table and globals, layers
 * in order, layer_scalars last.  *n of them, freed by the caller. */
struct gemma_tensor *gemma_text_tensors(const struct gemma *g, size_t *n);
/* k_proj, v_proj or k_norm of a layer that reads another's K and V: base exports carry them, nothing uses them. */
bool gemma_is_dead(const struct gemma *g, const char *name);
#endif
