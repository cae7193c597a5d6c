#include "report/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *key; table_maker *make; } TABLES[] = {
    {"run", make_run}, {"summary", make_summary}, {"bytes", make_bytes}, {"identity", make_identity}, {"decode", make_decode}, {"sizes", make_sizes},
    {"8bit", make_8bit}, {"right", make_right}, {"differing", make_differing}, {"kv", make_kv}, {"cost", make_cost}, {"paths", make_paths},
    {"peers", make_peers}, {"twin", make_twin}, {"roofline", make_roofline}, {"fit", make_fit}, {"latency", make_latency},
    {"distribution", make_distribution}, {"load", make_load}, {"exactness", make_exactness}, {"walls", make_walls}, {"startup", make_startup},
    {"method", make_method}, {"caveats", make_caveats},
};
enum { N_TABLES = sizeof TABLES / sizeof *TABLES };

const char *tables_keys(void)
{
    static char text[400];

    if (!text[0])
        for (size_t i = 0; i < N_TABLES; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? ", " : "", TABLES[i].key);
    return text;
}

static bool listed(const char *keys, const char *key)
{
    const size_t n = strlen(key);

    for (const char *at = keys; *at; at += at[0] == ',') {
        const size_t k = strcspn(at, ",");
        if (k == n && !strncmp(at, key, n))
            return true;
        at += k;
    }
    return false;
}

static int check_keys(const char *keys, struct err *e)
{
    if (!*keys)
        return err_set(e, EXIT_USAGE, "--table: none is named: known are %s", tables_keys());
    for (const char *at = keys; *at; at += at[0] == ',') {
        const size_t k = strcspn(at, ",");
        bool known = false;
        for (size_t i = 0; i < N_TABLES; i++)
            known |= strlen(TABLES[i].key) == k && !strncmp(at, TABLES[i].key, k);
        if (!known)
            return err_set(e, EXIT_USAGE, "--table %.*s: there is no such table: known are %s", (int)k, at, tables_keys());
        at += k;
    }
    return 0;
}

/* Does the table tell readers anything: a value in a column that does not only name the row? */
static bool holds_something(const struct table *t)
{
    if (table_rows(t) == 0)
        return t->n_notes > 0 && t->n_cols == 0;
    for (size_t i = 0; i < t->n_cells; i++) {
        const struct column *c = &t->col[i % t->n_cols];
        if (!(c->flags & (COL_TEXT | COL_DATA)) && t->cell[i].value)
            return true;
        if (c->flags & COL_TEXT && !(c->flags & COL_MODEL) && strcmp(c->key, "build") && strcmp(c->key, "target") && t->cell[i].value)
            return true;
    }
    return false;
}

int tables_make(struct doc *d, const struct view *v, const char *keys, struct err *e)
{
    if (keys && check_keys(keys, e))
        return -1;
    d->models = 0;
    for (size_t from = 0; from < v->rs->n; from = model_end(v->rs, from))
        d->models++;
    for (size_t i = 0; i < N_TABLES; i++) {
        struct doc one = {.models = d->models};
        if (keys && !listed(keys, TABLES[i].key))
            continue;
        TABLES[i].make(&one, v);
        for (size_t k = 0; k < one.n; k++) {
            if (!keys && !holds_something(&one.table[k]))
                continue;
            d->table = xreallocarray(d->table, d->n + 1, sizeof *d->table);
            d->table[d->n++] = one.table[k];
            one.table[k] = (struct table){0};
        }
        doc_free(&one);
    }
    return 0;
}

/* --- shared by the makers ------------------------------------------------------------------------------------------------- */

size_t model_end(const struct results *rs, size_t from)
{
    size_t to = from;

    while (to < rs->n && !strcmp(rs->item[to].model, rs->item[from].model))
        to++;
    return to;
}

long long *levels_of(const struct results *rs, size_t *n)
{
    struct sample s = {NULL, 0};

    for (size_t i = 0; i < rs->n; i++)
        for (size_t k = 0; k < rs->item[i].n_batches; k++)
            sample_add(&s, (double)rs->item[i].batch[k].concurrency);
    sample_sort(&s);
    long long *level = xcalloc(s.n + 1, sizeof *level);
    *n = 0;
    for (size_t i = 0; i < s.n; i++)
        if (*n == 0 || level[*n - 1] != (long long)s.v[i])
            level[(*n)++] = (long long)s.v[i];
    free(s.v);
    return level;
}

const struct result *find_build(const struct results *rs, const struct result *like, const char *build)
{
    for (size_t i = 0; i < rs->n; i++)
        if (!strcmp(rs->item[i].model, like->model) && !strcmp(rs->item[i].target, like->target) && !strcmp(rs->item[i].build, build))
            return &rs->item[i];
    return NULL;
}

void name_columns(struct table *t)
{
    table_column(t, "model", COL_TEXT | COL_MODEL, "model");
    table_column(t, "build", COL_TEXT, "build");
    table_column(t, "target", COL_TEXT | COL_DATA, "target");
}

char *row_name(const struct results *rs, const struct result *r)
{
    bool one_target = true;

    for (size_t i = 0; i < rs->n; i++)
        one_target &= strcmp(rs->item[i].model, r->model) || !strcmp(rs->item[i].target, r->target);
    return one_target ? xstrdup(r->build) : xasprintf("%s on %s", r->build, r->target);
}

void name_cells(struct table *t, const struct results *rs, const struct result *r)
{
    char *name = row_name(rs, r);

    cell_text(t, r->model);
    cell_as(t, r->build, "%s", name);
    cell_text(t, r->target);
    free(name);
}

void ratio_columns(struct table *t, const char *base)
{
    char key[80];

    snprintf(key, sizeof key, "ratio_to_%.60s", base);
    table_column(t, key, 0, "to %s", base);
    table_column(t, "ratio_low", COL_DATA, "ratio, low");
    table_column(t, "ratio_high", COL_DATA, "ratio, high");
    table_column(t, "ratio_error", COL_TEXT, "interval");
    table_column(t, "verdict", COL_TEXT, "is");
}

void ratio_cells(struct table *t, const struct result *r, const struct result *base)
{
    const struct comparison c = compare_decode(r, base);
    static const char *const words[] = {"slower", "not apart", "faster"};
    char text[80];

    cell_real(t, c.ratio, 2, 4);
    cell_real(t, c.in.low, 2, 4);
    cell_real(t, c.in.high, 2, 4);
    compare_text(&c, text, sizeof text);
    if (r == base) {
        cell_text(t, "-");
        cell_text(t, "-");
    } else {
        cell_text(t, isfinite(c.ratio) ? text : NULL);
        cell_text(t, isfinite(c.ratio) && c.kind != COMPARE_SINGLE ? words[c.winner + 1] : NULL);
    }
}

void decode_cell(struct table *t, const struct result *r)
{
    char value[40];

    snprintf(value, sizeof value, "%.3f", r->decode);
    if (r->decode_published)
        cell_as(t, value, "%.1f (published, one value)", r->decode);
    else
        cell_real(t, r->decode, 1, 3);
}

void engine_cell(struct table *t, const struct result *r)
{
    cell_as(t, NULL, "%s %s", r->engine ? r->engine : "not named", r->engine_version ? r->engine_version : "");
}

double usd_per_million(const struct result *r, long long concurrency)
{
    return r->usd_per_hour / (3600 * result_rate_at(r, concurrency)) * 1e6;
}

double gib(double bytes) { return bytes / 1073741824.0; }
