/* config.json of the five Gemma 4 sizes and of Gemma 3 270M, as Google's checkpoints have it, and of their nano twins.
 *
 * Numbers: Google's published configs (transformers configuration_gemma4.py names the fields).  A nano twin has every structural feature of its size
 * (sharing, double-wide MLP, per-layer embeddings, k = v, experts, own head size on full layers …) in dimensions of 16 to 320 and a vocabulary of 1024;
 * the ids of image and audio tokens, which lie above 255,000, become the last seven of it.  12B's vision_config lacks num_soft_tokens and
 * model_patch_size, and its top level the text sizes, as in the export that is repacked.
 */
#ifndef GEMMA_PRESET_H
#define GEMMA_PRESET_H
#include <jansson.h>
#include <stdbool.h>

#define GEMMA_SIZES "e2b|e4b|12b|26b|31b|gemma3"

/* size: one of GEMMA_SIZES.  Without towers vision_config and audio_config are null.  New reference; NULL = no such size. */
json_t *gemma_preset(const char *size, bool full, bool towers);
#endif
