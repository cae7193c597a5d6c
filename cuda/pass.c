#include "cuda/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }
static bool is_int4(const struct matrix *m) { return m->kind == W_INT4; }

/* --- how a matrix is stored ------------------------------------------------------------------------------------------ */

struct stored { enum gk_kind kind; int shift; };

/* As weights_load() has it for the GPU: 8-bit scales in f32, groups of a power of two times 32. */
static struct stored stored_as(const struct matrix *m)
{
    static const enum gk_kind kinds[] = {[W_F32] = GK_F32, [W_BF16] = GK_BF16, [W_F16] = GK_F16, [W_INT4] = GK_INT4_F32, [W_INT8] = GK_INT8, [W_FP8] = GK_FP8};
    struct stored s = {kinds[m->kind], 0};

    if (!is_int4(m))
        return s;
    if (m->scale_type != ST_F32)
        s.kind = m->scale_type == ST_BF16 ? GK_INT4_BF16 : GK_INT4_F16;
    for (size_t b = m->cols / m->scales / 32; b > 1; b /= 2)
        s.shift++;
    return s;
}

static bool alike(const struct matrix *a, const struct matrix *b)
{
    return a->kind == b->kind && a->scale_type == b->scale_type && (!is_int4(a) || a->cols / a->scales == b->cols / b->scales);
}

static struct gk_matrix gk_of(const struct matrix *m) { return (struct gk_matrix){m->data, m->scale, (int)m->rows}; }

static enum gk_order order_of(const struct matrix *m) { return gk_order_of(stored_as(m).kind); }

static bool qkv_alike(const struct layer_weights *l) { return (!l->k.rows || alike(&l->q, &l->k)) && (!l->v.rows || alike(&l->q, &l->v)); }

