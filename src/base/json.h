/* JSON, by jansson: parsing with its strict rules (duplicates refused, U+0000 allowed), and writing that is always the same bytes.
 *
 * Owns: the mapping of jansson's errors to struct err; JSON Lines in and out.  Numbers are written with 17 digits at most; objects keep
 * the order in which keys were added, unless `sort`.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include "base/err.h"

/* Parse n bytes; `name` is for messages.  New reference; NULL with EXIT_DATA. */
json_t *json_parse(const char *text, size_t n, const char *name, struct err *e) MUST_CHECK;
json_t *json_parse_file(const char *path, struct err *e) MUST_CHECK;   /* up to 256 MiB */
/* Compact text (no newline); freed by the caller. */
char *json_text(const json_t *v, bool sort);
char *json_text_indented(const json_t *v);
/* One compact line with '\n' to f; -1 = stdio error. */
int json_line(FILE *f, const json_t *v) MUST_CHECK;

/* Typed fields of an object: `where` names the object in messages.  A missing or null field gives the default and 0; a wrong type is EXIT_DATA. */
int json_get_int(const json_t *obj, const char *key, long long def, long long *out, const char *where, struct err *e) MUST_CHECK;
int json_get_real(const json_t *obj, const char *key, double def, double *out, const char *where, struct err *e) MUST_CHECK;
int json_get_bool(const json_t *obj, const char *key, bool def, bool *out, const char *where, struct err *e) MUST_CHECK;
int json_get_str(const json_t *obj, const char *key, const char *def, const char **out, const char *where, struct err *e) MUST_CHECK;

/* A field that is a string; "" when there is none.  For what was checked before, or may lack it. */
const char *json_field(const json_t *obj, const char *key);

/* A string made of a message, or of n bytes that may hold U+0000: what is no UTF-8, a character cut at the end too, becomes '?'.  New reference, never NULL. */
json_t *json_message(const char *msg);
json_t *json_repaired(const char *text, size_t n);

/* JSON Lines from stdin or a file: one value a line, empty lines skipped.  A line beyond the limit is refused before it takes all memory. */
#define JSONL_LINE_MAX ((size_t)64 << 20)
struct jsonl;
struct jsonl *jsonl_open(const char *path, struct err *e) MUST_CHECK;
/* 1 = *v holds a new reference; 0 = end; -1 = the line is no JSON (e filled; reading can go on); -2 = I/O error, or a line that is too long. *line gets its number from 1. */
int jsonl_next(struct jsonl *j, json_t **v, long *line, struct err *e) MUST_CHECK;
/* The "id" of the line that was just refused (-1), when only its UTF-8 was wrong: new reference, or NULL. */
json_t *jsonl_refused_id(const struct jsonl *j);
void jsonl_close(struct jsonl *j);
#endif
