/* ct-pack: a stream becomes a compressed-tensors build directory that the loader takes as it is.
 *
 * Plan the build from the header; lay it out in shards; then deal every tensor's bytes to their places as they arrive, hashing each shard
 * behind the writing.  The directory appears by one rename. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/opt.h"
#include "base/par.h"
#include "base/progress.h"
#include "ct/plan.h"
#include "ct/shards.h"
#include "gemma/names.h"
#include "quant/q4.h"
#include "quant/w8.h"
#include "tensor/stream.h"

#define PIECE ((size_t)1 << 19)          /* bytes of the stream that one thread takes at a time, if a row is no longer: they stay in its cache */
#define MAX_LANES 8

struct settings {
    const char *out, *linears, *expect;
    bool force;
    long shard_size, jobs;
};

/* One file's hash for the manifest. */
struct sum { char *name; char hex[SHA256_HEX]; };

/* A shard's hash, made behind the writing: of the bytes that are complete from its beginning on. */
struct hashing {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    bool running, given_up;
    uint64_t ready, wanted;     /* bytes that are complete; that somebody waits for; under the lock, as given_up is */
    int fd;
    uint64_t n;
    struct sum *sum;
    bool failed;
    struct err e;
};

/* Of one tensor of the stream, in units that become something each: bytes of one that is copied, blocks, rows. */
struct piece {
    const struct ct_step *step;
    uint64_t module, first;             /* unit of the module */
    size_t n;
    uint8_t *in, *codes, *scales;       /* scales beside codes that are made */
    long *bad;                          /* of each row the first NaN or infinity, -1 = none */
};

/* Where in the stream the pieces are taken. */
struct cursor {
    const struct ct_step *step;
    size_t unit_bytes, most;            /* units of a piece */
    uint64_t modules, units;            /* of one module */
    uint64_t module, at;                /* what is taken next; module == modules: nothing is left of this tensor */
    bool ended;
    struct err e;
};

struct build {
    const struct settings *set;
    struct st_reader *in;
    const struct ct_plan *plan;
    const struct ct_shards *shards;
    struct outdir *dir;
    struct par *par;
    struct piece lane[MAX_LANES];
    size_t lanes;
    struct cursor cursor;
    int fd;                             /* of the shard being written, -1 = none */
    size_t shard;
    size_t *order, at;                  /* the build's tensors as they lie in the shards; the first that is not complete */
    uint64_t *filled;                   /* bytes that are there of each */
    struct hashing hashing[2];          /* of that shard, and of the one before, which may not be finished */
    struct sum *sum; size_t n_sums;
    struct err *e;
};

/* --- sums ------------------------------------------------------------------------------------------------------------- */

static struct sum *add_sum(struct build *b, const char *name)
{
    struct sum *s = &b->sum[b->n_sums++];

    s->name = xstrdup(name);
    return s;
}

enum { HASHED = 1 << 20, BACKLOG = 1 << 24, READERS = 2 };      /* bytes for which the hashing is woken, and that are worth a second lane */

/* How many bytes are complete, once there are enough more than `have` or all; fewer when the build is given up. */
static uint64_t wait_for_more(struct hashing *h, uint64_t have)
{
    pthread_mutex_lock(&h->lock);
    h->wanted = h->n - have < HASHED ? h->n : have + HASHED;
    while (h->ready < h->wanted && !h->given_up)
        pthread_cond_wait(&h->more, &h->lock);
    uint64_t ready = h->given_up ? 0 : h->ready;
    pthread_mutex_unlock(&h->lock);
    return ready;
}

/* Bytes [at, end) of the file, which are there, in pieces: each is read by one lane while the piece before it is hashed. */
struct span {
    struct hashing *h;
    struct sha256 *sha;
    uint64_t at, end;
    struct { char *buf; uint64_t at; size_t n; bool failed; struct err e; } lane[READERS];
};

