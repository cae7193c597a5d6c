#include "ct/shards.h"
#include <stdlib.h>
#include <string.h>

/* How many tensors from `i` belong to one module and stay together. */
static size_t together(const struct ct_plan *p, size_t i, size_t *step)
{
    while (*step < p->n_steps) {
        const struct ct_step *s = &p->step[*step];
        uint64_t modules = s->modules ? s->modules : s->parts ? 1 : 0;

        if (modules && i < s->first + modules * s->parts)
            return s->parts;
        ++*step;
    }
    return 1;
}

/* Give every tensor its shard; returns their number. */
static size_t deal(const struct ct_plan *p, uint64_t shard_size, struct ct_place *place)
{
    const struct st_header *h = p->out;
    uint64_t filled = 0;
    size_t shard = 0, step = 0;

    for (size_t i = 0, k; i < h->n; i += k) {
        uint64_t n = 0;

        k = together(p, i, &step);
        for (size_t j = 0; j < k; j++)
            n += h->t[i + j].nbytes;
        if (filled && filled + n > shard_size) {
            shard++;
            filled = 0;
        }
        for (size_t j = 0; j < k; j++)
            place[i + j].shard = shard;
        filled += n;
    }
    return shard + 1;
}

static int by_dtype_then_name(const void *a, const void *b)
{
    const struct st_tensor *x = *(const struct st_tensor *const *)a, *y = *(const struct st_tensor *const *)b;

    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* A shard holds one run of the stream's tensors, [from, to). */
static int lay_out(const struct ct_plan *p, struct ct_shards *s, size_t shard, size_t from, size_t to, struct err *e)
{
    const struct st_tensor **sorted = xreallocarray(NULL, to - from + 1, sizeof *sorted);
    struct st_header *h = st_header_new();
    struct ct_shard *out = &s->shard[shard];
    int rc;

    for (size_t i = from; i < to; i++)
        sorted[i - from] = &p->out->t[i];
    qsort(sorted, to - from, sizeof *sorted, by_dtype_then_name);
    st_meta_copy(h, p->out);
    for (size_t i = 0; i < to - from; i++)
        st_header_add(h, sorted[i]->name, sorted[i]->dtype, sorted[i]->ndim, sorted[i]->shape);
    rc = st_header_render(h, &out->head, &out->n_head, e);
    for (size_t i = 0; !rc && i < to - from; i++)
        s->place[sorted[i] - p->out->t].offset = out->n_head + h->t[i].begin;
    out->file_bytes = out->n_head + h->nbytes;
    s->file_bytes += out->file_bytes;
    free(sorted);
    st_header_free(h);
    return rc;
}

struct ct_shards *ct_shards_make(const struct ct_plan *p, uint64_t shard_size, struct err *e)
{
    struct ct_shards *s = xcalloc(1, sizeof *s);
    size_t from = 0, to;

    s->place = xcalloc(p->out->n + 1, sizeof *s->place);
    s->n = deal(p, shard_size, s->place);
    s->shard = xcalloc(s->n, sizeof *s->shard);
    for (size_t i = 0; i < s->n; i++, from = to) {
        for (to = from; to < p->out->n && s->place[to].shard == i; to++)
            ;
        s->shard[i].name = s->n == 1 ? xstrdup("model.safetensors") : xasprintf("model-%05zu-of-%05zu.safetensors", i + 1, s->n);
        if (lay_out(p, s, i, from, to, e)) {
            ct_shards_free(s);
            return NULL;
        }
    }
    return s;
}

void ct_shards_free(struct ct_shards *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n && s->shard; i++) {
        free(s->shard[i].name);
        free(s->shard[i].head);
    }
    free(s->shard);
    free(s->place);
    free(s);
}

struct lying { struct ct_place place; size_t t; };

static int by_place(const void *a, const void *b)
{
    const struct lying *x = a, *y = b;

    if (x->place.shard != y->place.shard)
        return x->place.shard < y->place.shard ? -1 : 1;
    if (x->place.offset != y->place.offset)
        return x->place.offset < y->place.offset ? -1 : 1;
    return x->t < y->t ? -1 : x->t > y->t;
}

size_t *ct_shards_order(const struct ct_shards *s, const struct ct_plan *p)
{
    size_t n = p->out->n, *order = xreallocarray(NULL, n + 1, sizeof *order);
    struct lying *all = xreallocarray(NULL, n + 1, sizeof *all);

    for (size_t i = 0; i < n; i++)
        all[i] = (struct lying){s->place[i], i};
    qsort(all, n, sizeof *all, by_place);
    for (size_t i = 0; i < n; i++)
        order[i] = all[i].t;
    free(all);
    return order;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct st_tensor *const *)a)->name, (*(const struct st_tensor *const *)b)->name);
}

json_t *ct_shards_index(const struct ct_shards *s, const struct ct_plan *p)
{
    const struct st_tensor **sorted = xreallocarray(NULL, p->out->n + 1, sizeof *sorted);
    json_t *index = json_object(), *map = json_object();

    for (size_t i = 0; i < p->out->n; i++)
        sorted[i] = &p->out->t[i];
    qsort(sorted, p->out->n, sizeof *sorted, by_name);
    for (size_t i = 0; i < p->out->n; i++)
        json_object_set_new(map, sorted[i]->name, json_string(s->shard[s->place[sorted[i] - p->out->t].shard].name));
    json_object_set_new(index, "metadata", json_pack("{sI}", "total_size", (json_int_t)p->out->nbytes));
    json_object_set_new(index, "weight_map", map);
    free(sorted);
    return index;
}