static int check_experts(const struct passes *p, int i, struct err *e)
{
    const struct layer_weights *l = &p->w.layer[i];

    for (int x = 0; x < p->g->experts; x++)
        if (!alike(l->expert_gate, &l->expert_gate[x]) || !alike(l->expert_gate, &l->expert_up[x]) || !alike(l->expert_down, &l->expert_down[x]))
            return err_set(e, EXIT_UNAVAILABLE, "layer %d: expert %d is stored otherwise than expert 0: use --device cpu", i, x);
    return 0;
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

static void *room(struct passes *p, size_t n, size_t each, struct err *e) { return e->code ? NULL : device_alloc(p->device, (uint64_t)n * each, e); }

static uint16_t *room_prepared(struct passes *p, size_t rows, int n, struct err *e) { return room(p, rows, 2 * sizeof(uint16_t) * (size_t)gk_padded(n), e); }

/* The buffer of vectors of n columns among those of one role: the columns past n stay zero only when one width has it. */
static void add_width(struct passes *p, struct prepared *list, int cap, size_t rows, int n, struct err *e)
{
    for (int i = 0; i < cap; i++) {
        if (list[i].n == n)
            return;
        if (!list[i].n) {
            list[i] = (struct prepared){n, room_prepared(p, rows, n, e)};
            return;
        }
    }
    if (!e->code)
        (void)err_set(e, EXIT_UNAVAILABLE, "layers of more than %d widths: use --device cpu", cap);
}

static const struct prepared *of_width(const struct prepared *list, int n)
{
    while (list->n != n)
        list++;
    return list;
}

static int q_wide(const struct gemma *g, int i) { return g->heads * g->layer[i].head_dim; }

/* How many blocks share one token's positions: enough for two a multiprocessor, no more than there are stripes to see.  Up to 8 tokens each as if it were alone. */
static int splits_of(const struct passes *p, int i, int tokens)
{
    const struct gemma_layer *l = &p->g->layer[i];
    const int groups = gk_head_groups(p->g->heads, l->kv_heads) * (tokens > 8 ? tokens : 1), stripes = l->full ? 64 : p->g->window / GK_STRIPE + 1;
    const int fair = (2 * p->shape.sms + groups - 1) / groups;

    return fair < stripes ? fair : stripes;
}

static void alloc_layers(struct passes *p, size_t *partial, size_t *counts, struct err *e)
{
    const struct gemma *g = p->g;

    for (int i = 0; i < g->layers; i++) {
        const struct gemma_layer *l = &g->layer[i];
        const size_t rows = p->w.layer[i].q.rows + p->w.layer[i].k.rows + p->w.layer[i].v.rows;
        add_width(p, p->q, 2, PASS_TOKENS, q_wide(g, i), e);
        add_width(p, p->att, 2, PASS_TOKENS, q_wide(g, i), e);
        add_width(p, p->act, GK_SEGMENTS, PASS_TOKENS, l->mlp, e);
        for (int tokens = 8; tokens <= PASS_TOKENS; tokens++)
            *partial = larger(gk_attend_partial(tokens, g->heads, l->kv_heads, l->head_dim, splits_of(p, i, tokens)), *partial);
        if (!alike(&p->w.layer[i].gate, &p->w.layer[i].up))
            p->ldy = (int)larger((size_t)l->mlp, (size_t)p->ldy);
        *counts = larger((size_t)gk_attend_groups(PASS_TOKENS, g->heads, l->kv_heads), larger(rows / (size_t)l->head_dim, *counts));
        p->ldy = (int)larger(rows, (size_t)p->ldy);
    }
}

static void alloc_experts(struct passes *p, struct err *e)
{
    const struct gemma *g = p->g;
    const size_t pairs = (size_t)PASS_TOKENS * (size_t)g->top_k;

    p->x_experts = room_prepared(p, PASS_TOKENS, g->hidden, e);
    p->expert_act = (struct prepared){g->expert_mlp, room_prepared(p, pairs, g->expert_mlp, e)};
    p->expert_y = room(p, pairs * (size_t)g->hidden, sizeof(float), e);
    p->weight = room(p, pairs, sizeof(float), e);
    p->job = room(p, (size_t)gk_jobs(PASS_TOKENS, g->experts, g->top_k), sizeof *p->job, e);
    p->jobs = room(p, 1, sizeof *p->jobs, e);
}

static int alloc(struct passes *p, struct err *e)
{
    const struct gemma *g = p->g;
    const size_t flat = (size_t)g->ple * (size_t)g->layers, blocks = 4 * (size_t)p->shape.sms;
    size_t partial = 0, counts = larger((size_t)g->layers, 1);

    p->ldy = (int)larger(larger((size_t)g->hidden, flat), (size_t)g->experts);
    alloc_layers(p, &partial, &counts, e);
    p->ldx = 2 * gk_padded(g->hidden);
    p->h = room(p, (size_t)PASS_TOKENS * (size_t)g->hidden, sizeof(float), e);
    p->y = room(p, (size_t)PASS_TOKENS * (size_t)p->ldy, sizeof(float), e);
    p->x = room_prepared(p, PASS_TOKENS, g->hidden, e);
    p->x_again = room_prepared(p, PASS_TOKENS, g->hidden, e);
    if (g->ple || g->experts)
        p->x_other = room_prepared(p, PASS_TOKENS, g->hidden, e);
    p->partial = room(p, partial, sizeof(float), e);
    p->count = room(p, counts, sizeof *p->count, e);
    if (g->ple) {
        p->ple = room(p, PASS_TOKENS * flat, sizeof(float), e);
        p->ple_act = (struct prepared){g->ple, room_prepared(p, PASS_TOKENS, g->ple, e)};
    }
    if (g->experts)
        alloc_experts(p, e);
    p->logits = room(p, (size_t)HEAD_TOKENS * (size_t)g->vocab, sizeof(float), e);
    p->best = room(p, HEAD_TOKENS, sizeof *p->best, e);
    p->best_partial = room(p, HEAD_TOKENS * blocks, sizeof *p->best_partial, e);
    p->top = room(p, HEAD_TOKENS, sizeof *p->top, e);
    p->top_partial = room(p, HEAD_TOKENS * blocks, sizeof *p->top_partial, e);
    p->params = room(p, params_of(p, PASS_TOKENS, PASS_REST).end, 1, e);
    return e->code ? -1 : 0;
}

/* --- the model's vectors --------------------------------------------------------------------------------------------- */

/* All vectors in one block: counted first, then copied. */
struct vectors { uint8_t *host, *device; size_t n; };

static void *take(struct vectors *v, const void *from, size_t bytes)
{
    void *to = v->device ? v->device + v->n : NULL;

    if (from && v->host)
        memcpy(v->host + v->n, from, bytes);
    if (from)
        v->n += (bytes + 255) / 256 * 256;
    return from ? to : NULL;
}

static void take_floats(struct vectors *v, float **p, size_t n)
{
    float *const to = take(v, *p, n * sizeof **p);

    if (v->device)
        *p = to;
}

static void take_layer(struct vectors *v, struct passes *p, int i)
{
    const struct gemma *g = p->g;
    struct layer_weights *l = &p->w.layer[i];
    const size_t hidden = (size_t)g->hidden, hd = (size_t)g->layer[i].head_dim, experts = (size_t)g->experts;
    float **const wide[] = {&l->input_norm, &l->post_attention_norm, &l->pre_mlp_norm, &l->post_mlp_norm, &l->ple_norm, &l->router_scale, &l->post_mlp_norm_1,
        &l->pre_mlp_norm_2, &l->post_mlp_norm_2};

    for (size_t j = 0; j < sizeof wide / sizeof *wide; j++)
        take_floats(v, wide[j], hidden);
    take_floats(v, &l->q_norm, hd);
    take_floats(v, &l->k_norm, hd);
    take_floats(v, &l->expert_scale, experts);
    if (!experts)
        return;
    struct gk_expert *table = xcalloc(2 * experts, sizeof *table);
    for (size_t x = 0; x < experts; x++) {
        table[x] = (struct gk_expert){{gk_of(&l->expert_gate[x]), gk_of(&l->expert_up[x])}};
        table[experts + x] = (struct gk_expert){{gk_of(&l->expert_down[x])}};
    }
    p->expert_up[i] = take(v, table, 2 * experts * sizeof *table);
    p->expert_down[i] = p->expert_up[i] ? p->expert_up[i] + experts : NULL;
    free(table);
}

static void take_all(struct vectors *v, struct passes *p)
{
    v->n = 0;
    take_floats(v, &p->w.norm, (size_t)p->g->hidden);
    take_floats(v, &p->w.ple_projection_norm, (size_t)p->g->ple);
    for (int i = 0; i < p->g->layers; i++)
        take_layer(v, p, i);
}

static int upload_vectors(struct passes *p, struct err *e)
{
    struct vectors v = {0};

    take_all(&v, p);
    v.host = device_pinned(p->device, v.n, e);
    v.device = v.host ? device_alloc(p->device, v.n, e) : NULL;
    if (!v.device)
        return -1;
    const size_t n = v.n;
    take_all(&v, p);
    return device_upload(p->device, v.device, v.host, n, e) || device_wait(p->device, e) ? -1 : 0;
}

/* The table's rows that a token needs are read from this process's memory. */
static int reach_ple(struct passes *p, struct err *e)
{
    struct matrix *m = &p->w.ple_table;
    const size_t data = m->rows * matrix_row_bytes(m), all = (size_t)matrix_bytes(m);
    const uint8_t *from = m->data, *end = m->data + data;

    if (m->scale && m->scale + (all - data) > end)
        end = m->scale + (all - data);
    if (m->scale && m->scale < from)
        from = m->scale;
    const uint8_t *at = device_map(p->device, from, (size_t)(end - from), e);
    if (!at)
        return -1;
    m->data = at + (m->data - from);
    if (m->scale)
        m->scale = at + (m->scale - from);
    return 0;
}

static bool same_rope(const struct gemma_layer *a, const struct gemma_layer *b)
{
    return a->head_dim == b->head_dim && a->rope_pairs == b->rope_pairs && a->rope_theta == b->rope_theta && a->rope_factor == b->rope_factor;
}

static void find_ropes(struct passes *p)
{
    const struct gemma *g = p->g;

    for (int i = 0; i < g->layers; i++) {
        const struct gemma_layer *l = &g->layer[i];
        int j = 0;
        while (!same_rope(&g->layer[j], l))
            j++;
        p->rope_of[i] = j < i ? p->rope_of[j] : p->ropes;
        if (j < i)
            continue;
        struct rope *r = &p->rope[p->ropes++];
        *r = (struct rope){l->rope_pairs, xcalloc((size_t)l->rope_pairs + 1, sizeof *r->freq)};
        for (int k = 0; k < r->pairs; k++)
            r->freq[k] = (float)(1 / pow(l->rope_theta, 2.0 * k / l->head_dim) / l->rope_factor);
    }
}

struct params params_of(const struct passes *p, int tokens, enum pass_reach reach)
{
    const size_t t = (size_t)tokens;
    struct params o = {.start = reach == PASS_REST ? params_of(p, PASS_TOKENS, PASS_FIRST).end : 0};

    o.token = o.start;
    o.end = o.token + t * sizeof(struct gk_token);
    for (int i = 0; i < p->ropes; i++) {
        o.angles[i] = o.end;
        o.end += t * 2 * (size_t)p->rope[i].pairs * sizeof(float);
    }
    o.from = o.end;
    o.end += t * sizeof(int);
    return o;
}

/* Two are asked for at a time, which with what is being read must stay until it is: a third of the cache at most (an L4 has 48 MiB, a T4 4). */
static uint64_t ahead_room(uint64_t l2)
{
    const uint64_t most = (uint64_t)8 << 20;

    return l2 / 6 < most ? l2 / 6 / 128 * 128 : most;
}

int passes_init(struct passes *p, struct device *d, const struct gemma *g, const struct weights *w, bool exact, bool ple_on_device, struct err *e)
{
    *p = (struct passes){.g = g, .w = *w, .device = d, .exact = exact, .shape = {device_facts(d)->sms}, .ahead = ahead_room(device_facts(d)->l2)};
    for (int i = 0; i < g->layers; i++) {
        const struct layer_weights *l = &w->layer[i];
        if (check_experts(p, i, e))
            return -1;
        p->experts_apart |= g->experts && (!alike(&l->gate, &l->up) || !alike(&l->gate, l->expert_gate) || !alike(&l->down, l->expert_down));
        p->last_owner = g->layer[i].kv_from == i ? i : p->last_owner;
    }
    graph_make(&p->graph, g, p->experts_apart);
    find_ropes(p);
    return alloc(p, e) || upload_vectors(p, e) || (g->ple && !ple_on_device && reach_ple(p, e)) ? -1 : 0;
}

void passes_free(struct passes *p)
{
    for (int i = 0; i < p->ropes; i++)
        free(p->rope[i].freq);
}

/* --- launches -------------------------------------------------------------------------------------------------------- */

/* One pass while it is built. */
struct making {
    struct pass *to;
    const struct passes *p;
    int tokens, layer;
    struct params at;
    struct err *e;
};

static const struct layer_weights *weights_of(const struct making *m) { return &m->p->w.layer[m->layer]; }
static const struct gemma_layer *layer_of(const struct making *m) { return &m->p->g->layer[m->layer]; }
static const struct gk_token *tokens_of(const struct making *m) { return (const struct gk_token *)(m->p->params + m->at.token); }

static void add(struct making *m, const struct gk_launch *l)
{
    struct pass *to = m->to;

    to->launch = xreallocarray(to->launch, to->n + 1, sizeof *to->launch);
    to->launch[to->n] = *l;
    const char *wrong = gk_shape(&to->launch[to->n++], &m->p->shape);
    if (wrong && !m->e->code)
        (void)err_set(m->e, EXIT_UNAVAILABLE, "the GPU's kernel %s cannot do this model: %s: use --device cpu", l->label, wrong);
}

static struct gk_launch linear(const struct making *m, const char *label, const struct matrix *w, const uint16_t *x, int ldx)
{
    struct gk_launch l = {.kernel = GK_LINEAR, .label = label, .bytes = matrix_bytes(w)};
    const struct stored s = stored_as(w);

    l.a.linear = (struct gk_linear){.kind = s.kind, .scale_shift = s.shift, .rounded = m->p->exact, .tokens = m->tokens, .cols = (int)w->cols, .x = x, .ldx = ldx, .m = {gk_of(w)}, .segments = 1,
        .epilogue = GK_STORE, .y = m->p->y, .ldy = m->p->ldy, .eps = (float)m->p->g->eps, .count = m->p->count, .token = tokens_of(m)};
    return l;
}

static void add_segment(struct gk_launch *l, const struct matrix *w)
{
    l->a.linear.m[l->a.linear.segments++] = gk_of(w);
    l->bytes += matrix_bytes(w);
}

/* With more than 8 tokens what finishes a linear is a launch of its own. */
static void add_finished(struct making *m, struct gk_launch *l)
{
    if (m->tokens <= 8) {
        add(m, l);
        return;
    }
    struct gk_launch first = *l, second = *l;
    first.a.linear.finish = GK_NOTHING;
    add(m, &first);
    second.kernel = GK_FINISH;
    second.bytes = 0;
    add(m, &second);
}

static struct gk_out out_for(const struct passes *p, uint16_t *x, const struct matrix *w, const float *norm)
{
    return (struct gk_out){x, p->ldx, order_of(w), 0, norm};
}

/* What the next layer, or the head, begins with. */
static struct gk_out next_input(const struct making *m)
{
    const struct passes *p = m->p;

    return m->layer + 1 < p->g->layers ? out_for(p, p->x, &p->w.layer[m->layer + 1].q, p->w.layer[m->layer + 1].input_norm) : out_for(p, p->x, &p->w.head, p->w.norm);
}

static void residual(const struct making *m, struct gk_launch *l, const float *norm, float scalar)
{
    l->a.linear.finish = GK_RESIDUAL;
    l->a.linear.f.residual = (struct gk_residual){.h = m->p->h, .n = m->p->g->hidden, .w = norm, .scalar = scalar};
}

static void give(struct gk_launch *l, struct gk_out out)
{
    struct gk_residual *r = &l->a.linear.f.residual;

    r->out[r->outs++] = out;
}

/* Into the second cache while there is little else to read. */
static struct gk_ahead ahead_of(const struct making *m, const struct matrix *w)
{
    const uint64_t bytes = w->rows * matrix_row_bytes(w);

    return (struct gk_ahead){w->data, (uint32_t)(bytes < m->p->ahead ? bytes : m->p->ahead)};
}

static void embed(struct making *m)
{
    const struct passes *p = m->p;
    const struct matrix *w = &p->w.embed;
    const struct stored s = stored_as(w);
    struct gk_launch l = {.kernel = GK_EMBED, .label = "embed", .bytes = (uint64_t)m->tokens * matrix_row_bytes(w)};

    l.a.embed = (struct gk_embed){.tokens = m->tokens, .table = {s.kind, w->data, w->scale, (int)w->cols, s.shift}, .token = tokens_of(m),
        .scale = (float)sqrt((double)p->g->hidden), .eps = (float)p->g->eps, .h = p->h, .outs = 1};
    l.a.embed.out[0] = out_for(p, p->x, &p->w.layer[0].q, p->w.layer[0].input_norm);
    if (p->g->ple) {
        l.a.embed.out[1] = (struct gk_out){p->x_other, p->ldx, order_of(&p->w.ple_model_projection), 1, NULL};
        l.a.embed.outs = 2;
    }
    add(m, &l);
}

static void per_layer(struct making *m)
{
    const struct passes *p = m->p;
    const struct matrix *table = &p->w.ple_table;
    struct gk_launch l = linear(m, "ple", &p->w.ple_model_projection, p->x_other, p->ldx);
    const struct stored s = stored_as(table);

    l.a.linear.finish = GK_PLE;
    l.a.linear.group_rows = p->g->ple;
    l.a.linear.f.ple = (struct gk_ple){.n = p->g->ple, .groups = p->g->layers, .scale = (float)(1 / sqrt((double)p->g->hidden)), .w = p->w.ple_projection_norm,
        .table = {s.kind, table->data, table->scale, (int)table->cols, s.shift}, .ple = p->ple};
    add_finished(m, &l);
}

static struct gk_cache cache_of(const struct making *m)
{
    const struct pages_layer *l = &m->p->pages->layer[m->layer];

    return (struct gk_cache){m->p->k, m->p->v, m->p->table + l->entry, (int)m->p->pages->ld, l->ring};
}

/* A layer's normed input for this matrix: x, or where x has another one's order, made again from the stream. */
static const uint16_t *input_again(struct making *m, const struct matrix *w, const struct matrix *first, const float *norm)
{
    const struct passes *p = m->p;
    struct gk_launch l = {.kernel = GK_PREPARE, .label = "prepare"};

    if (order_of(w) == order_of(first))
        return p->x;
    l.a.prepare = (struct gk_prepare){.tokens = m->tokens, .n = p->g->hidden, .eps = (float)p->g->eps, .h = p->h, .outs = 1};
    l.a.prepare.out[0] = out_for(p, p->x_again, w, norm);
    add(m, &l);
    return p->x_again;
}

/* q, k and v, which are stored differently, one by one into y; then what finishes them. */
static void qkv_apart(struct making *m, struct gk_launch *l)
{
    const struct layer_weights *w = weights_of(m);
    const struct matrix *const part[] = {&w->q, &w->k, &w->v};
    size_t row = 0;

    for (int i = 0; i < l->a.linear.segments; row += part[i++]->rows) {
        struct gk_launch one = linear(m, "qkv", part[i], input_again(m, part[i], &w->q, w->input_norm), m->p->ldx);
        one.a.linear.y += row;
        add(m, &one);
    }
    l->kernel = GK_FINISH;
    l->bytes = 0;
    add(m, l);
}

static void qkv(struct making *m)
{
    const struct passes *p = m->p;
    const struct gemma_layer *g = layer_of(m);
    const struct layer_weights *w = weights_of(m);
    const struct prepared *q = of_width(p->q, q_wide(p->g, m->layer));
    const int rope = p->rope_of[m->layer];
    const bool owner = g->kv_from == m->layer;
    struct gk_launch l = linear(m, "qkv", &w->q, p->x, p->ldx);

    if (owner)
        add_segment(&l, &w->k);
    if (owner && !g->v_is_k)
        add_segment(&l, &w->v);
    l.a.linear.finish = GK_HEADS;
    l.a.linear.group_rows = g->head_dim;
    l.a.linear.f.heads = (struct gk_heads){.head_dim = g->head_dim, .heads = p->g->heads, .kv_heads = owner ? g->kv_heads : 0, .v_is_k = g->v_is_k, .v_norm = p->g->v_norm,
        .q_norm = w->q_norm, .k_norm = w->k_norm, .angles = (const float *)(p->params + m->at.angles[rope]), .pairs = p->rope[rope].pairs, .q = q->x,
        .ldq = 2 * gk_padded(q->n), .cache = cache_of(m)};
    if (qkv_alike(w))
        add_finished(m, &l);
    else
        qkv_apart(m, &l);
}

static void attention(struct making *m)
{
    const struct passes *p = m->p;
    const struct gemma_layer *g = layer_of(m);
    const struct layer_weights *w = weights_of(m);
    const struct prepared *q = of_width(p->q, q_wide(p->g, m->layer)), *att = of_width(p->att, q->n);
    struct gk_launch l = {.kernel = GK_ATTEND, .label = "attention"};

    l.a.attend = (struct gk_attend){.tokens = m->tokens, .heads = p->g->heads, .kv_heads = g->kv_heads, .head_dim = g->head_dim, .window = g->full ? 0 : p->g->window,
        .scale = (float)p->g->score_scale, .q = q->x, .ldq = 2 * gk_padded(q->n), .cache = cache_of(m), .token = tokens_of(m), .splits = splits_of(p, m->layer, m->tokens),
        .partial = p->partial, .count = p->count, .out = {att->x, 2 * gk_padded(att->n), order_of(&w->o), 1, NULL}, .ahead = {ahead_of(m, &w->o), ahead_of(m, &w->gate)}};
    add(m, &l);
}

static void output(struct making *m)
{
    const struct passes *p = m->p;
    const struct layer_weights *w = weights_of(m);
    const struct prepared *att = of_width(p->att, q_wide(p->g, m->layer));
    struct gk_launch l = linear(m, "o", &w->o, att->x, 2 * gk_padded(att->n));

    residual(m, &l, w->post_attention_norm, 1);
    give(&l, out_for(p, p->x, &w->gate, w->pre_mlp_norm));
    if (p->g->experts) {
        give(&l, out_for(p, p->x_other, &w->router, w->router_scale));
        give(&l, out_for(p, p->x_experts, w->expert_gate, w->pre_mlp_norm_2));
    }
    add_finished(m, &l);
}

static void router(struct making *m)
{
    const struct passes *p = m->p;
    struct gk_launch l = linear(m, "router", &weights_of(m)->router, p->x_other, p->ldx);

    l.a.linear.finish = GK_ROUTE;
    l.a.linear.f.route = (struct gk_route){.experts = p->g->experts, .top_k = p->g->top_k, .expert_scale = weights_of(m)->expert_scale, .weight = p->weight, .job = p->job,
        .jobs = p->jobs};
    add_finished(m, &l);
}

/* The experts' part of a launch: gate and up (x by token), or down (x by pair). */
static void beside(const struct making *m, struct gk_launch *l, bool down)
{
    const struct passes *p = m->p;
    const struct layer_weights *w = weights_of(m);
    const struct matrix *one = down ? w->expert_down : w->expert_gate;
    struct gk_linear *a = &l->a.linear;

    a->expert = down ? p->expert_down[m->layer] : p->expert_up[m->layer];
    a->expert_rows = (int)one->rows, a->expert_cols = (int)one->cols;
    a->top_k = p->g->top_k;
    a->max_jobs = gk_jobs(m->tokens, p->g->experts, p->g->top_k);
    a->job = p->job, a->jobs = p->jobs;
    a->expert_x = down ? p->expert_act.x : p->x_experts;
    a->expert_ldx = down ? 2 * gk_padded(p->g->expert_mlp) : p->ldx;
    a->expert_act = (struct gk_out){p->expert_act.x, 2 * gk_padded(p->g->expert_mlp), order_of(w->expert_down), 1, NULL};
    a->expert_y = p->expert_y, a->expert_ldy = p->g->hidden;
    l->bytes += (uint64_t)m->tokens * (uint64_t)p->g->top_k * matrix_bytes(one) * (down ? 1 : 2);
}

/* Are the experts a launch of their own? */
static bool apart(const struct making *m) { return m->p->experts_apart || m->tokens > 8; }

static struct gk_launch experts_alone(const struct making *m, const char *label, bool down)
{
    const struct layer_weights *w = weights_of(m);
    struct gk_launch l = linear(m, label, down ? w->expert_down : w->expert_gate, NULL, 0);

    l.bytes = 0;
    l.a.linear.segments = 0;
    l.a.linear.epilogue = down ? GK_STORE : GK_GATED;
    beside(m, &l, down);
    return l;
}

/* up, which is stored differently, into y, for the gate to take it from there. */
static void up_apart(struct making *m, struct gk_launch *gate)
{
    const struct layer_weights *w = weights_of(m);
    struct gk_launch up = linear(m, "gate_up", &w->up, input_again(m, &w->up, &w->gate, w->pre_mlp_norm), m->p->ldx);

    add(m, &up);
    gate->a.linear.epilogue = GK_GATE_BY;
    gate->a.linear.by = up.a.linear.y, gate->a.linear.ldby = up.a.linear.ldy;
}

static void gate_up(struct making *m)
{
    const struct passes *p = m->p;
    const struct layer_weights *w = weights_of(m);
    const struct prepared *act = of_width(p->act, layer_of(m)->mlp);
    struct gk_launch l = linear(m, "gate_up", &w->gate, p->x, p->ldx);

    if (alike(&w->gate, &w->up)) {
        add_segment(&l, &w->up);
        l.a.linear.epilogue = GK_GATED;
    } else {
        up_apart(m, &l);
    }
    l.a.linear.act = (struct gk_out){act->x, 2 * gk_padded(act->n), order_of(&w->down), 1, NULL};
    l.a.linear.act_n = act->n;
    if (p->g->experts && !apart(m))
        beside(m, &l, false);
    add(m, &l);
    if (p->g->experts && apart(m)) {
        struct gk_launch x = experts_alone(m, "experts_up", false);
        add(m, &x);
    }
}

static void down(struct making *m)
{
    const struct passes *p = m->p;
    const struct layer_weights *w = weights_of(m);
    const struct prepared *act = of_width(p->act, layer_of(m)->mlp);
    struct gk_launch l = linear(m, "down", &w->down, act->x, 2 * gk_padded(act->n));
    const bool experts = p->g->experts;

    if (experts && apart(m)) {
        struct gk_launch x = experts_alone(m, "experts_down", true);
        add(m, &x);
    } else if (experts) {
        beside(m, &l, true);
    }
    residual(m, &l, w->post_mlp_norm, p->g->ple ? 1 : w->scalar);
    if (experts) {
        struct gk_residual *r = &l.a.linear.f.residual;
        l.a.linear.finish = GK_EXPERTS;
        r->dense_w = w->post_mlp_norm_1, r->experts_w = w->post_mlp_norm_2, r->ey = p->expert_y, r->weight = p->weight, r->top_k = p->g->top_k;
    }
    give(&l, p->g->ple ? (struct gk_out){p->x, p->ldx, order_of(&w->ple_gate), 1, NULL} : next_input(m));
    add_finished(m, &l);
}

static void ple_gate(struct making *m)
{
    const struct passes *p = m->p;
    const struct layer_weights *w = weights_of(m);
    struct gk_launch l = linear(m, "ple_gate", &w->ple_gate, p->x, p->ldx);

    l.a.linear.epilogue = GK_GATE_BY;
    l.a.linear.act = (struct gk_out){p->ple_act.x, 2 * gk_padded(p->g->ple), order_of(&w->ple_projection), 1, NULL};
    l.a.linear.act_n = p->g->ple;
    l.a.linear.by = p->ple + (size_t)m->layer * (size_t)p->g->ple;
    l.a.linear.ldby = p->g->ple * p->g->layers;
    l.a.linear.ahead[0] = ahead_of(m, m->layer + 1 < p->g->layers ? &p->w.layer[m->layer + 1].q : &p->w.head);
    add(m, &l);
}

static void ple_out(struct making *m)
{
    const struct layer_weights *w = weights_of(m);
    struct gk_launch l = linear(m, "ple_out", &w->ple_projection, m->p->ple_act.x, 2 * gk_padded(m->p->g->ple));

    residual(m, &l, w->ple_norm, w->scalar);
    give(&l, next_input(m));
    add_finished(m, &l);
}

/* Whether a pass of this reach holds a node. */
static bool reaches(const struct passes *p, enum pass_reach reach, const struct graph_node *node)
{
    const bool first = node->layer < p->last_owner || (node->layer == p->last_owner && node->part == PART_QKV);

    return reach == PASS_WHOLE || first == (reach == PASS_FIRST);
}

int pass_layers(struct pass *to, const struct passes *p, int tokens, enum pass_reach reach, struct err *e)
{
    static void (*const makers[PARTS])(struct making *) = {
        [PART_EMBED] = embed, [PART_PLE] = per_layer, [PART_QKV] = qkv, [PART_ATTENTION] = attention, [PART_O] = output, [PART_ROUTER] = router, [PART_GATE_UP] = gate_up,
        [PART_DOWN] = down, [PART_PLE_GATE] = ple_gate, [PART_PLE_OUT] = ple_out,
    };
    struct making m = {.to = to, .p = p, .tokens = tokens, .at = params_of(p, tokens, reach), .e = e};

    *to = (struct pass){0};
    for (size_t i = 0; i < p->graph.n; i++) {
        const struct graph_node *node = &p->graph.node[i];
        m.layer = node->layer;
        if (!makers[node->part] || !reaches(p, reach, node))        /* experts that stand apart come with gate_up and down; the head is pass_head()'s */
            continue;
        makers[node->part](&m);
        to->end[node->layer + 1] = to->n;
    }
    return e->code ? -1 : 0;
}

int pass_move(const struct passes *p, int to, int from, struct err *e)
{
    const struct prepared *q = of_width(p->q, q_wide(p->g, p->last_owner));
    const size_t hidden = (size_t)p->g->hidden, wide = 2 * (size_t)gk_padded(q->n), flat = (size_t)p->g->ple * (size_t)p->g->layers, a = (size_t)to, b = (size_t)from;

    return device_copy(p->device, p->h + a * hidden, p->h + b * hidden, hidden * sizeof *p->h, e) ||
        device_copy(p->device, q->x + a * wide, q->x + b * wide, wide * sizeof *q->x, e) ||
        (flat && device_copy(p->device, p->ple + a * flat, p->ple + b * flat, flat * sizeof *p->ple, e)) ? -1 : 0;
}

int pass_head(struct pass *to, const struct passes *p, int tokens, const struct pass_rows *rows, int wants, struct err *e)
{
    struct making m = {.to = to, .p = p, .tokens = tokens, .e = e};
    const struct matrix *w = &p->w.head;

    if (rows) {
        const size_t from = params_of(p, rows->tokens, PASS_REST).from + (size_t)rows->first * sizeof(int);
        struct gk_launch l = {.kernel = GK_PREPARE, .label = "prepare"};
        l.a.prepare = (struct gk_prepare){.tokens = tokens, .n = p->g->hidden, .eps = (float)p->g->eps, .h = p->h, .from = (const int *)(p->params + from), .outs = 1};
        l.a.prepare.out[0] = out_for(p, p->x, w, p->w.norm);
        add(&m, &l);
    }
    struct gk_launch l = linear(&m, "head", w, p->x, p->ldx);
    l.a.linear.epilogue = GK_HEAD;
    l.a.linear.y = wants ? p->logits : NULL;
    l.a.linear.ldy = p->g->vocab;
    l.a.linear.softcap = (float)p->g->softcap;
    l.a.linear.finish = GK_BEST;
    l.a.linear.f.choice = (struct gk_choice){.best = p->best, .partial = p->best_partial, .banned = p->banned, .n_banned = p->n_banned,
        .top = wants & PASS_TOP ? p->top : NULL, .top_partial = p->top_partial};
    add(&m, &l);
    return e->code ? -1 : 0;
}

void pass_free(struct pass *to) { free(to->launch); }
