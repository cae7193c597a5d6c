/* Two rows against each other: which row is whose baseline, ratios with what is known of their error, equal answers.
 *
 * Owns: when rows may be compared (same model, measured alike), and when one is called faster.  From STATS_INTERVAL_MIN repeats on, the ratio has a 95 %
 * bootstrap interval, and "faster" or "slower" means that 1 lies outside it; with fewer the range stands (the least rate of one over the greatest of
 * the other, and the other way round), and a winner is named only when the two ranges have nothing in common.
 */
#ifndef REPORT_COMPARE_H
#define REPORT_COMPARE_H
#include "report/result.h"

enum comparison_kind { COMPARE_SINGLE, COMPARE_RANGE, COMPARE_INTERVAL };

struct comparison {
    double ratio;               /* decode of r over decode of base; NAN = not comparable */
    enum comparison_kind kind;
    struct interval in;         /* of the ratio, unless SINGLE */
    size_t n;                   /* repeats, the fewest of the four lists */
    int winner;                 /* 1 r is faster, -1 slower, 0 not apart or not known */
};

/* The row of r's model and target with this build; NULL = none, or not measured alike. */
const struct result *compare_base(const struct results *rs, const struct result *r, const char *build);
/* base NULL gives a ratio of NAN. */
struct comparison compare_decode(const struct result *r, const struct result *base);
/* "0.97-1.03 (95 %)", "0.97-1.03 (range of 5)", "single value". */
void compare_text(const struct comparison *c, char *out, size_t size);
/* Questions that a and b answered alike; -1 unless both were asked the same ones in one way and all answers are known. */
long long compare_answers(const struct result *a, const struct result *b);
#endif
