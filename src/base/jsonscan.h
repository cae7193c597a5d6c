/* A pull scanner for JSON in memory: no tree, no copies.  For files too large for jansson (a 33 MB tokenizer.json takes it seconds).
 *
 * Owns: the grammar of RFC 8259, strictly: UTF-8 checked, lone surrogates refused, nesting bounded, no trailing commas.  Repeated keys are the caller's
 * matter.  The first fault fills the struct err given to jscan_init (EXIT_DATA, with the byte offset); every later call fails, too.
 *
 *     jscan_open(s, '{') == 0;  while ((r = jscan_key(s, &key, &n)) == 1) { one value must be read or skipped };  r < 0: fault
 *     jscan_open(s, '[') == 0;  while ((r = jscan_item(s)) == 1) { … }
 */
#ifndef BASE_JSONSCAN_H
#define BASE_JSONSCAN_H
#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"
#include "base/err.h"

#define JSCAN_DEPTH 64                  /* deeper nesting is refused when skipped */

struct jscan {
    const char *begin, *at, *end;
    const char *name;                   /* for messages; not owned */
    struct err *e;
    bool fresh;                         /* just behind an opening bracket */
    struct buf text;                    /* the last string that had escapes */
};

void jscan_init(struct jscan *s, const char *text, size_t n, const char *name, struct err *e);
void jscan_free(struct jscan *s);
/* A second scanner at the same place: to come back to a value that was skipped. */
void jscan_fork(const struct jscan *s, struct jscan *copy);

/* What comes next: '{' '[' '"', '0' a number, 't' 'f' 'n' the words; 0 at the end or before anything else. */
char jscan_peek(struct jscan *s);
int jscan_open(struct jscan *s, char bracket) MUST_CHECK;
/* 1 = another one follows, 0 = the bracket closed, -1 = fault.  The key lives until the next string is read. */
int jscan_key(struct jscan *s, const char **key, size_t *n) MUST_CHECK;
int jscan_item(struct jscan *s) MUST_CHECK;

/* Not terminated; may hold U+0000; lives until the next string is read. */
int jscan_string(struct jscan *s, const char **text, size_t *n) MUST_CHECK;
int jscan_int(struct jscan *s, long min, long max, long *v) MUST_CHECK;
int jscan_bool(struct jscan *s, bool *v) MUST_CHECK;
int jscan_skip(struct jscan *s) MUST_CHECK;
int jscan_done(struct jscan *s) MUST_CHECK;             /* nothing but white space may be left */

/* A fault found by the caller, at the present place. */
int jscan_fail(struct jscan *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
#endif
