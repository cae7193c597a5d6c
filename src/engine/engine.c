#include "engine/engine.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "base/json.h"
#include "cuda/cuda.h"
#include "engine/forward.h"

#define MAX_IDS 64

struct id_list { int id[MAX_IDS]; size_t n; };

struct engine {
    struct gemma g;
    struct weights w;
    struct forward *forward;    /* on the CPU */
    struct cuda *cuda;          /* on a GPU */
    bool ple_on_gpu, mapped;
    struct par *par;
    struct tokenizer *tokenizer;
    struct chat *chat;
    struct engine_facts facts;
    long max_context;
    struct id_list eos, suppressed;
};

/* --- opening --------------------------------------------------------------------------------------------------------- */

static int add_id(struct id_list *l, const json_t *v, const char *where, const char *key, struct err *e)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
        return err_set(e, EXIT_DATA, "%s: %s holds something other than token ids", where, key);
    if (l->n == MAX_IDS)
        return err_set(e, EXIT_DATA, "%s: %s lists over %d ids", where, key, MAX_IDS);
    l->id[l->n++] = (int)json_integer_value(v);
    return 0;
}

/* A token id or a list of them; absent or null leaves the list empty. */
static int read_ids(struct id_list *l, const json_t *config, const char *where, const char *key, struct err *e)
{
    const json_t *v = json_object_get(config, key), *item;
    size_t i;

    if (!v || json_is_null(v))
        return 0;
    if (!json_is_array(v))
        return add_id(l, v, where, key, e);
    json_array_foreach((json_t *)v, i, item)
        if (add_id(l, item, where, key, e))
            return -1;
    return 0;
}

static int read_generation_config(struct engine *en, const char *dir, struct err *e)
{
    char *path = xasprintf("%s/generation_config.json", dir);
    struct stat st;
    int failed = 0;

    if (stat(path, &st) == 0) {
        json_t *config = json_parse_file(path, e);
        failed = !config;
        if (config && !json_is_object(config))
            failed = err_set(e, EXIT_DATA, "%s: expected an object of generation settings", path);
        failed = failed || read_ids(&en->eos, config, path, "eos_token_id", e) || read_ids(&en->suppressed, config, path, "suppress_tokens", e);
        json_decref(config);
    }
    free(path);
    for (int i = 0; !failed && !en->eos.n && i < en->g.n_eos; i++)
        en->eos.id[i] = en->g.eos[i];
    if (!en->eos.n)
        en->eos.n = (size_t)en->g.n_eos;
    return failed;
}

static int open_weights(struct engine *en, const char *dir, const json_t *config, const char *where, struct err *e)
{
    struct ct_quant *quant = ct_quant_read(config, where, NULL, e);

    if (!quant && e->code)
        return -1;
    struct ckpt *c = ckpt_open(dir, NULL, e);
    int failed = !c || weights_load(&en->w, &en->g, c, quant, en->par, en->cuda ? cuda_memory(en->cuda, en->ple_on_gpu) : NULL, en->mapped, e);
    if (c)
        ckpt_close(c);
    ct_quant_free(quant);
    return failed ? -1 : 0;
}

/* The tokenizer takes as long as the weights: they load side by side. */
struct text { struct engine *en; const char *dir; int failed; struct err e; };

/* Absent is fine: prompt_ids need none. */
static int open_text(struct engine *en, const char *dir, struct err *e)
{
    struct err none = {0};

    en->tokenizer = tokenizer_open(dir, &none);
    if (!en->tokenizer && none.code != EXIT_NOINPUT) {
        *e = none;
        return -1;
    }
    if (!en->tokenizer)
        return 0;
    en->chat = chat_open(dir, &en->g, e);
    return en->chat ? 0 : -1;
}

static void *read_text(void *arg)
{
    struct text *t = arg;

    t->failed = open_text(t->en, t->dir, &t->e);
    return NULL;
}

static int open_text_and_weights(struct engine *en, const char *dir, const json_t *config, const char *where, struct err *e)
{
    struct text text = {.en = en, .dir = dir};
    pthread_t thread;
    const bool apart = par_threads(en->par) > 1 && pthread_create(&thread, NULL, read_text, &text) == 0;

    if (!apart)
        read_text(&text);
    const int failed = open_weights(en, dir, config, where, e);
    if (apart)
        pthread_join(thread, NULL);
    if (text.failed)
        *e = text.e;
    return failed || text.failed ? -1 : 0;
}

