/* The server: messages in, one a line; tools as child processes; answers out as they come.
 *
 * Owns: the session (version, calls under way, batches), the loop.  Nothing in it waits for a child, or for a client that does not read: what is to be
 * written is kept until it can be, and while too much is kept nothing more is read.  Ends when its input has ended (calls under way get a moment,
 * then their processes are told to end), or on a signal.
 */
#ifndef MCP_SERVER_H
#define MCP_SERVER_H
#include "mcp/tools.h"

#define SERVER_LINE_MAX ((size_t)4 << 20)       /* a longer message is refused */
#define SERVER_CALLS_MAX 16                     /* under way at a time */

/* Serve stdin and stdout until the end.  *sig gets the signal that ended it, or 0.  -1: a fault of the machine, or the input ended within a message. */
int server_run(const struct places *p, int *sig, struct err *e) MUST_CHECK;

/* One message without the loop: the answer (new reference), or NULL when there is none.  Starts no process: a call that would is refused.  For tests. */
json_t *server_answer(const struct places *p, const char *line, size_t n);
#endif
