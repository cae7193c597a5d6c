/* The life of an endpoint: bring it up, watch it, take it down until it is gone.
 *
 * Owns: the order of calls and of journal lines, what each state and refusal means, the rate of asking, what a run has cost.
 * Every creating call follows its journal line; a journal entry ends only when endpoint, config, model and schedule were seen to be gone.
 */
#ifndef AWS_ENDPOINT_H
#define AWS_ENDPOINT_H
#include "aws/containerlog.h"
#include "aws/journal.h"
#include "aws/sagemaker.h"

/* Seconds between two questions: SageMaker throttles at 5 and its own waiters take 30; on this machine 1. */
double endpoint_poll(const struct aws_session *s, const char *region);
/* Sleep, but end early with false when a signal set *stop (may be NULL). */
bool endpoint_pause(double seconds, const volatile int *stop);

/* "USD 0.17 so far (ml.g6.xlarge at 1.1267 an hour, prices of us-east-2, 2026-09-25)", the region where it is another one; since 0 = nothing ran. */
void endpoint_cost(char *out, size_t n, const char *region, const char *instance, time_t since);
/* Dollars until now by AWS's clock, -1 = no price known. */
double endpoint_usd(const char *region, const char *instance, time_t since);
/* What it runs on, from the config that its description names; freed by the caller, NULL = not known, or not one instance. */
char *endpoint_instance(struct aws_session *s, const char *region, const json_t *description);
time_t endpoint_created(const json_t *description);
time_t endpoint_age(time_t created);        /* seconds by AWS's clock */

/* --- taking down ---------------------------------------------------------------------------------------------------- */
struct teardown {
    double poll;                    /* 0 = endpoint_poll() */
    double patience;                /* seconds without any answer before giving up; 0 = never gives up */
    bool through_expiry;            /* credentials that have expired may be renewed by somebody: go on trying as when there is no answer */
    bool settle;                    /* a creating call may still be under way: look again until a minute after it */
    const volatile int *stop;
};
/* Until endpoint, config, model and schedule are gone, each also when the others are; then the journal's entry ends.
 * EXIT_NOPERM: refused, said loudly; EXIT_TEMPFAIL: out of patience or stopped. */
int endpoint_teardown(struct aws_session *s, const struct journal_entry *entry, const struct teardown *t, struct err *e) MUST_CHECK;

/* --- watching ------------------------------------------------------------------------------------------------------- */
enum outcome { OUTCOME_SERVING, OUTCOME_FAILED, OUTCOME_CAPACITY, OUTCOME_GONE, OUTCOME_DIED, OUTCOME_STOPPED, OUTCOME_LATE };
struct watch {
    double poll;
    double lag_alert;               /* seconds of a healthy container in Creating */
    double timeout;                 /* seconds; 0 = none */
    const volatile int *stop;
};
struct watched {
    enum outcome outcome;
    char *reason;                   /* FailureReason */
    char *instance;
    time_t created;
    json_t *facts;                  /* of its log; NULL = the log was not read */
};
/* Until it serves or never will.  Progress goes to stderr.  -1 = it can no longer be asked. */
int endpoint_watch(struct aws_session *s, const char *region, const char *name, const struct watch *w, struct watched *out, struct err *e) MUST_CHECK;
void watched_free(struct watched *w);

/* --- bringing up ---------------------------------------------------------------------------------------------------- */
struct deployment {
    const char *name, *role, *image, *model;    /* image NULL = the newest; model "ORG/NAME" or "s3://…" */
    const char *schedule_role;                  /* NULL = role */
    const char *const *instances, *const *regions;      /* NULL-terminated */
    json_t *environment;
    const char *ami;
    long startup_s, download_s;
    time_t expires;                             /* 0 = never */
    bool wait;
    struct watch watch;
};
/* If the process ends before endpoint_told(), its last words say what may exist: also when this fails, and what it had begun could not be taken back or watched any more.
 * region and instance that it came up with are copied; facts in *out.  EXIT_UNAVAILABLE quota everywhere or it failed, EXIT_TEMPFAIL capacity. */
int endpoint_up(struct aws_session *s, const struct deployment *d, const char *profile, char region[32], struct watched *out, struct err *e) MUST_CHECK;
void endpoint_told(void);                      /* the user knows what is up */
#endif
