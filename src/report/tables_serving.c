/* What serving costs and how it feels: money, paths, bandwidth, latency, load; and how it was all measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "report/parts.h"
#include "report/roofline.h"

void make_cost(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "cost", "Cost (USD)");
    size_t n_levels;
    long long *level = levels_of(v->rs, &n_levels);
    char key[60];

    name_columns(t);
    table_column(t, "instance", COL_TEXT, "instance");
    table_column(t, "region", COL_TEXT, "region");
    table_column(t, "usd_per_hour", 0, "per hour");
    for (size_t k = 0; k < n_levels; k++) {
        snprintf(key, sizeof key, "usd_per_million_at_%lld", level[k]);
        table_column(t, key, 0, "per million tokens, %lld at once", level[k]);
    }
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i];
        if (!isfinite(r->usd_per_hour))
            continue;
        name_cells(t, v->rs, r);
        cell_text(t, result_fact(r, "machine", "instance"));
        cell_text(t, result_fact(r, "machine", "region"));
        cell_real(t, r->usd_per_hour, 4, 4);
        for (size_t k = 0; k < n_levels; k++)
            cell_real(t, usd_per_million(r, level[k]), 3, 5);
    }
    table_note(t, "Price per hour / (3600 x tok/s at that concurrency) x 1,000,000. An idle hour costs the same and makes no token.");
    free(level);
}

void make_paths(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "paths", "Paths: what a call costs besides its tokens");

    table_column(t, "model", COL_TEXT | COL_MODEL, "model");
    table_column(t, "build", COL_TEXT, "build");
    table_column(t, "target", COL_TEXT, "path");
    table_column(t, "per_call_s", 0, "s a call");
    table_column(t, "ping_median_ms", COL_OPTIONAL, "ping, median ms");
    table_column(t, "ping_p95_ms", COL_OPTIONAL, "ping, p95 ms");
    table_column(t, "decode_tok_s", 0, "decode tok/s");
    table_column(t, "weights_gib", 0, "GiB in the engine");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i];
        char value[40];
        snprintf(value, sizeof value, "%.6f", r->per_call_s);
        cell_text(t, r->model);
        cell_text(t, r->build);
        cell_text(t, r->target);
        if (r->per_call_published)
            cell_as(t, value, "%.3f (published, one value)", r->per_call_s);
        else
            cell_real(t, r->per_call_s, 3, 6);
        cell_real(t, sample_quantile(&r->ping_ms, 0.5), 2, 3);
        cell_real(t, sample_quantile(&r->ping_ms, 0.95), 2, 3);
        decode_cell(t, r);
        cell_real(t, r->weights_gib, 2, 3);
    }
    table_note(t, "s a call = median wall of the short replies - short tokens / decode: connection, queue and prompt, whatever the reply's length. Ping: the same client machine "
                  "asks for the server's health page, over one connection.");
}

/* The same build served in several places, or by several engines. */
void make_peers(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "peers", "One build, several servers");

    table_column(t, "model", COL_TEXT | COL_MODEL, "model");
    table_column(t, "build", COL_TEXT, "build");
    table_column(t, "target", COL_TEXT, "target");
    table_column(t, "engine", COL_TEXT, "engine");
    table_column(t, "decode_tok_s", 0, "decode tok/s");
    ratio_columns(t, "the first");
    table_column(t, "identical", 0, "answers as the first");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i], *first = NULL;
        size_t same = 0;
        for (size_t k = 0; k < v->rs->n; k++) {
            const struct result *o = &v->rs->item[k];
            if (strcmp(o->model, r->model) || strcmp(o->build, r->build))
                continue;
            same++;
            if (!first)
                first = o;
        }
        if (same < 2)
            continue;
        cell_text(t, r->model);
        cell_text(t, r->build);
        cell_text(t, r->target);
        engine_cell(t, r);
        cell_real(t, r->decode, 1, 3);
        ratio_cells(t, r, first);
        cell_of(t, compare_answers(first, r), r->n_answers);
    }
    table_note(t, "Across engines and machines on purpose; what differs besides stands in the rows' settings.");
}

