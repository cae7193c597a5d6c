/* A growing byte buffer.  Invariant: data[n] == 0 whenever data is not NULL, so it is also a C string when it holds no NUL. */
#ifndef BASE_BUF_H
#define BASE_BUF_H
#include <stdarg.h>
#include <stddef.h>
#include "base/err.h"

struct buf { char *data; size_t n, cap; };
#define BUF_INIT {NULL, 0, 0}
void buf_reserve(struct buf *b, size_t more);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
void buf_free(struct buf *b);           /* back to BUF_INIT */
#endif
