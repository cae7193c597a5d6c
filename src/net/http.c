#define _GNU_SOURCE             /* ppoll: requests leave between two milliseconds, too */
#include "net/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/hash.h"

#define CONNECT_MS 10000L
#define KEPT_FOR 4L                     /* seconds without use after which a kept connection is not written to: many servers close it after 5 */

struct exchange {
    struct http_client *client;
    CURL *easy;
    struct curl_slist *headers;
    struct http_sink sink;
    struct http_reply reply;
    struct exchange *prev, *next;   /* the running ones */
    bool written, repeatable;       /* its request has left; it may leave again */
    char fault[CURL_ERROR_SIZE];
};

struct http_client {
    CURLM *multi;
    struct exchange *running;
    int count;
    struct pollfd *set, *ready;     /* what libcurl waits for, after the wake pipe; a copy to work from */
    size_t n, room;
    double readable;                /* when the socket that is being read was found readable; 0 = none is */
    double timer;                   /* when libcurl wants to be called, by clock_seconds(); 0 = not at all */
    int wake[2];
};

static void *resize(void *p, size_t n) { return xreallocarray(p, n, 1); }

/* libcurl 7.88 divides by zero when memory runs out at some places: let it die as we do. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void curl_once(void)
{
    hash_begin();
    if (curl_global_init_mem(CURL_GLOBAL_DEFAULT, xmalloc, free, resize, xstrdup, xcalloc)) die_msg(EXIT_BUG, "libcurl does not start");
}

/* libcurl names each socket and what to wait for on it: so only those that are ready cost anything. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *mine)
{
    struct http_client *c = arg;
    size_t i = 1;
    (void)easy, (void)mine;
    while (i < c->n && c->set[i].fd != fd) i++;
    if (what == CURL_POLL_REMOVE) {
        if (i < c->n) c->set[i] = c->set[--c->n];
        return 0;
    }
    if (i == c->n && c->n++ == c->room) {
        c->room *= 2;
        c->set = xreallocarray(c->set, c->room, sizeof *c->set);
        c->ready = xreallocarray(c->ready, c->room, sizeof *c->ready);
    }
    c->set[i] = (struct pollfd){.fd = fd, .events = (short)((what & CURL_POLL_IN ? POLLIN : 0) | (what & CURL_POLL_OUT ? POLLOUT : 0))};
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *arg)
{
    struct http_client *c = arg;
    (void)multi;
    c->timer = ms < 0 ? 0 : clock_seconds() + (double)ms * 1e-3;
    return 0;
}

/* Neither end blocks: a full pipe wakes as well. */
static int open_wake(int fd[2])
{
    if (pipe(fd)) return -1;
    for (int i = 0; i < 2; i++) {
        fcntl(fd[i], F_SETFD, FD_CLOEXEC);
        fcntl(fd[i], F_SETFL, O_NONBLOCK);
    }
    return 0;
}

static int no_curl(struct err *e) { return err_set(e, EXIT_BUG, "libcurl gives no handle"); }

struct http_client *http_client_new(long connections, struct err *e)
{
    pthread_once(&once, curl_once);
    struct http_client *c = xcalloc(1, sizeof *c);
    if (open_wake(c->wake)) {
        err_process(e);
        free(c);
        return NULL;
    }
    c->multi = curl_multi_init();
    if (!c->multi) {
        close(c->wake[0]);
        close(c->wake[1]);
        free(c);
        no_curl(e);
        return NULL;
    }
    c->n = 1;
    c->room = 16;
    c->set = xcalloc(c->room, sizeof *c->set);
    c->ready = xcalloc(c->room, sizeof *c->ready);
    c->set[0] = (struct pollfd){.fd = c->wake[0], .events = POLLIN};
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, connections);
    curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    return c;
}

/* --- one exchange --------------------------------------------------------------------------------------------------- */

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct exchange *x = arg;
    n *= size;
    if (n >= 5 && !memcmp(p, "HTTP/", 5)) {     /* a new answer: 100 Continue or a redirect came before it */
        x->reply.head.n = 0;
        return n;
    }
    if (n > 2 && x->reply.head.n < ((size_t)1 << 20)) buf_add(&x->reply.head, p, n);
    return n;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    struct exchange *x = arg;
    double at = x->client->readable > 0 ? x->client->readable : clock_seconds();
    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &x->reply.status);
    return x->sink.data(x->sink.arg, &x->reply, p, size * n, at) ? 0 : size * n;
}

