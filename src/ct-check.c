/* ct-check: will vLLM load this build, with what error not, and is it what its source says?
 *
 * The first question is answered from config.json, the index and the shards' headers; --against then walks through the source once, in its own order, and holds every value
 * of the build against it.  Build and source may be remote: of the headers' files only the headers are fetched, of values what is compared.  Exit 0 yes, 1 no. */
#define _XOPEN_SOURCE 700           /* realpath */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/opt.h"
#include "base/par.h"
#include "base/progress.h"
#include "base/text.h"
#include "ct/lint.h"
#include "ct/modules.h"
#include "gemma/names.h"
#include "net/remote.h"
#include "quant/compare.h"
#include "quant/q4.h"
#include "tensor/checkpoint.h"
#include "tensor/stream.h"

#define PIECE_VALUES ((size_t)1 << 17)  /* of the source that one thread reads and compares at a time, if a row is no longer: they stay in its cache */
#define MAX_LANES 16
#define ALIGN 64
#define MANIFEST_MAX ((size_t)64 << 20)
#define SHOWN 20                        /* faults of one grade that people see; --json has all */

static const char *const grade_names[] = {"refused", "wrong", "untidy", "note"};

struct settings {
    const char *build, *against;
    bool strict, json;
    long jobs;
    struct remote_options remote;
};

/* A file's hash, or why it cannot be read. */
struct sum { char *name; char hex[SHA256_HEX]; int rc; struct err e; };

/* Rows [from, from + n) of a matrix of the source, and of the modules that hold it. */
struct piece {
    uint64_t from;
    size_t n;
    uint8_t *raw;                       /* as the source has them */
    uint16_t *values;                   /* raw itself, or made from its blocks */
    uint8_t *codes[2], *scales[2];
    struct cmp_tally tally[2];
    uint8_t *buf; size_t room;          /* where all of these lie */
};

struct check {
    const struct settings *set;
    struct remote *remote;              /* where the build is; NULL = here */
    struct store *place;
    char **files; size_t n_files;       /* what is there; NULL = the place cannot say */
    json_t *config;
    struct ckpt *ckpt, *stray;
    const struct st_tensor **tensor; size_t n_tensors;
    json_t *faults;                     /* objects {grade, where, what, vllm} in the order found */
    long count[4];
    struct ct_modules modules;
    enum ct_arch arch;
    json_t *compared;                   /* one object a tensor, with --against */
    struct cmp_tally total;
    char manifest[SHA256_HEX];          /* of MANIFEST.sha256, "" = none */
    pthread_t hashing; bool is_hashing; /* hashes what the manifest lists while values are compared; the sums are its own until it is joined */
    atomic_bool given_up;               /* nobody asks for the sums any more */
    struct sum *sum; size_t n_sums;
    struct par *par;
    struct piece lane[MAX_LANES];
    size_t lanes;
    struct err *e;
};

static void add_fault(void *arg, enum ct_grade grade, const char *where, const char *what, const char *loader)
{
    struct check *c = arg;
    json_t *f = json_pack("{ss,ss,ss}", "grade", grade_names[grade], "where", where, "what", what);

    if (loader)
        json_object_set_new(f, "vllm", json_string(loader));
    json_array_append_new(c->faults, f);
    c->count[grade]++;
}

/* --- the directory --------------------------------------------------------------------------------------------------- */

static void shard_fault(void *arg, const struct ckpt_fault *f)
{
    struct check *c = arg;
    char *where = f->tensor ? xasprintf("%s: %s", f->shard, f->tensor) : xstrdup(f->shard), *loader;

    if (f->tensor)                                      /* whole files are read, whatever the index says of a tensor */
        add_fault(c, CT_UNTIDY, where, f->what, NULL);
    else if (f->missing) {
        loader = xasprintf("FileNotFoundError: Weight files referenced in index but missing: {'%s'}", f->shard);
        add_fault(c, CT_REFUSED, where, f->what, loader);
        free(loader);
    } else
        add_fault(c, CT_REFUSED, where, f->what, "SafetensorError: Error while deserializing header");
    free(where);
}

static bool is_shard(const struct check *c, const char *name)
{
    for (size_t i = 0; i < c->ckpt->n_shards; i++)
        if (strcmp(c->ckpt->shard[i].name, name) == 0)
            return true;
    return false;
}

static void take_tensors(struct check *c, const struct ckpt *k)
{
    c->tensor = xreallocarray(c->tensor, c->n_tensors + k->n + 1, sizeof *c->tensor);
    for (size_t i = 0; i < k->n; i++)
        if (ckpt_find(k, k->entry[i].t->name) == &k->entry[i] && (k == c->ckpt || !ckpt_find(c->ckpt, k->entry[i].t->name)))
            c->tensor[c->n_tensors++] = k->entry[i].t;
}

/* A safetensors file that the index does not name; without an index the loader reads it too. */
static void take_stray(struct check *c, const char *name)
{
    const struct ckpt_faults faults = {shard_fault, c};
    struct err e = {0, ""};

    add_fault(c, CT_UNTIDY, name, c->ckpt->has_index ? "a shard that the index does not name" : "a second safetensors file: without an index the loader reads it too", NULL);
    if (!c->ckpt->has_index && !c->stray) {
        c->stray = ckpt_open_store(c->place, name, &faults, &e);
        if (c->stray)
            take_tensors(c, c->stray);
        else if (err_of_machine(&e))
            (void)err_set(c->e, e.code, "%s", e.msg);
    }
}

