/* st-synth: write a synthetic Gemma: a checkpoint as Google's, or one safetensors stream.
 *
 * The config gives the list of tensors (gemma/names.h, gemma/towers.h); every tensor's values follow from its name and the seed alone (quant/synth.h),
 * so the same options give the same bytes in every form, and true sizes stream through one tile of memory.  Matrices of the language model lie on the
 * Q4_0 grid; norms and scalars are drawn so that logits have a spread of about 7, context decides the next token, and greedy decoding wanders instead of
 * repeating one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "base/opt.h"
#include "base/par.h"
#include "base/progress.h"
#include "base/text.h"
#include "engine/chat.h"
#include "gemma/preset.h"
#include "gemma/towers.h"
#include "gemma/toy.h"
#include "quant/q4.h"
#include "quant/synth.h"
#include "tensor/header.h"

static struct {
    const char *size, *scale, *config, *out;
    long seed, off_grid, shard_size, jobs;
    bool twin, towers, plan, force, zstd;
} opt = {.scale = "nano", .seed = 1};

static const struct opt options[] = {
    {"size", 0, OPT_CHOICE, &opt.size, GEMMA_SIZES, "which model", 0, 0},
    {"scale", 0, OPT_CHOICE, &opt.scale, "nano|full", "a small twin of its structure, or true size", 0, 0},
    {"config", 0, OPT_STR, &opt.config, "FILE", "the config.json of the model to make, instead of --size", 0, 0},
    {"seed", 0, OPT_INT, &opt.seed, "N", "other values for another number", 0, 0},
    {"off-grid", 0, OPT_INT, &opt.off_grid, "N", "plant N values off the grid, in N groups of text linears (-v says where)", 0, 0},
    {"twin-lm-head", 0, OPT_FLAG, &opt.twin, NULL, "store lm_head.weight, identical to embed_tokens, under a tied config", 0, 0},
    {"towers", 0, OPT_FLAG, &opt.towers, NULL, "add the vision and audio tensors of the size", 0, 0},
    {"plan", 0, OPT_FLAG, &opt.plan, NULL, "write the header alone: a plan stream", 0, 0},
    {"output", 'o', OPT_STR, &opt.out, "DIR|FILE.safetensors|-", "a checkpoint directory, or one stream with the side files inside", 0, 0},
    {"shard-size", 0, OPT_SIZE, &opt.shard_size, "BYTES", "with DIR: shards of so many tensor bytes at most, and an index", 1, 0},
    {"force", 0, OPT_FLAG, &opt.force, NULL, "replace an existing DIR once the new one is complete", 0, 0},
    {"zstd", 'z', OPT_FLAG, &opt.zstd, NULL, "compress the stream", 0, 0},
    {"jobs", 'j', OPT_INT, &opt.jobs, "N", "threads, 0 = one a CPU", 0, 1024},
    {NULL, 0, OPT_FLAG, NULL, NULL, NULL, 0, 0}
};

static const struct opt_spec spec = {
    .usage = "(--size SIZE [--scale nano|full] | --config FILE) [options] -o DIR|FILE.safetensors|-",
    .about = "Make a synthetic Gemma on the Q4_0 grid, deterministic: a checkpoint directory as Google publishes it, or one stream.",
    .opts = options,
    .examples = "st-synth --size e2b -o model\n"
                "st-synth --size 31b --scale full --plan -o - | st-extract --text-only --list -",
};

/* ---- one tensor to write ---------------------------------------------------------------------------------------- */

enum how { GRID, UNIFORM, LOGNORMAL, NORMAL, CONSTANT, BYTES };

struct part {
    char *name;                 /* as the source calls it */
    enum how how;
    int ndim;
    uint64_t shape[4];
    uint64_t n;                 /* values; of BYTES, bytes */
    uint64_t key;
    /* GRID: a = standard deviation.  UNIFORM: a to b.  LOGNORMAL: median a, sigma b.  NORMAL: deviation a.  CONSTANT: a. */
    double a, b;
    bool mostly_negative;       /* three of four negated at random */
    double minus;               /* taken off at the end: Gemma 3 stores norm weights less one */
    bool row_is_token;          /* rows of tokens that should not be said are small */
    uint64_t first_plant, plants;   /* its groups that get a value off the grid: plant[first_plant …], rising */
    int rank;                   /* where it stands in a stream: embed_tokens, lm_head, the rest, odd sizes, files */
    const char *bytes;
};

