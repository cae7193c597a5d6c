/* The journal: what may be running in an account, written down before it is asked for.
 *
 * Owns: $XDG_STATE_HOME/q4sweep/journal.jsonl (~/.local/state without it): one line before each creating call and one when an endpoint is known to be gone,
 * each flushed to disk with its directory before the caller goes on; and the locks by which a guard shows that it lives.
 * A line that cannot be written whole is an error (EXIT_IO), and nothing may be created then.  A torn last line is skipped when reading.
 * A "gone" line speaks only of what stood in the journal when the deletion began: what is created meanwhile stays an entry.
 */
#ifndef AWS_JOURNAL_H
#define AWS_JOURNAL_H
#include <stdbool.h>
#include <time.h>
#include "base/err.h"

struct journal_entry {
    char *name, *region;
    char *url;              /* the SageMaker that it was made at, NULL = AWS's own */
    char *profile;          /* NULL = the default one */
    char *guard;            /* id of the guard that watched over it, NULL = none */
    char *instance;         /* NULL = not known */
    time_t created;         /* when its endpoint was asked for; 0 = never was */
    time_t expires;         /* 0 = never */
    long long through;      /* offset of its last line */
};

/* The directory, made if need be. */
const char *journal_directory(struct err *e);
/* What may be running; entries and the array freed by journal_free. */
int journal_load(struct journal_entry **list, size_t *n, struct err *e) MUST_CHECK;
void journal_free(struct journal_entry *list, size_t n);
/* About to make `call` for this entry.  EXIT_UNAVAILABLE, and nothing may be created: its guard has ended. */
int journal_intent(const struct journal_entry *entry, const char *call, struct err *e) MUST_CHECK;
int journal_gone(const struct journal_entry *entry, struct err *e) MUST_CHECK;

/* A guard holds its lock while it lives: -1 = not obtained.  Close-on-exec. */
int journal_guard_lock(const char *id, struct err *e) MUST_CHECK;
bool journal_guard_lives(const char *id);
/* The last act of whoever deletes for a guard: 1 = nothing of it stands in the journal, and from now on nothing can; 0 = something does. */
int journal_guard_end(const char *id, struct err *e);
/* An entry whose guard is gone. */
bool journal_is_orphan(const struct journal_entry *entry);
#endif
