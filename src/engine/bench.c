#include "engine/bench.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"

enum { READ_EVERY = 4 };        /* tokens: what is compared is measured side by side */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* Bytes a second of one plain read of the weights; 0: it failed. */
static double read_speed(struct engine *en, struct err *e)
{
    const double start = clock_seconds();
    const uint64_t bytes = engine_read_weights(en, e);

    return (double)bytes / (clock_seconds() - start);
}

struct run { struct seq **seq; int *ids, *chosen; size_t batch; long prompt; uint64_t kernels; json_t *parts; };   /* kernels: run while decoding */

/* All prompts, one after another; seconds. */
static double prefill(struct engine *en, const struct run *r, struct err *e)
{
    const double start = clock_seconds();

    for (size_t s = 0; s < r->batch; s++)
        for (long at = 0; at < r->prompt; at += ENGINE_STEP_TOKENS) {
            const long n = r->prompt - at < ENGINE_STEP_TOKENS ? r->prompt - at : ENGINE_STEP_TOKENS;
            struct engine_item item = {.seq = r->seq[s], .ids = r->ids + at, .n = (size_t)n, .chosen = at + n == r->prompt ? r->chosen : NULL};
            if (engine_step(en, &item, 1, e))
                return -1;
        }
    return clock_seconds() - start;
}

/* Seconds of every token's step, and bytes a second of the plain reads between them, one for READ_EVERY tokens. */
static int decode(struct engine *en, struct run *r, double *seconds, double *read, long gen, struct err *e)
{
    struct engine_item *item = xcalloc(r->batch, sizeof *item), first = {.seq = r->seq[0], .ids = r->ids, .n = 1, .chosen = r->chosen};
    int failed;

    r->parts = engine_profile(en, &first, e);
    failed = !r->parts;
    for (long i = 0; i < gen && !failed; i++) {
        if (i % READ_EVERY == 0 && (read[i / READ_EVERY] = read_speed(en, e)) <= 0 && e->code) {
            failed = -1;
            break;
        }
        const double start = clock_seconds();
        for (size_t s = 0; s < r->batch; s++)
            item[s] = (struct engine_item){.seq = r->seq[s], .ids = r->ids + (size_t)i % (size_t)r->prompt, .n = 1, .chosen = r->chosen + s};
        const uint64_t kernels = engine_kernels_run(en);
        failed = engine_step(en, item, r->batch, e);
        seconds[i] = clock_seconds() - start;
        r->kernels += engine_kernels_run(en) - kernels;
    }
    free(item);
    return failed;
}

/* Bytes a second of the parts that read weights, and what share of a plain read that is. */
static void rate_parts(json_t *parts, double read)
{
    json_t *part;
    size_t i;

    json_array_foreach(parts, i, part) {
        const double bytes = json_number_value(json_object_get(part, "bytes")), us = json_number_value(json_object_get(part, "us"));
        if (bytes <= 0 || us <= 0)
            continue;
        json_object_set_new(part, "gb_per_s", json_real(bytes / us / 1e3));
        json_object_set_new(part, "share_of_read", json_real(bytes / us * 1e6 / read));
    }
}

static json_t *result(const struct engine *en, const struct run *r, long gen, double read, double prompt_seconds, double step)
{
    const struct engine_facts *f = engine_facts(en);
    const double weights = (double)f->token_bytes / step;
    json_t *o = json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "prompt_tokens", (int)r->prompt, "gen_tokens", (int)gen, "batch", (int)r->batch,
        "prefill_tokens_per_s", (double)r->batch * (double)r->prompt / prompt_seconds, "decode_tokens_per_s", (double)r->batch / step, "read_gb_per_s", read / 1e9,
        "weights_gb_per_s", weights / 1e9, "share_of_read", weights / read, "step_ms", step * 1e3, "load_seconds", f->load_seconds);
    json_object_set_new(o, "size", json_string(f->size));
    json_object_set_new(o, "device", json_string(f->device));
    json_object_set_new(o, "math", json_string(f->math));
    json_object_set_new(o, "simd", f->simd ? json_string(f->simd) : json_null());
    if (f->gpu) {
        json_object_set_new(o, "gpu", json_string(f->gpu));
        json_object_set_new(o, "kernels", json_integer(f->kernels));
        json_object_set_new(o, "kernels_run_per_step", json_real((double)r->kernels / (double)gen));
        rate_parts(r->parts, read);
        json_object_set(o, "parts", r->parts);
    }
    json_object_set_new(o, "threads", json_integer(f->threads));
    json_object_set_new(o, "pages", json_string(f->pages));
    json_object_set_new(o, "huge_page_bytes", json_integer((json_int_t)f->huge_bytes));
    json_object_set_new(o, "weight_bytes", json_integer((json_int_t)f->weight_bytes));
    json_object_set_new(o, "token_bytes", json_integer((json_int_t)f->token_bytes));
    return o;
}

json_t *bench_run(struct engine *en, long prompt, long gen, size_t batch, struct err *e)
{
    const size_t vocab = (size_t)engine_model(en)->vocab;

    if (prompt + gen > engine_max_context(en)) {
        (void)err_set(e, EXIT_DATA, "%ld tokens do not fit a context of %ld: use smaller --prompt and --gen", prompt + gen, engine_max_context(en));
        return NULL;
    }
    struct run r = {xcalloc(batch, sizeof *r.seq), xcalloc((size_t)prompt, sizeof *r.ids), xcalloc(batch, sizeof *r.chosen), batch, prompt, 0, NULL};
    const size_t reads = ((size_t)gen + READ_EVERY - 1) / READ_EVERY;
    double *seconds = xcalloc((size_t)gen, sizeof *seconds), *read = xcalloc(reads, sizeof *read);
    for (long i = 0; i < prompt; i++)
        r.ids[i] = (int)((size_t)(i * 7919 + 5) % vocab);
    for (size_t s = 0; s < batch; s++)
        r.seq[s] = seq_new(en, prompt + gen);
    const double prompt_seconds = prefill(en, &r, e);
    json_t *o = prompt_seconds < 0 || decode(en, &r, seconds, read, gen, e) ? NULL :
        result(en, &r, gen, median(read, reads), prompt_seconds, median(seconds, (size_t)gen));
    for (size_t s = 0; s < batch; s++)
        seq_free(r.seq[s]);
    json_decref(r.parts);
    free(r.seq);
    free(r.ids);
    free(r.chosen);
    free(seconds);
    free(read);
    return o;
}

static double real(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

void bench_say(const json_t *o)
{
    const char *simd = json_string_value(json_object_get(o, "simd"));

    fprintf(stderr, "decode %.1f tokens/s (batch %.0f), prefill %.1f; weights %.1f GB/s, %.0f %% of a plain read at %.1f GB/s; %s math, %s, %s pages\n",
        real(o, "decode_tokens_per_s"), real(o, "batch"), real(o, "prefill_tokens_per_s"), real(o, "weights_gb_per_s"), 100 * real(o, "share_of_read"),
        real(o, "read_gb_per_s"), json_string_value(json_object_get(o, "math")), simd ? simd : json_string_value(json_object_get(o, "gpu")),
        json_string_value(json_object_get(o, "pages")));
}
