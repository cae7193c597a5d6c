/* socket-client: the least that a client of a streaming server can do, as a floor for the clocks of others.
 *
 *     socket-client PORT CONCURRENCY COUNT TOKENS PREFIX
 *
 * CONCURRENCY threads, each with one kept connection and one blocking read after another, ask 127.0.0.1:PORT for COUNT chat completions of TOKENS tokens each.
 * A line a request: {"request_id": PREFIX-N, "ttft_ms", "tpot_ms", "e2e_ms"}; a token's time is read when recv() returns with its `"content"` in what it brought; the
 * first, empty one of a role is none.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int port, tokens;
static long count;
static atomic_long next;
static const char *prefix;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int speaks(const char *p)
{
    int n = 0;
    while ((p = strstr(p, "\"content\":"))) {
        p += 10;
        while (*p == ' ') p++;
        n += *p == '"' && p[1] != '"';
    }
    return n;
}

static void ask(int fd, long i)
{
    char body[256], text[1024], part[65537], tail[8] = "";
    double first = 0, last = 0;
    int n = snprintf(body, sizeof body, "{\"model\":\"stub-model\",\"messages\":[{\"role\":\"user\",\"content\":\"why is the sky blue\"}],\"max_tokens\":%d,\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true}}", tokens), seen = 0;
    n = snprintf(text, sizeof text, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nX-Request-ID: %.40s-%ld\r\nContent-Length: %d\r\n\r\n%s",
        port, prefix, i, n, body);
    double sent = now();
    if (write(fd, text, (size_t)n) != n) fail("write");
    for (;;) {
        ssize_t got = recv(fd, part, sizeof part - 1, 0);
        double at = now();
        if (got <= 0) fail("recv");
        part[got] = 0;
        int spoken = speaks(part);
        if (spoken && !seen) first = at;
        if (spoken) last = at;
        seen += spoken;
        /* The last chunk may be cut: what ends it is looked for in what came before, too. */
        char both[16];
        size_t keep = got < 7 ? (size_t)got : 7;
        snprintf(both, sizeof both, "%s%.*s", tail, 7, part + got - keep);
        if (strstr(both, "0\r\n\r\n")) break;
        snprintf(tail, sizeof tail, "%.*s", 7, part + got - keep);
    }
    double done = now();
    if (seen != tokens) fprintf(stderr, "socket-client: %s-%ld: %d tokens\n", prefix, i, seen);
    printf("{\"request_id\":\"%.40s-%ld\",\"ttft_ms\":%.3f,\"tpot_ms\":%.4f,\"e2e_ms\":%.3f}\n", prefix, i, (first - sent) * 1e3, (last - first) * 1e3 / (tokens - 1), (done - sent) * 1e3);
}

static void *work(void *arg)
{
    int fd = dial();
    (void)arg;
    for (long i; (i = atomic_fetch_add(&next, 1)) < count;) ask(fd, i);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[256];
    int n = argc == 6 ? atoi(argv[2]) : 0;
    if (n < 1 || n > 256) {
        fprintf(stderr, "usage: socket-client PORT CONCURRENCY COUNT TOKENS PREFIX\n");
        return 64;
    }
    port = atoi(argv[1]);
    count = atol(argv[3]);
    tokens = atoi(argv[4]);
    prefix = argv[5];
    for (int i = 0; i < n; i++)
        if (pthread_create(&thread[i], NULL, work, NULL)) fail("thread");
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    return 0;
}
