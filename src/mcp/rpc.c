#include "mcp/rpc.h"

#include <stdarg.h>
#include <string.h>

static const char *const VERSIONS[] = {"", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"};

static struct rpc_message bad(json_t *id, int code, const char *why)
{
    return (struct rpc_message){.kind = RPC_BAD, .id = json_is_string(id) || json_is_integer(id) ? id : NULL, .code = code, .why = why};
}

struct rpc_message rpc_read(const json_t *v)
{
    if (!json_is_object(v)) return bad(NULL, RPC_INVALID, "a message is an object");
    json_t *id = json_object_get(v, "id"), *method = json_object_get(v, "method"), *params = json_object_get(v, "params");
    const char *version = json_string_value(json_object_get(v, "jsonrpc"));
    if (!version || strcmp(version, "2.0")) return bad(id, RPC_INVALID, "expected \"jsonrpc\": \"2.0\"");
    if (!method && (json_object_get(v, "result") || json_object_get(v, "error"))) return (struct rpc_message){.kind = RPC_RESPONSE};
    if (!json_is_string(method)) return bad(id, RPC_INVALID, "the method is missing, or no string");
    if (id && !json_is_string(id) && !json_is_integer(id)) return bad(NULL, RPC_INVALID, "an id is a string or an integer");
    struct rpc_message m = {.kind = id ? RPC_REQUEST : RPC_NOTIFICATION, .id = id, .method = json_string_value(method), .params = params};
    if (params && !json_is_object(params)) {
        m.params = NULL;
        m.code = RPC_PARAMS;            /* told only for a method that is known */
        m.why = "params is no object";
    }
    return m;
}

json_t *rpc_result(json_t *id, json_t *result)
{
    return json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);
}

json_t *rpc_error(json_t *id, int code, const char *fmt, ...)
{
    char text[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return json_pack("{s:s, s:o, s:{s:i, s:o}}", "jsonrpc", "2.0", "id", id ? json_incref(id) : json_null(), "error", "code", code, "message", json_message(text));
}

json_t *rpc_notification(const char *method, json_t *params)
{
    return json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params);
}

enum mcp_version mcp_version_for(const char *offered)
{
    for (enum mcp_version v = MCP_2024_11; v <= MCP_2025_11; v++)
        if (!strcmp(VERSIONS[v], offered)) return v;
    return MCP_2025_11;
}

const char *mcp_version_name(enum mcp_version v) { return VERSIONS[v]; }

bool mcp_has_batches(enum mcp_version v) { return v < MCP_2025_06; }

bool mcp_arguments_are_tool_errors(enum mcp_version v) { return v >= MCP_2025_11; }
