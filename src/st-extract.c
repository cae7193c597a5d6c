/* st-extract: read a checkpoint, write one safetensors stream.
 *
 * A directory (index or single file), a file or a stream becomes one stream in the order that the other programs rely on: embed_tokens, a stored
 * lm_head, other global text tensors, layer by layer, towers, then tensors whose bytes are no multiple of 8, then side files.
 * --text-only keeps the language model, renames it to `model.` and lifts its config.  Data are spliced, never looked at.  A pipe whose
 * order is another is spooled to $TMPDIR as far as needed; everything else is read in place.
 */
#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/text.h"
#include "gemma/config.h"
#include "gemma/names.h"
#include "net/remote.h"
#include "tensor/source.h"

static struct {
    bool text_only, list, json, plan, zstd;
    const char *select, *out;
    struct opt_list rows;
    struct remote_options remote;
} opt = {.out = "-", .remote = {.connections = 8, .retries = 8}};

static const struct opt options[] = {
    {"text-only", 0, OPT_FLAG, &opt.text_only, NULL, "the language model alone, named model.* and lm_head.*, its config lifted", 0, 0},
    {"select", 0, OPT_STR, &opt.select, "ERE", "only tensors whose name in the source matches", 0, 0},
    {"rows", 0, OPT_LIST, &opt.rows, "NAME:A-B", "only rows A up to, not including, B of one tensor (repeatable)", 0, 0},
    {"list", 0, OPT_FLAG, &opt.list, NULL, "print a table of the tensors instead", 0, 0},
    {"json", 0, OPT_FLAG, &opt.json, NULL, "print them as JSON Lines instead", 0, 0},
    {"plan", 0, OPT_FLAG, &opt.plan, NULL, "write the header alone: a plan stream", 0, 0},
    {"zstd", 'z', OPT_FLAG, &opt.zstd, NULL, "compress the stream", 0, 0},
    {"connections", 0, OPT_INT, &opt.remote.connections, "N", "requests in flight to a remote source", 1, 64},
    {"retries", 0, OPT_INT, &opt.remote.retries, "N", "tries without progress before a remote source is given up", 0, 100},
    {"output", 'o', OPT_STR, &opt.out, "FILE", "write there", 0, 0},
    {NULL, 0, OPT_FLAG, NULL, NULL, NULL, 0, 0}
};

static const struct opt_spec spec = {
    .usage = "[options] DIR|FILE|-|http(s)://…|hf://org/name[@revision][/file]",
    .about = "Read a checkpoint directory, a safetensors file or a stream, here or remote, and write one safetensors stream.\n"
             "Remote sources are read by ranges and never stored; HF_TOKEN, HF_ENDPOINT, proxies and CA settings as elsewhere.",
    .opts = options,
    .examples = "st-extract --text-only gemma-4-E2B-it-qat-q4_0-unquantized | q4-regrid | ct-pack -o text\n"
                "st-extract --list --select 'layers\\.0\\.' gemma-4-E2B-it-qat-q4_0-unquantized",
    .min_operands = 1, .max_operands = 1
};

/* One tensor to come out: all or some rows of a source tensor, or a side file. */
struct item {
    const struct source_tensor *from;   /* NULL for a side file of a directory */
    const char *side;                   /* that side file's name in the store */
    char *name;                         /* as it is called in the output */
    int ndim;
    enum st_dtype dtype;
    uint64_t shape[ST_MAX_DIMS];
    uint64_t skip, nbytes;              /* bytes of the source tensor before the first row wanted; bytes wanted */
    int rank, layer;                    /* where it stands in the output */
    size_t seq;                         /* its place in the source */
    uint64_t spooled;                   /* where the spool holds it */
    bool written;
};

struct items { struct item *item; size_t n; };

/* --- what is wanted ------------------------------------------------------------------------------------------------ */

/* A range of rows that --rows asks for. */
struct rows { const char *spec; char *name; unsigned long long begin, end; bool found; };

static struct rows parse_rows(const char *text)
{
    struct rows r = {.spec = text};
    const char *colon = strrchr(text, ':');
    char *end;
    if (!colon || colon == text || colon[1] < '0' || colon[1] > '9')
        opt_usage("--rows: %s: expected NAME:A-B, the rows from A to B-1", text);
    errno = 0;
    r.begin = strtoull(colon + 1, &end, 10);
    if (*end != '-' || end[1] < '0' || end[1] > '9')
        opt_usage("--rows: %s: expected NAME:A-B, the rows from A to B-1", text);
    r.end = strtoull(end + 1, &end, 10);
    if (*end || errno || r.end <= r.begin)
        opt_usage("--rows: %s: not NAME:A-B with A < B", text);
    r.name = xstrndup(text, (size_t)(colon - text));
    return r;
}

