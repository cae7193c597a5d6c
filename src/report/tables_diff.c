/* One figure of all rows; and two sets of results against each other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "report/parts.h"

enum figure { DECODE, PER_CALL, RATE, USD, TTFT, TPOT, PREFILL, RIGHT, KV, WEIGHTS, DISK, N_FIGURES };

/* As --metric names them; `up`: more is better; `by_level`: one for each level of concurrency. */
static const struct { const char *name, *title; bool up, by_level; } FIGURES[N_FIGURES] = {
    [DECODE] = {"decode", "decode tok/s", true, false}, [PER_CALL] = {"per-call", "s a call besides its tokens", false, false},
    [RATE] = {"rate", "tok/s at once", true, true}, [USD] = {"usd", "USD per million tokens", false, true},
    [TTFT] = {"ttft", "TTFT p50, ms", false, true}, [TPOT] = {"tpot", "TPOT p50, ms", false, true},
    [PREFILL] = {"prefill", "prefill tok/s", true, false}, [RIGHT] = {"right", "right answers", true, false}, [KV] = {"kv", "K/V tokens", true, false},
    [WEIGHTS] = {"weights", "GiB in the engine", false, false}, [DISK] = {"disk", "bytes on disk", false, false},
};

/* rate:4 is the rate with 4 at once; ttft:4 likewise. */
struct metric { enum figure figure; long long level; };

static int parse_metric(const char *text, struct metric *m, struct err *e)
{
    const size_t n = strcspn(text, ":");
    char *end = NULL;

    for (m->figure = 0; m->figure < N_FIGURES; m->figure++)
        if (strlen(FIGURES[m->figure].name) == n && !strncmp(FIGURES[m->figure].name, text, n))
            break;
    m->level = text[n] ? strtoll(text + n + 1, &end, 10) : 1;
    if (m->figure == N_FIGURES || (text[n] && (*end || m->level < 1)))
        return err_set(e, EXIT_USAGE, "--metric %s: expected decode, per-call, rate:N, usd:N, ttft:N, tpot:N, prefill, right, kv, weights or disk", text);
    return 0;
}

static double streamed_at(const struct result *r, long long concurrency, bool long_prompt, double (*figure)(const struct streamed *))
{
    for (size_t k = 0; k < r->n_streamed; k++)
        if (r->streamed[k].concurrency == concurrency && (r->streamed[k].asked > 0) == long_prompt)
            return figure(&r->streamed[k]);
    return NAN;
}

static double ttft(const struct streamed *s) { return sample_quantile(&s->ttft, 0.5); }
static double tpot(const struct streamed *s) { return sample_quantile(&s->tpot, 0.5); }
static double prefill(const struct streamed *s) { return sample_quantile(&s->prefill, 0.5); }
static double known(long long v) { return v < 0 ? NAN : (double)v; }

static double value_of(const struct result *r, const struct metric *m)
{
    switch (m->figure) {
    case DECODE: return r->decode;
    case PER_CALL: return r->per_call_s;
    case RATE: return result_rate_at(r, m->level);
    case USD: return usd_per_million(r, m->level);
    case TTFT: return streamed_at(r, m->level, false, ttft);
    case TPOT: return streamed_at(r, m->level, false, tpot);
    case PREFILL: return streamed_at(r, 1, true, prefill);
    case RIGHT: return known(r->right);
    case KV: return known(r->kv_tokens);
    case WEIGHTS: return r->weights_gib;
    case DISK: return known(r->disk);
    case N_FIGURES: break;
    }
    return NAN;
}

int tables_metric(struct doc *d, const struct view *v, const char *metric, struct err *e)
{
    struct metric m;
    char title[120];

    if (parse_metric(metric, &m, e))
        return -1;
    snprintf(title, sizeof title, "%s (%s)", FIGURES[m.figure].title, metric);
    struct table *t = doc_table(d, "metric", title);
    name_columns(t);
    table_column(t, "value", 0, "%s", FIGURES[m.figure].title);
    table_column(t, "ratio", 0, "to %s", v->baseline);
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i], *base = compare_base(v->rs, r, v->baseline);
        const double x = value_of(r, &m);
        name_cells(t, v->rs, r);
        cell_real(t, x, fabs(x) < 100 ? 3 : 1, 6);
        cell_real(t, base ? x / value_of(base, &m) : NAN, 2, 4);
    }
    for (size_t from = 0; from < v->rs->n; from = model_end(v->rs, from))
        d->models++;
    return 0;
}

