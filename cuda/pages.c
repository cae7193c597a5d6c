#include "cuda/pages.h"
#include <stdlib.h>
#include <string.h>
#include "cuda/kernels.h"

static int up(long n, long by) { return (int)((n + by - 1) / by); }

static size_t common_divisor(size_t a, size_t b)
{
    while (b) {
        const size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void pages_init(struct pages *p, const struct gemma *g, long context, long step)
{
    const int most = up(context, GK_PAGE);

    *p = (struct pages){.g = g, .block_values = 1};
    for (int i = 0; i < g->layers; i++) {
        const struct gemma_layer *l = &g->layer[i];
        struct pages_layer *to = &p->layer[i];
        if (l->kv_from != i)
            continue;
        /* Position p may not take the place of one that a token of the same step still sees, wherever in a page it lies. */
        const int ring = up(g->window + step + GK_PAGE - 1, GK_PAGE);
        *to = (struct pages_layer){.owns = true, .values = (size_t)l->kv_heads * (size_t)l->head_dim * GK_PAGE, .ring = l->full || most < ring ? most : ring, .entry = p->ld};
        p->ld += (size_t)to->ring;
        p->block_values = p->block_values / common_divisor(p->block_values, to->values) * to->values;
    }
    for (int i = 0; i < g->layers; i++) {
        if (p->layer[i].owns)
            p->layer[i].per_block = (int)(p->block_values / p->layer[i].values);
        else
            p->layer[i] = p->layer[g->layer[i].kv_from], p->layer[i].owns = false;
    }
}

uint64_t pages_block_bytes(const struct pages *p) { return 2 * sizeof(uint16_t) * (uint64_t)p->block_values; }

void pages_start(struct pages *p, size_t blocks, int *table)
{
    p->n_blocks = p->n_free = blocks;
    p->free_block = xcalloc(blocks + 1, sizeof *p->free_block);
    for (size_t i = 0; i < blocks; i++)
        p->free_block[i] = (int)(blocks - 1 - i);
    p->table = table;
}

void pages_free(struct pages *p) { free(p->free_block); }

static int entries(const struct pages_layer *l, long n)
{
    const int all = up(n, GK_PAGE);

    return all < l->ring ? all : l->ring;
}

size_t pages_blocks(const struct pages *p, long n)
{
    size_t blocks = 0;

    for (int i = 0; i < p->g->layers; i++)
        if (p->layer[i].owns)
            blocks += (size_t)up(entries(&p->layer[i], n), p->layer[i].per_block);
    return blocks;
}

size_t pages_wanted(const struct cuda_seq *s, long n) { return n > s->held ? pages_blocks(s->pages, n) - pages_blocks(s->pages, s->held) : 0; }

static int find_place(struct pages *p)
{
    for (int i = 0; i < PAGES_SEQS; i++)
        if (!p->taken[i])
            return i;
    return -1;
}

static int take_block(struct cuda_seq *s)
{
    struct pages *p = s->pages;

    if (s->n_blocks == s->cap_blocks) {
        s->cap_blocks = s->cap_blocks ? 2 * s->cap_blocks : 64;
        s->block = xreallocarray(s->block, s->cap_blocks, sizeof *s->block);
    }
    return s->block[s->n_blocks++] = p->free_block[--p->n_free];
}

bool pages_take(struct cuda_seq *s, long n, bool *changed)
{
    struct pages *p = s->pages;

    *changed = false;
    if (n <= s->held)
        return true;
    if (pages_wanted(s, n) > p->n_free || (s->place < 0 && find_place(p) < 0))
        return false;
    if (s->place < 0)
        p->taken[s->place = find_place(p)] = true;
    for (int i = 0; i < p->g->layers; i++) {
        const struct pages_layer *l = &p->layer[i];
        int *table = p->table + (size_t)s->place * p->ld + l->entry;
        if (!l->owns)
            continue;
        for (const int want = entries(l, n); s->used[i] < want; s->used[i]++) {
            const int part = s->used[i] % l->per_block;
            if (part == 0)
                s->last[i] = take_block(s);
            table[s->used[i]] = s->last[i] * l->per_block + part;
            *changed = true;
        }
    }
    s->held = n;
    return true;
}

void pages_give_back(struct cuda_seq *s)
{
    struct pages *p = s->pages;

    while (s->n_blocks)
        p->free_block[p->n_free++] = s->block[--s->n_blocks];
    if (s->place >= 0)
        p->taken[s->place] = false;
    free(s->block);
}
