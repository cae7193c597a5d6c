/* cuda/cuda.h on cuda/device.h: opening, loading, steps. */
#include "cuda/cuda.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "cuda/pass.h"
#include "engine/kv.h"

/* Buffers that weights are uploaded through: filled by any thread, each copied on a lane of its own while others are filled. */
struct lanes {
    pthread_mutex_t lock;
    pthread_cond_t given_back;
    bool lent[DEVICE_LANES];
    uint8_t *buffer[DEVICE_LANES];
};

struct cuda {
    struct device *device;
    struct cuda_facts facts;
    struct weights_memory memory;
    struct lanes lanes;
    uint8_t *weights; uint64_t weight_bytes;    /* where they lie */

    const struct gemma *g;
    struct passes passes;
    struct pages pages;
    int *table;                                 /* the pages' table as the host keeps it */
    uint8_t *params;                            /* pinned: what is uploaded before a pass */
    struct gk_best *best;                       /* pinned */
    struct gk_top *top;
    float *logits, *hidden;                     /* pinned: a row */
    unsigned *sink;
    struct device_graph *token[HEAD_TOKENS + 1][(PASS_TOP | PASS_LOGITS) + 1];  /* a step as it was recorded, by tokens and what is wanted */
};

/* --- the device and its weights -------------------------------------------------------------------------------------- */

static uint8_t *room(void *arg, uint64_t bytes, struct err *e)
{
    struct cuda *c = arg;

    for (int i = 0; i < DEVICE_LANES && !e->code; i++)
        c->lanes.buffer[i] = device_pinned(c->device, WEIGHTS_PIECE, e);
    c->weight_bytes = bytes;
    c->weights = e->code ? NULL : device_alloc(c->device, bytes, e);
    return c->weights;
}

static uint8_t *lend(void *arg)
{
    struct lanes *l = &((struct cuda *)arg)->lanes;
    int i = 0;

    pthread_mutex_lock(&l->lock);
    for (; l->lent[i]; i = (i + 1) % DEVICE_LANES)
        if (i == DEVICE_LANES - 1)
            pthread_cond_wait(&l->given_back, &l->lock);
    l->lent[i] = true;
    pthread_mutex_unlock(&l->lock);
    return l->buffer[i];
}

static int put(void *arg, uint8_t *lent, uint8_t *to, size_t n, struct err *e)
{
    struct cuda *c = arg;
    int lane = 0, failed = 0;

    while (c->lanes.buffer[lane] != lent)
        lane++;
    if (n)
        failed = device_lane_upload(c->device, lane, to, lent, n, e) || device_lane_wait(c->device, lane, e);
    pthread_mutex_lock(&c->lanes.lock);
    c->lanes.lent[lane] = false;
    pthread_cond_signal(&c->lanes.given_back);
    pthread_mutex_unlock(&c->lanes.lock);
    return failed ? -1 : 0;
}

struct cuda *cuda_open(struct err *e)
{
    struct device *d = device_open(e);

    if (!d)
        return NULL;
    struct cuda *c = xcalloc(1, sizeof *c);
    c->device = d;
    c->facts = (struct cuda_facts){.device = device_facts(d)->kind, .name = device_facts(d)->name, .memory = device_facts(d)->memory};
    pthread_mutex_init(&c->lanes.lock, NULL);
    pthread_cond_init(&c->lanes.given_back, NULL);
    c->memory = (struct weights_memory){.arg = c, .room = room, .lend = lend, .put = put};
    return c;
}

void cuda_close(struct cuda *c)
{
    if (!c)
        return;
    passes_free(&c->passes);
    pages_free(&c->pages);
    device_close(c->device);
    pthread_mutex_destroy(&c->lanes.lock);
    pthread_cond_destroy(&c->lanes.given_back);
    free(c);
}

const struct cuda_facts *cuda_facts(const struct cuda *c) { return &c->facts; }

