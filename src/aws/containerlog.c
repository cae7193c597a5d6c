#include "aws/containerlog.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"

#define ERROR_MAX 4096

enum text_fact { ENGINE_VERSION, MODEL, ARCHITECTURE, DTYPE, QUANTIZATION, ATTENTION, KERNEL, TEXT_FACTS };
enum number_fact { MAX_LEN, DOWNLOAD_S, CHECKPOINT_GIB, WEIGHTS_GIB, LOAD_S, KV_TOKENS, CONCURRENCY, AVAILABLE_KV, PEAK, CONSUMED, GRAPH_GIB, GRAPH_S, COMPILE_S, INIT_S,
    NUMBER_FACTS };

struct containerlog {
    char *text[TEXT_FACTS];
    double number[NUMBER_FACTS];        /* NAN = not said */
    long pings, invocations, starts, exits;
    bool complete;                      /* startup complete ever said */
    bool serving;                       /* … and no exit since */
    char *error;                        /* of the start that runs, or of the last that failed */
    bool failed;                        /* that start has ended: the next error is another start's */
    bool chained;                       /* the next exception replaces error */
};

struct containerlog *containerlog_new(void)
{
    struct containerlog *l = xcalloc(1, sizeof *l);
    for (int i = 0; i < NUMBER_FACTS; i++) l->number[i] = NAN;
    return l;
}

static void clear(struct containerlog *l)
{
    for (int i = 0; i < TEXT_FACTS; i++) free(l->text[i]);
    free(l->error);
}

void containerlog_free(struct containerlog *l)
{
    if (!l) return;
    clear(l);
    free(l);
}

void containerlog_reset(struct containerlog *l)
{
    struct containerlog *fresh = containerlog_new();
    clear(l);
    *l = *fresh;
    free(fresh);
}

/* --- pieces of a line ----------------------------------------------------------------------------------------------- */

static void set_text(struct containerlog *l, enum text_fact f, const char *p, size_t n)
{
    if (!n) return;
    free(l->text[f]);
    l->text[f] = xstrndup(p, n);
}

/* The number at p, with thousands separators; NAN when there is none. */
static double number_at(const char *p)
{
    char digits[64];
    size_t n = 0;
    while (*p == ' ') p++;
    if (!isdigit((unsigned char)*p)) return NAN;
    for (; n + 1 < sizeof digits && (isdigit((unsigned char)*p) || *p == '.' || (*p == ',' && isdigit((unsigned char)p[1]))); p++)
        if (*p != ',') digits[n++] = *p;
    digits[n] = 0;
    return strtod(digits, NULL);
}

/* The number that follows `mark`. */
static double after(const char *line, const char *mark)
{
    const char *p = strstr(line, mark);
    return p ? number_at(p + strlen(mark)) : NAN;
}

/* The number that stands right before `mark`. */
static double before(const char *line, const char *mark)
{
    const char *end = strstr(line, mark), *p = end;
    while (p && p > line && (isdigit((unsigned char)p[-1]) || p[-1] == '.' || p[-1] == ',')) p--;
    return p && p < end ? number_at(p) : NAN;
}

static void keep(struct containerlog *l, enum number_fact f, double v)
{
    if (!isnan(v)) l->number[f] = v;
}

/* key=VALUE or key='VALUE' inside the line of the engine's configuration. */
static void config_value(struct containerlog *l, enum text_fact f, const char *line, const char *key)
{
    const char *p = strstr(line, key);
    if (!p) return;
    p += strlen(key);
    bool quoted = *p == '\'';
    p += quoted;
    size_t n = strcspn(p, quoted ? "'" : ", ");
    if (!quoted && n == 4 && !strncmp(p, "None", 4)) return;
    if (f == DTYPE && !strncmp(p, "torch.", 6)) p += 6, n -= 6;
    set_text(l, f, p, n);
}

/* The word after the option --NAME in a list ['--name', 'value'] or a command line. */
static const char *option(const char *line, const char *name, size_t *n)
{
    for (const char *p = line; (p = strstr(p, name)); p++) {
        const char *v = p + strlen(name);
        if (p > line && !strchr(" '\"", p[-1])) continue;
        if (*v != '\'' && *v != ' ' && *v != '=' && *v != '"') continue;
        v += strspn(v, "'\", =");
        *n = strcspn(v, "'\", ]");
        return v;
    }
    return NULL;
}

/* --- facts ---------------------------------------------------------------------------------------------------------- */