static const char *const maths[] = {[MATH_EXACT] = "exact", [MATH_FAST] = "fast", [MATH_JUDGE] = "judge"};

/* -1 = unknown. */
static int math_of(const struct engine_options *opt)
{
    for (int i = 0; opt->math && i < (int)(sizeof maths / sizeof *maths); i++)
        if (!strcmp(opt->math, maths[i]))
            return i;
    return opt->math ? -1 : MATH_FAST;
}

static int open_all(struct engine *en, const char *dir, const struct engine_options *opt, struct err *e)
{
    struct stat st;

    if (stat(dir, &st))
        return err_errno(e, EXIT_NOINPUT, "%s", dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, EXIT_NOINPUT, "%s: not a directory: give the directory that holds config.json and the weights", dir);
    char *where = xasprintf("%s/config.json", dir);
    json_t *config = json_parse_file(where, e);
    int failed = !config || gemma_config_read(&en->g, config, where, e) || read_generation_config(en, dir, e) ||
        open_text_and_weights(en, dir, config, where, e);
    json_decref(config);
    free(where);
    if (failed)
        return -1;
    en->max_context = opt->max_context > 0 && opt->max_context < en->g.max_positions ? opt->max_context : en->g.max_positions;
    if (en->cuda) {
        const struct cuda_options o = {.exact = math_of(opt) == MATH_EXACT, .max_context = en->max_context, .banned = en->suppressed.id, .n_banned = en->suppressed.n};
        return cuda_load(en->cuda, &en->g, &en->w, &o, e);
    }
    en->forward = forward_new(&en->g, &en->w, kernels_for(simd_level()), (enum engine_math)math_of(opt), en->par, (struct id_span){en->suppressed.id, en->suppressed.n});
    return 0;
}

/* auto takes a GPU that is there; asked for one, its absence is the error. */
static int open_device(struct engine *en, const struct engine_options *opt, struct err *e)
{
    const bool cuda = opt->device && !strcmp(opt->device, "cuda"), any = opt->device && !strcmp(opt->device, "auto");
    struct err none = {0};

    en->ple_on_gpu = opt->ple_on_gpu, en->mapped = opt->mapped;
    if (cuda || any)
        en->cuda = cuda_open(&none);
    if (en->cuda && opt->mapped)
        return err_set(e, EXIT_USAGE, "--mmap: it is there on the CPU only: use --device cpu");
    if (en->cuda && math_of(opt) == MATH_JUDGE)
        return err_set(e, EXIT_USAGE, "--math judge: it is there on the CPU only: use --device cpu");
    if (!en->cuda && (cuda || (any && none.code != EXIT_UNAVAILABLE))) {
        *e = none;
        return -1;
    }
    return 0;
}

static const char *pages_of(const struct weights *w) { return w->mapped ? "file" : w->huge_bytes >= w->bytes / 10 * 9 ? "huge" : "small"; }

struct engine *engine_open(const char *dir, const struct engine_options *opt, struct err *e)
{
    const double start = clock_seconds();

    if (math_of(opt) < 0) {
        (void)err_set(e, EXIT_BUG, "no arithmetic %s", opt->math);
        return NULL;
    }
    struct engine *en = xcalloc(1, sizeof *en);
    en->par = par_new(opt->threads);
    if (open_device(en, opt, e) || open_all(en, dir, opt, e)) {
        engine_close(en);
        return NULL;
    }
    en->facts = (struct engine_facts){
        .device = "cpu", .math = maths[math_of(opt)], .simd = simd_name(kernels_for(simd_level())->level), .size = gemma_size_name(&en->g), .threads = par_threads(en->par),
        .pages = pages_of(&en->w), .huge_bytes = en->w.huge_bytes, .weight_bytes = en->w.bytes, .token_bytes = en->w.token_bytes, .load_seconds = clock_seconds() - start,
    };
    if (en->cuda) {
        const struct cuda_facts *c = cuda_facts(en->cuda);
        en->facts.device = c->device, en->facts.gpu = c->name, en->facts.simd = NULL, en->facts.pages = "gpu", en->facts.huge_bytes = 0;
        en->facts.kv_room = c->kv_bytes, en->facts.kernels = c->kernels;
        if (!en->ple_on_gpu)
            en->facts.weight_bytes -= matrix_bytes(&en->w.ple_table);
    }
    return en;
}

