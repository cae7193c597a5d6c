/* How much memory this process may still take. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

/* Bytes that the machine still has for programs (MemAvailable), or what the limit of a control group around this process, a container's, leaves if that is less; pages
 * that only cache files count as free.  `proc` and `groups` are where the kernel shows both: "/proc" and "/sys/fs/cgroup".  0 = not known; nothing left is 1. */
double memory_available(const char *proc, const char *groups);
#endif
