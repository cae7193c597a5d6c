/* A document of tables, and its four layouts: Markdown, CSV, JSON, HTML; and the same cells as tab-separated plot data.
 *
 * Owns: escaping.  No text of a result file can break a table, run as HTML, or be a formula to a spreadsheet (RFC 4180 with an apostrophe before
 * = + - @ at the start of a text).  A cell has a value for machines and a text for readers; neither = not known: n/a for readers, empty in CSV, null
 * in JSON.  Strings given as `const char *` must outlive the document; cells copy theirs.
 */
#ifndef REPORT_TABLE_H
#define REPORT_TABLE_H
#include <stdio.h>
#include "base/buf.h"

enum { COL_TEXT = 1, COL_OPTIONAL = 2, COL_DATA = 4, COL_MODEL = 8 };
/* TEXT: words, aligned left.  OPTIONAL: readers do not see it when no row has a value other than 0.  DATA: for machines only.
 * MODEL: readers do not see it in a document on one model. */

struct column { char *key, *title; unsigned flags; };
struct cell { char *shown, *value; };           /* both NULL = not known */

struct table {
    const char *key;                            /* names it in --table, CSV, JSON, plot data */
    char *title;
    struct column *col; size_t n_cols;
    struct cell *cell; size_t n_cells;          /* row by row */
    char **note; size_t n_notes;                /* below the table, plain text */
};

struct doc {
    struct table *table; size_t n;
    size_t models;
    char *title, *intro;                        /* HTML and Markdown; NULL = none */
    const char *plots;                          /* directory of KEY.svg, set into HTML above table KEY; NULL = none */
};

struct table *doc_table(struct doc *d, const char *key, const char *title);     /* valid until the next doc_table */
void doc_free(struct doc *d);

void table_column(struct table *t, const char *key, unsigned flags, const char *title, ...) PRINTF_LIKE(4, 5);
void table_note(struct table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Cells in order, row by row. */
void cell_none(struct table *t);
void cell_text(struct table *t, const char *text);          /* NULL = not known */
void cell_real(struct table *t, double v, int shown, int value);    /* decimals; NAN = not known */
void cell_count(struct table *t, long long v);              /* shown with commas; negative = not known */
void cell_of(struct table *t, long long v, size_t n);       /* "37 of 40"; negative = not known */
void cell_as(struct table *t, const char *value, const char *fmt, ...) PRINTF_LIKE(3, 4);   /* value NULL: the shown text */
size_t table_rows(const struct table *t);

void doc_markdown(struct buf *b, const struct doc *d);
void doc_html(struct buf *b, const struct doc *d);
/* Tables of one key after each other under one header (they have the same columns); of several keys, each after an empty line and its key. */
void doc_csv(struct buf *b, const struct doc *d);
void doc_json(struct buf *b, const struct doc *d);
/* One table's cells with tabs between, "" for what is not known; for gnuplot. */
void table_tsv(struct buf *b, const struct table *t);
#endif
