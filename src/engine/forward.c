#include "engine/forward.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine/choose.h"
#include "engine/pace.h"

enum {
    ROWS_BYTES = 32768,         /* weights that one piece of work reads: small, so that threads end together */
    ALONE_BYTES = 1 << 20,      /* the same on one thread, where each piece only costs the calls that make it */
    HEAD_TOKENS = 16,           /* tokens whose logits are held at once */
    CAP_PIECE = 8192            /* logits that one piece of work caps */
};

/* One token of the step. */
struct token {
    struct engine_item *item;
    struct seq *seq;
    long position;
    size_t row;                 /* its row of ple and of the angles */
    int id;
    bool last;                  /* of its item */
};

/* One linear: y [n, w->rows] = x [n, w->cols] w^T. */
struct product {
    const struct matrix *w;
    const float *x; size_t ldx, n;
    float *y; size_t ldy;
    const uint8_t *act;         /* x prepared for fast mode; NULL = not needed */
};

/* One expert's share of a step: rows [first, first + n) of the gathered tokens. */
struct share { size_t first, n; };

/* The angles of one kind of rotary embedding. */
struct turns {
    float *freq; size_t pairs;
    size_t n;                   /* pairs, made a multiple of 16 by pairs that do not turn */
    float *angle;               /* [rows][2][n] cosines and sines of the step's positions */
};

struct forward {
    const struct gemma *g;
    const struct weights *w;
    const struct kernels *k;
    struct par *par;
    enum engine_math math;
    struct paces paces;

    size_t hidden, q_wide, kv_wide, mlp_wide, flat;     /* widths of the buffers' rows: the most that a layer needs */
    float *h, *x, *y;           /* [tokens][hidden] the stream, a linear's input, its output */
    float *q, *k_new, *v_new, *att;
    float *gate, *up;
    float *ple, *ple_gate;      /* [tokens][layers * ple], [tokens][ple] */
    float *m1;                  /* [tokens][hidden] the dense MLP's output beside experts */
    float *prob;                /* [tokens][experts] */
    float *ex, *ey, *egate, *eup;   /* [tokens * top_k][…] gathered for the experts */
    size_t *slot;               /* [tokens][top_k] rows of ex, by rising expert */
    float *weight;              /* [tokens][top_k] */
    struct share *share;        /* [experts] */
    struct product *product;    /* room for 2 * experts + 4 */
    float *logits;              /* [HEAD_TOKENS][vocab] */
    uint8_t *act; size_t act_size;  /* the inputs of one multiply(), prepared */
    struct chooser *chooser;
    struct turns *turns[GEMMA_MAX_LAYERS];      /* of each layer, shared by equal ones */

    struct token token[ENGINE_STEP_TOKENS], sorted[ENGINE_STEP_TOKENS];
    size_t n;                   /* tokens in work */
    int layer;
};

/* --- work on the pool ------------------------------------------------------------------------------------------------ */

static void each_token(struct forward *f, void (*fn)(void *f, size_t t))
{
    if (f->n == 1)
        fn(f, 0);
    else
        par_for(f->par, f->n, fn, f);
}

struct products { const struct forward *f; struct product *p; size_t n; };

static size_t piece_rows(const struct forward *f, const struct matrix *w)
{
    const size_t rows = (par_threads(f->par) > 1 ? ROWS_BYTES : ALONE_BYTES) / matrix_row_bytes(w) / 16 * 16;

    return rows ? rows : 16;
}

static size_t pieces(const struct forward *f, const struct product *p)
{
    return (p->w->rows + piece_rows(f, p->w) - 1) / piece_rows(f, p->w);
}

static void multiply_piece(void *arg, size_t i)
{
    const struct products *s = arg;
    const struct kernels *k = s->f->k;
    const struct product *p = s->p;

    while (i >= pieces(s->f, p))
        i -= pieces(s->f, p++);
    const size_t rows = piece_rows(s->f, p->w), first = i * rows, end = first + rows < p->w->rows ? first + rows : p->w->rows;
    if (s->f->math == MATH_FAST)
        k->linear_fast(p->w, first, end, p->x, p->ldx, p->act, p->n, pace_of(&s->f->paces, p->w), p->y, p->ldy);
    else
        (s->f->math == MATH_EXACT ? k->linear : k->linear_judge)(p->w, first, end, p->x, p->ldx, p->n, p->y, p->ldy);
}

