#define _XOPEN_SOURCE 700           /* realpath, nftw */
#include "rehearse/world.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/io.h"
#include "rehearse/faults.h"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

void remove_tree(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

void random_uuid(char out[37])
{
    unsigned char b[16];
    hash_begin();
    if (RAND_bytes(b, sizeof b) != 1) crypto_refused("random bytes");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    char *w = out;
    for (int i = 0; i < 16; i++) w += snprintf(w, 4, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
}

double real_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double world_now(const struct world *w) { return real_now() + faults_skew(w); }

json_t *world_time(double t) { return json_real(floor(t * 1000) / 1000); }

json_t *world_section(struct world *w, const char *name)
{
    json_t *t = json_object_get(w->state, name);
    if (!t) json_object_set_new(w->state, name, t = json_object());
    return t;
}

json_t *world_table(struct world *w, const char *region, const char *kind)
{
    json_t *regions = world_section(w, "regions"), *r = json_object_get(regions, region);
    if (!r) json_object_set_new(regions, region, r = json_object());
    json_t *t = json_object_get(r, kind);
    if (!t) json_object_set_new(r, kind, t = json_object());
    return t;
}

char *world_arn(const char *region, const char *kind, const char *name)
{
    return xasprintf("arn:aws:sagemaker:%s:%s:%s/%s", region, ACCOUNT, kind, name);
}

/* One sm-local for each directory. */
static int lock_directory(struct world *w, struct err *e)
{
    char *path = xasprintf("%s/lock", w->dir);
    w->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int rc = w->lock_fd < 0 ? err_errno(e, EXIT_IO, "%s: cannot open it", path) : 0;
    if (!rc && flock(w->lock_fd, LOCK_EX | LOCK_NB)) rc = err_set(e, EXIT_TEMPFAIL, "%s: another sm-local uses this state: give --state another directory", w->dir);
    free(path);
    return rc;
}

static int read_state(struct world *w, struct err *e)
{
    char *path = xasprintf("%s/state.json", w->dir);
    int rc = 0;
    if (access(path, F_OK)) w->state = json_object();
    else if (!(w->state = json_parse_file(path, e))) rc = -1;
    else if (!json_is_object(w->state)) rc = err_set(e, EXIT_DATA, "%s: holds no object: this is no account's state", path);
    free(path);
    return rc;
}

struct world *world_open(const char *dir, struct err *e)
{
    struct world *w = xcalloc(1, sizeof *w);
    w->lock_fd = -1;
    w->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (io_make_directories(dir, 0777, e)) goto fail;
    if (!(w->dir = realpath(dir, NULL))) {
        err_errno(e, EXIT_IO, "%s", dir);
        goto fail;
    }
    chmod(w->dir, 0700);
    if (lock_directory(w, e) || read_state(w, e)) goto fail;
    return w;
fail:
    world_close(w);
    return NULL;
}

void world_close(struct world *w)
{
    if (!w) return;
    if (w->lock_fd >= 0) close(w->lock_fd);
    json_decref(w->state);
    free(w->s3);
    free(w->dir);
    free(w);
}

int world_save(struct world *w, struct err *e)
{
    if (!w->dirty) return 0;
    char *path = xasprintf("%s/state.json", w->dir), *text = json_text(w->state, false);
    int rc = output_whole(output_open(path, false, e), text, strlen(text), e);
    if (!rc) w->dirty = false;
    free(text);
    free(path);
    return rc;
}
