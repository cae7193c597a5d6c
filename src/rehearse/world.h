/* The account that a rehearsal plays: what exists in it, its clock, what is shared by the services.
 *
 * Owns: the state, one JSON tree that survives a restart (DIR/state.json, replaced by one rename and fsynced after each change that was answered), the
 * lock over it, the account's clock, the scale of time.  Refuses: a directory that another sm-local uses (EXIT_TEMPFAIL), a state it cannot read (EXIT_DATA).
 *
 *   state = {"regions": {REGION: {KIND: {NAME: object}}}, "keys": {KEY ID: {"secret", "token", "expires", "arn"}}, "parts", "objects", "used"}
 *   KIND is as in an ARN: model, endpoint-config, endpoint, schedule; tags: {ARN: {KEY: VALUE}}
 *
 * Durations of the cloud (minutes until capacity fails, until a container is placed) pass `speed` times faster here; moments that a
 * client names or sees (creation times, signatures, schedules, log events) are those of the real clock.
 */
#ifndef REHEARSE_WORLD_H
#define REHEARSE_WORLD_H
#include <pthread.h>
#include "base/json.h"

#define ACCOUNT "123456789012"

struct faults;
struct logs;
struct proxy;

struct world {
    pthread_mutex_t lock;           /* over all below, and over all that the modules keep */
    char *dir;                      /* absolute */
    char *s3;                       /* directory of the buckets: bucket/key */
    const char *hub;                /* directory of models by name: ORG/NAME; NULL = none */
    const char *url;                /* of this server */
    double speed;
    double last_call;               /* clock_seconds() */
    json_t *state;
    bool dirty;                     /* the state has changed since it was written */
    int lock_fd;
    struct faults *faults;
    struct logs *logs;
    struct proxy *proxy;
};

/* Makes the directory when it is absent. */
struct world *world_open(const char *dir, struct err *e) MUST_CHECK;
void world_close(struct world *w);
/* Write the state if it changed. */
int world_save(struct world *w, struct err *e) MUST_CHECK;

/* Seconds since 1970 by the account's clock (which a fault may have set wrong), and by the real one. */
double world_now(const struct world *w);
double real_now(void);
/* A JSON time: milliseconds kept. */
json_t *world_time(double t);

/* The table of a kind in a region: an object, made when absent.  Borrowed. */
json_t *world_table(struct world *w, const char *region, const char *kind);
json_t *world_section(struct world *w, const char *name);
/* "arn:aws:sagemaker:REGION:ACCOUNT:KIND/NAME", freed by the caller. */
char *world_arn(const char *region, const char *kind, const char *name);

/* rm -r, links not followed. */
void remove_tree(const char *path);
/* A random version-4 UUID. */
void random_uuid(char out[37]);
#endif
