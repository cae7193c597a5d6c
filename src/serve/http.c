#include "serve/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/key.h"

#define IDLE_SECONDS 120u       /* a connection that neither sends nor takes anything */
#define DRAIN_SECONDS 5.0
#define DROPPED_MAX 8           /* times body_max: what is read of a refused body before the connection is cut */

enum answer { NONE, WHOLE, STORED, PIECES, COMPLETE, CUT };  /* STORED = WHOLE, from a file; COMPLETE = PIECES with nothing to come */

/* Shared by libmicrohttpd's thread (until the request is completed) and the handler (until it has answered). */
struct exchange {
    struct http_server *server;
    struct MHD_Connection *connection;
    pthread_mutex_t lock;
    char *method, *path, *target;
    struct buf body;
    size_t seen;                /* bytes of the body, dropped ones included */
    int refusal;                /* 400, 401, 413, 501 or 0 */
    bool handed;                /* the handler has been called */
    int fd;
    /* under the lock: */
    int owners;
    bool suspended, gone, closed;    /* gone: the client is; closed: libmicrohttpd is done with it */
    enum answer answer;
    int status;
    const char *type;
    struct buf fields;          /* "Name: value\n" each */
    int file;
    uint64_t offset, length;    /* of file */
    struct buf out;
    size_t taken;               /* of out, by the connection */
};

struct http_server {
    struct http_server_options o;
    exchange_handler *fn;
    void *arg;
    struct MHD_Daemon *daemon;
    int fd;
    char url[128];
    bool has_key;
    char key[SHA256_HEX];       /* of the key, so that neither a core nor a comparison's time shows it */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int active;
};

/* --- the exchange's life -------------------------------------------------------------------------------------------- */

/* As soon as the first line is in: the only place where libmicrohttpd shows the target as it was sent. */
static void *exchange_new(void *arg, const char *target, struct MHD_Connection *c)
{
    struct http_server *s = arg;
    struct exchange *x = xcalloc(1, sizeof *x);
    x->server = s;
    x->connection = c;
    pthread_mutex_init(&x->lock, NULL);
    x->target = xstrdup(target);
    x->owners = 1;
    x->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    pthread_mutex_lock(&s->lock);
    s->active++;
    pthread_mutex_unlock(&s->lock);
    return x;
}

static void exchange_drop(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool last = --x->owners == 0;
    pthread_mutex_unlock(&x->lock);
    if (!last) return;
    pthread_mutex_destroy(&x->lock);
    free(x->method);
    free(x->path);
    free(x->target);
    buf_free(&x->fields);
    buf_free(&x->body);
    buf_free(&x->out);
    free(x);
}

/* With the lock held: let the connection go on. */
static void wake(struct exchange *x)
{
    if (x->suspended && !x->closed) MHD_resume_connection(x->connection);
    x->suspended = false;
}

static void suspend(struct exchange *x)
{
    MHD_suspend_connection(x->connection);
    x->suspended = true;
}

const char *exchange_method(const struct exchange *x) { return x->method; }
const char *exchange_path(const struct exchange *x) { return x->path; }
const char *exchange_target(const struct exchange *x) { return x->target; }
const struct buf *exchange_body(const struct exchange *x) { return &x->body; }
const char *exchange_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

struct each { void (*fn)(void *arg, const char *name, const char *value); void *arg; };

static enum MHD_Result each_header(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct each *e = arg;
    (void)kind;
    e->fn(e->arg, name, value ? value : "");
    return MHD_YES;
}

void exchange_each_header(const struct exchange *x, void (*fn)(void *arg, const char *name, const char *value), void *arg)
{
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, each_header, &(struct each){fn, arg});
}

/* --- the handler's side --------------------------------------------------------------------------------------------- */

void exchange_field(struct exchange *x, const char *line)
{
    buf_str(&x->fields, line);
    buf_char(&x->fields, '\n');
}

void exchange_answer(struct exchange *x, int status, const char *type, const char *body, size_t n, const char *header)
{
    if (header) exchange_field(x, header);
    pthread_mutex_lock(&x->lock);
    if (x->answer == NONE) {
        x->answer = WHOLE;
        x->status = status;
        x->type = type;
    } else {
        x->answer = COMPLETE;   /* begun already, to see whether the client still reads */
    }
    buf_add(&x->out, body, n);
    wake(x);
    pthread_mutex_unlock(&x->lock);
    exchange_drop(x);
}

