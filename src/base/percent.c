#include "base/percent.h"
#include <string.h>
#include "base/text.h"

static bool unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

/* In runs: every request is signed, and that encodes its path and query. */
void percent_encode(struct buf *b, const char *p, size_t n, const char *kept)
{
    static const char digit[] = "0123456789ABCDEF";
    for (size_t i = 0, run; i < n; i += run + 1) {
        for (run = 0; i + run < n && (unreserved(p[i + run]) || (p[i + run] && strchr(kept, p[i + run]))); run++) continue;
        buf_add(b, p + i, run);
        if (i + run == n) return;
        const unsigned char c = (unsigned char)p[i + run];
        buf_add(b, (char[]){'%', digit[c >> 4], digit[c & 15]}, 3);
    }
}

void percent_decode(struct buf *b, const char *p, size_t n, bool plus)
{
    for (size_t i = 0; i < n; i++) {
        const int high = i + 2 < n && p[i] == '%' ? hex_digit(p[i + 1]) : -1, low = high >= 0 ? hex_digit(p[i + 2]) : -1;
        if (low >= 0) i += 2;
        buf_char(b, low >= 0 ? (char)(high * 16 + low) : plus && p[i] == '+' ? ' ' : p[i]);
    }
}
