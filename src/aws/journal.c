#include "aws/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "aws/sigv4.h"
#include "base/io.h"
#include "base/json.h"

#define JOURNAL_MAX ((size_t)256 << 20)

/* --- where ---------------------------------------------------------------------------------------------------------- */

static const char *place(struct err *e)
{
    static char path[PATH_MAX];
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/') snprintf(path, sizeof path, "%s/q4sweep", state);
    else if (home && *home == '/') snprintf(path, sizeof path, "%s/.local/state/q4sweep", home);
    else {
        err_set(e, EXIT_USAGE, "neither XDG_STATE_HOME nor HOME is set: the journal has no place");
        return NULL;
    }
    return path;
}

const char *journal_directory(struct err *e)
{
    const char *dir = place(e);
    return dir && !io_make_directories(dir, 0700, e) ? dir : NULL;
}

static char *file_name(const char *name, struct err *e)
{
    const char *dir = place(e);
    return dir ? xasprintf("%s/%s", dir, name) : NULL;
}

/* Nothing can be added to what zstd made of a journal, and what it holds may be running. */
static int refuse_packed(const char *path, struct err *e)
{
    struct err fault = {0};         /* a file that cannot be read is said by whoever opens it next */
    char first;
    struct stat st;
    struct input *in = !stat(path, &st) && S_ISREG(st.st_mode) ? input_open(path, &fault) : NULL;
    bool packed = in && input_read(in, &first, 1, &fault) >= 0 && !input_seekable(in);
    input_close(in);
    return packed ? err_set(e, EXIT_DATA, "%s: is compressed, so nothing can be added to it: unpack it (zstd -d)", path) : 0;
}

/* --- writing -------------------------------------------------------------------------------------------------------- */

static int sync_directory(const char *dir, struct err *e)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd < 0 || fsync(fd) ? err_errno(e, EXIT_IO, "%s: cannot be flushed", dir) : 0;
    if (fd >= 0) close(fd);
    return bad;
}

/* Whole or not at all: what a full disk cut short is taken back. */
static int append(int fd, const char *path, const char *text, size_t n, struct err *e)
{
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0) return err_errno(e, EXIT_IO, "%s: the journal cannot be written", path);
    char last = '\n';
    if (end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n' && write(fd, "\n", 1) == 1) end++;      /* after a torn line */
    ssize_t done = write(fd, text, n);
    if (done != (ssize_t)n) {
        if (done >= 0) errno = ENOSPC;
        err_errno(e, EXIT_IO, "%s: the journal cannot be written", path);
        if (ftruncate(fd, end)) warn_msg("%s: holds a torn line", path);
        return -1;
    }
    return fsync(fd) ? err_errno(e, EXIT_IO, "%s: cannot be flushed", path) : 0;
}

/* The journal, locked against other writers until it is closed. */
static int open_locked(const char *path, struct err *e)
{
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(e, EXIT_IO, "%s: the journal cannot be opened", path);
    if (!flock(fd, LOCK_EX)) return fd;
    err_errno(e, EXIT_IO, "%s: cannot be locked", path);
    close(fd);
    return -1;
}

/* guard: refuse when it has ended (NULL = none). */
static int write_line(json_t *line, const char *guard, struct err *e)
{
    char *path = file_name("journal.jsonl", e), *text = json_text(line, false);
    const char *dir = path ? journal_directory(e) : NULL;
    int bad = -1, fd = dir && !refuse_packed(path, e) ? open_locked(path, e) : -1;
    json_decref(line);
    if (fd >= 0 && guard && !journal_guard_lives(guard)) {
        err_set(e, EXIT_UNAVAILABLE, "the guard that watches over this has ended: nothing is created any more");
    } else if (fd >= 0) {
        char *with_end = xasprintf("%s\n", text);
        bad = append(fd, path, with_end, strlen(with_end), e);
        free(with_end);
        if (!bad) bad = sync_directory(dir, e);
    }
    if (fd >= 0 && close(fd) && !bad) bad = err_errno(e, EXIT_IO, "%s: cannot be closed", path);
    free(path);
    free(text);
    return bad;
}

static void set_text(json_t *v, const char *key, const char *text)
{
    if (text) json_object_set_new(v, key, json_message(text));
}

static json_t *new_line(const struct journal_entry *entry, const char *event)
{
    char date[SIGV4_DATE];
    json_t *v = json_object();
    sigv4_format_date(time(NULL), date);
    json_object_set_new(v, "time", json_string(date));
    json_object_set_new(v, "event", json_string(event));
    set_text(v, "name", entry->name);
    set_text(v, "region", entry->region);
    set_text(v, "url", entry->url);
    return v;
}

int journal_intent(const struct journal_entry *entry, const char *call, struct err *e)
{
    json_t *v = new_line(entry, "intent");
    json_object_set_new(v, "call", json_string(call));
    set_text(v, "profile", entry->profile);
    set_text(v, "guard", entry->guard);
    set_text(v, "instance", entry->instance);
    if (entry->expires) json_object_set_new(v, "expires", json_integer((json_int_t)entry->expires));
    return write_line(v, entry->guard, e);
}

