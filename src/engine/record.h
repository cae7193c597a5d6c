/* Float32 tensors whose rows come one by one, as one safetensors file at the end.
 *
 * Owns: an unlinked spool in $TMPDIR, so that logits of long prompts (1 MB a token) need no memory; names, which must differ.  A tensor has as many rows as
 * were put into it.
 */
#ifndef ENGINE_RECORD_H
#define ENGINE_RECORD_H
#include <stddef.h>
#include "base/err.h"

struct record;
struct record *record_new(struct err *e) MUST_CHECK;
/* Room for `rows` rows of `wide` floats.  *tensor gets its number.  EXIT_DATA when the name is taken. */
int record_tensor(struct record *r, const char *name, size_t rows, size_t wide, size_t *tensor, struct err *e) MUST_CHECK;
/* Rows come in order from 0. */
int record_row(struct record *r, size_t tensor, const float *row, struct err *e) MUST_CHECK;
void record_drop(struct record *r, size_t tensor);      /* it will not be written */
/* Appears by one rename. */
int record_write(struct record *r, const char *path, struct err *e) MUST_CHECK;
void record_free(struct record *r);                     /* NULL is fine */
#endif