/* The name in the output; false = text-only leaves it out. */
static bool output_name_of(const char *source, char *name, size_t size)
{
    const char *file = strncmp(source, "file:", 5) == 0 ? source + 5 : NULL;
    if (opt.text_only && file && ends_with(file, "processor_config.json"))
        return false;
    if (opt.text_only && !file)
        return gemma_text_name(source, name, size);
    if (strlen(source) >= size)
        die_msg(EXIT_DATA, "%.60s…: this name has %zu bytes, only %zu are possible", source, strlen(source), size - 1);
    memcpy(name, source, strlen(source) + 1);
    return true;
}

static void set_rank(struct item *it, const char *source)
{
    enum gemma_class c = gemma_classify(source);
    it->layer = gemma_layer_of(source);
    if (c == GC_FILE)
        it->rank = 7;
    else if (it->nbytes % 8)
        it->rank = 6;
    else if (c == GC_EMBED)
        it->rank = 0;
    else if (c == GC_HEAD)
        it->rank = 1;
    else if (c == GC_TOWER || c == GC_UNKNOWN)
        it->rank = 4;
    else
        it->rank = it->layer < 0 ? 2 : 3;
}

static struct item *new_item(struct items *all, const char *source, const char *name, enum st_dtype dtype, int ndim,
                             const uint64_t *shape, uint64_t nbytes)
{
    all->item = xreallocarray(all->item, all->n + 1, sizeof *all->item);
    struct item *it = &all->item[all->n];
    *it = (struct item){.name = xstrdup(name), .ndim = ndim, .dtype = dtype, .nbytes = nbytes, .seq = all->n};
    for (int i = 0; i < ndim; i++)
        it->shape[i] = shape[i];
    all->n++;
    set_rank(it, source);
    return it;
}

static void cut_rows(struct item *it, const struct source_tensor *from, const struct rows *r)
{
    const struct st_tensor *t = from->t;
    if (t->ndim == 0)
        die_msg(EXIT_USAGE, "--rows: %s: a scalar has no rows", r->spec);
    if (r->end > t->shape[0])
        die_msg(EXIT_USAGE, "--rows: %s: it has %llu rows", r->spec, (unsigned long long)t->shape[0]);
    uint64_t row = t->nbytes / t->shape[0];
    if (row * t->shape[0] != t->nbytes)
        die_msg(EXIT_USAGE, "--rows: %s: its rows are no whole bytes", r->spec);
    it->shape[0] = r->end - r->begin;
    it->skip = row * r->begin;
    it->nbytes = row * (r->end - r->begin);
}

static struct rows *rows_of(struct rows *rows, const char *source, const char *name)
{
    struct rows *found = NULL;
    for (size_t i = 0; i < opt.rows.n; i++) {
        if (strcmp(rows[i].name, source) != 0 && strcmp(rows[i].name, name) != 0)
            continue;
        if (found)
            die_msg(EXIT_USAGE, "--rows: %s: its tensor is asked for twice: give one range that holds both", rows[i].spec);
        found = &rows[i];
    }
    return found;
}

/* --rows alone wants those tensors only; --select wants what matches; neither wants all. */
static void choose_tensors(struct items *all, const struct source *src, const regex_t *re, struct rows *rows)
{
    char name[512];
    for (size_t i = 0; i < src->n; i++) {
        const struct source_tensor *from = &src->tensor[i];
        const struct st_tensor *t = from->t;
        if (!output_name_of(t->name, name, sizeof name))
            continue;
        struct rows *r = rows_of(rows, t->name, name);
        bool matches = opt.select ? xregexec(re, t->name) : opt.rows.n == 0;
        if (!r && !matches)
            continue;
        struct item *it = new_item(all, t->name, name, t->dtype, t->ndim, t->shape, t->nbytes);
        it->from = from;
        if (r) {
            cut_rows(it, from, r);
            set_rank(it, t->name);
            r->found = true;
        }
    }
    for (size_t i = 0; i < opt.rows.n; i++)
        if (!rows[i].found)
            die_msg(EXIT_DATA, "--rows: %s: no such tensor: --list shows the names", rows[i].spec);
}