/* Same device and engine: one fit. */
static bool one_fit(const struct result *a, const struct result *b)
{
    return roofline_row(a) && roofline_row(b) && a->device && b->device && a->engine && b->engine && !strcmp(a->device, b->device) &&
           !strcmp(a->engine, b->engine) && !strcmp(a->engine_version ? a->engine_version : "", b->engine_version ? b->engine_version : "");
}

/* The fit that r belongs to; false when there is none. */
static bool fit_of(const struct results *rs, const struct result *r, struct roofline *f)
{
    const struct result **row = xcalloc(rs->n, sizeof *row);
    size_t n = 0;

    for (size_t i = 0; i < rs->n; i++)
        if (one_fit(r, &rs->item[i]))
            row[n++] = &rs->item[i];
    const bool ok = n > 0 && roofline_fit(row, n, f);
    free(row);
    return ok;
}

void make_roofline(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "roofline", "Roofline: bytes a token, and how fast they came");

    name_columns(t);
    table_column(t, "gb_int4", 0, "int4 GB");
    table_column(t, "gb_8bit", COL_OPTIONAL, "8-bit GB");
    table_column(t, "gb_16bit", 0, "16-bit GB");
    table_column(t, "gb_per_token", 0, "GB a token");
    table_column(t, "decode_tok_s", 0, "decode tok/s");
    table_column(t, "ms_per_token", 0, "ms");
    table_column(t, "gb_per_s", 0, "GB/s");
    table_column(t, "peak_share", 0, "of peak, %s", "%");
    table_column(t, "ceiling_tok_s", 0, "ceiling tok/s");
    table_column(t, "fitted_ms", 0, "fitted ms");
    table_column(t, "fit_error_percent", 0, "fit, %s off", "%");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i];
        const double gb = result_read(r) / 1e9;
        struct roofline f;
        if (!isfinite(gb))
            continue;
        const bool fitted = roofline_row(r) && fit_of(v->rs, r, &f);
        const double ms = fitted ? roofline_ms(&f, r) : NAN;
        name_cells(t, v->rs, r);
        cell_real(t, r->read_int4 / 1e9, 3, 6);
        cell_real(t, r->read_8bit / 1e9, 3, 6);
        cell_real(t, (r->read_16bit + r->read_kv) / 1e9, 3, 6);
        cell_real(t, gb, 3, 6);
        cell_real(t, r->decode, 1, 3);
        cell_real(t, 1000 / r->decode, 2, 4);
        cell_real(t, gb * r->decode, 1, 3);
        cell_real(t, gb * r->decode / r->peak_gb_s * 100, 0, 2);
        cell_real(t, r->peak_gb_s / gb, 1, 2);
        cell_real(t, ms, 2, 4);
        cell_real(t, (ms * r->decode / 1000 - 1) * 100, 1, 3);
    }
    table_note(t, "Bytes that one token reads: linears with their scales, the active experts, the head, one row of each embedding, norms, and K/V at a mean context of 294 "
                  "positions (a prompt of 30, tokens 16 to 512). Peak = the memory's rate: a GPU's by its data sheet, a CPU's as the server read its weights plainly at its start. "
                  "Ceiling = peak / bytes a token.");
}

