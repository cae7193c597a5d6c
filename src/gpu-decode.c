/* gpu-decode: prompts in, completions out, one JSON line each.
 *
 * Every line is a request (engine/request.h).  Up to --batch of them run together; the answers come in input order and do not depend on
 * what ran beside them.  --logits and --trace keep what the model computed on the way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/io.h"
#include "base/json.h"
#include "base/opt.h"
#include "engine/bench.h"
#include "engine/generate.h"
#include "engine/info.h"
#include "engine/record.h"

#define MAX_BATCH 64

static struct {
    const char *model, *device, *math, *simd, *logits, *trace;
    const char *gpu, *ple;
    bool info, json, bench, mapped;
    long threads, max_context, batch, prompt, gen;
} opt = {.device = "auto", .math = "fast", .ple = "host", .batch = 1, .prompt = 128, .gen = 64};

static const struct opt options[] = {
    {"model", 'm', OPT_STR, &opt.model, "DIR", "directory of the checkpoint or build", 0, 0},
    {"device", 0, OPT_CHOICE, &opt.device, "auto|cpu|cuda", "where to run; auto says on stderr what it took", 0, 0},
    {"math", 0, OPT_CHOICE, &opt.math, "exact|fast|judge", "exact: float32 activations, every weight as it is stored; fast: activations in 16 bits for int4 and int8 "
        "weights; judge: fast's products in float32, to measure it by", 0, 0},
    {"simd", 0, OPT_CHOICE, &opt.simd, "scalar|avx2|avx512", "never above this level; the results are the same", 0, 0},
    {"ple", 0, OPT_CHOICE, &opt.ple, "host|gpu", "where the per-layer-embedding table stays when a GPU runs: on the host (one row a token goes up) or on it", 0, 0},
    {"threads", 'j', OPT_INT, &opt.threads, "N", "threads (0: as many as CPUs)", 0, 1024},
    {"batch", 0, OPT_INT, &opt.batch, "N", "lines that run together; with more than 1 a line waits for those after it to be read", 1, MAX_BATCH},
    {"max-context", 0, OPT_INT, &opt.max_context, "N", "tokens of prompt and completion (0: what the model was made for)", 0, 1 << 24},
    {"mmap", 0, OPT_FLAG, &opt.mapped, NULL, "leave the weights in the files, mapped, where memory is short: slower, the same results; on the CPU", 0, 0},
    {"logits", 0, OPT_STR, &opt.logits, "FILE", "write logits.ID [prompt tokens, vocab] and decode.ID [completion tokens, vocab]", 0, 0},
    {"trace", 0, OPT_STR, &opt.trace, "FILE", "write hidden.ID.LAYER [prompt tokens, hidden]; layer 0 is the embedding", 0, 0},
    {"info", 0, OPT_FLAG, &opt.info, NULL, "print parameters and bytes by class, bytes read for a token and K/V instead; --model - reads a plan or stream", 0, 0},
    {"bench", 0, OPT_FLAG, &opt.bench, NULL, "measure instead: prefill, decode, and a plain read of the same weights; JSON on stdout, one line on stderr", 0, 0},
    {"prompt", 0, OPT_INT, &opt.prompt, "N", "--bench: tokens of each prompt", 1, 1 << 20},
    {"gen", 0, OPT_INT, &opt.gen, "N", "--bench: tokens of each reply", 1, 1 << 20},
    {"json", 0, OPT_FLAG, &opt.json, NULL, "--info as one JSON object", 0, 0},
    {"gpu", 0, OPT_STR, &opt.gpu, "NAME", "--info with the most tokens a second that this GPU's memory allows", 0, 0},
    {NULL, 0, OPT_FLAG, NULL, NULL, NULL, 0, 0}
};

static const struct opt_spec spec = {
    .usage = "--model DIR [options] < prompts.jsonl > completions.jsonl\n--model DIR|FILE|- --info [--json] [--gpu NAME]\n--model DIR --bench [--prompt N] [--gen N] [--batch B]",
    .about = "Run a Gemma on prompt lines: {\"id\", \"messages\" | \"prompt\" | \"prompt_ids\", \"max_tokens\", \"temperature\", \"seed\", …}.",
    .opts = options,
    .examples = "echo '{\"id\": 1, \"prompt\": \"The capital of France is\", \"max_tokens\": 16}' | gpu-decode --model gemma-3-270m\n"
                "gpu-decode --model build --logits l.safetensors < prompts.jsonl > out.jsonl",
    .exits = "65 a line was no good (its answer has \"error\"); 69 the device is not there",
};

/* One line on its way to its answer. */
struct line {
    json_t *id;
    struct gen *gen;                /* NULL once it has ended */
    json_t *answer;                 /* set once it has ended */
    struct engine_watch watch;
    size_t logits, decode, hidden;  /* numbers of its tensors; hidden: of layer 0, the others follow */
    long prompt;                    /* tokens */
};