static bool is_prepared(const struct product *p) { return p->w->kind == W_INT4 || p->w->kind == W_INT8 || p->w->kind == W_FP8; }

/* Products that follow each other often share their input. */
static bool same_input(const struct product *p, size_t i)
{
    return i > 0 && p[i].x == p[i - 1].x && p[i].n == p[i - 1].n && p[i].w->kind == p[i - 1].w->kind;
}

static void prepare_token(void *arg, size_t i)
{
    const struct products *s = arg;
    size_t j = 0;

    for (;; j++) {
        const size_t n = is_prepared(&s->p[j]) && !same_input(s->p, j) ? s->p[j].n : 0;
        if (i < n)
            break;
        i -= n;
    }
    const struct product *p = &s->p[j];
    s->f->k->prepare(p->w->kind, p->x + i * p->ldx, p->w->cols, (uint8_t *)(uintptr_t)p->act + i * act_bytes(p->w->kind, p->w->cols));
}

static void prepare(struct forward *f, struct product *p, size_t n)
{
    size_t bytes = 0, tokens = 0;

    for (size_t i = 0; i < n; i++)
        if (is_prepared(&p[i]) && !same_input(p, i))
            bytes += p[i].n * act_bytes(p[i].w->kind, p[i].w->cols), tokens += p[i].n;
    if (bytes > f->act_size) {
        free(f->act);
        f->act = xaligned(64, bytes);
        f->act_size = bytes;
    }
    uint8_t *at = f->act;
    for (size_t i = 0; i < n; i++) {
        if (!is_prepared(&p[i]))
            continue;
        p[i].act = same_input(p, i) ? p[i - 1].act : at;
        if (!same_input(p, i))
            at += p[i].n * act_bytes(p[i].w->kind, p[i].w->cols);
    }
    struct products all = {f, p, n};
    if (tokens == 1)
        prepare_token(&all, 0);
    else
        par_for(f->par, tokens, prepare_token, &all);
}

/* Several linears at once. */
static void multiply(struct forward *f, struct product *p, size_t n)
{
    size_t count = 0;

    if (f->math == MATH_FAST)
        prepare(f, p, n);
    for (size_t i = 0; i < n; i++)
        count += pieces(f, &p[i]);
    par_for(f->par, count, multiply_piece, &(struct products){f, p, n});
}

static void linear(struct forward *f, const struct matrix *w, const float *x, size_t ldx, float *y, size_t ldy)
{
    multiply(f, &(struct product){w, x, ldx, f->n, y, ldy, NULL}, 1);
}

static void add(float *to, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += x[i];
}