void exchange_answer_file(struct exchange *x, int status, const char *type, int fd, uint64_t offset, uint64_t n)
{
    pthread_mutex_lock(&x->lock);
    x->answer = STORED;
    x->status = status;
    x->type = type;
    x->file = fd;
    x->offset = offset;
    x->length = n;
    wake(x);
    pthread_mutex_unlock(&x->lock);
    exchange_drop(x);
}

void exchange_type(struct exchange *x, const char *type)
{
    x->type = type;
}

/* With the lock held. */
static void begin_pieces(struct exchange *x)
{
    if (x->answer != NONE) return;
    x->answer = PIECES;
    x->status = 200;
    if (!x->type) x->type = "application/json";
}

void exchange_push(struct exchange *x, const char *p, size_t n)
{
    pthread_mutex_lock(&x->lock);
    begin_pieces(x);
    if (!x->closed) buf_add(&x->out, p, n);
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

void exchange_end(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    begin_pieces(x);
    x->answer = COMPLETE;
    wake(x);
    pthread_mutex_unlock(&x->lock);
    exchange_drop(x);
}

void exchange_cut(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->answer = CUT;
    wake(x);
    pthread_mutex_unlock(&x->lock);
    exchange_drop(x);
}

/* With the lock held: bytes that mean nothing make the other end show whether it is there. */
static void probe(struct exchange *x)
{
    begin_pieces(x);
    if (x->taken == x->out.n) buf_str(&x->out, strcmp(x->type, "application/json") ? ": \n\n" : " ");
    wake(x);
}

bool exchange_alive(struct exchange *x)
{
    char byte;
    pthread_mutex_lock(&x->lock);
    if (!x->closed && !x->gone) {
        struct pollfd p = {.fd = x->fd, .events = POLLIN};
        if (poll(&p, 1, 0) > 0) {
            if (p.revents & (POLLERR | POLLHUP)) x->gone = true;
            else if (recv(x->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) probe(x);
        }
    }
    bool alive = !x->closed && !x->gone;
    pthread_mutex_unlock(&x->lock);
    return alive;
}

/* --- libmicrohttpd's side ------------------------------------------------------------------------------------------- */

static ssize_t read_pieces(void *arg, uint64_t at, char *to, size_t max)
{
    struct exchange *x = arg;
    (void)at;
    pthread_mutex_lock(&x->lock);
    size_t n = x->out.n - x->taken;
    if (n > max) n = max;
    memcpy(to, x->out.data ? x->out.data + x->taken : "", n);
    x->taken += n;
    if (n && x->taken == x->out.n) {
        x->taken = 0;
        x->out.data[x->out.n = 0] = 0;
    }
    bool end = !n && x->answer == COMPLETE, cut = !n && x->answer == CUT;
    if (!n && !end && !cut) suspend(x);
    pthread_mutex_unlock(&x->lock);
    return n ? (ssize_t)n : end ? MHD_CONTENT_READER_END_OF_STREAM : cut ? MHD_CONTENT_READER_END_WITH_ERROR : 0;
}

static void add_fields(struct MHD_Response *r, const struct exchange *x)
{
    char name[64];
    for (const char *p = x->fields.data; p && *p;) {
        const char *colon = strchr(p, ':'), *end = strchr(p, '\n');
        snprintf(name, sizeof name, "%.*s", (int)(colon - p), p);
        char *value = xstrndup(colon + 2, (size_t)(end - colon - 2));
        MHD_add_response_header(r, name, value);
        free(value);
        p = end + 1;
    }
}

/* Without the lock, which read_pieces takes inside libmicrohttpd's own: what is read here no longer changes once there is an answer. */
static enum MHD_Result queue_answer(struct exchange *x, enum answer answer)
{
    struct MHD_Response *r;
    if (answer == CUT && !x->status) return MHD_NO;     /* nothing of an answer was pushed; else read_pieces cuts behind what was */
    if (answer == STORED) r = MHD_create_response_from_fd_at_offset64(x->length, x->file, x->offset);
    else if (answer == WHOLE) r = MHD_create_response_from_buffer(x->out.n, x->out.data ? x->out.data : "", MHD_RESPMEM_MUST_COPY);
    else r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_pieces, x, NULL);
    if (!r) return MHD_NO;
    add_fields(r, x);
    if (!MHD_get_response_header(r, "Content-Type")) MHD_add_response_header(r, "Content-Type", x->type);
    if (answer > STORED) MHD_add_response_header(r, "Cache-Control", "no-cache");
    enum MHD_Result ok = MHD_queue_response(x->connection, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return ok;
}

static bool key_right(const struct exchange *x)
{
    const struct http_server *s = x->server;
    const char *given = exchange_header(x, "Authorization");
    char hex[SHA256_HEX];
    if (!s->has_key || !strcmp(x->path, "/ping") || !strcmp(x->path, "/health")) return true;
    if (!given || strncmp(given, "Bearer ", 7)) return false;
    sha256_of(given + 7, strlen(given + 7), hex);
    return CRYPTO_memcmp(hex, s->key, sizeof hex) == 0;
}

static void refuse(struct exchange *x)
{
    static const struct { int status; const char *type, *message; } all[] = {
        {400, "BadRequestError", "two lengths for one body: send one Content-Length, or Transfer-Encoding: chunked alone"},
        {401, "AuthenticationError", "missing or wrong API key: send Authorization: Bearer KEY"},
        {413, "BadRequestError", "the body is too large"},
        {501, "NotImplementedError", "Transfer-Encoding: only chunked is understood"}};
    size_t i = 0;
    while (all[i].status != x->refusal) i++;
    x->answer = WHOLE;
    x->status = x->refusal;
    x->type = "application/json";
    if (x->refusal == 401) exchange_field(x, "WWW-Authenticate: Bearer");
    buf_printf(&x->out, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%d}}", all[i].message, all[i].type, x->status);
}

struct framing { const char *length; bool two, chunked, unknown; };

static void each_framing(void *arg, const char *name, const char *value)
{
    struct framing *f = arg;
    if (!strcasecmp(name, "Content-Length")) {
        f->two = f->two || (f->length && strcmp(f->length, value));
        f->length = value;
    } else if (!strcasecmp(name, "Transfer-Encoding")) {
        f->chunked = f->chunked || !strcasecmp(value, "chunked");
        f->unknown = f->unknown || strcasecmp(value, "chunked");
    }
}

/* Where a body ends must not be a guess (RFC 9112, 6.1 and 6.3): a proxy before us may guess otherwise, or we would wait for the connection's end. */
static int framing_fault(const struct exchange *x)
{
    struct framing f = {NULL, false, false, false};
    exchange_each_header(x, each_framing, &f);
    return f.unknown ? 501 : f.two || (f.chunked && f.length) ? 400 : 0;
}

/* The header is in: what can be refused already?  At once where the client waits for that, or where nobody knows what of it to read. */
static enum MHD_Result begin_request(struct exchange *x)
{
    const char *length = exchange_header(x, "Content-Length");
    const int framing = framing_fault(x);
    if (framing) x->refusal = framing;
    else if (!key_right(x)) x->refusal = 401;
    else if (length && strtoull(length, NULL, 10) > x->server->o.body_max) x->refusal = 413;
    if (!x->refusal || (!framing && !exchange_header(x, "Expect"))) return MHD_YES;
    refuse(x);
    return queue_answer(x, WHOLE);
}

static void take_body(struct exchange *x, const char *data, size_t n)
{
    x->seen += n;
    if (!x->refusal && n > x->server->o.body_max - x->body.n) x->refusal = 413;
    if (x->refusal) buf_free(&x->body);
    else buf_add(&x->body, data, n);
}

/* A target may be a whole URL, as a proxy is asked (RFC 9112, 3.2.2).  libmicrohttpd decodes it to a string, which a NUL would end early: such a
 * path stays as it was sent, and so names nothing. */
static const char *path_of(const char *sent, const char *decoded)
{
    const char *nul = strstr(sent, "%00"), *target = nul && nul < sent + strcspn(sent, "?") ? sent : decoded;
    const size_t scheme = !strncasecmp(target, "http://", 7) ? 7 : !strncasecmp(target, "https://", 8) ? 8 : 0;
    const char *path = scheme ? strchr(target + scheme, '/') : target;
    return path ? path : "/";
}

static enum MHD_Result on_access(void *arg, struct MHD_Connection *c, const char *url, const char *method, const char *version,
    const char *data, size_t *n, void **cls)
{
    struct exchange *x = *cls;
    (void)version;
    (void)arg;
    (void)c;
    if (!x->method) {
        x->method = xstrdup(method);
        x->path = xstrdup(path_of(x->target, url));
        return begin_request(x);
    }
    if (*n) {
        take_body(x, data, *n);
        *n = 0;
        return x->seen / DROPPED_MAX > x->server->o.body_max ? MHD_NO : MHD_YES;
    }
    if (!x->handed) {
        x->handed = true;
        if (x->refusal) {
            refuse(x);
        } else {
            x->owners++;
            x->server->fn(x->server->arg, x);
        }
    }
    pthread_mutex_lock(&x->lock);
    enum answer answer = x->answer;
    if (answer == NONE) suspend(x);
    pthread_mutex_unlock(&x->lock);
    return answer == NONE ? MHD_YES : queue_answer(x, answer);
}

static void client_name(struct MHD_Connection *c, char *out, size_t n)
{
    const struct sockaddr *a = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    char host[INET6_ADDRSTRLEN + 8], port[8];
    socklen_t len = a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (getnameinfo(a, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV)) snprintf(out, n, "?");
    else snprintf(out, n, "%s:%s", host, port);
}

static void on_completed(void *arg, struct MHD_Connection *c, void **cls, enum MHD_RequestTerminationCode why)
{
    struct http_server *s = arg;
    struct exchange *x = *cls;
    char client[INET6_ADDRSTRLEN + 16];
    (void)why;
    if (!x) return;
    *cls = NULL;
    pthread_mutex_lock(&x->lock);
    x->closed = true;
    int status = x->status;
    pthread_mutex_unlock(&x->lock);
    if (s->o.log && status && x->method) {
        client_name(c, client, sizeof client);
        s->o.log(client, x->method, x->path, status, MHD_get_reason_phrase_for((unsigned)status));
    }
    exchange_drop(x);
    pthread_mutex_lock(&s->lock);
    s->active--;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

static void on_message(void *arg, const char *format, va_list ap)
{
    char text[512];
    (void)arg;
    vsnprintf(text, sizeof text, format, ap);
    text[strcspn(text, "\n")] = 0;
    note_msg("%s", text);
}

/* --- the server ----------------------------------------------------------------------------------------------------- */

static int read_key(struct http_server *s, struct err *e)
{
    char *key = key_read(s->o.key_file, e);
    if (!key) return -1;
    sha256_of(key, strlen(key), s->key);
    key_free(key);
    s->has_key = true;
    return 0;
}

/* s->fd listens, s->url is known. */
static int listen_on(struct http_server *s, struct err *e)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *a;
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    char port[16], host[64];
    int one = 1;
    snprintf(port, sizeof port, "%ld", s->o.port);
    int bad = getaddrinfo(s->o.address, port, &hints, &a);
    if (bad == EAI_MEMORY || bad == EAI_SYSTEM) return err_set(e, EXIT_TEMPFAIL, "%s: cannot be looked up: %s", s->o.address, gai_strerror(bad));
    if (bad) return err_set(e, EXIT_USAGE, "%s: no numeric address: expected one such as 127.0.0.1", s->o.address);
    s->fd = socket(a->ai_family, SOCK_STREAM, 0);
    if (s->fd >= 0) setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (s->fd < 0 || bind(s->fd, a->ai_addr, a->ai_addrlen) || listen(s->fd, 1024) || getsockname(s->fd, (struct sockaddr *)&bound, &len)) {
        err_errno(e, errno == EACCES ? EXIT_NOPERM : EXIT_UNAVAILABLE, "%s port %s: cannot listen", s->o.address, port);
        freeaddrinfo(a);
        return -1;
    }
    freeaddrinfo(a);
    getnameinfo((struct sockaddr *)&bound, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(s->url, sizeof s->url, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
    return 0;
}

struct http_server *http_server_start(const struct http_server_options *o, exchange_handler *fn, void *arg, struct err *e)
{
    struct http_server *s = xcalloc(1, sizeof *s);
    *s = (struct http_server){.o = *o, .fn = fn, .arg = arg, .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};
    if ((o->key_file && read_key(s, e)) || listen_on(s, e)) goto fail;
    s->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_access, s,
        MHD_OPTION_EXTERNAL_LOGGER, on_message, NULL, MHD_OPTION_LISTEN_SOCKET, s->fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
        MHD_OPTION_URI_LOG_CALLBACK, exchange_new, s, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, MHD_OPTION_CONNECTION_LIMIT, o->connections, MHD_OPTION_END);
    if (s->daemon) return s;
    err_set(e, EXIT_UNAVAILABLE, "%s: the HTTP server does not start", s->url);
fail:
    if (s->fd >= 0) close(s->fd);
    free(s);
    return NULL;
}

const char *http_server_url(const struct http_server *s) { return s->url; }

void http_server_stop(struct http_server *s)
{
    double end = clock_seconds() + DRAIN_SECONDS;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    while (s->active && clock_seconds() < end) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec += 1;
        pthread_cond_timedwait(&s->idle, &s->lock, &t);
    }
    pthread_mutex_unlock(&s->lock);
    MHD_stop_daemon(s->daemon);
    free(s);
}
