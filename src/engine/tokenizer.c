/* Text to ids, ids to text.  BPE as Hugging Face tokenizers computes it: the lowest rank first, the leftmost of equals. */
#include "engine/tokenizer.h"
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "engine/vocab.h"

void ids_add(struct ids *l, int id)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        l->id = xreallocarray(l->id, l->cap, sizeof *l->id);
    }
    l->id[l->n++] = id;
}

void ids_free(struct ids *l)
{
    free(l->id);
    *l = (struct ids)IDS_INIT;
}

int tokenizer_size(const struct tokenizer *t)
{
    return t->vocab.size;
}

int tokenizer_id(const struct tokenizer *t, const char *piece)
{
    return vocab_find(&t->vocab, piece, strlen(piece));
}

bool tokenizer_special(const struct tokenizer *t, int id)
{
    return vocab_has(&t->vocab, id) && t->vocab.piece[id].special;
}

int tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

/* --- BPE --------------------------------------------------------------------------------------------------------------------- */

/* The symbols of one piece as a linked list, and the merges that are possible, lowest first, as a heap of rank << 32 | position.  An entry goes
 * stale when one of its two symbols was merged with something else; it is then recognised by its rank. */
struct symbol { int32_t id, prev, next; };      /* id -1 = merged into its left neighbour; prev, next -1 = none */
struct bpe {
    const struct tokenizer *t;
    struct symbol *sym;
    size_t n, cap;
    uint64_t *heap;
    size_t n_heap, cap_heap;
    struct ids *out;
};

static void add_symbol(struct bpe *b, int id)
{
    if (b->n == b->cap) {
        b->cap = b->cap ? b->cap * 2 : 256;
        b->sym = xreallocarray(b->sym, b->cap, sizeof *b->sym);
    }
    int32_t i = (int32_t)b->n++;
    b->sym[i] = (struct symbol){id, i - 1, i + 1};
}

static void heap_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t v = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= v)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = v;
}

