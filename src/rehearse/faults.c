#include "rehearse/faults.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

/* What a kind's argument may hold. */
enum { D = 1, C = 2, T = 4, R = 8, W = 16 };

struct kind {
    const char *name;
    unsigned takes;
    double seconds;             /* default of D */
    long count;                 /* default of C; -1 = every time */
    const char *word;           /* default of W; NULL = any */
    const char *help;
};

/* Figures: what real deployments showed (man page, section FAULTS). */
static const struct kind KINDS[] = {
    {"capacity", D | C | T | R, 31 * 60, -1, NULL, "no instance: Failed after 31 minutes, no log group"},
    {"lag", D | C | T | R, 197 * 60 + 19, -1, NULL, "healthy, but Creating for 3 h 17 min more"},
    {"health-fail", D | C | T | R | W, 0, -1, "gpu-out-of-memory", "restarted every 2 minutes until the start-up window has passed, then Failed; a word names the log"},
    {"recover", D | C | T | R | W, 11 * 60, -1, "missing-parameter", "restarted for 11 minutes, then serves"},
    {"second-start", C | T | R | W, 0, -1, "gpu-out-of-memory", "the first start fails, the second serves"},
    {"hub-429", C | T | R | W, 0, -1, "missing-parameter", "as health-fail, but from the third start on the hub's 429 hides the error"},
    {"start-error", D | C | T | R, 350, -1, NULL, "CannotStartContainerError after 5:50, no log group"},
    {"die", D | C | T | R, 20, -1, NULL, "answers pings for 20 s, then dies, and every start after it fails"},
    {"quota", T | R, 0, -1, NULL, "limit of an instance type (ml.g6.xlarge=1), or of all, is 0"},
    {"quota-pool", T | R, 0, -1, NULL, "the limit is 1, and another endpoint's pool has named the type"},
    {"old-log", C | R, 0, -1, NULL, "a log group of that name, of an older run that served, exists already"},
    {"late-config", C | R, 0, 1, NULL, "CreateEndpoint does not see the new configuration the first time"},
    {"slow-delete", D | C | R, 600, -1, NULL, "Deleting for 10 minutes"},
    {"throttle", C | R | W, 0, 3, NULL, "the first 3 calls (of an operation): Rate exceeded"},
    {"denied", C | R | W, 0, -1, "DeleteEndpoint", "AccessDenied on DeleteEndpoint, or another operation"},
    {"expired-token", C | R | W, 0, -1, NULL, "calls are refused: the token is expired"},
    {"internal", C | R | W, 0, 2, NULL, "the first 2 calls: 500 InternalFailure"},
    {"network", C | R | W, 0, 3, NULL, "the first 3 calls: the connection breaks, nothing is done"},
    {"lost-reply", C | R | W, 0, 1, "CreateEndpoint", "the call is carried out, its answer never arrives"},
    {"skew", D, 600, -1, NULL, "the account's clock is 10 minutes ahead"},
    {"token-429", C, 0, 3, NULL, "the first 3 requests for credentials: 429 Rate exceeded"},
    {"model-error", C | R, 0, -1, NULL, "the container answers invocations with 500: 424 ModelError"},
    {"timeout", C | R, 0, -1, NULL, "the container does not answer in time: 424 ModelError"},
    {"unavailable", C | R, 0, 1, NULL, "invocations: 503 ServiceUnavailable, once"},
    {"not-ready", C | R, 0, 1, NULL, "invocations: 429 ModelNotReadyException, once"},
    {"cut-stream", C, 0, 3, NULL, "the connection of a stream breaks inside its 3rd frame"},
    {"stream-error", C, 0, 3, NULL, "a ModelStreamError frame takes the place of the 3rd frame"},
    {"bad-crc", C, 0, 3, NULL, "the 3rd frame of a stream has a wrong checksum"},
    {"kms", R, 0, -1, NULL, "buckets encrypt with KMS: what S3 gives for an ETag is no MD5"},
    {"empty-page", 0, 0, -1, NULL, "FilterLogEvents begins with an empty page and a token"},
};
#define N_KINDS (sizeof KINDS / sizeof *KINDS)

struct faults { struct fault *list; size_t n; };

char *faults_help(void)
{
    struct buf b = BUF_INIT;
    buf_str(&b, "Faults (ARG: a duration, a count, an instance type, a region, an operation or log, as the kind takes):\n");
    for (size_t i = 0; i < N_KINDS; i++) buf_printf(&b, "  %-14s %s\n", KINDS[i].name, KINDS[i].help);
    b.data[b.n - 1] = 0;
    return b.data;
}

static const struct kind *find_kind(const char *name, size_t n)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strlen(KINDS[i].name) == n && !memcmp(KINDS[i].name, name, n)) return &KINDS[i];
    return n == 4 && !memcmp(name, "fail", 4) ? find_kind("health-fail", 11) : NULL;
}

