/* The process of a container: started, its output read line by line, stopped.
 *
 * Owns: the process (a group of its own, which dies with this program), its pipes.  Its standard input stays open as long as it may live.
 * Start from the main thread only: the kernel ties the process's life to the thread that made it.
 */
#ifndef REHEARSE_CONTAINER_H
#define REHEARSE_CONTAINER_H
#include <stdbool.h>
#include <sys/types.h>
#include "base/buf.h"

struct container { pid_t pid; int in, out; struct buf line; int port; };

/* A port of loopback that is free now. */
int free_port(void);
/* /bin/sh -c COMMAND with NAME=VALUE pairs (NULL-terminated) besides this program's environment; 0, or -1 when nothing could be started. */
int container_start(struct container *c, const char *command, char *const *env, struct err *e) MUST_CHECK;
/* Hand every complete line that has come to fn; does not wait.  False once the process has ended: then status holds what waitpid said, and the
 * container can be started again. */
bool container_poll(struct container *c, void (*fn)(void *arg, const char *line, size_t n), void *arg, int *status);
void container_signal(const struct container *c, int sig);      /* to the whole group; nothing when it does not run */
#endif