const struct weights_memory *cuda_memory(struct cuda *c, bool ple)
{
    c->memory.ple = ple;
    return &c->memory;
}

/* --- what a model needs besides its weights -------------------------------------------------------------------------- */

static int upload_banned(struct cuda *c, const struct cuda_options *o, struct err *e)
{
    const size_t bytes = o->n_banned * sizeof *o->banned;
    int *from = device_pinned(c->device, bytes + 1, e), *to = from ? device_alloc(c->device, bytes, e) : NULL;

    if (!to)
        return -1;
    if (bytes)
        memcpy(from, o->banned, bytes);
    c->passes.banned = to, c->passes.n_banned = (int)o->n_banned;
    return bytes && device_upload(c->device, to, from, bytes, e) ? -1 : device_wait(c->device, e);
}

/* Nine tenths of what is left, or what was asked for; no more than all sequences together could use. */
static int make_pool(struct cuda *c, const struct cuda_options *o, struct err *e)
{
    struct pages *p = &c->pages;
    const uint64_t block = pages_block_bytes(p), one = pages_blocks(p, o->max_context), unused = device_unused(c->device);
    const uint64_t bytes = o->kv_bytes ? o->kv_bytes : unused / 10 * 9, most = one * PAGES_SEQS;
    const uint64_t blocks = bytes / block < most ? bytes / block : most;

    if (blocks < pages_blocks(p, GK_PAGE))
        return err_set(e, EXIT_TEMPFAIL, "%s: %.2f GB of its %.2f GB are left for K/V, too little: take a smaller build", c->facts.name, (double)unused / 1e9,
            (double)c->facts.memory / 1e9);
    c->passes.k = device_alloc(c->device, blocks * block / 2, e);
    c->passes.v = c->passes.k ? device_alloc(c->device, blocks * block / 2, e) : NULL;
    if (!c->passes.v)
        return -1;
    pages_start(p, blocks, c->table);
    c->facts.kv_bytes = blocks * block;
    return 0;
}

/* Of one token: those of engine/graph.h, and more where a layer's matrices are stored differently. */
static int count_kernels(struct cuda *c, struct err *e)
{
    struct pass pass = {0};
    const int failed = pass_layers(&pass, &c->passes, 1, PASS_WHOLE, e) || pass_head(&pass, &c->passes, 1, NULL, 0, e);

    c->facts.kernels = (int)pass.n;
    pass_free(&pass);
    return failed ? -1 : 0;
}

int cuda_load(struct cuda *c, const struct gemma *g, const struct weights *w, const struct cuda_options *o, struct err *e)
{
    struct passes *p = &c->passes;

    c->g = g;
    if (passes_init(p, c->device, g, w, o->exact, c->memory.ple, e))
        return -1;
    pages_init(&c->pages, g, o->max_context, PASS_TOKENS);
    const size_t entries = PAGES_SEQS * c->pages.ld;
    p->pages = &c->pages;
    c->table = device_pinned(c->device, entries * sizeof *c->table, e);
    p->table = c->table ? device_alloc(c->device, entries * sizeof *c->table, e) : NULL;
    c->params = p->table ? device_pinned(c->device, params_of(p, PASS_TOKENS, PASS_REST).end, e) : NULL;
    c->best = c->params ? device_pinned(c->device, HEAD_TOKENS * sizeof *c->best, e) : NULL;
    c->top = c->best ? device_pinned(c->device, HEAD_TOKENS * sizeof *c->top, e) : NULL;
    c->logits = c->top ? device_pinned(c->device, HEAD_TOKENS * (size_t)g->vocab * sizeof *c->logits, e) : NULL;
    c->hidden = c->logits ? device_pinned(c->device, PASS_TOKENS * (size_t)g->hidden * sizeof *c->hidden, e) : NULL;
    c->sink = c->hidden ? device_alloc(c->device, sizeof *c->sink, e) : NULL;
    return !c->sink || upload_banned(c, o, e) || make_pool(c, o, e) || count_kernels(c, e) ? -1 : 0;
}

