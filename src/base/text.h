/* Questions about C strings. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H
#include <stdbool.h>
#include <string.h>

static inline bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && memcmp(s + n - k, end, k) == 0;
}
#endif
