/* What a model weighs, from headers alone: parameters and bytes by class, bytes that decoding reads for a token, K/V.
 *
 * The counting is gemma/bytes.h's; the names of the classes are st-extract's.  A model is a checkpoint or build directory, or a stream or plan ("-" or a file).
 * {"size", "tensors", "params", "bytes", "classes": {CLASS: {"tensors", "params", "bytes", "bytes_per_token"}}, "weights_per_token", "mean_context",
 * "kv_bytes_per_token" (bf16, what one more token adds), "kv_read_per_token" (at the mean context), "bytes_per_token", "gpu": {"name", "gb_per_s", "memory_gb", "max_tokens_per_s", "bytes_per_token",
 * and what predict.h adds} | null}
 */
#ifndef ENGINE_INFO_H
#define ENGINE_INFO_H
#include <jansson.h>
#include <stdio.h>
#include "base/err.h"
#include "engine/gpus.h"

/* New reference; gpu may be NULL. */
json_t *info_read(const char *model, const struct gpu *gpu, struct err *e) MUST_CHECK;
/* The same as a table for people. */
void info_print(FILE *f, const json_t *info);
#endif
