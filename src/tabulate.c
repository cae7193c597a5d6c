/* tabulate: result files (data/result.schema.json) to the tables of the study, as Markdown, CSV, JSON or HTML; and what changed between two sets.
 *
 * Every figure is computed from the raw requests in the files (report/tables.h); nothing else is read.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/io.h"
#include "base/opt.h"
#include "report/tables.h"

struct choice {
    const char *format, *baseline, *metric, *tables, *plots, *plot_data, *title;
    double threshold;
    struct opt_list where;
};

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool is_link(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* A sweep leaves beside each build's newest result, which a link names, what it has checked and measured before. */
static void newest_alone(char **list, size_t *n)
{
    size_t links = 0;

    for (size_t i = 0; i < *n; i++)
        links += is_link(list[i]);
    if (links == 0 || links == *n)
        return;
    links = 0;
    for (size_t i = 0; i < *n; i++) {
        if (is_link(list[i]))
            list[links++] = list[i];
        else
            free(list[i]);
    }
    *n = links;
}

/* A file, or the *.json files of a directory in the order of their names: where some are links, as in a sweep's directory, the links alone. */
static char **files_of(const char *path, size_t *n, struct err *e)
{
    struct stat st;
    char **list = NULL;
    DIR *dir;

    *n = 0;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        dir = opendir(path);
        if (!dir) {
            (void)err_errno(e, io_open_code(errno), "%s", path);
            return NULL;
        }
        for (struct dirent *f; (f = readdir(dir));) {
            const size_t k = strlen(f->d_name);
            if (f->d_name[0] == '.' || k < 6 || strcmp(f->d_name + k - 5, ".json"))
                continue;
            list = xreallocarray(list, *n + 1, sizeof *list);
            list[(*n)++] = xasprintf("%s/%s", path, f->d_name);
        }
        closedir(dir);
        newest_alone(list, n);
        if (!list)
            (void)err_set(e, EXIT_NOINPUT, "%s: holds no result: no *.json", path);
        else
            qsort(list, *n, sizeof *list, by_name);
        return list;
    }
    list = xreallocarray(NULL, 1, sizeof *list);
    list[(*n)++] = xstrdup(path);
    return list;
}

/* results_free rs after a failure too. */
static int read_all(char **operand, size_t n, const struct choice *c, struct results *rs, struct err *e)
{
    char **path = NULL;
    size_t n_paths = 0;

    *rs = (struct results){0};
    for (size_t i = 0; i < n && !e->code; i++) {
        size_t k;
        char **list = files_of(operand[i], &k, e);
        path = xreallocarray(path, n_paths + k, sizeof *path);
        if (k)
            memcpy(path + n_paths, list, k * sizeof *path);
        n_paths += k;
        free(list);
    }
    const int rc = e->code ? -1 : results_read(path, n_paths, rs, e);
    for (size_t i = 0; i < n_paths; i++)
        free(path[i]);
    free(path);
    return rc ? rc : results_where(rs, c->where.item, c->where.n, e);
}

static void print(const struct choice *c, const struct doc *d)
{
    struct buf out = BUF_INIT;

    if (!strcmp(c->format, "csv"))
        doc_csv(&out, d);
    else if (!strcmp(c->format, "json"))
        doc_json(&out, d);
    else if (!strcmp(c->format, "html"))
        doc_html(&out, d);
    else
        doc_markdown(&out, d);
    if (fwrite(out.data, 1, out.n, stdout) != out.n)
        die_stdout();
    buf_free(&out);
}

/* Every table as DIR/KEY.tsv; of tables that come once a model, one after the other. */
static int write_plot_data(const char *dir, const struct doc *d, struct err *e)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct table *t = &d->table[i];
        struct buf b = BUF_INIT;
        if (!table_rows(t) || (i && !strcmp(d->table[i - 1].key, t->key)))
            continue;
        for (size_t k = i; k < d->n && !strcmp(d->table[k].key, t->key); k++)
            table_tsv(&b, &d->table[k]);
        char *path = xasprintf("%s/%s.tsv", dir, t->key);
        int rc = output_whole(output_open(path, false, e), b.data, b.n, e);
        free(path);
        buf_free(&b);
        if (rc)
            return -1;
    }
    return 0;
}

static const char USUAL_BASELINE[] = "text";

/* A baseline that was asked for must be there; without the usual one there are no ratios. */
static int check_baseline(const struct choice *c, const struct results *rs, struct err *e)
{
    for (size_t i = 0; i < rs->n; i++)
        if (!strcmp(rs->item[i].build, c->baseline))
            return 0;
    return c->baseline == USUAL_BASELINE ? 0 : err_set(e, EXIT_USAGE, "--baseline %.100s: no result is of that build", c->baseline);
}

