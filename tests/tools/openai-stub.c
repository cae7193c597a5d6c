/* openai-stub: an OpenAI-compatible server that misbehaves on request.  Prints its URL, serves until killed.
 *
 * The answer to a POST is max_tokens (default 4) words "w0 w1 …", streamed with "stream": true.  A word in the body changes that:
 *   STATUS:nnn  that status with an error object      CUT     a stream that breaks off      HANG   no answer
 *   ODD         a stream in pieces of one byte, with \r\n, comments, an empty role chunk and two choices
 *   SHORT       a stream that ends whole, but before its end is told
 *   LATE        an error event inside the stream      HTML    200 with a page               ECHO   the text is the body
 *   LATIN       500 with text that is no UTF-8        EMPTY:nnn  that status and nothing more
 *   SLOW        the answer comes after 100 ms         DROP    the connection ends without an answer
 * A field "raw" is the whole answer.
 * GET /v1/models lists "stub-model"; GET /stats: {"connections", "requests", "at_once"} of the POSTs so far. */
#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static atomic_long connections, requests, running, at_once;

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static int put(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t w = write(fd, s, n);
        if (w <= 0) return -1;
        s += w;
        n -= (size_t)w;
    }
    return 0;
}

static int reply(int fd, int status, const char *type, const char *text)
{
    char head[256];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", status, type, strlen(text));
    return put(fd, head, (size_t)n) || put(fd, text, strlen(text)) ? -1 : 0;
}

static int chunk(int fd, const char *text, size_t n)
{
    char head[32];
    int k = snprintf(head, sizeof head, "%zx\r\n", n);
    return put(fd, head, (size_t)k) || put(fd, text, n) || put(fd, "\r\n", 2) ? -1 : 0;
}

static int event(int fd, const char *data, int odd)
{
    char text[4096];
    int n = snprintf(text, sizeof text, odd ? ": comment\r\nid: 7\r\ndata: %s\r\n\r\n" : "data: %s\n\n", data);
    for (int i = 0; odd && i < n; i++)
        if (chunk(fd, text + i, 1)) return -1;
    return odd ? 0 : chunk(fd, text, (size_t)n);
}

static int stream(int fd, const char *body, int chat, long tokens)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    int odd = strstr(body, "ODD") != NULL, bad = put(fd, head, sizeof head - 1);
    char text[512];
    if (odd) bad |= event(fd, "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}", odd);
    for (long i = 0; i < tokens && !bad; i++) {
        if (i == 2 && strstr(body, "CUT")) return -1;
        if (i == 2 && strstr(body, "SHORT")) return put(fd, "0\r\n\r\n", 5);
        if (i == 2 && strstr(body, "LATE")) return event(fd, "{\"error\":{\"message\":\"fell over\",\"code\":500}}", 0) | put(fd, "0\r\n\r\n", 5);
        const char *end = i + 1 == tokens ? "\"length\"" : "null";
        snprintf(text, sizeof text, chat ? "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"w%ld \"},\"finish_reason\":%s}]}"
            : "{\"choices\":[{\"index\":0,\"text\":\"w%ld \",\"finish_reason\":%s}]}", i, end);
        bad |= event(fd, text, odd);
        if (odd) bad |= event(fd, "{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}", odd);
        pause_ms(2);
    }
    snprintf(text, sizeof text, "{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":%ld}}", tokens);
    if (strstr(body, "\"include_usage\":true")) bad |= event(fd, text, odd);
    return bad | event(fd, "[DONE]", odd) | put(fd, "0\r\n\r\n", 5);
}

static int whole(int fd, const char *body, int chat, long tokens)
{
    char words[4096] = "";
    for (long i = 0; i < tokens; i++) sprintf(words + strlen(words), "w%ld ", i);
    json_t *text = json_string(strstr(body, "ECHO") ? body : words);
    json_t *choice = chat ? json_pack("{s:i,s:{s:o},s:s}", "index", 0, "message", "content", text, "finish_reason", "length")
        : json_pack("{s:i,s:o,s:s}", "index", 0, "text", text, "finish_reason", "length");
    json_t *v = json_pack("{s:s,s:[o],s:{s:i,s:I}}", "id", "stub", "choices", choice, "usage", "prompt_tokens", 7, "completion_tokens", (json_int_t)tokens);
    char *out = json_dumps(v, JSON_COMPACT);
    int rc = reply(fd, 200, "application/json", out);
    free(out);
    json_decref(v);
    return rc;
}

