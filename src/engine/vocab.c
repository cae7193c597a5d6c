#include "engine/vocab.h"
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

/* --- pieces ------------------------------------------------------------------------------------------------------------- */

/* FNV-1a. */
uint32_t vocab_hash(const char *text, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h;
}

/* The low bits of FNV are weak where they are masked. */
static uint32_t spread(uint32_t h)
{
    return h ^ h >> 15;
}

void vocab_free(struct vocab *v)
{
    buf_free(&v->text);
    free(v->piece);
    free(v->slot);
    *v = (struct vocab){.text = BUF_INIT};
}

void vocab_prefetch(const struct vocab *v, uint32_t hash)
{
    if (v->slot)
        __builtin_prefetch(&v->slot[spread(hash) & v->mask]);
}

int vocab_find_hashed(const struct vocab *v, uint32_t hash, const char *text, size_t n)
{
    if (v->slot == NULL)
        return -1;
    for (uint32_t i = spread(hash) & v->mask; v->slot[i].id >= 0; i = (i + 1) & v->mask) {
        const struct vocab_slot *s = &v->slot[i];
        if (s->hash == hash && s->len == n && memcmp(v->text.data + s->off, text, n) == 0)
            return s->id;
    }
    return -1;
}

int vocab_find(const struct vocab *v, const char *text, size_t n)
{
    return vocab_find_hashed(v, vocab_hash(text, n), text, n);
}

static void put_slot(struct vocab *v, struct vocab_slot s)
{
    uint32_t i = spread(s.hash) & v->mask;
    while (v->slot[i].id >= 0)
        i = (i + 1) & v->mask;
    v->slot[i] = s;
}

static void grow_slots(struct vocab *v)
{
    struct vocab_slot *old = v->slot;
    uint32_t count = old ? v->mask + 1 : 0, bigger = count ? count * 2 : 1024;
    v->slot = xreallocarray(NULL, bigger, sizeof *v->slot);
    memset(v->slot, 0xFF, bigger * sizeof *v->slot);            /* id -1 */
    v->mask = bigger - 1;
    for (uint32_t i = 0; i < count; i++)
        if (old[i].id >= 0)
            put_slot(v, old[i]);
    free(old);
}

static int16_t byte_of(const char *text, size_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex_digit(text[3]) < 0 || hex_digit(text[4]) < 0)
        return -1;
    return (int16_t)(hex_digit(text[3]) * 16 + hex_digit(text[4]));
}

bool vocab_add(struct vocab *v, const char *text, size_t n, int id)
{
    if (vocab_has(v, id) || vocab_find(v, text, n) >= 0)
        return false;
    if (id >= v->cap) {
        int cap = v->cap ? v->cap : 1024;
        while (cap <= id)
            cap *= 2;
        v->piece = xreallocarray(v->piece, (size_t)cap, sizeof *v->piece);
        memset(v->piece + v->cap, 0, (size_t)(cap - v->cap) * sizeof *v->piece);
        v->cap = cap;
    }
    if (id >= v->size)
        v->size = id + 1;
    uint32_t off = (uint32_t)v->text.n;
    v->piece[id] = (struct piece){.off = off, .len = (uint32_t)n, .byte = byte_of(text, n), .present = true};
    buf_add(&v->text, text, n);
    buf_char(&v->text, '\0');
    if (v->slot == NULL || v->used * 2 > v->mask)
        grow_slots(v);
    v->used++;
    put_slot(v, (struct vocab_slot){vocab_hash(text, n), id, off, (uint32_t)n});
    return true;
}

/* --- merges ------------------------------------------------------------------------------------------------------------- */

static uint32_t pair_hash(int left, int right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

void merges_build(struct merges *m, const struct merge *list, size_t n)
{
    size_t count = 1024;
    while (count < 2 * n)
        count *= 2;
    m->mask = (uint32_t)(count - 1);
    m->slot = xreallocarray(NULL, count, sizeof *m->slot);
    memset(m->slot, 0xFF, count * sizeof *m->slot);             /* left -1 */
    for (size_t k = 0; k < n; k++) {
        uint32_t i = pair_hash(list[k].left, list[k].right) & m->mask;
        while (m->slot[i].left >= 0 && (m->slot[i].left != list[k].left || m->slot[i].right != list[k].right))
            i = (i + 1) & m->mask;
        m->slot[i] = list[k];
    }
}

const struct merge *merges_find(const struct merges *m, int left, int right)
{
    for (uint32_t i = pair_hash(left, right) & m->mask; m->slot[i].left >= 0; i = (i + 1) & m->mask)
        if (m->slot[i].left == left && m->slot[i].right == right)
            return &m->slot[i];
    return NULL;
}

/* --- added tokens --------------------------------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int c = memcmp(x->text, y->text, n);
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

void added_sort(struct added *a, const struct vocab *v)
{
    for (size_t i = 0; i < a->n; i++)
        a->token[i].text = v->text.data + a->token[i].off;
    if (a->n)
        qsort(a->token, a->n, sizeof *a->token, by_bytes);
    size_t i = 0;
    for (int b = 0; b <= 256; b++) {
        while (i < a->n && (unsigned char)a->token[i].text[0] < b)
            i++;
        a->first[b] = i;
    }
}

/* First of tokens [lo, hi), which agree before `depth` and are longer than it, whose byte there is at least b. */
static size_t lower_bound(const struct added *a, size_t lo, size_t hi, size_t depth, int b)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)a->token[mid].text[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

size_t added_match(const struct added *a, const char *text, size_t n, int *id)
{
    size_t best = 0, lo = a->first[(unsigned char)text[0]], hi = a->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        for (; lo < hi && a->token[lo].len == depth; lo++) {   /* the shortest of those that agree sort first */
            best = depth;
            *id = a->token[lo].id;
        }
        if (depth == n)
            break;
        int c = (unsigned char)text[depth];
        lo = lower_bound(a, lo, hi, depth, c);
        hi = lower_bound(a, lo, hi, depth, c + 1);
    }
    return best;
}