static bool take_bytes(void *arg, size_t lane)
{
    struct span *s = arg;

    s->lane[lane].at = s->at;
    s->lane[lane].n = s->end - s->at < IO_CHUNK ? (size_t)(s->end - s->at) : IO_CHUNK;
    s->at += s->lane[lane].n;
    return s->lane[lane].n > 0;
}

static void read_bytes(void *arg, size_t lane)
{
    struct span *s = arg;

    s->lane[lane].failed = io_pread_full(s->h->fd, s->lane[lane].buf, s->lane[lane].n, s->lane[lane].at, s->h->sum->name, &s->lane[lane].e) != 0;
}

static bool hash_bytes(void *arg, size_t lane)
{
    struct span *s = arg;

    s->h->failed = s->lane[lane].failed;
    s->h->e = s->lane[lane].e;
    if (!s->h->failed)
        sha256_add(s->sha, s->lane[lane].buf, s->lane[lane].n);
    return !s->h->failed;
}

static void *hash_file(void *arg)
{
    static const struct relay relay = {take_bytes, read_bytes, hash_bytes};
    struct hashing *h = arg;
    struct span s = {.h = h, .sha = sha256_new()};

    for (int i = 0; i < READERS; i++)
        s.lane[i].buf = xmalloc(IO_CHUNK);
    while (s.at < h->n && !h->failed) {
        s.end = wait_for_more(h, s.at);
        h->failed = s.end <= s.at;
        if (!h->failed) {
            struct par *par = par_new(s.end - s.at > BACKLOG ? READERS : 1);

            par_relay(par, par_lanes(par, READERS), &relay, &s);
            par_free(par);
        }
    }
    sha256_hex(s.sha, h->sum->hex);
    for (int i = 0; i < READERS; i++)
        free(s.lane[i].buf);
    h->failed |= io_sync_close(h->fd, h->sum->name, &h->e) != 0;
    return NULL;
}

static void set_ready(struct hashing *h, uint64_t ready, bool given_up)
{
    pthread_mutex_lock(&h->lock);
    h->given_up |= given_up;
    if (ready > h->ready)
        h->ready = ready;
    if (h->ready >= h->wanted || given_up)
        pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->lock);
}

static struct hashing *hashing_of(struct build *b, size_t shard)
{
    return &b->hashing[shard % 2];
}

/* Without another thread it is hashed when it is complete. */
static void start_hashing(struct build *b)
{
    const struct ct_shard *s = &b->shards->shard[b->shard];
    struct hashing *h = hashing_of(b, b->shard);

    *h = (struct hashing){.fd = b->fd, .n = s->file_bytes, .sum = add_sum(b, s->name)};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->more, NULL);
    h->running = pthread_create(&h->thread, NULL, hash_file, h) == 0;
}

static int end_hashing(struct build *b, struct hashing *h)
{
    if (!h->running)
        return 0;
    pthread_join(h->thread, NULL);
    h->running = false;
    return h->failed ? err_set(b->e, h->e.code, "%s", h->e.msg) : 0;
}

/* The shard is complete: what is left of it is hashed and brought to disk while the next one is written. */
static int finish_shard(struct build *b)
{
    struct hashing *h = hashing_of(b, b->shard);

    if (b->fd < 0)
        return 0;
    b->fd = -1;
    set_ready(h, h->n, false);
    if (!h->running) {
        hash_file(h);
        if (h->failed)
            return err_set(b->e, h->e.code, "%s", h->e.msg);
    }
    return end_hashing(b, hashing_of(b, b->shard + 1));
}

static int wait_for_hashes(struct build *b)
{
    int rc = end_hashing(b, &b->hashing[0]);

    return end_hashing(b, &b->hashing[1]) || rc ? -1 : 0;
}

/* Of a build that is given up: the error that ended it stands. */
static void abandon_hashes(struct build *b)
{
    struct err ignored = {0, ""}, *e = b->e;

    b->e = &ignored;
    for (int i = 0; i < 2; i++)
        if (b->hashing[i].running)
            set_ready(&b->hashing[i], 0, true);
    (void)wait_for_hashes(b);
    b->e = e;
}

