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
#include "base/text.h"
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
    {"jobs", 'j', OPT_INT, &opt.jobs, "N", "threads, 0 = one a CPU", 0, 1024},
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

enum { PIECE_BYTES = 1 << 19, PIECE = PIECE_BYTES / (2 * Q4_GROUP) };     /* groups that one thread takes at a time: their values and blocks stay in its cache */
enum { MAX_LANES = 16 };

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
static void plan(struct items *all, const struct st_header *h, unsigned only, const regex_t *leave, const json_t *before, const char *stream)
{
    struct gemma g;
    bool known = read_model(h, stream, &g);
    for (size_t i = 0; i < h->n; i++) {
        struct item *it = &all->item[i];
        it->in = &h->t[i];
        if (!selected(it->in, only) || !is_wide_weight(it->in) || (known && gemma_is_dead(&g, it->in->name)))
            continue;
        bool left = in_list(before, it->in->name) || (opt.leave && xregexec(leave, it->in->name));
        it->act = left ? LEFT : REGRID;
        if (!left)
            check_shape(it, stream);
    }
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

/* --- the stream in pieces, each of which one thread reads, recovers and writes --------------------------------------------- */

struct lane {
    struct item *it;
    uint64_t first;             /* group */
    size_t n, done;             /* groups; recovered before the first fault */
    uint64_t off;
    struct q4_tally tally;
    uint16_t *values;           /* a piece; or as many bytes of a tensor that passes */
    uint8_t *blocks;
    size_t passing;             /* bytes, instead of groups */
};

struct job {
    struct par *par;
    size_t lanes;
    struct lane lane[MAX_LANES];
    enum q4_scale kind;
    bool count_exact;
    struct items *all;
    struct st_reader *r;
    struct st_writer *w;        /* NULL: what is off the grid is only counted */
    /* Of take_piece: */
    struct item *it;            /* NULL = none */
    uint64_t group;             /* of `it`, the next one */
    bool splice;                /* `it` is next to pass, and large */
    struct err in;
    /* Of give_piece: */
    const struct lane *bad;     /* has a group without a block */
    struct err out;
};

/* Small tensors pass as a piece, large ones inside the kernel. */
static bool is_spliced(const struct job *j, const struct item *it)
{
    return j->w && it->act != REGRID && it->in->nbytes > PIECE_BYTES;
}

static bool next_item(struct job *j)
{
    const struct st_tensor *t = st_next(j->r, &j->in);
    j->it = t ? &j->all->item[t - st_header_of(j->r)->t] : NULL;
    j->group = 0;
    return t != NULL;
}

static bool read_groups(struct job *j, struct lane *l)
{
    uint64_t left = j->it->groups - j->group;
    l->first = j->group;
    l->n = left < PIECE ? (size_t)left : PIECE;
    j->group += l->n;
    return st_read(j->r, l->values, l->n * Q4_GROUP * 2, &j->in) == 0;
}

static bool read_passing(struct job *j, struct lane *l)
{
    l->passing = (size_t)st_left(j->r);
    return st_read(j->r, l->values, l->passing, &j->in) == 0;
}

static bool take_piece(void *arg, size_t lane)
{
    struct job *j = arg;
    struct lane *l = &j->lane[lane];
    l->n = l->passing = 0;
    while (!j->it || (j->it->act == REGRID ? j->group == j->it->groups : st_left(j->r) == 0 || !j->w))
        if (!next_item(j))
            return false;
    l->it = j->it;
    j->splice = is_spliced(j, j->it);
    return !j->splice && (j->it->act == REGRID ? read_groups(j, l) : read_passing(j, l));
}

static void recover_piece(void *arg, size_t lane)
{
    struct job *j = arg;
    struct lane *l = &j->lane[lane];
    bool exact = j->count_exact && j->w;
    l->off = 0;
    l->tally = (struct q4_tally){.groups = 0};
    l->done = exact ? q4_recover_counted(l->values, l->n, j->kind, l->blocks, &l->tally) : q4_recover(l->values, l->n, j->kind, l->blocks);
    while (!j->w && l->done < l->n) {
        struct q4_fault f;
        q4_explain(l->values + l->done * Q4_GROUP, &f);
        if (f.kind == Q4_STEP_RANGE)
            break;
        l->off++;
        l->done++;
        l->done += q4_recover(l->values + l->done * Q4_GROUP, l->n - l->done, j->kind, l->blocks);
    }
}

static void add_share(struct q4_share *to, const struct q4_share *from)
{
    to->values += from->values;
    to->groups += from->groups;
    if (from->worst > to->worst)
        to->worst = from->worst;
}

static void add_tally(struct q4_tally *to, const struct q4_tally *from)
{
    to->groups += from->groups;
    to->zero += from->zero;
    to->negative += from->negative;
    add_share(&to->written, &from->written);
    add_share(&to->as_bf16, &from->as_bf16);
}

static bool give_piece(void *arg, size_t lane)
{
    struct job *j = arg;
    struct lane *l = &j->lane[lane];
    if (l->done < l->n) {
        j->bad = l;
        return false;
    }
    l->it->off += l->off;
    add_tally(&l->it->tally, &l->tally);
    progress_add(l->n * Q4_GROUP * 2 + l->passing);
    return !j->w || st_write(j->w, l->passing ? (const void *)l->values : l->blocks, l->passing ? l->passing : l->n * Q4_BLOCK, &j->out) == 0;
}

/* The whole stream, from the reader's start. */
static void run_job(struct job *j)
{
    static const struct relay relay = {take_piece, recover_piece, give_piece};
    j->it = NULL;
    do {
        j->splice = false;
        par_relay(j->par, j->lanes, &relay, j);
        if (j->bad)
            refuse(j->all, j->bad->it, j->bad->first + j->bad->done, j->bad->values + j->bad->done * Q4_GROUP, st_reader_name(j->r));
        if (j->out.code || j->in.code)
            die(j->out.code ? &j->out : &j->in);
        if (j->splice && st_pass(j->w, j->r, j->it->in->nbytes, &j->in) != 0)
            die(&j->in);
        progress_add(j->splice ? j->it->in->nbytes : 0);
    } while (j->splice);
}

/* --off-grid keep, first pass: what is off the grid is left in 16 bits, and all that the loader fuses it with. */
static void find_off_grid(struct job *j, struct err *e)
{
    struct items *all = j->all;
    if (!st_seekable(j->r))
        opt_usage("%s: --off-grid keep reads twice: give it a file (%s < FILE)", st_reader_name(j->r), prog_name);
    progress_start("looking for what is off the grid", st_header_of(j->r)->nbytes);
    for (size_t i = 0; i < all->n; i++)
        all->item[i].counted = all->item[i].act == REGRID;
    run_job(j);
    progress_end();
    if (st_rewind(j->r, e) != 0)
        die(e);
    for (size_t i = 0; i < all->n; i++)
        for (size_t k = 0; k < all->n && all->item[i].off; k++)
            if (all->item[k].act == REGRID && fused(&all->item[k], &all->item[i])) {
                all->item[k].act = LEFT;
                warn_msg("%s: kept in 16 bits: %s has %llu groups off the grid", all->item[k].in->name, i == k ? "it" : all->item[i].in->name,
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
    json_array_append_new(args, st_stage_arg("scale-dtype", q4_scale_name(kind)));
    if (opt.leave)
        json_array_append_new(args, st_stage_arg("leave", opt.leave));
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
static struct st_header *output_header(const struct st_reader *r, const struct items *all, json_t *left, unsigned only, enum q4_scale kind, struct err *e)
{
    const struct st_header *in = st_header_of(r);
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
    if (st_provenance(h, st_reader_name(r), prog_name, provenance_args(only, kind), in, e) != 0)
        die(e);
    return h;
}

static void write_stream(struct job *j, const struct st_header *h, struct err *e)
{
    j->w = st_create(opt.out, h, opt.zstd, e);
    if (!j->w)
        die(e);
    progress_start("regridding", st_header_of(j->r)->nbytes);
    run_job(j);
    progress_end();
    if (st_finish(j->w, e) != 0)
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
            add_tally(&total.tally, &it->tally);
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
    if (opt.report && output_same(opt.report, opt.out))
        opt_usage("--report %s: the stream goes there already: name another file", opt.report);
    simd_option(opt.simd);
    return re;
}

static struct job *new_job(enum q4_scale kind, struct items *all, struct st_reader *r)
{
    struct job *j = xcalloc(1, sizeof *j);
    j->par = par_new((int)opt.jobs);
    j->lanes = par_lanes(j->par, MAX_LANES);
    j->kind = kind;
    j->count_exact = opt.report != NULL;
    j->all = all;
    j->r = r;
    for (size_t i = 0; i < j->lanes; i++) {
        j->lane[i].values = xmalloc(PIECE_BYTES);
        j->lane[i].blocks = xmalloc(PIECE * Q4_BLOCK);
    }
    return j;
}

static void free_job(struct job *j)
{
    par_free(j->par);
    for (size_t i = 0; i < j->lanes; i++) {
        free(j->lane[i].values);
        free(j->lane[i].blocks);
    }
    free(j);
}

int main(int argc, char **argv)
{
    struct err e = {0, ""};
    unsigned only;
    prog_init(argv[0]);
    opt_parse(&spec, argc, argv);
    regex_t leave = parse_options(&only);

    if (opt.report && output_probe(opt.report, &e))
        die(&e);
    struct st_reader *r = st_open("-", &e);
    if (!r)
        die(&e);
    const struct st_header *in = st_header_of(r);
    json_t *left = st_meta_list(in, "q4_left", st_reader_name(r), &e);
    if (!left)
        die(&e);
    enum q4_scale kind = choose_scale(in, st_reader_name(r));
    struct items all = {xcalloc(in->n ? in->n : 1, sizeof *all.item), in->n};
    plan(&all, in, only, &leave, left, st_reader_name(r));
    struct job *job = new_job(kind, &all, r);
    if (strcmp(opt.off_grid, "keep") == 0 && !st_is_plan(in))
        find_off_grid(job, &e);
    struct st_header *h = output_header(r, &all, left, only, kind, &e);
    write_stream(job, h, &e);
    if (opt.report)
        write_report(&all, kind, &e);

    free_job(job);
    free(all.item);
    json_decref(left);
    regfree(&leave);
    st_header_free(h);
    st_close(r);
    return 0;
}