static void heap_push(struct bpe *b, uint64_t v)
{
    if (b->n_heap == b->cap_heap) {
        b->cap_heap = b->cap_heap ? b->cap_heap * 2 : 256;
        b->heap = xreallocarray(b->heap, b->cap_heap, sizeof *b->heap);
    }
    size_t i = b->n_heap++;
    while (i > 0 && b->heap[(i - 1) / 2] > v) {
        b->heap[i] = b->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    b->heap[i] = v;
}

static uint64_t heap_pop(struct bpe *b)
{
    uint64_t top = b->heap[0];
    b->heap[0] = b->heap[--b->n_heap];
    if (b->n_heap)
        heap_down(b->heap, b->n_heap, 0);
    return top;
}

/* The merge of symbol i with its right neighbour, NULL = none. */
static const struct merge *merge_at(const struct bpe *b, int32_t i)
{
    if (i < 0 || b->sym[i].id < 0 || b->sym[i].next < 0)
        return NULL;
    return merges_find(&b->t->merges, b->sym[i].id, b->sym[b->sym[i].next].id);
}

static void offer(struct bpe *b, int32_t i)
{
    const struct merge *m = merge_at(b, i);
    if (m)
        heap_push(b, (uint64_t)m->rank << 32 | (uint32_t)i);
}

/* Merge the collected symbols, write their ids, begin anew. */
static void flush_symbols(struct bpe *b)
{
    if (b->n == 0)
        return;
    b->sym[b->n - 1].next = -1;
    b->n_heap = 0;
    for (size_t i = 0; i + 1 < b->n; i++)
        offer(b, (int32_t)i);
    while (b->n_heap) {
        uint64_t top = heap_pop(b);
        int32_t i = (int32_t)(top & 0xFFFFFFFF);
        const struct merge *m = merge_at(b, i);
        if (m == NULL || m->rank != top >> 32)
            continue;
        struct symbol *s = &b->sym[i], *right = &b->sym[s->next];
        s->id = m->id;
        s->next = right->next;
        right->id = -1;
        if (s->next >= 0)
            b->sym[s->next].prev = i;
        offer(b, s->prev);
        offer(b, i);
    }
    for (int32_t i = 0; i >= 0; i = b->sym[i].next)
        ids_add(b->out, b->sym[i].id);
    b->n = 0;
}

/* One normalized piece, known to be UTF-8. */
static void encode_piece(struct bpe *b, const char *text, size_t n)
{
    const struct tokenizer *t = b->t;
    uint32_t before = 0, c = 0;
    bool after_unk = false;
    for (size_t i = 0, len; i < n; i += len, before = c) {
        len = utf8_decode(text + i, n - i, &c);
        uint32_t bit = join_bit(before, c);
        if (t->splits && !(t->join[bit / 64] >> bit % 64 & 1))
            flush_symbols(b);
        int id = vocab_find(&t->vocab, text + i, len);
        bool unknown = id < 0;
        if (!unknown)
            add_symbol(b, id);
        else if (t->byte_fallback)
            for (size_t k = 0; k < len; k++)
                add_symbol(b, t->byte_id[(unsigned char)text[i + k]]);
        else if (!(after_unk && t->fuse_unk))
            add_symbol(b, t->unk);
        after_unk = unknown;
    }
    flush_symbols(b);
}

/* --- cutting out added tokens ---------------------------------------------------------------------------------------------------- */

/* Calls piece() for what lies between the added tokens, and writes the tokens' ids. */
static void cut_added(struct bpe *b, const struct added *a, const char *text, size_t n, void (*piece)(struct bpe *, const char *, size_t))
{
    size_t from = 0;
    int id = -1;
    for (size_t i = 0; i < n;) {
        size_t len = added_match(a, text + i, n - i, &id);
        if (len == 0) {
            i++;
            continue;
        }
        if (i > from)
            piece(b, text + from, i - from);
        ids_add(b->out, id);
        from = i += len;
    }
    if (n > from)
        piece(b, text + from, n - from);
}

static void normalize_piece(struct bpe *b, const char *text, size_t n)
{
    struct buf norm = BUF_INIT;
    for (const char *end = text + n; text < end && b->t->spaces;) {
        const char *space = memchr(text, ' ', (size_t)(end - text)), *stop = space ? space : end;
        buf_add(&norm, text, (size_t)(stop - text));
        if (space)
            buf_str(&norm, UNDERLINE);
        text = space ? space + 1 : end;
    }
    if (b->t->spaces)
        cut_added(b, &b->t->normalized, norm.data, norm.n, encode_piece);
    else
        cut_added(b, &b->t->normalized, text, n, encode_piece);
    buf_free(&norm);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, struct ids *out, struct err *e)
{
    size_t bad = utf8_check(text, n);
    if (bad < n)
        return err_set(e, EXIT_DATA, "byte %zu of the text: invalid UTF-8", bad);
    if (n > INT32_MAX / 4)
        return err_set(e, EXIT_BUG, "a text of %zu bytes in one piece", n);
    struct bpe b = {.t = t, .out = out};
    cut_added(&b, &t->raw, text, n, normalize_piece);
    free(b.sym);
    free(b.heap);
    return 0;
}

/* --- decoding -------------------------------------------------------------------------------------------------------------------- */

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special)
{
    *d = (struct detok){.t = t, .skip_special = skip_special, .run = BUF_INIT};
}

void detok_end(struct detok *d, struct buf *out)
{
    if (d->run.n == 0)
        return;
    if (utf8_check(d->run.data, d->run.n) == d->run.n)
        buf_add(out, d->run.data, d->run.n);
    else
        for (size_t i = 0; i < d->run.n; i++)
            utf8_add(out, 0xFFFD);
    d->run.n = 0;
}

int detok_feed(struct detok *d, int id, struct buf *out, struct err *e)
{
    const struct vocab *v = &d->t->vocab;
    if (!vocab_has(v, id))
        return err_set(e, EXIT_DATA, "token id %d is not in the vocabulary of %d", id, v->size);
    const struct piece *p = &v->piece[id];
    if (p->special && d->skip_special)
        return 0;
    if (p->byte >= 0) {
        buf_char(&d->run, (char)p->byte);
        return 0;
    }
    detok_end(d, out);
    const char *text = vocab_text(v, id);
    for (size_t i = 0; i < p->len; i++)
        if (p->len - i >= 3 && memcmp(text + i, UNDERLINE, 3) == 0) {
            buf_char(out, ' ');
            i += 2;
        } else {
            buf_char(out, text[i]);
        }
    return 0;
}

void detok_free(struct detok *d)
{
    buf_free(&d->run);
}

int tokenizer_decode(const struct tokenizer *t, const int *id, size_t n, bool skip_special, struct buf *out, struct err *e)
{
    struct detok d;
    detok_init(&d, t, skip_special);
    int bad = 0;
    for (size_t i = 0; i < n && !bad; i++)
        bad = detok_feed(&d, id[i], out, e);
    detok_end(&d, out);
    detok_free(&d);
    return bad;
}
