/* kept-connection: the least that a call over a kept connection costs.
 *
 *     kept-connection PORT PATH COUNT < BODY
 *
 * POSTs the body COUNT times to 127.0.0.1:PORT, one after another on one connection, reading each answer whole; prints the median of a call in ms.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void call(int fd, const char *request, size_t n)
{
    char answer[65537];
    size_t got = 0;
    if (write(fd, request, n) != (ssize_t)n) fail("write");
    for (char *end = NULL, *length;;) {
        ssize_t k = recv(fd, answer + got, sizeof answer - 1 - got, 0);
        if (k <= 0) fail("recv");
        answer[got += (size_t)k] = 0;
        if (!end && !(end = strstr(answer, "\r\n\r\n"))) continue;
        if (!(length = strstr(answer, "Content-Length:"))) fail("no Content-Length");
        if (got >= (size_t)(end + 4 - answer) + strtoul(length + 15, NULL, 10)) return;
    }
}

int main(int argc, char **argv)
{
    char body[8192], request[16384];
    if (argc != 4) {
        fprintf(stderr, "usage: kept-connection PORT PATH COUNT < BODY\n");
        return 64;
    }
    int port = atoi(argv[1]), on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    long count = atol(argv[3]);
    size_t n = fread(body, 1, sizeof body, stdin);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int m = snprintf(request, sizeof request, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%.*s", argv[2], port, n, (int)n, body);
    double *took = calloc((size_t)count + 1, sizeof *took);
    for (int i = 0; i < 5; i++) call(fd, request, (size_t)m);
    for (long i = 0; i < count; i++) {
        double t = now_ms();
        call(fd, request, (size_t)m);
        took[i] = now_ms() - t;
    }
    qsort(took, (size_t)count, sizeof *took, by_value);
    printf("%.4f\n", took[count / 2]);
    return 0;
}