/* libcurl has a connection and is about to write.  It would write again, unasked, when a kept connection ends without a byte of an answer: that request may have run. */
static int on_ready(void *arg, char *address, char *own_address, int port, int own_port)
{
    struct exchange *x = arg;
    (void)address, (void)own_address, (void)port, (void)own_port;
    if (x->written && !x->repeatable) return CURL_PREREQFUNC_ABORT;
    x->written = true;
    x->reply.sent = clock_seconds();
    return CURL_PREREQFUNC_OK;
}

static int add_header(struct exchange *x, const char *line)
{
    struct curl_slist *longer = curl_slist_append(x->headers, line);
    if (longer) x->headers = longer;
    return longer ? 0 : -1;
}

/* The variables that the curl program and OpenSSL read; libcurl leaves them to its callers. (Proxies it reads itself.) */
static CURLcode set_authorities(CURL *h)
{
    CURLcode bad = CURLE_OK;
    const char *bundle = getenv("CURL_CA_BUNDLE"), *file = getenv("SSL_CERT_FILE"), *dir = getenv("SSL_CERT_DIR");
    if (!bundle || !*bundle) bundle = file;
    if (bundle && *bundle) bad = curl_easy_setopt(h, CURLOPT_CAINFO, bundle);
    if (!bad && dir && *dir) bad = curl_easy_setopt(h, CURLOPT_CAPATH, dir);
    return bad;
}

/* libcurl copies texts, and so may refuse them: without its method or its protocols a request would be another. */
static int set_up(struct exchange *x, const struct http_request *q)
{
    CURL *h = x->easy;
    bool get = !strcmp(q->method, "GET"), head = !strcmp(q->method, "HEAD");
    x->repeatable = get || head;
    for (const char *const *line = q->headers; line && *line; line++)
        if (add_header(x, *line)) return -1;
    if (q->body && add_header(x, "Expect:")) return -1;     /* no round trip for a 100 Continue */
    if (curl_easy_setopt(h, CURLOPT_URL, q->url) || curl_easy_setopt(h, CURLOPT_USERAGENT, "q4sweep") || curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https") ||
        curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, "http,https") || set_authorities(h)) return -1;
    if (!get && !head && curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, q->method)) return -1;
    if (head) curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
    if (!get && !head) {
        curl_easy_setopt(h, CURLOPT_POST, 1L);
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, q->body ? q->body : "");
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body_n);
    }
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, x->headers);
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, q->redirects && (get || head) ? 1L : 0L);
    curl_easy_setopt(h, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)(q->timeout * 1e3));
    if (q->stall > 0) {
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)(q->stall + 0.999));
    }
    if (q->buffer > 0) curl_easy_setopt(h, CURLOPT_BUFFERSIZE, q->buffer);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, x->fault);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(h, CURLOPT_PREREQFUNCTION, on_ready);
    curl_easy_setopt(h, CURLOPT_PREREQDATA, x);
    curl_easy_setopt(h, CURLOPT_MAXAGE_CONN, KEPT_FOR);
    curl_easy_setopt(h, CURLOPT_PRIVATE, x);
    return 0;
}

static void exchange_free(struct exchange *x)
{
    curl_easy_cleanup(x->easy);
    curl_slist_free_all(x->headers);
    http_reply_free(&x->reply);
    free(x);
}

static int multi_code(CURLMcode bad) { return bad == CURLM_OUT_OF_MEMORY ? EXIT_TEMPFAIL : EXIT_BUG; }

int http_start(struct http_client *c, const struct http_request *q, const struct http_sink *s, struct err *e)
{
    struct exchange *x = xcalloc(1, sizeof *x);
    x->client = c;
    x->sink = *s;
    x->easy = curl_easy_init();     /* a new one: libcurl 7.88, given a used handle, folds a first header line that begins with a blank into memory it has freed */
    if (!x->easy || set_up(x, q)) {
        exchange_free(x);
        return no_curl(e);
    }
    x->reply.sent = clock_seconds();
    CURLMcode bad = curl_multi_add_handle(c->multi, x->easy);
    if (bad) {
        exchange_free(x);
        return err_set(e, multi_code(bad), "%s: %s", q->url, curl_multi_strerror(bad));
    }
    x->next = c->running;
    if (x->next) x->next->prev = x;
    c->running = x;
    c->count++;
    return 0;
}

static void unlink_exchange(struct exchange *x)
{
    struct http_client *c = x->client;
    curl_multi_remove_handle(c->multi, x->easy);
    if (x->prev) x->prev->next = x->next;
    else c->running = x->next;
    if (x->next) x->next->prev = x->prev;
    c->count--;
}

