#include "rehearse/logs.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "base/utf8.h"
#include "rehearse/faults.h"

#define PAGE_BYTES 1000000          /* of messages: the service's limit is 1 MB */

struct event { long long ms, ingested; size_t stream; char *message; };
struct stream { char *name; long long created, first, last; };
struct group {
    char *region, *endpoint;
    struct event *events;           /* in the order of arrival, which is that of time */
    size_t n, cap;
    struct stream *streams;
    size_t n_streams;
    FILE *file;
    bool lost;                  /* the file cannot be written, which was said */
};
struct logs { struct group **list; size_t n; };

/* --- the store ------------------------------------------------------------------------------------------------------ */

static struct group *find(const struct world *w, const char *region, const char *endpoint)
{
    for (size_t i = 0; i < w->logs->n; i++)
        if (!strcmp(w->logs->list[i]->region, region) && !strcmp(w->logs->list[i]->endpoint, endpoint)) return w->logs->list[i];
    return NULL;
}

static char *group_path(const struct world *w, const char *region, const char *endpoint)
{
    return xasprintf("%s/logs/%s/%s.jsonl", w->dir, region, endpoint);
}

static struct group *make(struct world *w, const char *region, const char *endpoint)
{
    struct group *g = xcalloc(1, sizeof *g);
    g->region = xstrdup(region);
    g->endpoint = xstrdup(endpoint);
    w->logs->list = xreallocarray(w->logs->list, w->logs->n + 1, sizeof *w->logs->list);
    w->logs->list[w->logs->n++] = g;
    return g;
}

static size_t stream_of(struct group *g, const char *name, long long created)
{
    for (size_t i = 0; i < g->n_streams; i++)
        if (!strcmp(g->streams[i].name, name)) return i;
    g->streams = xreallocarray(g->streams, g->n_streams + 1, sizeof *g->streams);
    g->streams[g->n_streams] = (struct stream){.name = xstrdup(name), .created = created, .first = created, .last = created};
    return g->n_streams++;
}

static void append(struct group *g, const char *stream, long long ms, long long ingested, const char *message)
{
    if (g->n == g->cap) g->events = xreallocarray(g->events, g->cap = g->cap ? 2 * g->cap : 64, sizeof *g->events);
    size_t s = stream_of(g, stream, ms);
    g->streams[s].last = ms;
    g->events[g->n++] = (struct event){ms, ingested, s, xstrdup(message)};
}

/* Bytes that are no text become '?', as a log agent does; NUL ends nothing. */
static char *clean(const char *text, size_t n)
{
    char *out = xmalloc(n + 1);
    for (size_t i = 0; i < n; i++) out[i] = text[i] ? text[i] : ' ';
    out[n] = 0;
    if (utf8_check(out, n) == n) return out;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)out[i] >= 0x80) out[i] = '?';
    return out;
}

static FILE *group_file(struct world *w, const struct group *g)
{
    struct err e = {0};
    char *dir = xasprintf("%s/logs/%s", w->dir, g->region), *path = group_path(w, g->region, g->endpoint);
    FILE *f = io_make_directories(dir, 0777, &e) ? NULL : fopen(path, "a");
    if (!f) warn_msg("%s: cannot be written: this log will not survive a restart", path);
    free(dir);
    free(path);
    return f;
}

void logs_add(struct world *w, const char *region, const char *endpoint, const char *stream, double at, const char *text, size_t n)
{
    struct group *g = find(w, region, endpoint);
    if (!g) g = make(w, region, endpoint);
    if (!g->file && !g->lost) g->lost = !(g->file = group_file(w, g));
    char *message = clean(text, n);
    long long ms = (long long)(at * 1000), now = (long long)(world_now(w) * 1000);
    append(g, stream, ms, now, message);
    if (g->file) {
        json_t *line = json_pack("{s:I, s:I, s:s, s:s}", "timestamp", (json_int_t)ms, "ingestionTime", (json_int_t)now, "logStreamName", stream, "message", message);
        if (!line || json_line(g->file, line) || fflush(g->file)) {
            warn_msg("%s: its log cannot be written to %s: it will not survive a restart", endpoint, w->dir);
            fclose(g->file);
            g->file = NULL;
            g->lost = true;
        }
        json_decref(line);
    }
    free(message);
}

bool logs_has_group(const struct world *w, const char *region, const char *endpoint) { return find(w, region, endpoint) != NULL; }

