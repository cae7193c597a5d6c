#include "report/table.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "base/json.h"

/* --- building ----------------------------------------------------------------------------------------------------------- */

static char *format(const char *fmt, va_list ap)
{
    char text[2048];
    vsnprintf(text, sizeof text, fmt, ap);
    return xstrdup(text);
}

struct table *doc_table(struct doc *d, const char *key, const char *title)
{
    d->table = xreallocarray(d->table, d->n + 1, sizeof *d->table);
    d->table[d->n] = (struct table){.key = key, .title = xstrdup(title)};
    return &d->table[d->n++];
}

void table_column(struct table *t, const char *key, unsigned flags, const char *title, ...)
{
    va_list ap;
    t->col = xreallocarray(t->col, t->n_cols + 1, sizeof *t->col);
    va_start(ap, title);
    t->col[t->n_cols++] = (struct column){xstrdup(key), format(title, ap), flags};
    va_end(ap);
}

void table_note(struct table *t, const char *fmt, ...)
{
    va_list ap;
    t->note = xreallocarray(t->note, t->n_notes + 1, sizeof *t->note);
    va_start(ap, fmt);
    t->note[t->n_notes++] = format(fmt, ap);
    va_end(ap);
}

static void add_cell(struct table *t, char *shown, char *value)
{
    if ((t->n_cells & (t->n_cells - 1)) == 0)
        t->cell = xreallocarray(t->cell, t->n_cells ? 2 * t->n_cells : 1, sizeof *t->cell);
    t->cell[t->n_cells++] = (struct cell){shown, value};
}

void cell_none(struct table *t) { add_cell(t, NULL, NULL); }

void cell_text(struct table *t, const char *text)
{
    add_cell(t, text ? xstrdup(text) : NULL, text ? xstrdup(text) : NULL);
}

/* What rounds to zero has no sign. */
static char *real_text(double v, int decimals)
{
    char *text = xasprintf("%.*f", decimals, v);

    if (text[0] == '-' && !text[1 + strspn(text + 1, "0.")])
        memmove(text, text + 1, strlen(text));
    return text;
}

void cell_real(struct table *t, double v, int shown, int value)
{
    if (!isfinite(v))
        cell_none(t);
    else
        add_cell(t, real_text(v, shown), real_text(v, value));
}

static char *with_commas(long long v)
{
    char digits[32];
    struct buf b = BUF_INIT;
    const size_t n = (size_t)snprintf(digits, sizeof digits, "%lld", v);

    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            buf_char(&b, ',');
        buf_char(&b, digits[i]);
    }
    return b.data;
}

void cell_count(struct table *t, long long v)
{
    if (v < 0)
        cell_none(t);
    else
        add_cell(t, with_commas(v), xasprintf("%lld", v));
}

void cell_of(struct table *t, long long v, size_t n)
{
    if (v < 0)
        cell_none(t);
    else
        add_cell(t, xasprintf("%lld of %zu", v, n), xasprintf("%lld", v));
}

void cell_as(struct table *t, const char *value, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *shown = format(fmt, ap);
    va_end(ap);
    add_cell(t, shown, xstrdup(value ? value : shown));
}

size_t table_rows(const struct table *t) { return t->n_cols ? t->n_cells / t->n_cols : 0; }

void doc_free(struct doc *d)
{
    for (size_t i = 0; i < d->n; i++) {
        struct table *t = &d->table[i];
        for (size_t k = 0; k < t->n_cols; k++) {
            free(t->col[k].key);
            free(t->col[k].title);
        }
        for (size_t k = 0; k < t->n_cells; k++) {
            free(t->cell[k].shown);
            free(t->cell[k].value);
        }
        for (size_t k = 0; k < t->n_notes; k++)
            free(t->note[k]);
        free(t->title);
        free(t->col);
        free(t->cell);
        free(t->note);
    }
    free(d->table);
    free(d->title);
    free(d->intro);
}

/* A table that was asked for and has no row. */
static const char NOTHING[] = "These files hold nothing for this table.";

/* --- what readers see --------------------------------------------------------------------------------------------------- */

static const struct cell *at(const struct table *t, size_t row, size_t col) { return &t->cell[row * t->n_cols + col]; }