struct job {
    struct engine *engine;
    struct jsonl *in;
    FILE *out;
    struct record *logits, *trace;  /* NULL = not wanted */
    struct line *line[MAX_BATCH]; size_t n;     /* in input order */
    bool at_end;
    long lines, failed;
    struct err first;               /* of the failed ones */
};

/* --- what the model computed on the way ------------------------------------------------------------------------------ */

static struct job job;

static int keep_logits(void *arg, long position, const float *row, struct err *e)
{
    const struct line *l = arg;

    if (position < l->prompt && record_row(job.logits, l->logits, row, e))
        return -1;
    return position >= l->prompt - 1 ? record_row(job.logits, l->decode, row, e) : 0;
}

static int keep_hidden(void *arg, long position, int layer, const float *row, struct err *e)
{
    const struct line *l = arg;

    return position < l->prompt ? record_row(job.trace, l->hidden + (size_t)layer, row, e) : 0;
}

/* The id as it stands in a tensor's name. */
static char *id_text(const json_t *id)
{
    return json_is_string(id) ? xstrdup(json_string_value(id)) : xasprintf("%lld", (long long)json_integer_value(id));
}

static int name_tensors(struct line *l, const struct request *r, const char *id, struct err *e)
{
    const struct gemma *g = engine_model(job.engine);
    char *logits = xasprintf("logits.%s", id), *decode = xasprintf("decode.%s", id);
    int failed = 0;

    /* Two lines share all of these names or none: what fails, fails at the first. */
    if (job.logits)
        failed = record_tensor(job.logits, logits, r->n_ids, (size_t)g->vocab, &l->logits, e) ||
            record_tensor(job.logits, decode, (size_t)r->max_tokens, (size_t)g->vocab, &l->decode, e);
    for (int i = 0; job.trace && !failed && i <= g->layers; i++) {
        char *name = xasprintf("hidden.%s.%d", id, i);
        size_t tensor;
        failed = record_tensor(job.trace, name, r->n_ids, (size_t)g->hidden, &tensor, e);
        if (i == 0)
            l->hidden = tensor;
        free(name);
    }
    free(logits);
    free(decode);
    return failed;
}

static int watch(struct line *l, const struct request *r, struct err *e)
{
    if (!job.logits && !job.trace)
        return 0;
    if (json_is_null(l->id))
        return err_set(e, EXIT_DATA, "id: --logits and --trace name their tensors by it, and this line has none");
    char *id = id_text(l->id);
    const int failed = name_tensors(l, r, id, e);
    free(id);
    if (failed)
        return -1;
    l->prompt = (long)r->n_ids;
    l->watch = (struct engine_watch){l, job.logits ? keep_logits : NULL, job.trace ? keep_hidden : NULL};
    gen_watch(l->gen, &l->watch);
    return 0;
}

/* A line that failed leaves no tensors. */
static void drop_tensors(const struct line *l)
{
    if (l->watch.logits) {
        record_drop(job.logits, l->logits);
        record_drop(job.logits, l->decode);
    }
    for (int i = 0; l->watch.hidden && i <= engine_model(job.engine)->layers; i++)
        record_drop(job.trace, l->hidden + (size_t)i);
}

