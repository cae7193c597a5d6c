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
#include "quant/q4.h"
#include "quant/w8.h"
#include "tensor/stream.h"

#define TILE_GROUPS 32768               /* int4: 1 MiB of values' worth of blocks a step */
#define TILE_VALUES ((size_t)1 << 21)   /* 8-bit: 4 MiB of rows a step */

struct settings {
    const char *out, *linears, *expect;
    bool force;
    long shard_size, jobs;
};

/* One file's hash for the manifest, made behind the writing. */
struct sum { char *name; char hex[SHA256_HEX]; };

struct hashing {
    pthread_t thread;
    bool running, failed;
    int fd;
    uint64_t n;
    struct sum *sum;
    struct err e;
};

struct build {
    const struct settings *set;
    struct st_reader *in;
    const struct ct_plan *plan;
    const struct ct_shards *shards;
    struct outdir *dir;
    struct par *par;
    int fd;                             /* of the shard being written, -1 = none */
    size_t shard;
    struct hashing hashing;
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

static void *hash_file(void *arg)
{
    struct hashing *h = arg;
    struct sha256 *s = sha256_new();
    char *buf = xmalloc(IO_CHUNK);

    for (uint64_t at = 0, k; at < h->n && !h->failed; at += k) {
        k = h->n - at < IO_CHUNK ? h->n - at : IO_CHUNK;
        h->failed = io_pread_full(h->fd, buf, k, at, h->sum->name, &h->e) != 0;
        if (!h->failed)
            sha256_add(s, buf, k);
    }
    sha256_hex(s, h->sum->hex);
    free(buf);
    h->failed |= io_sync_close(h->fd, h->sum->name, &h->e) != 0;
    return NULL;
}

static int hash_result(struct build *b)
{
    return b->hashing.failed ? err_set(b->e, b->hashing.e.code, "%s", b->hashing.e.msg) : 0;
}

static int wait_for_hash(struct build *b)
{
    if (!b->hashing.running)
        return 0;
    pthread_join(b->hashing.thread, NULL);
    b->hashing.running = false;
    return hash_result(b);
}

/* The shard is complete: hash it and bring it to disk while the next one is written. */
static int finish_shard(struct build *b)
{
    const struct ct_shard *s = &b->shards->shard[b->shard];

    if (b->fd < 0)
        return 0;
    if (wait_for_hash(b))
        return -1;
    b->hashing = (struct hashing){.fd = b->fd, .n = s->file_bytes, .sum = add_sum(b, s->name)};
    b->fd = -1;
    if (pthread_create(&b->hashing.thread, NULL, hash_file, &b->hashing) != 0) {
        hash_file(&b->hashing);
        return hash_result(b);
    }
    b->hashing.running = true;
    return 0;
}

/* --- bytes to their places -------------------------------------------------------------------------------------------- */

static int start_shard(struct build *b, size_t shard)
{
    const struct ct_shard *s = &b->shards->shard[shard];

    if (finish_shard(b))
        return -1;
    b->shard = shard;
    b->fd = outdir_fd(b->dir, s->name, s->file_bytes, b->e);
    return b->fd < 0 ? -1 : io_pwrite_full(b->fd, s->head, s->n_head, 0, s->name, b->e);
}

/* n bytes of the build's tensor `t`, from `offset` within it. */
static int place(struct build *b, size_t t, uint64_t offset, const void *buf, size_t n)
{
    const struct ct_place *p = &b->shards->place[t];

    if ((b->fd < 0 || p->shard != b->shard) && start_shard(b, p->shard))
        return -1;
    progress_add(n);
    return io_pwrite_full(b->fd, buf, n, p->offset + offset, b->shards->shard[p->shard].name, b->e);
}

static int copy(struct build *b, const struct ct_step *s)
{
    char *buf = xmalloc(IO_CHUNK);
    uint64_t at = 0, left;
    int rc = st_left(b->in) ? 0 : place(b, s->first, 0, "", 0);

    while (!rc && (left = st_left(b->in)) > 0) {
        size_t n = left < IO_CHUNK ? (size_t)left : IO_CHUNK;

        rc = st_read(b->in, buf, n, b->e) || place(b, s->first, at, buf, n) ? -1 : 0;
        at += n;
    }
    free(buf);
    return rc;
}

static void le64(uint64_t v, uint8_t out[8])
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> 8 * i);
}