static int read_group(struct world *w, const char *region, const char *file, struct err *e)
{
    size_t n = strlen(file);
    if (n < 7 || strcmp(file + n - 6, ".jsonl")) return 0;
    char *endpoint = xstrndup(file, n - 6), *path = group_path(w, region, endpoint);
    struct group *g = make(w, region, endpoint);
    struct jsonl *j = jsonl_open(path, e);
    json_t *v;
    long line;
    int rc = j ? 0 : -2;
    while (j && (rc = jsonl_next(j, &v, &line, e)) != 0 && rc != -2) {
        if (rc == -1) {             /* a line cut by a kill, and what was written behind it */
            e->code = 0;
            continue;
        }
        const char *stream = json_string_value(json_object_get(v, "logStreamName")), *message = json_string_value(json_object_get(v, "message"));
        if (stream && message)
            append(g, stream, json_integer_value(json_object_get(v, "timestamp")), json_integer_value(json_object_get(v, "ingestionTime")), message);
        json_decref(v);
    }
    if (j) jsonl_close(j);
    free(endpoint);
    free(path);
    return rc < 0 ? -1 : 0;
}

/* Each name in a directory that does not begin with a dot. */
static int each_name(const char *dir, struct world *w, const char *region, struct err *e)
{
    DIR *d = opendir(dir);
    int rc = 0;
    for (struct dirent *entry; d && !rc && (entry = readdir(d));) {
        if (*entry->d_name == '.') continue;
        if (region) {
            rc = read_group(w, region, entry->d_name, e);
        } else {
            char *path = xasprintf("%s/%s", dir, entry->d_name);
            rc = each_name(path, w, entry->d_name, e);
            free(path);
        }
    }
    if (d) closedir(d);
    return rc;
}

int logs_open(struct world *w, struct err *e)
{
    char *dir = xasprintf("%s/logs", w->dir);
    w->logs = xcalloc(1, sizeof *w->logs);
    int rc = each_name(dir, w, NULL, e);
    free(dir);
    return rc;
}

static void group_free(struct group *g)
{
    for (size_t i = 0; i < g->n; i++) free(g->events[i].message);
    for (size_t i = 0; i < g->n_streams; i++) free(g->streams[i].name);
    if (g->file) fclose(g->file);
    free(g->events);
    free(g->streams);
    free(g->region);
    free(g->endpoint);
    free(g);
}

void logs_close(struct world *w)
{
    if (!w->logs) return;
    for (size_t i = 0; i < w->logs->n; i++) group_free(w->logs->list[i]);
    free(w->logs->list);
    free(w->logs);
}

/* --- filter patterns: terms that must all appear, "in quotes", -not, ?any ------------------------------------------- */

static bool matches(const char *pattern, const char *message)
{
    bool any_wanted = false, any_found = false;
    for (const char *p = pattern; *p;) {
        char sign = 0;
        while (*p == ' ') p++;
        if (!*p) break;
        if (*p == '-' || *p == '?') sign = *p++;
        bool quoted = *p == '"';
        p += quoted;
        size_t n = strcspn(p, quoted ? "\"" : " ");
        char *term = xstrndup(p, n);
        bool found = strstr(message, term) != NULL;
        free(term);
        p += n + (quoted && p[n]);
        if (sign == '?') {
            any_wanted = true;
            any_found |= found;
        } else if (found == (sign == '-')) {
            return false;
        }
    }
    return !any_wanted || any_found;
}

/* --- the calls ------------------------------------------------------------------------------------------------------ */

static struct group *asked_group(struct call *c)
{
    const char *name = call_str(c, "logGroupName");
    if (!name) name = call_str(c, "logGroupIdentifier");
    if (!name) {
        call_error(c, 400, "InvalidParameterException", "1 validation error detected: Value null at 'logGroupName' failed to satisfy constraint: Member must not be null");
        return NULL;
    }
    size_t n = strlen(LOG_GROUP_PREFIX);
    struct group *g = strncmp(name, LOG_GROUP_PREFIX, n) ? NULL : find(c->w, c->region, name + n);
    if (!g) call_error(c, 400, "ResourceNotFoundException", "The specified log group does not exist.");
    return g;
}

static char *group_arn(const struct group *g)
{
    return xasprintf("arn:aws:logs:%s:" ACCOUNT ":log-group:" LOG_GROUP_PREFIX "%s", g->region, g->endpoint);
}

static json_t *event_json(const struct group *g, size_t i, bool named)
{
    const struct event *v = &g->events[i];
    json_t *o = json_pack("{s:I, s:I, s:s}", "timestamp", (json_int_t)v->ms, "ingestionTime", (json_int_t)v->ingested, "message", v->message);
    if (!named) return o;
    char id[64];
    snprintf(id, sizeof id, "%026lld%030zu", v->ms, i);
    json_object_set_new(o, "logStreamName", json_string(g->streams[v->stream].name));
    json_object_set_new(o, "eventId", json_string(id));
    return o;
}

