/* How far ahead the products of fast mode ask for their weights: which distance is best depends on the kernel, the length of a row and the machine, and is found by trying.
 *
 * Owns: the choice for each kind of weight and class of row, made once at load in a few milliseconds; rows go four (short ones) or two at a time in order of address.  It changes no result.
 */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H
#include "engine/kernels.h"
#include "engine/weights.h"

struct paces { struct pace of[W_FP8 + 1][2]; };     /* rows of up to 1024 columns, longer ones */

/* Tries some on the weights themselves; a first choice that none beats clearly stays. */
void paces_find(struct paces *p, const struct weights *w, int layers, const struct kernels *k);

static inline const struct pace *pace_of(const struct paces *p, const struct matrix *w) { return &p->of[w->kind][w->cols > 1024]; }
#endif
