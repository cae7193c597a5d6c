/* st-break: a valid safetensors file made wrong in one precise way.
 *
 *     st-break KIND < VALID > BROKEN        at least two tensors; small files, held in memory
 *     st-break --list                       every KIND with what a reader must say to it: 65 (bad data) or 0 (it is still valid)
 *     st-break --cuts < VALID               byte counts at which a stream may be cut: structural points, rising, all short of the whole
 *
 * Works on the header's JSON, and where JSON libraries would not write what is wanted (a key twice), on its text.
 * Source of the rules: the format's description in huggingface/safetensors.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct file {
    json_t *header;
    char *text;             /* the header as it will be written */
    size_t ntext;
    uint64_t claim;         /* the header length as it will be written */
    unsigned char *data;
    size_t ndata;
};

static _Noreturn void stop(const char *why)
{
    fprintf(stderr, "st-break: %s\n", why);
    exit(1);
}

static void *need(void *p)
{
    if (!p)
        stop("out of memory");
    return p;
}

/* --- the header's parts ------------------------------------------------------------------------------------------- */

static uint64_t offset(json_t *tensor, size_t which)
{
    return (uint64_t)json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"), which));
}

static void set_offsets(json_t *tensor, uint64_t begin, uint64_t end)
{
    json_object_set_new(tensor, "data_offsets", json_pack("[I,I]", (json_int_t)begin, (json_int_t)end));
}

/* The i-th tensor with data, in offset order: the one that begins lowest at or after `from`. */
static json_t *tensor_from(json_t *header, uint64_t from, const char **name)
{
    json_t *best = NULL, *t;
    const char *key;
    json_object_foreach(header, key, t) {
        if (!strcmp(key, "__metadata__") || offset(t, 0) < from || offset(t, 0) == offset(t, 1))
            continue;
        if (!best || offset(t, 0) < offset(best, 0)) {
            best = t;
            if (name)
                *name = key;
        }
    }
    return best;
}

static json_t *first(struct file *f) { return tensor_from(f->header, 0, NULL); }
static json_t *second(struct file *f) { return tensor_from(f->header, offset(first(f), 1), NULL); }

/* All tensors that begin at or after `from` move by `by`. */
static void shift(struct file *f, uint64_t from, int64_t by)
{
    const char *key;
    json_t *t;
    json_object_foreach(f->header, key, t)
        if (strcmp(key, "__metadata__") && offset(t, 0) >= from)
            set_offsets(t, offset(t, 0) + (uint64_t)by, offset(t, 1) + (uint64_t)by);
}

static void insert_data(struct file *f, size_t at, size_t n)
{
    f->data = need(realloc(f->data, f->ndata + n));
    memmove(f->data + at + n, f->data + at, f->ndata - at);
    memset(f->data + at, 0, n);
    f->ndata += n;
}

static void append(struct file *f, const char *name, const char *dtype, json_t *shape, size_t n)
{
    json_t *t = json_pack("{s:s,s:o}", "dtype", dtype, "shape", shape);
    set_offsets(t, f->ndata, f->ndata + n);
    json_object_set_new(f->header, name, t);
    insert_data(f, f->ndata, n);
}

static json_t *metadata(struct file *f)
{
    json_t *m = json_object_get(f->header, "__metadata__");
    if (!m) {
        m = json_object();
        json_object_set_new(f->header, "__metadata__", m);
    }
    return m;
}

/* Padded with spaces as writers do, so that what stays valid stays aligned too. */
static void render(struct file *f)
{
    char *text = need(json_dumps(f->header, JSON_COMPACT));
    f->ntext = f->claim = (strlen(text) + 7) / 8 * 8;
    f->text = need(malloc(f->ntext + 1));
    sprintf(f->text, "%-*s", (int)f->ntext, text);
    free(text);
}

/* --- text-level changes, after render() --------------------------------------------------------------------------- */