void make_fit(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "fit", "The fitted model of decoding");
    static const char *const keys[] = {"gb_s_int4", "gb_s_8bit", "gb_s_16bit", "us_per_layer", "us_per_moe_layer", "gb_s_all", "ms_per_token"};
    static const char *const titles[] = {"int4 GB/s", "8-bit GB/s", "16-bit GB/s", "us a layer", "us more with experts", "all bytes GB/s", "ms a token"};

    table_column(t, "device", COL_TEXT, "device");
    table_column(t, "engine", COL_TEXT, "engine");
    table_column(t, "rows", 0, "rows");
    for (int k = 0; k < ROOF_TERMS; k++)
        table_column(t, keys[k], COL_OPTIONAL, "%s", titles[k]);
    table_column(t, "rms_percent", 0, "rms error, %s", "%");
    table_column(t, "worst_percent", 0, "worst, %s", "%");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i];
        struct roofline f;
        bool first = roofline_row(r);
        for (size_t k = 0; k < i && first; k++)
            first = !one_fit(r, &v->rs->item[k]);
        if (!first || !fit_of(v->rs, r, &f))
            continue;
        cell_text(t, r->device);
        engine_cell(t, r);
        cell_count(t, (long long)f.rows);
        for (int k = 0; k < ROOF_TERMS; k++)
            cell_real(t, !f.has[k] ? NAN : k == ROOF_CALL ? f.b[k] : k == ROOF_LAYER || k == ROOF_MOE ? 1000 * f.b[k] : 1000 / f.b[k], k == ROOF_CALL ? 2 : 0, 3);
        cell_real(t, f.rms * 100, 1, 3);
        cell_real(t, f.worst * 100, 1, 3);
    }
    table_note(t, "ms a token = int4 bytes / BW + 8-bit bytes / BW + 16-bit bytes / BW + layers x c (+ layers with experts x c'), least squares on the relative error; "
                  "all bytes / BW + c, or / BW alone, where the rows are too few for that.");
}

static void how_cells(struct table *t, const struct streamed *s)
{
    cell_count(t, s->asked ? s->asked : s->prompt_tokens);
    cell_count(t, s->concurrency ? s->concurrency : -1);
}

void make_latency(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "latency", "Latency of streamed replies (ms)");

    name_columns(t);
    table_column(t, "prompt_tokens", 0, "prompt tokens");
    table_column(t, "concurrency", 0, "at once");
    table_column(t, "n", 0, "n");
    table_column(t, "failed", COL_OPTIONAL, "failed");
    table_column(t, "ttft_p50", 0, "TTFT p50");
    table_column(t, "ttft_p90", 0, "p90");
    table_column(t, "ttft_p99", 0, "p99");
    table_column(t, "tpot_p50", 0, "TPOT p50");
    table_column(t, "tpot_p99", 0, "p99");
    table_column(t, "itl_p50", 0, "ITL p50");
    table_column(t, "itl_p99", 0, "p99");
    table_column(t, "e2e_p50", 0, "E2E p50");
    table_column(t, "prefill_tok_s", 0, "prefill tok/s");
    for (size_t i = 0; i < v->rs->n; i++)
        for (size_t k = 0; k < v->rs->item[i].n_streamed; k++) {
            const struct streamed *s = &v->rs->item[i].streamed[k];
            if (s->rate > 0)
                continue;
            name_cells(t, v->rs, &v->rs->item[i]);
            how_cells(t, s);
            cell_count(t, (long long)s->ttft.n);
            cell_count(t, (long long)s->failed);
            cell_real(t, sample_quantile(&s->ttft, 0.5), 1, 3);
            cell_real(t, sample_quantile(&s->ttft, 0.9), 1, 3);
            cell_real(t, sample_quantile(&s->ttft, 0.99), 1, 3);
            cell_real(t, sample_quantile(&s->tpot, 0.5), 2, 3);
            cell_real(t, sample_quantile(&s->tpot, 0.99), 2, 3);
            cell_real(t, sample_quantile(&s->itl, 0.5), 2, 3);
            cell_real(t, sample_quantile(&s->itl, 0.99), 2, 3);
            cell_real(t, sample_quantile(&s->e2e, 0.5), 1, 3);
            cell_real(t, sample_quantile(&s->prefill, 0.5), 0, 2);
        }
    table_note(t, "TTFT = first chunk with text - sent. TPOT = (last chunk - first chunk) / (tokens - 1), one value a reply, tokens as the server counts them. ITL = gaps between "
                  "chunks of all replies together. E2E = answer complete - sent. Prefill = prompt tokens / TTFT, median. Quantiles interpolate between ranks; a p99 of n < 100 is nearly the "
                  "maximum. Every prompt is unique, a warm-up before each level is left out.");
}

