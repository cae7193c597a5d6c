#include "base/opt.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "version.h"

#define MAX_OPTS 64

static bool quiet, verbose;
static const struct opt common[] = {
    {"help", 'h', OPT_FLAG, NULL, NULL, "print this and exit", 0, 0},
    {"version", 0, OPT_FLAG, NULL, NULL, "print the version and exit", 0, 0},
    {"quiet", 'q', OPT_FLAG, &quiet, NULL, "errors only", 0, 0},
    {"verbose", 'v', OPT_FLAG, &verbose, NULL, "say more on stderr", 0, 0},
    {NULL, 0, OPT_FLAG, NULL, NULL, NULL, 0, 0}
};

const char *version_string(void)
{
    return Q4SWEEP_VERSION;
}

void opt_usage(const char *fmt, ...)
{
    char msg[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    die_msg(EXIT_USAGE, "%s: try %s --help", msg, prog_name);
}

void opt_regex(regex_t *re, const char *option, const char *ere)
{
    char why[200];
    int bad = xregcomp(re, ere ? ere : "");
    if (!bad)
        return;
    regerror(bad, re, why, sizeof why);
    opt_usage("--%s: %s: %s", option, ere, why);
}

static void print_default(const struct opt *o)
{
    if (!o->to)
        return;
    if (o->kind == OPT_INT || o->kind == OPT_SIZE) {
        if (*(const long *)o->to > 0)       /* 0 is said in the help's words, -1 = must be given */
            printf(" [%ld]", *(const long *)o->to);
    } else if (o->kind == OPT_REAL) {
        if (*(const double *)o->to != 0)
            printf(" [%g]", *(const double *)o->to);
    } else if (o->kind == OPT_STR || o->kind == OPT_CHOICE) {
        if (*(const char *const *)o->to)
            printf(" [%s]", *(const char *const *)o->to);
    }
}

/* "  -j, --jobs N         threads [2]"; further lines of the help text are indented to its column. */
static void print_option(const struct opt *o)
{
    char left[80];
    snprintf(left, sizeof left, "%s%s%s%s%s", o->letter ? (char[]){'-', o->letter, ',', ' ', 0} : "    ", "--", o->name,
             o->arg ? " " : "", o->arg ? o->arg : "");
    printf("  %-30s ", left);
    if (strlen(left) > 30)
        printf("\n%33s", "");
    for (const char *s = o->help; *s; s++) {
        putchar(*s);
        if (*s == '\n')
            printf("%33s", "");
    }
    print_default(o);
    putchar('\n');
}

static void print_lines(const char *text, const char *indent)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        printf("%s%.*s\n", indent, (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void print_usage_lines(const char *usage)
{
    const char *lead = "usage:";
    while (*usage) {
        size_t n = strcspn(usage, "\n");
        printf("%s %s %.*s\n", lead, prog_name, (int)n, usage);
        usage += n + (usage[n] == '\n');
        lead = "      ";
    }
}

_Noreturn static void print_help(const struct opt_spec *spec)
{
    print_usage_lines(spec->usage);
    putchar('\n');
    print_lines(spec->about, "");
    printf("\noptions:\n");
    for (const struct opt *o = spec->opts; o && o->name; o++)
        print_option(o);
    for (const struct opt *o = common; o->name; o++)
        print_option(o);
    if (spec->examples) {
        printf("\nexamples:\n");
        print_lines(spec->examples, "  ");
    }
    printf("\nexit: 0 done, 64 usage, 65 bad data, 66 no input, 69 not available, 70 a bug, 74 I/O, 75 try again, 77 not permitted%s%s\n",
           spec->exits ? "\n      here: " : "", spec->exits ? spec->exits : "");
    struct err e = {0, ""};
    if (finish_stdout(&e) != 0)
        die(&e);
    exit(0);
}

_Noreturn static void print_version(void)
{
#ifdef __clang__
    const char *compiler = "";          /* names itself */
#else
    const char *compiler = "gcc ";
#endif
    printf("%s (q4sweep) %s, %s%s\n", prog_name, version_string(), compiler, __VERSION__);
    struct err e = {0, ""};
    if (finish_stdout(&e) != 0)
        die(&e);
    exit(0);
}

static long bounded(const struct opt *o, const char *text, double v)
{
    if (v < (double)o->min || (o->max && v > (double)o->max)) {
        if (o->max)
            opt_usage("--%s: %s: not between %ld and %ld", o->name, text, o->min, o->max);
        opt_usage("--%s: %s: expected %ld or more", o->name, text, o->min);
    }
    return (long)v;
}

static long parse_int(const struct opt *o, const char *text)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (end == text || *end || errno)
        opt_usage("--%s: %s: not a whole number", o->name, text);
    bounded(o, text, (double)v);
    return v;
}

static long parse_size(const struct opt *o, const char *text)
{
    static const struct { const char *suffix; double times; } unit[] = {
        {"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
        {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || v < 0)
        opt_usage("--%s: %s: not a size: 5000000, 64K, 5G, 64MiB", o->name, text);
    for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++)
        if (strcmp(end, unit[i].suffix) == 0 && v * unit[i].times < 9e18)
            return bounded(o, text, v * unit[i].times);
    opt_usage("--%s: %s: not a size: 5000000, 64K, 5G, 64MiB", o->name, text);
}

static double parse_real(const struct opt *o, const char *text)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end || errno || v != v)
        opt_usage("--%s: %s: not a number", o->name, text);
    bounded(o, text, v);
    return v;
}

static void check_choice(const struct opt *o, const char *text)
{
    size_t n = strlen(text);
    for (const char *s = o->arg; *s; ) {
        size_t len = strcspn(s, "|");
        if (len == n && strncmp(s, text, n) == 0)
            return;
        s += len + (s[len] == '|');
    }
    opt_usage("--%s: %s: is none of %s", o->name, text, o->arg);
}

static void store(const struct opt *o, const char *text)
{
    switch (o->kind) {
    case OPT_FLAG: *(bool *)o->to = true; break;
    case OPT_STR: *(const char **)o->to = text; break;
    case OPT_INT: *(long *)o->to = parse_int(o, text); break;
    case OPT_SIZE: *(long *)o->to = parse_size(o, text); break;
    case OPT_REAL: *(double *)o->to = parse_real(o, text); break;
    case OPT_CHOICE: check_choice(o, text); *(const char **)o->to = text; break;
    case OPT_LIST: {
        struct opt_list *l = o->to;
        l->item = xreallocarray(l->item, l->n + 1, sizeof *l->item);
        l->item[l->n++] = text;
    }
    }
}

struct table {
    const struct opt *opt[MAX_OPTS];
    struct option longs[MAX_OPTS + 1];
    char shorts[2 * MAX_OPTS + 2];
    bool seen[MAX_OPTS];
    int n;
};

static void add_options(struct table *t, const struct opt *o, size_t *s)
{
    for (; o && o->name; o++) {
        if (t->n == MAX_OPTS)
            die_msg(EXIT_BUG, "more than %d options", MAX_OPTS);
        int has_arg = o->kind == OPT_FLAG ? no_argument : required_argument;
        t->longs[t->n] = (struct option){o->name, has_arg, NULL, 256 + t->n};
        t->opt[t->n++] = o;
        if (o->letter) {
            t->shorts[(*s)++] = o->letter;
            if (has_arg == required_argument)
                t->shorts[(*s)++] = ':';
        }
    }
}

static void build_table(struct table *t, const struct opt *own)
{
    memset(t, 0, sizeof *t);
    size_t s = 0;
    t->shorts[s++] = ':';
    add_options(t, common, &s);
    add_options(t, own, &s);
}

static int index_of(const struct table *t, int c)
{
    if (c >= 256)
        return c - 256;
    for (int i = 0; i < t->n; i++)
        if (t->opt[i]->letter == c)
            return i;
    return -1;
}

_Noreturn static void bad_option(const struct table *t, int c, char **argv)
{
    if (c == ':') {
        int i = index_of(t, optopt);
        opt_usage("--%s: needs a value", i >= 0 ? t->opt[i]->name : "option");
    }
    if (optopt >= 256)
        opt_usage("--%s: takes no value", t->opt[optopt - 256]->name);
    char letter[] = {'-', (char)optopt, 0};
    opt_usage("%s: there is no such option", optopt ? letter : argv[optind - 1]);
}

static void check_operands(const struct opt_spec *spec, int argc, char **argv)
{
    int n = argc - optind;
    const int usage = (int)strcspn(spec->usage, "\n");
    if (n < spec->min_operands)
        opt_usage("%d operand%s wanted, %d given: %s %.*s", spec->min_operands, spec->min_operands == 1 ? "" : "s", n, prog_name, usage, spec->usage);
    if (spec->max_operands < 0 || n <= spec->max_operands)
        return;
    const char *more = argv[optind + spec->max_operands];
    if (spec->max_operands == 0 && strstr(spec->usage, " < "))
        opt_usage("%s: takes no file: it reads standard input, as in < %s", more, more);
    opt_usage("%s: one operand too many", more);
}

/* getopt_long takes options after operands, as in `ct-check BUILD --strict`, unless this variable is set; it looks at it once. */
static int first_option(const struct table *t, int argc, char **argv)
{
    const char *posix = getenv("POSIXLY_CORRECT");
    char *kept = posix ? xstrdup(posix) : NULL;
    unsetenv("POSIXLY_CORRECT");
    int c = getopt_long(argc, argv, t->shorts, t->longs, NULL);
    if (kept)
        setenv("POSIXLY_CORRECT", kept, 1);         /* a program that this one starts may want it */
    free(kept);
    return c;
}

int opt_parse(const struct opt_spec *spec, int argc, char **argv)
{
    struct table t;
    build_table(&t, spec->opts);
    opterr = 0;
    for (int c = first_option(&t, argc, argv); c != -1; c = getopt_long(argc, argv, t.shorts, t.longs, NULL)) {
        if (c == '?' || c == ':')
            bad_option(&t, c, argv);
        int i = index_of(&t, c);
        const struct opt *o = t.opt[i];
        if (o == &common[0])
            print_help(spec);
        if (o == &common[1])
            print_version();
        if (t.seen[i] && o->kind != OPT_LIST && o->kind != OPT_FLAG)
            opt_usage("--%s: given twice", o->name);
        t.seen[i] = true;
        store(o, optarg);
    }
    prog_verbosity = quiet ? -1 : verbose;
    check_operands(spec, argc, argv);
    return optind;
}