static void choose_side_files(struct items *all, const struct source *src, const regex_t *re)
{
    for (size_t i = 0; i < src->n_side; i++) {
        char *name = xasprintf("file:%s", src->side[i].name);
        bool wanted = opt.select ? xregexec(re, name) : opt.rows.n == 0;
        if (wanted && !(opt.text_only && ends_with(name, "processor_config.json")))
            new_item(all, name, name, ST_U8, 1, &src->side[i].nbytes, src->side[i].nbytes)->side = src->side[i].name;
        free(name);
    }
}

static int by_place(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->rank == 3 && a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    /* Odd sizes: wide elements first keeps every tensor on a multiple of its element. */
    unsigned wa = st_dtype_bits(a->dtype), wb = st_dtype_bits(b->dtype);
    if (a->rank == 6 && wa != wb)
        return wa > wb ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static void refuse_double_names(const struct st_header *h)
{
    for (size_t i = 0; i < h->n; i++)
        if (st_find(h, h->t[i].name) != &h->t[i])
            die_msg(EXIT_DATA, "%s: two tensors of the source get this name: use --select", h->t[i].name);
}

/* --- the output header --------------------------------------------------------------------------------------------- */

static json_t *provenance_args(const char *identity)
{
    json_t *args = json_array();
    if (identity)
        json_array_append_new(args, json_string(identity));
    if (opt.text_only)
        json_array_append_new(args, json_string("--text-only"));
    if (opt.select)
        json_array_append_new(args, st_stage_arg("select", opt.select));
    for (size_t i = 0; i < opt.rows.n; i++)
        json_array_append_new(args, st_stage_arg("rows", opt.rows.item[i]));
    return args;
}

/* q4_left of a saved stream names tensors as the output spells them. */
static void rename_left(struct st_header *h, const char *from, struct err *e)
{
    json_t *left = st_meta_list(h, "q4_left", from, e), *renamed = json_array(), *v;
    char name[512];
    size_t i;
    if (!left)
        die(e);
    json_array_foreach(left, i, v)
        if (json_is_string(v) && output_name_of(json_string_value(v), name, sizeof name))
            json_array_append_new(renamed, json_string(name));
    if (json_array_size(left))
        st_meta_set_json(h, "q4_left", renamed);
    json_decref(left);
    json_decref(renamed);
}

/* `from` = what the source was called. */
static struct st_header *output_header(const struct source *src, const char *from, const char *identity, const struct items *all, struct err *e)
{
    struct st_header *h = st_header_new();
    st_meta_copy(h, src->header);
    st_meta_set(h, "format", "pt");
    if (opt.text_only && st_meta(h, "config")) {
        json_t *config = st_meta_config(h, from, e);
        if (!config)
            die(e);
        json_t *lifted = gemma_config_lift(config);
        st_meta_set_json(h, "config", lifted);
        json_decref(lifted);
        json_decref(config);
    }
    if (opt.text_only)
        rename_left(h, from, e);
    if (opt.plan)
        st_meta_set(h, "plan", "1");
    if (st_provenance(h, from, "st-extract", provenance_args(identity), src->header, e) != 0)
        die(e);
    for (size_t i = 0; i < all->n; i++)
        st_header_add(h, all->item[i].name, all->item[i].dtype, all->item[i].ndim, all->item[i].shape);
    refuse_double_names(h);
    return h;
}

/* --- listing ------------------------------------------------------------------------------------------------------- */

static const char *class_name(const char *name) { return gemma_class_name(gemma_classify(name)); }

static void list_json(const struct st_tensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->ndim; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    json_t *v = json_pack("{s:s, s:s, s:o, s:I, s:s}", "name", t->name, "dtype", st_dtype_name(t->dtype), "shape", shape, "bytes",
                          (json_int_t)t->nbytes, "class", class_name(t->name));
    if (json_line(stdout, v) != 0)
        die_stdout();
    json_decref(v);
}

static void list_row(const struct st_tensor *t)
{
    char shape[ST_MAX_DIMS * 22] = "";
    size_t n = 0;
    for (int i = 0; i < t->ndim; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%llu", i ? "x" : "", (unsigned long long)t->shape[i]);
    print_line("%-8s %-16s %14llu  %-8s %s", st_dtype_name(t->dtype), t->ndim ? shape : "scalar", (unsigned long long)t->nbytes,
           class_name(t->name), t->name);
}

static void print_list(const struct st_header *h, struct err *e)
{
    if (!opt.json)
        printf("%-8s %-16s %14s  %-8s %s\n", "dtype", "shape", "bytes", "class", "name");
    for (size_t i = 0; i < h->n; i++)
        if (opt.json)
            list_json(&h->t[i]);
        else
            list_row(&h->t[i]);
    if (!opt.json)
        printf("%zu tensors, %llu bytes\n", h->n, (unsigned long long)h->nbytes);
    if (finish_stdout(e) != 0)
        die(e);
}

/* --- the data ------------------------------------------------------------------------------------------------------ */

static int write_side_file(struct st_writer *w, const struct store *place, const struct item *it, struct err *e)
{
    struct input *in = store_open(place, it->side, e);
    if (!in)
        return -1;
    int bad = st_pass_input(w, in, it->nbytes, e);
    input_close(in);
    return bad;
}

/* Whole tensors at any place of the source, in output order. */
static int copy_in_place(struct st_writer *w, struct source *src, const struct store *place, const struct items *all, struct err *e)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct item *it = &all->item[i];
        int bad;
        if (it->from) {
            struct st_reader *r = src->reader[it->from->reader];
            bad = st_seek(r, it->from->index, e) != 0 || st_skip(r, it->skip, e) != 0 || st_pass(w, r, it->nbytes, e) != 0;
        } else
            bad = write_side_file(w, place, it, e);
        if (bad)
            return -1;
        progress_add(it->nbytes);
    }
    return 0;
}