/* --- sequences ------------------------------------------------------------------------------------------------------- */

struct cuda_seq *cuda_seq_new(struct cuda *c, long capacity)
{
    struct cuda_seq *s = xcalloc(1, sizeof *s);

    (void)capacity;             /* pages come as they are needed */
    s->pages = &c->pages;
    s->place = -1;
    return s;
}

void cuda_seq_free(struct cuda_seq *s)
{
    if (s)
        pages_give_back(s);
    free(s);
}

uint64_t cuda_kv_bytes(const struct cuda *c, long n) { return pages_blocks(&c->pages, n) * pages_block_bytes(&c->pages); }

/* Pages for all items, or for none of them that has not got its own yet; the changed parts of the table are uploaded. */
static int take_pages(struct cuda *c, const struct engine_item *item, size_t n, struct err *e)
{
    size_t blocks = 0;

    for (size_t i = 0; i < n; i++)
        blocks += pages_wanted(item[i].seq->cuda, item[i].seq->position + (long)item[i].n);
    bool full = blocks > c->pages.n_free;
    for (size_t i = 0; i < n; i++) {
        struct cuda_seq *s = item[i].seq->cuda;
        bool changed;
        if (full || !pages_take(s, item[i].seq->position + (long)item[i].n, &changed))
            return err_set(e, EXIT_TEMPFAIL, "the GPU's %.2f GB for K/V are full: run fewer sequences together, or shorter ones", (double)c->facts.kv_bytes / 1e9);
        const size_t at = (size_t)s->place * c->pages.ld;
        if (changed && device_upload(c->device, c->passes.table + at, c->table + at, c->pages.ld * sizeof *c->table, e))
            return -1;
    }
    return 0;
}

/* --- passes ---------------------------------------------------------------------------------------------------------- */

/* One token of a pass. */
struct token { struct engine_item *item; long position; int id; bool last; };

static void fill_params(struct cuda *c, const struct token *token, int n, enum pass_reach reach, const int *from, int n_from)
{
    const struct passes *p = &c->passes;
    const struct params at = params_of(p, n, reach);
    struct gk_token *to = (struct gk_token *)(c->params + at.token);

    for (int t = 0; t < n; t++)
        to[t] = (struct gk_token){token[t].id, (int)token[t].position, token[t].item->seq->cuda->place, 0};
    for (int r = 0; r < p->ropes; r++) {
        float *angle = (float *)(c->params + at.angles[r]);
        const int pairs = p->rope[r].pairs;
        for (int t = 0; t < n; t++, angle += 2 * pairs)
            for (int k = 0; k < pairs; k++) {
                const float a = (float)token[t].position * p->rope[r].freq[k];
                angle[k] = cosf(a), angle[pairs + k] = sinf(a);
            }
    }
    if (n_from)
        memcpy(c->params + at.from, from, (size_t)n_from * sizeof *from);
}

static int upload_params(struct cuda *c, int tokens, enum pass_reach reach, struct err *e)
{
    const struct params at = params_of(&c->passes, tokens, reach);

    return device_upload(c->device, c->passes.params + at.start, c->params + at.start, at.end - at.start, e);
}

static int launch_all(struct cuda *c, const struct pass *pass, size_t from, size_t to, struct err *e)
{
    for (size_t i = from; i < to; i++)
        if (device_launch(c->device, &pass->launch[i], e))
            return -1;
    return 0;
}

static int download_results(struct cuda *c, int n, int wants, struct err *e)
{
    return device_download(c->device, c->best, c->passes.best, (size_t)n * sizeof *c->best, e) ||
        (wants & PASS_TOP && device_download(c->device, c->top, c->passes.top, (size_t)n * sizeof *c->top, e)) ||
        (wants & PASS_LOGITS && device_download(c->device, c->logits, c->passes.logits, (size_t)n * (size_t)c->g->vocab * sizeof *c->logits, e)) ? -1 : 0;
}

