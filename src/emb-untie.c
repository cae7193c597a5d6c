/* emb-untie: give lm_head its own table, or drop a stored one that is a copy.
 *
 * A stream's table is embed_tokens in any form: .weight, .weight_q4, or packed (.weight_packed, .weight_scale, .weight_shape); lm_head's tensors are its
 * twins when they have the same endings.  Untying adds a copy of each after the last of the table's; --drop-twin compares the twins byte for byte, before the
 * header leaves, and drops lm_head where they are equal.  tie_word_embeddings follows at both levels of config.
 * A seekable input is read twice; of a pipe the table is spooled (and what a differing lm_head has from its first difference on).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "base/opt.h"
#include "ct/quant_config.h"
#include "gemma/names.h"
#include "tensor/stream.h"

static struct {
    bool drop_twin, zstd;
    const char *out;
} opt = {.out = "-"};

static const struct opt options[] = {
    {"drop-twin", 0, OPT_FLAG, &opt.drop_twin, NULL, "drop a stored lm_head that equals embed_tokens, instead of adding one", 0, 0},
    {"zstd", 'z', OPT_FLAG, &opt.zstd, NULL, "compress the stream", 0, 0},
    {"output", 'o', OPT_STR, &opt.out, "FILE", "write there", 0, 0},
    {NULL, 0, OPT_FLAG, NULL, NULL, NULL, 0, 0}
};

static const struct opt_spec spec = {
    .usage = "[options] < stream > stream",
    .about = "Untie lm_head from embed_tokens, or drop a stored twin.",
    .opts = options,
    .examples = "st-extract --text-only SRC | q4-regrid --only linears,ple,embed | emb-untie | ct-pack -o OUT\n"
                "st-extract --text-only gemma-4-E2B-it-qat-w4a16-ct | emb-untie --drop-twin | ct-pack -o TIED",
    .min_operands = 0, .max_operands = 0
};

enum { MAX_TABLE = 5 };         /* tensors that a table may consist of */

/* The tables of a stream, as indices into its header. */
struct tables {
    size_t embed[MAX_TABLE], head[MAX_TABLE];
    size_t n_embed, n_head;
    size_t last;                /* the last of all of them */
    bool twins;                 /* head[i] is the same kind of tensor as embed[i], for all i */
};

static struct reading {
    struct st_reader *r;
    const struct st_header *in;
    const char *name;
    struct tables t;
} s;

/* --- what is there --------------------------------------------------------------------------------------------------- */

/* ".weight_q4" of "….embed_tokens.weight_q4". */
static const char *ending(const struct st_tensor *t)
{
    const char *dot = strrchr(t->name, '.');
    return dot ? dot : t->name;
}

static bool same_kind(const struct st_tensor *a, const struct st_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0
        && strcmp(ending(a), ending(b)) == 0;
}

static void add_table(size_t *list, size_t *n, size_t i)
{
    if (*n == MAX_TABLE)
        die_msg(EXIT_DATA, "%s: %s: more than %d tensors of one table", s.name, s.in->t[i].name, MAX_TABLE);
    list[(*n)++] = i;
    s.t.last = i;
}

/* Puts head in embed's order; false when one has no counterpart. */
static bool pair_up(struct tables *t)
{
    for (size_t i = 0; i < t->n_embed; i++) {
        size_t j = i;
        while (j < t->n_head && !same_kind(&s.in->t[t->embed[i]], &s.in->t[t->head[j]]))
            j++;
        if (j >= t->n_head)
            return false;
        size_t other = t->head[i];
        t->head[i] = t->head[j];
        t->head[j] = other;
    }
    return t->n_head == t->n_embed;
}

static void find_tables(void)
{
    for (size_t i = 0; i < s.in->n; i++) {
        enum gemma_class c = gemma_classify(s.in->t[i].name);
        if (c == GC_EMBED)
            add_table(s.t.embed, &s.t.n_embed, i);
        else if (c == GC_HEAD)
            add_table(s.t.head, &s.t.n_head, i);
    }
    if (s.t.n_embed == 0)
        die_msg(EXIT_DATA, "%s: no embed_tokens: there is nothing to tie or untie", s.name);
    if (s.t.n_head && s.t.head[0] < s.t.embed[s.t.n_embed - 1])
        die_msg(EXIT_DATA, "%s: %s comes before %s: bring the tables into order with st-extract -", s.name, s.in->t[s.t.head[0]].name,
                s.in->t[s.t.embed[s.t.n_embed - 1]].name);
    s.t.twins = s.t.n_head > 0 && pair_up(&s.t);
}

