/* Writing `quantization_config`: the groups, in the order and with the keys of published builds, byte for byte the same for the same layout.
 *
 * Source: compressed-tensors reference, section 4.2; vLLM matches targets in this order.
 */
#ifndef CT_QUANT_CONFIG_H
#define CT_QUANT_CONFIG_H
#include <jansson.h>
#include "ct/scheme.h"

/* Which parts of a build are stored how; CT_PLAIN = not quantized. */
struct ct_layout {
    enum ct_arch arch;
    struct ct_scheme linear, ple, embed, head;
};

/* `ignore` is an array of strings (borrowed).  New reference. */
json_t *ct_quant_config(const struct ct_layout *l, json_t *ignore);

/* The name of the build: text, ple4, emb4, fp8, int8, fp8emb4, int8emb4, full; others are composed of these. `has_ple`: the model has a per-layer table. */
void ct_build_name(const struct ct_layout *l, bool has_ple, char out[32]);

/* Set both tie flags of a config (top level, and text_config where there is one). */
void ct_set_tied(json_t *config, bool tied);
/* The keys that a unified (12B) multimodal config needs and Google's export lacks (section 4.8); present ones are kept. */
void ct_complete_unified(json_t *config);
#endif
