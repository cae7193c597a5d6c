/* A command as a child process: started without a shell, fed, listened to, ended.
 *
 * Owns: the process (leader of a group of its own, told to end when this program dies), its three pipes.  Nothing here blocks: the caller polls
 * the descriptors, calls job_step() when something is ready or a child has ended, and gets what was written once it is over.
 */
#ifndef MCP_JOB_H
#define MCP_JOB_H
#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>
#include "base/buf.h"

struct command {
    char **argv;                /* NULL-terminated; argv[0] is the program's path */
    size_t argc;
    struct buf input;           /* for its stdin */
};
void command_add(struct command *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
void command_free(struct command *c);

/* Of what a job writes the newest is kept. */
#define JOB_OUTPUT_MAX ((size_t)4 << 20)

struct job {
    pid_t pid;                  /* 0 = none, or over */
    int in, out, err;           /* -1 = closed */
    struct buf input;
    size_t sent;
    struct buf output, errors;
    size_t dropped;             /* bytes that were left out of output */
    double stop_at;             /* when it was told to end; 0 = was not */
    int status;                 /* exit status, or 128 + signal */
};

/* Takes c->input over. */
int job_start(struct job *j, struct command *c, struct err *e) MUST_CHECK;
/* The descriptors to poll; returns how many of the three were filled in. */
size_t job_poll(const struct job *j, struct pollfd *p);
/* Move what can be moved.  True when the process has ended and all it wrote is here. */
bool job_step(struct job *j);
/* Ask the group to end; asked again after a while, it is killed. */
void job_stop(struct job *j);
void job_free(struct job *j);
#endif