static void scale(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

static const struct layer_weights *weights_of(const struct forward *f) { return &f->w->layer[f->layer]; }
static const struct gemma_layer *layer_of(const struct forward *f) { return &f->g->layer[f->layer]; }
static float eps(const struct forward *f) { return (float)f->g->eps; }

/* y = rms(y) w; to += y. */
static void add_normed(struct forward *f, float *to, float *y, const float *w)
{
    f->k->rms(y, w, f->hidden, eps(f), y);
    add(to, y, f->hidden);
}

/* --- embedding ------------------------------------------------------------------------------------------------------- */

static void embed_token(void *arg, size_t t)
{
    struct forward *f = arg;
    float *h = f->h + t * f->hidden;

    f->k->row(&f->w->embed, (size_t)f->token[t].id, h);
    scale(h, f->hidden, (float)sqrt((double)f->hidden));
}

/* ple[l] = (rms(projection of h per layer) + table row * sqrt(ple)) / sqrt(2); f->ple holds the projection on entry. */
static void per_layer_token(void *arg, size_t t)
{
    struct forward *f = arg;
    const size_t ple = (size_t)f->g->ple;
    float *ctx = f->ple + t * f->flat, *row = f->up + t * f->mlp_wide;

    f->k->row(&f->w->ple_table, (size_t)f->token[t].id, row);
    scale(ctx, f->flat, (float)(1 / sqrt((double)f->hidden)));
    scale(row, f->flat, (float)sqrt((double)ple));
    for (size_t i = 0; i < f->flat; i += ple)
        f->k->rms(ctx + i, f->w->ple_projection_norm, ple, eps(f), ctx + i);
    add(ctx, row, f->flat);
    scale(ctx, f->flat, (float)sqrt(0.5));
}

static void embed(struct forward *f)
{
    each_token(f, embed_token);
    if (f->g->ple) {
        linear(f, &f->w->ple_model_projection, f->h, f->hidden, f->ple, f->flat);
        each_token(f, per_layer_token);
    }
}

/* --- attention ------------------------------------------------------------------------------------------------------- */

static bool same_rope(const struct gemma_layer *a, const struct gemma_layer *b)
{
    return a->head_dim == b->head_dim && a->rope_pairs == b->rope_pairs && a->rope_theta == b->rope_theta && a->rope_factor == b->rope_factor;
}

/* The first layer with the same rotary embedding as layer i. */
static int first_alike(const struct gemma *g, int i)
{
    int j = 0;

    while (!same_rope(&g->layer[j], &g->layer[i]))
        j++;
    return j;
}

/* Pairs (i, i + head_dim / 2) turned by position * frequency[i]; those past rope_pairs stay. */
static void rope(const struct forward *f, float *x, size_t row)
{
    const size_t half = (size_t)layer_of(f)->head_dim / 2;
    const struct turns *turns = f->turns[f->layer];
    const float *c = turns->angle + row * 2 * turns->n;

    f->k->rotate(x, half, c, c + turns->n, turns->n);
}

static void before_attention(void *arg, size_t t)
{
    struct forward *f = arg;

    f->k->rms(f->h + t * f->hidden, weights_of(f)->input_norm, f->hidden, eps(f), f->x + t * f->hidden);
}

/* Norms and rotates q; norms and rotates k, norms v, and writes both into the cache. */
static void heads_of_token(void *arg, size_t t)
{
    struct forward *f = arg;
    const struct gemma_layer *p = layer_of(f);
    const struct layer_weights *w = weights_of(f);
    const struct token *at = &f->token[t];
    const size_t hd = (size_t)p->head_dim;
    float *q = f->q + t * f->q_wide;

    for (int i = 0; i < f->g->heads; i++, q += hd) {
        f->k->rms(q, w->q_norm, hd, eps(f), q);
        rope(f, q, at->row);
    }
    if (p->kv_from != f->layer)
        return;
    const struct kv_layer *c = &at->seq->layer[f->layer];
    for (int i = 0; i < p->kv_heads; i++) {
        const size_t to = kv_index(p, c, i, at->position), from = t * f->kv_wide + (size_t)i * hd;
        const float *v = (p->v_is_k ? f->k_new : f->v_new) + from;
        if (f->g->v_norm)
            f->k->rms(v, NULL, hd, eps(f), c->v + to);
        else
            memcpy(c->v + to, v, hd * sizeof *v);
        f->k->rms(f->k_new + from, w->k_norm, hd, eps(f), c->k + to);
        rope(f, c->k + to, at->row);
    }
}

/* Heads that share their keys are worked on together, unless that would leave threads without work. */
static size_t heads_together(const struct forward *f)
{
    size_t n = (size_t)f->g->heads / (size_t)layer_of(f)->kv_heads;

    while (n % 2 == 0 && (n > 4 || f->n * (size_t)f->g->heads / n < (size_t)par_threads(f->par)))
        n /= 2;
    return n;
}

struct attending { struct forward *f; size_t together; };

static void attend_heads(void *arg, size_t i)
{
    const struct attending *a = arg;
    struct forward *f = a->f;
    const struct gemma_layer *p = layer_of(f);
    const size_t heads = (size_t)f->g->heads, t = i * a->together / heads, head = i * a->together % heads, hd = (size_t)p->head_dim;
    const struct token *at = &f->token[t];
    struct kv_span span[2];
    const size_t spans = kv_spans(f->g, p, &at->seq->layer[f->layer], (int)(head / (heads / (size_t)p->kv_heads)), at->position, span);

    f->k->attend(f->q + t * f->q_wide + head * hd, a->together, hd, (float)f->g->score_scale, span, spans, f->att + t * f->q_wide + head * hd);
}

/* The rest of the pass needs only tokens whose logits or hidden states somebody wants. */
static bool wanted(const struct token *t)
{
    return (t->last && (t->item->logits || t->item->chosen)) || (t->item->watch && (t->item->watch->logits || t->item->watch->hidden));
}

static void drop_unwanted(struct forward *f)
{
    size_t n = 0;

    for (size_t t = 0; t < f->n; t++) {
        if (!wanted(&f->token[t]))
            continue;
        if (n != t) {
            f->token[n] = f->token[t];
            memcpy(f->h + n * f->hidden, f->h + t * f->hidden, f->hidden * sizeof *f->h);
            memcpy(f->q + n * f->q_wide, f->q + t * f->q_wide, f->q_wide * sizeof *f->q);
        }
        n++;
    }
    f->n = n;
}

static bool last_owner(const struct forward *f)
{
    for (int i = f->layer + 1; i < f->g->layers; i++)
        if (f->g->layer[i].kv_from == i)
            return false;
    return layer_of(f)->kv_from == f->layer;
}

static void after_attention(void *arg, size_t t)
{
    struct forward *f = arg;
    float *h = f->h + t * f->hidden;

    add_normed(f, h, f->y + t * f->hidden, weights_of(f)->post_attention_norm);
    f->k->rms(h, weights_of(f)->pre_mlp_norm, f->hidden, eps(f), f->x + t * f->hidden);
}

static void attention(struct forward *f)
{
    const struct layer_weights *w = weights_of(f);
    const bool owner = layer_of(f)->kv_from == f->layer;

    each_token(f, before_attention);
    struct product p[] = {
        {&w->q, f->x, f->hidden, f->n, f->q, f->q_wide, NULL},
        {&w->k, f->x, f->hidden, f->n, f->k_new, f->kv_wide, NULL},
        {&w->v, f->x, f->hidden, f->n, f->v_new, f->kv_wide, NULL},
    };
    multiply(f, p, !owner ? 1 : layer_of(f)->v_is_k ? 2 : 3);
    each_token(f, heads_of_token);
    if (last_owner(f))
        drop_unwanted(f);
    struct attending a = {f, heads_together(f)};
    par_for(f->par, f->n * (size_t)f->g->heads / a.together, attend_heads, &a);
    linear(f, &w->o, f->att, f->q_wide, f->y, f->hidden);
    each_token(f, after_attention);
}

/* --- MLP and experts ------------------------------------------------------------------------------------------------- */

static void gate_token(void *arg, size_t t)
{
    struct forward *f = arg;
    float *gate = f->gate + t * f->mlp_wide;

    f->k->gelu_mul(gate, f->up + t * f->mlp_wide, (size_t)layer_of(f)->mlp, gate);
}

/* y = down(gelu(gate x) * up x). */
static void mlp(struct forward *f)
{
    const struct layer_weights *w = weights_of(f);
    struct product p[] = {
        {&w->gate, f->x, f->hidden, f->n, f->gate, f->mlp_wide, NULL},
        {&w->up, f->x, f->hidden, f->n, f->up, f->mlp_wide, NULL},
    };

    multiply(f, p, 2);
    each_token(f, gate_token);
    linear(f, &w->down, f->gate, f->mlp_wide, f->y, f->hidden);
}

/* m1 = rms(y); the router's input (the raw stream, weightless norm) into y. */
static void router_input(void *arg, size_t t)
{
    struct forward *f = arg;
    const struct layer_weights *w = weights_of(f);
    float *h = f->h + t * f->hidden, *y = f->y + t * f->hidden;

    f->k->rms(y, w->post_mlp_norm_1, f->hidden, eps(f), f->m1 + t * f->hidden);
    f->k->rms(h, w->router_scale, f->hidden, eps(f), y);
    f->k->rms(h, w->pre_mlp_norm_2, f->hidden, eps(f), f->x + t * f->hidden);
}

/* The top_k experts of one token, weights renormalised among them, then scaled; kept by rising expert so that sums have one order. */
static void choose_experts(void *arg, size_t t)
{
    struct forward *f = arg;
    const size_t experts = (size_t)f->g->experts, top_k = (size_t)f->g->top_k;
    float *prob = f->prob + t * experts, *weight = f->weight + t * top_k, max = prob[0], sum = 0;
    size_t *slot = f->slot + t * top_k, n = 0;

    for (size_t i = 1; i < experts; i++)
        max = prob[i] > max ? prob[i] : max;
    f->k->exp_sum(prob, experts, max);
    for (size_t i = 0; i < experts; i++) {
        size_t better = 0;      /* equal ones: the lower number first */
        for (size_t j = 0; j < experts; j++)
            better += prob[j] > prob[i] || (prob[j] == prob[i] && j < i);
        if (better < top_k && n < top_k) {
            slot[n] = i;
            weight[n++] = prob[i];
            sum += prob[i];
        }
    }
    for (size_t i = 0; i < top_k; i++)
        weight[i] = weight[i] / sum * weights_of(f)->expert_scale[slot[i]];
}

/* Turns slot from experts into rows of ex, ordered by expert, and copies the tokens there. */
static void gather(struct forward *f)
{
    const size_t experts = (size_t)f->g->experts, top_k = (size_t)f->g->top_k;
    size_t first = 0;

    memset(f->share, 0, experts * sizeof *f->share);
    for (size_t i = 0; i < f->n * top_k; i++)
        f->share[f->slot[i]].n++;
    for (size_t i = 0; i < experts; i++) {
        f->share[i].first = first;
        first += f->share[i].n;
        f->share[i].n = 0;
    }
    for (size_t i = 0; i < f->n * top_k; i++) {
        struct share *s = &f->share[f->slot[i]];
        f->slot[i] = s->first + s->n++;
        memcpy(f->ex + f->slot[i] * f->hidden, f->x + i / top_k * f->hidden, f->hidden * sizeof *f->x);
    }
}

static void expert_gate_row(void *arg, size_t i)
{
    struct forward *f = arg;
    const size_t wide = (size_t)f->g->expert_mlp;

    f->k->gelu_mul(f->egate + i * wide, f->eup + i * wide, wide, f->egate + i * wide);
}

static void run_experts(struct forward *f)
{
    const struct layer_weights *w = weights_of(f);
    const size_t experts = (size_t)f->g->experts, wide = (size_t)f->g->expert_mlp;
    size_t n = 0;

    for (size_t i = 0; i < experts; i++) {
        const struct share *s = &f->share[i];
        const float *x = f->ex + s->first * f->hidden;
        if (!s->n)
            continue;
        f->product[n++] = (struct product){&w->expert_gate[i], x, f->hidden, s->n, f->egate + s->first * wide, wide, NULL};
        f->product[n++] = (struct product){&w->expert_up[i], x, f->hidden, s->n, f->eup + s->first * wide, wide, NULL};
    }
    multiply(f, f->product, n);
    par_for(f->par, f->n * (size_t)f->g->top_k, expert_gate_row, f);
    n = 0;
    for (size_t i = 0; i < experts; i++) {
        const struct share *s = &f->share[i];
        if (s->n)
            f->product[n++] = (struct product){&w->expert_down[i], f->egate + s->first * wide, wide, s->n, f->ey + s->first * f->hidden, f->hidden, NULL};
    }
    multiply(f, f->product, n);
}

/* y = m1 + rms(weighted sum of the experts' outputs). */
static void sum_experts(void *arg, size_t t)
{
    struct forward *f = arg;
    const size_t top_k = (size_t)f->g->top_k;
    float *y = f->y + t * f->hidden;

    memset(y, 0, f->hidden * sizeof *y);
    for (size_t i = 0; i < top_k; i++) {
        const float *from = f->ey + f->slot[t * top_k + i] * f->hidden, a = f->weight[t * top_k + i];
        for (size_t j = 0; j < f->hidden; j++)
            y[j] += a * from[j];
    }
    f->k->rms(y, weights_of(f)->post_mlp_norm_2, f->hidden, eps(f), y);
    add(y, f->m1 + t * f->hidden, f->hidden);
}

static void mixture(struct forward *f)
{
    each_token(f, router_input);
    linear(f, &weights_of(f)->router, f->y, f->hidden, f->prob, (size_t)f->g->experts);
    each_token(f, choose_experts);
    gather(f);
    run_experts(f);
    each_token(f, sum_experts);
}

/* --- the end of a layer ---------------------------------------------------------------------------------------------- */

static void after_mlp(void *arg, size_t t)
{
    struct forward *f = arg;

    add_normed(f, f->h + t * f->hidden, f->y + t * f->hidden, weights_of(f)->post_mlp_norm);
}

static void ple_gate_token(void *arg, size_t t)
{
    struct forward *f = arg;
    const size_t ple = (size_t)f->g->ple;
    float *gate = f->ple_gate + t * ple;

    f->k->gelu_mul(gate, f->ple + f->token[t].row * f->flat + (size_t)f->layer * ple, ple, gate);
}

static void after_ple(void *arg, size_t t)
{
    struct forward *f = arg;

    add_normed(f, f->h + t * f->hidden, f->y + t * f->hidden, weights_of(f)->ple_norm);
}

static void end_layer(void *arg, size_t t)
{
    struct forward *f = arg;

    scale(f->h + t * f->hidden, f->hidden, weights_of(f)->scalar);
}

static void layer(struct forward *f)
{
    attention(f);
    mlp(f);
    if (f->g->experts)
        mixture(f);
    each_token(f, after_mlp);
    if (f->g->ple) {
        const struct layer_weights *w = weights_of(f);
        linear(f, &w->ple_gate, f->h, f->hidden, f->ple_gate, (size_t)f->g->ple);
        each_token(f, ple_gate_token);
        linear(f, &w->ple_projection, f->ple_gate, (size_t)f->g->ple, f->y, f->hidden);
        each_token(f, after_ple);
    }
    if (f->g->layer_scalar)
        each_token(f, end_layer);
}

/* --- the head -------------------------------------------------------------------------------------------------------- */

struct capping { const struct forward *f; float *logits; size_t pieces; };

static void cap_piece(void *arg, size_t i)
{
    const struct capping *c = arg;
    const size_t vocab = (size_t)c->f->g->vocab, first = i % c->pieces * CAP_PIECE, n = vocab - first < CAP_PIECE ? vocab - first : CAP_PIECE;

    c->f->k->softcap(c->logits + i / c->pieces * vocab + first, n, (float)c->f->g->softcap);
}

/* Logits of n tokens whose normed rows start at x. */
static void head(struct forward *f, const float *x, size_t n, float *logits)
{
    const size_t vocab = (size_t)f->g->vocab, per_row = (vocab + CAP_PIECE - 1) / CAP_PIECE;

    multiply(f, &(struct product){&f->w->head, x, f->hidden, n, logits, vocab, NULL}, 1);
    if (f->g->softcap > 0)
        par_for(f->par, n * per_row, cap_piece, &(struct capping){f, logits, per_row});
}

static bool wants_choice(const struct token *t) { return t->last && t->item->chosen; }

static bool wants_logits(const struct token *t) { return (t->last && t->item->logits) || (t->item->watch && t->item->watch->logits); }

static int deliver(const struct forward *f, const struct token *t, float *row, struct err *e)
{
    const struct engine_watch *watch = t->item->watch;
    const size_t vocab = (size_t)f->g->vocab;

    if (t->last && t->item->logits && t->item->logits != row)
        memcpy(t->item->logits, row, vocab * sizeof *row);
    if (watch && watch->logits && watch->logits(watch->arg, t->position, row, e))
        return -1;
    if (wants_choice(t))
        *t->item->chosen = choose_of_logits(f->chooser, row);
    return 0;
}

/* Tokens [first, first + n) of those that are left; their normed rows are in x. */
static int some_logits(struct forward *f, size_t first, size_t n, struct err *e)
{
    const size_t vocab = (size_t)f->g->vocab;
    struct token *t = &f->token[first];
    const float *x = f->x + first * f->hidden;

    if (n == 1 && t->item->logits && t->last && !wants_choice(t)) {     /* no copy */
        head(f, x, 1, t->item->logits);
        return deliver(f, t, t->item->logits, e);
    }
    head(f, x, n, f->logits);
    for (size_t i = 0; i < n; i++)
        if (deliver(f, &t[i], f->logits + i * vocab, e))
            return -1;
    return 0;
}

/* The same where nobody wants logits: only the largest are looked for, if that can be. */
static int some_choices(struct forward *f, size_t first, size_t n, struct err *e)
{
    int id[HEAD_TOKENS];
    struct product p = {&f->w->head, f->x + first * f->hidden, f->hidden, n, NULL, 0, NULL};

    if (f->math == MATH_FAST)
        prepare(f, &p, 1);
    if (f->math != MATH_FAST || !choose(f->chooser, p.x, n, p.act, pace_of(&f->paces, p.w), id))
        return some_logits(f, first, n, e);
    for (size_t i = 0; i < n; i++)
        *f->token[first + i].item->chosen = id[i];
    return 0;
}

/* Of the tokens left, those that somebody wants something of, the ones with logits first; their normed rows in x.  The number of each. */
static void sort_wants(struct forward *f, size_t *logits, size_t *choices)
{
    size_t n[2] = {0, 0};

    for (int pass = 0; pass < 2; pass++)
        for (size_t t = 0; t < f->n; t++) {
            const struct token *token = &f->token[t];
            if (pass == 0 ? !wants_logits(token) : wants_logits(token) || !wants_choice(token))
                continue;
            const size_t to = n[0] + n[1];
            f->sorted[to] = *token;
            f->k->rms(f->h + t * f->hidden, f->w->norm, f->hidden, eps(f), f->x + to * f->hidden);
            n[pass]++;
        }
    memcpy(f->token, f->sorted, (n[0] + n[1]) * sizeof *f->token);
    *logits = n[0], *choices = n[1];
}

static int all_logits(struct forward *f, struct err *e)
{
    size_t logits, choices;

    sort_wants(f, &logits, &choices);
    for (size_t i = 0; i < logits; i += HEAD_TOKENS)
        if (some_logits(f, i, logits - i < HEAD_TOKENS ? logits - i : HEAD_TOKENS, e))
            return -1;
    for (size_t i = 0; i < choices; i += HEAD_TOKENS)
        if (some_choices(f, logits + i, choices - i < HEAD_TOKENS ? choices - i : HEAD_TOKENS, e))
            return -1;
    return 0;
}

/* --- a step ---------------------------------------------------------------------------------------------------------- */

static int trace(const struct forward *f, int layers_done, struct err *e)
{
    for (size_t t = 0; t < f->n; t++) {
        const struct engine_watch *watch = f->token[t].item->watch;
        if (watch && watch->hidden && watch->hidden(watch->arg, f->token[t].position, layers_done, f->h + t * f->hidden, e))
            return -1;
    }
    return 0;
}

static int list_tokens(struct forward *f, struct engine_item *item, size_t n, struct err *e)
{
    f->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (item[i].n > ENGINE_STEP_TOKENS - f->n)
            return err_set(e, EXIT_BUG, "a step of more than %d tokens", ENGINE_STEP_TOKENS);
        for (size_t j = 0; j < item[i].n; j++, f->n++)
            f->token[f->n] = (struct token){&item[i], item[i].seq, item[i].seq->position + (long)j, f->n, item[i].ids[j], j + 1 == item[i].n};
        }
    return 0;
}

