#include "base/memory.h"

#include <stddef.h>
#include "base/groups.h"

/* How a version of control groups names things. */
struct names { const char *limit, *used, *cache; };

static double left_in(const char *directory, int version)
{
    static const struct names second = {"memory.max", "memory.current", "file"}, first = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"};
    const struct names *v = version == 2 ? &second : &first;
    const double limit = groups_number(directory, v->limit, NULL), used = groups_number(directory, v->used, NULL), cache = groups_number(directory, "memory.stat", v->cache);

    if (limit < 0 || used < 0)
        return -1;
    return limit > used - (cache > 0 ? cache : 0) ? limit - used + (cache > 0 ? cache : 0) : 0;
}

double memory_available(const char *proc, const char *groups)
{
    const double machine = groups_number(proc, "meminfo", "MemAvailable") * 1024, group = groups_least(proc, groups, "memory", left_in);
    const double least = group >= 0 && group < machine ? group : machine;

    return machine < 0 ? 0 : least > 1 ? least : 1;
}
