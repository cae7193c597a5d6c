/* A place that holds files, read only: a local directory, or one behind HTTP (src/net).
 *
 * Owns: nothing but the shape of it.  Names are plain file names.
 */
#ifndef BASE_STORE_H
#define BASE_STORE_H
#include <stdbool.h>
#include <jansson.h>
#include "base/io.h"

struct store_ops {
    /* EXIT_NOINPUT = there is no such file. */
    struct input *(*open)(void *ctx, const char *file, struct err *e);
    /* All file names, sorted, each and the array freed by the caller.  NULL where a place cannot tell what it holds. */
    int (*list)(void *ctx, char ***names, size_t *n, struct err *e);
    void (*close)(void *ctx);
};

struct store {
    char *name;             /* for messages */
    const struct store_ops *ops;
    void *ctx;
};

struct store *store_new(const char *name, const struct store_ops *ops, void *ctx);
struct store *store_directory(const char *dir);
void store_close(struct store *s);      /* NULL is fine */

struct input *store_open(const struct store *s, const char *file, struct err *e) MUST_CHECK;
int store_list(const struct store *s, char ***names, size_t *n, struct err *e) MUST_CHECK;
bool store_can_list(const struct store *s);
/* A whole small file as JSON.  *v NULL and 0 when there is no such file. */
int store_json(const struct store *s, const char *file, json_t **v, struct err *e) MUST_CHECK;
#endif
