/* sched_getaffinity is Linux. */
#define _GNU_SOURCE
#include "base/cpus.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/groups.h"

/* "QUOTA PERIOD", or "max PERIOD". */
static void read_max(const char *directory, double *quota, double *period)
{
    char *path = xasprintf("%s/cpu.max", directory);
    FILE *f = fopen(path, "r");

    if (f && fscanf(f, "%lf %lf", quota, period) != 2)
        *quota = -1;
    if (f)
        fclose(f);
    free(path);
}

/* CPUs that a group's quota pays for; -1 = it has none. */
static double quota_in(const char *directory, int version)
{
    double quota = -1, period = -1;

    if (version == 2) {
        read_max(directory, &quota, &period);
    } else {
        quota = groups_number(directory, "cpu.cfs_quota_us", NULL);
        period = groups_number(directory, "cpu.cfs_period_us", NULL);
    }
    return quota > 0 && period > 0 ? quota / period : -1;
}

int cpus_usable(const char *proc, const char *groups)
{
    cpu_set_t set;
    const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const double paid = groups_least(proc, groups, "cpu", quota_in);
    const int n = paid < 0 || paid > allowed ? allowed : (int)paid + ((int)paid < paid);

    return n > 0 ? n : 1;
}