/* Tokens are positions; what is no token of ours is refused, as there. */
static bool token_position(struct call *c, const char *prefix, size_t limit, size_t *at)
{
    const char *token = call_str(c, "nextToken");
    size_t n = strlen(prefix);
    char *end = NULL;
    if (!token) return true;
    if (!strncmp(token, prefix, n)) *at = strtoul(token + n, &end, 10);
    if (end && end > token + n && (!*end || *end == '=') && *at <= limit) return true;
    call_error(c, 400, "InvalidParameterException", "The specified nextToken is invalid.");
    return false;
}

static bool in_streams(const json_t *names, const char *prefix, const char *stream)
{
    size_t i;
    json_t *name;
    if (prefix && strncmp(stream, prefix, strlen(prefix))) return false;
    if (!json_array_size(names)) return true;
    json_array_foreach(names, i, name) if (json_is_string(name) && !strcmp(json_string_value(name), stream)) return true;
    return false;
}

static long long when(const struct call *c, const char *key, long long def)
{
    const json_t *v = json_object_get(c->in, key);
    return json_is_number(v) ? (long long)json_number_value(v) : def;
}

static void filter_log_events(struct call *c)
{
    struct group *g = asked_group(c);
    size_t at = 0, bytes = 0;
    char token[48];
    if (!g || !token_position(c, "t/", g->n, &at)) return;
    long limit = call_int(c, "limit", 10000);
    if (limit < 1 || limit > 10000) {
        call_error(c, 400, "InvalidParameterException", "1 validation error detected: Value '%ld' at 'limit' failed to satisfy constraint: "
            "Member must have value less than or equal to 10000", limit);
        return;
    }
    const char *pattern = call_str(c, "filterPattern"), *prefix = call_str(c, "logStreamNamePrefix");
    const json_t *names = json_object_get(c->in, "logStreamNames");
    long long from = when(c, "startTime", 0), to = when(c, "endTime", 1LL << 62);
    json_t *events = json_array();
    bool empty = !call_str(c, "nextToken") && g->n && faults_find(c->w, "empty-page", NULL, NULL, NULL);
    if (empty) limit = 0;
    for (; at < g->n && json_array_size(events) < (size_t)limit && bytes < PAGE_BYTES; at++) {
        const struct event *v = &g->events[at];
        if (v->ms < from || v->ms > to || !in_streams(names, prefix, g->streams[v->stream].name) || !matches(pattern ? pattern : "", v->message)) continue;
        json_array_append_new(events, event_json(g, at, true));
        bytes += strlen(v->message) + 26;
    }
    json_t *out = json_pack("{s:o, s:[]}", "events", events, "searchedLogStreams");
    snprintf(token, sizeof token, "t/%zu==", at);
    if (at < g->n) json_object_set_new(out, "nextToken", json_string(token));
    call_json(c, out);
}

/* One stream, forward or backward; at the end the token comes back unchanged. */
static void get_log_events(struct call *c)
{
    struct group *g = asked_group(c);
    if (!g) return;
    const char *name = call_str(c, "logStreamName"), *token = call_str(c, "nextToken");
    size_t stream = g->n_streams, *list = xcalloc(g->n + 1, sizeof *list), n = 0, at;
    char forward[48], backward[48];
    long limit = call_int(c, "limit", 10000);
    long long from = when(c, "startTime", 0), to = when(c, "endTime", 1LL << 62);
    for (size_t i = 0; i < g->n_streams; i++)
        if (name && !strcmp(g->streams[i].name, name)) stream = i;
    if (stream == g->n_streams) {
        call_error(c, 400, "ResourceNotFoundException", "The specified log stream does not exist.");
        free(list);
        return;
    }
    for (size_t i = 0; i < g->n; i++)
        if (g->events[i].stream == stream && g->events[i].ms >= from && g->events[i].ms < to) list[n++] = i;
    size_t want = limit > 0 && (size_t)limit < n ? (size_t)limit : n;
    at = json_is_true(json_object_get(c->in, "startFromHead")) ? 0 : n - want;
    bool back = token && *token == 'b';
    if (!token_position(c, back ? "b/" : "f/", n, &at)) {
        free(list);
        return;
    }
    size_t begin = !back ? at : at > want ? at - want : 0, end = back ? at : n - at > want ? at + want : n;
    json_t *events = json_array();
    for (size_t i = begin; i < end; i++) json_array_append_new(events, event_json(g, list[i], false));
    snprintf(forward, sizeof forward, "f/%zu", end);
    snprintf(backward, sizeof backward, "b/%zu", begin);
    free(list);
    call_json(c, json_pack("{s:o, s:s, s:s}", "events", events, "nextForwardToken", forward, "nextBackwardToken", backward));
}