/* --- bytes to their places -------------------------------------------------------------------------------------------- */

static void le64(uint64_t v, uint8_t out[8])
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> 8 * i);
}

/* n more bytes of tensor t are there: how far is the shard complete? */
static void fill(struct build *b, size_t t, uint64_t n)
{
    const struct ct_place *place = b->shards->place;
    const struct st_tensor *all = b->plan->out->t;

    b->filled[t] += n;
    if (b->at == b->plan->out->n || (b->order[b->at] != t && b->filled[b->order[b->at]] < all[b->order[b->at]].nbytes))
        return;
    while (b->at < b->plan->out->n && place[b->order[b->at]].shard == b->shard && b->filled[b->order[b->at]] == all[b->order[b->at]].nbytes)
        b->at++;
    if (b->at < b->plan->out->n && place[b->order[b->at]].shard == b->shard)
        set_ready(hashing_of(b, b->shard), place[b->order[b->at]].offset + b->filled[b->order[b->at]], false);
}

static int put(struct build *b, size_t t, uint64_t offset, const void *buf, size_t n)
{
    const struct ct_place *p = &b->shards->place[t];
    int rc = io_pwrite_full(b->fd, buf, n, p->offset + offset, b->shards->shard[p->shard].name, b->e);

    if (!rc)
        fill(b, t, n);
    return rc;
}

/* The shapes of packed modules lie first in a shard and are known: written at once, they hold nothing up. */
static int put_shapes(struct build *b)
{
    int rc = 0;

    for (const struct ct_step *s = b->plan->step; s < b->plan->step + b->plan->n_steps; s++)
        for (uint64_t m = 0; !rc && s->action == CT_SPLIT && m < s->modules; m++) {
            size_t t = s->first + m * s->parts + 2;
            uint8_t shape[16];

            le64(s->rows, shape);
            le64(s->cols, shape + 8);
            if (b->shards->place[t].shard == b->shard)
                rc = put(b, t, 0, shape, sizeof shape);
        }
    return rc;
}

static int start_shard(struct build *b, size_t shard)
{
    const struct ct_shard *s = &b->shards->shard[shard];

    if (finish_shard(b))
        return -1;
    b->shard = shard;
    while (b->at < b->plan->out->n && b->shards->place[b->order[b->at]].shard < shard)
        b->at++;
    b->fd = outdir_fd(b->dir, s->name, s->file_bytes, b->e);
    if (b->fd < 0 || io_pwrite_full(b->fd, s->head, s->n_head, 0, s->name, b->e))
        return -1;
    start_hashing(b);
    return put_shapes(b);
}

/* n bytes of the build's tensor `t`, from `offset` within it. */
static int place(struct build *b, size_t t, uint64_t offset, const void *buf, size_t n)
{
    const struct ct_place *p = &b->shards->place[t];

    if ((b->fd < 0 || p->shard != b->shard) && start_shard(b, p->shard))
        return -1;
    progress_add(n);
    return put(b, t, offset, buf, n);
}

/* --- the stream in pieces, each of which one thread reads, computes and writes ------------------------------------------ */

static enum w8_kind w8_kind_of(const struct settings *set)
{
    return strcmp(set->linears, "fp8") == 0 ? W8_FP8 : W8_INT8;
}

static void start_step(struct cursor *c, const struct ct_step *s, const struct st_tensor *t)
{
    bool dealt = s->action == CT_SPLIT || s->action == CT_QUANTIZE;

    c->step = s;
    c->unit_bytes = s->action == CT_SPLIT ? Q4_BLOCK : s->action == CT_QUANTIZE ? 2 * (size_t)s->cols : 1;
    c->most = PIECE / c->unit_bytes ? PIECE / c->unit_bytes : 1;
    c->modules = dealt ? s->modules : 1;
    c->units = s->action == CT_SPLIT ? s->rows * s->cols / Q4_GROUP : s->action == CT_QUANTIZE ? s->rows : t->nbytes;
    c->module = c->at = 0;
}

