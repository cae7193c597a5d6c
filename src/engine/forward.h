/* The forward pass of Gemma 3 and 4 over a batch of tokens of several sequences (reference: transformers modeling_gemma4.py and
 * modeling_gemma3.py; in float32, embedding scale sqrt(hidden) unrounded).
 *
 * Owns: the activations (scratch for ENGINE_STEP_TOKENS tokens, touched as far as a step is wide) and the order of operations.  After K and V of
 * the last layer that owns a cache are written, tokens whose output nobody wants are dropped.
 */
#ifndef ENGINE_FORWARD_H
#define ENGINE_FORWARD_H
#include "base/par.h"
#include "engine/engine.h"
#include "engine/kernels.h"
#include "engine/kv.h"
#include "engine/sample.h"
#include "engine/weights.h"

struct forward;
/* All are borrowed and must outlive it; `never`: ids that are not chosen. */
struct forward *forward_new(const struct gemma *g, const struct weights *w, const struct kernels *k, enum engine_math math, struct par *par, struct id_span never);
void forward_free(struct forward *f);
/* engine_step() for at most ENGINE_STEP_TOKENS tokens in all. */
int forward_run(struct forward *f, struct engine_item *item, size_t n, struct err *e) MUST_CHECK;
#endif
