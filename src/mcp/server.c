#include "mcp/server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/opt.h"
#include "base/stop.h"
#include "mcp/files.h"
#include "mcp/rpc.h"

#define OUTPUT_FULL ((size_t)64 << 20)          /* nothing more is read until the client has read */
#define PROGRESS_EVERY 1.0                      /* seconds between two notifications of a call */
#define END_GRACE 1.0                           /* for calls under way when the input ends */
#define TEXT_MAX ((size_t)1 << 20)              /* of a tool's output in an answer; the newest */

/* An array of messages: its answers go out together. */
struct batch { json_t *answers; size_t open; };

struct call {
    json_t *id, *args, *token;
    const struct tool *tool;
    struct batch *batch;
    struct job job;
    double started, told;               /* told: when progress was last sent */
    bool silent;                        /* cancelled: nobody waits for an answer */
    struct call *next;
};

struct server {
    const struct places *places;
    enum mcp_version version;
    bool can_run;
    struct call *calls;
    struct buf in, out;
    size_t written;
    bool skipping;                      /* within a line that is too long */
    bool eof, cut;
};

/* --- what goes out -------------------------------------------------------------------------------------------------- */

static void put(struct server *s, json_t *message)
{
    char *text = json_text(message, false);
    buf_str(&s->out, text);
    buf_char(&s->out, '\n');
    free(text);
    json_decref(message);
}

static void batch_close(struct server *s, struct batch *b)
{
    if (--b->open) return;
    if (json_array_size(b->answers)) put(s, b->answers);
    else json_decref(b->answers);
    free(b);
}

/* An answer, alone or among those of its batch. */
static void answer(struct server *s, struct batch *b, json_t *message)
{
    if (!b) put(s, message);
    else json_array_append_new(b->answers, message);
}

/* --- tools ---------------------------------------------------------------------------------------------------------- */

static json_t *text_content(const char *text, size_t n)
{
    char *copy = xstrndup(text, n);
    json_t *v = json_pack("{s:s, s:o}", "type", "text", "text", json_message(copy));
    free(copy);
    return v;
}

static json_t *tool_failure(const char *text) { return json_pack("{s:[o], s:b}", "content", text_content(text, strlen(text)), "isError", 1); }

/* The newest lines: at most so many (0 = all), and TEXT_MAX bytes. */
static const char *newest(const struct buf *b, long lines)
{
    const char *p = b->data + b->n;
    if (!b->n) return "";
    for (p -= b->data[b->n - 1] == '\n'; p > b->data && (size_t)(b->data + b->n - p) < TEXT_MAX; p--)
        if (p[-1] == '\n' && lines && --lines == 0) break;
    return p;
}

