/* How the products of one token in fast mode walk memory: how far ahead they ask for weights, and whether rows go in tiles. What is best depends on the kernel, the length of a row and the
 * machine, and is found by trying.
 *
 * Owns: the choice for each kind of weight and length of row, made once at load in a few milliseconds.  Rows go one by one in order of address, which memory likes best, but for those so
 * long that their activations leave the nearest cache no room: in tiles.  It changes no result.
 */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H
#include "engine/kernels.h"
#include "engine/weights.h"

enum { PACES = 16 };            /* more kinds and lengths than models have; those beyond go at their kind's usual pace */
struct paces { size_t n; struct { enum weight_kind kind; size_t cols; struct pace pace; } of[PACES]; };

/* Tries some on the weights themselves; the usual one stays unless another beats it clearly. */
void paces_find(struct paces *p, const struct weights *w, int layers, const struct kernels *k);
const struct pace *pace_of(const struct paces *p, const struct matrix *w);
#endif