/* Curves of the distribution, for the plot. */
void make_distribution(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "distribution", "Distribution of TTFT and ITL (ms)");
    static const int percent[] = {1, 5, 10, 25, 50, 75, 90, 95, 99};

    name_columns(t);
    table_column(t, "prompt_tokens", 0, "prompt tokens");
    table_column(t, "concurrency", 0, "at once");
    table_column(t, "percentile", 0, "percentile");
    table_column(t, "ttft_ms", 0, "TTFT");
    table_column(t, "itl_ms", 0, "ITL");
    for (size_t i = 0; i < v->rs->n; i++)
        for (size_t k = 0; k < v->rs->item[i].n_streamed; k++) {
            const struct streamed *s = &v->rs->item[i].streamed[k];
            for (size_t p = 0; p < sizeof percent / sizeof *percent && s->concurrency && !s->asked; p++) {
                name_cells(t, v->rs, &v->rs->item[i]);
                how_cells(t, s);
                cell_count(t, percent[p]);
                cell_real(t, sample_quantile(&s->ttft, percent[p] / 100.0), 2, 3);
                cell_real(t, sample_quantile(&s->itl, percent[p] / 100.0), 2, 3);
            }
        }
}

static const char *setting_or(const struct result *r, const char *key, const char *absent)
{
    const char *s = json_string_value(json_object_get(json_object_get(r->root, "settings"), key));
    return s ? s : absent;
}

static void limits_note(struct table *t, const struct result *r)
{
    char text[160] = "";
    const double limit[] = {r->limit_ttft, r->limit_tpot, r->limit_e2e};
    static const char *const names[] = {"TTFT", "TPOT", "E2E"};

    for (int k = 0; k < 3; k++)
        if (isfinite(limit[k]))
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s <= %g ms", text[0] ? ", " : "", names[k], limit[k]);
    table_note(t, "Good: %s.", text[0] ? text : "every reply that succeeded (no limits were set)");
}

void make_load(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "load", "Load: requests at a rate, whatever is still running");
    const struct result *any = NULL;

    name_columns(t);
    table_column(t, "rate", 0, "requests/s asked");
    table_column(t, "sent", 0, "sent");
    table_column(t, "failed", 0, "failed");
    table_column(t, "request_rate", 0, "requests/s done");
    table_column(t, "tok_s", 0, "tok/s");
    table_column(t, "ttft_p50", 0, "TTFT p50, ms");
    table_column(t, "ttft_p99", 0, "p99");
    table_column(t, "tpot_p50", 0, "TPOT p50, ms");
    table_column(t, "e2e_p50", 0, "E2E p50, ms");
    table_column(t, "goodput", 0, "good requests/s");
    table_column(t, "good_share", 0, "good, %s", "%");
    table_column(t, "lag_p99", 0, "client lag p99, ms");
    for (size_t i = 0; i < v->rs->n; i++)
        for (size_t k = 0; k < v->rs->item[i].n_streamed; k++) {
            const struct streamed *s = &v->rs->item[i].streamed[k];
            if (s->rate <= 0)
                continue;
            any = any ? any : &v->rs->item[i];
            name_cells(t, v->rs, &v->rs->item[i]);
            cell_real(t, s->rate, 2, 4);
            cell_count(t, (long long)s->sent);
            cell_count(t, (long long)s->failed);
            cell_real(t, (double)(s->sent - s->failed) / s->window_s, 2, 4);
            cell_real(t, (double)s->tokens / s->window_s, 1, 3);
            cell_real(t, sample_quantile(&s->ttft, 0.5), 1, 3);
            cell_real(t, sample_quantile(&s->ttft, 0.99), 1, 3);
            cell_real(t, sample_quantile(&s->tpot, 0.5), 2, 3);
            cell_real(t, sample_quantile(&s->e2e, 0.5), 1, 3);
            cell_real(t, (double)s->good / s->window_s, 2, 4);
            cell_real(t, s->sent ? 100 * (double)s->good / (double)s->sent : NAN, 0, 2);
            cell_real(t, sample_quantile(&s->lag, 0.99), 1, 3);
        }
    table_note(t, "Open loop, %s gaps: a request leaves when it is due, whatever is still running. Times count from when a request was due, so that a client that falls behind cannot hide waiting. "
                  "Done, tok/s and good = per second from the first due to the last complete.",
               any && !strcmp(setting_or(any, "arrivals", "constant"), "poisson") ? "Poisson" : "constant");
    if (any)
        limits_note(t, any);
}

