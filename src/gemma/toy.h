/* The side files of a synthetic model: a small tokenizer built like the real one, and the JSON files beside it.
 *
 * The tokenizer is a BPE with byte fallback as in Google's tokenizer.json: the same normalizer, pre-tokenizer and decoder, special tokens under their
 * own strings and ids, runs of newlines (ids 107 to 137) and of spaces (138 to 167), bytes (238 to 493).  From 494 on: ASCII and a few other
 * characters, then the results of some four hundred merges of English text; image and audio tokens where config.json puts them; every other id up to
 * vocab_size is `<unusedN>`, so each id that the model can produce has a piece.
 */
#ifndef GEMMA_TOY_H
#define GEMMA_TOY_H
#include "gemma/config.h"

#define TOY_MIN_VOCAB 1024      /* the vocabulary must hold all that: with less there is no tokenizer */
#define TOY_MAX_FILES 8

struct toy_file { const char *name; char *data; size_t n; };

/* The files in order of name, data freed by the caller; returns their number.  chat_template becomes chat_template.jinja; a config with towers gets a
 * processor_config.json.  No tokenizer and template below TOY_MIN_VOCAB. */
size_t toy_files(const json_t *config, const struct gemma *g, const char *chat_template, struct toy_file out[TOY_MAX_FILES]);
/* The token is text, a newline or the end of a turn: what a synthetic model should say. */
bool toy_speaks(const struct gemma *g, int id);
#endif