static int tabulate(const struct choice *c, char **operand, size_t n, struct err *e)
{
    struct results rs;
    int rc = -1;
    struct doc d = {.plots = c->plots, .title = c->title ? xstrdup(c->title) : NULL};
    const char *tables = c->tables ? c->tables : !strcmp(c->format, "csv") && !c->plot_data ? "summary" : NULL;

    if (read_all(operand, n, c, &rs, e) == 0 && check_baseline(c, &rs, e) == 0) {
        const struct view v = {&rs, c->baseline};
        rc = c->metric ? tables_metric(&d, &v, c->metric, e) : tables_make(&d, &v, tables, e);
    }
    if (rc == 0 && c->plot_data)
        rc = write_plot_data(c->plot_data, &d, e);
    else if (rc == 0)
        print(c, &d);
    doc_free(&d);
    results_free(&rs);
    return rc;
}

/* The exit status: 1 when something is worse. */
static int diff(const struct choice *c, char **operand, struct err *e)
{
    struct results a, b = {0};
    struct doc d = {0};
    long worse;

    const int rc = read_all(operand, 1, c, &a, e) || read_all(operand + 1, 1, c, &b, e) || tables_diff(&d, &a, &b, c->threshold, c->metric, &worse, e) ? -1 : 0;
    if (rc == 0)
        print(c, &d);
    doc_free(&d);
    results_free(&a);
    results_free(&b);
    return rc ? rc : worse ? EXIT_NO : 0;
}

int main(int argc, char **argv)
{
    struct choice c = {.format = "md", .baseline = USUAL_BASELINE, .threshold = 5};
    const struct opt opts[] = {
        {"format", 0, OPT_CHOICE, &c.format, "md|csv|json|html", "layout of the tables", 0, 0},
        {"table", 0, OPT_STR, &c.tables, "KEY,KEY", "only these tables; CSV prints `summary` unless told otherwise", 0, 0},
        {"baseline", 0, OPT_STR, &c.baseline, "BUILD", "what ratios and identity refer to", 0, 0},
        {"metric", 0, OPT_STR, &c.metric, "NAME", "one figure: decode, per-call, rate:N, usd:N, ttft:N, tpot:N, prefill, right, kv, weights, disk", 0, 0},
        {"where", 0, OPT_LIST, &c.where, "KEY=VALUE", "only results with this model, build, target, engine, instance, region or gpu", 0, 0},
        {"threshold", 0, OPT_REAL, &c.threshold, "PERCENT", "diff: what counts as a change", 0, 1000},
        {"plot-data", 0, OPT_STR, &c.plot_data, "DIR", "write every table as DIR/KEY.tsv, for gnuplot, and print nothing", 0, 0},
        {"plots", 0, OPT_STR, &c.plots, "DIR", "set DIR/KEY.svg above table KEY (html, md)", 0, 0},
        {"title", 0, OPT_STR, &c.title, "TEXT", "heading of the page (html, md)", 0, 0},
        {0}};
    const struct opt_spec spec = {
        .usage = "[options] RESULT.json|DIR...\ndiff [--threshold PERCENT] A B",
        .about = "Print the comparison tables of measured builds, each figure computed from the raw requests in the files.\n"
                 "diff compares two results or directories of them: exit 1 when a figure is worse by more than the threshold.",
        .opts = opts,
        .examples = "tabulate out/e2b-nano/text.json out/e2b-nano/emb4.json\ntabulate --format html data/published > study.html",
        .exits = "1 diff: something is worse; nothing is left after --where",
        .min_operands = 1, .max_operands = -1};
    struct err e = {0};

    prog_init(argv[0]);
    const int first = opt_parse(&spec, argc, argv), n = argc - first;
    const bool two = !strcmp(argv[first], "diff");
    if (two && n != 3)
        opt_usage("diff: expected two results or directories, found %d", n - 1);
    if (two && (c.tables || c.plots || c.plot_data || c.title))
        opt_usage("diff: takes --format, --metric, --where and --threshold alone");
    if (c.tables && c.metric)
        opt_usage("--metric and --table exclude each other: a metric is a table of its own");
    const int status = two ? diff(&c, argv + first + 1, &e) : tabulate(&c, argv + first, (size_t)n, &e);
    free(c.where.item);
    if (status < 0)
        die(&e);
    if (finish_stdout(&e))
        die(&e);
    return status;
}