struct model {
    json_t *config;
    struct gemma g;
    double scalar[GEMMA_MAX_LAYERS];    /* layer_scalar */
    double rms[GEMMA_MAX_LAYERS + 1];   /* of the stream before a layer */
    double mix;                         /* what a block adds to the stream, relative to it */
    struct part *part;
    size_t n;
    struct toy_file file[TOY_MAX_FILES];
    size_t files;               /* the last parts */
    uint64_t *plant;            /* groups, counted within their part */
};

static uint64_t bytes_of(const struct part *p)
{
    return p->how == BYTES ? p->n : 2 * p->n;
}

/* ---- how values are drawn --------------------------------------------------------------------------------------- */

#define QUIET 0.25f /* size of the rows of tokens that should not be said */

/* All layers together leave the token's own embedding a sixth of the stream, so that context decides but does not drown it; layer scalars keep the
 * stream's size about level, so that sixty layers neither fade below eps nor grow out of hand. */
static void draw_stream(struct model *m)
{
    const int blocks = m->g.ple ? 3 : 2;
    const double wanted = 1 + 1.8 / m->g.layers, mix = sqrt((wanted * wanted - 1) / blocks);

    m->mix = mix < 0.4 ? mix : 0.4;
    const double growth = sqrt(1 + blocks * m->mix * m->mix);
    const uint64_t key = synth_key("layer_scalar", (uint64_t)opt.seed);

    m->rms[0] = 1;
    for (int i = 0; i < m->g.layers; i++) {
        m->scalar[i] = m->g.layer_scalar ? (0.8 + 0.45 * synth_uniform(key, (uint64_t)i)) / growth : 1;
        m->rms[i + 1] = m->rms[i] * m->scalar[i] * growth;
    }
}

static void draw(struct part *p, enum how how, double a, double b)
{
    p->how = how;
    p->a = a;
    p->b = b;
}

static void draw_matrix(struct part *p, const struct gemma *g, enum gemma_class cls)
{
    const double inputs = cls == GC_PLE ? g->ple : (double)p->shape[p->ndim - 1];

    /* The router's input is divided by the root of its size: this gives router logits of spread 3. */
    draw(p, GRID, cls == GC_ROUTER ? 3 : 1 / sqrt(inputs), 0);
    p->row_is_token = cls == GC_EMBED || cls == GC_HEAD;
}

static void draw_vector(struct part *p, const struct model *m, int layer)
{
    const bool three = m->g.family == GEMMA_3;
    const bool after_block = strstr(p->name, "post_attention_layernorm") || strstr(p->name, "post_feedforward_layernorm") ||
                             strstr(p->name, "post_per_layer_input_norm");

    p->minus = three;
    if (ends_with(p->name, "layer_scalar")) {
        draw(p, CONSTANT, m->scalar[layer], 0);
    } else if (ends_with(p->name, "per_expert_scale")) {
        draw(p, UNIFORM, 0.5, 1.5);
    } else if (ends_with(p->name, "q_norm.weight")) {
        draw(p, UNIFORM, three ? 0.9 : 0.7, three ? 1.5 : 1.3);
    } else if (ends_with(p->name, "k_norm.weight")) {
        const double size = three ? 1.2 : 1.5 / sqrt(m->g.layer[layer].head_dim);
        draw(p, UNIFORM, 0.7 * size, 1.3 * size);
    } else if (ends_with(p->name, "model.norm.weight")) {
        draw(p, LOGNORMAL, 7, 0.3);
        p->mostly_negative = true;      /* the tied head then dislikes the token just read: no endless repetition */
    } else {
        draw(p, LOGNORMAL, after_block ? m->mix * m->rms[layer] : 1, 0.35);
    }
}