/* --- decoding: the graph of a token ---------------------------------------------------------------------------------- */

/* Every kernel is brought to the GPU before: while a graph is recorded nothing else may happen. */
static int record(struct cuda *c, int n, int wants, struct device_graph **to, struct err *e)
{
    struct pass pass = {0};
    int failed = pass_layers(&pass, &c->passes, n, PASS_WHOLE, e) || pass_head(&pass, &c->passes, n, NULL, wants, e);
    for (size_t i = 0; i < pass.n && !failed; i++)
        failed = device_prepare(c->device, &pass.launch[i], e);
    failed = failed || device_record(c->device, e);
    if (!failed) {
        failed = upload_params(c, n, PASS_WHOLE, e) || launch_all(c, &pass, 0, pass.n, e) || download_results(c, n, wants, e);
        *to = device_recorded(c->device, failed ? &(struct err){0} : e);
    }
    pass_free(&pass);
    return failed || !*to ? -1 : 0;
}

/* What is wanted of the head for this token. */
static int wants_of(const struct token *t)
{
    return (t->last && t->item->top ? PASS_TOP : 0) | ((t->last && t->item->logits) || (t->item->watch && t->item->watch->logits) ? PASS_LOGITS : 0);
}

static void deliver_top(const struct gk_top *from, struct engine_top *to)
{
    _Static_assert(ENGINE_TOP == GK_TOP, "the kernel's list is the engine's");
    for (to->n = 0; to->n < GK_TOP && from->best[to->n].id >= 0; to->n++)
        to->id[to->n] = from->best[to->n].id, to->logit[to->n] = from->best[to->n].value;
    to->log_sum = (double)from->most + log((double)from->sum);
}

static int deliver(const struct cuda *c, const struct token *token, int row, struct err *e)
{
    const struct engine_item *item = token->item;
    const float *logits = c->logits + (size_t)row * (size_t)c->g->vocab;

    if (token->last && item->logits)
        memcpy(item->logits, logits, (size_t)c->g->vocab * sizeof *logits);
    if (token->last && item->top)
        deliver_top(&c->top[row], item->top);
    if (token->last && item->chosen)
        *item->chosen = c->best[row].id < c->g->vocab && c->best[row].value > -INFINITY ? c->best[row].id : -1;
    return item->watch && item->watch->logits ? item->watch->logits(item->watch->arg, token->position, logits, e) : 0;
}

/* One token of each of up to HEAD_TOKENS sequences. */
static int decode(struct cuda *c, const struct token *token, int n, struct err *e)
{
    int wants = 0;

    for (int i = 0; i < n; i++)
        wants |= wants_of(&token[i]);
    struct device_graph **graph = &c->token[n][wants];
    if (!*graph && record(c, n, wants, graph, e))
        return -1;
    fill_params(c, token, n, PASS_WHOLE, NULL, 0);
    if (device_replay(c->device, *graph, e) || device_wait(c->device, e))
        return -1;
    for (int i = 0; i < n; i++)
        if (deliver(c, &token[i], i, e))
            return -1;
    return 0;
}

/* --- prompts: any tokens, one launch after another ------------------------------------------------------------------- */

static bool watches_hidden(const struct token *t) { return t->item->watch && t->item->watch->hidden; }
static bool wants_head(const struct token *t)
{
    return wants_of(t) || (t->last && t->item->chosen);
}

static int show_hidden(struct cuda *c, const struct token *token, int n, int layer, struct err *e)
{
    const size_t wide = (size_t)c->g->hidden;

    if (device_download(c->device, c->hidden, c->passes.h, (size_t)n * wide * sizeof *c->hidden, e) || device_wait(c->device, e))
        return -1;
    for (int t = 0; t < n; t++)
        if (watches_hidden(&token[t]) && token[t].item->watch->hidden(token[t].item->watch->arg, token[t].position, layer, c->hidden + (size_t)t * wide, e))
            return -1;
    return 0;
}