static bool visible(const struct doc *d, const struct table *t, size_t col)
{
    const unsigned flags = t->col[col].flags;

    if (flags & COL_DATA || (flags & COL_MODEL && d->models == 1))
        return false;
    if (!(flags & COL_OPTIONAL))
        return true;
    for (size_t row = 0; row < table_rows(t); row++)
        if (at(t, row, col)->value && strcmp(at(t, row, col)->value, "0"))
            return true;
    return false;
}

/* Markdown's own signs are escaped, control characters become spaces. */
static void md_text(struct buf *b, const char *s)
{
    for (; *s; s++) {
        if (strchr("\\|`*_[]<>&#~", *s))
            buf_char(b, '\\');
        buf_char(b, (unsigned char)*s < 32 || *s == 127 ? ' ' : *s);
    }
}

static void md_table(struct buf *b, const struct doc *d, const struct table *t)
{
    buf_char(b, '|');
    for (size_t c = 0; c < t->n_cols; c++)
        if (visible(d, t, c)) {
            buf_char(b, ' ');
            md_text(b, t->col[c].title);
            buf_str(b, " |");
        }
    buf_str(b, "\n|");
    for (size_t c = 0; c < t->n_cols; c++)
        if (visible(d, t, c))
            buf_str(b, t->col[c].flags & COL_TEXT ? " --- |" : " ---: |");
    buf_char(b, '\n');
    for (size_t r = 0; r < table_rows(t); r++) {
        buf_char(b, '|');
        for (size_t c = 0; c < t->n_cols; c++)
            if (visible(d, t, c)) {
                buf_char(b, ' ');
                md_text(b, at(t, r, c)->shown ? at(t, r, c)->shown : "n/a");
                buf_str(b, " |");
            }
        buf_char(b, '\n');
    }
}

/* Above the first table of a key. */
static char *plot_of(const struct doc *d, size_t i)
{
    const char *key = d->table[i].key;
    const bool first = i == 0 || strcmp(d->table[i - 1].key, key);
    char *path = d->plots && first ? xasprintf("%s/%s.svg", d->plots, key) : NULL, *svg = NULL;
    struct err e = {0};
    size_t n;

    if (path && io_slurp(path, (size_t)1 << 20, &svg, &n, &e))
        svg = NULL;                     /* not every table has a plot */
    free(path);
    return svg;
}

void doc_markdown(struct buf *b, const struct doc *d)
{
    if (d->title) {
        buf_str(b, "# ");
        md_text(b, d->title);
        buf_str(b, "\n\n");
    }
    if (d->intro) {
        md_text(b, d->intro);
        buf_str(b, "\n\n");
    }
    for (size_t i = 0; i < d->n; i++) {
        const struct table *t = &d->table[i];
        if (i)
            buf_char(b, '\n');
        buf_str(b, "### ");
        md_text(b, t->title);
        buf_str(b, "\n\n");
        char *plot = plot_of(d, i);
        if (plot)
            buf_printf(b, "![%s](%s/%s.svg)\n\n", t->key, d->plots, t->key);
        free(plot);
        if (table_rows(t))
            md_table(b, d, t);
        else if (t->n_cols) {
            buf_printf(b, "%s\n", NOTHING);
            continue;
        }
        for (size_t k = 0; k < t->n_notes; k++) {
            if (k || table_rows(t))
                buf_char(b, '\n');
            md_text(b, t->note[k]);
            buf_char(b, '\n');
        }
    }
}

static void html_text(struct buf *b, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '&': buf_str(b, "&amp;"); break;
        case '<': buf_str(b, "&lt;"); break;
        case '>': buf_str(b, "&gt;"); break;
        case '"': buf_str(b, "&quot;"); break;
        case '\'': buf_str(b, "&#39;"); break;
        default: buf_char(b, ((unsigned char)*s < 32 && *s != '\n') || *s == 127 ? ' ' : *s);
        }
}

enum { BRIEF = 26 };    /* bytes of a text that is not broken over lines */