static void draw_tower(struct part *p)
{
    if (ends_with(p->name, "put_min") || ends_with(p->name, "put_max"))
        draw(p, CONSTANT, ends_with(p->name, "_min") ? -8 : 8, 0);
    else if (p->ndim == 1 && !ends_with(p->name, "bias"))
        draw(p, LOGNORMAL, 1, 0.35);
    else
        draw(p, NORMAL, 0.1, 0);
}

static double plain_value(const struct part *p, uint64_t i)
{
    double v = p->a, x;

    switch (p->how) {
    case UNIFORM:
        v = p->a + (p->b - p->a) * synth_uniform(p->key, i);
        break;
    case LOGNORMAL:             /* exp to the second order: exact operations alone give the same bytes everywhere */
        x = p->b * synth_normal(p->key, i);
        v = p->a * (1 + x + x * x / 2);
        break;
    case NORMAL:
        v = p->a * synth_normal(p->key, i);
        break;
    default:
        break;
    }
    return (p->mostly_negative && synth_uniform(~p->key, i) < 0.75 ? -v : v) - p->minus;
}

/* ---- the list of parts ------------------------------------------------------------------------------------------ */

static char *source_name(const struct gemma *g, const struct gemma_tensor *t)
{
    const bool inside = g->wrapped && t->cls != GC_TOWER && t->cls != GC_HEAD;
    return inside ? xasprintf("model.language_model.%s", t->name + strlen("model.")) : xstrdup(t->name);
}

static void add_tensor(struct model *m, const struct gemma_tensor *t)
{
    struct part *p = &m->part[m->n++];

    *p = (struct part){.name = source_name(&m->g, t), .ndim = t->ndim, .n = 1, .key = synth_key(t->name, (uint64_t)opt.seed)};
    memcpy(p->shape, t->shape, sizeof p->shape);
    for (int d = 0; d < t->ndim; d++)
        p->n *= t->shape[d];
    if (t->cls == GC_TOWER)
        draw_tower(p);
    else if (t->ndim >= 2)
        draw_matrix(p, &m->g, t->cls);
    else
        draw_vector(p, m, t->layer);
    if (p->how == GRID && t->shape[t->ndim - 1] % Q4_GROUP)
        die_msg(EXIT_DATA, "%s: rows of %llu values are no multiple of %d: choose other sizes", p->name, (unsigned long long)t->shape[t->ndim - 1], Q4_GROUP);
    p->rank = t->cls == GC_EMBED ? 0 : t->cls == GC_HEAD ? 1 : bytes_of(p) % 8 ? 3 : 2;
}

/* A stored lm_head with embed_tokens' own values. */
static void add_twin(struct model *m)
{
    struct part *p = &m->part[m->n];

    *p = m->part[0];
    p->name = xstrdup("lm_head.weight");
    p->rank = 1;
    m->n++;
}

static void add_files(struct model *m)
{
    const enum chat_variant variant = m->g.family == GEMMA_3 ? CHAT_GEMMA3 : m->g.ple ? CHAT_GEMMA4_SMALL : CHAT_GEMMA4_LARGE;

    m->files = toy_files(m->config, &m->g, chat_own_template(variant), m->file);
    for (size_t i = 0; i < m->files; i++)
        m->part[m->n++] = (struct part){.name = xasprintf("file:%s", m->file[i].name), .how = BYTES, .ndim = 1, .shape = {m->file[i].n},
                                        .n = m->file[i].n, .rank = 4, .bytes = m->file[i].data};
}

static uint64_t plantable(const struct part *p)
{
    const enum gemma_class cls = gemma_classify(p->name);
    return cls == GC_LINEAR || cls == GC_EXPERTS ? p->n / Q4_GROUP : 0;
}

