/* A server on loopback that answers every connection with the same bytes, whatever is asked, and closes it. */
#ifndef TESTS_FUZZ_SERVER_H
#define TESTS_FUZZ_SERVER_H
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct { pthread_mutex_t lock; uint8_t p[1 << 16]; size_t n; } server_answer = {.lock = PTHREAD_MUTEX_INITIALIZER};
static int server_socket;

static void *server_run(void *unused)
{
    (void)unused;
    for (;;) {
        char ask[4096];
        size_t have = 0;
        int fd = accept(server_socket, NULL, NULL);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))        /* libFuzzer's alarm; a client that is gone already */
            continue;
        if (fd < 0)
            abort();
        /* The whole request, so that closing does not reset the connection before the answer is read. */
        while (have < sizeof ask - 1) {
            ssize_t k = read(fd, ask + have, sizeof ask - 1 - have);
            if (k <= 0)
                break;
            have += (size_t)k;
            ask[have] = 0;
            if (strstr(ask, "\r\n\r\n"))
                break;
        }
        pthread_mutex_lock(&server_answer.lock);        /* fits into the socket's buffer: sending does not wait for the client */
        if (send(fd, server_answer.p, server_answer.n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            have = 0;                                   /* the client is gone already */
        pthread_mutex_unlock(&server_answer.lock);
        close(fd);
    }
    return NULL;
}

/* Answer with these bytes, 64 KiB at most, from now on; the port. */
static int server_answers(const uint8_t *p, size_t n)
{
    static int port;
    if (!port) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof a;
        pthread_t t;
        server_socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (server_socket < 0 || bind(server_socket, (struct sockaddr *)&a, sizeof a) != 0 || listen(server_socket, 64) != 0 ||
            getsockname(server_socket, (struct sockaddr *)&a, &len) != 0 || pthread_create(&t, NULL, server_run, NULL) != 0)
            abort();
        pthread_detach(t);
        port = ntohs(a.sin_port);
    }
    pthread_mutex_lock(&server_answer.lock);
    server_answer.n = n < sizeof server_answer.p ? n : sizeof server_answer.p;
    memcpy(server_answer.p, p, server_answer.n);
    pthread_mutex_unlock(&server_answer.lock);
    return port;
}
#endif
