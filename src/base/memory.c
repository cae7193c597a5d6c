#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

/* The number of a file that holds one, or of its line "KEY NUMBER"; -1 when it is not there ("max"). */
static double number_in(const char *directory, const char *file, const char *key)
{
    char *path = xasprintf("%s/%s", directory, file), line[256];
    FILE *f = fopen(path, "r");
    double found = -1;

    while (f && found < 0 && fgets(line, sizeof line, f)) {
        const size_t n = key ? strlen(key) : 0;
        if (n && (strncmp(line, key, n) != 0 || !strchr(": ", line[n])))
            continue;
        if (sscanf(line + n + (n && line[n] == ':'), "%lf", &found) != 1)
            found = -1;
    }
    if (f)
        fclose(f);
    free(path);
    return found;
}

/* How a version of control groups names things: the controller's field in PROC/self/cgroup, its directory, its files. */
struct version { const char *field, *directory, *limit, *used, *cache; };
static const struct version versions[] = {
    {"0::", "", "memory.max", "memory.current", "file"},
    {":memory:", "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"},
};

static double left_in(const char *directory, const struct version *v)
{
    const double limit = number_in(directory, v->limit, NULL), used = number_in(directory, v->used, NULL), cache = number_in(directory, "memory.stat", v->cache);

    if (limit < 0 || used < 0)
        return -1;
    return limit > used - (cache > 0 ? cache : 0) ? limit - used + (cache > 0 ? cache : 0) : 0;
}

/* The least that a group and those around it leave.  In a container the path may be one of the host's: then only the last, its own root, is there. */
static void look_up(const char *groups, const struct version *v, char *path, double *least)
{
    path[strcspn(path, "\n")] = 0;
    for (;;) {
        char *directory = xasprintf("%s%s%s", groups, v->directory, path), *slash = strrchr(path, '/');
        const double left = left_in(directory, v);
        free(directory);
        if (left >= 0 && left < *least)
            *least = left;
        if (!*path)
            return;
        *(slash ? slash : path) = 0;
    }
}

double memory_available(const char *proc, const char *groups)
{
    const double machine = number_in(proc, "meminfo", "MemAvailable") * 1024;
    double least = machine;
    char *path = xasprintf("%s/self/cgroup", proc), line[4096];
    FILE *f = fopen(path, "r");

    while (f && least > 0 && fgets(line, sizeof line, f))
        for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
            char *field = strstr(line, versions[i].field);
            if (field && (i || field == line)) {
                look_up(groups, &versions[i], field + strlen(versions[i].field), &least);
                break;
            }
        }
    if (f)
        fclose(f);
    free(path);
    return machine < 0 ? 0 : least > 1 ? least : 1;
}