/* The pass, with looks at the stream before layers [first, last]; before one past the last: after it. */
static int run_layers(struct cuda *c, const struct pass *pass, const struct token *token, int n, int first, int last, struct err *e)
{
    bool watched = false;
    size_t done = 0;

    for (int t = 0; t < n; t++)
        watched |= watches_hidden(&token[t]);
    for (int i = first; watched && i <= last; done = pass->end[i++])
        if (launch_all(c, pass, done, pass->end[i], e) || show_hidden(c, token, n, i, e))
            return -1;
    return launch_all(c, pass, done, pass->n, e);
}

static int run_heads(struct cuda *c, const struct token *token, int n, const int *from, int n_from, struct err *e)
{
    for (int first = 0; first < n_from; first += HEAD_TOKENS) {
        const int some = n_from - first < HEAD_TOKENS ? n_from - first : HEAD_TOKENS;
        struct pass pass = {0};
        int wants = 0;
        for (int i = 0; i < some; i++)
            wants |= wants_of(&token[from[first + i]]);
        int failed = pass_head(&pass, &c->passes, some, &(struct pass_rows){n, first}, wants, e) || launch_all(c, &pass, 0, pass.n, e) ||
            download_results(c, some, wants, e) || device_wait(c->device, e);
        for (int i = 0; i < some && !failed; i++)
            failed = deliver(c, &token[from[first + i]], i, e);
        pass_free(&pass);
        if (failed)
            return -1;
    }
    return 0;
}

/* Until all K/V are written. */
static int prefill_first(struct cuda *c, const struct token *token, int n, struct err *e)
{
    struct pass pass = {0};

    fill_params(c, token, n, PASS_FIRST, NULL, 0);
    const int failed = upload_params(c, n, PASS_FIRST, e) || pass_layers(&pass, &c->passes, n, PASS_FIRST, e) || run_layers(c, &pass, token, n, 0, c->passes.last_owner, e);
    pass_free(&pass);
    return failed ? -1 : 0;
}

static int prefill_rest(struct cuda *c, const struct token *token, int n, struct err *e)
{
    int from[PASS_TOKENS], n_from = 0;
    struct pass pass = {0};

    for (int t = 0; t < n; t++)
        if (wants_head(&token[t]))
            from[n_from++] = t;
    fill_params(c, token, n, PASS_REST, from, n_from);
    const int failed = upload_params(c, n, PASS_REST, e) || pass_layers(&pass, &c->passes, n, PASS_REST, e) ||
        run_layers(c, &pass, token, n, c->passes.last_owner + 1, c->g->layers, e) || run_heads(c, token, n, from, n_from, e);
    pass_free(&pass);
    return failed ? -1 : 0;
}

/* The rest of the pass needs only tokens whose logits or hidden states somebody wants (as forward.c): of a prompt the last, of its earlier runs none. */
static int prefill(struct cuda *c, const struct token *token, int n, struct err *e)
{
    struct token left[PASS_TOKENS];
    int kept = 0;

    if (prefill_first(c, token, n, e))
        return -1;
    for (int t = 0; t < n; t++) {
        if (!wants_head(&token[t]) && !watches_hidden(&token[t]))
            continue;
        if (kept != t && pass_move(&c->passes, kept, t, e))
            return -1;
        left[kept++] = token[t];
    }
    return (kept && prefill_rest(c, left, kept, e)) || device_wait(c->device, e) ? -1 : 0;
}

/* --- a step ---------------------------------------------------------------------------------------------------------- */

static bool decodes(const struct engine_item *item) { return item->n == 1 && (item->logits || item->chosen || item->top) && !item->watch; }