static void html_row(struct buf *b, const struct doc *d, const struct table *t, size_t row)
{
    bool first = true;

    buf_str(b, "<tr>");
    for (size_t c = 0; c < t->n_cols; c++) {
        if (!visible(d, t, c))
            continue;
        const char *shown = at(t, row, c)->shown;
        const bool text = t->col[c].flags & COL_TEXT;
        const char *tag = first ? "th scope=row" : "td";
        const bool brief = shown && strlen(shown) <= BRIEF;
        buf_printf(b, "<%s%s>", tag, first || text ? (brief ? " class=s" : "") : shown ? " class=n" : " class=\"n na\"");
        html_text(b, shown ? shown : "n/a");
        buf_str(b, first ? "</th>" : "</td>");
        first = false;
    }
    buf_str(b, "</tr>\n");
}

static void html_table(struct buf *b, const struct doc *d, const struct table *t)
{
    buf_str(b, "<div class=wide tabindex=0 role=region aria-label=\"");
    html_text(b, t->title);
    buf_str(b, "\"><table><thead><tr>");
    for (size_t c = 0; c < t->n_cols; c++)
        if (visible(d, t, c)) {
            buf_str(b, t->col[c].flags & COL_TEXT ? "<th scope=col>" : "<th scope=col class=n>");
            html_text(b, t->col[c].title);
            buf_str(b, "</th>");
        }
    buf_str(b, "</tr></thead><tbody>\n");
    for (size_t r = 0; r < table_rows(t); r++)
        html_row(b, d, t, r);
    buf_str(b, "</tbody></table></div>\n");
}

/* One page with nothing outside it; the plots' text takes the page's colour. */
static const char STYLE[] =
    ":root{color-scheme:light dark;--fg:#1c1e21;--bg:#fff;--line:#c9ced6;--head:#eef1f5;--soft:#5b6470}\n"
    "@media(prefers-color-scheme:dark){:root{--fg:#e4e7eb;--bg:#15181c;--line:#3d444d;--head:#22272e;--soft:#9aa4b0}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;padding:1rem;max-width:76rem;font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);"
    "overflow-wrap:anywhere}\n"
    "h1{font-size:1.6rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p,pre{max-width:60rem}p.note{color:var(--soft);font-size:.9rem;margin:.5rem 0}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;overflow-wrap:normal}\n"
    "thead th{background:var(--head)}tbody th{font-weight:600}.n{text-align:right;white-space:nowrap}.na{color:var(--soft)}.s{white-space:nowrap}\n"
    "td:not(.n){max-width:30rem;overflow-wrap:break-word}figure{margin:0 0 1rem}figure svg{display:block;width:100%;height:auto;max-width:60rem}\n"
    "@media print{:root{--fg:#000;--bg:#fff;--line:#999;--head:#eee;--soft:#444}body{max-width:none;font-size:10pt}.wide{overflow:visible}"
    "h2{break-after:avoid}tr,figure{break-inside:avoid}}\n";