/* One group from each of N equal stretches of all the linears' groups. */
static void choose_plants(struct model *m)
{
    const uint64_t n = (uint64_t)opt.off_grid, key = synth_key("off-grid", (uint64_t)opt.seed);
    uint64_t total = 0, before = 0, k = 0;

    for (size_t i = 0; i < m->n; i++)
        total += plantable(&m->part[i]);
    if (n > total)
        opt_usage("--off-grid %ld: the linears have %llu groups", opt.off_grid, (unsigned long long)total);
    m->plant = xcalloc(n + 1, sizeof *m->plant);
    for (size_t i = 0; i < m->n; before += plantable(&m->part[i++])) {
        struct part *p = &m->part[i];
        p->first_plant = k;
        for (; k < n; k++, p->plants++) {
            const double stretch = (double)total / (double)n;
            const uint64_t low = (uint64_t)(stretch * (double)k), high = k + 1 == n ? total : (uint64_t)(stretch * (double)(k + 1));
            const uint64_t at = low + (uint64_t)(synth_uniform(key, k) * (double)(high - low));
            if (at - before >= plantable(p))
                break;
            m->plant[k] = at - before;
        }
    }
}

static void list_parts(struct model *m)
{
    struct gemma_tensor *text, *towers = NULL;
    size_t n, n_towers = 0;
    struct err e = {0};

    text = gemma_text_tensors(&m->g, &n);
    if (opt.towers && gemma_tower_tensors(m->config, opt.config ? opt.config : opt.size, &towers, &n_towers, &e))
        die(&e);
    if (opt.towers && !n_towers)
        opt_usage("--towers: this model has none");
    m->part = xcalloc(n + n_towers + 1 + TOY_MAX_FILES, sizeof *m->part);
    for (size_t i = 0; i < n; i++)
        add_tensor(m, &text[i]);
    if (opt.twin)
        add_twin(m);
    for (size_t i = 0; i < n_towers; i++)
        add_tensor(m, &towers[i]);
    choose_plants(m);
    add_files(m);
    free(text);
    free(towers);
}

/* ---- making and writing values ---------------------------------------------------------------------------------- */

#define TILE ((uint64_t)1 << 20)    /* values made at a time; a chunk of them is one thread's work */
#define CHUNK ((uint64_t)1 << 15)

struct tile { const struct model *m; const struct part *p; uint64_t first, n; uint16_t *out; };

static void make_rows(const struct tile *t, uint64_t first, uint64_t n, uint16_t *out)
{
    const uint64_t columns = t->p->shape[1];

    while (n) {
        const uint64_t row = first / columns, left = columns - first % columns, now = left < n ? left : n;
        const float std = (float)t->p->a * (toy_speaks(&t->m->g, (int)row) ? 1 : QUIET);
        synth_grid(t->p->key, first / Q4_GROUP, now / Q4_GROUP, std, out);
        first += now;
        out += now;
        n -= now;
    }
}

static void make_chunk(void *arg, size_t i)
{
    const struct tile *t = arg;
    const uint64_t at = i * CHUNK, first = t->first + at, n = t->n - at < CHUNK ? t->n - at : CHUNK;
    uint16_t *out = t->out + at;

    if (t->p->row_is_token)
        make_rows(t, first, n, out);
    else if (t->p->how == GRID)
        synth_grid(t->p->key, first / Q4_GROUP, n / Q4_GROUP, (float)t->p->a, out);
    else
        for (uint64_t k = 0; k < n; k++)
            out[k] = bf16_from_f32((float)plain_value(t->p, first + k));
}

static void plant(const struct tile *t)
{
    if (!t->p->plants)
        return;
    const uint64_t columns = t->p->shape[t->p->ndim - 1];

    for (uint64_t k = t->p->first_plant; k < t->p->first_plant + t->p->plants; k++) {
        const uint64_t value = t->m->plant[k] * Q4_GROUP;
        if (value < t->first || value >= t->first + t->n)
            continue;
        uint16_t *group = t->out + (value - t->first);
        const unsigned j = synth_off_grid(t->p->key, t->m->plant[k], (float)t->p->a, group);
        note_msg("off the grid: %s row %llu group %llu: %.9g", t->p->name, (unsigned long long)(value / columns),
                 (unsigned long long)(value % columns / Q4_GROUP), (double)bf16_to_f32(group[j]));
    }
}

