/* tokenizer.json into tables.  Format: Hugging Face tokenizers' serialisation, version 1.0; of it, what Gemma's files use. */
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "base/json.h"
#include "base/jsonscan.h"
#include "base/utf8.h"
#include "engine/tokenizer.h"
#include "engine/vocab.h"

#define FILE_MAX ((size_t)256 << 20)

/* What the file says before it can be put together. */
struct reading {
    struct jscan s;
    struct tokenizer *t;
    const char *name;
    bool vocab_read, merges_read, merges_wait;
    struct jscan merges_at;             /* merges that came before the vocabulary */
    struct merge *merge;
    size_t n_merge, cap_merge;
    char *unk;
    struct added_line { char *text; size_t n; long id; bool special, normalized; } *added;
    size_t n_added, cap_added;
    json_t *normalizer, *pre_tokenizer, *post_processor, *decoder;
    struct err *e;
};

static bool key_is(const char *key, size_t n, const char *want)
{
    return strlen(want) == n && memcmp(key, want, n) == 0;
}

static void *grown(void *list, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return list;
    *cap = *cap ? *cap * 2 : 64;
    return xreallocarray(list, *cap, size);
}

/* --- model ---------------------------------------------------------------------------------------------------------------- */

static int read_vocab(struct reading *r)
{
    const char *key;
    size_t n;
    long id;
    int more;
    if (r->vocab_read)
        return jscan_fail(&r->s, "a second vocab");
    if (jscan_open(&r->s, '{') != 0)
        return -1;
    while ((more = jscan_key(&r->s, &key, &n)) == 1) {
        /* The piece is stored before its id is known: reading a number does not disturb the key. */
        if (jscan_int(&r->s, 0, VOCAB_MAX_ID, &id) != 0)
            return -1;
        if (n == 0 || !vocab_add(&r->t->vocab, key, n, (int)id))
            return jscan_fail(&r->s, n ? "piece with id %ld: the piece or the id stands in the vocab twice" : "an empty piece with id %ld", id);
    }
    r->vocab_read = true;
    return more;
}

/* Merges are looked up a batch at a time: while the next ones are scanned, the table's lines for the earlier ones come from memory. */
#define BATCH 64
struct pair { size_t off, left, right; uint32_t hash_left, hash_right, hash_both; };    /* off into batch.text; lengths */
struct batch { struct pair pair[BATCH]; size_t n; struct buf text; };

static void batch_close_pair(struct batch *b, const struct vocab *v, size_t off, size_t left)
{
    const char *text = b->text.data + off;
    size_t right = b->text.n - off - left;
    struct pair p = {off, left, right, vocab_hash(text, left), vocab_hash(text + left, right), vocab_hash(text, left + right)};
    vocab_prefetch(v, p.hash_left);
    vocab_prefetch(v, p.hash_right);
    vocab_prefetch(v, p.hash_both);
    b->pair[b->n++] = p;
}

/* ["a", "b"], or "a b" as older files have it. */
static int read_pair(struct jscan *s, const struct reading *r, struct batch *b)
{
    const char *text;
    size_t n, off = b->text.n, left;
    if (jscan_peek(s) == '"') {
        if (jscan_string(s, &text, &n) != 0)
            return -1;
        const char *space = memchr(text, ' ', n);
        if (space == NULL || memchr(space + 1, ' ', n - (size_t)(space + 1 - text)))
            return jscan_fail(s, "merge %zu: expected two pieces with one space between", r->n_merge + b->n);
        left = (size_t)(space - text);
        buf_add(&b->text, text, left);
        buf_add(&b->text, space + 1, n - left - 1);
    } else {
        if (jscan_open(s, '[') != 0 || jscan_item(s) != 1 || jscan_string(s, &text, &n) != 0)
            return jscan_fail(s, "merge %zu: expected a pair of pieces", r->n_merge + b->n);
        buf_add(&b->text, text, left = n);
        if (jscan_item(s) != 1 || jscan_string(s, &text, &n) != 0 || jscan_item(s) != 0)
            return jscan_fail(s, "merge %zu: expected a pair of pieces", r->n_merge + b->n);
        buf_add(&b->text, text, n);
    }
    batch_close_pair(b, &r->t->vocab, off, left);
    return 0;
}

