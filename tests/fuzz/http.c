/* Any bytes as what a server sends: to a fetch, and to a remote checkpoint, whose ranges, ETags, redirects and lengths they then are. */
#include <stdio.h>
#include "fuzz.h"
#include "net/http.h"
#include "net/remote.h"
#include "server.h"

static void fetch(struct http_client *c, const char *url)
{
    struct err e = {0};
    struct http_reply r;
    char value[200];
    struct http_request q = {.method = "GET", .url = url, .timeout = 5, .redirects = true};
    int bad = http_fetch(c, &q, (size_t)1 << 20, &r, &e);
    if (bad ? e.code == 0 || e.code == EXIT_BUG : r.status == 0)
        abort();
    if (http_header(&r, "content-type", value, sizeof value) && strlen(value) >= sizeof value)
        abort();
    if (!bad && http_header(&r, "location", value, sizeof value)) {
        char *to = http_join(url, value);
        if (to)
            (void)http_same_origin(url, to);
        free(to);
    }
    http_reply_free(&r);
}

/* No more than was planned may come, whatever the server says of lengths. */
static void read_remote(const char *url)
{
    struct err e = {0};
    struct remote *r = remote_open(url, &(struct remote_options){.connections = 2, .retries = 0}, &e);
    if (r) {
        const struct remote_range range[] = {{"m.safetensors", 0, 64}, {"m.safetensors", 100, 5000}};
        const char *p;
        long k, sum = 0;
        if (remote_plan(r, range, 2, &e) == 0)
            while ((k = remote_next(r, &p, 4096, &e)) > 0)
                sum += k;
        if (sum > 5064)
            abort();
    }
    if (!r && (e.code == 0 || e.code == EXIT_BUG))
        abort();
    remote_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct http_client *c;
    struct err e = {0};
    char url[80];
    int port = server_answers(data, n);
    prog_verbosity = -1;
    if (!c)
        c = http_client_new(1, &e);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/m.safetensors", port);
    fetch(c, url);
    read_remote(url);
    return 0;
}
