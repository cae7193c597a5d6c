/* range-server: an HTTP/1.1 file server for tests of remote sources, right by default and wrong in one precise way on request.
 *
 *     range-server [--tls CERT KEY] [--log FILE] [--fault KIND[:N[:ARG]]]… DIR      prints its base URL, serves until stdin ends
 *
 * GET only; kept connections; single byte ranges; ETag from the file's size and mode of change.  Also the Hub's two paths:
 * /api/models/ORG/NAME/revision/REV ({"sha", "siblings"}) and /ORG/NAME/resolve/SHA/FILE.  A request line with a whole URL (as a proxy gets
 * it) is served the same.  --log: one line a request: status, target, Range, If-Range, Authorization.
 *
 * Faults; N = how many answers they hit (0 = all), counted over ranged requests beyond a file's first bytes ("data answers") unless said otherwise:
 *   cut          half of the body, then the connection closes
 *   status       every request gets status ARG instead (429 and 503 with Retry-After: 0)
 *   busy         every request gets 503 and a Retry-After that is a date, two seconds after the answer's own, which is long past
 *   late         data answers get status ARG
 *   etag         after N data answers the ETag is another
 *   resize       after N data answers the file seems one byte longer
 *   ignore-range the whole file with 200
 *   wrong-range  Content-Range begins one byte later than asked
 *   no-range     206 without Content-Range
 *   capital      Content-Range says "Bytes"
 *   long         one byte more than asked
 *   dribble      100 bytes at a time, 0.2 ms apart
 *   redirect     files under resolve/ are at ARG (a base URL) under a signed name
 *   expire       each signed name is good for N requests, then 403
 *   gated        no answer without "Authorization: Bearer good"
 *   no-commit    the Hub's answer is an empty object
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAD_FIRST 32768        /* ranges that begin at 0 and end before this are a file's first bytes */
#define SHA "0123456789abcdef0123456789abcdef01234567"

enum fault { CUT, STATUS, LATE, ETAG, RESIZE, IGNORE, WRONG, NORANGE, LONG, DRIBBLE, REDIRECT, EXPIRE, GATED, NOCOMMIT, CAPITAL, BUSY, FAULTS };
static const char *const fault_name[FAULTS] = {
    "cut", "status", "late", "etag", "resize", "ignore-range", "wrong-range", "no-range", "long", "dribble", "redirect", "expire", "gated", "no-commit", "capital",
    "busy"};
static struct { bool on; long n, hits; const char *arg; } fault[FAULTS];

static const char *dir;
static FILE *log_file;
static SSL_CTX *tls;
#define SIGNATURES 100000
static long signatures, uses[SIGNATURES];   /* signed names given out, and how often each was asked for */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static _Noreturn void stop(const char *why)
{
    fprintf(stderr, "range-server: %s\n", why);
    exit(1);
}

/* Does the fault hit this answer?  Counts it. */
static bool hits(enum fault f)
{
    if (!fault[f].on)
        return false;
    pthread_mutex_lock(&lock);
    bool hit = fault[f].n == 0 || fault[f].hits < fault[f].n;
    fault[f].hits++;
    pthread_mutex_unlock(&lock);
    return hit;
}

/* … or only the answers after the first N? */
static bool past(enum fault f)
{
    if (!fault[f].on)
        return false;
    pthread_mutex_lock(&lock);
    bool hit = fault[f].hits >= fault[f].n;
    fault[f].hits++;
    pthread_mutex_unlock(&lock);
    return hit;
}

/* --- a connection -------------------------------------------------------------------------------------------------- */

struct conn { int fd; SSL *ssl; };

static int put(struct conn *c, const void *p, size_t n)
{
    for (const char *s = p; n > 0; ) {
        long w = c->ssl ? SSL_write(c->ssl, s, n > 1 << 20 ? 1 << 20 : (int)n) : send(c->fd, s, n, MSG_NOSIGNAL);
        if (w <= 0)
            return -1;
        s += w;
        n -= (size_t)w;
    }
    return 0;
}

static long get(struct conn *c, char *buf, size_t n)
{
    return c->ssl ? SSL_read(c->ssl, buf, (int)n) : recv(c->fd, buf, n, 0);
}

struct request { char target[4096], range[200], if_range[300], authorization[300]; };

static void field(const char *head, const char *name, char *out, size_t n)
{
    const char *p = strcasestr(head, name);
    out[0] = 0;
    if (!p)
        return;
    p += strlen(name);
    p += strspn(p, " ");
    size_t len = strcspn(p, "\r\n");
    snprintf(out, n, "%.*s", (int)len, p);
}