static const struct group *sorted_group;
static int by_last_event(const void *a, const void *b)
{
    long long x = sorted_group->streams[*(const size_t *)a].last, y = sorted_group->streams[*(const size_t *)b].last;
    return x < y ? -1 : x > y;
}
static int by_stream_name(const void *a, const void *b)
{
    return strcmp(sorted_group->streams[*(const size_t *)a].name, sorted_group->streams[*(const size_t *)b].name);
}

static json_t *stream_json(const struct group *g, size_t i)
{
    const struct stream *s = &g->streams[i];
    char *arn = group_arn(g);
    json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:s++, s:i}", "logStreamName", s->name, "creationTime", (json_int_t)s->created, "firstEventTimestamp",
        (json_int_t)s->first, "lastEventTimestamp", (json_int_t)s->last, "lastIngestionTime", (json_int_t)s->last, "arn", arn, ":log-stream:", s->name, "storedBytes", 0);
    free(arn);
    return o;
}

static void describe_log_streams(struct call *c)
{
    struct group *g = asked_group(c);
    size_t at = 0;
    char token[32];
    if (!g || !token_position(c, "s/", g->n_streams, &at)) return;
    const char *prefix = call_str(c, "logStreamNamePrefix"), *by = call_str(c, "orderBy");
    size_t *order = xcalloc(g->n_streams + 1, sizeof *order);
    for (size_t i = 0; i < g->n_streams; i++) order[i] = i;
    sorted_group = g;
    qsort(order, g->n_streams, sizeof *order, by && !strcmp(by, "LastEventTime") ? by_last_event : by_stream_name);
    bool descending = json_is_true(json_object_get(c->in, "descending"));
    size_t limit = (size_t)call_int(c, "limit", 50);
    json_t *list = json_array();
    for (; at < g->n_streams && json_array_size(list) < limit; at++) {
        size_t i = order[descending ? g->n_streams - 1 - at : at];
        if (!prefix || !strncmp(g->streams[i].name, prefix, strlen(prefix))) json_array_append_new(list, stream_json(g, i));
    }
    free(order);
    json_t *out = json_pack("{s:o}", "logStreams", list);
    snprintf(token, sizeof token, "s/%zu", at);
    if (at < g->n_streams) json_object_set_new(out, "nextToken", json_string(token));
    call_json(c, out);
}

static void describe_log_groups(struct call *c)
{
    const char *prefix = call_str(c, "logGroupNamePrefix");
    json_t *list = json_array();
    for (size_t i = 0; i < c->w->logs->n; i++) {
        const struct group *g = c->w->logs->list[i];
        char *name = xasprintf(LOG_GROUP_PREFIX "%s", g->endpoint), *arn = group_arn(g);
        if (!strcmp(g->region, c->region) && (!prefix || !strncmp(name, prefix, strlen(prefix))))
            json_array_append_new(list, json_pack("{s:s, s:I, s:s+, s:i, s:i}", "logGroupName", name, "creationTime", (json_int_t)(g->n ? g->events[0].ms : 0),
                "arn", arn, ":*", "metricFilterCount", 0, "storedBytes", 0));
        free(name);
        free(arn);
    }
    call_json(c, json_pack("{s:o}", "logGroups", list));
}

static void delete_log_group(struct call *c)
{
    struct group *g = asked_group(c);
    struct logs *l = c->w->logs;
    if (!g) return;
    char *path = group_path(c->w, g->region, g->endpoint);
    unlink(path);
    free(path);
    for (size_t i = 0; i < l->n; i++)
        if (l->list[i] == g) l->list[i--] = l->list[--l->n];
    group_free(g);
    call_json(c, NULL);
}

void logs_call(struct call *c)
{
    static const struct { const char *op; void (*fn)(struct call *); } OPS[] = {{"FilterLogEvents", filter_log_events}, {"GetLogEvents", get_log_events},
        {"DescribeLogStreams", describe_log_streams}, {"DescribeLogGroups", describe_log_groups}, {"DeleteLogGroup", delete_log_group}};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (!strcmp(OPS[i].op, c->op)) {
            OPS[i].fn(c);
            return;
        }
    call_error(c, 400, "UnknownOperationException", "The operation %s is not supported here", c->op);
}
