/* What a Gemma is: config.json as one struct with a table of layers.  No arithmetic, no tensors' bytes.
 *
 * Reads the wrapper (text under text_config) and the lifted form, Gemma 4's five sizes and Gemma 3 text, both old and new spellings of rope,
 * layer pattern and per-layer heads (reference: transformers configuration_gemma4.py, configuration_gemma3.py).  Refuses (EXIT_DATA) what the
 * engine could only get wrong: unknown model_type, unknown activation, attention_bias, attention soft-caps, bidirectional text, rope types it does not
 * know, sizes that do not divide or whose products (heads x head_dim, layers x ple) leave 24 bits.
 */
#ifndef GEMMA_CONFIG_H
#define GEMMA_CONFIG_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

#define GEMMA_MAX_LAYERS 256
#define GEMMA_MAX_EOS 8

enum gemma_family { GEMMA_3, GEMMA_4 };

struct gemma_layer {
    bool full;              /* full attention; else sliding window */
    int head_dim;
    int kv_heads;
    int kv_from;            /* the layer whose K/V cache it reads; its own number when it owns one */
    bool v_is_k;            /* no v_proj: v is the raw k */
    int mlp;                /* width of the dense MLP */
    double rope_theta;
    double rope_factor;     /* frequencies are divided by it; 1 = none */
    int rope_pairs;         /* pairs that rotate, of head_dim / 2; the rest passes through */
};

struct gemma {
    enum gemma_family family;
    bool wrapped;           /* text_config present */
    bool unified;           /* Gemma 4 12B */
    int hidden, layers, heads, vocab;
    int window;             /* keys a sliding layer sees, itself included */
    int ple;                /* hidden_size_per_layer_input; 0 = none */
    int ple_vocab;
    int experts, top_k, expert_mlp;     /* 0 = dense */
    double eps, softcap;    /* softcap 0 = none */
    double score_scale;     /* 1 for Gemma 4, query_pre_attn_scalar^-0.5 for Gemma 3 */
    bool norm_plus_one;     /* Gemma 3: x * (1 + w) */
    bool v_norm;            /* Gemma 4 */
    bool layer_scalar;      /* Gemma 4 */
    bool tied;              /* lm_head is embed_tokens: both tie flags, absent = true */
    long max_positions;
    int bos, pad;
    int eos[GEMMA_MAX_EOS], n_eos;      /* from config.json only */
    struct gemma_layer layer[GEMMA_MAX_LAYERS];
};

/* `where` names the config in messages. */
int gemma_config_read(struct gemma *g, const json_t *config, const char *where, struct err *e) MUST_CHECK;
/* The text config lifted to the top level, as text-only builds carry it (compressed-tensors reference, section 7): architectures,
 * dtype, transformers_version, quantization_config and the bos, eos and pad ids from the top level where it has them; tie_word_embeddings = both
 * flags, absent = true.  New reference.  A config already lifted is copied (and gets the tie flag). */
json_t *gemma_config_lift(const json_t *config);
/* "e2b", "e4b", "12b", "26b", "31b", "gemma3" by structure, for messages: PLE with double-wide MLP, PLE, unified, MoE, k==v dense, … */
const char *gemma_size_name(const struct gemma *g);
#endif