static int look_for_strays(struct check *c)
{
    for (size_t i = 0; i < c->n_files; i++) {
        const char *name = c->files[i];

        if (name[0] != '.' && ends_with(name, ".safetensors") && !is_shard(c, name))
            take_stray(c, name);
    }
    return c->e->code ? -1 : 0;
}

static int open_place(struct check *c)
{
    const char *build = c->set->build;
    struct stat st;
    bool file;

    if (remote_is(build)) {
        c->remote = remote_open(build, &c->set->remote, c->e);
        file = c->remote && remote_file(c->remote);
        c->place = c->remote ? remote_store(c->remote) : NULL;
    } else {
        if (stat(build, &st) != 0)
            return err_errno(c->e, EXIT_NOINPUT, "%s: cannot open", build);
        file = !S_ISDIR(st.st_mode);
        c->place = store_directory(build);
    }
    if (!c->place)
        return -1;
    if (file)
        return err_set(c->e, EXIT_DATA, "%s: no directory: a build is a directory with config.json and safetensors files", build);
    return store_can_list(c->place) ? store_list(c->place, &c->files, &c->n_files, c->e) : 0;
}

static int read_config(struct check *c)
{
    if (store_json(c->place, "config.json", &c->config, c->e))
        return -1;
    if (!c->config)
        return err_set(c->e, EXIT_DATA, "%s: there is no config.json: a build is a directory with config.json and safetensors files", c->set->build);
    return json_is_object(c->config) ? 0 : err_set(c->e, EXIT_DATA, "%s/config.json: holds no object: this is no model's config", c->set->build);
}

static int open_build(struct check *c)
{
    const struct ckpt_faults faults = {shard_fault, c};
    struct err e = {0, ""};

    if (open_place(c) || read_config(c))
        return -1;
    c->ckpt = ckpt_open_store(c->place, NULL, &faults, &e);
    if (!c->ckpt && err_of_machine(&e))
        return err_set(c->e, e.code, "%s", e.msg);
    if (!c->ckpt) {
        add_fault(c, CT_REFUSED, "model.safetensors", e.msg, "RuntimeError: Cannot find any model weights");
        return 0;
    }
    take_tensors(c, c->ckpt);
    return look_for_strays(c);
}

/* --- the manifest ------------------------------------------------------------------------------------------------------ */

static int hash_of(const struct check *c, const char *file, char hex[SHA256_HEX], struct err *e)
{
    struct input *in = store_open(c->place, file, e);
    struct sha256 *s;
    char *buf;
    long n = 0;

    if (!in)
        return -1;
    s = sha256_new();
    buf = xmalloc(IO_CHUNK);
    while (!c->given_up && (n = input_read(in, buf, IO_CHUNK, e)) > 0)
        sha256_add(s, buf, (size_t)n);
    sha256_hex(s, hex);
    free(buf);
    input_close(in);
    return n < 0 ? -1 : 0;
}

/* A file of the build: a finding, unless it is the machine that failed. */
static void unreadable(struct check *c, const char *name, const char *what, const struct err *e)
{
    if (err_of_machine(e))
        (void)err_set(c->e, e->code, "%s", e->msg);
    else
        add_fault(c, CT_UNTIDY, name, what, NULL);
}

static bool is_there(const struct check *c, const char *name)
{
    for (size_t i = 0; i < c->n_files; i++)
        if (strcmp(c->files[i], name) == 0)
            return true;
    return c->files == NULL;
}

/* The name in a line "HEX  NAME", NULL if it is none. */
static char *name_in(char *line)
{
    char *name = strlen(line) > 66 ? line + 66 : NULL;

    return name && line[64] == ' ' && !strchr(name, '/') ? name : NULL;
}

static char *cut_line(char *line)       /* the next one */
{
    char *end = strchr(line, '\n');

    return end ? (*end = '\0', end + 1) : line + strlen(line);
}

static void *hash_listed(void *arg)
{
    struct check *c = arg;
    struct err e = {0, ""};
    struct input *in = store_open(c->place, "MANIFEST.sha256", &e);
    char *text = NULL;
    size_t n;

    if (in && input_slurp(in, MANIFEST_MAX, &text, &n, &e) == 0)
        for (char *line = text, *end; *line && !c->given_up; line = end) {
            end = cut_line(line);
            if (!name_in(line) || !is_there(c, name_in(line)))
                continue;
            c->sum = xreallocarray(c->sum, c->n_sums + 1, sizeof *c->sum);
            struct sum *s = &c->sum[c->n_sums++];
            *s = (struct sum){.name = xstrdup(name_in(line))};
            s->rc = hash_of(c, s->name, s->hex, &s->e);
        }
    input_close(in);
    free(text);
    return NULL;
}

static void end_hashing(struct check *c)
{
    if (c->is_hashing)
        pthread_join(c->hashing, NULL);
    c->is_hashing = false;
}

/* hash_of, made already where hash_listed ran. */
static int sum_of(struct check *c, const char *name, char hex[SHA256_HEX], struct err *e)
{
    end_hashing(c);
    for (size_t i = 0; i < c->n_sums; i++)
        if (strcmp(c->sum[i].name, name) == 0) {
            memcpy(hex, c->sum[i].hex, SHA256_HEX);
            *e = c->sum[i].e;
            return c->sum[i].rc;
        }
    return hash_of(c, name, hex, e);
}

