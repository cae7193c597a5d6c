/* Errors, warnings and the program's name.
 *
 * Owns: the one way in which every program reports a fault: `tool: file: what is wrong: what to do`, one line on
 * stderr, control characters escaped, and an exit code from sysexits.h.  Library functions return 0 or -1 (or NULL) and
 * fill a struct err; only programs call die().  Running out of memory dies on the spot (75): no caller could go on.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H
#include <regex.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum exit_code {
    EXIT_NO = 1,            /* the answer is no */
    EXIT_USAGE = 64, EXIT_DATA = 65, EXIT_NOINPUT = 66, EXIT_UNAVAILABLE = 69, EXIT_BUG = 70,
    EXIT_IO = 74, EXIT_TEMPFAIL = 75, EXIT_NOPERM = 77
};

struct err {
    int code;               /* an exit_code; 0 = no error */
    char msg[1024];         /* without the tool's name, no newline */
};

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define MUST_CHECK __attribute__((warn_unused_result))

/* Set once by prog_init(); "ct-pack". */
extern const char *prog_name;
/* -1 with -q, 0, 1 with -v. */
extern int prog_verbosity;

/* Call first in main: takes the name from argv[0], fixes the C locale, restores SIGPIPE to its default (a closed reader
 * ends a filter quietly with 128+13), and makes sure that fds 0..2 are open. */
void prog_init(const char *argv0);

/* A secret is in memory: from now on no core file is written. */
void prog_no_core(void);

/* Fill e and return -1.  err_errno appends ": strerror(errno)" and makes want of memory EXIT_TEMPFAIL, whatever the code; a disk that is full and every other write or read
 * fault are EXIT_IO.  The first error wins: if e->code is set already it is kept. */
int err_set(struct err *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
int err_errno(struct err *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Is it the machine's or the network's fault (EXIT_IO, EXIT_TEMPFAIL, EXIT_UNAVAILABLE), so that it says nothing about the data? */
bool err_of_machine(const struct err *e);

/* Print "prog: msg" and exit with e->code (EXIT_BUG if it is 0), after removing unfinished output (cleanup.h). */
_Noreturn void die(const struct err *e);
_Noreturn void die_msg(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* "prog: …" in any case: what is no error of ours and has to be known.  "prog: warning: …" unless -q; note() only with -v. */
void tell_msg(const char *fmt, ...) PRINTF_LIKE(1, 2);
void warn_msg(const char *fmt, ...) PRINTF_LIKE(1, 2);
void note_msg(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* A line to stdout for a person, the newline added; control characters in it are escaped as they are in messages. */
void print_line(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* pipe() or fork() (errno says why), or pthread_create(), has failed: 75. */
int err_process(struct err *e);
int err_thread(struct err *e);
/* What was written to stdout could not be: errno says why. */
int err_stdout(struct err *e);
_Noreturn void die_stdout(void);
/* Flush stdout and check that everything reached it; call before claiming success where stdio was used for output. */
int finish_stdout(struct err *e) MUST_CHECK;

/* Memory: never NULL; xreallocarray refuses an overflowing product. */
void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xreallocarray(void *p, size_t n, size_t size);
void *xaligned(size_t alignment, size_t n);           /* n a multiple of it; for free() */
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
/* regcomp of an extended expression that is only matched; dies when memory runs out, else 0 or what regerror explains. */
int xregcomp(regex_t *re, const char *ere);
/* Does s match?  glibc's regexec says no when memory runs out; this dies. */
bool xregexec(const regex_t *re, const char *s);
char *xasprintf(const char *fmt, ...) PRINTF_LIKE(1, 2);
#endif
