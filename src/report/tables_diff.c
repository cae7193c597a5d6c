/* One figure of all rows; and two sets of results against each other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "report/parts.h"

/* Figures that --metric names; `up`: more is better. */
static const struct { const char *name, *title; bool up; } METRICS[] = {
    {"decode", "decode tok/s", true}, {"per-call", "s a call besides its tokens", false}, {"rate", "tok/s at once", true},
    {"usd", "USD per million tokens", false}, {"ttft", "TTFT p50, ms", false}, {"tpot", "TPOT p50, ms", false}, {"prefill", "prefill tok/s", true},
    {"right", "right answers", true}, {"kv", "K/V tokens", true}, {"weights", "GiB in the engine", false}, {"disk", "bytes on disk", false},
};
enum { N_METRICS = sizeof METRICS / sizeof *METRICS };

/* rate:4 is the rate with 4 at once; ttft:4 likewise. */
struct metric { size_t which; long long level; };

static int parse_metric(const char *text, struct metric *m, struct err *e)
{
    const size_t n = strcspn(text, ":");
    char *end = NULL;

    for (m->which = 0; m->which < N_METRICS; m->which++)
        if (strlen(METRICS[m->which].name) == n && !strncmp(METRICS[m->which].name, text, n))
            break;
    m->level = text[n] ? strtoll(text + n + 1, &end, 10) : 1;
    if (m->which == N_METRICS || (text[n] && (*end || m->level < 1)))
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
    switch (m->which) {
    case 0: return r->decode;
    case 1: return r->per_call_s;
    case 2: return result_rate_at(r, m->level);
    case 3: return usd_per_million(r, m->level);
    case 4: return streamed_at(r, m->level, false, ttft);
    case 5: return streamed_at(r, m->level, false, tpot);
    case 6: return streamed_at(r, 1, true, prefill);
    case 7: return known(r->right);
    case 8: return known(r->kv_tokens);
    case 9: return r->weights_gib;
    default: return known(r->disk);
    }
}

int tables_metric(struct doc *d, const struct view *v, const char *metric, struct err *e)
{
    struct metric m;
    char title[120];

    if (parse_metric(metric, &m, e))
        return -1;
    snprintf(title, sizeof title, "%s (%s)", METRICS[m.which].title, metric);
    struct table *t = doc_table(d, "metric", title);
    name_columns(t);
    table_column(t, "value", 0, "%s", METRICS[m.which].title);
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

/* Worse past the threshold; of a decode rate only when the samples bear it out. */
static const char *verdict(const struct result *a, const struct result *b, const struct metric *m, double before, double after, double threshold)
{
    const double change = (after / before - 1) * 100, better = METRICS[m->which].up ? change : -change;

    if (!isfinite(after))
        return "gone";
    if (fabs(change) <= threshold || !isfinite(change))
        return "same";
    if (m->which == 0) {
        const struct comparison c = compare_decode(b, a);
        if (c.kind != COMPARE_SINGLE && c.winner == 0)
            return "not apart";
    }
    return better > 0 ? "better" : "worse";
}

static const struct result *same_row(const struct results *rs, const struct result *r)
{
    const struct result *o = find_build(rs, r, r->build);
    return o;
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
    cell_real(t, (after / before - 1) * 100, 1, 3);
    cell_text(t, said);
}

static void diff_result(struct table *t, const struct results *rs, const struct result *a, const struct result *b, const struct metric *only, double threshold,
                        long *worse)
{
    size_t n_levels;
    long long *level = levels_of(rs, &n_levels);

    for (size_t k = 0; k < N_METRICS; k++) {
        const bool by_level = k >= 2 && k <= 5;
        for (size_t l = 0; l < (by_level ? n_levels : 1); l++) {
            const struct metric m = {k, by_level ? level[l] : 1};
            char name[60];
            if (only && (only->which != m.which || (by_level && only->level != m.level)))
                continue;
            if (by_level)
                snprintf(name, sizeof name, "%s, %lld at once", METRICS[k].title, m.level);
            else
                snprintf(name, sizeof name, "%s", METRICS[k].title);
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
        const struct result *r = &a->item[i], *now = same_row(b, r);
        diff_result(t, a, r, now, metric ? &only : NULL, threshold, worse);
        if (now && strcmp(now->setting, r->setting))
            table_note(t, "%s %s was measured in different ways: before: %s; after: %s.", r->model, r->build, r->setting, now->setting);
    }
    for (size_t i = 0; i < b->n; i++)
        if (!same_row(a, &b->item[i]))
            table_note(t, "%s %s on %s is new.", b->item[i].model, b->item[i].build, b->item[i].target);
    table_note(t, "Past the threshold of %g %%: %ld worse or gone. A decode rate counts as changed only when its interval or range says so.", threshold, *worse);
    d->models = 2;
    return 0;
}