/* Every line's value when all of them are JSON; else NULL. */
static json_t *as_lines(const char *text)
{
    json_t *list = json_array();
    for (const char *end; *text; text = end + (*end != 0)) {
        struct err e = {0};
        end = text + strcspn(text, "\n");
        json_t *v = end == text ? NULL : json_parse(text, (size_t)(end - text), "line", &e);
        if (!v) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, v);
    }
    if (!json_array_size(list)) {
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *tool_result(const struct server *s, struct call *c)
{
    const struct job *j = &c->job;
    const char *text = newest(&j->output, tool_tail(c->tool, c->args)), *said = newest(&j->errors, 40);
    bool failed = j->status && !(j->status == EXIT_NO && tool_may_say_no(c->tool));
    json_t *content = json_array(), *lines = as_lines(text);
    if (failed && *said) json_array_append_new(content, text_content(said, strlen(said)));
    if (*text) json_array_append_new(content, text_content(text, strlen(text)));
    if (!failed && *said) json_array_append_new(content, text_content(said, strlen(said)));
    if (!json_array_size(content)) {
        char *done = failed ? xasprintf("exit status %d", j->status) : xstrdup("done: no output");
        json_array_append_new(content, text_content(done, strlen(done)));
        free(done);
    }
    json_t *v = json_pack("{s:o, s:b}", "content", content, "isError", failed);
    if (s->version >= MCP_2025_06) {
        json_t *facts = json_pack("{s:i, s:f}", "exit_status", j->status, "seconds", clock_seconds() - c->started);
        if (lines) json_object_set(facts, "lines", lines);
        json_object_set_new(v, "structuredContent", facts);
    }
    json_decref(lines);
    return v;
}

static size_t calls_open(const struct server *s)
{
    size_t n = 0;
    for (const struct call *c = s->calls; c; c = c->next) n++;
    return n;
}

static struct call *call_find(const struct server *s, const json_t *id)
{
    struct call *c = s->calls;
    while (c && (c->silent || !json_equal(c->id, (json_t *)id))) c = c->next;
    return c;
}

static void send_progress(struct server *s, struct call *c, double now)
{
    const char *said = newest(&c->job.errors, 1);
    size_t n = strcspn(said, "\n");
    json_t *params = json_pack("{s:O, s:f}", "progressToken", c->token, "progress", now - c->started);
    if (s->version >= MCP_2025_03) {
        char *text = n ? xstrndup(said, n) : xasprintf("running for %.0f s", now - c->started);
        json_object_set_new(params, "message", json_message(text));
        free(text);
    }
    put(s, rpc_notification("notifications/progress", params));
    c->told = now;
}

/* Started: true, and the answer comes later.  Else *result holds what to say. */
static bool start_call(struct server *s, const struct rpc_message *m, const struct tool *t, json_t *args, struct batch *b, json_t **result)
{
    struct err e = {0};
    struct command command;
    struct job job;
    json_t *token = json_object_get(json_object_get(m->params, "_meta"), "progressToken");
    if (tool_command(t, s->places, args, &command, &e) || !s->can_run || job_start(&job, &command, &e)) {
        *result = tool_failure(e.msg);
        command_free(&command);
        return false;
    }
    command_free(&command);
    struct call *c = xcalloc(1, sizeof *c), **end = &s->calls;
    *c = (struct call){.id = json_incref(m->id), .args = args ? json_incref(args) : json_object(), .tool = t, .batch = b, .job = job, .started = clock_seconds(),
        .token = json_is_string(token) || json_is_integer(token) ? json_incref(token) : NULL};
    if (b) b->open++;
    while (*end) end = &(*end)->next;
    *end = c;
    if (c->token) send_progress(s, c, c->started);
    return true;
}

/* NULL: the answer comes later. */
static json_t *call_tool(struct server *s, const struct rpc_message *m, struct batch *b)
{
    struct err e = {0};
    const char *name = json_string_value(json_object_get(m->params, "name")), *unconfirmed;
    json_t *args = json_object_get(m->params, "arguments"), *result = NULL;
    if (!name) return rpc_error(m->id, RPC_PARAMS, "tools/call: the name is missing, or no string");
    if (args && !json_is_object(args)) return rpc_error(m->id, RPC_PARAMS, "%.100s: arguments is no object", name);
    const struct tool *t = tool_find(name);
    if (!t) return rpc_error(m->id, RPC_PARAMS, "unknown tool: %.100s", name);
    if (tool_check(t, args, &e)) {
        if (!mcp_arguments_are_tool_errors(s->version)) return rpc_error(m->id, RPC_PARAMS, "%s", e.msg);
        result = tool_failure(e.msg);
    } else if ((unconfirmed = tool_unconfirmed(t, args))) {
        char *text = xasprintf("%s: %s: ask, then call again with \"confirm\": true", name, unconfirmed);
        result = tool_failure(text);
        free(text);
    } else if (calls_open(s) >= SERVER_CALLS_MAX) {
        result = tool_failure("too many calls are under way: wait for one to end");
    } else if (start_call(s, m, t, args, b, &result)) {
        return NULL;
    }
    return rpc_result(m->id, result);
}

static void call_free(struct call *c)
{
    json_decref(c->id);
    json_decref(c->args);
    json_decref(c->token);
    job_free(&c->job);
    free(c);
}

static void finish_call(struct server *s, struct call *c)
{
    if (!c->silent) answer(s, c->batch, rpc_result(c->id, tool_result(s, c)));
    if (c->batch) batch_close(s, c->batch);
    call_free(c);
}

static void step_calls(struct server *s)
{
    double now = clock_seconds();
    for (struct call **at = &s->calls, *c; (c = *at);) {
        if (job_step(&c->job)) {
            *at = c->next;
            finish_call(s, c);
            continue;
        }
        if (c->token && !c->silent && now - c->told >= PROGRESS_EVERY) send_progress(s, c, now);
        at = &c->next;
    }
}

/* --- methods -------------------------------------------------------------------------------------------------------- */

static json_t *initialize(struct server *s, const struct rpc_message *m, struct batch *b)
{
    const char *offered = json_string_value(json_object_get(m->params, "protocolVersion"));
    if (b) return rpc_error(m->id, RPC_INVALID, "initialize stands alone, not in a batch");
    if (s->version) return rpc_error(m->id, RPC_INVALID, "the session is initialized already");
    if (!offered) return rpc_error(m->id, RPC_PARAMS, "initialize: protocolVersion is missing, or no string");
    s->version = mcp_version_for(offered);
    return rpc_result(m->id, json_pack("{s:s, s:{s:{s:b}, s:{s:b, s:b}}, s:{s:s, s:s, s:s}, s:s}", "protocolVersion", mcp_version_name(s->version),
        "capabilities", "tools", "listChanged", 0, "resources", "subscribe", 0, "listChanged", 0,
        "serverInfo", "name", "sm-mcp", "title", "q4sweep", "version", version_string(),
        "instructions", "Repack Gemma QAT checkpoints, check, publish, serve and measure the builds. An endpoint costs money until it is deleted: list shows what runs. "
        "What costs, publishes or deletes needs confirm: true, after the user has agreed."));
}

static json_t *ping(struct server *s, const struct rpc_message *m, struct batch *b)
{
    (void)s, (void)b;
    return rpc_result(m->id, json_object());
}

/* Every list is one page: a cursor cannot be ours. */
static json_t *page(const struct rpc_message *m, const char *key, json_t *list)
{
    json_t *result = json_pack("{s:o}", key, list);
    if (!json_object_get(m->params, "cursor")) return rpc_result(m->id, result);
    json_decref(result);
    return rpc_error(m->id, RPC_PARAMS, "%s: there is no such cursor", m->method);
}

static json_t *list_tools(struct server *s, const struct rpc_message *m, struct batch *b)
{
    (void)s, (void)b;
    return page(m, "tools", tools_list());
}

static json_t *list_resources(struct server *s, const struct rpc_message *m, struct batch *b)
{
    (void)b;
    return page(m, "resources", files_list(s->places));
}

static json_t *list_templates(struct server *s, const struct rpc_message *m, struct batch *b)
{
    (void)s, (void)b;
    return page(m, "resourceTemplates", json_array());
}

static json_t *read_resource(struct server *s, const struct rpc_message *m, struct batch *b)
{
    struct err e = {0};
    const char *uri = json_string_value(json_object_get(m->params, "uri"));
    (void)b;
    if (!uri) return rpc_error(m->id, RPC_PARAMS, "resources/read: the uri is missing, or no string");
    json_t *contents = files_read(s->places, uri, &e);
    if (contents) return rpc_result(m->id, json_pack("{s:o}", "contents", contents));
    return rpc_error(m->id, e.code == EXIT_NOINPUT ? RPC_NO_RESOURCE : RPC_INTERNAL, "%s", e.msg);
}

static void cancelled(struct server *s, const json_t *params)
{
    struct call *c = call_find(s, json_object_get(params, "requestId"));
    if (!c) return;
    c->silent = true;
    job_stop(&c->job);
}

static json_t *answer_request(struct server *s, const struct rpc_message *m, struct batch *b)
{
    static const struct { const char *name; json_t *(*fn)(struct server *, const struct rpc_message *, struct batch *); bool early; } METHODS[] = {
        {"initialize", initialize, true}, {"ping", ping, true}, {"tools/list", list_tools, false}, {"tools/call", call_tool, false},
        {"resources/list", list_resources, false}, {"resources/templates/list", list_templates, false}, {"resources/read", read_resource, false}};
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++) {
        if (strcmp(METHODS[i].name, m->method)) continue;
        if (m->code) return rpc_error(m->id, m->code, "%s: %s", m->method, m->why);
        if (!METHODS[i].early && !s->version) return rpc_error(m->id, RPC_INVALID, "%s: initialize comes first", m->method);
        if (call_find(s, m->id)) return rpc_error(m->id, RPC_INVALID, "the id is in use");
        return METHODS[i].fn(s, m, b);
    }
    return rpc_error(m->id, RPC_NO_METHOD, "%.100s: there is no such method", m->method);
}