static int write_part(struct output *out, const struct model *m, const struct part *p, struct par *par, uint16_t *room, struct err *e)
{
    if (p->how == BYTES)
        return output_write(out, p->bytes, p->n, e);
    for (uint64_t first = 0; first < p->n; first += TILE) {
        struct tile t = {m, p, first, p->n - first < TILE ? p->n - first : TILE, room};
        par_for(par, (size_t)((t.n + CHUNK - 1) / CHUNK), make_chunk, &t);
        plant(&t);
        if (output_write(out, room, 2 * t.n, e))
            return -1;
        progress_add(2 * t.n);
    }
    return 0;
}

/* One file: the header, then (unless it is a plan) the parts in order. */
static int write_file(struct output *out, struct st_header *h, const struct model *m, const struct part *p, size_t n, struct err *e)
{
    struct par *par = par_new((int)opt.jobs);
    uint16_t *room = xmalloc(TILE * sizeof *room);
    char *bytes = NULL;
    size_t size;

    for (size_t i = 0; i < n; i++)
        st_header_add(h, p[i].name, p[i].how == BYTES ? ST_U8 : ST_BF16, p[i].ndim, p[i].shape);
    int rc = st_header_render(h, &bytes, &size, e) || output_write(out, bytes, size, e);
    for (size_t i = 0; !rc && !st_is_plan(h) && i < n; i++)
        rc = write_part(out, m, &p[i], par, room, e);
    free(bytes);
    free(room);
    par_free(par);
    return rc ? -1 : 0;
}

/* ---- the stream ------------------------------------------------------------------------------------------------- */

/* Names the options that decide the bytes; a config file is in the stream itself. */
static json_t *provenance_args(void)
{
    json_t *args = opt.config ? json_pack("[s]", "--config") : json_pack("[o, o]", st_stage_arg("size", opt.size), st_stage_arg("scale", opt.scale));
    char number[32];

    snprintf(number, sizeof number, "%ld", opt.seed);
    json_array_append_new(args, st_stage_arg("seed", number));
    if (opt.off_grid) {
        snprintf(number, sizeof number, "%ld", opt.off_grid);
        json_array_append_new(args, st_stage_arg("off-grid", number));
    }
    if (opt.twin)
        json_array_append_new(args, json_string("--twin-lm-head"));
    if (opt.towers)
        json_array_append_new(args, json_string("--towers"));
    return args;
}

static int write_stream(struct model *m, struct err *e)
{
    struct st_header *h = st_header_new();
    struct part *sorted = xcalloc(m->n, sizeof *sorted);
    size_t n = 0;

    for (int rank = 0; rank <= 4; rank++)
        for (size_t i = 0; i < m->n; i++)
            if (m->part[i].rank == rank)
                sorted[n++] = m->part[i];
    st_meta_set(h, "format", "pt");
    st_meta_set_json(h, "config", m->config);
    if (opt.plan)
        st_meta_set(h, "plan", "1");
    struct output *out = NULL;
    int rc = st_provenance(h, opt.out, prog_name, provenance_args(), NULL, e) || !(out = output_open(opt.out, opt.zstd, e)) ||
             write_file(out, h, m, sorted, n, e);
    if (!rc)
        rc = output_commit(out, e);
    else
        output_abort(out);
    st_header_free(h);
    free(sorted);
    return rc ? -1 : 0;
}

/* ---- the checkpoint directory ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct part *)a)->name, ((const struct part *)b)->name);
}

static int put(struct outdir *d, const char *name, const char *text, size_t n, struct err *e)
{
    return output_whole(outdir_file(d, name, e), text, n, e);
}

static int put_shard(struct outdir *d, const char *name, const struct model *m, const struct part *p, size_t n, struct err *e)
{
    struct st_header *h = st_header_new();
    struct output *out = outdir_file(d, name, e);

    st_meta_set(h, "format", "pt");
    int rc = !out || write_file(out, h, m, p, n, e);
    if (!rc)
        rc = output_commit(out, e);
    else
        output_abort(out);
    st_header_free(h);
    return rc ? -1 : 0;
}

/* Where the shard that begins with part `from` ends; a tensor larger than the limit has a shard of its own. */
static size_t shard_end(const struct part *p, size_t from, size_t n)
{
    uint64_t bytes = bytes_of(&p[from]);
    size_t end = from + 1;

    while (end < n && (!opt.shard_size || bytes + bytes_of(&p[end]) <= (uint64_t)opt.shard_size))
        bytes += bytes_of(&p[end++]);
    return end;
}

