/* Percent-encoding of URLs: RFC 3986, sections 2.1 and 2.3. */
#ifndef BASE_PERCENT_H
#define BASE_PERCENT_H
#include <stdbool.h>
#include "base/buf.h"

/* Append n bytes; letters, digits, "-._~" and those of `kept` stand for themselves. */
void percent_encode(struct buf *b, const char *p, size_t n, const char *kept);
/* Append n bytes with the escapes resolved; what is no escape stays as it is.  plus: "+" is a space, as forms have it. */
void percent_decode(struct buf *b, const char *p, size_t n, bool plus);
#endif
