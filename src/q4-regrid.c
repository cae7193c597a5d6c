/* q4-regrid: recover the Q4_0 grid of a stream's 16-bit weights.
 *
 * Every selected tensor N [.., rows, K] BF16 becomes N_q4 [.., rows, K/32, 18] U8: a scale and 32 levels a group (quant/q4.h), found exactly
 * (quant/recover.h).  All else passes unchanged, tensors that are packed or in blocks already and K and V that nothing reads too.  A group off the grid ends the run (65) with the
 * --leave that would keep its tensor; --off-grid keep reads a seekable input twice and finds those tensors itself.
 */
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/opt.h"
#include "base/par.h"
#include "base/progress.h"
#include "gemma/names.h"
#include "quant/recover.h"
#include "tensor/stream.h"

static struct {
    const char *only, *scale, *leave, *off_grid, *simd, *report, *out;
    bool zstd;
    long jobs;
} opt = {.only = "linears", .off_grid = "refuse", .out = "-"};

static const struct opt options[] = {
    {"only", 0, OPT_STR, &opt.only, "CLASSES", "what to recover, a list of linears, ple, embed", 0, 0},
    {"scale-dtype", 0, OPT_CHOICE, &opt.scale, "bf16|f16", "type of the scales; default: the stream's, else bf16", 0, 0},
    {"leave", 0, OPT_STR, &opt.leave, "ERE", "leave the tensors whose name matches in 16 bits", 0, 0},
    {"off-grid", 0, OPT_CHOICE, &opt.off_grid, "refuse|keep", "tensors off the grid: an error, or kept in 16 bits\n(two passes: stdin must be a file)", 0, 0},
    {"simd", 0, OPT_CHOICE, &opt.simd, "scalar|avx2|avx512", "default: the best this CPU has; all give the same bytes", 0, 0},
    {"report", 0, OPT_STR, &opt.report, "FILE", "what was recovered and how exactly, JSON Lines", 0, 0},
    {"jobs", 'j', OPT_INT, &opt.jobs, "N", "threads; default: one a CPU", 1, 1024},
    {"zstd", 'z', OPT_FLAG, &opt.zstd, NULL, "compress the stream", 0, 0},
    {"output", 'o', OPT_STR, &opt.out, "FILE", "write there", 0, 0},
    {NULL, 0, OPT_FLAG, NULL, NULL, NULL, 0, 0}
};

static const struct opt_spec spec = {
    .usage = "[options] < stream > stream",
    .about = "Recover level and step of every group of 32 of a Q4_0 export, exactly.",
    .opts = options,
    .examples = "st-extract --text-only SRC | q4-regrid --only linears,ple,embed | emb-untie | ct-pack -o OUT\n"
                "q4-regrid --off-grid keep --report r.jsonl < model.safetensors > regridded.safetensors",
    .min_operands = 0, .max_operands = 0
};

enum { PART = 1024 };           /* groups that one thread takes at a time: 64 KiB of values */
enum { MAX_PARTS = 48 };

struct item {
    const struct st_tensor *in;
    enum { PASS, REGRID, LEFT } act;
    uint64_t row_groups, groups;
    uint64_t off;               /* groups off the grid; counted with --off-grid keep */
    bool counted;
    struct q4_tally tally;
};

struct items { struct item *item; size_t n; };

/* --- what is selected ------------------------------------------------------------------------------------------------ */

static const struct { const char *name; unsigned classes; } selections[] = {
    {"linears", 1u << GC_LINEAR | 1u << GC_EXPERTS}, {"ple", 1u << GC_PLE}, {"embed", 1u << GC_EMBED | 1u << GC_HEAD},
};
enum { N_SELECTIONS = sizeof selections / sizeof *selections };

/* --only as a set of indices into selections. */
static unsigned parse_only(void)
{
    unsigned set = 0;
    for (const char *s = opt.only; ; s++) {
        size_t n = strcspn(s, ",");
        int i = 0;
        while (i < N_SELECTIONS && (strlen(selections[i].name) != n || strncmp(s, selections[i].name, n) != 0))
            i++;
        if (i == N_SELECTIONS)
            opt_usage("--only: %s: a list of linears, ple, embed is expected", opt.only);
        set |= 1u << i;
        s += n;
        if (!*s)
            return set;
    }
}

