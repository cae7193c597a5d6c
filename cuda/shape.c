/* The shape of a launch: which warps do what, and how much shared memory that takes. */
#include "cuda/kernels.h"

enum { WARPS = GK_THREADS / 32, BLOCKS_AN_SM = 2, MAX_CHOICES = 1024 };

static int up(int n, int by) { return (n + by - 1) / by; }

/* Columns that a warp takes at a time: 64 bytes of a row. */
static int chunk_columns(enum gk_kind k) { return k == GK_F32 ? 16 : k == GK_BF16 || k == GK_F16 ? 32 : k == GK_INT8 || k == GK_FP8 ? 64 : 128; }

/* Rounds of the grid, each as long as a warp's chunks and the summing-up, which is about one more. */
static long cost(int tiles, int chunks, int wpt, int blocks) { return (long)up(tiles, WARPS / wpt * blocks) * (up(chunks, wpt) + 1); }

static int count_tiles(const struct gk_linear *a)
{
    const int step = a->epilogue == GK_GATED ? 8 : 16;
    int tiles = 0;

    for (int s = 0; s < a->segments; s += a->epilogue == GK_GATED ? 2 : 1)
        tiles += up(a->m[s].rows, step);
    return tiles + a->max_jobs * up(a->expert_rows, step);
}

static const char *check_linear(const struct gk_linear *a)
{
    if (a->tokens < 1 || (!a->segments && !a->max_jobs))
        return "a linear of nothing";
    if ((a->segments && a->cols % 32) || (a->max_jobs && a->expert_cols % 32))
        return "columns are no multiple of 32";
    if (a->epilogue == GK_GATED && a->segments && (a->segments != 2 || a->m[0].rows != a->m[1].rows))
        return "gate and up differ";
    if (a->tokens > 8 && a->segments && (a->max_jobs || a->finish != GK_NOTHING || a->epilogue == GK_HEAD))
        return "with more than 8 tokens experts, finishers and the head are launches of their own";
    if ((a->finish == GK_HEADS || a->finish == GK_PLE) && (a->group_rows < 16 || a->group_rows % 16))
        return "a group is no multiple of 16 rows";
    if (a->finish == GK_HEADS && (a->f.heads.head_dim > 512 || a->f.heads.head_dim % 32))
        return "a head is no multiple of 32 columns, or more than 512";
    if ((a->finish == GK_RESIDUAL || a->finish == GK_EXPERTS) && a->f.residual.n > GK_MOST_HIDDEN)
        return "more hidden columns than a block keeps";
    if (a->finish == GK_ROUTE && (a->f.route.experts > GK_THREADS || a->tokens * a->f.route.top_k > MAX_CHOICES))
        return "too many experts, or choices";
    if (a->finish == GK_BEST && a->f.choice.top && (!a->y || !a->f.choice.top_partial || a->segments != 1))
        return "the largest are chosen from logits that are kept";
    return NULL;
}

static const char *shape_linear(struct gk_launch *l, const struct gk_device *d)
{
    struct gk_linear *a = &l->a.linear;
    const char *wrong = check_linear(a);
    const int columns = gk_columns(a), blocks = BLOCKS_AN_SM * d->sms, chunks = up(a->segments ? a->cols : a->expert_cols, chunk_columns(a->kind));

    if (wrong)
        return wrong;
    a->tiles = count_tiles(a);
    a->wpt = WARPS;
    for (int wpt = WARPS / 2; wpt; wpt /= 2)
        if (cost(a->tiles, chunks, wpt, blocks) < cost(a->tiles, chunks, a->wpt, blocks))
            a->wpt = wpt;
    const int most = up(a->tiles, WARPS / a->wpt);
    l->grid[0] = (unsigned)(most < blocks ? most : blocks);
    l->grid[1] = (unsigned)(a->segments ? up(a->tokens, columns) : 1);
    l->grid[2] = 1;
    l->shared = GK_END_BYTES + (columns == 64 ? WARPS * 16 * 64 * 4 : 2 * WARPS * 16 * 8 * 4);
    const unsigned end = GK_END_BYTES + (a->finish == GK_ROUTE ? GK_ROUTE_BYTES : a->finish == GK_BEST && a->f.choice.top ? GK_TOP_BYTES : 0);
    if (l->shared < end)
        l->shared = end;
    return NULL;
}

static const char *shape_finish(struct gk_launch *l)
{
    const struct gk_linear *a = &l->a.linear;
    const struct gk_heads *h = &a->f.heads;
    const int groups = a->finish == GK_HEADS ? h->heads + h->kv_heads * (h->v_is_k ? 1 : 2) : a->finish == GK_PLE ? a->f.ple.groups : 1;

    if (a->finish == GK_NOTHING || a->finish == GK_BEST)
        return "nothing to finish";
    l->grid[0] = (unsigned)(a->finish == GK_HEADS || a->finish == GK_PLE ? up(groups, WARPS) : 1);
    l->grid[1] = (unsigned)(a->finish == GK_ROUTE ? 1 : a->tokens);
    l->grid[2] = 1;
    l->shared = GK_END_BYTES + (a->finish == GK_ROUTE ? GK_ROUTE_BYTES : 0);
    return NULL;
}

static const char *shape_attend(struct gk_launch *l)
{
    const struct gk_attend *a = &l->a.attend;

    if (a->head_dim % 32 || a->head_dim > 512 || a->kv_heads < 1 || a->heads % a->kv_heads || a->splits < 1 || a->tokens < 1)
        return "heads are no multiple of KV heads, or a head no multiple of 32 columns up to 512";
    l->grid[0] = (unsigned)a->splits;
    l->grid[1] = (unsigned)gk_head_groups(a->heads, a->kv_heads);
    l->grid[2] = (unsigned)a->tokens;
    l->shared = (unsigned)(GK_ATTEND_BYTES + 8 * (a->head_dim + 2) * 4);
    return NULL;
}

static const char *shape_rows(struct gk_launch *l, int tokens, int columns)
{
    if (tokens < 1 || columns < 32 || columns % 32)
        return "columns are no multiple of 32, or no tokens";
    l->grid[0] = (unsigned)tokens, l->grid[1] = l->grid[2] = 1;
    l->shared = GK_END_BYTES;
    return NULL;
}

static const char *shape_read(struct gk_launch *l, const struct gk_device *d)
{
    if (l->a.read.bytes % 16)
        return "bytes are no multiple of 16";
    l->grid[0] = 4 * (unsigned)d->sms, l->grid[1] = l->grid[2] = 1;
    l->shared = 0;
    return NULL;
}

const char *gk_shape(struct gk_launch *l, const struct gk_device *d)
{
    switch (l->kernel) {
    case GK_LINEAR: return shape_linear(l, d);
    case GK_FINISH: return shape_finish(l);
    case GK_ATTEND: return shape_attend(l);
    case GK_EMBED: return shape_rows(l, l->a.embed.tokens, l->a.embed.table.cols);
    case GK_PREPARE: return shape_rows(l, l->a.prepare.tokens, l->a.prepare.n);
    case GK_READ: return shape_read(l, d);
    case GK_PAUSE:
        l->grid[0] = l->grid[1] = l->grid[2] = 1;
        l->shared = 0;
        return NULL;
    }
    return "no such kernel";
}