/* In percent of what it was, which may be below 0 (per-call, of noise) or 0: then any change is an infinite one. */
static double change_percent(double before, double after)
{
    return after == before ? 0 : (after - before) / fabs(before) * 100;
}

/* Worse past the threshold; of a decode rate only when the samples bear it out. */
static const char *verdict(const struct result *a, const struct result *b, const struct metric *m, double before, double after, double threshold)
{
    const double change = change_percent(before, after), better = FIGURES[m->figure].up ? change : -change;

    if (!isfinite(after))
        return "gone";
    if (fabs(change) <= threshold)
        return "same";
    if (m->figure == DECODE) {
        const struct comparison c = compare_decode(b, a);
        if (c.kind != COMPARE_SINGLE && c.winner == 0)
            return "not apart";
    }
    return better > 0 ? "better" : "worse";
}

static void diff_row(struct table *t, const struct results *rs, const struct result *a, const struct result *b, const struct metric *m, const char *name,
                     double threshold, long *worse)
{
    const double before = value_of(a, m), after = b ? value_of(b, m) : NAN;

    if (!isfinite(before))
        return;
    const char *said = verdict(a, b, m, before, after, threshold);
    *worse += !strcmp(said, "worse") || !strcmp(said, "gone");
    name_cells(t, rs, a);
    cell_text(t, name);
    cell_real(t, before, fabs(before) < 100 ? 3 : 1, 6);
    cell_real(t, after, fabs(after) < 100 ? 3 : 1, 6);
    cell_real(t, change_percent(before, after), 1, 3);
    cell_text(t, said);
}

static void diff_result(struct table *t, const struct results *rs, const struct result *a, const struct result *b, const struct metric *only, double threshold,
                        long *worse)
{
    size_t n_levels;
    long long *level = levels_of(rs, &n_levels);

    for (enum figure k = 0; k < N_FIGURES; k++) {
        const bool by_level = FIGURES[k].by_level;
        for (size_t l = 0; l < (by_level ? n_levels : 1); l++) {
            const struct metric m = {k, by_level ? level[l] : 1};
            char name[60];
            if (only && (only->figure != k || (by_level && only->level != m.level)))
                continue;
            if (by_level)
                snprintf(name, sizeof name, "%s, %lld at once", FIGURES[k].title, m.level);
            else
                snprintf(name, sizeof name, "%s", FIGURES[k].title);
            diff_row(t, rs, a, b, &m, name, threshold, worse);
        }
    }
    free(level);
}

int tables_diff(struct doc *d, const struct results *a, const struct results *b, double threshold, const char *metric, long *worse, struct err *e)
{
    struct metric only;
    struct table *t = doc_table(d, "diff", "What changed");

    *worse = 0;
    if (metric && parse_metric(metric, &only, e))
        return -1;
    name_columns(t);
    table_column(t, "figure", COL_TEXT, "figure");
    table_column(t, "before", 0, "before");
    table_column(t, "after", 0, "after");
    table_column(t, "change_percent", 0, "change, %s", "%");
    table_column(t, "verdict", COL_TEXT, "is");
    for (size_t i = 0; i < a->n; i++) {
        const struct result *r = &a->item[i], *now = find_build(b, r, r->build);
        diff_result(t, a, r, now, metric ? &only : NULL, threshold, worse);
        if (now && strcmp(now->setting, r->setting))
            table_note(t, "%s %s was measured in different ways: before: %s; after: %s.", r->model, r->build, r->setting, now->setting);
    }
    for (size_t i = 0; i < b->n; i++)
        if (!find_build(a, &b->item[i], b->item[i].build))
            table_note(t, "%s %s on %s is new.", b->item[i].model, b->item[i].build, b->item[i].target);
    table_note(t, "Past the threshold of %g %%: %ld worse or gone. A decode rate counts as changed only when its interval or range says so.", threshold, *worse);
    d->models = 2;
    return 0;
}
