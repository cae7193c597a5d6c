#include "tensor/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "base/text.h"
#include "tensor/nameindex.h"

#define INDEX "model.safetensors.index.json"
#define SINGLE "model.safetensors"

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_file(struct ckpt_files *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->name[i], name) == 0)
            return;
    f->name = xreallocarray(f->name, f->n + 1, sizeof *f->name);
    f->name[f->n++] = xstrdup(name);
}

static int files_of_index(const struct store *place, json_t *root, struct ckpt_files *f, struct err *e)
{
    json_t *map = json_object_get(root, "weight_map"), *v;
    const char *tensor;
    if (!json_is_object(map) || json_object_size(map) == 0)
        return err_set(e, EXIT_DATA, "%s/%s: weight_map: missing or empty", place->name, INDEX);
    f->index = json_incref(map);
    json_object_foreach(map, tensor, v) {
        const char *file = json_string_value(v);
        if (!file || !*file || strchr(file, '/'))
            return err_set(e, EXIT_DATA, "%s/%s: weight_map: %s: not a file name", place->name, INDEX, tensor);
        add_file(f, file);
    }
    return 0;
}

static bool is_weights(const char *name)
{
    return name[0] != '.' && ends_with(name, ".safetensors");
}

/* Without an index: the one file, or all there are. */
static int files_of_listing(const struct store *place, struct ckpt_files *f, struct err *e)
{
    char **names;
    size_t n;
    bool single = false;
    if (store_list(place, &names, &n, e) != 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        single = single || strcmp(names[i], SINGLE) == 0;
    for (size_t i = 0; i < n; i++) {
        if (single ? strcmp(names[i], SINGLE) == 0 : is_weights(names[i]))
            add_file(f, names[i]);
        free(names[i]);
    }
    free(names);
    return f->n ? 0 : err_set(e, EXIT_NOINPUT, "%s: no safetensors file in it", place->name);
}

int ckpt_files(const struct store *place, struct ckpt_files *f, struct err *e)
{
    *f = (struct ckpt_files){NULL, 0, NULL};
    json_t *root;
    int bad = store_json(place, INDEX, &root, e);
    if (!bad && root)
        bad = files_of_index(place, root, f, e);
    else if (!bad && store_can_list(place))
        bad = files_of_listing(place, f, e);
    else if (!bad)
        add_file(f, SINGLE);
    json_decref(root);
    if (bad)
        ckpt_files_free(f);
    else if (f->n > 1)
        qsort(f->name, f->n, sizeof *f->name, by_name);
    return bad;
}

void ckpt_files_free(struct ckpt_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->name[i]);
    free(f->name);
    json_decref(f->index);
    *f = (struct ckpt_files){NULL, 0, NULL};
}

/* --- the checkpoint ------------------------------------------------------------------------------------------------ */

/* One fault: reported, or made the error. */
static int fault(const struct ckpt_faults *faults, struct err *e, const char *path, const char *shard, const char *tensor,
                 const char *what)
{
    if (faults) {
        faults->fn(faults->arg, &(struct ckpt_fault){shard, tensor, what, false});
        return 0;
    }
    return err_set(e, EXIT_DATA, "%s%s%s: %s%s%s", path, shard ? "/" : "", shard ? shard : "", tensor ? tensor : "", tensor ? ": " : "",
                   what);
}

/* The header of a shard, which must be plain: its data are read at any place. */
static struct st_reader *read_shard(const struct store *place, const char *file, struct err *e)
{
    struct input *in = place ? store_open(place, file, e) : input_open(file, e);
    struct st_reader *r = in ? st_open_input(in, e) : NULL;
    if (!r || st_seekable(r))
        return r;
    err_set(e, EXIT_DATA, "%s: compressed or no plain file: decompress it first", st_reader_name(r));
    st_close(r);
    return NULL;
}

/* What is wrong with a shard, without its name, which is given beside it. */
static const char *finding(const struct ckpt *c, const char *file, const struct err *e)
{
    size_t n = strlen(c->path), k = strlen(file);
    const char *rest = strncmp(e->msg, c->path, n) == 0 ? e->msg + n : "";
    if (rest[0] == ':')                             /* one file, or a remote place's word about one of its files */
        rest += 2;
    else if (rest[0] == '/')
        rest++;
    if (strncmp(rest, file, k) == 0 && strncmp(rest + k, ": ", 2) == 0)
        rest += k + 2;
    return *rest ? rest : e->msg;
}