static void take_message(struct server *s, const json_t *v, struct batch *b)
{
    struct rpc_message m = rpc_read(v);
    json_t *message = NULL;
    if (m.kind == RPC_BAD) message = rpc_error(m.id, m.code, "%s", m.why);
    else if (m.kind == RPC_REQUEST) message = answer_request(s, &m, b);
    else if (m.kind == RPC_NOTIFICATION && !strcmp(m.method, "notifications/cancelled")) cancelled(s, m.params);
    if (message) answer(s, b, message);
}

static void take_batch(struct server *s, const json_t *list)
{
    size_t i;
    json_t *v;
    if (!mcp_has_batches(s->version)) {
        put(s, rpc_error(NULL, RPC_INVALID, "an array of messages: %s has none", mcp_version_name(s->version)));
    } else if (!json_array_size(list)) {
        put(s, rpc_error(NULL, RPC_INVALID, "an empty array"));
    } else {
        struct batch *b = xcalloc(1, sizeof *b);
        *b = (struct batch){json_array(), 1};
        json_array_foreach((json_t *)list, i, v) take_message(s, v, b);
        batch_close(s, b);
    }
}

static void take_line(struct server *s, const char *line, size_t n)
{
    struct err e = {0};
    size_t blank = 0;
    while (blank < n && strchr(" \t\r", line[blank]) && line[blank]) blank++;
    if (blank == n) return;
    json_t *v = json_parse(line, n, "message", &e);
    if (!v) put(s, rpc_error(NULL, RPC_PARSE, "%s", e.msg));
    else if (json_is_array(v)) take_batch(s, v);
    else take_message(s, v, NULL);
    s->cut = !v;
    json_decref(v);
}