/* The next tensor that becomes part of the build; false at the end. */
static bool next_step(struct build *b)
{
    const struct st_header *h = st_header_of(b->in);
    const struct st_tensor *t;

    while ((t = st_next(b->in, &b->cursor.e)) && b->plan->step[t - h->t].action == CT_DROP)
        note_msg("%s: left out: not part of this build", t->name);
    b->cursor.ended = !t;
    if (t)
        start_step(&b->cursor, &b->plan->step[t - h->t], t);
    return t != NULL;
}

static bool is_side_file(const struct cursor *c)
{
    return c->module < c->modules && c->step->action == CT_SIDE_FILE;
}

static bool take_piece(void *arg, size_t lane)
{
    struct build *b = arg;
    struct cursor *c = &b->cursor;
    struct piece *p = &b->lane[lane];

    if (c->module == c->modules && !next_step(b))
        return false;
    if (is_side_file(c))
        return false;
    p->step = c->step;
    p->module = c->module;
    p->first = c->at;
    p->n = c->units - c->at < c->most ? (size_t)(c->units - c->at) : c->most;
    c->at += p->n;
    if (c->at == c->units) {
        c->module++;
        c->at = 0;
    }
    return st_read(b->in, p->in, p->n * c->unit_bytes, &c->e) == 0;
}

static void compute_piece(void *arg, size_t lane)
{
    struct build *b = arg;
    struct piece *p = &b->lane[lane];
    const size_t cols = (size_t)p->step->cols;

    if (p->step->action == CT_SPLIT)
        q4_split(p->in, p->n, p->codes, p->scales);
    for (size_t i = 0; p->step->action == CT_QUANTIZE && i < p->n; i++)
        p->bad[i] = w8_quantize_row(w8_kind_of(b->set), (const uint16_t *)(const void *)p->in + i * cols, cols, p->codes + i * cols, (float *)(void *)p->scales + i);
}

static int refuse_row(struct build *b, const struct piece *p, size_t i)
{
    return err_set(b->e, EXIT_DATA, "%s: tensor %s, row %llu, column %ld: not a finite number: the source is damaged", st_reader_name(b->in),
        st_header_of(b->in)->t[p->step->source].name, (unsigned long long)(p->first + i), p->bad[i]);
}

/* Codes and scales of `code` and `scale` bytes a unit. */
static bool place_both(struct build *b, const struct piece *p, size_t code, size_t scale)
{
    const size_t t = p->step->first + p->module * p->step->parts;

    return !place(b, t, p->first * code, p->codes, p->n * code) && !place(b, t + 1, p->first * scale, p->scales, p->n * scale);
}

static bool give_piece(void *arg, size_t lane)
{
    struct build *b = arg;
    const struct piece *p = &b->lane[lane];

    if (p->step->action == CT_COPY)
        return !place(b, p->step->first, p->first, p->in, p->n);
    if (p->step->action == CT_SPLIT)
        return place_both(b, p, Q4_BLOCK - 2, 2);
    for (size_t i = 0; i < p->n; i++)
        if (p->bad[i] >= 0)
            return refuse_row(b, p, i) == 0;
    return place_both(b, p, (size_t)p->step->cols, sizeof(float));
}

static void open_lanes(struct build *b)
{
    size_t bytes = PIECE, rows = 1;

    for (const struct ct_step *s = b->plan->step; s < b->plan->step + b->plan->n_steps; s++)
        if (s->action == CT_QUANTIZE) {
            bytes = 2 * s->cols > bytes ? 2 * (size_t)s->cols : bytes;
            rows = s->cols && PIECE / (2 * s->cols) > rows ? PIECE / (2 * (size_t)s->cols) : rows;
        }
    b->par = par_new((int)b->set->jobs);
    b->lanes = par_lanes(b->par, MAX_LANES);
    for (size_t i = 0; i < b->lanes; i++)
        b->lane[i] = (struct piece){.in = xmalloc(bytes), .codes = xmalloc(bytes), .scales = xmalloc(PIECE / Q4_BLOCK * 2 + rows * sizeof(float)),
            .bad = xreallocarray(NULL, rows, sizeof(long))};
}

