#include "tensor/source.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "tensor/checkpoint.h"
#include "tensor/nameindex.h"

/* What loaders look for beside the weights (transformers, vLLM); anything else in a directory is not ours to carry. */
static const char *const side_files[] = {
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "generation_config.json", "preprocessor_config.json",
    "processor_config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
    "video_preprocessor_config.json"
};

static struct source *source_new(void)
{
    struct source *s = xcalloc(1, sizeof *s);
    s->seekable = true;
    s->header = st_header_new();
    return s;
}

static void add_reader(struct source *s, struct st_reader *r, const char *file)
{
    s->reader = xreallocarray(s->reader, s->n_readers + 1, sizeof *s->reader);
    s->file = xreallocarray(s->file, s->n_readers + 1, sizeof *s->file);
    s->file[s->n_readers] = file ? xstrdup(file) : NULL;
    s->reader[s->n_readers++] = r;
    s->seekable = s->seekable && st_seekable(r);
    const struct st_header *h = st_header_of(r);
    s->tensor = xreallocarray(s->tensor, s->n + h->n, sizeof *s->tensor);
    for (size_t i = 0; i < h->n; i++)
        s->tensor[s->n++] = (struct source_tensor){&h->t[i], s->n_readers - 1, i};
}

/* Digest of what was read: with several shards, of their headers' digests in a row. */
static void set_digest(struct source *s)
{
    if (s->n_readers == 1) {
        memcpy(s->header->sha256, st_header_of(s->reader[0])->sha256, SHA256_HEX);
        return;
    }
    struct sha256 *sum = sha256_new();
    for (size_t i = 0; i < s->n_readers; i++)
        sha256_add(sum, st_header_of(s->reader[i])->sha256, SHA256_HEX - 1);
    sha256_hex(sum, s->header->sha256);
}

static struct source *of_one_reader(struct st_reader *r, const char *file)
{
    if (!r)
        return NULL;
    struct source *s = source_new();
    add_reader(s, r, file);
    st_meta_copy(s->header, st_header_of(r));
    set_digest(s);
    return s;
}

struct source *source_open_file(const char *path, struct err *e)
{
    return of_one_reader(st_open(path, e), NULL);
}

struct source *source_open_file_of(const struct store *place, const char *file, struct err *e)
{
    struct input *in = store_open(place, file, e);
    return in ? of_one_reader(st_open_input(in, e), file) : NULL;
}

static int open_shard(struct source *s, const struct store *place, const char *file, bool indexed, struct err *e)
{
    struct err oe = {0, ""};
    struct input *in = store_open(place, file, &oe);
    if (!in && oe.code == EXIT_NOINPUT && indexed)
        return err_set(e, EXIT_DATA, "%s/%s: the index names it, it is missing: download it again", place->name, file);
    if (!in)
        return err_set(e, oe.code, "%s", oe.msg);
    struct st_reader *r = st_open_input(in, e);
    if (!r)
        return -1;
    add_reader(s, r, file);
    return 0;
}

static int check_names(const struct source *s, const struct store *place, const json_t *index, struct err *e)
{
    struct st_name_index *seen = name_index_new(s->n);
    int bad = 0;
    for (size_t i = 0; i < s->n && !bad; i++) {
        size_t other = name_index_add(seen, s->tensor[i].t->name, i);
        if (other != NAME_NONE)
            bad = err_set(e, EXIT_DATA, "%s: %s: stands in both %s and %s", place->name, s->tensor[i].t->name,
                          s->file[s->tensor[other].reader], s->file[s->tensor[i].reader]);
    }
    const char *name;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)index, name, file)
        if (!bad && name_index_find(seen, name) == NAME_NONE)
            bad = err_set(e, EXIT_DATA, "%s: the index names %s in %s, no file has it: download it again", place->name, name,
                          json_string_value(file));
    name_index_free(seen);
    return bad;
}

static int add_side_file(struct source *s, const struct store *place, const char *name, struct err *e)
{
    struct err oe = {0, ""};
    struct source_side side = {NULL, 0};
    struct input *in = store_open(place, name, &oe);
    if (!in)
        return oe.code == EXIT_NOINPUT ? 0 : err_set(e, oe.code, "%s", oe.msg);
    int bad = input_size(in, &side.nbytes, e);
    input_close(in);
    if (bad)
        return -1;
    side.name = xstrdup(name);
    s->side = xreallocarray(s->side, s->n_side + 1, sizeof *s->side);
    s->side[s->n_side++] = side;
    return 0;
}

static int add_config(struct source *s, const struct store *place, struct err *e)
{
    json_t *config;
    int bad = store_json(place, "config.json", &config, e);
    if (!bad && config && !json_is_object(config))
        bad = err_set(e, EXIT_DATA, "%s/config.json: not an object", place->name);
    else if (!bad && config)
        st_meta_set_json(s->header, "config", config);
    json_decref(config);
    return bad;
}

struct source *source_open_store(const struct store *place, struct err *e)
{
    struct ckpt_files f;
    if (ckpt_files(place, &f, e) != 0)
        return NULL;
    struct source *s = source_new();
    int bad = 0;
    for (size_t i = 0; i < f.n && !bad; i++)
        bad = open_shard(s, place, f.name[i], f.index != NULL, e);
    if (!bad)
        bad = check_names(s, place, f.index, e);
    ckpt_files_free(&f);
    for (size_t i = 0; i < s->n_readers; i++)           /* where shards differ the first one's word stands */
        (void)json_object_update_missing(s->header->meta, st_header_of(s->reader[i])->meta);
    for (size_t i = 0; i < sizeof side_files / sizeof side_files[0] && !bad; i++)
        bad = add_side_file(s, place, side_files[i], e);
    if (bad || add_config(s, place, e) != 0) {
        source_close(s);
        return NULL;
    }
    set_digest(s);
    return s;
}

void source_close(struct source *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_readers; i++) {
        st_close(s->reader[i]);
        free(s->file[i]);
    }
    for (size_t i = 0; i < s->n_side; i++)
        free(s->side[i].name);
    free(s->reader);
    free(s->file);
    free(s->tensor);
    free(s->side);
    st_header_free(s->header);
    free(s);
}
