#include "base/store.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"

#define JSON_MAX ((size_t)256 << 20)

struct store *store_new(const char *name, const struct store_ops *ops, void *ctx)
{
    struct store *s = xcalloc(1, sizeof *s);
    s->name = xstrdup(name);
    s->ops = ops;
    s->ctx = ctx;
    return s;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    s->ops->close(s->ctx);
    free(s->name);
    free(s);
}

struct input *store_open(const struct store *s, const char *file, struct err *e)
{
    return s->ops->open(s->ctx, file, e);
}

bool store_can_list(const struct store *s)
{
    return s->ops->list != NULL;
}

int store_list(const struct store *s, char ***names, size_t *n, struct err *e)
{
    return s->ops->list(s->ctx, names, n, e);
}

int store_json(const struct store *s, const char *file, json_t **v, struct err *e)
{
    struct err oe = {0, ""};
    char *text;
    size_t n;
    *v = NULL;
    struct input *in = store_open(s, file, &oe);
    if (!in)
        return oe.code == EXIT_NOINPUT ? 0 : err_set(e, oe.code, "%s", oe.msg);
    int bad = input_slurp(in, JSON_MAX, &text, &n, e);
    if (!bad) {
        *v = json_parse(text, n, input_name(in), e);
        free(text);
    }
    input_close(in);
    return bad || !*v ? -1 : 0;
}

/* --- a local directory --------------------------------------------------------------------------------------------- */

static struct input *open_local(void *ctx, const char *file, struct err *e)
{
    char *path = xasprintf("%s/%s", (const char *)ctx, file);
    struct input *in = input_open(path, e);
    free(path);
    return in;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_local(void *ctx, char ***names, size_t *n, struct err *e)
{
    DIR *d = opendir(ctx);
    if (!d)
        return err_errno(e, EXIT_NOINPUT, "%s: cannot open", (const char *)ctx);
    *names = NULL;
    *n = 0;
    for (struct dirent *f; (f = readdir(d)); ) {
        if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0)
            continue;
        *names = xreallocarray(*names, *n + 1, sizeof **names);
        (*names)[(*n)++] = xstrdup(f->d_name);
    }
    closedir(d);
    if (*n > 1)
        qsort(*names, *n, sizeof **names, by_name);
    return 0;
}

static const struct store_ops local = {open_local, list_local, free};

struct store *store_directory(const char *dir)
{
    return store_new(dir, &local, xstrdup(dir));
}
