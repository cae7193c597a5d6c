/* How many threads can run at once. */
#ifndef BASE_CPUS_H
#define BASE_CPUS_H

/* The CPUs that this process may run on, or as many as the quota of a control group around it, a container's, pays for, if that is fewer: 1.5 CPUs of time are two threads.
 * `proc` and `groups` as in base/groups.h. */
int cpus_usable(const char *proc, const char *groups);
#endif
