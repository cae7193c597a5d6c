#include "tensor/header.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/json.h"
#include "base/opt.h"
#include "tensor/nameindex.h"

struct st_header *st_header_new(void)
{
    struct st_header *h = xcalloc(1, sizeof *h);
    h->meta = json_object();
    return h;
}

void st_header_free(struct st_header *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n; i++)
        free(h->t[i].name);
    free(h->t);
    json_decref(h->meta);
    name_index_free(h->index);
    free(h);
}

static struct st_tensor *append(struct st_header *h)
{
    if (h->n == h->cap) {
        h->cap = h->cap ? 2 * h->cap : 64;
        h->t = xreallocarray(h->t, h->cap, sizeof *h->t);
    }
    struct st_tensor *t = &h->t[h->n++];
    memset(t, 0, sizeof *t);
    name_index_free(h->index);
    h->index = NULL;
    return t;
}

/* Bytes of a tensor from dtype and shape. 0, or -1: overflow, -2: not whole bytes. */
static int size_of(const struct st_tensor *t, uint64_t *nbytes)
{
    uint64_t n = 1, bits;
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(n, t->shape[i], &n))
            return -1;
    if (__builtin_mul_overflow(n, (uint64_t)st_dtype_bits(t->dtype), &bits))
        return -1;
    *nbytes = bits / 8;
    return bits % 8 ? -2 : 0;
}