static void read_engine(struct containerlog *l, const char *line)
{
    const char *p = strstr(line, "LLM engine (v");
    if (p) {
        p += 13;
        set_text(l, ENGINE_VERSION, p, strcspn(p, ")"));
        config_value(l, MODEL, line, "model=");
        config_value(l, DTYPE, line, "dtype=");
        config_value(l, QUANTIZATION, line, " quantization=");
        keep(l, MAX_LEN, after(line, "max_seq_len="));
        return;
    }
    if ((p = strstr(line, " version ")) && isdigit((unsigned char)p[9]) && strstr(line, "\xe2\x96")) set_text(l, ENGINE_VERSION, p + 9, strcspn(p + 9, " "));
    if ((p = strstr(line, " model   ")) && strstr(line, "\xe2\x96")) set_text(l, MODEL, p + 9, strcspn(p + 9, " "));
}

static void read_arguments(struct containerlog *l, const char *line)
{
    size_t n;
    const char *p;
    if (!strstr(line, "server arguments") && !strstr(line, "Starting: ")) return;
    if ((p = option(line, "--model", &n))) set_text(l, MODEL, p, n);
    if ((p = option(line, "--max-model-len", &n))) keep(l, MAX_LEN, number_at(p));
}

static void read_backend(struct containerlog *l, const char *line)
{
    const char *p = strstr(line, "AttentionBackendEnum."), *end;
    if (p) {
        p += 21;
        set_text(l, ATTENTION, p, strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"));
    } else if ((p = strstr(line, "forcing ")) && (end = strstr(p + 8, " backend"))) {
        if (!l->text[ATTENTION]) set_text(l, ATTENTION, p + 8, (size_t)(end - p) - 8);
    } else if ((p = strstr(line, "Using ")) && (end = strstr(p + 6, " backend")) && !memchr(p + 6, ' ', (size_t)(end - p) - 6)
        && !strpbrk(p, "'\"")) {
        set_text(l, ATTENTION, p + 6, (size_t)(end - p) - 6);
    }
    if ((p = strstr(line, "Using ")) && (end = strstr(p, "LinearKernel for"))) set_text(l, KERNEL, p + 6, (size_t)(end - p) + 12 - 6);
}

static void read_numbers(struct containerlog *l, const char *line)
{
    if (strstr(line, "Time spent downloading weights")) keep(l, DOWNLOAD_S, before(line, " seconds"));
    keep(l, CHECKPOINT_GIB, after(line, "Checkpoint size:"));
    if (strstr(line, "Model loading took")) {
        keep(l, WEIGHTS_GIB, after(line, "Model loading took"));
        keep(l, LOAD_S, before(line, " seconds"));
    }
    keep(l, KV_TOKENS, after(line, "KV cache size:"));
    if (strstr(line, "Maximum concurrency for")) keep(l, CONCURRENCY, after(strstr(line, "Maximum concurrency for"), "per request:"));
    keep(l, AVAILABLE_KV, after(line, "Available KV cache memory:"));
    keep(l, CONSUMED, before(line, " GiB for consumed memory"));
    keep(l, PEAK, before(line, " GiB for peak activation"));
    keep(l, GRAPH_GIB, before(line, " GiB for CUDAGraph memory"));
    if (strstr(line, "Graph capturing finished in")) {
        keep(l, GRAPH_S, after(line, "Graph capturing finished in"));
        keep(l, GRAPH_GIB, after(line, "took"));
    }
    if (strstr(line, "torch.compile took")) keep(l, COMPILE_S, after(line, "torch.compile took"));
    if (strstr(line, "init engine")) {
        keep(l, INIT_S, after(line, "took"));
        keep(l, COMPILE_S, after(line, "compilation:"));
    }
    keep(l, MAX_LEN, after(line, "Using max model len"));
    const char *p = strstr(line, "Resolved architecture: ");
    if (p) set_text(l, ARCHITECTURE, p + 23, strcspn(p + 23, " "));
}

/* --- errors --------------------------------------------------------------------------------------------------------- */

/* Behind "(EngineCore pid=76) ", and behind "ERROR 09-28 18:50:59 [core.py:1366] " with *level telling so. */
static const char *content(const char *line, bool *level)
{
    const char *p = line, *end;
    *level = false;
    if (*p == '(' && (end = strstr(p, "pid=")) && (end = strchr(end, ')'))) p = end + 1 + (end[1] == ' ');
    if ((!strncmp(p, "ERROR ", 6) || !strncmp(p, "CRITICAL ", 9)) && (end = strchr(p, '[')) && (end = strchr(end, ']'))) {
        *level = true;
        p = end + 1 + (end[1] == ' ');
    }
    return p;
}

/* "package.module.SomeError: text": the length of the name, 0 when the line is none. */
static size_t exception_name(const char *p)
{
    size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    if (n < 5 || p[n] != ':' || p[n + 1] != ' ') return 0;
    return !strncmp(p + n - 5, "Error", 5) || (n >= 9 && !strncmp(p + n - 9, "Exception", 9)) ? n : 0;
}

/* What vLLM says of an error that happened elsewhere. */
static bool is_echo(const char *p)
{
    return strstr(p, "Engine core initialization failed") || strstr(p, "EngineDeadError") || strstr(p, "See root cause above");
}

static bool is_hub_refusal(const char *p) { return !strncmp(p, "429 Too Many Requests", 21) || !strncmp(p, "429 Client Error", 16); }

static void read_error(struct containerlog *l, const char *line)
{
    bool level;
    const char *p = content(line, &level);
    if (strstr(p, "exception was the direct cause of") || strstr(p, "another exception occurred")) {
        l->chained = l->error != NULL && !l->failed;
        return;
    }
    bool memory = strstr(p, "Cannot allocate memory") != NULL;
    if (!exception_name(p) && !is_hub_refusal(p) && !(memory && level)) return;
    if (is_echo(p)) return;
    if (l->error && !l->chained && !l->failed) return;
    if (l->error && l->chained && is_hub_refusal(l->error)) return;
    free(l->error);
    l->error = xstrndup(p, strnlen(p, ERROR_MAX));
    l->failed = l->chained = false;
}

static const char *kind_of(const char *error)
{
    static const struct { const char *mark, *kind; } KINDS[] = {
        {"no module or parameter named", "missing-parameter"}, {"CUDA out of memory", "gpu-out-of-memory"}, {"OutOfMemoryError", "gpu-out-of-memory"},
        {"Cannot allocate memory", "host-out-of-memory"}, {"MemoryError", "host-out-of-memory"}, {"unable to mmap", "host-out-of-memory"},
        {"429", "hub-rate-limit"}, {"gated repo", "hub-no-access"}, {"GatedRepo", "hub-no-access"}, {"401 Client Error", "hub-no-access"}, {"403 Client Error", "hub-no-access"},
        {"is restricted", "hub-no-access"}, {"RepositoryNotFound", "hub-not-found"}, {"404 Client Error", "hub-not-found"},
        {"not a valid model identifier", "hub-not-found"}, {"EntryNotFound", "hub-not-found"}, {"RevisionNotFound", "hub-not-found"}};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strstr(error, KINDS[i].mark)) return KINDS[i].kind;
    return NULL;
}