static void find_angles(void *arg, size_t t)
{
    struct forward *f = arg;

    for (int i = 0; i < f->g->layers; i++) {
        struct turns *turns = f->turns[i];
        float *c = turns->angle + t * 2 * turns->n, *s = c + turns->n;
        if (first_alike(f->g, i) != i)
            continue;
        for (size_t j = 0; j < turns->n; j++) {
            const float angle = (float)f->token[t].position * turns->freq[j];
            c[j] = cosf(angle), s[j] = sinf(angle);
        }
    }
}

int forward_run(struct forward *f, struct engine_item *item, size_t n, struct err *e)
{
    if (list_tokens(f, item, n, e))
        return -1;
    each_token(f, find_angles);
    embed(f);
    if (trace(f, 0, e))
        return -1;
    for (f->layer = 0; f->layer < f->g->layers && f->n; f->layer++) {
        layer(f);
        if (trace(f, f->layer + 1, e))
            return -1;
    }
    if (all_logits(f, e))
        return -1;
    for (size_t i = 0; i < n; i++)
        item[i].seq->position += (long)item[i].n;
    return 0;
}

/* --- making and freeing ---------------------------------------------------------------------------------------------- */

static float *floats(size_t rows, size_t wide) { return xcalloc(rows * wide + 16, sizeof(float)); }

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* f_i = theta^(-2i / head_dim) / factor. */
static struct turns *turns_new(const struct gemma_layer *p)
{
    struct turns *t = xcalloc(1, sizeof *t);