void engine_close(struct engine *en)
{
    if (!en)
        return;
    forward_free(en->forward);
    cuda_close(en->cuda);
    weights_free(&en->w);
    tokenizer_free(en->tokenizer);
    chat_free(en->chat);
    par_free(en->par);
    free(en);
}

/* --- what it is ------------------------------------------------------------------------------------------------------ */

const struct engine_facts *engine_facts(const struct engine *en) { return &en->facts; }
const struct gemma *engine_model(const struct engine *en) { return &en->g; }
const struct tokenizer *engine_tokenizer(const struct engine *en) { return en->tokenizer; }
const struct chat *engine_chat(const struct engine *en) { return en->chat; }
long engine_max_context(const struct engine *en) { return en->max_context; }

const int *engine_eos(const struct engine *en, size_t *n)
{
    *n = en->eos.n;
    return en->eos.id;
}

const int *engine_suppressed(const struct engine *en, size_t *n)
{
    *n = en->suppressed.n;
    return en->suppressed.id;
}

/* --- sequences and steps --------------------------------------------------------------------------------------------- */

struct seq *seq_new(struct engine *en, long capacity)
{
    if (!en->cuda)
        return kv_new(&en->g, capacity);
    struct seq *s = xcalloc(1, sizeof *s);
    s->capacity = capacity;
    s->cuda = cuda_seq_new(en->cuda, capacity);
    return s;
}

void seq_free(struct seq *s)
{
    if (s)
        cuda_seq_free(s->cuda);
    kv_free(s);
}

long seq_position(const struct seq *s) { return s->position; }
long seq_capacity(const struct seq *s) { return s->capacity; }
uint64_t engine_kv_bytes(const struct engine *en, long n) { return en->cuda ? cuda_kv_bytes(en->cuda, n) : kv_bytes(&en->g, n); }
long engine_kv_tokens(const struct engine *en, long n)
{
    const double full = (double)engine_kv_bytes(en, en->max_context) / (double)en->max_context;

    return en->cuda ? (long)ceil((double)engine_kv_bytes(en, n) / full) : n;
}

bool engine_makes_top(const struct engine *en) { return en->cuda; }
uint64_t engine_kernels_run(const struct engine *en) { return en->cuda ? cuda_kernels_run(en->cuda) : 0; }

struct read_job { const uint8_t *from; atomic_uint_fast64_t sum; };

#define READ_PIECE ((size_t)1 << 16)

static void read_piece(void *arg, size_t i)
{
    struct read_job *r = arg;

    atomic_fetch_add(&r->sum, kernels_for(simd_level())->read(r->from + i * READ_PIECE, READ_PIECE));
}

uint64_t engine_read_weights(struct engine *en, struct err *e)
{
    if (en->cuda)
        return cuda_read_weights(en->cuda, e);
    const size_t all = (size_t)en->w.bytes, token = (size_t)en->w.token_bytes, pieces = (token < all ? token : all) / READ_PIECE;
    struct read_job r = {.from = weights_start(&en->w)};

    par_for(en->par, pieces, read_piece, &r);
    return pieces * READ_PIECE;
}

json_t *engine_profile(struct engine *en, struct engine_item *item, struct err *e)
{
    struct cuda_part part[CUDA_PARTS];
    size_t n = 0;
    json_t *list = json_array();

    if (en->cuda && cuda_profile(en->cuda, item, part, &n, e)) {
        json_decref(list);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:i, s:I, s:f}", "part", part[i].name, "kernels", part[i].kernels, "bytes", (json_int_t)part[i].bytes, "us", part[i].us));
    return list;
}

int engine_step(struct engine *en, struct engine_item *item, size_t n, struct err *e)
{
    return en->cuda ? cuda_step(en->cuda, item, n, e) : forward_run(en->forward, item, n, e);
}
