/* The programs as tools: what each is for, what it takes, and the command line that comes of it.
 *
 * Owns: one table for each tool, from which its input schema is made, arguments are checked and the command is built, so that these cannot disagree.
 * Every string is checked before it stands in a command line: its pattern, its length, no control characters; none can be taken for an option.
 */
#ifndef MCP_TOOLS_H
#define MCP_TOOLS_H
#include "base/json.h"
#include "mcp/job.h"

struct tool;

/* Where the programs and the scripts lie (absolute paths), and where results go. */
struct places { char *bin, *pipelines, *data; const char *out; };

/* The answer to tools/list: an array. */
json_t *tools_list(void);
const struct tool *tool_find(const char *name);

/* Do the arguments (an object, or NULL for none) fit the tool's schema?  -1: e says which does not.  `confirm` may be missing here. */
int tool_check(const struct tool *t, const json_t *args, struct err *e) MUST_CHECK;
/* What needs a yes, when the arguments lack it; else NULL. */
const char *tool_unconfirmed(const struct tool *t, const json_t *args);
/* Checked arguments to a command; -1 when they do not go together. */
int tool_command(const struct tool *t, const struct places *p, const json_t *args, struct command *c, struct err *e) MUST_CHECK;
/* Exit status 1 is an answer, not a failure. */
bool tool_may_say_no(const struct tool *t);
/* The newest lines of the output that are wanted; 0 = all. */
long tool_tail(const struct tool *t, const json_t *args);
#endif