/* --- the spool ------------------------------------------------------------------------------------------------------- */

/* What a pipe gave before the header is decided, or the table whose copy is still to come.  A twin takes no room up to its first difference. */
struct spool {
    int fd;                     /* -1 = none */
    uint64_t *at;               /* by tensor: where its byte 0 is, or would be if it had been spooled from there */
    uint64_t end;
    uint64_t differs[MAX_TABLE];        /* twin p equals its table up to here */
    char *a, *b;                /* two buffers of IO_CHUNK */
};

static void spool_open(struct spool *sp, struct err *e)
{
    sp->fd = io_spool_fd(e);
    if (sp->fd < 0)
        die(e);
    sp->at = xcalloc(s.in->n, sizeof *sp->at);
}

static void spool_write(struct spool *sp, const char *buf, size_t n, struct err *e)
{
    if (io_pwrite_full(sp->fd, buf, n, sp->end, "spool", e) != 0)
        die(e);
    sp->end += n;
}

static void spool_read(const struct spool *sp, char *buf, size_t n, uint64_t at, struct err *e)
{
    if (io_pread_full(sp->fd, buf, n, at, "spool", e) != 0)
        die(e);
}

static size_t chunk(uint64_t left)
{
    return left < IO_CHUNK ? (size_t)left : IO_CHUNK;
}

/* The reader's current tensor into the spool, and to w unless that is NULL. */
static void spool_tensor(struct spool *sp, size_t i, struct st_writer *w, struct err *e)
{
    sp->at[i] = sp->end;
    for (size_t n; (n = chunk(st_left(s.r))) > 0; ) {
        if (st_read(s.r, sp->a, n, e) != 0 || (w && st_write(w, sp->a, n, e) != 0))
            die(e);
        spool_write(sp, sp->a, n, e);
    }
}

/* n bytes of the spool to w. */
static void unspool(struct spool *sp, uint64_t at, uint64_t n, struct st_writer *w, struct err *e)
{
    for (uint64_t done = 0; done < n; done += chunk(n - done)) {
        spool_read(sp, sp->a, chunk(n - done), at + done, e);
        if (st_write(w, sp->a, chunk(n - done), e) != 0)
            die(e);
    }
}

/* --- comparing twins ------------------------------------------------------------------------------------------------- */

static size_t first_difference(const char *a, const char *b, size_t n)     /* n = none */
{
    size_t i = 0;
    if (memcmp(a, b, n) == 0)
        return n;
    while (a[i] == b[i])
        i++;
    return i;
}

static void warn_differs(size_t p, uint64_t at)
{
    const struct st_tensor *embed = &s.in->t[s.t.embed[p]];
    uint64_t row = embed->ndim ? embed->nbytes / embed->shape[0] : embed->nbytes;
    warn_msg("%s: %s differs from %s, first at row %llu: both are kept, untied", s.name, s.in->t[s.t.head[p]].name, embed->name, (unsigned long long)(at / row));
}

static void read_at(size_t i, uint64_t offset, char *buf, size_t n, struct err *e)
{
    if (st_seek(s.r, i, e) != 0 || st_skip(s.r, offset, e) != 0 || st_read(s.r, buf, n, e) != 0)
        die(e);
}

/* Twin number p of a seekable input. */
static bool equal_in_file(struct spool *sp, size_t p, struct err *e)
{
    uint64_t nbytes = s.in->t[s.t.embed[p]].nbytes;
    for (uint64_t done = 0; done < nbytes; done += chunk(nbytes - done)) {
        size_t n = chunk(nbytes - done);
        read_at(s.t.embed[p], done, sp->a, n, e);
        read_at(s.t.head[p], done, sp->b, n, e);
        size_t same = first_difference(sp->a, sp->b, n);
        if (same < n) {
            warn_differs(p, done + same);
            return false;
        }
    }
    return true;
}