static void close_lanes(struct build *b)
{
    par_free(b->par);
    for (size_t i = 0; i < b->lanes; i++) {
        free(b->lane[i].in);
        free(b->lane[i].codes);
        free(b->lane[i].scales);
        free(b->lane[i].bad);
    }
}

/* --- the other files -------------------------------------------------------------------------------------------------- */

static int side_file(struct build *b, const char *name)
{
    struct output *out = outdir_file(b->dir, name, b->e);
    struct sha256 *s = sha256_new();
    char *buf = xmalloc(IO_CHUNK);
    int rc = out ? 0 : -1;
    uint64_t left;

    while (!rc && (left = st_left(b->in)) > 0) {
        size_t n = left < IO_CHUNK ? (size_t)left : IO_CHUNK;

        rc = st_read(b->in, buf, n, b->e) || output_write(out, buf, n, b->e) ? -1 : 0;
        if (!rc)
            sha256_add(s, buf, n);
    }
    free(buf);
    sha256_hex(s, add_sum(b, name)->hex);
    if (rc)
        output_abort(out);
    return rc ? -1 : output_commit(out, b->e);
}

static int write_text(struct build *b, const char *name, const char *text, size_t n)
{
    return output_whole(outdir_file(b->dir, name, b->e), text, n, b->e);
}

static int write_json(struct build *b, const char *name, const json_t *v)
{
    char *text = json_text_indented(v), *line = xasprintf("%s\n", text);
    size_t n = strlen(line);
    int rc = write_text(b, name, line, n);

    sha256_of(line, n, add_sum(b, name)->hex);
    free(text);
    free(line);
    return rc;
}

static json_t *stage_args(const struct settings *set)
{
    char size[32];

    snprintf(size, sizeof size, "%ld", set->shard_size);
    return json_pack("[o,o]", st_stage_arg("linears", set->linears), st_stage_arg("shard-size", size));
}

/* The stages that led here, this one included. */
static json_t *provenance(const struct st_reader *r, const struct settings *set, struct err *e)
{
    const struct st_header *in = st_header_of(r);
    struct st_header *h = st_header_new();
    json_t *v = NULL;

    st_meta_copy(h, in);
    if (st_provenance(h, st_reader_name(r), "ct-pack", stage_args(set), in, e) == 0)
        v = st_meta_list(h, "provenance", st_reader_name(r), e);
    st_header_free(h);
    return v;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct sum *)a)->name, ((const struct sum *)b)->name);
}

static int write_manifest(struct build *b)
{
    struct buf text = BUF_INIT;
    int rc;

    qsort(b->sum, b->n_sums, sizeof *b->sum, by_name);
    for (size_t i = 0; i < b->n_sums; i++)
        buf_printf(&text, "%s  %s\n", b->sum[i].hex, b->sum[i].name);
    rc = write_text(b, "MANIFEST.sha256", text.data, text.n);
    buf_free(&text);
    return rc;
}

static int write_json_files(struct build *b)
{
    json_t *prov = provenance(b->in, b->set, b->e);
    json_t *index = b->shards->n > 1 ? ct_shards_index(b->shards, b->plan) : NULL;
    int rc = prov ? 0 : -1;

    if (!rc)
        rc = write_json(b, "config.json", b->plan->config) || write_json(b, "provenance.json", prov)
            || (index && write_json(b, "model.safetensors.index.json", index)) ? -1 : 0;
    json_decref(prov);
    json_decref(index);
    return rc;
}

/* --- the build -------------------------------------------------------------------------------------------------------- */