static int place_shape(struct build *b, size_t t, uint64_t rows, uint64_t cols)
{
    uint8_t shape[16];

    le64(rows, shape);
    le64(cols, shape + 8);
    return place(b, t, 0, shape, sizeof shape);
}

/* Blocks of one module. */
static int split_module(struct build *b, size_t first, uint64_t groups, uint8_t *blocks, uint8_t *packed, uint8_t *scales)
{
    for (uint64_t at = 0, n; at < groups; at += n) {
        n = groups - at < TILE_GROUPS ? groups - at : TILE_GROUPS;
        if (st_read(b->in, blocks, n * Q4_BLOCK, b->e))
            return -1;
        q4_split(blocks, n, packed, scales);
        if (place(b, first, at * 16, packed, n * 16) || place(b, first + 1, at * 2, scales, n * 2))
            return -1;
    }
    return 0;
}

static int split(struct build *b, const struct ct_step *s)
{
    uint8_t *blocks = xmalloc(TILE_GROUPS * (Q4_BLOCK + 18)), *packed = blocks + TILE_GROUPS * Q4_BLOCK, *scales = packed + TILE_GROUPS * 16;
    int rc = 0;

    for (uint64_t m = 0; !rc && m < s->modules; m++) {
        size_t first = s->first + m * s->parts;

        rc = split_module(b, first, s->rows * s->cols / Q4_GROUP, blocks, packed, scales) || place_shape(b, first + 2, s->rows, s->cols) ? -1 : 0;
    }
    free(blocks);
    return rc;
}

struct rows {
    enum w8_kind kind;
    const uint16_t *values;
    uint8_t *codes;
    float *scales;
    long *bad;                          /* first NaN or infinity of each row, -1 = none */
    size_t cols;
};

static void quantize_row(void *arg, size_t i)
{
    const struct rows *r = arg;

    r->bad[i] = w8_quantize_row(r->kind, r->values + i * r->cols, r->cols, r->codes + i * r->cols, &r->scales[i]);
}

/* `n` rows from `row` on of the module whose tensors begin at `first`. */
static int quantize_tile(struct build *b, const struct ct_step *s, size_t first, uint64_t row, size_t n, struct rows *r)
{
    if (st_read(b->in, (void *)r->values, n * r->cols * 2, b->e))
        return -1;
    par_for(b->par, n, quantize_row, r);
    for (size_t i = 0; i < n; i++)
        if (r->bad[i] >= 0)
            return err_set(b->e, EXIT_DATA, "%s: tensor %s, row %llu, column %ld: not a finite number: the source is damaged", st_reader_name(b->in),
                st_header_of(b->in)->t[s->source].name, (unsigned long long)(row + i), r->bad[i]);
    return place(b, first, row * r->cols, r->codes, n * r->cols) || place(b, first + 1, row * 4, r->scales, n * 4) ? -1 : 0;
}

static int quantize(struct build *b, const struct ct_step *s)
{
    size_t tile = TILE_VALUES / s->cols ? TILE_VALUES / s->cols : 1;
    struct rows r = {.kind = strcmp(b->set->linears, "fp8") == 0 ? W8_FP8 : W8_INT8, .cols = s->cols};
    uint16_t *values = xreallocarray(NULL, tile, 2 * s->cols);
    int rc = 0;

    r.values = values;
    r.codes = xreallocarray(NULL, tile, s->cols);
    r.scales = xreallocarray(NULL, tile, sizeof *r.scales);
    r.bad = xreallocarray(NULL, tile, sizeof *r.bad);
    for (uint64_t m = 0; !rc && m < s->modules; m++)
        for (uint64_t row = 0; !rc && row < s->rows; row += tile)
            rc = quantize_tile(b, s, s->first + m * s->parts, row, s->rows - row < tile ? s->rows - row : tile, &r);
    free(values);
    free(r.codes);
    free(r.scales);
    free(r.bad);
    return rc;
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
    struct output *out = outdir_file(b->dir, name, b->e);

    if (!out)
        return -1;
    if (output_write(out, text, n, b->e)) {
        output_abort(out);
        return -1;
    }
    return output_commit(out, b->e);
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
    return json_pack("[s,s,s,o]", "--linears", set->linears, "--shard-size", json_sprintf("%ld", set->shard_size));
}