/* One line "HEX  NAME" against the file; does it fit?  `sums`: hash it, else only look whether it is there. */
static bool check_line(struct check *c, char *line, bool sums)
{
    bool fits = false;
    char hex[SHA256_HEX] = "", *name = name_in(line);
    struct err e = {0, ""};

    if (!name)
        add_fault(c, CT_UNTIDY, "MANIFEST.sha256", "a line that is no \"HASH  NAME\"", NULL);
    else if (!is_there(c, name) || (sums && sum_of(c, name, hex, &e) != 0))
        unreadable(c, name, "the manifest lists it, it cannot be read", &e);
    else if (sums && strncmp(hex, line, 64) != 0)
        add_fault(c, CT_NOTE, name, "differs from its sum in the manifest: it was changed after the build was made", NULL);
    else
        fits = true;
    return fits;
}

/* Is there a manifest that fits what was looked at? */
static bool check_manifest(struct check *c, bool sums)
{
    struct err e = {0, ""};
    struct input *in = store_open(c->place, "MANIFEST.sha256", &e);
    char *text = NULL;
    bool fits = false;
    size_t n;

    if (!in || input_slurp(in, MANIFEST_MAX, &text, &n, &e)) {
        unreadable(c, "MANIFEST.sha256", "no manifest: nothing shows whether a copy is complete", &e);
    } else {
        sha256_of(text, n, c->manifest);
        fits = true;
        for (char *line = text, *end; *line; line = end) {
            end = cut_line(line);
            fits &= check_line(c, line, sums);
        }
    }
    input_close(in);
    free(text);
    return fits;
}

/* --- the source, in its own order --------------------------------------------------------------------------------------- */

struct source {
    struct remote *remote;
    struct store *place;                /* where it is remote */
    struct ckpt *dir;                   /* a directory, or anything remote … */
    struct st_reader *stream;           /* … or one file or stream */
    size_t next;
    const struct ckpt_entry *entry;
    uint64_t at;
};

static int source_open(struct source *s, const struct settings *set, struct err *e)
{
    const char *path = set->against;
    struct stat st;

    memset(s, 0, sizeof *s);
    if (remote_is(path)) {
        s->remote = remote_open(path, &set->remote, e);
        s->place = s->remote ? remote_store(s->remote) : NULL;
        s->dir = s->remote ? ckpt_open_store(s->place, remote_file(s->remote), NULL, e) : NULL;
    } else if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        s->dir = ckpt_open(path, NULL, e);
    else
        s->stream = st_open(path, e);
    if (s->stream && st_is_plan(st_header_of(s->stream)))
        return err_set(e, EXIT_DATA, "%s: a plan has no values to compare with", path);
    if (!s->dir && !s->stream && e->code == EXIT_NOINPUT)
        e->code = EXIT_DATA;                            /* the source cannot be read, whatever the build is */
    return s->dir || s->stream ? 0 : -1;
}

static const struct st_tensor *source_next(struct source *s, struct err *e)
{
    if (s->stream)
        return st_next(s->stream, e);
    s->entry = s->next < s->dir->n ? &s->dir->entry[s->next++] : NULL;
    s->at = 0;
    return s->entry ? s->entry->t : NULL;
}

static int source_read(struct source *s, void *buf, size_t n, struct err *e)
{
    uint64_t at = s->at;

    s->at += n;
    return s->stream ? st_read(s->stream, buf, n, e) : ckpt_read(s->dir, s->entry, at, buf, n, e);
}

static bool source_has(const struct source *s, const char *name)
{
    return s->stream ? st_find(st_header_of(s->stream), name) != NULL : ckpt_find(s->dir, name) != NULL;
}

