/* Any bytes as a result file: refused as bad data, or every table of it in every layout. */
#include <stdlib.h>
#include "fuzz.h"
#include "report/tables.h"
#include "scratch.h"

static void print(struct doc *d)
{
    static void (*const layout[])(struct buf *, const struct doc *) = {doc_markdown, doc_html, doc_csv, doc_json};
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        struct buf b = BUF_INIT;
        layout[i](&b, d);
        buf_free(&b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    struct results rs = {0};
    char *path = scratch_file("result.json", data, n);
    if (results_read(&path, 1, &rs, &e) != 0) {
        if (e.code != EXIT_DATA)
            abort();
        results_free(&rs);
        return 0;
    }
    const struct view v = {&rs, "text"};
    struct doc all = {0}, one = {0}, changes = {0};
    long worse;
    if (tables_make(&all, &v, NULL, &e) != 0 || tables_metric(&one, &v, "ttft:1", &e) != 0 || tables_diff(&changes, &rs, &rs, 5, NULL, &worse, &e) != 0 || worse != 0)
        abort();
    print(&all);
    print(&one);
    print(&changes);
    doc_free(&all);
    doc_free(&one);
    doc_free(&changes);
    results_free(&rs);
    return 0;
}
