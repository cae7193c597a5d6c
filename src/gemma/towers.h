/* The tensors beside the language model: vision and audio towers, their projections, 12B's embedders.
 *
 * Shapes follow from vision_config and audio_config (transformers modeling_gemma4.py, modeling_gemma4_unified.py; names as Google's files have them).
 * A null or absent config has no tensors.  Refuses (EXIT_DATA) fields that are missing or out of range.
 */
#ifndef GEMMA_TOWERS_H
#define GEMMA_TOWERS_H
#include "gemma/names.h"

/* All of them, class GC_TOWER, vision before audio, into *out (freed by the caller). */
int gemma_tower_tensors(const json_t *config, const char *where, struct gemma_tensor **out, size_t *n, struct err *e) MUST_CHECK;
#endif
