#include "tensor/nameindex.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"

struct st_name_index {
    struct { const char *name; size_t number; } *slot;
    size_t mask, used;
};

/* FNV-1a, 64 bits. */
static uint64_t hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h ^ h >> 29;
}

struct st_name_index *name_index_new(size_t expected)
{
    struct st_name_index *x = xcalloc(1, sizeof *x);
    size_t n = 16;
    while (n < 2 * expected)
        n *= 2;
    x->slot = xcalloc(n, sizeof *x->slot);
    x->mask = n - 1;
    return x;
}

/* The slot that holds the name, or the empty one where it belongs. */
static size_t seat(const struct st_name_index *x, const char *name)
{
    size_t i = (size_t)hash(name) & x->mask;
    while (x->slot[i].name && strcmp(x->slot[i].name, name) != 0)
        i = (i + 1) & x->mask;
    return i;
}

static void grow(struct st_name_index *x)
{
    struct st_name_index bigger = {NULL, 2 * x->mask + 1, x->used};
    bigger.slot = xcalloc(bigger.mask + 1, sizeof *bigger.slot);
    for (size_t i = 0; i <= x->mask; i++)
        if (x->slot[i].name)
            bigger.slot[seat(&bigger, x->slot[i].name)] = x->slot[i];
    free(x->slot);
    *x = bigger;
}

size_t name_index_add(struct st_name_index *x, const char *name, size_t number)
{
    if (2 * x->used > x->mask)
        grow(x);
    size_t i = seat(x, name);
    if (x->slot[i].name)
        return x->slot[i].number;
    x->slot[i].name = name;
    x->slot[i].number = number;
    x->used++;
    return NAME_NONE;
}

size_t name_index_find(const struct st_name_index *x, const char *name)
{
    size_t i = seat(x, name);
    return x->slot[i].name ? x->slot[i].number : NAME_NONE;
}

void name_index_free(struct st_name_index *x)
{
    if (!x)
        return;
    free(x->slot);
    free(x);
}