static int take_tensors(struct build *b)
{
    static const struct relay relay = {take_piece, compute_piece, give_piece};
    struct cursor *c = &b->cursor;

    while (!c->ended) {
        par_relay(b->par, b->lanes, &relay, b);
        if (b->e->code)                         /* of what comes before that which could not be read */
            return -1;
        if (c->e.code)
            return err_set(b->e, c->e.code, "%s", c->e.msg);
        if (is_side_file(c)) {
            if (side_file(b, st_side_file(&st_header_of(b->in)->t[c->step->source])))
                return -1;
            c->module = c->modules;
        }
    }
    return 0;
}

static int write_build(struct build *b)
{
    if (io_free_space(b->set->out, b->shards->file_bytes + st_header_of(b->in)->nbytes / 1000 + (1 << 20), b->e))
        return -1;
    b->dir = outdir_open(b->set->out, b->set->force, b->e);
    if (!b->dir)
        return -1;
    progress_start("ct-pack", b->shards->file_bytes);
    if (take_tensors(b) || finish_shard(b) || write_json_files(b) || wait_for_hashes(b) || write_manifest(b)) {
        abandon_hashes(b);
        progress_end();
        outdir_abort(b->dir);
        return -1;
    }
    progress_end();
    return outdir_commit(b->dir, b->e);
}

static int pack(struct st_reader *in, const struct ct_plan *plan, const struct ct_shards *shards, const struct settings *set, struct err *e)
{
    struct build b = {.set = set, .in = in, .plan = plan, .shards = shards, .fd = -1, .e = e};
    int rc;

    b.sum = xcalloc(shards->n + plan->n_steps + 4, sizeof *b.sum);
    b.order = ct_shards_order(shards, plan);
    b.filled = xcalloc(plan->out->n + 1, sizeof *b.filled);
    open_lanes(&b);
    rc = write_build(&b);
    close_lanes(&b);
    for (size_t i = 0; i < b.n_sums; i++)
        free(b.sum[i].name);
    free(b.sum);
    free(b.order);
    free(b.filled);
    return rc;
}

/* --- plans ------------------------------------------------------------------------------------------------------------ */

static int print_plan(const struct ct_plan *p, const struct ct_shards *s, struct err *e)
{
    json_t *v = json_pack("{ss,sI,sI,sI,sI}", "build", p->build, "quantized_modules", (json_int_t)p->quantized_modules,
        "tensors", (json_int_t)p->out->n, "tensor_bytes", (json_int_t)p->out->nbytes, "shards", (json_int_t)s->n);
    int rc = json_line(stdout, v);

    json_decref(v);
    if (rc)
        return err_stdout(e);
    return finish_stdout(e);
}

/* The build's own plan stream: its names, and its config as metadata. */
static int write_plan_stream(const struct st_reader *in, const struct ct_plan *p, const struct settings *set, struct err *e)
{
    json_t *prov = provenance(in, set, e);
    struct st_writer *w;

    if (!prov)
        return -1;
    st_meta_set_json(p->out, "config", p->config);
    st_meta_set_json(p->out, "provenance", prov);
    st_meta_set(p->out, "plan", "1");
    json_decref(prov);
    w = st_create("-", p->out, false, e);
    return w ? st_finish(w, e) : -1;
}

static bool eight_bit(const char *build)
{
    return strncmp(build, "fp8", 3) == 0 || strncmp(build, "int8", 4) == 0;
}

static bool has_towers(const struct ct_plan *p)
{
    for (size_t i = 0; i < p->out->n; i++)
        if (gemma_classify(p->out->t[i].name) == GC_TOWER)
            return true;
    return false;
}

