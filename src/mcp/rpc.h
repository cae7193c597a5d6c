/* JSON-RPC 2.0 as the Model Context Protocol uses it: what a message is, and the messages that go back.
 *
 * Owns: the classification of one parsed value, the error codes, the protocol versions (https://modelcontextprotocol.io/specification, 2024-11-05 to 2025-11-25).
 * Knows no method.
 */
#ifndef MCP_RPC_H
#define MCP_RPC_H
#include "base/json.h"

enum rpc_code {
    RPC_PARSE = -32700, RPC_INVALID = -32600, RPC_NO_METHOD = -32601, RPC_PARAMS = -32602, RPC_INTERNAL = -32603,
    RPC_NO_RESOURCE = -32002
};

enum rpc_kind { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESPONSE, RPC_BAD };

/* All pointers are borrowed from the value. */
struct rpc_message {
    enum rpc_kind kind;
    json_t *id;                 /* of a request; of a bad message when it can be told, else NULL */
    const char *method;
    json_t *params;             /* an object, or NULL */
    int code;                   /* of a bad message, with why */
    const char *why;
};

struct rpc_message rpc_read(const json_t *v);

/* New references; `id` NULL is null.  rpc_result takes `result` over. */
json_t *rpc_result(json_t *id, json_t *result);
json_t *rpc_error(json_t *id, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
json_t *rpc_notification(const char *method, json_t *params);

/* Versions in the order of their dates; an unknown one is answered with the newest. */
enum mcp_version { MCP_NONE, MCP_2024_11, MCP_2025_03, MCP_2025_06, MCP_2025_11 };
enum mcp_version mcp_version_for(const char *offered);
const char *mcp_version_name(enum mcp_version v);
/* Arrays of messages: JSON-RPC has them, 2025-06-18 took them out. */
bool mcp_has_batches(enum mcp_version v);
/* Wrong arguments of a tool: an error of the protocol until 2025-06-18, then one of the tool, which the model sees. */
bool mcp_arguments_are_tool_errors(enum mcp_version v);
#endif
