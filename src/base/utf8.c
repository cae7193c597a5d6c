#include "base/utf8.h"

size_t utf8_decode(const char *p, size_t n, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *)p;
    if (n == 0)
        return 0;
    if (s[0] < 0x80) {
        if (cp)
            *cp = s[0];
        return 1;
    }
    size_t len = s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if (len == 0 || len > n)
        return 0;
    uint32_t c = s[0] & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3F);
    }
    /* Two bytes cannot be overlong (C0 and C1 are refused above). */
    if ((len == 3 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) || (len == 4 && (c < 0x10000 || c > 0x10FFFF)))
        return 0;
    if (cp)
        *cp = c;
    return len;
}

size_t utf8_check(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t len = utf8_decode(p + i, n - i, NULL);
        if (len == 0)
            return i;
        i += len;
    }
    return n;
}

void utf8_add(struct buf *b, uint32_t cp)
{
    char c[4];
    size_t n;
    if (cp < 0x80) {
        c[0] = (char)cp;
        n = 1;
    } else if (cp < 0x800) {
        c[0] = (char)(0xC0 | cp >> 6);
        n = 2;
    } else if (cp < 0x10000) {
        c[0] = (char)(0xE0 | cp >> 12);
        n = 3;
    } else {
        c[0] = (char)(0xF0 | cp >> 18);
        n = 4;
    }
    for (size_t i = 1; i < n; i++)
        c[i] = (char)(0x80 | (cp >> 6 * (n - 1 - i) & 0x3F));
    buf_add(b, c, n);
}