static int put_tensors(struct outdir *d, const struct model *m, struct err *e)
{
    const size_t n = m->n - m->files;
    size_t shards = 0, shard = 0;
    json_t *map = json_object();
    uint64_t bytes = 0;
    int rc = 0;

    for (size_t i = 0; i < n; i = shard_end(m->part, i, n))
        shards++;
    for (size_t i = 0; !rc && i < n; ) {
        const size_t end = shard_end(m->part, i, n);
        char name[64];
        if (shards == 1)
            snprintf(name, sizeof name, "model.safetensors");
        else
            snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", ++shard, shards);
        rc = put_shard(d, name, m, m->part + i, end - i, e);
        for (; i < end; i++) {
            json_object_set_new(map, m->part[i].name, json_string(name));
            bytes += bytes_of(&m->part[i]);
        }
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
    char *text = json_text_indented(index);
    if (!rc && shards > 1)
        rc = put(d, "model.safetensors.index.json", text, strlen(text), e);
    free(text);
    json_decref(index);
    return rc;
}

/* Tensors by name, as the reference writer sorts them. */
static int write_directory(struct model *m, uint64_t bytes, struct err *e)
{
    char *config = json_text_indented(m->config);

    qsort(m->part, m->n - m->files, sizeof *m->part, by_name);
    struct outdir *d = outdir_open(opt.out, opt.force, e);
    int rc = !d || io_free_space(opt.out, bytes, e) || put_tensors(d, m, e) || put(d, "config.json", config, strlen(config), e);
    for (size_t i = 0; !rc && i < m->files; i++)
        rc = put(d, m->file[i].name, m->file[i].data, m->file[i].n, e);
    free(config);
    if (!rc)
        return outdir_commit(d, e);
    if (d)
        outdir_abort(d);
    return -1;
}

/* ---- the job ---------------------------------------------------------------------------------------------------- */

static bool is_stream(void)
{
    return !strcmp(opt.out, "-") || ends_with(opt.out, ".safetensors");
}

static void check_options(void)
{
    if (!opt.out)
        opt_usage("-o is missing: DIR, FILE.safetensors or -");
    if (!opt.size == !opt.config)
        opt_usage("exactly one of --size and --config is needed");
    if (is_stream() ? opt.shard_size || opt.force : opt.plan || opt.zstd)
        opt_usage("-o %s: --plan and --zstd are for a stream (- or FILE.safetensors), --shard-size and --force for a directory", opt.out);
}

static void read_config(struct model *m, struct err *e)
{
    const char *where = opt.config ? opt.config : opt.size;

    m->config = opt.config ? json_parse_file(opt.config, e) : gemma_preset(opt.size, !strcmp(opt.scale, "full"), opt.towers);
    if (!m->config || gemma_config_read(&m->g, m->config, where, e))
        die(e);
    if (opt.twin && !m->g.tied)
        opt_usage("--twin-lm-head: %s has an lm_head of its own (tie_word_embeddings is false)", where);
    if (!opt.towers && m->g.wrapped) {      /* the config as it must be for the tensors */
        json_object_set_new(m->config, "vision_config", json_null());
        json_object_set_new(m->config, "audio_config", json_null());
    }
}

static void model_free(struct model *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->part[i].name);
    for (size_t i = 0; i < m->files; i++)
        free(m->file[i].data);
    free(m->part);
    free(m->plant);
    json_decref(m->config);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    uint64_t bytes = 0;

    prog_init(argv[0]);
    struct model *m = xcalloc(1, sizeof *m);
    opt_parse(&spec, argc, argv);
    check_options();
    read_config(m, &e);
    draw_stream(m);
    list_parts(m);
    for (size_t i = 0; i < m->n; i++)
        bytes += bytes_of(&m->part[i]);
    progress_start("writing", bytes);
    if (is_stream() ? write_stream(m, &e) : write_directory(m, bytes, &e))
        die(&e);
    progress_end();
    model_free(m);
    free(m);
    return 0;
}
