/* How fast a model would decode one sequence on a GPU, from headers alone: two predictions that must not be mixed up.
 *
 *   vllm: ms = int4 / BW4 + 8-bit / BW8 + (16-bit + K/V) / BW16 + layers * a + expert layers * b, the constants fitted to measurements of vLLM on an L4.  On another GPU
 *         the bandwidths are the same shares of its data sheet's and the time a layer stays: that is extrapolation.
 *   ours: us of a part = bytes / (share of peak * bandwidth) + kernels * idle time around one, the kernels those of engine/graph.h; and a time a token for
 *         the host.  Planned, never measured.
 *
 * {"kernels", "kernels_per_layer" (the most), "fits_memory", "predicted_vllm": {"tokens_per_s", "us", "basis"}, "predicted_ours": {"tokens_per_s", "us", "basis", "runs" (on such a GPU),
 *  "parts": [{"part", "kernels", "bytes", "us"}]}}
 */
#ifndef ENGINE_PREDICT_H
#define ENGINE_PREDICT_H
#include <jansson.h>
#include "engine/gpus.h"
#include "gemma/bytes.h"

/* b: what h counts to; kv: bytes of K/V that a token reads.  New reference. */
json_t *predict(const struct gemma *g, const struct st_header *h, const struct gemma_bytes *b, double kv, const struct gpu *gpu);
#endif
