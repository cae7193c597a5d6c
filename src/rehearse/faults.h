/* Faults on demand: what the user asked to go wrong.
 *
 * Owns: the kinds with what their argument may hold, and how often each has struck (the count survives a restart).  Refuses (EXIT_USAGE): an
 * unknown kind, an argument that the kind does not take.
 *
 * KIND[:ARG[,ARG]…].  An ARG is told by its shape: a duration (90s, 31m, 3h; 1.5h), a count (3), an instance type (ml.g6.xlarge, or ml.g6.xlarge=N with
 * a limit), a region (us-east-1), else a word: an operation (DeleteEndpoint), a log (gpu-out-of-memory).
 */
#ifndef REHEARSE_FAULTS_H
#define REHEARSE_FAULTS_H
#include "rehearse/world.h"

struct fault {
    const char *kind;
    double seconds;             /* of the cloud's time */
    long count;                 /* -1 = every time */
    char *type, *region, *word; /* NULL = any */
    long limit;                 /* of a quota */
    long index;                 /* on the command line: the key of its count */
};

/* Parse one --fault; the text is not kept. */
int faults_add(struct world *w, const char *text, struct err *e) MUST_CHECK;
void faults_free(struct world *w);
/* A line for each kind, for the help. */
char *faults_help(void);

/* Does a fault of this kind strike now?  region, type, word: what is at hand, NULL = does not matter.  Counts the stroke. */
const struct fault *faults_strike(struct world *w, const char *kind, const char *region, const char *type, const char *word);
/* The same without counting: is it in force at all? */
const struct fault *faults_find(const struct world *w, const char *kind, const char *region, const char *type, const char *word);
double faults_skew(const struct world *w);
#endif