static bool source_has_head(const struct source *s)
{
    static const char *const names[] = {"lm_head.weight", "lm_head.weight_q4", "lm_head.weight_packed", "language_model.lm_head.weight"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (source_has(s, names[i]))
            return true;
    return false;
}

static uint64_t source_bytes(const struct source *s)
{
    uint64_t n = 0;

    if (s->stream)
        return st_header_of(s->stream)->nbytes;
    for (size_t i = 0; i < s->dir->n; i++)
        n += s->dir->entry[i].t->nbytes;
    return n;
}

static void source_close(struct source *s)
{
    if (s->remote)
        note_msg("%s: %llu bytes fetched", s->place->name, (unsigned long long)remote_bytes(s->remote));
    ckpt_close(s->dir);
    if (s->stream)
        st_close(s->stream);
    store_close(s->place);
    remote_close(s->remote);
}

/* --- values ------------------------------------------------------------------------------------------------------------ */

/* Where a matrix of the source went: a module of the build that holds it row by row. */
struct target {
    struct ct_module *m;
    enum ct_kind kind;
    const struct ckpt_entry *codes, *scales;
    size_t row_codes, row_scales;       /* bytes of one row */
    struct cmp_row how;
};

/* One matrix of the source, read once, against every module that holds it (embed_tokens and an untied head). */
struct matrix {
    struct check *c;
    struct source *s;
    bool blocks;                        /* the source holds it as _q4 … */
    enum q4_scale scale;                /* … with such scales */
    const struct target *to;
    int n_to;
    uint64_t rows, next;
    size_t cols, most;                  /* rows of a piece */
    struct cmp_tally *sum;              /* of each target */
};

/* A plain BF16 row: every value must be the same, 0 of either sign. */
static void compare_plain(struct cmp_tally *t, const uint16_t *values, const uint8_t *stored, size_t n)
{
    if (memcmp(values, stored, 2 * n) == 0) {
        t->values += n;
        t->exact += n;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t a = values[i], b = (uint16_t)(stored[2 * i] | stored[2 * i + 1] << 8);
        bool same = a == b || ((a | b) & 0x7fff) == 0;

        if (!same && !t->wrong++)
            t->first_wrong = t->values + i;
        t->exact += same;
    }
    t->values += n;
}

static int bad_target(struct check *c, const struct ct_module *m, const char *what)
{
    add_fault(c, CT_WRONG, m->disk, what, NULL);
    return -1;
}

/* How module m holds a matrix [rows, cols]; -1: it does not, a fault is reported. */
static int target_init(struct check *c, struct target *t, struct ct_module *m, uint64_t rows, uint64_t cols)
{
    int kind = ct_module_kind(m);
    const struct st_tensor *w = kind == CT_PACKED ? m->part[CT_WEIGHT_PACKED] : m->part[CT_WEIGHT], *s = m->part[CT_WEIGHT_SCALE];

    *t = (struct target){.m = m};
    if (kind < 0 || !w || w->ndim != 2 || w->shape[0] != rows)
        return bad_target(c, m, "not the shape of its source, or not complete: its values cannot be compared");
    t->kind = (enum ct_kind)kind;
    t->codes = ckpt_find(c->ckpt, w->name);
    t->row_codes = rows ? w->nbytes / rows : 0;
    if (kind == CT_PLAIN)
        return w->dtype == ST_BF16 && w->shape[1] == cols ? 0 : bad_target(c, m, "not BF16 of its source's shape: its values cannot be compared");
    if (s->ndim != 2 || s->shape[0] != rows || s->shape[1] == 0 || cols % s->shape[1] || t->row_codes != (kind == CT_PACKED ? cols / 2 : cols))
        return bad_target(c, m, "codes and scales do not fit its source's shape: its values cannot be compared");
    t->scales = ckpt_find(c->ckpt, s->name);
    t->row_scales = rows ? s->nbytes / rows : 0;
    t->how = (struct cmp_row){kind == CT_PACKED ? CMP_INT4 : kind == CT_FP8 ? CMP_FP8 : CMP_INT8, NULL, NULL, s->dtype, cols / s->shape[1]};
    return t->codes && t->scales ? 0 : bad_target(c, m, "its tensors cannot be read");
}

static size_t raw_bytes(const struct matrix *x, size_t n)
{
    return x->blocks ? n * (x->cols / Q4_GROUP) * Q4_BLOCK : n * x->cols * 2;
}

static bool take_rows(void *arg, size_t lane)
{
    struct matrix *x = arg;
    struct check *c = x->c;
    struct piece *p = &c->lane[lane];

    p->from = x->next;
    p->n = x->rows - x->next < x->most ? (size_t)(x->rows - x->next) : x->most;
    x->next += p->n;
    if (!p->n || source_read(x->s, p->raw, raw_bytes(x, p->n), c->e))
        return false;
    for (int i = 0; i < x->n_to; i++) {
        const struct target *t = &x->to[i];

        if (ckpt_read(c->ckpt, t->codes, p->from * t->row_codes, p->codes[i], p->n * t->row_codes, c->e)
            || (t->kind != CT_PLAIN && ckpt_read(c->ckpt, t->scales, p->from * t->row_scales, p->scales[i], p->n * t->row_scales, c->e)))
            return false;
    }
    return true;
}

/* Groups of less than a row do not mind where one ends. */
static void compare_with(struct cmp_tally *tally, const struct target *t, const struct piece *p, int i, size_t cols)
{
    size_t rows = t->how.group < cols ? p->n : 1;
    struct cmp_row row = t->how;

    for (size_t at = 0; at < p->n; at += rows) {
        row.codes = p->codes[i] + at * t->row_codes;
        row.scales = p->scales[i] + at * t->row_scales;
        cmp_row_add(tally, p->values + at * cols, rows * cols, &row);
    }
}

static void compare_rows(void *arg, size_t lane)
{
    struct matrix *x = arg;
    struct piece *p = &x->c->lane[lane];

    if (x->blocks)
        q4_to_bf16(p->raw, p->n * (x->cols / Q4_GROUP), x->scale, p->values);
    for (int i = 0; i < x->n_to; i++) {
        memset(&p->tally[i], 0, sizeof p->tally[i]);
        if (x->to[i].kind == CT_PLAIN)
            compare_plain(&p->tally[i], p->values, p->codes[i], p->n * x->cols);
        else
            compare_with(&p->tally[i], &x->to[i], p, i, x->cols);
    }
}

static bool join_rows(void *arg, size_t lane)
{
    struct matrix *x = arg;
    const struct piece *p = &x->c->lane[lane];

    for (int i = 0; i < x->n_to; i++)
        cmp_tally_join(&x->sum[i], &p->tally[i]);
    progress_add(raw_bytes(x, p->n));
    return true;
}

static uint8_t *carve(uint8_t **at, size_t n)
{
    uint8_t *part = *at;

    *at += (n + ALIGN - 1) / ALIGN * ALIGN;
    return part;
}

/* Room for pieces of this matrix. */
static void make_room(struct piece *p, const struct matrix *x)
{
    size_t raw = x->most * (x->cols + 1) * 2, room = 2 * raw + 6 * ALIGN;
    uint8_t *at;

    for (int i = 0; i < x->n_to; i++)
        room += x->most * (x->to[i].row_codes + x->to[i].row_scales);
    if (room > p->room) {
        free(p->buf);
        *p = (struct piece){.buf = xmalloc(room), .room = room};
    }
    at = p->buf;
    p->raw = carve(&at, raw);
    p->values = (uint16_t *)(void *)(x->blocks ? carve(&at, raw) : p->raw);
    for (int i = 0; i < x->n_to; i++) {
        p->codes[i] = carve(&at, x->most * x->to[i].row_codes);
        p->scales[i] = carve(&at, x->most * x->to[i].row_scales);
    }
}

static int compare_matrix(struct matrix *x)
{
    static const struct relay relay = {take_rows, compare_rows, join_rows};
    struct check *c = x->c;

    x->most = x->cols && PIECE_VALUES / x->cols ? PIECE_VALUES / x->cols : 1;
    x->most = x->most > x->rows ? (size_t)x->rows : x->most;
    if (x->cols > SIZE_MAX >> 8)                        /* what they take in bytes has to be a number */
        return err_set(c->e, EXIT_DATA, "%s: rows of %zu values: too long to be compared", c->set->against, x->cols);
    for (size_t i = 0; i < c->lanes; i++)
        make_room(&c->lane[i], x);
    par_relay(c->par, c->lanes, &relay, x);
    return c->e->code ? -1 : 0;
}

static void report_tensor(struct check *c, const char *name, const char *kind, const struct cmp_tally *t)
{
    char what[200];

    json_array_append_new(c->compared, json_pack("{ss,ss,sI,sI,sI,sI,sI,sI,sf}", "tensor", name, "stored", kind, "values", (json_int_t)t->values,
        "exact_values", (json_int_t)t->exact, "groups", (json_int_t)t->groups, "exact_groups", (json_int_t)t->exact_groups, "wrong_values", (json_int_t)t->wrong,
        "not_best_groups", (json_int_t)t->not_best, "worst", isfinite(t->worst) ? t->worst : 1e308));
    if (t->wrong) {
        snprintf(what, sizeof what, "%llu of %llu values are not their source's (the first is number %llu)", (unsigned long long)t->wrong, (unsigned long long)t->values,
            (unsigned long long)t->first_wrong);
        add_fault(c, CT_WRONG, name, what, NULL);
    }
    cmp_tally_join(&c->total, t);
}

static const char *stored_name(const struct target *t)
{
    return t->kind == CT_PACKED ? "int4" : ct_kind_name(t->kind);
}

/* Bytes that must be there unchanged: norms, towers, and what came packed already. */
static int compare_bytes(struct check *c, struct source *s, const struct st_tensor *t, const struct st_tensor *have)
{
    const struct ckpt_entry *entry = have ? ckpt_find(c->ckpt, have->name) : NULL;
    char *a = xmalloc(IO_CHUNK), *b = xmalloc(IO_CHUNK);
    bool same = entry && have->dtype == t->dtype && have->nbytes == t->nbytes;
    int rc = 0;

    for (uint64_t at = 0, n; same && !rc && at < t->nbytes; at += n) {
        n = t->nbytes - at < IO_CHUNK ? t->nbytes - at : IO_CHUNK;
        rc = source_read(s, a, n, c->e) || ckpt_read(c->ckpt, entry, at, b, n, c->e) ? -1 : 0;
        same = rc || memcmp(a, b, n) == 0;
        progress_add(n);
    }
    if (!rc && !same)
        add_fault(c, CT_WRONG, have ? have->name : t->name, have ? "differs from its source" : "is in the source, not in the build", NULL);
    free(a);
    free(b);
    return rc;
}

/* The build's name, at run time, of a module that the source has under `module`. */
static struct ct_module *find_module(const struct check *c, const char *tensor, const char *module)
{
    char text[CT_NAME], runtime[CT_NAME], stem[CT_NAME];
    enum ct_part part;

    if (gemma_text_name(tensor, text, sizeof text) && ct_split_name(text, stem, &part)) {
        if (ends_with(stem, "_q4"))
            stem[strlen(stem) - strlen("_q4")] = '\0';
        if (part == CT_WHOLE && ends_with(stem, ".weight"))
            stem[strlen(stem) - strlen(".weight")] = '\0';
        if (snprintf(runtime, sizeof runtime, "%s%s", c->arch == CT_TEXT ? "" : "language_model.", stem) >= (int)sizeof runtime)
            return NULL;
    } else if (!ct_runtime_name(c->arch, module, runtime)) {
        return NULL;
    }
    return ct_modules_find(&c->modules, runtime);
}

static int compare_to(struct check *c, struct source *s, bool blocks, enum q4_scale scale, struct ct_module **m, int n, uint64_t rows, size_t cols)
{
    struct target to[2];
    struct cmp_tally sums[2];
    int ok = 0;

    memset(sums, 0, sizeof sums);
    for (int i = 0; i < n; i++) {
        m[i]->used = true;
        ok += target_init(c, &to[ok], m[i], rows, cols) == 0;
    }
    if (ok && compare_matrix(&(struct matrix){.c = c, .s = s, .blocks = blocks, .scale = scale, .to = to, .n_to = ok, .rows = rows, .cols = cols, .sum = sums}))
        return -1;
    for (int i = 0; i < ok; i++)
        report_tensor(c, to[i].m->disk, stored_name(&to[i]), &sums[i]);
    return 0;
}

/* A fused bank against the modules that its rows were dealt to. */
static int compare_bank(struct check *c, struct source *s, const struct st_tensor *t, bool blocks, enum q4_scale scale)
{
    bool pair = strstr(t->name, "gate_up_proj") != NULL;
    uint64_t per = pair ? 2 : 1, rows = t->shape[1] / per;
    size_t cols = (size_t)t->shape[2] * (blocks ? Q4_GROUP : 1);
    char experts[CT_NAME], name[CT_NAME + 40];
    struct cmp_tally sum;
    struct target to = {NULL, CT_PLAIN, NULL, NULL, 0, 0, {CMP_INT4, NULL, NULL, ST_F32, 1}};

    memset(&sum, 0, sizeof sum);
    snprintf(experts, sizeof experts, "%.*s", (int)(strstr(t->name, ".experts.") - t->name + 8), t->name);
    for (uint64_t i = 0; i < t->shape[0] * per; i++) {
        struct ct_module *m;

        snprintf(name, sizeof name, "%s.%llu.%s", experts, (unsigned long long)(i / per), !pair ? "down_proj" : i % 2 ? "up_proj" : "gate_proj");
        m = find_module(c, name, name);
        if (!m) {
            add_fault(c, CT_WRONG, name, "is in the source, not in the build", NULL);
            return 0;
        }
        m->used = true;
        if (target_init(c, &to, m, rows, cols))
            return 0;
        if (compare_matrix(&(struct matrix){.c = c, .s = s, .blocks = blocks, .scale = scale, .to = &to, .n_to = 1, .rows = rows, .cols = cols, .sum = &sum}))
            return -1;
    }
    report_tensor(c, t->name, stored_name(&to), &sum);
    return 0;
}

/* Modules of the build that hold this matrix of the source. */
static int targets_of(const struct check *c, const struct source *s, const struct st_tensor *t, const char *module, struct ct_module *m[2])
{
    enum gemma_class cls = gemma_classify(t->name);
    int n = 0;

    m[n] = find_module(c, t->name, module);
    if (!m[n] && cls == GC_HEAD)                        /* a twin that the build left out must be one */
        m[n] = find_module(c, "model.embed_tokens.weight", "model.embed_tokens");
    n += m[n] != NULL;
    if (cls == GC_EMBED && !source_has_head(s)) {
        m[n] = find_module(c, "lm_head.weight", "lm_head");
        n += m[n] != NULL;
    }
    return n;
}

static bool left_out(const struct check *c, const struct gemma *g, const struct st_tensor *t)
{
    enum gemma_class cls = gemma_classify(t->name);

    return cls == GC_FILE || (cls == GC_TOWER && c->arch == CT_TEXT) || gemma_is_dead(g, t->name);
}

static int compare_tensor(struct check *c, struct source *s, const struct st_tensor *t, enum q4_scale scale)
{
    bool blocks = ends_with(t->name, "_q4") && t->dtype == ST_U8;
    enum gemma_class cls = gemma_classify(t->name);
    struct ct_module *m[2];
    char module[CT_NAME];
    enum ct_part part;
    bool matrix;
    int n;

    if (!ct_split_name(t->name, module, &part))
        return err_set(c->e, EXIT_DATA, "%s: tensor %.100s…: name too long", c->set->against, t->name);
    matrix = blocks || (t->dtype == ST_BF16 && t->ndim == 2 && part == CT_WEIGHT && cls != GC_PLAIN && cls != GC_TOWER && cls != GC_ROUTER);
    n = targets_of(c, s, t, module, m);
    if (cls == GC_EXPERTS && n == 0 && t->ndim == (blocks ? 4 : 3) && (blocks || t->dtype == ST_BF16))
        return compare_bank(c, s, t, blocks, scale);
    if (n == 0)
        return compare_bytes(c, s, t, NULL);
    if (matrix && t->ndim == (blocks ? 3 : 2))
        return compare_to(c, s, blocks, scale, m, n, t->shape[0], (size_t)t->shape[1] * (blocks ? Q4_GROUP : 1));
    m[0]->used = true;
    return compare_bytes(c, s, t, m[0]->part[part]);
}

static void finish_comparison(struct check *c)
{
    char what[200];

    for (size_t i = 0; i < c->modules.n; i++)
        if (!c->modules.m[i].used)
            add_fault(c, CT_WRONG, c->modules.m[i].disk, "is in the build, not in the source", NULL);
    if (c->total.not_best) {
        snprintf(what, sizeof what, "%llu of %llu groups have right levels under a scale that is not the best one", (unsigned long long)c->total.not_best, (unsigned long long)c->total.groups);
        add_fault(c, CT_UNTIDY, "scales", what, NULL);
    }
}

static enum q4_scale source_scale(const struct source *s)
{
    const char *scale = s->stream ? st_meta(st_header_of(s->stream), "q4_scale") : NULL;

    return scale && q4_scale_from_name(scale) == Q4_F16 ? Q4_F16 : Q4_BF16;
}

static int compare_all(struct check *c, struct source *s, const struct gemma *g)
{
    const struct st_tensor *t;
    int rc = 0;

    c->compared = json_array();
    c->arch = ct_arch_of(c->config);
    ct_modules_make(&c->modules, c->arch, c->tensor, c->n_tensors, NULL);
    progress_start("ct-check", source_bytes(s));
    while (!rc && (t = source_next(s, c->e)))
        rc = left_out(c, g, t) ? 0 : compare_tensor(c, s, t, source_scale(s));
    progress_end();
    if (!rc && !c->e->code)
        finish_comparison(c);
    ct_modules_free(&c->modules);
    return rc || c->e->code ? -1 : 0;
}

static int compare_source(struct check *c)
{
    struct source s;
    struct gemma g;
    struct err e = {0, ""};
    int rc = -1;

    if (source_open(&s, c->set, c->e)) {
        source_close(&s);
        return -1;
    }
    if (c->ckpt && gemma_config_read(&g, c->config, "config.json", &e) == 0)
        rc = compare_all(c, &s, &g);
    else
        rc = 0;                                         /* the linter has said what is wrong */
    source_close(&s);
    return rc;
}

/* --- the answer -------------------------------------------------------------------------------------------------------- */

static bool answer(const struct check *c)
{
    return !c->count[CT_REFUSED] && !c->count[CT_WRONG] && !(c->set->strict && c->count[CT_UNTIDY]);
}

static json_t *summary_of_values(const struct check *c)
{
    const struct cmp_tally *t = &c->total;

    return json_pack("{sI,sI,sI,sI,sI,sI,sI,sf}", "tensors", (json_int_t)json_array_size(c->compared), "values", (json_int_t)t->values, "exact_values", (json_int_t)t->exact,
        "groups", (json_int_t)t->groups, "exact_groups", (json_int_t)t->exact_groups, "wrong_values", (json_int_t)t->wrong, "not_best_groups", (json_int_t)t->not_best,
        "worst", isfinite(t->worst) ? t->worst : 1e308);
}

static int print_json(const struct check *c)
{
    json_t *v = json_pack("{ss,sb,sb,si,si,si,si,sO}", "build", c->set->build, "ok", answer(c), "loads", !c->count[CT_REFUSED], "refused", (int)c->count[CT_REFUSED],
        "wrong", (int)c->count[CT_WRONG], "untidy", (int)c->count[CT_UNTIDY], "notes", (int)c->count[CT_NOTE], "faults", c->faults);
    int rc;

    if (c->compared) {
        json_t *a = summary_of_values(c);

        json_object_set(a, "per_tensor", c->compared);
        json_object_set_new(v, "against", a);
    }
    rc = json_line(stdout, v);
    json_decref(v);
    return rc;
}

static void print_grade(const struct check *c, enum ct_grade grade)
{
    long shown = 0;
    size_t i;
    json_t *f;

    json_array_foreach(c->faults, i, f) {
        const char *vllm = json_string_value(json_object_get(f, "vllm"));

        if (strcmp(json_string_value(json_object_get(f, "grade")), grade_names[grade]) != 0 || shown++ >= SHOWN)
            continue;
        print_line("%s: %s: %s", grade_names[grade], json_string_value(json_object_get(f, "where")), json_string_value(json_object_get(f, "what")));
        if (vllm)
            print_line("    vLLM: %s", vllm);
    }
    if (shown > SHOWN)
        printf("%s: %ld more of this grade (--json has all)\n", grade_names[grade], shown - SHOWN);
}

static double percent(uint64_t part, uint64_t all)
{
    return all ? 100.0 * (double)part / (double)all : 100.0;
}

static void print_values(const struct check *c)
{
    size_t i;
    json_t *t;

    json_array_foreach(c->compared, i, t) {
        uint64_t values = (uint64_t)json_integer_value(json_object_get(t, "values")), exact = (uint64_t)json_integer_value(json_object_get(t, "exact_values"));

        print_line("%s: %s, %.4f %% of values exact, worst error %.3g of the group's peak", json_string_value(json_object_get(t, "tensor")),
            json_string_value(json_object_get(t, "stored")), percent(exact, values), json_real_value(json_object_get(t, "worst")));
    }
    printf("values: %llu compared, %.4f %% exact, %.4f %% of groups exact, worst error %.3g\n", (unsigned long long)c->total.values, percent(c->total.exact, c->total.values),
        percent(c->total.exact_groups, c->total.groups), c->total.worst);
}

static void print_lines(const struct check *c)
{
    for (int grade = CT_REFUSED; grade <= CT_NOTE; grade++)
        print_grade(c, (enum ct_grade)grade);
    if (c->compared)
        print_values(c);
    printf("%s: %s: %zu tensors; %ld refused, %ld wrong, %ld untidy\n", c->set->build,
        answer(c) ? "ok" : c->count[CT_REFUSED] ? "no, vLLM would not load it" : c->count[CT_WRONG] ? "no, it would answer wrongly" : "no, not tidy",
        c->n_tensors, c->count[CT_REFUSED], c->count[CT_WRONG], c->count[CT_UNTIDY]);
}

/* The lines of a record file that are about other manifests. */
static void keep_others(const char *path, const char *manifest, struct buf *out)
{
    char *text = NULL;
    struct err e = {0, ""};
    size_t n;

    if (io_slurp(path, (size_t)64 << 20, &text, &n, &e) == 0)
        for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            if (!strstr(line, manifest))
                buf_printf(out, "%s\n", line);
        }
    free(text);
}