static double endpoint_s(const struct result *r, const char *key)
{
    const json_t *v = json_object_get(json_object_get(r->root, "endpoint"), key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

void make_startup(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "startup", "From create to InService");

    name_columns(t);
    table_column(t, "load_s", 0, "loading, s");
    table_column(t, "creating_to_weights_min", 0, "to weights, min");
    table_column(t, "creating_to_in_service_min", 0, "to InService, min");
    table_column(t, "healthy_to_in_service_h", COL_OPTIONAL, "healthy and waiting, h");
    table_column(t, "creating_to_deleted_min", 0, "to deleted, min");
    table_column(t, "usd", 0, "USD in all");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i];
        const double all = endpoint_s(r, "creating_to_deleted_s");
        if (!json_is_object(json_object_get(r->root, "endpoint")))
            continue;
        name_cells(t, v->rs, r);
        cell_real(t, r->load_s, 1, 3);
        cell_real(t, endpoint_s(r, "creating_to_weights_s") / 60, 1, 3);
        cell_real(t, endpoint_s(r, "creating_to_in_service_s") / 60, 1, 3);
        cell_real(t, endpoint_s(r, "healthy_to_in_service_s") / 3600, 2, 4);
        cell_real(t, all / 60, 1, 3);
        cell_real(t, all / 3600 * r->usd_per_hour, 2, 4);
    }
}

/* The parent of the first stage: the source's header; of the build: its manifest. */
static const char *source_hash(const struct result *r)
{
    const json_t *stages = json_object_get(json_object_get(r->root, "weights"), "provenance");
    return json_string_value(json_object_get(json_array_get(stages, 0), "parent"));
}

static void hash_cell(struct table *t, const char *hash)
{
    if (hash)
        cell_as(t, hash, "%.12s", hash);
    else
        cell_none(t);
}

void make_run(struct doc *d, const struct view *v)
{
    static const char *const machine[][2] = {{"driver", "driver"}, {"instance", "instance"}, {"region", "region"}};
    struct table *t = doc_table(d, "run", "What was run");

    name_columns(t);
    table_column(t, "started", COL_TEXT, "measured");
    table_column(t, "engine", COL_TEXT, "engine");
    table_column(t, "device", COL_TEXT, "on");
    for (size_t k = 0; k < 3; k++)
        table_column(t, machine[k][0], COL_TEXT | COL_OPTIONAL, "%s", machine[k][1]);
    table_column(t, "tool", COL_TEXT, "q4sweep");
    table_column(t, "commit", COL_TEXT, "commit");
    table_column(t, "source", COL_TEXT, "source header");
    table_column(t, "manifest", COL_TEXT, "build manifest");
    table_column(t, "origin", COL_TEXT | COL_OPTIONAL, "origin");
    table_column(t, "command", COL_TEXT | COL_OPTIONAL, "to reproduce");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i];
        name_cells(t, v->rs, r);
        cell_text(t, result_fact(r, "time", "started"));
        engine_cell(t, r);
        cell_text(t, r->device);
        for (size_t k = 0; k < 3; k++)
            cell_text(t, result_fact(r, "machine", machine[k][0]));
        cell_text(t, result_fact(r, "tool", "version"));
        cell_text(t, result_fact(r, "tool", "commit"));
        hash_cell(t, source_hash(r));
        hash_cell(t, result_fact(r, "weights", "manifest_sha256"));
        cell_text(t, result_fact(r, "tool", "origin"));
        cell_text(t, result_fact(r, "tool", "command"));
    }
}