static void insert_text(struct file *f, size_t at, const char *s, size_t n)
{
    f->text = need(realloc(f->text, f->ntext + n + 1));
    memmove(f->text + at + n, f->text + at, f->ntext - at + 1);
    memcpy(f->text + at, s, n);
    f->ntext += n;
    f->claim = f->ntext;
}

static void whole_text(struct file *f, const char *s)
{
    free(f->text);
    f->text = need(strdup(s));
    f->ntext = f->claim = strlen(s);
}

/* The first tensor's entry once more, under the same name. */
static void double_entry(struct file *f)
{
    const char *name = NULL;
    json_t *t = tensor_from(f->header, 0, &name), *one = json_object();
    json_object_set(one, name, t);
    char *entry = need(json_dumps(one, JSON_COMPACT));
    entry[strlen(entry) - 1] = ',';                 /* {"n":{…}} -> "n":{…}, */
    insert_text(f, 1, entry + 1, strlen(entry) - 1);
    free(entry);
    json_decref(one);
}

/* --- the kinds ---------------------------------------------------------------------------------------------------- */

/* Before rendering, on the JSON. */
static void hole(struct file *f)
{
    uint64_t at = offset(second(f), 0);
    shift(f, at, 8);
    insert_data(f, at, 8);
}
static void begins_late(struct file *f) { shift(f, 0, 8); insert_data(f, 0, 8); }
static void overlap(struct file *f)
{
    uint64_t at = offset(second(f), 0);
    shift(f, at, -2);
    f->ndata -= 2;
}
static void overflow_shape(struct file *f)          /* 2^32 x 2^32 x 4 elements are 0 in 64 bits */
{
    json_object_set_new(first(f), "shape", json_pack("[I,I,i]", (json_int_t)1 << 32, (json_int_t)1 << 32, 4));
}
static void shape_twice_as_large(struct file *f)
{
    json_array_append_new(json_object_get(first(f), "shape"), json_integer(2));
}
static void negative_shape(struct file *f) { json_object_set_new(first(f), "shape", json_pack("[i]", -1)); }
static void real_shape(struct file *f) { json_object_set_new(first(f), "shape", json_pack("[f]", 1.5)); }
static void string_shape(struct file *f) { json_object_set_new(first(f), "shape", json_string("[1]")); }
static void no_shape(struct file *f) { json_object_del(first(f), "shape"); }
static void unknown_dtype(struct file *f) { json_object_set_new(first(f), "dtype", json_string("BF17")); }
static void number_dtype(struct file *f) { json_object_set_new(first(f), "dtype", json_integer(16)); }
static void no_dtype(struct file *f) { json_object_del(first(f), "dtype"); }
static void no_offsets(struct file *f) { json_object_del(first(f), "data_offsets"); }
static void one_offset(struct file *f) { json_array_remove(json_object_get(first(f), "data_offsets"), 1); }
static void reversed_offsets(struct file *f) { set_offsets(first(f), offset(first(f), 1), offset(first(f), 0)); }
static void negative_offset(struct file *f) { json_array_set_new(json_object_get(first(f), "data_offsets"), 0, json_integer(-2)); }
static void entry_is_a_number(struct file *f) { json_object_set_new(f->header, "a tensor", json_integer(5)); }
static void metadata_number(struct file *f) { json_object_set_new(metadata(f), "count", json_integer(1)); }
static void metadata_is_text(struct file *f) { json_object_set_new(f->header, "__metadata__", json_string("pt")); }
static void scalar(struct file *f) { append(f, "a.scalar", "F32", json_array(), 4); }
static void empty_tensor(struct file *f) { append(f, "an.empty.tensor", "BF16", json_pack("[i,i]", 0, 4), 0); }
static void escaped_name(struct file *f) { append(f, "a \"name\" \\ with\ttab, / and \xc3\xa9\xe6\x97\xa5", "U8", json_pack("[i]", 8), 8); }
static void unknown_metadata(struct file *f) { json_object_set_new(metadata(f), "somebody's key", json_string("value \"quoted\"\n")); }
static void reordered(struct file *f)               /* the first tensor's entry last in the JSON text */
{
    const char *name = NULL;
    json_t *t = json_incref(tensor_from(f->header, 0, &name));
    char *key = need(strdup(name));
    json_object_del(f->header, key);
    json_object_set_new(f->header, key, t);
    free(key);
}