/* --- a line's life --------------------------------------------------------------------------------------------------- */

static void fail_line(struct line *l, const struct err *e)
{
    l->answer = json_pack("{s:O, s:o}", "id", l->id, "error", json_message(e->msg));
    drop_tensors(l);
    gen_free(l->gen);
    l->gen = NULL;
    if (job.failed++ == 0)
        job.first = *e;
}

static int begin(struct line *l, const json_t *request, struct err *e)
{
    const json_t *id = json_object_get(request, "id"), *n = json_object_get(request, "n");
    struct request r;

    if (id && !json_is_null(id) && !json_is_string(id) && !json_is_integer(id))
        return err_set(e, EXIT_DATA, "id: neither a string nor an integer");
    if (id)                     /* in place of the null singleton, which is not counted */
        l->id = json_incref((json_t *)id);
    if (n && !json_is_null(n) && json_number_value(n) != 1)
        return err_set(e, EXIT_DATA, "n: only 1 is supported: give each completion its own line and seed");
    if (request_parse(&r, job.engine, request, e))
        return -1;
    l->gen = gen_new(job.engine, &r);
    const int failed = watch(l, &r, e);
    request_free(&r);
    return failed;
}

/* Reads one line into the queue; false at the end. */
static bool read_line(void)
{
    struct err e = {0};
    json_t *request = NULL;
    long number = 0;
    const int got = jsonl_next(job.in, &request, &number, &e);

    if (got == 0)
        return false;
    if (got == -2)
        die(&e);
    struct line *l = xcalloc(1, sizeof *l);
    l->id = got < 0 ? jsonl_refused_id(job.in) : NULL;
    l->id = l->id ? l->id : json_null();
    job.line[job.n++] = l;
    job.lines++;
    if (got < 0) {
        fail_line(l, &e);
    } else if (begin(l, request, &e)) {
        struct err full = {0};
        (void)err_set(&full, e.code, "line %ld: %s", number, e.msg);
        fail_line(l, &full);
    }
    json_decref(request);
    return true;
}

/* Answers leave from the front, so that they keep the order of the input. */
static void write_answers(void)
{
    size_t n = 0;

    for (; n < job.n && job.line[n]->answer; n++) {
        struct line *l = job.line[n];
        if (json_line(job.out, l->answer) || fflush(job.out))
            die_stdout();
        json_decref(l->answer);
        json_decref(l->id);
        free(l);
    }
    job.n -= n;
    memmove(job.line, job.line + n, job.n * sizeof *job.line);
}

static void take(struct line *l)
{
    struct err e = {0};

    if (gen_take(l->gen, &e)) {
        fail_line(l, &e);
    } else if (gen_done(l->gen)) {
        l->answer = gen_result(l->gen, l->id);
        gen_free(l->gen);
        l->gen = NULL;
    }
}

static void step(void)
{
    struct engine_item item[MAX_BATCH];
    struct line *of[MAX_BATCH];
    struct err e = {0};
    size_t n = 0, budget = ENGINE_STEP_TOKENS;

    for (size_t i = 0; i < job.n; i++) {
        struct line *l = job.line[i];
        size_t others = 0;          /* each of which wants one token at least */
        for (size_t j = i + 1; j < job.n; j++)
            others += job.line[j]->gen != NULL;
        if (l->gen && gen_next(l->gen, budget - others, &item[n])) {
            budget -= item[n].n;
            of[n++] = l;
        }
    }
    if (n && engine_step(job.engine, item, n, &e))
        die(&e);
    for (size_t i = 0; i < n; i++)
        take(of[i]);
}

static void run(void)
{
    while (!job.at_end || job.n) {
        while (!job.at_end && job.n < (size_t)opt.batch)
            job.at_end = !read_line();
        step();
        write_answers();
    }
}

/* --- the whole ------------------------------------------------------------------------------------------------------- */

