/* A hash from tensor names to numbers.  Names are not copied: they must outlive the index. */
#ifndef TENSOR_NAMEINDEX_H
#define TENSOR_NAMEINDEX_H
#include <stddef.h>

#define NAME_NONE ((size_t)-1)
struct st_name_index;
struct st_name_index *name_index_new(size_t expected);
/* A name that is there already keeps its first number; returns that number, else NAME_NONE. */
size_t name_index_add(struct st_name_index *x, const char *name, size_t number);
size_t name_index_find(const struct st_name_index *x, const char *name);
void name_index_free(struct st_name_index *x);      /* NULL is fine */
#endif