/* --- the loop ------------------------------------------------------------------------------------------------------- */

static int signals[2];

static void on_signal(int sig)
{
    int kept = errno;
    unsigned char byte = (unsigned char)sig;
    if (write(signals[1], &byte, 1) < 0) { }            /* full: one is noticed already */
    errno = kept;
}

static int catch_signals(struct err *e)
{
    static const int SIGNALS[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    if (pipe(signals)) return err_process(e);
    for (int i = 0; i < 2; i++) {
        fcntl(signals[i], F_SETFL, O_NONBLOCK);
        fcntl(signals[i], F_SETFD, FD_CLOEXEC);
    }
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) stop_signal(SIGNALS[i], &a);
    signal(SIGPIPE, SIG_IGN);           /* a client that is gone is noticed where it is written to */
    return 0;
}

/* The signal that asks this program to end, or 0. */
static int read_signals(void)
{
    unsigned char bytes[64];
    int found = 0;
    for (ssize_t n; (n = read(signals[0], bytes, sizeof bytes)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            if (bytes[i] != SIGCHLD) found = bytes[i];
    return found;
}

static void take_lines(struct server *s)
{
    size_t from = 0;
    for (char *end; (end = s->in.n > from ? memchr(s->in.data + from, '\n', s->in.n - from) : NULL); from = (size_t)(end - s->in.data) + 1) {
        if (!s->skipping) take_line(s, s->in.data + from, (size_t)(end - s->in.data) - from);
        s->skipping = false;
    }
    if (from) memmove(s->in.data, s->in.data + from, s->in.n - from + 1);
    s->in.n -= from;
    if (s->in.n > SERVER_LINE_MAX || s->skipping) {
        if (!s->skipping) put(s, rpc_error(NULL, RPC_PARSE, "a message of more than %zu bytes", SERVER_LINE_MAX));
        s->skipping = true;
        s->in.n = 0;
    }
}

static int read_input(struct server *s, struct err *e)
{
    buf_reserve(&s->in, 65536);
    ssize_t n = read(0, s->in.data + s->in.n, 65535);
    if (n < 0) return errno == EINTR || errno == EAGAIN ? 0 : err_errno(e, EXIT_IO, "stdin: cannot be read");
    s->in.n += (size_t)n;
    s->in.data[s->in.n] = 0;
    take_lines(s);
    if (n) return 0;
    s->eof = true;
    s->cut = s->skipping;
    if (s->in.n) take_line(s, s->in.data, s->in.n);     /* a last line without its end */
    return 0;
}

/* At most as much as a pipe that is ready takes at once: never waits.  A reader that is gone ends this program as SIGPIPE would. */
static int write_output(struct server *s, int *sig, struct err *e)
{
    size_t n = s->out.n - s->written;
    ssize_t got = write(1, s->out.data + s->written, n < PIPE_BUF ? n : PIPE_BUF);
    if (got < 0 && errno == EPIPE) *sig = SIGPIPE;
    if (got < 0) return errno == EINTR || errno == EAGAIN || *sig == SIGPIPE ? 0 : err_stdout(e);
    s->written += (size_t)got;
    if (s->written == s->out.n) {
        buf_free(&s->out);
        s->written = 0;
    }
    return 0;
}

static bool has_output(const struct server *s) { return s->out.n > s->written; }

/* Wait until something can be done; then do it. */
static int turn(struct server *s, int *sig, struct err *e)
{
    struct pollfd p[3 + 3 * SERVER_CALLS_MAX] = {{.fd = signals[0], .events = POLLIN}, {.fd = -1, .events = POLLIN}, {.fd = -1, .events = POLLOUT}};
    size_t n = 3;
    if (!s->eof && s->out.n < OUTPUT_FULL) p[1].fd = 0;
    if (has_output(s)) p[2].fd = 1;
    for (const struct call *c = s->calls; c; c = c->next) n += job_poll(&c->job, p + n);
    if (poll(p, n, s->calls ? 250 : -1) < 0 && errno != EINTR) return err_errno(e, EXIT_TEMPFAIL, "cannot wait");
    if (p[0].revents && !*sig) *sig = read_signals();
    step_calls(s);
    if (p[1].revents && read_input(s, e)) return -1;
    return p[2].revents ? write_output(s, sig, e) : 0;
}

static void stop_all(struct server *s)
{
    for (struct call *c = s->calls; c; c = c->next) job_stop(&c->job);
}

/* Until every process has ended, come what may. */
static void end_all(struct server *s)
{
    stop_all(s);
    while (s->calls) {
        poll(&(struct pollfd){.fd = signals[0], .events = POLLIN}, 1, 100);
        read_signals();
        step_calls(s);
    }
}

int server_run(const struct places *places, int *sig, struct err *e)
{
    struct server s = {.places = places, .can_run = true};
    double ended = 0;
    int rc = catch_signals(e);
    *sig = 0;
    while (!rc && !*sig && (!s.eof || s.calls || has_output(&s))) {
        rc = turn(&s, sig, e);
        if (s.eof && !ended) ended = clock_seconds();
        if (s.eof && clock_seconds() - ended > END_GRACE) stop_all(&s);
    }
    end_all(&s);
    while (!rc && !*sig && has_output(&s)) rc = write_output(&s, sig, e);
    if (!rc && s.cut) rc = err_set(e, EXIT_DATA, "stdin: ended within a message");
    buf_free(&s.in);
    buf_free(&s.out);
    return rc;
}

json_t *server_answer(const struct places *places, const char *line, size_t n)
{
    struct server s = {.places = places};
    struct err e = {0};
    static const char HELLO[] = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2024-11-05\"}}";
    take_line(&s, HELLO, sizeof HELLO - 1);
    buf_free(&s.out);
    take_line(&s, line, n);
    json_t *v = s.out.n ? json_parse(s.out.data, s.out.n, "answer", &e) : NULL;
    buf_free(&s.out);
    return v;
}