int cuda_step(struct cuda *c, struct engine_item *item, size_t n, struct err *e)
{
    struct token one[PASS_TOKENS], many[PASS_TOKENS];
    int ones = 0, manys = 0;

    for (size_t i = 0; i < n; i++) {
        if (item[i].n > (size_t)(PASS_TOKENS - ones - manys))
            return err_set(e, EXIT_BUG, "a step of more than %d tokens", PASS_TOKENS);
        for (size_t j = 0; j < item[i].n; j++)
            *(decodes(&item[i]) ? &one[ones++] : &many[manys++]) = (struct token){&item[i], item[i].seq->position + (long)j, item[i].ids[j], j + 1 == item[i].n};
    }
    if (take_pages(c, item, n, e) || (manys && prefill(c, many, manys, e)))
        return -1;
    for (int first = 0; first < ones; first += HEAD_TOKENS)
        if (decode(c, one + first, ones - first < HEAD_TOKENS ? ones - first : HEAD_TOKENS, e))
            return -1;
    for (size_t i = 0; i < n; i++)
        item[i].seq->position += (long)item[i].n;
    return 0;
}

/* --- what each kernel takes ------------------------------------------------------------------------------------------ */

enum { PROFILE_RUNS = 20 };
#define PROFILE_US 2e5          /* enough: a kernel that is so slow needs no repeating */

static struct cuda_part *part_named(struct cuda_part *part, size_t *n, const char *name)
{
    for (size_t i = 0; i < *n; i++)
        if (!strcmp(part[i].name, name))
            return &part[i];
    part[*n] = (struct cuda_part){.name = name};
    return &part[(*n)++];
}

int cuda_profile(struct cuda *c, struct engine_item *item, struct cuda_part part[CUDA_PARTS], size_t *n, struct err *e)
{
    const struct token token = {item, item->seq->position, *item->ids, true};
    struct pass pass = {0};

    *n = 0;
    if (take_pages(c, item, 1, e))
        return -1;
    fill_params(c, &token, 1, PASS_WHOLE, NULL, 0);
    int failed = upload_params(c, 1, PASS_WHOLE, e) || pass_layers(&pass, &c->passes, 1, PASS_WHOLE, e) || pass_head(&pass, &c->passes, 1, NULL, 0, e);
    double all = 0;
    int runs = 0;
    for (bool warm = false; !failed && runs < PROFILE_RUNS && (!runs || all < PROFILE_US); warm = true) {
        runs += warm;
        for (size_t i = 0; i < pass.n && !failed; i++) {
            double us;
            struct cuda_part *p = part_named(part, n, pass.launch[i].label);
            failed = device_timed(c->device, &pass.launch[i], &us, e);
            all += us;
            if (!warm)
                p->kernels++, p->bytes += pass.launch[i].bytes;
            else
                p->us += us;
        }
    }
    for (size_t i = 0; i < *n; i++)
        part[i].us /= runs ? runs : 1;
    pass_free(&pass);
    return failed ? -1 : 0;
}

uint64_t cuda_kernels_run(const struct cuda *c) { return device_launches(c->device); }

#define READ_SHORT ((uint64_t)16 << 20)
#define READ_LONG ((uint64_t)4 << 30)

uint64_t cuda_read_weights(struct cuda *c, struct err *e)
{
    const uint64_t token = c->passes.w.token_bytes, bytes = (token < c->weight_bytes ? token : c->weight_bytes) / 4096 * 4096;
    struct gk_launch l = {.kernel = GK_READ, .label = "read", .bytes = bytes};
    const int times = bytes > READ_SHORT && bytes < READ_LONG ? 4 : 1;       /* so that starting and ending, some microseconds, do not count */

    l.a.read = (struct gk_read){c->weights, bytes, c->sink};
    int failed = gk_shape(&l, &c->passes.shape) ? err_set(e, EXIT_BUG, "a plain read of %llu bytes", (unsigned long long)bytes) : 0;
    for (int i = 0; i < times && !failed; i++)
        failed = device_launch(c->device, &l, e);
    return failed || device_wait(c->device, e) ? 0 : (uint64_t)times * bytes;
}