/* Read one request's head; false at the end of the connection.  A client sends the next request after the answer to this one. */
static bool read_request(struct conn *c, struct request *q)
{
    char head[16384];
    size_t n = 0;
    while (n < sizeof head - 1) {
        long got = get(c, head + n, sizeof head - 1 - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
        head[n] = 0;
        if (n >= 4 && memcmp(head + n - 4, "\r\n\r\n", 4) == 0)
            break;
    }
    if (sscanf(head, "GET %4095s HTTP/1.1", q->target) != 1)
        return false;
    field(head, "\r\nRange:", q->range, sizeof q->range);
    field(head, "\r\nIf-Range:", q->if_range, sizeof q->if_range);
    field(head, "\r\nAuthorization:", q->authorization, sizeof q->authorization);
    return true;
}

static void note(const struct request *q, int status)
{
    if (!log_file)
        return;
    pthread_mutex_lock(&lock);
    fprintf(log_file, "%d %s range=%s if-range=%s authorization=%s\n", status, q->target, q->range, q->if_range, q->authorization);
    fflush(log_file);
    pthread_mutex_unlock(&lock);
}

/* A small answer with the given extra header lines. */
static int answer(struct conn *c, const struct request *q, int status, const char *extra, const char *body)
{
    char head[9000];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%s\r\n%s", status, strlen(body), extra, body);
    note(q, status);
    return put(c, head, (size_t)n);
}

/* --- files --------------------------------------------------------------------------------------------------------- */

static int send_body(struct conn *c, int fd, uint64_t from, uint64_t n, bool slow)
{
    static __thread char buf[1 << 18];
    size_t step = slow ? 100 : sizeof buf;
    while (n > 0) {
        ssize_t got = pread(fd, buf, n < step ? (size_t)n : step, (off_t)from);
        if (got <= 0 || put(c, buf, (size_t)got) != 0)
            return -1;
        from += (uint64_t)got;
        n -= (uint64_t)got;
        if (slow)
            nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    return 0;
}

static int send_file(struct conn *c, const struct request *q, int fd, uint64_t size)
{
    unsigned long long a = 0, b = size ? size - 1 : 0;
    bool ranged = sscanf(q->range, "bytes=%llu-%llu", &a, &b) == 2, data = ranged && !(a == 0 && b < HEAD_FIRST);
    char etag[40], head[600], range_line[200] = "";
    if (data && hits(LATE))
        return answer(c, q, atoi(fault[LATE].arg), "Retry-After: 0\r\n", "later");
    snprintf(etag, sizeof etag, "\"%llx%s\"", (unsigned long long)size, data && past(ETAG) ? "b" : "a");
    if (q->if_range[0] && strcmp(q->if_range, etag) != 0)
        ranged = false;
    if (data && past(RESIZE))
        size++;
    if (ranged && a >= size) {
        char extra[100];
        snprintf(extra, sizeof extra, "Content-Range: bytes */%llu\r\n", (unsigned long long)size);
        return answer(c, q, 416, extra, "");
    }
    if (!ranged || hits(IGNORE)) {
        ranged = false;
        a = 0;
        b = size - 1;
    }
    if (b >= size)
        b = size - 1;
    uint64_t n = size ? b - a + 1 : 0, extra = data && hits(LONG) ? 1 : 0;
    bool cut = data && hits(CUT), wrong = data && hits(WRONG);
    if (ranged && !(data && hits(NORANGE)))
        snprintf(range_line, sizeof range_line, "Content-Range: %s %llu-%llu/%llu\r\n", fault[CAPITAL].on ? "Bytes" : "bytes", a + wrong, b, (unsigned long long)size);
    int len = snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nETag: %s\r\nAccept-Ranges: bytes\r\nContent-Length: %llu\r\n%s\r\n",
                       ranged ? 206 : 200, etag, (unsigned long long)(n + extra), range_line);
    note(q, ranged ? 206 : 200);
    if (put(c, head, (size_t)len) != 0 || send_body(c, fd, a, cut ? n / 2 : n, data && fault[DRIBBLE].on) != 0 || cut)
        return -1;
    return extra ? put(c, "x", 1) : 0;
}

static int listing(struct conn *c, const struct request *q)
{
    char body[65536];
    size_t n = (size_t)snprintf(body, sizeof body, "{\"sha\":\"" SHA "\",\"siblings\":[");
    DIR *d = opendir(dir);
    const char *comma = "";
    for (struct dirent *f; d && (f = readdir(d)); )
        if (f->d_name[0] != '.') {
            n += (size_t)snprintf(body + n, sizeof body - n, "%s{\"rfilename\":\"%s\"}", comma, f->d_name);
            comma = ",";
        }
    if (d)
        closedir(d);
    snprintf(body + n, sizeof body - n, "]}");
    if (fault[NOCOMMIT].on)
        strcpy(body, "{}");
    return answer(c, q, 200, "Content-Type: application/json\r\n", body);
}

/* The signed name that a redirect gives: only the newest is valid once names expire. */
static int redirect(struct conn *c, const struct request *q, const char *name)
{
    char extra[5000];
    pthread_mutex_lock(&lock);
    long sig = ++signatures % SIGNATURES;
    pthread_mutex_unlock(&lock);
    snprintf(extra, sizeof extra, "Location: %s/%s?signature=secret%ld\r\n", fault[REDIRECT].arg, name, sig);
    return answer(c, q, 302, extra, "");
}

static int serve(struct conn *c, struct request *q)
{
    char path[5000], *target = q->target;
    static const char resolve[] = "/resolve/" SHA "/";
    if (strncmp(target, "http://", 7) == 0)
        target = strchr(target + 7, '/') ? strchr(target + 7, '/') : "/";
    if (fault[GATED].on && strcmp(q->authorization, "Bearer good") != 0 && !strstr(target, "signature="))
        return answer(c, q, 401, "X-Error-Code: GatedRepo\r\n", "gated");
    if (hits(STATUS))
        return answer(c, q, atoi(fault[STATUS].arg), "Retry-After: 0\r\n", "not now");
    if (hits(BUSY))
        return answer(c, q, 503, "Date: Thu, 01 Jan 2015 00:00:00 GMT\r\nRetry-After: Thu, 01 Jan 2015 00:00:02 GMT\r\n", "not now");
    if (strncmp(target, "/api/models/", 12) == 0)
        return strstr(target, "/revision/missing") ? answer(c, q, 404, "", "") : listing(c, q);
    char *name = strstr(target, resolve);
    if (name && fault[REDIRECT].on)
        return redirect(c, q, name + strlen(resolve));
    name = name ? name + strlen(resolve) : strrchr(target, '/') + 1;
    char *query = strchr(name, '?');
    if (query && fault[EXPIRE].on) {
        long sig = atol(query + strlen("?signature=secret"));
        pthread_mutex_lock(&lock);
        bool expired = sig < 0 || sig >= SIGNATURES || ++uses[sig] > fault[EXPIRE].n;
        pthread_mutex_unlock(&lock);
        if (expired)
            return answer(c, q, 403, "", "expired");
    }
    snprintf(path, sizeof path, "%s/%.*s", dir, query ? (int)(query - name) : (int)strlen(name), name);
    struct stat st;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            close(fd);
        return answer(c, q, 404, "", "no such file");
    }
    int bad = send_file(c, q, fd, (uint64_t)st.st_size);
    close(fd);
    return bad;
}