/* Beside the directory itself, however it was named: by a link, by a dot. */
static char *record_path(const struct check *c)
{
    char *build = realpath(c->set->build, NULL), *path = xasprintf("%s.check.jsonl", build ? build : c->set->build);

    free(build);
    return path;
}

/* Where this user may not write, the verdict stands all the same. */
static bool may_record(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? xasprintf("%.*s", (int)(slash - path) + 1, path) : xstrdup(".");
    bool may = access(dir, W_OK) == 0 || (errno != EACCES && errno != EROFS);

    if (!may)
        warn_msg("%s: %s: the pass is not recorded, and pipelines/publish will ask for it", path, strerror(errno));
    free(dir);
    return may;
}

/* A pass against the source, beside the build, keyed by the manifest. */
static int record_pass(struct check *c)
{
    char *path = record_path(c), *line;
    json_t *v;
    struct buf text = BUF_INIT;
    int rc;

    if (!may_record(path)) {
        free(path);
        return 0;
    }
    v = summary_of_values(c);
    keep_others(path, c->manifest, &text);
    json_object_set_new(v, "manifest", json_string(c->manifest));
    json_object_set_new(v, "strict", json_boolean(c->set->strict));
    json_object_set_new(v, "version", json_string(version_string()));
    line = json_text(v, true);
    buf_printf(&text, "%s\n", line);
    rc = output_whole(output_open(path, false, c->e), text.data, text.n, c->e);
    buf_free(&text);
    json_decref(v);
    free(line);
    free(path);
    return rc;
}