static bool selected(const struct st_tensor *t, unsigned only)
{
    unsigned cls = 1u << gemma_classify(t->name);
    for (int i = 0; i < N_SELECTIONS; i++)
        if (only & 1u << i && selections[i].classes & cls)
            return true;
    return false;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* A weight in floating point of 16 bits and more; what is packed, in blocks or in 8 bits already is none. */
static bool is_wide_weight(const struct st_tensor *t)
{
    bool whole = ends_with(t->name, ".weight") || ends_with(t->name, ".experts.gate_up_proj") || ends_with(t->name, ".experts.down_proj");
    return whole && (t->dtype == ST_BF16 || t->dtype == ST_F16 || t->dtype == ST_F32 || t->dtype == ST_F64);
}

static bool in_list(const json_t *list, const char *name)
{
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
        if (json_is_string(v) && strcmp(json_string_value(v), name) == 0)
            return true;
    return false;
}

static void check_shape(struct item *it, const char *stream)
{
    const struct st_tensor *t = it->in;
    int want = gemma_classify(t->name) == GC_EXPERTS ? 3 : 2;
    if (t->dtype != ST_BF16)
        die_msg(EXIT_DATA, "%s: %s: %s, BF16 expected: only bf16 values show their grid", stream, t->name, st_dtype_name(t->dtype));
    if (t->ndim != want)
        die_msg(EXIT_DATA, "%s: %s: %d dimensions, %d expected", stream, t->name, t->ndim, want);
    uint64_t k = t->shape[t->ndim - 1];
    if (k % Q4_GROUP)
        die_msg(EXIT_DATA, "%s: %s: rows of %llu values are no multiple of 32: int4 groups do not fit", stream, t->name, (unsigned long long)k);
    it->row_groups = k / Q4_GROUP;
    it->groups = t->nbytes / (2 * Q4_GROUP);
}

/* Knows which K and V nothing reads; false without a config that says so. */
static bool read_model(const struct st_header *h, const char *stream, struct gemma *g)
{
    struct err e = {0, ""};
    json_t *config = st_meta(h, "config") ? st_meta_config(h, stream, &e) : NULL;
    bool known = config && gemma_config_read(g, config, stream, &e) == 0;
    json_decref(config);
    return known;
}

/* `before` = names that an earlier stage left in 16 bits: they stay there.  K and V of layers that share another's pass: builds drop them. */
static struct items plan(const struct st_header *h, unsigned only, const regex_t *leave, const json_t *before, const char *stream)
{
    struct items all = {xcalloc(h->n ? h->n : 1, sizeof *all.item), h->n};
    struct gemma g;
    bool known = read_model(h, stream, &g);
    for (size_t i = 0; i < h->n; i++) {
        struct item *it = &all.item[i];
        it->in = &h->t[i];
        if (!selected(it->in, only) || !is_wide_weight(it->in) || (known && gemma_is_dead(&g, it->in->name)))
            continue;
        bool left = in_list(before, it->in->name) || (opt.leave && xregexec(leave, it->in->name));
        it->act = left ? LEFT : REGRID;
        if (!left)
            check_shape(it, stream);
    }
    return all;
}

/* --- groups that have no block --------------------------------------------------------------------------------------- */

static bool fused(const struct item *a, const struct item *b)
{
    char ka[200], kb[200];
    if (a == b)
        return true;
    return gemma_fused_key(a->in->name, ka, sizeof ka) && gemma_fused_key(b->in->name, kb, sizeof kb) && strcmp(ka, kb) == 0;
}

static void add_escaped(struct buf *b, const char *name)
{
    for (; *name; name++) {
        if (strchr(".[]()*+?{}^$|\\", *name))
            buf_char(b, '\\');
        buf_char(b, *name);
    }
}

/* The --leave that keeps this tensor and all that the loader fuses it with, besides what --leave keeps now. */
static char *leave_expression(const struct items *all, const struct item *bad)
{
    struct buf b = BUF_INIT;
    const char *lead = "^(";
    if (opt.leave)
        buf_printf(&b, "(%s)|", opt.leave);
    for (size_t i = 0; i < all->n; i++) {
        const struct item *it = &all->item[i];
        if (it->act == PASS || !fused(it, bad))
            continue;
        buf_str(&b, lead);
        add_escaped(&b, it->in->name);
        lead = "|";
    }
    buf_str(&b, ")$");
    return b.data;
}

/* "row 5, group 2, value 17", rows of a bank within their expert. */
static char *place(const struct item *it, uint64_t group, int at)
{
    const struct st_tensor *t = it->in;
    uint64_t row = group / it->row_groups;
    char *expert = t->ndim == 3 ? xasprintf("expert %llu, ", (unsigned long long)(row / t->shape[1])) : xstrdup("");
    if (t->ndim == 3)
        row %= t->shape[1];
    char *s = xasprintf("%srow %llu, group %llu, value %d", expert, (unsigned long long)row, (unsigned long long)(group % it->row_groups), at);
    free(expert);
    return s;
}

_Noreturn static void refuse(const struct items *all, const struct item *it, uint64_t group, const uint16_t *values, const char *stream)
{
    struct q4_fault f;
    q4_explain(values, &f);
    char *where = place(it, group, f.at);
    if (f.kind == Q4_STEP_RANGE)
        die_msg(EXIT_DATA, "%s: %s: %s: a step of %.9g is beyond the range of f16: use --scale-dtype bf16", stream, it->in->name, where, f.step);
    die_msg(EXIT_DATA, "%s: %s: %s: %.9g is %s: keep the tensor in 16 bits with --leave '%s'", stream, it->in->name, where,
            (double)bf16_to_f32(values[f.at]), f.kind == Q4_NOT_FINITE ? "no number that a grid holds" : "off the Q4_0 grid",
            leave_expression(all, it));
}

/* --- tiles of some parts a thread; one is read while another is recovered ---------------------------------------------- */

struct part {
    size_t n, done;             /* groups; recovered before the first fault */
    uint64_t off;
    struct q4_tally tally;
};

struct tile {
    size_t n;                   /* groups */
    uint16_t *values;
    uint8_t *blocks;
    struct part part[MAX_PARTS];
    const struct tiles *of;
};

struct tiles {
    struct par *par;
    size_t parts;
    enum q4_scale kind;
    bool count_off, count_exact;
    struct tile tile[2];
};

static void recover_part(void *arg, size_t i)
{
    struct tile *tile = arg;
    const struct tiles *t = tile->of;
    struct part *p = &tile->part[i];
    const uint16_t *values = tile->values + i * PART * Q4_GROUP;
    uint8_t *blocks = tile->blocks + i * PART * Q4_BLOCK;
    p->done = t->count_exact ? q4_recover_counted(values, p->n, t->kind, blocks, &p->tally) : q4_recover(values, p->n, t->kind, blocks);
    while (t->count_off && p->done < p->n) {
        struct q4_fault f;
        q4_explain(values + p->done * Q4_GROUP, &f);
        if (f.kind == Q4_STEP_RANGE)
            break;
        p->off++;
        p->done++;
        p->done += q4_recover(values + p->done * Q4_GROUP, p->n - p->done, t->kind, blocks);
    }
}

static void add_share(struct q4_share *to, const struct q4_share *from)
{
    to->values += from->values;
    to->groups += from->groups;
    if (from->worst > to->worst)
        to->worst = from->worst;
}

static void add_part(struct item *it, const struct part *p)
{
    it->off += p->off;
    it->tally.groups += p->tally.groups;
    it->tally.zero += p->tally.zero;
    it->tally.negative += p->tally.negative;
    add_share(&it->tally.written, &p->tally.written);
    add_share(&it->tally.as_bf16, &p->tally.as_bf16);
}

static size_t parts_of(const struct tile *tile)
{
    return (tile->n + PART - 1) / PART;
}

/* The next groups of the tensor, of which `left` are left; none at its end. */
static void read_tile(struct tile *tile, uint64_t left, struct st_reader *r, struct err *e)
{
    size_t most = tile->of->parts * PART;
    tile->n = left < most ? (size_t)left : most;
    if (st_read(r, tile->values, tile->n * Q4_GROUP * 2, e) != 0)
        die(e);
    for (size_t i = 0; i < parts_of(tile); i++)
        tile->part[i] = (struct part){.n = tile->n - i * PART < PART ? tile->n - i * PART : PART};
}

/* A recovered tile that begins with this group of its tensor: to w (NULL: only counted). */
static void finish_tile(const struct tile *tile, uint64_t group, const struct items *all, struct item *it, struct st_reader *r, struct st_writer *w, struct err *e)
{
    for (size_t i = 0; i < parts_of(tile); i++) {
        size_t at = i * PART + tile->part[i].done;
        if (tile->part[i].done < tile->part[i].n)
            refuse(all, it, group + at, tile->values + at * Q4_GROUP, st_reader_name(r));
        add_part(it, &tile->part[i]);
    }
    if (w && st_write(w, tile->blocks, tile->n * Q4_BLOCK, e) != 0)
        die(e);
    progress_add(tile->n * Q4_GROUP * 2);
}

/* One tensor of r through the tiles, to w (NULL: only counted). */
static void regrid(struct tiles *t, const struct items *all, struct item *it, struct st_reader *r, struct st_writer *w, struct err *e)
{
    struct tile *now = &t->tile[0], *next = &t->tile[1];
    uint64_t done = 0;
    for (read_tile(now, it->groups, r, e); now->n > 0; ) {
        par_start(t->par, parts_of(now), recover_part, now);
        read_tile(next, it->groups - done - now->n, r, e);
        par_wait(t->par);
        finish_tile(now, done, all, it, r, w, e);
        done += now->n;
        struct tile *free_one = now;
        now = next;
        next = free_one;
    }
}

/* --off-grid keep, first pass: what is off the grid is left in 16 bits, and all that the loader fuses it with. */
static void find_off_grid(struct tiles *t, struct items *all, struct st_reader *r, struct err *e)
{
    if (!st_seekable(r))
        opt_usage("%s: --off-grid keep reads twice: give it a file (%s < FILE)", st_reader_name(r), prog_name);
    bool count_exact = t->count_exact;
    t->count_off = true;
    t->count_exact = false;
    progress_start("looking for what is off the grid", st_header_of(r)->nbytes);
    for (size_t i = 0; st_next(r, e); i++) {
        all->item[i].counted = all->item[i].act == REGRID;
        if (all->item[i].counted)
            regrid(t, all, &all->item[i], r, NULL, e);
        else
            progress_add(all->item[i].in->nbytes);
    }
    progress_end();
    if (e->code || st_rewind(r, e) != 0)
        die(e);
    t->count_off = false;
    t->count_exact = count_exact;
    for (size_t i = 0; i < all->n; i++)
        for (size_t j = 0; j < all->n && all->item[i].off; j++)
            if (all->item[j].act == REGRID && fused(&all->item[j], &all->item[i])) {
                all->item[j].act = LEFT;
                warn_msg("%s: kept in 16 bits: %s has %llu groups off the grid", all->item[j].in->name, i == j ? "it" : all->item[i].in->name,
                         (unsigned long long)all->item[i].off);
            }
}

/* --- the stream that comes out --------------------------------------------------------------------------------------- */

static enum q4_scale choose_scale(const struct st_header *h, const char *stream)
{
    const char *theirs = st_meta(h, "q4_scale");
    int stored = theirs ? q4_scale_from_name(theirs) : -1, wanted = opt.scale ? q4_scale_from_name(opt.scale) : stored;
    if (theirs && stored < 0)
        die_msg(EXIT_DATA, "%s: metadata q4_scale: %s, bf16 or f16 expected", stream, theirs);
    if (theirs && wanted != stored)
        die_msg(EXIT_DATA, "%s: metadata q4_scale: the stream has %s scales already, %s asked for: a stream has one type: use --scale-dtype %s",
                stream, q4_scale_name(stored), opt.scale, q4_scale_name(stored));
    return wanted < 0 ? Q4_BF16 : (enum q4_scale)wanted;
}

static json_t *provenance_args(unsigned only, enum q4_scale kind)
{
    json_t *args = json_array();
    struct buf b = BUF_INIT;
    for (int i = 0; i < N_SELECTIONS; i++)
        if (only & 1u << i)
            buf_printf(&b, "%s%s", b.n ? "," : "--only=", selections[i].name);
    json_array_append_new(args, json_string(b.data));
    json_array_append_new(args, json_sprintf("--scale-dtype=%s", q4_scale_name(kind)));
    if (opt.leave)
        json_array_append_new(args, json_sprintf("--leave=%s", opt.leave));
    if (strcmp(opt.off_grid, "keep") == 0)
        json_array_append_new(args, json_string("--off-grid=keep"));
    buf_free(&b);
    return args;
}

static void add_blocks(struct st_header *h, const struct item *it)
{
    uint64_t shape[ST_MAX_DIMS];
    int ndim = it->in->ndim;
    char *name = xasprintf("%s_q4", it->in->name);
    for (int i = 0; i < ndim - 1; i++)
        shape[i] = it->in->shape[i];
    shape[ndim - 1] = it->row_groups;
    shape[ndim] = Q4_BLOCK;
    st_header_add(h, name, ST_U8, ndim + 1, shape);
    free(name);
}

/* `left` = the names of metadata q4_left so far; grows. */
static struct st_header *output_header(const struct st_header *in, const struct items *all, json_t *left, unsigned only, enum q4_scale kind, struct err *e)
{
    struct st_header *h = st_header_new();
    bool blocks = st_meta(in, "q4_scale") != NULL;
    st_meta_copy(h, in);
    for (size_t i = 0; i < all->n; i++) {
        const struct item *it = &all->item[i];
        if (it->act == REGRID)
            add_blocks(h, it);
        else
            st_header_add(h, it->in->name, it->in->dtype, it->in->ndim, it->in->shape);
        if (it->act == LEFT && !in_list(left, it->in->name))
            json_array_append_new(left, json_string(it->in->name));
        blocks |= it->act == REGRID;
    }
    st_meta_set(h, "q4_scale", blocks ? q4_scale_meta(kind) : NULL);
    if (json_array_size(left))
        st_meta_set_json(h, "q4_left", left);
    if (st_provenance(h, prog_name, provenance_args(only, kind), in, e) != 0)
        die(e);
    return h;
}

static void write_stream(struct tiles *t, struct items *all, struct st_reader *r, const struct st_header *h, struct err *e)
{
    struct st_writer *w = st_create(opt.out, h, opt.zstd, e);
    if (!w)
        die(e);
    progress_start("regridding", st_header_of(r)->nbytes);
    for (size_t i = 0; st_next(r, e); i++) {
        struct item *it = &all->item[i];
        if (it->act == REGRID)
            regrid(t, all, it, r, w, e);
        else if (st_pass(w, r, it->in->nbytes, e) != 0)
            die(e);
        else
            progress_add(it->in->nbytes);
    }
    progress_end();
    if (e->code) {
        st_abandon(w);
        die(e);
    }
    if (st_finish(w, e) != 0)
        die(e);
}

/* --- the report ------------------------------------------------------------------------------------------------------ */

static json_t *report_share(const struct q4_share *s)
{
    return json_pack("{s:I, s:I, s:f}", "values", (json_int_t)s->values, "groups", (json_int_t)s->groups, "worst_error", s->worst);
}

/* groups, off_grid, zero, negative; shares reproduced bit for bit, as written and by a reader that holds scales in bf16. */
static void report_counts(json_t *line, const struct q4_tally *t, uint64_t off)
{
    json_object_set_new(line, "values", json_integer((json_int_t)(t->groups * Q4_GROUP)));
    json_object_set_new(line, "groups", json_integer((json_int_t)t->groups));
    json_object_set_new(line, "off_grid", json_integer((json_int_t)off));
    json_object_set_new(line, "zero", json_integer((json_int_t)t->zero));
    json_object_set_new(line, "negative", json_integer((json_int_t)t->negative));
    json_object_set_new(line, "exact", report_share(&t->written));
    json_object_set_new(line, "exact_as_bf16", report_share(&t->as_bf16));
}

static json_t *report_left(const struct item *it)
{
    json_t *line = json_pack("{s:s, s:b}", "tensor", it->in->name, "left", 1);
    json_object_set_new(line, "groups", json_integer((json_int_t)(it->in->nbytes / (2 * Q4_GROUP))));
    json_object_set_new(line, "off_grid", it->counted ? json_integer((json_int_t)it->off) : json_null());
    return line;
}

static void write_line(struct output *out, json_t *line, struct err *e)
{
    char *text = json_text(line, false);
    if (output_write(out, text, strlen(text), e) != 0 || output_write(out, "\n", 1, e) != 0)
        die(e);
    free(text);
    json_decref(line);
}

static void write_report(const struct items *all, enum q4_scale kind, struct err *e)
{
    struct output *out = output_open(opt.report, false, e);
    struct part sum = {.n = 0};
    struct item total = {.act = PASS};
    json_int_t regridded = 0, left = 0;
    if (!out)
        die(e);
    for (size_t i = 0; i < all->n; i++) {
        const struct item *it = &all->item[i];
        if (it->act == PASS)
            continue;
        json_t *line = it->act == LEFT ? report_left(it) : json_pack("{s:s, s:b}", "tensor", it->in->name, "left", 0);
        if (it->act == REGRID) {
            report_counts(line, &it->tally, 0);
            sum.tally = it->tally;
            add_part(&total, &sum);
        }
        total.off += it->off;
        regridded += it->act == REGRID;
        left += it->act == LEFT;
        write_line(out, line, e);
    }
    json_t *line = json_pack("{s:b, s:s, s:I, s:I}", "summary", 1, "scale_dtype", q4_scale_name(kind), "tensors", regridded, "left", left);
    report_counts(line, &total.tally, total.off);
    write_line(out, line, e);
    if (output_commit(out, e) != 0)
        die(e);
}

/* --- the job --------------------------------------------------------------------------------------------------------- */

static regex_t parse_options(unsigned *only)
{
    regex_t re;
    *only = parse_only();
    opt_regex(&re, "leave", opt.leave);
    if (opt.report && strcmp(opt.report, "-") == 0 && strcmp(opt.out, "-") == 0)
        opt_usage("--report: the stream goes to stdout already: name a file");
    if (simd_force(opt.simd) != 0)
        die_msg(EXIT_UNAVAILABLE, "--simd %s: this CPU has no more than %s", opt.simd, simd_name(simd_level()));
    return re;
}

static struct tiles *new_tiles(enum q4_scale kind)
{
    struct tiles *t = xcalloc(1, sizeof *t);
    t->par = par_new((int)opt.jobs);
    t->kind = kind;
    t->count_exact = opt.report != NULL;
    /* A pipe's capacity at a time, 1 MiB, and some parts for each thread; one thread alone has it in its cache. */
    size_t threads = (size_t)par_threads(t->par);
    t->parts = threads == 1 ? 8 : threads < 4 ? 16 : 4 * threads < MAX_PARTS ? 4 * threads : MAX_PARTS;
    for (int i = 0; i < 2; i++) {
        t->tile[i].values = xmalloc(t->parts * PART * Q4_GROUP * 2);
        t->tile[i].blocks = xmalloc(t->parts * PART * Q4_BLOCK);
        t->tile[i].of = t;
    }
    return t;
}

static void free_tiles(struct tiles *t)
{
    par_free(t->par);
    for (int i = 0; i < 2; i++) {
        free(t->tile[i].values);
        free(t->tile[i].blocks);
    }
    free(t);
}

int main(int argc, char **argv)
{
    struct err e = {0, ""};
    unsigned only;
    prog_init(argv[0]);
    opt_parse(&spec, argc, argv);
    regex_t leave = parse_options(&only);

    struct st_reader *r = st_open("-", &e);
    if (!r)
        die(&e);
    const struct st_header *in = st_header_of(r);
    json_t *left = st_meta(in, "q4_left") ? json_parse(st_meta(in, "q4_left"), strlen(st_meta(in, "q4_left")), "metadata q4_left", &e) : json_array();
    if (!left)
        die(&e);
    enum q4_scale kind = choose_scale(in, st_reader_name(r));
    struct items all = plan(in, only, &leave, left, st_reader_name(r));
    struct tiles *tiles = new_tiles(kind);
    if (strcmp(opt.off_grid, "keep") == 0 && !st_is_plan(in))
        find_off_grid(tiles, &all, r, &e);
    struct st_header *h = output_header(in, &all, left, only, kind, &e);
    write_stream(tiles, &all, r, h, &e);
    if (opt.report)
        write_report(&all, kind, &e);

    free_tiles(tiles);
    free(all.item);
    json_decref(left);
    regfree(&leave);
    st_header_free(h);
    st_close(r);
    return 0;
}
