#include "tensor/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json.h"
#include "tensor/checkpoint.h"
#include "tensor/nameindex.h"

/* What loaders look for beside the weights (transformers, vLLM); anything else in a directory is not ours to carry. */
static const char *const side_files[] = {
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "generation_config.json", "preprocessor_config.json",
    "processor_config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
    "video_preprocessor_config.json"
};

static int add_reader(struct source *s, const char *path, struct err *e)
{
    struct st_reader *r = st_open(path, e);
    if (!r)
        return -1;
    s->reader = xreallocarray(s->reader, s->n_readers + 1, sizeof *s->reader);
    s->reader[s->n_readers++] = r;
    s->seekable = s->seekable && st_seekable(r);
    const struct st_header *h = st_header_of(r);
    s->tensor = xreallocarray(s->tensor, s->n + h->n, sizeof *s->tensor);
    for (size_t i = 0; i < h->n; i++)
        s->tensor[s->n++] = (struct source_tensor){&h->t[i], s->n_readers - 1, i};
    return 0;
}

static int add_config(struct source *s, const char *dir, struct err *e)
{
    char *path = xasprintf("%s/config.json", dir);
    int bad = 0;
    if (access(path, F_OK) == 0) {
        json_t *config = json_parse_file(path, e);
        if (config && !json_is_object(config))
            bad = err_set(e, EXIT_DATA, "%s: not an object", path);
        else if (config)
            st_meta_set_json(s->header, "config", config);
        else
            bad = -1;
        json_decref(config);
    }
    free(path);
    return bad;
}

static void add_side_files(struct source *s, const char *dir)
{
    s->side = xcalloc(sizeof side_files / sizeof side_files[0], sizeof *s->side);
    for (size_t i = 0; i < sizeof side_files / sizeof side_files[0]; i++) {
        char *path = xasprintf("%s/%s", dir, side_files[i]);
        if (access(path, F_OK) == 0)
            s->side[s->n_side++] = path;
        else
            free(path);
    }
}

static int check_names(const struct source *s, const char *path, const json_t *index, struct err *e)
{
    struct st_name_index *seen = name_index_new(s->n);
    int bad = 0;
    for (size_t i = 0; i < s->n && !bad; i++) {
        size_t other = name_index_add(seen, s->tensor[i].t->name, i);
        if (other != NAME_NONE)
            bad = err_set(e, EXIT_DATA, "%s: %s: stands in both %s and %s", path, s->tensor[i].t->name,
                          st_reader_name(s->reader[s->tensor[other].reader]), st_reader_name(s->reader[s->tensor[i].reader]));
    }
    const char *name;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)index, name, file)
        if (!bad && name_index_find(seen, name) == NAME_NONE)
            bad = err_set(e, EXIT_DATA, "%s: the index names %s in %s, no file has it: download it again", path, name,
                          json_string_value(file));
    name_index_free(seen);
    return bad;
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

static int open_directory(struct source *s, const char *dir, struct err *e)
{
    struct ckpt_files f;
    if (ckpt_files(dir, &f, e) != 0)
        return -1;
    int bad = 0;
    for (size_t i = 0; i < f.n && !bad; i++) {
        char *path = xasprintf("%s/%s", dir, f.name[i]);
        if (f.index && access(path, F_OK) != 0)
            bad = err_set(e, EXIT_DATA, "%s: the index names it, it is missing: download it again", path);
        else
            bad = add_reader(s, path, e);
        free(path);
    }
    if (!bad)
        bad = check_names(s, dir, f.index, e);
    ckpt_files_free(&f);
    if (bad)
        return -1;
    add_side_files(s, dir);
    return add_config(s, dir, e);
}

struct source *source_open(const char *path, struct err *e)
{
    struct source *s = xcalloc(1, sizeof *s);
    struct stat st;
    s->seekable = true;
    s->header = st_header_new();
    int bad;
    if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        bad = open_directory(s, path, e);
    else {
        bad = add_reader(s, path, e);
        if (!bad)
            st_meta_copy(s->header, st_header_of(s->reader[0]));
    }
    if (bad) {
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
    for (size_t i = 0; i < s->n_readers; i++)
        st_close(s->reader[i]);
    for (size_t i = 0; i < s->n_side; i++)
        free(s->side[i]);
    free(s->reader);
    free(s->tensor);
    free(s->side);
    st_header_free(s->header);
    free(s);
}
