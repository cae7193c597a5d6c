/* The control groups around this process, a container's limits among them, as both versions of the kernel's interface show them.  `proc` and `groups` are where: "/proc" and
 * "/sys/fs/cgroup" (cgroups(7)). */
#ifndef BASE_GROUPS_H
#define BASE_GROUPS_H

/* The least of what `limit` says of the process's group for a controller ("memory", "cpu") and of each group around it; below 0 = there is no limit, or none that can be
 * read.  `limit` gets a group's directory and the version of the interface, 2 or 1; below 0 = none. */
double groups_least(const char *proc, const char *groups, const char *controller, double (*limit)(const char *directory, int version));
/* The number that a file begins with, or that follows KEY in a line of it; -1 when it is not there ("max"). */
double groups_number(const char *directory, const char *file, const char *key);
#endif