uint64_t st_nelem(const struct st_tensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

void st_header_add(struct st_header *h, const char *name, enum st_dtype dtype, int ndim, const uint64_t *shape)
{
    struct st_tensor *t = append(h);
    t->name = xstrdup(name);
    t->dtype = dtype;
    t->ndim = ndim;
    for (int i = 0; i < ndim; i++)
        t->shape[i] = shape[i];
    t->begin = h->nbytes;
    if (size_of(t, &t->nbytes) != 0)
        die_msg(EXIT_BUG, "%s: a shape that cannot be stored", name);
    h->nbytes += t->nbytes;
}

/* --- parsing ------------------------------------------------------------------------------------------------------- */

static int get_count(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return -1;
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

static int parse_shape(struct st_tensor *t, const json_t *shape, const char *name, struct err *e)
{
    if (!json_is_array(shape))
        return err_set(e, EXIT_DATA, "%s: %s: shape: not an array", name, t->name);
    if (json_array_size(shape) > ST_MAX_DIMS)
        return err_set(e, EXIT_DATA, "%s: %s: %zu dimensions, at most %d are supported", name, t->name, json_array_size(shape),
                       ST_MAX_DIMS);
    t->ndim = (int)json_array_size(shape);
    for (int i = 0; i < t->ndim; i++)
        if (get_count(json_array_get(shape, (size_t)i), &t->shape[i]) != 0)
            return err_set(e, EXIT_DATA, "%s: %s: shape: not a list of non-negative integers", name, t->name);
    return 0;
}

static int check_size(const struct st_tensor *t, const char *name, struct err *e)
{
    uint64_t want;
    int r = size_of(t, &want);
    if (r == -1)
        return err_set(e, EXIT_DATA, "%s: %s: shape overflows 64 bits", name, t->name);
    if (r == -2)
        return err_set(e, EXIT_DATA, "%s: %s: %s elements do not fill whole bytes", name, t->name, st_dtype_name(t->dtype));
    if (want != t->nbytes)
        return err_set(e, EXIT_DATA, "%s: %s: data_offsets span %llu bytes, dtype and shape need %llu", name, t->name,
                       (unsigned long long)t->nbytes, (unsigned long long)want);
    return 0;
}

static int parse_tensor(struct st_header *h, const char *key, const json_t *v, const char *name, struct err *e)
{
    struct st_tensor *t = append(h);
    t->name = xstrdup(key);
    if (!json_is_object(v))
        return err_set(e, EXIT_DATA, "%s: %s: expected an object of dtype, shape and data_offsets", name, key);
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    int d = dtype ? st_dtype_from_name(dtype) : -1;
    if (d < 0)
        return err_set(e, EXIT_DATA, "%s: %s: dtype %s: unknown", name, key, dtype ? dtype : "missing");
    t->dtype = (enum st_dtype)d;
    if (parse_shape(t, json_object_get(v, "shape"), name, e) != 0)
        return -1;
    const json_t *off = json_object_get(v, "data_offsets");
    uint64_t end;
    if (json_array_size(off) != 2 || get_count(json_array_get(off, 0), &t->begin) != 0
        || get_count(json_array_get(off, 1), &end) != 0 || end < t->begin)
        return err_set(e, EXIT_DATA, "%s: %s: data_offsets: not [begin, end]", name, key);
    t->nbytes = end - t->begin;
    return check_size(t, name, e);
}

static int take_metadata(struct st_header *h, json_t *meta, const char *name, struct err *e)
{
    const char *key;
    json_t *v;
    if (!json_is_object(meta))
        return err_set(e, EXIT_DATA, "%s: __metadata__: not an object", name);
    json_object_foreach(meta, key, v)
        if (!json_is_string(v))
            return err_set(e, EXIT_DATA, "%s: __metadata__: %s: its value must be a string", name, key);
    json_decref(h->meta);
    h->meta = json_incref(meta);
    return 0;
}

/* By offset; empty tensors before the one that starts where they do; the order in the file decides the rest. */
static int by_offset(const void *pa, const void *pb)
{
    const struct st_tensor *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if ((a->nbytes == 0) != (b->nbytes == 0))
        return a->nbytes == 0 ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int check_layout(struct st_header *h, const char *name, struct err *e)
{
    if (h->n > 1)
        qsort(h->t, h->n, sizeof *h->t, by_offset);
    for (size_t i = 0; i < h->n; i++) {
        const struct st_tensor *t = &h->t[i];
        if (t->begin != h->nbytes)
            return err_set(e, EXIT_DATA, "%s: %s: begins at %llu, expected %llu: %s in the data", name, t->name,
                           (unsigned long long)t->begin, (unsigned long long)h->nbytes, t->begin > h->nbytes ? "a hole" : "an overlap");
        h->nbytes += t->nbytes;
    }
    return 0;
}

static int parse_entries(struct st_header *h, json_t *root, const char *name, struct err *e)
{
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v) {
        int bad = strcmp(key, "__metadata__") == 0 ? take_metadata(h, v, name, e) : parse_tensor(h, key, v, name, e);
        if (bad)
            return -1;
    }
    return check_layout(h, name, e);
}

struct st_header *st_header_parse(const char *json, size_t n, const char *name, struct err *e)
{
    json_error_t je;
    if (n == 0 || json[0] != '{') {
        err_set(e, EXIT_DATA, "%s: the header does not begin with '{': not a safetensors file", name);
        return NULL;
    }
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &je);
    if (!root) {
        err_set(e, EXIT_DATA, "%s: header: not valid JSON at byte %d: %s", name, je.position, je.text);
        return NULL;
    }
    struct st_header *h = st_header_new();
    h->json_bytes = n;
    sha256_of(json, n, h->sha256);
    int bad = parse_entries(h, root, name, e);
    json_decref(root);
    if (bad) {
        st_header_free(h);
        return NULL;
    }
    return h;
}

/* --- rendering ----------------------------------------------------------------------------------------------------- */

static void add_quoted(struct buf *b, const char *s)
{
    json_t *v = json_string(s);
    char *text = v ? json_text(v, false) : NULL;
    if (!text)
        die_msg(EXIT_BUG, "a tensor name that is not UTF-8");
    buf_str(b, text);
    free(text);
    json_decref(v);
}

static void add_entry(struct buf *b, const struct st_tensor *t)
{
    add_quoted(b, t->name);
    buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++)
        buf_printf(b, "%s%llu", i ? "," : "", (unsigned long long)t->shape[i]);
    buf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->begin, (unsigned long long)(t->begin + t->nbytes));
}

int st_header_render(const struct st_header *h, char **bytes, size_t *n, struct err *e)
{
    struct buf b = BUF_INIT;
    buf_add(&b, "\0\0\0\0\0\0\0\0{", 9);
    if (json_object_size(h->meta) > 0) {
        char *meta = json_text(h->meta, true);
        buf_printf(&b, "\"__metadata__\":%s%s", meta, h->n ? "," : "");
        free(meta);
    }
    for (size_t i = 0; i < h->n; i++) {
        if (i)
            buf_char(&b, ',');
        add_entry(&b, &h->t[i]);
    }
    buf_char(&b, '}');
    while (b.n % 8)
        buf_char(&b, ' ');
    uint64_t len = b.n - 8;
    if (len > ST_MAX_HEADER) {
        buf_free(&b);
        return err_set(e, EXIT_DATA, "the output header has %llu bytes, more than %u: no reader takes it", (unsigned long long)len,
                       ST_MAX_HEADER);
    }
    for (int i = 0; i < 8; i++)
        b.data[i] = (char)(unsigned char)(len >> (8 * i));
    *bytes = b.data;
    *n = b.n;
    return 0;
}

