/* What the files of tables share; nothing outside report includes it. */
#ifndef REPORT_PARTS_H
#define REPORT_PARTS_H
#include "report/compare.h"
#include "report/tables.h"

typedef void table_maker(struct doc *d, const struct view *v);
table_maker make_summary, make_bytes, make_identity, make_decode, make_sizes, make_8bit, make_right, make_differing, make_kv, make_twin, make_walls, make_exactness;
table_maker make_cost, make_paths, make_peers, make_roofline, make_fit, make_latency, make_distribution, make_load, make_startup;
table_maker make_run, make_method, make_caveats;

/* Rows of one model: from rs->item[from] up to the returned index. */
size_t model_end(const struct results *rs, size_t from);
/* All levels of concurrency in the files, rising; freed by the caller. */
long long *levels_of(const struct results *rs, size_t *n);
const struct result *find_build(const struct results *rs, const struct result *like, const char *build);
/* The build, and where it was served when the model's rows differ in that: "text on local".  Freed by the caller. */
char *row_name(const struct results *rs, const struct result *r);
/* Columns model, build, target, and their cells; readers see the row's name. */
void name_columns(struct table *t);
void name_cells(struct table *t, const struct results *rs, const struct result *r);
/* Columns ratio, its interval and its winner against `base`'s name; the cells. */
void ratio_columns(struct table *t, const char *base);
void ratio_cells(struct table *t, const struct result *r, const struct result *base);
/* tok/s, with a word where it was only printed somewhere. */
void decode_cell(struct table *t, const struct result *r);
/* The engine's name and version. */
void engine_cell(struct table *t, const struct result *r);
double usd_per_million(const struct result *r, long long concurrency);
double gib(double bytes);
#endif