/* Where the bytes of an item lie in a remote file. */
static struct remote_range range_of(const struct source *src, const struct item *it)
{
    if (!it->from)
        return (struct remote_range){it->side, 0, it->nbytes};
    const struct st_header *h = st_header_of(src->reader[it->from->reader]);
    return (struct remote_range){src->file[it->from->reader], 8 + (uint64_t)h->json_bytes + it->from->t->begin + it->skip, it->nbytes};
}

/* The whole way is known beforehand, so that many requests can be in flight. */
static int copy_from_remote(struct st_writer *w, struct remote *remote, const struct source *src, const struct items *all, struct err *e)
{
    struct remote_range *range = xcalloc(all->n, sizeof *range);
    for (size_t i = 0; i < all->n; i++)
        range[i] = range_of(src, &all->item[i]);
    int bad = remote_plan(remote, range, all->n, e);
    for (size_t i = 0; i < all->n && !bad; i++)
        for (uint64_t left = range[i].nbytes; left > 0 && !bad; ) {
            const char *data;
            long n = remote_next(remote, &data, left < REMOTE_CHUNK ? (size_t)left : REMOTE_CHUNK, e);
            bad = n < 0 || st_write(w, data, (size_t)n, e) != 0;
            progress_add(n > 0 ? (uint64_t)n : 0);
            left -= n > 0 ? (uint64_t)n : 0;
        }
    free(range);
    return bad ? -1 : 0;
}

static int spool_item(int fd, uint64_t *end, struct item *it, struct st_reader *r, struct err *e)
{
    char *buf = xmalloc(IO_CHUNK);
    int bad = 0;
    it->spooled = *end;
    for (uint64_t left = it->nbytes; left > 0 && !bad; ) {
        size_t n = left < IO_CHUNK ? (size_t)left : IO_CHUNK;
        bad = st_read(r, buf, n, e) != 0 || io_pwrite_full(fd, buf, n, *end, "the spool in TMPDIR", e) != 0;
        *end += n;
        left -= n;
    }
    free(buf);
    return bad ? -1 : 0;
}

static int unspool_item(struct st_writer *w, int fd, const struct item *it, struct err *e)
{
    char *buf = xmalloc(IO_CHUNK);
    int bad = 0;
    for (uint64_t done = 0; done < it->nbytes && !bad; ) {
        size_t n = it->nbytes - done < IO_CHUNK ? (size_t)(it->nbytes - done) : IO_CHUNK;
        bad = io_pread_full(fd, buf, n, it->spooled + done, "the spool in TMPDIR", e) != 0 || st_write(w, buf, n, e) != 0;
        done += n;
    }
    free(buf);
    return bad ? -1 : 0;
}

/* For each tensor of the source the item made of it, or NULL. */
static struct item **items_by_source(const struct source *src, const struct items *all)
{
    struct item **of = xcalloc(src->n, sizeof *of);
    for (size_t i = 0; i < all->n; i++)
        of[all->item[i].from - src->tensor] = &all->item[i];
    return of;
}