static int fault_code(CURLcode r)
{
    switch (r) {
    case CURLE_OPERATION_TIMEDOUT: case CURLE_OUT_OF_MEMORY: return EXIT_TEMPFAIL;
    case CURLE_URL_MALFORMAT: case CURLE_UNSUPPORTED_PROTOCOL: return EXIT_USAGE;
    case CURLE_PEER_FAILED_VERIFICATION: case CURLE_SSL_CACERT_BADFILE: return EXIT_NOPERM;
    default: return EXIT_UNAVAILABLE;
    }
}

static void finish(struct exchange *x, CURLcode r)
{
    struct err e = {0};
    curl_off_t connect_us = 0;
    char *url = NULL;
    x->reply.done = clock_seconds();
    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &x->reply.status);
    curl_easy_getinfo(x->easy, CURLINFO_CONNECT_TIME_T, &connect_us);
    curl_easy_getinfo(x->easy, CURLINFO_EFFECTIVE_URL, &url);
    x->reply.connect = (double)connect_us * 1e-6;
    if (!r && !x->reply.status) r = CURLE_WEIRD_SERVER_REPLY;       /* libcurl 7.88 takes "HTTP/20. 110" for an answer without a status */
    const char *why = r == CURLE_ABORTED_BY_CALLBACK ? "the kept connection ended before an answer came: the request may have run, and is not sent again"
        : x->fault[0] ? x->fault : curl_easy_strerror(r);
    /* A query may be a signature: messages end before it. */
    if (r) err_set(&e, fault_code(r), "%.*s: %s", (int)strcspn(url ? url : "", "?"), url ? url : "", why);
    unlink_exchange(x);
    x->sink.done(x->sink.arg, &x->reply, &e);
    exchange_free(x);
}

/* --- the loop ------------------------------------------------------------------------------------------------------- */

static int act(struct http_client *c, curl_socket_t fd, int bits, struct err *e)
{
    int running;
    CURLMcode bad = curl_multi_socket_action(c->multi, fd, bits, &running);
    return bad ? err_set(e, multi_code(bad), "http: %s", curl_multi_strerror(bad)) : 0;
}

/* What is new is due at once; so is what waited long enough. */
static int act_on_timer(struct http_client *c, struct err *e)
{
    if (c->timer == 0 || c->timer > clock_seconds()) return 0;
    c->timer = 0;
    return act(c, CURL_SOCKET_TIMEOUT, 0, e);
}

/* Wait for sockets, the timer or a wake, up to `wait` seconds, and move what is ready. */
static int wait_and_move(struct http_client *c, double wait, struct err *e)
{
    char drained[64];
    double until_timer = c->timer > 0 ? c->timer - clock_seconds() : wait;
    if (until_timer < wait) wait = until_timer > 0 ? until_timer : 0;
    struct timespec limit = {(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
    int got = ppoll(c->set, (nfds_t)c->n, &limit, NULL);
    if (got < 0 && errno != EINTR && errno != EAGAIN) return err_errno(e, EXIT_BUG, "http: ppoll");
    c->readable = clock_seconds();      /* now, and not when those before it have been read and understood */
    size_t n = c->n;
    memcpy(c->ready, c->set, n * sizeof *c->set);       /* the set changes while we act */
    for (size_t i = 1; got > 0 && i < n; i++) {
        short r = c->ready[i].revents;
        int bits = (r & (POLLIN | POLLHUP) ? CURL_CSELECT_IN : 0) | (r & POLLOUT ? CURL_CSELECT_OUT : 0) | (r & (POLLERR | POLLNVAL) ? CURL_CSELECT_ERR : 0);
        if (bits && act(c, c->ready[i].fd, bits, e)) return -1;
    }
    c->readable = 0;
    if (got > 0 && c->ready[0].revents)
        while (read(c->wake[0], drained, sizeof drained) == sizeof drained) continue;
    return act_on_timer(c, e);
}

static bool end_some(struct http_client *c)
{
    int left;
    bool any = false;
    for (CURLMsg *m; (m = curl_multi_info_read(c->multi, &left)); any = true) {
        struct exchange *x;
        CURLcode r = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        finish(x, r);
    }
    return any;
}

int http_run(struct http_client *c, double wait, struct err *e)
{
    if (act_on_timer(c, e)) return -1;
    if (end_some(c)) return c->count;
    if (wait_and_move(c, wait, e)) return -1;
    end_some(c);
    return c->count;
}

int http_push(struct http_client *c, struct err *e) { return act_on_timer(c, e); }

void http_wake(struct http_client *c)
{
    if (write(c->wake[1], "", 1) < 0) return;           /* full: it is awake */
}

/* Nothing more is told to `arg`, which may be gone; NULL = to nobody. */
static void forget(struct http_client *c, const void *arg)
{
    for (struct exchange *x = c->running, *next; x; x = next) {
        next = x->next;
        if (arg && x->sink.arg != arg) continue;
        unlink_exchange(x);
        exchange_free(x);
    }
}

void http_client_free(struct http_client *c)
{
    if (!c) return;
    forget(c, NULL);
    curl_multi_cleanup(c->multi);
    close(c->wake[0]);
    close(c->wake[1]);
    free(c->set);
    free(c->ready);
    free(c);
}

/* --- URLs ----------------------------------------------------------------------------------------------------------- */

bool http_names_user(const char *url)
{
    const char *host = strstr(url, "://");
    return host && memchr(host + 3, '@', strcspn(host + 3, "/?#"));
}

char *http_join(const char *url, const char *location)
{
    CURLU *u = curl_url();
    char *joined = NULL, *copy = NULL, *scheme = NULL;
    if (u && !curl_url_set(u, CURLUPART_URL, url, 0) && !curl_url_set(u, CURLUPART_URL, location, 0)
        && !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) && (!strcmp(scheme, "http") || !strcmp(scheme, "https"))
        && !curl_url_get(u, CURLUPART_URL, &joined, 0))
        copy = xstrdup(joined);
    curl_free(joined);
    curl_free(scheme);
    curl_url_cleanup(u);
    return copy;
}

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
    char *x = NULL, *y = NULL;
    bool same = !curl_url_get(a, part, &x, CURLU_DEFAULT_PORT) && !curl_url_get(b, part, &y, CURLU_DEFAULT_PORT) && !strcasecmp(x, y);
    curl_free(x);
    curl_free(y);
    return same;
}

