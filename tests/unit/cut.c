/* An answer that is cut: what was pushed before is sent first, however fast the cut follows; nothing pushed, nothing sent. */
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "serve/http.h"

/* The handler runs in the server's own thread, which has no chance to send anything before the cut. */
static void push_and_cut(void *arg, struct exchange *x)
{
    exchange_type(x, "text/plain");
    if (*(const char *)arg) exchange_push(x, arg, strlen(arg));
    exchange_cut(x);
}

/* Everything the server at url sends for one request until it closes the connection. */
static const char *asked(const char *url, char *out, size_t n)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned port;
    size_t got = 0;
    ssize_t k;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert(sscanf(url, "http://127.0.0.1:%u", &port) == 1);
    a.sin_port = htons((unsigned short)port);
    assert(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    assert(write(fd, request, sizeof request - 1) == sizeof request - 1);
    while ((k = read(fd, out + got, n - 1 - got)) > 0) got += (size_t)k;
    assert(k == 0);
    out[got] = 0;
    close(fd);
    return out;
}

static void cut_behind(char *text, const char *last)
{
    struct http_server_options o = {.address = "127.0.0.1", .body_max = 1000, .connections = 8};
    struct err e = {0};
    char out[4096];
    struct http_server *s = http_server_start(&o, push_and_cut, text, &e);
    assert(s);
    for (int i = 0; i < 50; i++) {
        const char *answer = asked(http_server_url(s), out, sizeof out);
        size_t n = strlen(answer);
        assert(*last ? !strncmp(answer, "HTTP/1.1 200 ", 13) && n > strlen(last) && !strcmp(answer + n - strlen(last), last) : n == 0);
    }
    http_server_stop(s);
    printf("%s cut: ok\n", *text ? text : "nothing,");
}

int main(void)
{
    cut_behind((char[]){"half"}, "\r\n\r\n4\r\nhalf\r\n");
    cut_behind((char[]){""}, "");
    return 0;
}
