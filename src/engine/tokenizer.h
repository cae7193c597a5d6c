/* Text to token ids and back, as Hugging Face `tokenizers` does it with a Gemma tokenizer.json.
 *
 * Owns: the file (read once by a scanner of our own: 33 MB in a fraction of a second), the added tokens (cut out of the raw text first:
 * leftmost, then the longest), the normalizer (a space becomes U+2581), BPE with ranked merges over whole pieces, byte fallback, and
 * decoding with the byte runs joined.
 * Refuses (EXIT_DATA, naming the file): another model type than BPE, a normalizer, pre-tokenizer, decoder or option that it does not implement,
 * added tokens that strip or match whole words, duplicate or huge ids, merges of pieces that do not exist.
 * Never changes after tokenizer_open: any number of threads may use one.
 */
#ifndef ENGINE_TOKENIZER_H
#define ENGINE_TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"
#include "base/err.h"

/* A growing list of token ids. */
struct ids { int *id; size_t n, cap; };
#define IDS_INIT {NULL, 0, 0}
void ids_add(struct ids *l, int id);
void ids_free(struct ids *l);           /* back to IDS_INIT */

struct tokenizer;
/* Reads DIR/tokenizer.json.  NULL with EXIT_NOINPUT when that file is absent, EXIT_DATA when it is broken or not a Gemma's. */
struct tokenizer *tokenizer_open(const char *dir, struct err *e) MUST_CHECK;
/* The same from n bytes in memory; `name` is for messages. */
struct tokenizer *tokenizer_parse(const char *json, size_t n, const char *name, struct err *e) MUST_CHECK;
void tokenizer_free(struct tokenizer *t);               /* NULL is fine */

/* One more than the largest id, added tokens included: may be past the embedding table (Gemma 3: 262145 against 262144). */
int tokenizer_size(const struct tokenizer *t);
/* Id of a piece exactly as the file spells it ("<bos>", "\u2581the"); -1 = none. */
int tokenizer_id(const struct tokenizer *t, const char *piece);
/* An added token marked special (<bos>, <end_of_turn>, <|tool_call> …). */
bool tokenizer_special(const struct tokenizer *t, int id);
/* The id that the file's post-processor puts before a text (Gemma 3: <bos>), -1 = it adds nothing (Gemma 4 -it).  Encoding never adds it. */
int tokenizer_bos(const struct tokenizer *t);

/* Append the ids of n bytes of UTF-8 (U+0000 allowed).  Special tokens in the text are recognised; no bos is added.
 * EXIT_DATA with the byte offset where the text is not UTF-8; out is then as before. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, struct ids *out, struct err *e) MUST_CHECK;

/* Streaming decoder: what it has written is always complete UTF-8, and all of it together equals HF's decode of all the ids.
 * A run of byte tokens waits until a token of another kind ends it, because HF replaces every byte of a run by U+FFFD when
 * the run as a whole is not UTF-8. */
struct detok {
    const struct tokenizer *t;
    bool skip_special;      /* special tokens give no text */
    struct buf run;         /* bytes of the byte tokens that wait */
};
void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special);
/* Append the text that is now complete.  EXIT_DATA for an id outside the vocabulary. */
int detok_feed(struct detok *d, int id, struct buf *out, struct err *e) MUST_CHECK;
void detok_end(struct detok *d, struct buf *out);       /* what waited; the decoder can be used again */
void detok_free(struct detok *d);
/* All of it at once. */
int tokenizer_decode(const struct tokenizer *t, const int *id, size_t n, bool skip_special, struct buf *out, struct err *e) MUST_CHECK;
#endif
