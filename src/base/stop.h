/* When a server is asked to stop: by SIGTERM, SIGINT or SIGHUP, or by the end of its standard input.
 *
 * Owns: those signals and SIGPIPE (ignored: a client that hangs up is no reason to end), one pipe for the process.
 */
#ifndef BASE_STOP_H
#define BASE_STOP_H
#include <signal.h>
#include <stdbool.h>

#define STOP_NOT_YET (-1)
#define STOP_EOF 0

/* sigaction() for a signal that asks to end, but a program started with nohup stays deaf to SIGHUP. */
void stop_signal(int sig, const struct sigaction *a);
/* Call once, before threads are made.  at_once: a second signal ends the process with 128 + its number.  Dies with EXIT_TEMPFAIL. */
void stop_catch(bool at_once);
/* Wait at most ms (-1: without end): the signal's number; STOP_EOF, with until_eof alone, when stdin has ended (what comes before is dropped); STOP_NOT_YET. */
int stop_asked(bool until_eof, int ms);
#endif