/* Twin number p, the pipe's current tensor, against its spooled table; from the first difference on it is spooled too. */
static bool equal_in_spool(struct spool *sp, size_t p, struct err *e)
{
    uint64_t nbytes = sp->differs[p] = s.in->t[s.t.head[p]].nbytes;
    for (uint64_t done = 0; done < nbytes; ) {
        size_t n = chunk(nbytes - done), same = 0;
        if (st_read(s.r, sp->a, n, e) != 0)
            die(e);
        if (sp->differs[p] == nbytes) {
            spool_read(sp, sp->b, n, sp->at[s.t.embed[p]] + done, e);
            same = first_difference(sp->a, sp->b, n);
            if (same < n) {
                sp->differs[p] = done + same;
                sp->at[s.t.head[p]] = sp->end - sp->differs[p];
                warn_differs(p, sp->differs[p]);
            }
        }
        spool_write(sp, sp->a + same, n - same, e);
        done += n;
    }
    return sp->differs[p] == nbytes;
}

/* Which pair of twins tensor i is the head of; MAX_TABLE = none. */
static size_t head_number(size_t i)
{
    for (size_t p = 0; p < s.t.n_head; p++)
        if (s.t.head[p] == i)
            return p;
    return MAX_TABLE;
}

/* Are lm_head and the table the same bytes?  Leaves a seekable reader at its start, a pipe after the last table with all before it spooled. */
static bool twins_equal(struct spool *sp, struct err *e)
{
    bool equal = true;
    if (st_seekable(s.r)) {
        for (size_t p = 0; p < s.t.n_head && equal; p++)
            equal = equal_in_file(sp, p, e);
        if (st_rewind(s.r, e) != 0)
            die(e);
        return equal;
    }
    spool_open(sp, e);
    for (size_t i = 0; i <= s.t.last; i++) {
        if (!st_next(s.r, e))
            die(e);
        size_t p = head_number(i);
        if (p == MAX_TABLE)
            spool_tensor(sp, i, NULL, e);
        else
            equal = equal_in_spool(sp, p, e) && equal;
    }
    return equal;
}

/* --- the stream that comes out --------------------------------------------------------------------------------------- */

enum job { ADD, KEEP, DROP };   /* a copy; what is stored; all but the stored lm_head */

static enum job decide(struct spool *sp, struct err *e)
{
    if (s.t.n_head == 0)
        return opt.drop_twin ? KEEP : ADD;
    if (!opt.drop_twin)
        return KEEP;
    if (!s.t.twins) {
        warn_msg("%s: %s is not stored as %s is: both are kept, untied", s.name, s.in->t[s.t.head[0]].name, s.in->t[s.t.embed[0]].name);
        return KEEP;
    }
    return st_is_plan(s.in) || twins_equal(sp, e) ? DROP : KEEP;
}

static void set_tied(struct st_header *h, bool tied, struct err *e)
{
    json_t *config = st_meta_config(s.in, s.name, e);
    if (!config)
        die(e);
    json_t *text = json_object_get(config, "text_config");
    if (s.t.n_head == 0 && (json_is_false(json_object_get(config, "tie_word_embeddings")) || json_is_false(json_object_get(text, "tie_word_embeddings"))))
        die_msg(EXIT_DATA, "%s: config: tie_word_embeddings is false and there is no lm_head: the head is missing, a copy would be another model", s.name);
    ct_set_tied(config, tied);
    st_meta_set_json(h, "config", config);
    json_decref(config);
}

/* lm_head's name beside a table's: next to the language model, or inside the wrapper as older exports have it. */
static char *head_name(const struct st_tensor *embed)
{
    bool inside = strncmp(embed->name, "language_model.model.", strlen("language_model.model.")) == 0;
    return xasprintf("%slm_head%s", inside ? "language_model." : "", ending(embed));
}

static bool is_last_of_table(size_t i)
{
    return i == s.t.embed[s.t.n_embed - 1];
}

static struct st_header *output_header(enum job job, struct err *e)
{
    struct st_header *h = st_header_new();
    st_meta_copy(h, s.in);
    set_tied(h, job == DROP || (job == KEEP && s.t.n_head == 0), e);
    for (size_t i = 0; i < s.in->n; i++) {
        const struct st_tensor *t = &s.in->t[i];
        if (job != DROP || head_number(i) == MAX_TABLE)
            st_header_add(h, t->name, t->dtype, t->ndim, t->shape);
        for (size_t p = 0; job == ADD && is_last_of_table(i) && p < s.t.n_embed; p++) {
            const struct st_tensor *embed = &s.in->t[s.t.embed[p]];
            char *name = head_name(embed);
            st_header_add(h, name, embed->dtype, embed->ndim, embed->shape);
            free(name);
        }
    }
    json_t *args = opt.drop_twin ? json_pack("[s]", "--drop-twin") : json_array();
    if (st_provenance(h, s.name, prog_name, args, s.in, e) != 0)
        die(e);
    return h;
}

