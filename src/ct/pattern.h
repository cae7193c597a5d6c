/* One entry of a `targets` or `ignore` list: an exact name, a class name, or "re:R" with a Python regular expression.
 *
 * R matches from the start of the name, not to its end (Python's re.match).  Supported: what POSIX ERE and Python share, and \d \w \s \. (?: and lazy
 * quantifiers, whose yes or no is the same.  Everything else (look-around, back-references, counted repeats …) is "cannot decide", never a guess; of
 * that, what Python's re.compile is sure to refuse is broken.
 */
#ifndef CT_PATTERN_H
#define CT_PATTERN_H
#include <regex.h>
#include <stdbool.h>

enum ct_match { CT_NO_MATCH, CT_MATCH, CT_UNDECIDED };

struct ct_pattern {
    char *text;             /* as written in the config */
    char *name;             /* not a regex: the name after mapping to the loader's spelling; else NULL */
    regex_t re;
    bool is_regex, undecidable;
    const char *broken;     /* undecidable, and so is it for Python: the words of its re.error; else NULL */
};

/* `mapped` is what the loader makes of a dotted name (NULL = the text itself); copied. */
void ct_pattern_init(struct ct_pattern *p, const char *text, const char *mapped);
void ct_pattern_free(struct ct_pattern *p);
/* Equal, or the regex matches. */
enum ct_match ct_pattern_name(const struct ct_pattern *p, const char *name);
/* A case-insensitive substring of a class name ("Linear" in "QKVParallelLinear"), or a regex that matches it. */
enum ct_match ct_pattern_class(const struct ct_pattern *p, const char *cls);
#endif