static int resolve_batch(struct reading *r, struct jscan *s, struct batch *b)
{
    const struct vocab *v = &r->t->vocab;
    for (size_t i = 0; i < b->n; i++) {
        const struct pair *p = &b->pair[i];
        const char *text = b->text.data + p->off;
        struct merge m = {vocab_find_hashed(v, p->hash_left, text, p->left), vocab_find_hashed(v, p->hash_right, text + p->left, p->right),
                          (uint32_t)r->n_merge, vocab_find_hashed(v, p->hash_both, text, p->left + p->right)};
        if (m.left < 0 || m.right < 0 || m.id < 0)
            return jscan_fail(s, "merge %zu, \"%.*s\" and \"%.*s\": %s is not in the vocab", r->n_merge, (int)(p->left > 80 ? 80 : p->left), text,
                              (int)(p->right > 80 ? 80 : p->right), text + p->left, m.left < 0 ? "the first" : m.right < 0 ? "the second" : "the result");
        r->merge = grown(r->merge, r->n_merge, &r->cap_merge, sizeof *r->merge);
        r->merge[r->n_merge++] = m;
    }
    b->n = b->text.n = 0;
    return 0;
}

static int read_merges(struct reading *r, struct jscan *s)
{
    struct batch b = {.n = 0, .text = BUF_INIT};
    int more, bad = 0;
    if (jscan_open(s, '[') != 0)
        return -1;
    while (!bad && (more = jscan_item(s)) == 1) {
        bad = read_pair(s, r, &b);
        if (!bad && b.n == BATCH)
            bad = resolve_batch(r, s, &b);
    }
    if (!bad && more == 0)
        bad = resolve_batch(r, s, &b);
    buf_free(&b.text);
    return bad ? bad : more;
}

static int merges_key(struct reading *r)
{
    if (r->merges_read)
        return jscan_fail(&r->s, "a second list of merges");
    r->merges_read = true;
    if (r->vocab_read)
        return read_merges(r, &r->s);
    r->merges_wait = true;
    jscan_fork(&r->s, &r->merges_at);
    return jscan_skip(&r->s);
}

/* An option that must keep the value which means "not used". */
static int refuse_set(struct reading *r, const char *option)
{
    const char *text;
    size_t n = 1;
    char c = jscan_peek(&r->s);
    bool set = true;
    if (c == 'n')
        return jscan_skip(&r->s);
    if ((c == '"' && jscan_string(&r->s, &text, &n) != 0) || ((c == 't' || c == 'f') && jscan_bool(&r->s, &set) != 0))
        return -1;
    if ((c == '"' && n == 0) || !set)
        return 0;
    return jscan_fail(&r->s, "the model option %s is not supported here", option);
}