static int run(struct check *c)
{
    const struct ct_faults faults = {add_fault, c};
    bool sums, sums_hold;

    if (open_build(c))
        return -1;
    if (c->ckpt) {
        struct ct_disk disk = {c->config, c->tensor, c->n_tensors};

        ct_lint(&disk, &faults);
    }
    sums = c->set->against && !c->remote;               /* a remote build is not fetched again for its sums */
    c->is_hashing = sums && pthread_create(&c->hashing, NULL, hash_listed, c) == 0;
    if (c->set->against && compare_source(c)) {
        c->given_up = true;
        end_hashing(c);
        return -1;
    }
    sums_hold = check_manifest(c, sums);
    end_hashing(c);
    if (c->e->code)
        return -1;
    if (c->set->json ? print_json(c) : (print_lines(c), 0))
        return err_stdout(c->e);
    if (finish_stdout(c->e))
        return -1;
    return c->compared && answer(c) && sums_hold && !c->remote ? record_pass(c) : 0;
}

static void check_free(struct check *c)
{
    if (c->remote)
        note_msg("%s: %llu bytes fetched", c->set->build, (unsigned long long)remote_bytes(c->remote));
    json_decref(c->config);
    json_decref(c->faults);
    json_decref(c->compared);
    ckpt_close(c->ckpt);
    ckpt_close(c->stray);
    for (size_t i = 0; i < c->n_files; i++)
        free(c->files[i]);
    free(c->files);
    for (size_t i = 0; i < c->n_sums; i++)
        free(c->sum[i].name);
    free(c->sum);
    store_close(c->place);
    remote_close(c->remote);
    par_free(c->par);
    for (size_t i = 0; i < c->lanes; i++)
        free(c->lane[i].buf);
    free(c->tensor);
}

