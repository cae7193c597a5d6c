/* The tables of the study, each from result files alone.
 *
 * Owns: which tables there are, their columns, formulas and notes.  A table that no result has anything for is left out.
 */
#ifndef REPORT_TABLES_H
#define REPORT_TABLES_H
#include "report/result.h"
#include "report/table.h"

struct view {
    const struct results *rs;
    const char *baseline;       /* build that ratios refer to */
};

/* The tables whose keys stand in `keys` (with commas between), in the order of tables_keys(); NULL = all.  EXIT_USAGE for a key that is none. */
int tables_make(struct doc *d, const struct view *v, const char *keys, struct err *e) MUST_CHECK;
/* "summary, decode, ..." for messages and help. */
const char *tables_keys(void);
/* One figure of every row with its ratio to the baseline's. */
int tables_metric(struct doc *d, const struct view *v, const char *metric, struct err *e) MUST_CHECK;
/* What changed between two sets; *worse counts the figures that are worse by more than threshold percent, or gone. */
int tables_diff(struct doc *d, const struct results *a, const struct results *b, double threshold, const char *metric, long *worse, struct err *e) MUST_CHECK;
#endif