/* After rendering, on the text. */
static void twice_metadata(struct file *f) { insert_text(f, 1, "\"__metadata__\":{},\"__metadata__\":{},", 36); }
static void twice_in_metadata(struct file *f)
{
    json_object_del(f->header, "__metadata__");
    free(f->text);
    render(f);
    insert_text(f, 1, "\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"},", 34);
}
static void leading_space(struct file *f) { insert_text(f, 0, " ", 1); }
static void trailing_text(struct file *f) { insert_text(f, f->ntext, "{}", 2); }
static void nul_padding(struct file *f) { insert_text(f, f->ntext, "\0\0\0\0\0\0\0\0", 8); }
static void space_padding(struct file *f) { insert_text(f, f->ntext, "                ", 16); }
static void not_json(struct file *f) { *strrchr(f->text, '}') = ','; }
static void an_array(struct file *f) { whole_text(f, "[]"); }
static void not_utf8(struct file *f)
{
    static const char entry[] = "\"\xff\xfe\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},";
    insert_text(f, 1, entry, sizeof entry - 1);
}
static void lone_surrogate(struct file *f)
{
    static const char entry[] = "\"\\ud800\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},";
    insert_text(f, 1, entry, sizeof entry - 1);
}
static void huge_number(struct file *f)
{
    static const char entry[] = "\"huge\":{\"dtype\":\"U8\",\"shape\":[18446744073709551617],\"data_offsets\":[0,1]},";
    insert_text(f, 1, entry, sizeof entry - 1);
}
static void exponent_number(struct file *f)
{
    static const char entry[] = "\"exponent\":{\"dtype\":\"U8\",\"shape\":[0e0],\"data_offsets\":[0,0]},";
    insert_text(f, 1, entry, sizeof entry - 1);
}
static void deep_nesting(struct file *f)
{
    enum { DEPTH = 200000 };
    char *s = need(malloc(DEPTH + 32));
    int n = sprintf(s, "\"deep\":");
    memset(s + n, '[', DEPTH);
    insert_text(f, 1, s, (size_t)n + DEPTH);
    free(s);
}
static void claims_100_mb(struct file *f) { f->claim = 100000000; }             /* allowed, but the file ends before */
static void claims_over_100_mb(struct file *f) { f->claim = 100000001; }
static void claims_2_to_63(struct file *f) { f->claim = (uint64_t)1 << 63; }
static void claims_all_ones(struct file *f) { f->claim = UINT64_MAX; }
static void claims_nothing(struct file *f) { f->claim = 0; }
static void claims_one_less(struct file *f) { f->claim--; }