static void *converse(void *arg)
{
    struct conn c = {(int)(intptr_t)arg, NULL};
    struct request q;
    if (tls) {
        c.ssl = SSL_new(tls);
        SSL_set_fd(c.ssl, c.fd);
        if (SSL_accept(c.ssl) != 1)
            goto out;
    }
    while (read_request(&c, &q) && serve(&c, &q) == 0)
        ;
out:
    SSL_free(c.ssl);
    close(c.fd);
    return NULL;
}

static void *accept_all(void *arg)
{
    for (;;) {
        int fd = accept((int)(intptr_t)arg, NULL, NULL);
        pthread_t t;
        if (fd >= 0 && pthread_create(&t, NULL, converse, (void *)(intptr_t)fd) == 0)
            pthread_detach(t);
    }
    return NULL;
}

/* --- setting up ---------------------------------------------------------------------------------------------------- */

static void add_fault(char *spec)
{
    char *name = strtok(spec, ":"), *n = strtok(NULL, ":"), *arg = n ? strtok(NULL, "") : NULL;
    for (int f = 0; f < FAULTS; f++)
        if (strcmp(name, fault_name[f]) == 0) {
            fault[f].on = true;
            fault[f].n = n ? atol(n) : 0;
            fault[f].arg = arg;
            return;
        }
    stop("unknown fault");
}

static void use_tls(const char *cert, const char *key)
{
    tls = SSL_CTX_new(TLS_server_method());
    if (!tls || SSL_CTX_use_certificate_file(tls, cert, SSL_FILETYPE_PEM) != 1
        || SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1)
        stop("cannot use the certificate");
}

static int listen_somewhere(unsigned *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) != 0 || listen(fd, 64) != 0 || getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        stop("cannot listen");
    *port = ntohs(a.sin_port);
    return fd;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--fault") == 0 && i + 1 < argc)
            add_fault(argv[++i]);
        else if (strcmp(argv[i], "--log") == 0 && i + 1 < argc)
            log_file = fopen(argv[++i], "w");
        else if (strcmp(argv[i], "--tls") == 0 && i + 2 < argc) {
            use_tls(argv[i + 1], argv[i + 2]);
            i += 2;
        } else
            dir = argv[i];
    }
    if (!dir)
        stop("usage: range-server [--tls CERT KEY] [--log FILE] [--fault KIND[:N[:ARG]]]… DIR");
    unsigned port;
    int fd = listen_somewhere(&port);
    pthread_t t;
    if (pthread_create(&t, NULL, accept_all, (void *)(intptr_t)fd) != 0)
        stop("no thread");
    printf("%s://127.0.0.1:%u\n", tls ? "https" : "http", port);
    fflush(stdout);
    char c;
    while (read(0, &c, 1) > 0)
        ;
    return 0;
}