void doc_html(struct buf *b, const struct doc *d)
{
    const char *title = d->title ? d->title : "Measured builds";

    buf_str(b, "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width,initial-scale=1\">\n"
               "<link rel=icon href=\"data:,\">\n<title>");
    html_text(b, title);
    buf_printf(b, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", STYLE);
    html_text(b, title);
    buf_str(b, "</h1>\n");
    if (d->intro) {
        buf_str(b, "<p>");
        html_text(b, d->intro);
        buf_str(b, "</p>\n");
    }
    for (size_t i = 0; i < d->n; i++) {
        const struct table *t = &d->table[i];
        buf_str(b, "<h2>");
        html_text(b, t->title);
        buf_str(b, "</h2>\n");
        char *plot = plot_of(d, i);
        if (plot)
            buf_printf(b, "<figure>\n%s</figure>\n", strstr(plot, "<svg") ? strstr(plot, "<svg") : "");
        free(plot);
        if (table_rows(t))
            html_table(b, d, t);
        else if (t->n_cols) {
            buf_printf(b, "<p class=note>%s</p>\n", NOTHING);
            continue;
        }
        for (size_t k = 0; k < t->n_notes; k++) {
            buf_str(b, "<p class=note>");
            html_text(b, t->note[k]);
            buf_str(b, "</p>\n");
        }
    }
    buf_str(b, "</body>\n</html>\n");
}

/* --- what machines read ------------------------------------------------------------------------------------------------- */

/* Quoted where needed; a leading sign that spreadsheets take for a formula gets an apostrophe before it, unless the column holds numbers. */
static void csv_text(struct buf *b, const char *s, bool text)
{
    const bool formula = text && s[0] && strchr("=+-@\t\r", s[0]), quote = strpbrk(s, ",\"\r\n\t") != NULL;

    if (quote)
        buf_char(b, '"');
    if (formula)
        buf_char(b, '\'');
    for (; *s; s++) {
        if (*s == '"')
            buf_char(b, '"');
        buf_char(b, *s);
    }
    if (quote)
        buf_char(b, '"');
}

static void csv_rows(struct buf *b, const struct table *t, bool header)
{
    for (size_t c = 0; header && c < t->n_cols; c++) {
        if (c)
            buf_char(b, ',');
        csv_text(b, t->col[c].key, true);
    }
    if (header)
        buf_char(b, '\n');
    for (size_t r = 0; r < table_rows(t); r++)
        for (size_t c = 0; c < t->n_cols; c++) {
            const char *v = at(t, r, c)->value;
            if (v)
                csv_text(b, v, t->col[c].flags & COL_TEXT);
            buf_char(b, c + 1 < t->n_cols ? ',' : '\n');
        }
}

void doc_csv(struct buf *b, const struct doc *d)
{
    bool several = false;

    for (size_t i = 0; i < d->n; i++)
        several |= strcmp(d->table[i].key, d->table[0].key) != 0;
    for (size_t i = 0; i < d->n; i++) {
        const bool fresh = i == 0 || strcmp(d->table[i].key, d->table[i - 1].key);
        if (several && fresh)
            buf_printf(b, "%s%s\n", i ? "\n" : "", d->table[i].key);
        csv_rows(b, &d->table[i], fresh);
    }
}

static json_t *cell_json(const struct table *t, size_t row, size_t col)
{
    const char *v = at(t, row, col)->value;
    json_t *number = v && !(t->col[col].flags & COL_TEXT) ? json_loads(v, JSON_DECODE_ANY, NULL) : NULL;

    if (!v)
        return json_null();
    if (json_is_number(number))
        return number;
    json_decref(number);
    return json_string(v);
}

void doc_json(struct buf *b, const struct doc *d)
{
    json_t *tables = json_array(), *doc = json_pack("{s:s, s:o}", "schema", "q4sweep-tables/1", "tables", tables);

    for (size_t i = 0; i < d->n; i++) {
        const struct table *t = &d->table[i];
        json_t *columns = json_array(), *rows = json_array(), *notes = json_array();
        for (size_t c = 0; c < t->n_cols; c++)
            json_array_append_new(columns, json_pack("{s:s, s:s}", "key", t->col[c].key, "title", t->col[c].title));
        for (size_t r = 0; r < table_rows(t); r++) {
            json_t *row = json_object();
            for (size_t c = 0; c < t->n_cols; c++)
                json_object_set_new(row, t->col[c].key, cell_json(t, r, c));
            json_array_append_new(rows, row);
        }
        for (size_t k = 0; k < t->n_notes; k++)
            json_array_append_new(notes, json_string(t->note[k]));
        json_array_append_new(tables, json_pack("{s:s, s:s, s:o, s:o, s:o}", "key", t->key, "title", t->title, "columns", columns, "rows", rows,
            "notes", notes));
    }
    char *text = json_text_indented(doc);
    buf_printf(b, "%s\n", text);
    free(text);
    json_decref(doc);
}

void table_tsv(struct buf *b, const struct table *t)
{
    for (size_t c = 0; c < t->n_cols; c++)
        buf_printf(b, "%s%s", c ? "\t" : "", t->col[c].key);
    buf_char(b, '\n');
    for (size_t r = 0; r < table_rows(t); r++)
        for (size_t c = 0; c < t->n_cols; c++) {
            const char *v = at(t, r, c)->value;
            for (; v && *v; v++)        /* gnuplot reads a quote and a backslash in its own way */
                buf_char(b, (unsigned char)*v < 32 || strchr("\"\\", *v) ? ' ' : *v);
            buf_char(b, c + 1 < t->n_cols ? '\t' : '\n');
        }
}