int main(int argc, char **argv)
{
    struct settings set = {.remote = {.connections = 8, .retries = 8}};
    struct err e = {0, ""};
    struct check c = {.set = &set, .e = &e};
    bool yes;
    const struct opt opts[] = {
        {"against", 0, OPT_STR, &set.against, "SRC", "compare every value with this checkpoint directory, file, stream (- = stdin) or URL", 0, 0},
        {"strict", 0, OPT_FLAG, &set.strict, NULL, "what is untidy is a no as well", 0, 0},
        {"json", 0, OPT_FLAG, &set.json, NULL, "one JSON object with every fault", 0, 0},
        {"jobs", 'j', OPT_INT, &set.jobs, "N", "threads, 0 = one a CPU", 0, 1024},
        {"connections", 0, OPT_INT, &set.remote.connections, "N", "requests in flight to a remote place", 1, 64},
        {"retries", 0, OPT_INT, &set.remote.retries, "N", "tries without progress before a remote place is given up", 0, 100},
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL, 0, 0}
    };
    const struct opt_spec spec = {
        .usage = "[options] DIR|http(s)://…|hf://org/name[@revision]",
        .about = "Say whether vLLM loads a compressed-tensors build of a Gemma, with the error it would raise, from headers alone;\n"
            "with --against also whether every value is what its source says.",
        .opts = opts,
        .examples = "ct-check --against SRC --strict BUILD\nct-check hf://google/gemma-4-E2B-it-qat-w4a16-ct",
        .exits = "1 it does not load, or answers wrongly",
        .min_operands = 1, .max_operands = 1
    };

    prog_init(argv[0]);
    set.build = argv[opt_parse(&spec, argc, argv)];
    c.faults = json_array();
    c.par = par_new((int)set.jobs);
    c.lanes = par_lanes(c.par, MAX_LANES);
    if (run(&c))
        die(&e);
    yes = answer(&c);
    check_free(&c);
    return yes ? 0 : EXIT_NO;
}