/* --- the life of the process ---------------------------------------------------------------------------------------- */

static void read_life(struct containerlog *l, const char *line)
{
    if (strstr(line, "spawned: 'app'")) {
        l->starts++;
        if (l->error) l->failed = true;
        l->serving = false;
    } else if (!l->starts && (!strncmp(line, "(APIServer", 10) || !strncmp(line, "(EngineCore", 11) || strstr(line, "Application startup complete"))) {
        l->starts = 1;
    }
    if (strstr(line, "exited: app")) {
        l->exits++;
        l->serving = false;
    }
    if (strstr(line, "Application startup complete")) {
        l->complete = l->serving = true;
        free(l->error);                 /* of earlier starts: no verdict on this one */
        l->error = NULL;
    }
    if (strstr(line, "\"GET /ping HTTP/1.1\" 200")) l->pings++;
    if (strstr(line, "\"POST /invocations HTTP/1.1\" 200")) l->invocations++;
}

void containerlog_line(struct containerlog *l, const char *message, size_t n)
{
    char *line = xstrndup(message, n);
    while (ends_with(line, "#015")) line[strlen(line) - 4] = 0;         /* a carriage return, spelled out */
    for (n = strlen(line); n && strchr("\r\n", line[n - 1]);) line[--n] = 0;
    while (*line == '\r') memmove(line, line + 1, n--);
    read_life(l, line);
    read_engine(l, line);
    read_arguments(l, line);
    read_backend(l, line);
    read_numbers(l, line);
    read_error(l, line);
    free(line);
}

bool containerlog_serving(const struct containerlog *l) { return l->serving; }
bool containerlog_healthy(const struct containerlog *l) { return l->serving && l->pings > 0; }
bool containerlog_died(const struct containerlog *l) { return l->complete && !l->serving; }
const char *containerlog_error(const struct containerlog *l) { return l->serving ? NULL : l->error; }

const char *containerlog_stage(const struct containerlog *l)
{
    if (containerlog_healthy(l)) return "serving, pings answered";
    if (l->serving) return "startup complete";
    if (l->complete) return "served, and died";
    if (!isnan(l->number[KV_TOKENS])) return "KV cache ready";
    if (!isnan(l->number[WEIGHTS_GIB])) return "weights loaded, compiling";
    if (l->text[ENGINE_VERSION]) return "engine starting, loading weights";
    return l->starts ? "container started" : NULL;
}

