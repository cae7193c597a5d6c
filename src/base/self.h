/* Where this program lies, and what lies beside it.
 *
 * Owns: the three layouts: a checkout (bin/ beside data/, pipelines/), an installation (bin/ beside share/q4sweep/), a build (build/CONFIG/bin/ in the checkout).
 */
#ifndef BASE_SELF_H
#define BASE_SELF_H

/* The directory of the running program; NULL where /proc is not mounted.  Freed by the caller. */
char *self_directory(void);
/* The path of a file or directory ("data", "data/prices.json") of q4sweep's, as seen from the programs' directory `bin`; NULL when there is none.  Freed by the caller. */
char *self_beside(const char *bin, const char *name);
#endif