/* A recipe says which build it makes; a model that lacks what makes the difference gives another. */
static int check_expected(const struct ct_plan *p, const char *expect, const char *name, struct err *e)
{
    const char *why = "choose the recipe of that name";

    if (expect && strcmp(expect, "full") == 0 && !has_towers(p))
        return err_set(e, EXIT_DATA, "%s: build full does not apply: the source has no vision or audio parts, the text build is the whole of it", name);
    if (!expect || strcmp(expect, p->build) == 0)
        return 0;
    if (strcmp(expect, "ple4") == 0 && strcmp(p->build, "text") == 0)
        why = "the model has no per-layer table (only E2B and E4B do), the text build is what it can have";
    if (eight_bit(expect) && !eight_bit(p->build))
        why = "the source's linears are int4 already, 8-bit ones are made from a source in 16 bits";
    return err_set(e, EXIT_DATA, "%s: build %s does not apply: this makes %s: %s", name, expect, p->build, why);
}

static int run(struct st_reader *in, const struct settings *set, struct err *e)
{
    const struct st_header *h = st_header_of(in);
    enum ct_kind linears = strcmp(set->linears, "int4") == 0 ? CT_PACKED : strcmp(set->linears, "fp8") == 0 ? CT_FP8 : CT_INT8;
    struct ct_plan *plan = ct_plan_make(h, st_reader_name(in), linears, e);
    struct ct_shards *shards = plan && !check_expected(plan, set->expect, st_reader_name(in), e) ? ct_shards_make(plan, (uint64_t)set->shard_size, e) : NULL;
    bool to_stdout = strcmp(set->out, "-") == 0;
    int rc = -1;

    if (shards && plan->passed_linears)
        warn_msg("%s: %llu linears came packed and stay as they are, not %s: that is made from a source in 16 bits", st_reader_name(in),
            (unsigned long long)plan->passed_linears, set->linears);
    if (shards && st_is_plan(h))
        rc = to_stdout ? write_plan_stream(in, plan, set, e) : print_plan(plan, shards, e);
    else if (shards && to_stdout)
        err_set(e, EXIT_USAGE, "-o -: only a plan goes to stdout, a build needs a directory");
    else if (shards)
        rc = pack(in, plan, shards, set, e);
    if (!rc && st_is_plan(h))
        rc = st_next(in, e) || e->code ? -1 : 0;        /* nothing may follow a plan */
    ct_shards_free(shards);
    ct_plan_free(plan);
    return rc;
}

int main(int argc, char **argv)
{
    struct settings set = {.linears = "int4", .shard_size = 5000000000};
    struct err e = {0, ""};
    struct st_reader *in;
    int first;
    const struct opt opts[] = {
        {"output", 'o', OPT_STR, &set.out, "DIR", "the build directory to make; - with a plan stream: the build's own plan stream", 0, 0},
        {"linears", 0, OPT_CHOICE, &set.linears, "int4|fp8|int8", "how linears are stored", 0, 0},
        {"shard-size", 0, OPT_SIZE, &set.shard_size, "BYTES", "tensor bytes in one file at most", 1, 0},
        {"expect", 0, OPT_STR, &set.expect, "BUILD", "refuse (65) unless this is the build that comes out: text, ple4, emb4, fp8 …", 0, 0},
        {"force", 0, OPT_FLAG, &set.force, NULL, "replace an existing DIR once the new one is complete", 0, 0},
        {"jobs", 'j', OPT_INT, &set.jobs, "N", "threads, 0 = one a CPU", 0, 1024},
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL, 0, 0}
    };
    const struct opt_spec spec = {
        .usage = "[options] -o DIR [STREAM]",
        .about = "Write a compressed-tensors build directory that vLLM loads from a safetensors stream (stdin by default).\n"
            "A plan stream prints the plan of the build as JSON and writes nothing.",
        .opts = opts,
        .examples = "st-extract --text-only SRC | q4-regrid | ct-pack -o TEXT\n"
            "st-extract --text-only --plan SRC | ct-pack --linears fp8 -o FP8",
        .max_operands = 1
    };

    prog_init(argv[0]);
    first = opt_parse(&spec, argc, argv);
    if (!set.out)
        opt_usage("-o DIR is missing");
    in = st_open(first < argc ? argv[first] : "-", &e);
    if (!in || run(in, &set, &e))
        die(&e);
    st_close(in);
    return 0;
}