static const struct kind {
    const char *name;
    bool valid;
    void (*json)(struct file *), (*text)(struct file *);
} kinds[] = {
    { "duplicate-key", false, NULL, double_entry }, { "duplicate-metadata", false, NULL, twice_metadata },
    { "duplicate-in-metadata", false, NULL, twice_in_metadata }, { "hole", false, hole, NULL }, { "begins-late", false, begins_late, NULL },
    { "overlap", false, overlap, NULL }, { "overflow-shape", false, overflow_shape, NULL },
    { "shape-twice-as-large", false, shape_twice_as_large, NULL }, { "negative-shape", false, negative_shape, NULL },
    { "real-shape", false, real_shape, NULL }, { "string-shape", false, string_shape, NULL }, { "no-shape", false, no_shape, NULL },
    { "unknown-dtype", false, unknown_dtype, NULL }, { "number-dtype", false, number_dtype, NULL }, { "no-dtype", false, no_dtype, NULL },
    { "no-offsets", false, no_offsets, NULL }, { "one-offset", false, one_offset, NULL },
    { "reversed-offsets", false, reversed_offsets, NULL }, { "negative-offset", false, negative_offset, NULL },
    { "entry-is-a-number", false, entry_is_a_number, NULL }, { "metadata-number", false, metadata_number, NULL },
    { "metadata-is-text", false, metadata_is_text, NULL }, { "leading-space", false, NULL, leading_space },
    { "trailing-text", false, NULL, trailing_text }, { "nul-padding", false, NULL, nul_padding }, { "not-json", false, NULL, not_json },
    { "an-array", false, NULL, an_array }, { "not-utf8", false, NULL, not_utf8 }, { "lone-surrogate", false, NULL, lone_surrogate },
    { "huge-number", false, NULL, huge_number }, { "exponent-number", false, NULL, exponent_number },
    { "deep-nesting", false, NULL, deep_nesting }, { "claims-100-mb", false, NULL, claims_100_mb },
    { "claims-over-100-mb", false, NULL, claims_over_100_mb }, { "claims-2-to-63", false, NULL, claims_2_to_63 },
    { "claims-all-ones", false, NULL, claims_all_ones }, { "claims-nothing", false, NULL, claims_nothing },
    { "claims-one-less", false, NULL, claims_one_less },
    { "scalar", true, scalar, NULL }, { "empty-tensor", true, empty_tensor, NULL }, { "escaped-name", true, escaped_name, NULL },
    { "unknown-metadata", true, unknown_metadata, NULL }, { "reordered", true, reordered, NULL },
    { "space-padding", true, NULL, space_padding },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* --- in and out --------------------------------------------------------------------------------------------------- */

static struct file load(FILE *in)
{
    size_t n = 0, cap = 1 << 20, got;
    unsigned char *all = need(malloc(cap));
    while ((got = fread(all + n, 1, cap - n, in)) > 0) {
        n += got;
        if (n == cap)
            all = need(realloc(all, cap *= 2));
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | all[i];
    struct file f = { .ndata = n - 8 - length, .claim = length };
    json_error_t je;
    f.header = json_loadb((char *)all + 8, length, JSON_REJECT_DUPLICATES, &je);
    if (!f.header)
        stop("the input is no valid safetensors file");
    f.data = need(malloc(f.ndata + 1));
    memcpy(f.data, all + 8 + length, f.ndata);
    free(all);
    return f;
}

static void save(const struct file *f)
{
    for (int i = 0; i < 8; i++)
        putchar((int)(f->claim >> 8 * i & 255));
    if (fwrite(f->text, 1, f->ntext, stdout) != f->ntext || fwrite(f->data, 1, f->ndata, stdout) != f->ndata || fflush(stdout))
        stop("cannot write");
}

static void print_cuts(struct file *f)
{
    size_t data = 8 + f->claim, total = data + f->ndata;
    uint64_t one = offset(first(f), 1);
    printf("0\n4\n8\n9\n%zu\n%zu\n%zu\n%zu\n%zu\n", 8 + f->claim / 2, data - 1, data, data + 1, data + one / 2);
    printf("%zu\n%zu\n%zu\n", data + one, data + (one + f->ndata) / 2, total - 1);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (int i = 0; i < KINDS; i++)
            printf("%s %d\n", kinds[i].name, kinds[i].valid ? 0 : 65);
        return 0;
    }
    if (argc != 2)
        stop("usage: st-break KIND|--list|--cuts");
    struct file f = load(stdin);
    if (!strcmp(argv[1], "--cuts")) {
        print_cuts(&f);
        return 0;
    }
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(argv[1], kinds[i].name))
            continue;
        if (kinds[i].json)
            kinds[i].json(&f);
        render(&f);
        if (kinds[i].text)
            kinds[i].text(&f);
        save(&f);
        return 0;
    }
    stop("no such kind");
}