bool http_same_origin(const char *a, const char *b)
{
    CURLU *x = curl_url(), *y = curl_url();
    bool same = x && y && !curl_url_set(x, CURLUPART_URL, a, 0) && !curl_url_set(y, CURLUPART_URL, b, 0)
        && same_part(x, y, CURLUPART_SCHEME) && same_part(x, y, CURLUPART_HOST) && same_part(x, y, CURLUPART_PORT);
    curl_url_cleanup(x);
    curl_url_cleanup(y);
    return same;
}

/* --- replies -------------------------------------------------------------------------------------------------------- */

bool http_header(const struct http_reply *r, const char *name, char *out, size_t n)
{
    size_t len = strlen(name);
    const char *end;
    for (const char *p = r->head.data; p && (end = strstr(p, "\r\n")); p = end + 2) {
        if (strncasecmp(p, name, len) || p[len] != ':') continue;
        const char *from = p + len + 1;
        while (from < end && (*from == ' ' || *from == '\t')) from++;
        while (end > from && (end[-1] == ' ' || end[-1] == '\t')) end--;
        if ((size_t)(end - from) >= n) return false;
        memcpy(out, from, (size_t)(end - from));
        out[end - from] = 0;
        return true;
    }
    return false;
}

long long http_date(const struct http_reply *r, const char *name)
{
    char text[64];
    return http_header(r, name, text, sizeof text) ? (long long)curl_getdate(text, NULL) : -1;
}

void http_reply_free(struct http_reply *r)
{
    buf_free(&r->head);
    buf_free(&r->body);
}

struct fetch {
    struct http_reply *reply;
    size_t max;
    bool done;
    struct err e;
};

static int fetch_data(void *arg, const struct http_reply *r, const char *p, size_t n, double at)
{
    struct fetch *f = arg;
    (void)r, (void)at;
    if (n > f->max - f->reply->body.n) return err_set(&f->e, EXIT_DATA, "the answer is longer than %zu bytes", f->max);
    buf_add(&f->reply->body, p, n);
    return 0;
}

static void fetch_done(void *arg, const struct http_reply *r, const struct err *e)
{
    struct fetch *f = arg;
    struct buf body = f->reply->body;
    *f->reply = *r;
    f->reply->head = (struct buf)BUF_INIT;
    buf_add(&f->reply->head, r->head.data ? r->head.data : "", r->head.n);
    f->reply->body = body;
    if (e->code && !f->e.code) f->e = *e;
    f->done = true;
}

int http_fetch(struct http_client *c, const struct http_request *q, size_t max, struct http_reply *r, struct err *e)
{
    struct fetch f = {.reply = r, .max = max};
    *r = (struct http_reply){0};
    if (http_start(c, q, &(struct http_sink){fetch_data, fetch_done, &f}, e)) return -1;
    while (!f.done)
        if (http_run(c, 1.0, e) < 0) {
            forget(c, &f);
            return -1;
        }
    return f.e.code ? err_set(e, f.e.code, "%s", f.e.msg) : 0;
}