static json_t *number(double v)
{
    if (isnan(v)) return json_null();
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

json_t *containerlog_facts(const struct containerlog *l)
{
    static const struct { const char *name; int text, number; } ORDER[] = {
        {"engine_version", ENGINE_VERSION, -1}, {"model", MODEL, -1}, {"architecture", ARCHITECTURE, -1}, {"dtype", DTYPE, -1}, {"max_model_len", -1, MAX_LEN},
        {"quantization", QUANTIZATION, -1}, {"attention_backend", ATTENTION, -1}, {"linear_kernel", KERNEL, -1}, {"download_s", -1, DOWNLOAD_S},
        {"checkpoint_gib", -1, CHECKPOINT_GIB}, {"weights_gib", -1, WEIGHTS_GIB}, {"load_s", -1, LOAD_S}, {"kv_tokens", -1, KV_TOKENS},
        {"max_concurrency", -1, CONCURRENCY}, {"available_kv_gib", -1, AVAILABLE_KV}, {"peak_activation_gib", -1, PEAK}, {"consumed_gib", -1, CONSUMED},
        {"graph_gib", -1, GRAPH_GIB}, {"graph_capture_s", -1, GRAPH_S}, {"compile_s", -1, COMPILE_S}, {"init_s", -1, INIT_S}};
    json_t *v = json_object();
    for (size_t i = 0; i < sizeof ORDER / sizeof *ORDER; i++) {
        const char *text = ORDER[i].text >= 0 ? l->text[ORDER[i].text] : NULL;
        json_object_set_new(v, ORDER[i].name, ORDER[i].number >= 0 ? number(l->number[ORDER[i].number]) : text ? json_message(text) : json_null());
    }
    const char *error = containerlog_error(l), *kind = error ? kind_of(error) : NULL;
    if (error && !kind && l->complete) kind = "engine-died";
    json_object_set_new(v, "startup_complete", json_boolean(l->complete));
    json_object_set_new(v, "pings_ok", json_integer(l->pings));
    json_object_set_new(v, "invocations_ok", json_integer(l->invocations));
    json_object_set_new(v, "serving_at_end", json_boolean(l->serving));
    json_object_set_new(v, "starts", json_integer(l->starts));
    json_object_set_new(v, "exits", json_integer(l->exits));
    json_object_set_new(v, "error_kind", kind ? json_string(kind) : json_null());
    json_object_set_new(v, "error", error ? json_message(error) : json_null());
    return v;
}

/* --- events --------------------------------------------------------------------------------------------------------- */

struct event { long long at; size_t order; const json_t *v; };

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

struct containerlog *containerlog_of(const json_t *events, long long created_ms, const char *stream)
{
    size_t n = 0, i;
    const json_t *v;
    struct event *list = xcalloc(json_array_size(events) + 1, sizeof *list);
    struct containerlog *l = containerlog_new();
    const char *current = NULL;         /* a new stream is a new container: the newest one counts */
    json_array_foreach((json_t *)events, i, v) {
        const char *of = json_string_value(json_object_get(v, "logStreamName"));
        long long at = (long long)json_number_value(json_object_get(v, "timestamp"));
        if (at >= created_ms && (!stream || (of && !strcmp(of, stream)))) list[n++] = (struct event){at, i, v};
    }
    qsort(list, n, sizeof *list, by_time);
    for (i = 0; i < n; i++) {
        const char *of = json_string_value(json_object_get(list[i].v, "logStreamName"));
        const json_t *text = json_object_get(list[i].v, "message");
        if (of && current && strcmp(of, current)) containerlog_reset(l);
        if (of) current = of;
        if (json_is_string(text)) containerlog_line(l, json_string_value(text), json_string_length(text));
    }
    free(list);
    return l;
}

bool containerlog_is_error(const char *message)
{
    bool level;
    const char *p = content(message, &level);
    return exception_name(p) || is_hub_refusal(p) || (level && *p && strspn(p, "#015\r") < strlen(p));
}

json_t *containerlog_read(const char *path, long long created_ms, const char *stream, struct err *e)
{
    struct jsonl *j = jsonl_open(path, e);
    json_t *v, *events, *facts = NULL;
    long line;
    int got = 0;
    if (!j) return NULL;
    events = json_array();
    while ((got = jsonl_next(j, &v, &line, e)) == 1) {
        const json_t *at = json_object_get(v, "timestamp");
        if (!json_is_string(json_object_get(v, "message")) || (at && !json_is_number(at)))
            got = err_set(e, EXIT_DATA, "%s: line %ld: expected an event {\"timestamp\", \"message\", \"logStreamName\"}", path, line);
        json_array_append_new(events, v);
        if (got < 0) break;
    }
    jsonl_close(j);
    if (!got) {
        struct containerlog *l = containerlog_of(events, created_ms, stream);
        facts = containerlog_facts(l);
        containerlog_free(l);
    }
    json_decref(events);
    return facts;
}