static void open_engine(void)
{
    struct err e = {0};

    simd_option(opt.simd);
    const struct engine_options o = {.device = opt.device, .math = opt.math, .threads = (int)opt.threads, .max_context = opt.max_context, .mapped = opt.mapped, .ple_on_gpu = !strcmp(opt.ple, "gpu")};
    job.engine = engine_open(opt.model, &o, &e);
    if (!job.engine)
        die(&e);
    const struct engine_facts *f = engine_facts(job.engine);
    if (strcmp(opt.device, "auto") || prog_verbosity < 0)        /* never silently another device than hoped for */
        return;
    if (f->gpu)
        fprintf(stderr, "%s: running on %s (%s), %d kernels a token, %s math\n", prog_name, f->gpu, f->device, f->kernels, f->math);
    else
        fprintf(stderr, "%s: running on the CPU: %s, %d thread%s, %s math\n", prog_name, f->simd, f->threads, f->threads == 1 ? "" : "s", f->math);
}

static void open_files(void)
{
    struct err e = {0};

    if ((opt.logits && output_probe(opt.logits, &e)) || (opt.trace && output_probe(opt.trace, &e)))
        die(&e);
    job.out = stdout;
    job.in = jsonl_open("-", &e);
    if (job.in && opt.logits)
        job.logits = record_new(&e);
    if (job.in && opt.trace && !e.code)
        job.trace = record_new(&e);
    if (e.code)
        die(&e);
}

static void write_files(void)
{
    struct err e = {0};

    if ((job.logits && record_write(job.logits, opt.logits, &e)) || (job.trace && record_write(job.trace, opt.trace, &e)) || finish_stdout(&e))
        die(&e);
}

static int info(void)
{
    struct err e = {0};
    const struct gpu *gpu = opt.gpu ? gpu_find(opt.gpu) : NULL;

    if (opt.gpu && !gpu)
        opt_usage("--gpu %s: known are %s", opt.gpu, gpu_names());
    json_t *o = info_read(opt.model, gpu, &e);
    if (!o)
        die(&e);
    if (!opt.json)
        info_print(stdout, o);
    else if (json_line(stdout, o))
        die_stdout();
    json_decref(o);
    if (finish_stdout(&e))
        die(&e);
    return 0;
}

static int bench(void)
{
    struct err e = {0};

    open_engine();
    json_t *o = bench_run(job.engine, opt.prompt, opt.gen, (size_t)opt.batch, &e);
    if (!o || json_line(stdout, o) || finish_stdout(&e))
        die(&e);
    bench_say(o);
    json_decref(o);
    engine_close(job.engine);
    return 0;
}

static void check_options(void)
{
    if (!opt.model)
        opt_usage("--model is missing: give the directory of a checkpoint or build");
    if (opt.info && opt.bench)
        opt_usage("--info and --bench exclude each other");
    if ((opt.info || opt.bench) && (opt.logits || opt.trace))
        opt_usage("--logits and --trace are of prompts: there are none with --%s", opt.info ? "info" : "bench");
    if (!opt.info && (opt.gpu || (opt.json && !opt.bench)))          /* --bench prints JSON anyway */
        opt_usage("--json and --gpu belong to --info");
    if ((opt.logits && output_same(opt.logits, "-")) || (opt.trace && output_same(opt.trace, "-")))
        opt_usage("--logits and --trace want a file: stdout carries the completions");
    if (opt.logits && opt.trace && output_same(opt.logits, opt.trace))
        opt_usage("--trace %s: the logits go there already: name another file", opt.trace);
}

int main(int argc, char **argv)
{
    prog_init(argv[0]);
    opt_parse(&spec, argc, argv);
    check_options();
    if (opt.info)
        return info();
    if (opt.bench)
        return bench();
    open_engine();
    open_files();
    run();
    write_files();
    jsonl_close(job.in);
    record_free(job.logits);
    record_free(job.trace);
    engine_close(job.engine);
    if (job.failed)
        die_msg(EXIT_DATA, "%ld of %ld lines failed; the first: %s", job.failed, job.lines, job.first.msg);
    return 0;
}
