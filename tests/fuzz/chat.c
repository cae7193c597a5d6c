/* Any JSON as a request to the three chat templates.  What is written begins with <bos>; what is refused is bad data and writes nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "engine/chat.h"
#include "fuzz.h"

static struct chat *opened(enum chat_variant v)
{
    static struct chat *chat[3];
    if (chat[v] == NULL) {
        char dir[] = "/tmp/fuzz-chat.XXXXXX";
        if (mkdtemp(dir) == NULL)
            abort();
        char *path = xasprintf("%s/chat_template.jinja", dir);
        FILE *f = fopen(path, "w");
        if (f == NULL || fputs(chat_own_template(v), f) == EOF || fclose(f) != 0)
            abort();
        struct err e = {0};
        chat[v] = chat_open(dir, NULL, &e);
        if (chat[v] == NULL)
            die(&e);
        unlink(path);
        rmdir(dir);
        free(path);
    }
    return chat[v];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    json_t *request = json_parse((const char *)data, n, "fuzz", &e);
    for (int v = CHAT_GEMMA3; request && v <= CHAT_GEMMA4_LARGE; v++) {
        struct buf out = BUF_INIT;
        struct err why = {0};
        buf_str(&out, "before");
        int bad = chat_render(opened((enum chat_variant)v), request, &out, &why);
        if (bad ? out.n != 6 || why.code != EXIT_DATA : strncmp(out.data, "before<bos>", 11) != 0)
            abort();
        buf_free(&out);
    }
    json_decref(request);
    return 0;
}