int journal_gone(const struct journal_entry *entry, struct err *e)
{
    json_t *v = new_line(entry, "gone");
    json_object_set_new(v, "through", json_integer(entry->through));
    return write_line(v, NULL, e);
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

static bool same(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static void entry_free(struct journal_entry *x)
{
    free(x->name);
    free(x->region);
    free(x->url);
    free(x->profile);
    free(x->guard);
    free(x->instance);
}

void journal_free(struct journal_entry *list, size_t n)
{
    while (n) entry_free(&list[--n]);
    free(list);
}

static void replace(char **at, const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));
    free(*at);
    *at = s ? xstrdup(s) : NULL;
}

static struct journal_entry *find(struct journal_entry **list, size_t *n, const char *name, const char *region, const char *url, bool add)
{
    for (size_t i = 0; i < *n; i++)
        if (same((*list)[i].name, name) && same((*list)[i].region, region) && same((*list)[i].url, url)) return &(*list)[i];
    if (!add) return NULL;
    *list = xreallocarray(*list, *n + 1, sizeof **list);
    (*list)[*n] = (struct journal_entry){.name = xstrdup(name), .region = xstrdup(region), .url = url ? xstrdup(url) : NULL};
    return &(*list)[(*n)++];
}

static void take_line(struct journal_entry **list, size_t *n, const json_t *v, long long offset)
{
    const char *event = json_string_value(json_object_get(v, "event")), *name = json_string_value(json_object_get(v, "name"));
    const char *region = json_string_value(json_object_get(v, "region")), *url = json_string_value(json_object_get(v, "url"));
    const char *call = json_string_value(json_object_get(v, "call")), *date = json_string_value(json_object_get(v, "time"));
    if (!event || !name || !region) return;
    bool intent = !strcmp(event, "intent");
    struct journal_entry *x = find(list, n, name, region, url, intent);
    if (x && intent) {
        replace(&x->profile, v, "profile");
        replace(&x->guard, v, "guard");
        replace(&x->instance, v, "instance");
        x->expires = (time_t)json_integer_value(json_object_get(v, "expires"));
        x->through = offset;
        if (call && !strcmp(call, "CreateEndpoint") && date) sigv4_parse_date(date, &x->created);
    } else if (x && json_integer_value(json_object_get(v, "through")) >= x->through) {
        entry_free(x);
        *x = (*list)[--*n];
    }
}

int journal_load(struct journal_entry **list, size_t *n, struct err *e)
{
    char *path = file_name("journal.jsonl", e), *text;
    size_t size;
    struct err fault = {0};
    *list = NULL;
    *n = 0;
    if (!path || refuse_packed(path, e)) {
        free(path);
        return -1;
    }
    int bad = io_slurp(path, JOURNAL_MAX, &text, &size, &fault);
    free(path);
    if (bad) return fault.code == EXIT_NOINPUT ? 0 : err_set(e, fault.code, "%s", fault.msg);
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t len = end ? (size_t)(end - text) - at : size - at;
        struct err ignored = {0};       /* a torn line was never acted upon */
        json_t *v = json_parse(text + at, len, "journal", &ignored);
        if (v) take_line(list, n, v, (long long)at);
        json_decref(v);
        at += len + 1;
    }
    free(text);
    return 0;
}

/* --- guards --------------------------------------------------------------------------------------------------------- */

static char *lock_path(const char *id, struct err *e)
{
    char name[128];
    snprintf(name, sizeof name, "guard-%.80s.lock", id);
    return strchr(id, '/') ? NULL : file_name(name, e);
}

/* Who only looks holds a shared lock for a moment; so a lock that is wanted is tried more than once. */
static bool take_lock(int fd)
{
    for (int i = 0; i < 20; i++) {
        if (!flock(fd, LOCK_EX | LOCK_NB)) return true;
        if (errno != EWOULDBLOCK) return false;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return false;
}

int journal_guard_lock(const char *id, struct err *e)
{
    char *path = journal_directory(e) ? lock_path(id, e) : NULL;
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (path && fd < 0) err_errno(e, EXIT_IO, "%s: the lock cannot be opened", path);
    else if (path && !take_lock(fd)) {
        err_errno(e, EXIT_IO, "%s: cannot be locked", path);
        close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}

bool journal_guard_lives(const char *id)
{
    struct err ignored = {0};
    char *path = lock_path(id, &ignored);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    bool lives = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    free(path);
    return lives;
}

/* Under the journal's lock, so that no line slips in between the look and the end. */
int journal_guard_end(const char *id, struct err *e)
{
    struct journal_entry *list;
    size_t n;
    char *path = file_name("journal.jsonl", e), *lock = path ? lock_path(id, e) : NULL;
    int fd = lock ? open_locked(path, e) : -1, result = -1;
    if (fd >= 0 && !journal_load(&list, &n, e)) {
        result = 1;
        for (size_t i = 0; i < n; i++)
            if (same(list[i].guard, id)) result = 0;
        journal_free(list, n);
        if (result) unlink(lock);
    }
    if (fd >= 0) close(fd);
    free(path);
    free(lock);
    return result;
}

bool journal_is_orphan(const struct journal_entry *entry) { return entry->guard && !journal_guard_lives(entry->guard); }
