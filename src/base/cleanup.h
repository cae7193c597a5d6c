/* What must not outlive an unfinished run: temporary files and directories.
 *
 * cleanup_add() registers a path; at exit, die() and SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU the registered paths are removed in
 * reverse order (files unlinked, directories rmdir-ed), then the signal takes its default course (128+n).  The handler only calls
 * unlink, rmdir and raise.  Paths are copied.  Threads: calls are serialised inside.
 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H
void cleanup_add(const char *path);
void cleanup_forget(const char *path);  /* it became a result, or is gone; with all that lies in it */
void cleanup_now(void);                 /* remove all; called by die() and atexit */
#endif
