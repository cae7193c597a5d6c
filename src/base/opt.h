/* Command lines: one table per program gives parsing, checking and --help, so that they cannot disagree.
 *
 * Owns: getopt_long under a table; the common options --help/-h, --version, -q/--quiet, -v/--verbose, which every
 * program has without listing them.  A mistake (unknown option, a single-valued option given twice, a number out of
 * bounds, an operand too many) is one line on stderr and exit 64; the value is shown.
 */
#ifndef BASE_OPT_H
#define BASE_OPT_H
#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

enum opt_kind {
    OPT_FLAG,               /* bool *       */
    OPT_STR,                /* const char ** */
    OPT_INT,                /* long *, within [min, max] */
    OPT_SIZE,               /* long *, a byte count: 5000000, 64K, 5M, 5G (powers of 1000), KiB/MiB/GiB (of 1024) */
    OPT_REAL,               /* double *, within [min, max] */
    OPT_CHOICE,             /* const char **; `arg` lists the choices: "bf16|f16" */
    OPT_LIST                /* struct opt_list *: may be repeated */
};

struct opt_list { const char **item; size_t n; };   /* items point into argv; freed at exit only */

struct opt {
    const char *name;       /* long name without dashes; NULL ends the table */
    char letter;            /* 0 = none */
    enum opt_kind kind;
    void *to;               /* holds the default on entry; the help prints it where it is set */
    const char *arg;        /* "FILE", "N", or the choices */
    const char *help;
    long min, max;          /* OPT_INT, OPT_SIZE, OPT_REAL; max 0 = no bound */
};

struct opt_spec {
    const char *usage;      /* "[options] < stream > stream", without the program's name; several lines allowed */
    const char *about;      /* what the program does, a few lines */
    const struct opt *opts;
    const char *examples;   /* two lines of shell */
    const char *exits;      /* extra exit codes worth naming, or NULL */
    int min_operands, max_operands;     /* max -1 = any number */
};

/* Parse; returns the index of the first operand in argv.  Options and operands may be mixed; "--" ends options; "-" is
 * an operand.  Exits itself for --help and --version (0) and for mistakes (64). */
int opt_parse(const struct opt_spec *spec, int argc, char **argv);

/* A mistake found by the program itself: "tool: …: try --help", exit 64. */
_Noreturn void opt_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Compile the ERE given to --option; a bad one is a mistake, exit 64.  NULL compiles to one that matches everything. */
void opt_regex(regex_t *re, const char *option, const char *ere);

/* "q4sweep 0.1.0"-style version of all the programs; also stands in provenance. */
const char *version_string(void);
#endif