void make_method(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "method", "Method");
    const json_t *prompt = json_object_get(json_object_get(v->rs->item[0].root, "settings"), "prompt");

    table_note(t, "One reply at a time: short and long replies in turns, end tokens ignored, temperature 0; decode = (long - short) / (median wall of the long - median wall of the short), so "
                  "that what a call costs besides its tokens falls out.");
    table_note(t, "At once: N replies sent together; tokens / wall, rounded to 0.1, median over the batches.");
    table_note(t, "Questions: one user message each, scored by a regular expression; identity is equality of the whole answer, white space at both ends aside.");
    table_note(t, "The reply's tokens are counted by the server. The client's clock is monotonic, read once for each arriving chunk.");
    if (json_is_string(prompt) && strcmp(json_string_value(prompt), "-"))
        table_note(t, "The timed prompt: %s", json_string_value(prompt));
}

/* What the data themselves say against taking them at their word. */
void make_caveats(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "caveats", "Caveats");
    double widest = 0;
    size_t few = 0, published = 0, unanswered = 0, failed = 0;
    const struct result *noisy = NULL;

    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i];
        const double spread = (r->decode_range.high - r->decode_range.low) / r->decode;
        few += r->long_ms.n < STATS_INTERVAL_MIN;
        published += r->decode_published;
        if (isfinite(spread) && spread > widest) {
            widest = spread;
            noisy = r;
        }
        for (size_t k = 0; k < r->n_answers; k++)
            if (!r->answer[k].sha256[0]) {
                unanswered++;
                break;
            }
        for (size_t k = 0; k < r->n_streamed; k++)
            failed += r->streamed[k].failed;
    }
    if (few)
        table_note(t, "%zu of %zu rows have fewer than %d repeats: their ratios carry a range, not an interval.", few, v->rs->n, STATS_INTERVAL_MIN);
    if (noisy)
        table_note(t, "The widest spread is that of %s %s: its long replies one by one give %.1f to %.1f tok/s, %.0f %% of the median rate.", noisy->model, noisy->build,
                   noisy->decode_range.low, noisy->decode_range.high, widest * 100);
    if (published)
        table_note(t, "%zu rows are single published values, without the samples behind them.", published);
    if (unanswered)
        table_note(t, "%zu rows lack answers: their identity with others is not known.", unanswered);
    if (failed)
        table_note(t, "%zu requests failed; they are counted in the tables and left out of the times.", failed);
    for (size_t from = 0; from < v->rs->n; from = model_end(v->rs, from)) {
        const size_t to = model_end(v->rs, from);
        bool other = false;
        for (size_t i = from; i < to; i++)
            other |= strcmp(v->rs->item[i].setting, v->rs->item[from].setting) != 0;
        if (other)
            table_note(t, "The rows of %s were not all measured alike; those that differ are not compared.", v->rs->item[from].model);
    }
    for (size_t i = 0; i < v->rs->n; i++) {
        const json_t *skipped = json_object_get(v->rs->item[i].root, "skipped"), *s;
        size_t k;
        json_array_foreach(skipped, k, s)
            if (json_is_string(s))
                table_note(t, "%s %s: not measured: %s.", v->rs->item[i].model, v->rs->item[i].build, json_string_value(s));
    }
}