/* What twins_equal() took from a pipe. */
static void write_spooled(struct st_writer *w, struct spool *sp, enum job job, struct err *e)
{
    for (size_t i = 0; i <= s.t.last; i++) {
        size_t p = head_number(i);
        uint64_t nbytes = s.in->t[i].nbytes, shared = p == MAX_TABLE ? 0 : sp->differs[p];
        if (job == DROP && p != MAX_TABLE)
            continue;
        if (p != MAX_TABLE)
            unspool(sp, sp->at[s.t.embed[p]], shared, w, e);
        unspool(sp, sp->at[i] + shared, nbytes - shared, w, e);
    }
}

/* lm_head, a copy of the table that has just gone by; leaves the reader after the table. */
static void write_copy(struct st_writer *w, struct spool *sp, struct err *e)
{
    for (size_t p = 0; p < s.t.n_embed; p++) {
        size_t i = s.t.embed[p];
        if (sp->fd >= 0)
            unspool(sp, sp->at[i], s.in->t[i].nbytes, w, e);
        else if (st_seek(s.r, i, e) != 0 || st_pass(w, s.r, s.in->t[i].nbytes, e) != 0)
            die(e);
    }
}

/* The reader's current tensor, and the copy behind the table. */
static void write_tensor(const struct st_tensor *t, struct st_writer *w, struct spool *sp, enum job job, struct err *e)
{
    size_t i = (size_t)(t - s.in->t);
    bool table = gemma_classify(t->name) == GC_EMBED;
    if (job == DROP && head_number(i) != MAX_TABLE)
        return;
    if (job == ADD && table && sp->fd >= 0)
        spool_tensor(sp, i, w, e);
    else if (st_pass(w, s.r, t->nbytes, e) != 0)
        die(e);
    if (job == ADD && is_last_of_table(i))
        write_copy(w, sp, e);
}

static void write_stream(const struct st_header *h, struct spool *sp, enum job job, struct err *e)
{
    struct st_writer *w = st_create(opt.out, h, opt.zstd, e);
    const struct st_tensor *t;
    if (!w)
        die(e);
    if (sp->fd >= 0 && job != ADD)
        write_spooled(w, sp, job, e);
    if (job == ADD && !st_seekable(s.r))
        spool_open(sp, e);
    while ((t = st_next(s.r, e)))
        write_tensor(t, w, sp, job, e);
    if (e->code) {
        st_abandon(w);
        die(e);
    }
    if (st_finish(w, e) != 0)
        die(e);
}

static void say_freed(void)
{
    uint64_t freed = 0;
    for (size_t p = 0; p < s.t.n_head; p++)
        freed += s.in->t[s.t.head[p]].nbytes;
    if (prog_verbosity >= 0)
        fprintf(stderr, "%s: dropped %s, a copy of %s: %llu bytes freed\n", prog_name, s.in->t[s.t.head[0]].name, s.in->t[s.t.embed[0]].name,
                (unsigned long long)freed);
}

int main(int argc, char **argv)
{
    struct err e = {0, ""};
    struct spool sp = {.fd = -1};
    prog_init(argv[0]);
    opt_parse(&spec, argc, argv);

    s.r = st_open("-", &e);
    if (!s.r)
        die(&e);
    s.in = st_header_of(s.r);
    s.name = st_reader_name(s.r);
    find_tables();
    sp.a = xmalloc(IO_CHUNK);
    sp.b = xmalloc(IO_CHUNK);
    enum job job = decide(&sp, &e);
    struct st_header *h = output_header(job, &e);
    write_stream(h, &sp, job, &e);
    if (job == DROP)
        say_freed();

    if (sp.fd >= 0)
        close(sp.fd);
    free(sp.at);
    free(sp.a);
    free(sp.b);
    st_header_free(h);
    st_close(s.r);
    return 0;
}