/* A pipe gives its tensors once: what comes too early waits in the spool. */
static int copy_from_pipe(struct st_writer *w, struct source *src, const struct items *all, struct err *e)
{
    struct st_reader *r = src->reader[0];
    size_t next = 0;
    uint64_t end = 0;
    int spool = -1, bad = 0;
    struct item **of = items_by_source(src, all);
    for (const struct st_tensor *t; !bad && (t = st_next(r, e)); ) {
        struct item *it = of[t - st_header_of(r)->t];
        if (!it)
            continue;
        bad = st_skip(r, it->skip, e);
        if (!bad && it == &all->item[next]) {
            bad = st_pass(w, r, it->nbytes, e);
            next++;
        } else if (!bad) {
            if (spool < 0)
                spool = io_spool_fd(e);
            bad = spool < 0 ? -1 : spool_item(spool, &end, it, r, e);
            it->written = true;
        }
        for (; !bad && next < all->n && all->item[next].written; next++)
            bad = unspool_item(w, spool, &all->item[next], e);
    }
    if (spool >= 0)
        close(spool);
    free(of);
    return bad || e->code ? -1 : 0;
}

/* Read a pipe to its end, so that its writer is not killed and damage shows. */
static int drain(struct source *src, struct err *e)
{
    if (!src->seekable)
        while (st_next(src->reader[0], e))
            ;
    return e->code ? -1 : 0;
}

/* Where the source is: a directory, a remote checkpoint or file, or a lone file or stream. */
struct origin {
    struct remote *remote;      /* NULL = local */
    struct store *place;        /* NULL = a lone file or stream */
    struct source *src;
};

static int open_origin(struct origin *o, const char *path, struct err *e)
{
    struct stat st;
    *o = (struct origin){NULL, NULL, NULL};
    if (remote_is(path)) {
        o->remote = remote_open(path, &opt.remote, e);
        if (!o->remote)
            return -1;
        o->place = remote_store(o->remote);
    } else if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        o->place = store_directory(path);
    if (o->remote && remote_file(o->remote))
        o->src = source_open_file_of(o->place, remote_file(o->remote), e);
    else
        o->src = o->place ? source_open_store(o->place, e) : source_open_file(path, e);
    return o->src ? 0 : -1;
}

static void close_origin(struct origin *o)
{
    if (o->remote)
        note_msg("%llu bytes fetched", (unsigned long long)remote_bytes(o->remote));
    source_close(o->src);
    store_close(o->place);
    remote_close(o->remote);
}

static int copy_data(struct st_writer *w, const struct origin *o, const struct items *all, struct err *e)
{
    if (o->remote)
        return copy_from_remote(w, o->remote, o->src, all, e);
    return o->src->seekable ? copy_in_place(w, o->src, o->place, all, e) : copy_from_pipe(w, o->src, all, e);
}

static void write_stream(const struct origin *o, const struct st_header *h, const struct items *all, struct err *e)
{
    struct st_writer *w = st_create(opt.out, h, opt.zstd, e);
    if (!w)
        die(e);
    progress_start("read", st_is_plan(h) ? 0 : h->nbytes);
    int bad = st_is_plan(h) ? drain(o->src, e) : copy_data(w, o, all, e);
    progress_end();
    if (bad) {
        st_abandon(w);
        die(e);
    }
    if (st_finish(w, e) != 0)
        die(e);
}

int main(int argc, char **argv)
{
    prog_init(argv[0]);
    int first = opt_parse(&spec, argc, argv);
    struct err e = {0, ""};
    regex_t re;
    opt_regex(&re, "select", opt.select);
    struct rows *rows = xcalloc(opt.rows.n, sizeof *rows);
    for (size_t i = 0; i < opt.rows.n; i++)
        rows[i] = parse_rows(opt.rows.item[i]);

    struct origin origin;
    if (open_origin(&origin, argv[first], &e) != 0)
        die(&e);
    struct items all = {NULL, 0};
    choose_tensors(&all, origin.src, &re, rows);
    choose_side_files(&all, origin.src, &re);
    if (all.n > 1)
        qsort(all.item, all.n, sizeof *all.item, by_place);
    struct st_header *h = output_header(origin.src, strcmp(argv[first], "-") ? argv[first] : "stdin", origin.remote ? remote_identity(origin.remote) : NULL, &all, &e);

    if (opt.list || opt.json) {
        if (drain(origin.src, &e) != 0)
            die(&e);
        print_list(h, &e);
    } else
        write_stream(&origin, h, &all, &e);

    for (size_t i = 0; i < all.n; i++)
        free(all.item[i].name);
    for (size_t i = 0; i < opt.rows.n; i++)
        free(rows[i].name);
    free(all.item);
    free(rows);
    free((void *)opt.rows.item);
    regfree(&re);
    st_header_free(h);
    close_origin(&origin);
    return 0;
}