static bool duration(const char *arg, double *seconds)
{
    char *end;
    double v = strtod(arg, &end);
    double unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : 0;
    if (!isdigit((unsigned char)*arg) || unit == 0 || end[1] || v * unit > 30 * 86400.0) return false;
    *seconds = v * unit;
    return true;
}

static bool number(const char *arg, long *n)
{
    char *end;
    long v = strtol(arg, &end, 10);
    if (!isdigit((unsigned char)*arg) || *end || v > 1000000) return false;
    *n = v;
    return true;
}

/* us-east-1, us-gov-west-1 */
static bool is_region(const char *arg)
{
    size_t n = strlen(arg);
    int dashes = 0;
    for (const char *p = arg; *p; p++) {
        if (*p == '-') dashes++;
        else if (!islower((unsigned char)*p) && !(p == arg + n - 1 && isdigit((unsigned char)*p))) return false;
    }
    return dashes >= 2 && isdigit((unsigned char)arg[n - 1]);
}

static unsigned take(struct fault *f, const char *arg)
{
    if (duration(arg, &f->seconds)) return D;
    if (number(arg, &f->count)) return C;
    if (!strncmp(arg, "ml.", 3)) {
        size_t n = strcspn(arg, "=");
        if (arg[n] && !number(arg + n + 1, &f->limit)) return 0;
        f->type = xstrndup(arg, n);
        return T;
    }
    if (is_region(arg)) {
        f->region = xstrdup(arg);
        return R;
    }
    f->word = xstrdup(arg);
    return *arg ? W : 0;
}

static void fault_free(struct fault *f)
{
    free(f->type);
    free(f->region);
    free(f->word);
}

int faults_add(struct world *w, const char *text, struct err *e)
{
    if (!w->faults) w->faults = xcalloc(1, sizeof *w->faults);
    struct faults *s = w->faults;
    size_t n = strcspn(text, ":");
    const struct kind *k = find_kind(text, n);
    if (!k) return err_set(e, EXIT_USAGE, "--fault %s: there is no such fault: --help lists them", text);
    struct fault f = {.kind = k->name, .seconds = k->seconds, .count = k->count, .index = (long)s->n};
    for (const char *p = text + n; *p;) {
        size_t len = strcspn(++p, ",");
        char *arg = xstrndup(p, len);
        unsigned got = take(&f, arg);
        free(arg);
        if (!got || !(k->takes & got)) {
            fault_free(&f);
            return err_set(e, EXIT_USAGE, "--fault %s: '%.*s' is no argument of %s", text, (int)len, p, k->name);
        }
        p += len;
    }
    if (!f.word && k->word) f.word = xstrdup(k->word);
    s->list = xreallocarray(s->list, s->n + 1, sizeof *s->list);
    s->list[s->n++] = f;
    return 0;
}

void faults_free(struct world *w)
{
    if (!w->faults) return;
    for (size_t i = 0; i < w->faults->n; i++) fault_free(&w->faults->list[i]);
    free(w->faults->list);
    free(w->faults);
}

static bool fits(const char *wanted, const char *found) { return !wanted || !found || !strcmp(wanted, found); }

static json_int_t used(const struct world *w, const struct fault *f)
{
    char key[80];
    snprintf(key, sizeof key, "%s/%ld", f->kind, f->index);
    return json_integer_value(json_object_get(json_object_get(w->state, "used"), key));
}

/* Where a count says how often, and not which frame. */
static bool counts(const struct fault *f) { return strcmp(f->kind, "cut-stream") && strcmp(f->kind, "stream-error") && strcmp(f->kind, "bad-crc"); }

const struct fault *faults_find(const struct world *w, const char *kind, const char *region, const char *type, const char *word)
{
    for (size_t i = 0; w->faults && i < w->faults->n; i++) {
        const struct fault *f = &w->faults->list[i];
        if (strcmp(f->kind, kind) || !fits(f->region, region) || !fits(f->type, type) || !fits(f->word, word)) continue;
        if (f->count >= 0 && counts(f) && used(w, f) >= f->count) continue;
        return f;
    }
    return NULL;
}

const struct fault *faults_strike(struct world *w, const char *kind, const char *region, const char *type, const char *word)
{
    char key[80];
    const struct fault *f = faults_find(w, kind, region, type, word);
    if (!f || f->count < 0) return f;
    snprintf(key, sizeof key, "%s/%ld", f->kind, f->index);
    json_object_set_new(world_section(w, "used"), key, json_integer(used(w, f) + 1));
    w->dirty = true;
    return f;
}

double faults_skew(const struct world *w)
{
    const struct fault *f = faults_find(w, "skew", NULL, NULL, NULL);
    return f ? f->seconds : 0;
}