/* The stages that led here, this one included. */
static json_t *provenance(const struct st_header *in, const struct settings *set, struct err *e)
{
    struct st_header *h = st_header_new();
    json_t *v = NULL;
    const char *text;

    st_meta_copy(h, in);
    if (st_provenance(h, "ct-pack", stage_args(set), in, e) == 0) {
        text = st_meta(h, "provenance");
        v = json_parse(text, strlen(text), "metadata provenance", e);
    }
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
    json_t *prov = provenance(st_header_of(b->in), b->set, b->e);
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
    const struct st_header *h = st_header_of(b->in);
    const struct st_tensor *t;
    int rc = 0;

    while (!rc && (t = st_next(b->in, b->e))) {
        const struct ct_step *s = &b->plan->step[t - h->t];

        switch (s->action) {
        case CT_COPY: rc = copy(b, s); break;
        case CT_SPLIT: rc = split(b, s); break;
        case CT_QUANTIZE: rc = quantize(b, s); break;
        case CT_SIDE_FILE: rc = side_file(b, st_side_file(t)); break;
        case CT_DROP: note_msg("%s: left out: not part of this build", t->name); break;
        }
    }
    return rc || b->e->code ? -1 : 0;
}

static int write_build(struct build *b)
{
    if (io_free_space(b->set->out, b->shards->file_bytes + st_header_of(b->in)->nbytes / 1000 + (1 << 20), b->e))
        return -1;
    b->dir = outdir_open(b->set->out, b->set->force, b->e);
    if (!b->dir)
        return -1;
    progress_start("ct-pack", b->shards->file_bytes);
    if (take_tensors(b) || finish_shard(b) || write_json_files(b) || wait_for_hash(b) || write_manifest(b)) {
        (void)wait_for_hash(b);
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
    b.par = par_new((int)set->jobs);
    rc = write_build(&b);
    par_free(b.par);
    for (size_t i = 0; i < b.n_sums; i++)
        free(b.sum[i].name);
    free(b.sum);
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
        return err_errno(e, EXIT_IO, "stdout: cannot write");
    return finish_stdout(e);
}

/* The build's own plan stream: its names, and its config as metadata. */
static int write_plan_stream(const struct st_header *in, const struct ct_plan *p, const struct settings *set, struct err *e)
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

/* A recipe says which build it makes; a model that lacks what makes the difference gives another. */
static int check_expected(const struct ct_plan *p, const char *expect, const char *name, struct err *e)
{
    const char *why = "choose the recipe of that name";

    if (!expect || strcmp(expect, p->build) == 0)
        return 0;
    if (strcmp(expect, "ple4") == 0 && strcmp(p->build, "text") == 0)
        why = "the model has no per-layer table (only E2B and E4B do), the text build is what it can have";
    if (eight_bit(expect) && !eight_bit(p->build))
        why = "the source's linears are int4 already, 8-bit ones are made from a source in 16 bits";
    if (strcmp(expect, "full") == 0 && strncmp(p->build, "full", 4) != 0)
        why = "the source has no vision or audio parts, the text build is the whole of it";
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

    if (shards && st_is_plan(h))
        rc = to_stdout ? write_plan_stream(h, plan, set, e) : print_plan(plan, shards, e);
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
        .examples = "st-extract --text-only SRC | q4-regrid | ct-pack -o BUILD\n"
            "st-extract --text-only --plan SRC | ct-pack --linears fp8 -o BUILD",
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
