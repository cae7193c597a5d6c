/* Any bytes as a message to sm-mcp.  Each answer is a message; a command that comes of arguments holds no control character and no empty program, whatever they say. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "mcp/server.h"

static const struct places PLACES = {.bin = (char *)"/bin", .pipelines = (char *)"/pipelines", .data = (char *)"/no/data", .out = "/no/out"};

static void check_answer(json_t *v)
{
    const char *version = json_string_value(json_object_get(v, "jsonrpc"));
    json_t *code = json_object_get(json_object_get(v, "error"), "code");
    if (json_object_get(v, "method"))
        return;                                 /* a notification */
    if (version == NULL || strcmp(version, "2.0") != 0 || json_object_get(v, "id") == NULL)
        abort();
    if (!json_is_object(json_object_get(v, "result")) == !json_is_integer(code))
        abort();
}

static void check_arguments(const json_t *message)
{
    json_t *params = json_object_get(message, "params"), *args = json_object_get(params, "arguments");
    const char *name = json_string_value(json_object_get(params, "name"));
    const struct tool *t = name == NULL ? NULL : tool_find(name);
    struct command c;
    struct err e = {0};
    if (t == NULL || (args && !json_is_object(args)))
        return;
    if (tool_command(t, &PLACES, args, &c, &e) == 0)
        for (size_t i = 0; i < c.argc; i++)
            for (const char *p = c.argv[i]; *p != 0; p++)
                if (iscntrl((unsigned char)*p))
                    abort();
    command_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    json_t *answer = server_answer(&PLACES, (const char *)data, n), *message = json_parse((const char *)data, n, "fuzz", &e), *v;
    size_t i;
    if (json_is_array(answer))
        json_array_foreach(answer, i, v) check_answer(v);
    else if (answer != NULL)
        check_answer(answer);
    check_arguments(message);
    json_decref(message);
    json_decref(answer);
    return 0;
}
