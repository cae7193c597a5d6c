/* How fast a model runs here, each figure beside a plain read of the same weights taken just before.
 *
 * {"prompt_tokens", "gen_tokens", "batch", "prefill_tokens_per_s", "decode_tokens_per_s" (of all sequences), "read_gb_per_s" (a plain read by the same threads),
 * "weights_gb_per_s" (weights read while decoding), "share_of_read", "step_ms" (median), "load_seconds", "pages" ("huge", "small", "file", "gpu"),
 * "huge_page_bytes" (of the weights, as the kernel says), and what ran; on a GPU also "kernels" (of a token), "kernels_run_per_step" (one graph for up to 8 sequences)
 * and "parts": each kernel of a token by itself, {"part", "kernels", "bytes" (of weights), "us", "gb_per_s", "share_of_read"}}.
 * Medians of the steps; prompts are fixed ids.
 */
#ifndef ENGINE_BENCH_H
#define ENGINE_BENCH_H
#include <jansson.h>
#include "engine/engine.h"

/* New reference. EXIT_DATA when prompt and reply do not fit the context. */
json_t *bench_run(struct engine *en, long prompt, long gen, size_t batch, struct err *e) MUST_CHECK;
/* One line on stderr. */
void bench_say(const json_t *bench);
#endif