    t->pairs = (size_t)p->rope_pairs;
    t->n = (t->pairs + 15) / 16 * 16;
    t->freq = floats(t->n, 1);
    for (size_t i = 0; i < t->pairs; i++)
        t->freq[i] = (float)(1 / pow(p->rope_theta, 2.0 * (double)i / p->head_dim) / p->rope_factor);
    t->angle = floats(ENGINE_STEP_TOKENS, 2 * t->n);
    return t;
}

static void turns_free(struct turns *t)
{
    free(t->freq);
    free(t->angle);
    free(t);
}

static void set_turns(struct forward *f)
{
    for (int i = 0; i < f->g->layers; i++) {
        const int j = first_alike(f->g, i);
        f->turns[i] = j < i ? f->turns[j] : turns_new(&f->g->layer[i]);
    }
}

struct forward *forward_new(const struct gemma *g, const struct weights *w, const struct kernels *k, enum engine_math math, struct par *par, struct id_span never)
{
    struct forward *f = xcalloc(1, sizeof *f);
    const size_t most = ENGINE_STEP_TOKENS, experts = (size_t)g->experts, top_k = (size_t)g->top_k, wide = (size_t)g->expert_mlp;

    f->g = g, f->w = w, f->k = k, f->math = math, f->par = par;
    f->hidden = (size_t)g->hidden;
    f->flat = (size_t)g->ple * (size_t)g->layers;
    f->mlp_wide = f->flat;      /* `up` also holds a token's row of the per-layer table */
    for (int i = 0; i < g->layers; i++) {
        const struct gemma_layer *p = &g->layer[i];
        f->q_wide = larger(f->q_wide, (size_t)g->heads * (size_t)p->head_dim);
        f->kv_wide = larger(f->kv_wide, (size_t)p->kv_heads * (size_t)p->head_dim);
        f->mlp_wide = larger(f->mlp_wide, (size_t)p->mlp);
    }
    f->h = floats(most, f->hidden), f->x = floats(most, f->hidden), f->y = floats(most, f->hidden);
    f->q = floats(most, f->q_wide), f->att = floats(most, f->q_wide);
    f->k_new = floats(most, f->kv_wide), f->v_new = floats(most, f->kv_wide);
    f->gate = floats(most, f->mlp_wide), f->up = floats(most, f->mlp_wide);
    f->ple = floats(most, f->flat), f->ple_gate = floats(most, (size_t)g->ple);
    f->m1 = floats(experts ? most : 0, f->hidden);
    f->prob = floats(most, experts), f->weight = floats(most, top_k);
    f->slot = xcalloc(most * top_k + 1, sizeof *f->slot);
    f->ex = floats(most * top_k, f->hidden), f->ey = floats(most * top_k, f->hidden);
    f->egate = floats(most * top_k, wide), f->eup = floats(most * top_k, wide);
    f->share = xcalloc(experts + 1, sizeof *f->share);
    f->product = xcalloc(2 * experts + 1, sizeof *f->product);
    f->logits = floats(HEAD_TOKENS, (size_t)g->vocab);
    set_turns(f);
    f->chooser = chooser_new(&w->head, (float)g->softcap, math == MATH_FAST, never, k, par);
    if (math == MATH_FAST)
        paces_find(&f->paces, w, g->layers, k);
    return f;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    float *const all[] = {f->h, f->x, f->y, f->q, f->att, f->k_new, f->v_new, f->gate, f->up, f->ple, f->ple_gate, f->m1, f->prob, f->weight, f->ex, f->ey,
        f->egate, f->eup, f->logits};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (int i = 0; i < f->g->layers; i++)
        if (first_alike(f->g, i) == i)
            turns_free(f->turns[i]);
    chooser_free(f->chooser);
    free(f->act);
    free(f->slot);
    free(f->share);
    free(f->product);
    free(f);
}