static int model_key(struct reading *r, const char *key, size_t n)
{
    static const char *const unused[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"};
    const char *text;
    if (key_is(key, n, "vocab"))
        return read_vocab(r);
    if (key_is(key, n, "merges"))
        return merges_key(r);
    if (key_is(key, n, "byte_fallback"))
        return jscan_bool(&r->s, &r->t->byte_fallback);
    if (key_is(key, n, "fuse_unk"))
        return jscan_bool(&r->s, &r->t->fuse_unk);
    if (key_is(key, n, "type")) {
        if (jscan_string(&r->s, &text, &n) != 0)
            return -1;
        return key_is(text, n, "BPE") ? 0 : jscan_fail(&r->s, "the model's type is not BPE");
    }
    if (key_is(key, n, "unk_token") && jscan_peek(&r->s) == '"') {
        if (jscan_string(&r->s, &text, &n) != 0)
            return -1;
        free(r->unk);
        r->unk = xstrndup(text, n);
        return 0;
    }
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (key_is(key, n, unused[i]))
            return refuse_set(r, unused[i]);
    return jscan_skip(&r->s);
}

static int read_model(struct reading *r)
{
    const char *key;
    size_t n;
    int more;
    if (r->vocab_read || r->merges_read)
        return jscan_fail(&r->s, "a second model");
    if (jscan_open(&r->s, '{') != 0)
        return -1;
    while ((more = jscan_key(&r->s, &key, &n)) == 1)
        if (model_key(r, key, n) != 0)
            return -1;
    if (more == 0 && !(r->vocab_read && r->merges_read))
        return jscan_fail(&r->s, "the model lacks its vocab or its merges");
    if (more == 0 && r->merges_wait)
        return read_merges(r, &r->merges_at);
    return more;
}

/* --- added tokens ----------------------------------------------------------------------------------------------------------- */

static int read_added_token(struct reading *r)
{
    const char *key, *text;
    size_t n;
    int more;
    struct added_line a = {.id = -1, .normalized = true};
    bool unsupported = false;
    if (jscan_open(&r->s, '{') != 0)
        return -1;
    while ((more = jscan_key(&r->s, &key, &n)) == 1) {
        int bad;
        bool flag = false;
        if (key_is(key, n, "id")) {
            bad = jscan_int(&r->s, 0, VOCAB_MAX_ID, &a.id);
        } else if (key_is(key, n, "content")) {
            if ((bad = jscan_string(&r->s, &text, &n)) == 0) {
                free(a.text);
                a.text = xstrndup(text, n);
                a.n = n;
            }
        } else if (key_is(key, n, "special")) {
            bad = jscan_bool(&r->s, &a.special);
        } else if (key_is(key, n, "normalized")) {
            bad = jscan_bool(&r->s, &a.normalized);
        } else if (key_is(key, n, "lstrip") || key_is(key, n, "rstrip") || key_is(key, n, "single_word")) {
            bad = jscan_bool(&r->s, &flag);
            unsupported |= flag;
        } else {
            bad = jscan_skip(&r->s);
        }
        if (bad) {
            free(a.text);
            return -1;
        }
    }
    r->added = grown(r->added, r->n_added, &r->cap_added, sizeof *r->added);
    r->added[r->n_added++] = a;
    if (more != 0)
        return -1;
    if (a.id < 0 || a.n == 0 || a.n > VOCAB_MAX_ADDED_LEN || memchr(a.text, 0, a.n))
        return jscan_fail(&r->s, "an added token needs an id and a content of 1 to %d bytes", VOCAB_MAX_ADDED_LEN);
    return unsupported ? jscan_fail(&r->s, "added token %ld: lstrip, rstrip and single_word are not supported", a.id) : 0;
}

static int read_added(struct reading *r)
{
    int more;
    if (r->n_added)
        return jscan_fail(&r->s, "a second list of added_tokens");
    if (jscan_peek(&r->s) == 'n')
        return jscan_skip(&r->s);
    if (jscan_open(&r->s, '[') != 0)
        return -1;
    while ((more = jscan_item(&r->s)) == 1)
        if (read_added_token(r) != 0)
            return -1;
    return more;
}

static void added_append(struct added *a, size_t *cap, uint32_t off, uint32_t len, int id)
{
    a->token = grown(a->token, a->n, cap, sizeof *a->token);
    a->token[a->n++] = (struct added_token){.off = off, .len = len, .id = id};
}

/* A token that goes through the normalizer is matched in its normalized spelling. */
static void add_normalized_spelling(struct tokenizer *t, size_t *cap, int id)
{
    struct buf *text = &t->vocab.text;
    size_t off = text->n, len = t->vocab.piece[id].len;
    for (size_t i = 0; i < len; i++) {
        char c = vocab_text(&t->vocab, id)[i];
        if (c == ' ' && t->spaces)
            buf_str(text, UNDERLINE);
        else
            buf_char(text, c);
    }
    size_t n = text->n - off;
    buf_char(text, '\0');
    added_append(&t->normalized, cap, (uint32_t)off, (uint32_t)n, id);
}

static int place_added(struct reading *r)
{
    struct tokenizer *t = r->t;
    size_t cap_raw = 0, cap_normalized = 0;
    for (size_t i = 0; i < r->n_added; i++) {
        const struct added_line *a = &r->added[i];
        int id = (int)a->id;
        if (vocab_find(&t->vocab, a->text, a->n) != id && !vocab_add(&t->vocab, a->text, a->n, id))
            return err_set(r->e, EXIT_DATA, "%s: added token \"%s\": id %d contradicts the vocab", r->name, a->text, id);
        t->vocab.piece[id].special |= a->special;
        if (a->normalized)
            add_normalized_spelling(t, &cap_normalized, id);
        else
            added_append(&t->raw, &cap_raw, t->vocab.piece[id].off, t->vocab.piece[id].len, id);
    }
    added_sort(&t->raw, &t->vocab);
    added_sort(&t->normalized, &t->vocab);
    return 0;
}

/* --- the steps around the model --------------------------------------------------------------------------------------------- */

static bool type_is(const json_t *o, const char *type)
{
    return strcmp(json_field(o, "type"), type) == 0;
}

static bool replaces(const json_t *step, const char *from, const char *to)
{
    return type_is(step, "Replace") && strcmp(json_field(json_object_get(step, "pattern"), "String"), from) == 0 && strcmp(json_field(step, "content"), to) == 0;
}

static bool absent(const json_t *v)
{
    return v == NULL || json_is_null(v);
}

static int check_steps(struct reading *r)
{
    r->t->spaces = replaces(r->normalizer, " ", UNDERLINE);
    if (!r->t->spaces && !absent(r->normalizer))
        return err_set(r->e, EXIT_DATA, "%s: normalizer: expected Replace of \" \" by U+2581: this is no Gemma tokenizer", r->name);
    /* Splitting at spaces does nothing once the normalizer has replaced them. */
    bool idle = type_is(r->pre_tokenizer, "Split") && strcmp(json_field(json_object_get(r->pre_tokenizer, "pattern"), "String"), " ") == 0 && r->t->spaces &&
                !json_is_true(json_object_get(r->pre_tokenizer, "invert"));
    if (!idle && !absent(r->pre_tokenizer))
        return err_set(r->e, EXIT_DATA, "%s: pre_tokenizer: expected Split at \" \" behind the normalizer: this is no Gemma tokenizer", r->name);
    const json_t *steps = json_object_get(r->decoder, "decoders");
    if (!type_is(r->decoder, "Sequence") || json_array_size(steps) != 3 || !replaces(json_array_get(steps, 0), UNDERLINE, " ") ||
        !type_is(json_array_get(steps, 1), "ByteFallback") || !type_is(json_array_get(steps, 2), "Fuse"))
        return err_set(r->e, EXIT_DATA, "%s: decoder: expected Replace of U+2581 by \" \", ByteFallback, Fuse: this is no Gemma tokenizer", r->name);
    return 0;
}

/* The first id that a TemplateProcessing puts before the text. */
static int bos_of(const json_t *post, const struct tokenizer *t)
{
    const json_t *first = json_array_get(json_object_get(post, "single"), 0), *special = json_object_get(first, "SpecialToken");
    if (!type_is(post, "TemplateProcessing") || special == NULL)
        return -1;
    const json_t *entry = json_object_get(json_object_get(post, "special_tokens"), json_field(special, "id"));
    const json_t *id = json_array_get(json_object_get(entry, "ids"), 0);
    json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
    return v >= 0 && v < t->vocab.size && vocab_has(&t->vocab, (int)v) ? (int)v : -1;
}

static int place_unknown(struct reading *r)
{
    struct tokenizer *t = r->t;
    t->unk = r->unk ? vocab_find(&t->vocab, r->unk, strlen(r->unk)) : -1;
    if (!t->byte_fallback)
        return t->unk >= 0 ? 0 : err_set(r->e, EXIT_DATA, "%s: model: neither byte_fallback nor an unk_token of the vocab: some text could not be encoded", r->name);
    for (int b = 0; b < 256; b++) {
        char piece[8];
        snprintf(piece, sizeof piece, "<0x%02X>", b);
        t->byte_id[b] = vocab_find(&t->vocab, piece, 6);
        if (t->byte_id[b] < 0)
            return err_set(r->e, EXIT_DATA, "%s: model: byte_fallback is set, but piece %s is missing", r->name, piece);
    }
    return 0;
}

static uint32_t last_char(const char *text, size_t n)
{
    uint32_t c = 0;
    size_t i = n - 1;
    while (i > 0 && ((unsigned char)text[i] & 0xC0) == 0x80)
        i--;
    (void)utf8_decode(text + i, n - i, &c);
    return c;
}

/* Fill the set of joined characters.  Symbols that are no text of their own (bytes, the unknown token) would break the argument:
 * with merges of those, or without byte fallback, texts are not cut. */
static void prove_splits(struct reading *r)
{
    struct tokenizer *t = r->t;
    t->splits = t->byte_fallback;
    for (size_t i = 0; i < r->n_merge; i++) {
        const struct piece *left = &t->vocab.piece[r->merge[i].left], *right = &t->vocab.piece[r->merge[i].right];
        uint32_t c = 0;
        (void)utf8_decode(t->vocab.text.data + right->off, right->len, &c);
        uint32_t bit = join_bit(last_char(t->vocab.text.data + left->off, left->len), c);
        t->join[bit / 64] |= (uint64_t)1 << bit % 64;
        t->splits &= left->byte < 0 && right->byte < 0;
    }
}

/* --- the file ---------------------------------------------------------------------------------------------------------------- */

/* A small part of the file as a tree. */
static int read_tree(struct reading *r, json_t **out)
{
    jscan_peek(&r->s);                  /* to the first byte of the value */
    const char *from = r->s.at;
    if (jscan_skip(&r->s) != 0)
        return -1;
    json_decref(*out);
    struct buf wrapped = BUF_INIT;      /* null and strings are no documents for every parser */
    buf_char(&wrapped, '[');
    buf_add(&wrapped, from, (size_t)(r->s.at - from));
    buf_char(&wrapped, ']');
    json_t *list = json_parse(wrapped.data, wrapped.n, r->name, r->e);
    buf_free(&wrapped);
    *out = json_incref(json_array_get(list, 0));
    json_decref(list);
    return list ? 0 : -1;
}

static int top_key(struct reading *r, const char *key, size_t n)
{
    if (key_is(key, n, "added_tokens"))
        return read_added(r);
    if (key_is(key, n, "model"))
        return read_model(r);
    if (key_is(key, n, "normalizer"))
        return read_tree(r, &r->normalizer);
    if (key_is(key, n, "pre_tokenizer"))
        return read_tree(r, &r->pre_tokenizer);
    if (key_is(key, n, "post_processor"))
        return read_tree(r, &r->post_processor);
    if (key_is(key, n, "decoder"))
        return read_tree(r, &r->decoder);
    return jscan_skip(&r->s);
}

static int read_file(struct reading *r)
{
    const char *key;
    size_t n;
    int more;
    if (jscan_open(&r->s, '{') != 0)
        return -1;
    while ((more = jscan_key(&r->s, &key, &n)) == 1)
        if (top_key(r, key, n) != 0)
            return -1;
    if (more != 0 || jscan_done(&r->s) != 0)
        return -1;
    if (!r->vocab_read)
        return err_set(r->e, EXIT_DATA, "%s: no model: this is no tokenizer.json", r->name);
    if (check_steps(r) != 0 || place_unknown(r) != 0)
        return -1;
    prove_splits(r);
    merges_build(&r->t->merges, r->merge, r->n_merge);
    if (place_added(r) != 0)
        return -1;
    r->t->bos = bos_of(r->post_processor, r->t);
    return 0;
}

static void reading_free(struct reading *r)
{
    for (size_t i = 0; i < r->n_added; i++)
        free(r->added[i].text);
    free(r->added);
    free(r->merge);
    free(r->unk);
    jscan_free(&r->s);
    if (r->merges_wait)
        jscan_free(&r->merges_at);
    json_decref(r->normalizer);
    json_decref(r->pre_tokenizer);
    json_decref(r->post_processor);
    json_decref(r->decoder);
}

struct tokenizer *tokenizer_parse(const char *json, size_t n, const char *name, struct err *e)
{
    struct reading r = {.t = xcalloc(1, sizeof *r.t), .name = name, .e = e};
    r.t->unk = r.t->bos = -1;
    jscan_init(&r.s, json, n, name, e);
    int bad = read_file(&r);
    reading_free(&r);
    if (bad == 0)
        return r.t;
    tokenizer_free(r.t);
    return NULL;
}

struct tokenizer *tokenizer_open(const char *dir, struct err *e)
{
    char *path = xasprintf("%s/tokenizer.json", dir), *text = NULL;
    size_t n = 0;
    struct tokenizer *t = NULL;
    if (io_slurp(path, FILE_MAX, &text, &n, e) == 0)
        t = tokenizer_parse(text, n, path, e);
    free(text);
    free(path);
    return t;
}

void tokenizer_free(struct tokenizer *t)
{
    if (t == NULL)
        return;
    vocab_free(&t->vocab);
    free(t->merges.slot);
    free(t->raw.token);
    free(t->normalized.token);
    free(t);
}
