/* Choosing the largest logit without holding all logits.
 *
 * Owns: what is known of the head's rows (their norms, found when first needed), the ids that are never chosen.  The answer is that of all logits.  One token's are computed
 * piece by piece, of which only the largest stays.  For several tokens bounds from the activations' high terms leave few rows in question, and those are computed as ever.
 *     |logit - high terms' part| <= |row| |low terms' part of x| (Cauchy-Schwarz), and rounding.
 */
#ifndef ENGINE_CHOOSE_H
#define ENGINE_CHOOSE_H
#include <stdbool.h>
#include <stddef.h>
#include "base/par.h"
#include "engine/kernels.h"
#include "engine/sample.h"

struct chooser;
/* head [vocab, hidden]; softcap 0 = none; fast: the head's products are those of fast mode, else choose() says nothing.  All are borrowed. */
struct chooser *chooser_new(const struct matrix *head, float softcap, bool fast, struct id_span never, const struct kernels *k, struct par *par);
void chooser_free(struct chooser *c);

enum { CHOOSE_TOKENS = BOUND_TOKENS };
/* id[t]: of the largest logit, of equal ones the lowest; x [n, hidden] normed, n <= CHOOSE_TOKENS; act: x prepared for the head, where its kind wants that.  false: look at all
 * logits. */
bool choose(struct chooser *c, const float *x, size_t n, const uint8_t *act, const struct pace *pace, int *id);
/* The same of one token's logits, of which those never chosen become -infinity; -1 when one is no number or none may be chosen. */
int choose_of_logits(const struct chooser *c, float *logits);
#endif