static int open_shard(struct ckpt *c, struct ckpt_shard *s, const struct store *place, const struct ckpt_faults *faults, struct err *e)
{
    struct err se = {0, ""};
    s->reader = read_shard(place, s->name, &se);
    if (s->reader)
        return 0;
    if (!faults || err_of_machine(&se))
        return err_set(e, se.code, "%s", se.msg);
    faults->fn(faults->arg, &(struct ckpt_fault){s->name, NULL, finding(c, s->name, &se), se.code == EXIT_NOINPUT});
    return 0;
}

static int add_entries(struct ckpt *c, size_t shard, const struct ckpt_faults *faults, struct err *e)
{
    if (!c->shard[shard].reader)
        return 0;
    const struct st_header *h = st_header_of(c->shard[shard].reader);
    c->entry = xreallocarray(c->entry, c->n + h->n, sizeof *c->entry);
    for (size_t i = 0; i < h->n; i++) {
        size_t first = name_index_add(c->index, h->t[i].name, c->n);
        if (first != NAME_NONE) {
            char *what = xasprintf("stands in %s too", c->shard[c->entry[first].shard].name);
            int bad = fault(faults, e, c->path, c->shard[shard].name, h->t[i].name, what);
            free(what);
            if (bad)
                return -1;
        }
        c->entry[c->n++] = (struct ckpt_entry){&h->t[i], shard};
    }
    return 0;
}

static int check_index(const struct ckpt *c, const json_t *map, const struct ckpt_faults *faults, struct err *e)
{
    const char *tensor;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, v) {
        const struct ckpt_entry *t = ckpt_find(c, tensor);
        const char *file = json_string_value(v);
        if (!t && fault(faults, e, c->path, file, tensor, "the index names it, the file does not have it") != 0)
            return -1;
        if (t && strcmp(c->shard[t->shard].name, file) != 0
            && fault(faults, e, c->path, file, tensor, "the index names this file, the tensor stands in another") != 0)
            return -1;
    }
    return 0;
}

static int open_shards(struct ckpt *c, const struct store *place, const struct ckpt_files *f, const struct ckpt_faults *faults, struct err *e)
{
    c->shard = xcalloc(f->n, sizeof *c->shard);
    c->n_shards = f->n;
    for (size_t i = 0; i < f->n; i++)
        c->shard[i].name = xstrdup(f->name[i]);
    for (size_t i = 0; i < f->n; i++)
        if (open_shard(c, &c->shard[i], place, faults, e) != 0 || add_entries(c, i, faults, e) != 0)
            return -1;
    return f->index ? check_index(c, f->index, faults, e) : 0;
}

/* place NULL: the one file is a path. */
static struct ckpt *open_files(const char *path, const struct store *place, const struct ckpt_files *f, const struct ckpt_faults *faults,
                               struct err *e)
{
    struct ckpt *c = xcalloc(1, sizeof *c);
    c->path = xstrdup(path);
    c->has_index = f->index != NULL;
    c->index = name_index_new(0);
    if (open_shards(c, place, f, faults, e) == 0)
        return c;
    ckpt_close(c);
    return NULL;
}

struct ckpt *ckpt_open_store(const struct store *place, const char *file, const struct ckpt_faults *faults, struct err *e)
{
    struct ckpt_files f = {NULL, 0, NULL};
    if (file)
        add_file(&f, file);
    else if (ckpt_files(place, &f, e) != 0)
        return NULL;
    struct ckpt *c = open_files(place->name, place, &f, faults, e);
    ckpt_files_free(&f);
    return c;
}

struct ckpt *ckpt_open(const char *path, const struct ckpt_faults *faults, struct err *e)
{
    struct stat st;
    struct ckpt *c;
    if (stat(path, &st) != 0) {
        err_errno(e, EXIT_NOINPUT, "%s: cannot open", path);
        return NULL;
    }
    if (S_ISDIR(st.st_mode)) {
        struct store *place = store_directory(path);
        c = ckpt_open_store(place, NULL, faults, e);
        store_close(place);
    } else {
        struct ckpt_files f = {NULL, 0, NULL};
        add_file(&f, path);
        c = open_files(path, NULL, &f, faults, e);
        ckpt_files_free(&f);
    }
    return c;
}

const struct ckpt_entry *ckpt_find(const struct ckpt *c, const char *tensor)
{
    size_t i = name_index_find(c->index, tensor);
    return i == NAME_NONE ? NULL : &c->entry[i];
}

int ckpt_read(const struct ckpt *c, const struct ckpt_entry *t, uint64_t offset, void *buf, size_t n, struct err *e)
{
    return st_read_at(c->shard[t->shard].reader, t->t, offset, buf, n, e);
}

void ckpt_close(struct ckpt *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_shards; i++) {
        if (c->shard[i].reader)
            st_close(c->shard[i].reader);
        free(c->shard[i].name);
    }
    free(c->shard);
    free(c->entry);
    name_index_free(c->index);
    free(c->path);
    free(c);
}