/* --- looking things up, metadata ----------------------------------------------------------------------------------- */

const struct st_tensor *st_find(const struct st_header *h, const char *name)
{
    /* The index is a cache: making it does not change the header. */
    struct st_header *cache = (struct st_header *)(uintptr_t)h;
    if (!h->index) {
        cache->index = name_index_new(h->n);
        for (size_t i = 0; i < h->n; i++)
            name_index_add(cache->index, h->t[i].name, i);
    }
    size_t i = name_index_find(h->index, name);
    return i == NAME_NONE ? NULL : &h->t[i];
}

const char *st_meta(const struct st_header *h, const char *key)
{
    return json_string_value(json_object_get(h->meta, key));
}

bool st_is_plan(const struct st_header *h)
{
    const char *plan = st_meta(h, "plan");
    return plan && strcmp(plan, "1") == 0;
}

void st_meta_set(struct st_header *h, const char *key, const char *value)
{
    if (!value)
        json_object_del(h->meta, key);
    else if (json_object_set_new(h->meta, key, json_string(value)) != 0)
        die_msg(EXIT_BUG, "metadata %s: not UTF-8", key);
}

void st_meta_set_json(struct st_header *h, const char *key, const json_t *value)
{
    char *text = json_text(value, false);
    st_meta_set(h, key, text);
    free(text);
}

void st_meta_copy(struct st_header *h, const struct st_header *from)
{
    json_decref(h->meta);
    h->meta = json_deep_copy(from->meta);
}

/* A metadata value that is JSON of the given type; new reference. */
static json_t *meta_json(const struct st_header *h, const char *key, const char *name, struct err *e)
{
    const char *text = st_meta(h, key);
    char where[300];
    snprintf(where, sizeof where, "%s: metadata %s", name, key);
    return json_parse(text, strlen(text), where, e);
}

json_t *st_meta_config(const struct st_header *h, const char *name, struct err *e)
{
    if (!st_meta(h, "config")) {
        err_set(e, EXIT_DATA, "%s: no metadata config: make the stream with st-extract from a directory that has config.json", name);
        return NULL;
    }
    json_t *v = meta_json(h, "config", name, e);
    if (v && !json_is_object(v)) {
        err_set(e, EXIT_DATA, "%s: metadata config: not an object", name);
        json_decref(v);
        return NULL;
    }
    return v;
}

json_t *st_meta_list(const struct st_header *h, const char *key, const char *name, struct err *e)
{
    json_t *v = st_meta(h, key) ? meta_json(h, key, name, e) : json_array();
    if (v && !json_is_array(v)) {
        err_set(e, EXIT_DATA, "%s: metadata %s: expected a JSON array", name, key);
        json_decref(v);
        return NULL;
    }
    return v;
}

json_t *st_stage_arg(const char *option, const char *value)
{
    char *text = xasprintf("--%s=%s", option, value);
    json_t *v = json_repaired(text, strlen(text));
    free(text);
    return v;
}

int st_provenance(struct st_header *h, const char *name, const char *tool, json_t *args, const struct st_header *parent, struct err *e)
{
    json_t *list = st_meta_list(h, "provenance", name, e);
    if (!list) {
        json_decref(args);
        return -1;
    }
    json_t *stage = json_pack("{s:s, s:s, s:o}", "tool", tool, "version", version_string(), "args", args);
    json_object_set_new(stage, "parent", parent ? json_string(parent->sha256) : json_null());
    json_array_append_new(list, stage);
    st_meta_set_json(h, "provenance", list);
    json_decref(list);
    return 0;
}

const char *st_side_file(const struct st_tensor *t)
{
    return strncmp(t->name, "file:", 5) == 0 ? t->name + 5 : NULL;
}
