/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF.  U+0000 is a character like any other. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"

/* Length in bytes (1 to 4) of the character at p, of which n bytes may be read; 0 when there is no complete valid one.  cp may be NULL. */
size_t utf8_decode(const char *p, size_t n, uint32_t *cp);
/* Offset of the first byte that does not belong to a valid character; n when all is well. */
size_t utf8_check(const char *p, size_t n);
void utf8_add(struct buf *b, uint32_t cp);              /* cp is a valid scalar value */
#endif