static int raw(int fd, const char *body)
{
    json_t *v = json_loads(body, JSON_DISABLE_EOF_CHECK, NULL);
    const char *text = json_string_value(json_object_get(v, "raw"));
    int rc = reply(fd, 200, "application/json", text ? text : "");
    json_decref(v);
    return rc;
}

static int post(int fd, const char *path, const char *body)
{
    const char *status = strstr(body, "STATUS:"), *max = strstr(body, "\"max_tokens\":");
    long tokens = max ? atol(max + 13) : 4;
    int chat = strstr(path, "/chat/") != NULL;
    if (strstr(body, "DROP")) return -1;
    if (strstr(body, "HANG")) pause_ms(60000);
    if (strstr(body, "SLOW")) pause_ms(100);
    if (status) return reply(fd, atoi(status + 7), "application/json", "{\"error\":{\"message\":\"told to fail\",\"type\":\"t\",\"param\":null,\"code\":1}}");
    if (strstr(body, "EMPTY:")) return reply(fd, atoi(strstr(body, "EMPTY:") + 6), "application/json", "");
    if (strstr(body, "\"raw\"")) return raw(fd, strchr(body, '{'));
    if (strstr(body, "LATIN")) return reply(fd, 500, "text/plain", "d\xe9sol\xe9");
    if (strstr(body, "HTML")) return reply(fd, 200, "text/html", "<html>hello</html>");
    if (strncmp(path, "/v1/completions ", 16) && strncmp(path, "/v1/chat/completions ", 21)) return reply(fd, 404, "application/json", "{\"detail\":\"Not Found\"}");
    return strstr(body, "\"stream\":true") ? stream(fd, body, chat, tokens) : whole(fd, body, chat, tokens);
}

static int get(int fd, const char *path)
{
    char text[256];
    if (!strncmp(path, "/v1/models ", 11)) return reply(fd, 200, "application/json", "{\"object\":\"list\",\"data\":[{\"id\":\"stub-model\"}]}");
    snprintf(text, sizeof text, "{\"connections\":%ld,\"requests\":%ld,\"at_once\":%ld}\n", (long)connections, (long)requests, (long)at_once);
    return reply(fd, 200, "application/json", text);
}

/* One request at the start of in[0..*have); -1 ends the connection. */
static int one(int fd, char *in, size_t size, size_t *have)
{
    char *end;
    in[*have] = 0;
    while (!(end = strstr(in, "\r\n\r\n"))) {
        ssize_t n = *have < size - 1 ? read(fd, in + *have, size - 1 - *have) : 0;
        if (n <= 0) return -1;
        in[*have += (size_t)n] = 0;
    }
    const char *length = in;
    while (length && strncasecmp(length, "\ncontent-length:", 16)) length = strchr(length + 1, '\n');
    size_t body = length && length < end ? strtoul(length + 16, NULL, 10) : 0, head = (size_t)(end + 4 - in);
    while (*have < head + body) {
        ssize_t n = *have < size - 1 ? read(fd, in + *have, size - 1 - *have) : 0;
        if (n <= 0) return -1;
        in[*have += (size_t)n] = 0;
    }
    char *path = strchr(in, ' ') + 1, kept = in[head + body];
    int rc;
    in[head + body] = 0;
    if (!strncmp(in, "POST", 4)) {
        long now = ++running;
        if (!requests++ || now > at_once) at_once = now;
        rc = post(fd, path, in + head);
        running--;
    } else {
        rc = get(fd, path);
    }
    in[head + body] = kept;
    memmove(in, in + head + body, *have -= head + body);
    return rc;
}

static void *serve(void *arg)
{
    int fd = (int)(long)arg, yes = 1;
    size_t size = (size_t)16 << 20, have = 0;
    char *in = malloc(size);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    connections++;
    while (!one(fd, in, size, &have)) { }
    close(fd);
    free(in);
    return NULL;
}

int main(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    signal(SIGPIPE, SIG_IGN);
    if (bind(s, (void *)&a, sizeof a) || listen(s, 1024) || getsockname(s, (void *)&a, &len)) return perror("openai-stub"), 69;
    printf("http://127.0.0.1:%d\n", ntohs(a.sin_port));
    fflush(stdout);
    for (;;) {
        pthread_t t;
        int fd = accept(s, NULL, NULL);
        if (fd >= 0 && !pthread_create(&t, NULL, serve, (void *)(long)fd)) pthread_detach(t);
    }
}
