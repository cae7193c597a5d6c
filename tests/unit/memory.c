/* The memory that is left, and the CPUs: the machine's, or what a control group's limit leaves, as both versions show it. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cpus.h"
#include "base/err.h"
#include "base/memory.h"

static char root[256];

static void put(const char *path, const char *text)
{
    char *whole = xasprintf("%s/%s", root, path);
    for (char *p = whole + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        mkdir(whole, 0755);
    }
    FILE *f = fopen(whole, "w");
    assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
    free(whole);
}

static void is(const char *what, double bytes)
{
    char *proc = xasprintf("%s/proc", root), *groups = xasprintf("%s/cgroup", root);
    const double found = memory_available(proc, groups);
    printf("%s: %.0f\n", what, found);
    assert(found == bytes);
    free(proc);
    free(groups);
}

static int cpus(const char *what)
{
    char *proc = xasprintf("%s/proc", root), *groups = xasprintf("%s/cgroup", root);
    const int found = cpus_usable(proc, groups);
    printf("%s: %d CPUs\n", what, found);
    free(proc);
    free(groups);
    return found;
}

static void quotas(void)
{
    const int all = cpus("no quota");
    put("proc/self/cgroup", "0::/a/b\n");
    put("cgroup/a/b/cpu.max", "max 100000\n");
    assert(cpus("quota max") == all);
    put("cgroup/a/cpu.max", "100000 100000\n");
    assert(cpus("a quota of 1 around it") == 1);
    put("cgroup/a/cpu.max", "5000 100000\n");
    assert(cpus("a twentieth") == 1);
    put("cgroup/a/cpu.max", "101000 100000\n");
    assert(cpus("1.01") == (all < 2 ? all : 2));
    put("cgroup/a/cpu.max", "100000000 100000\n");
    assert(cpus("1,000") == all);
    put("proc/self/cgroup", "3:cpuset:/x\n2:cpu,cpuacct:/x\n");
    put("cgroup/cpu/x/cpu.cfs_period_us", "50000\n");
    put("cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    assert(cpus("the first version, no quota") == all);
    put("cgroup/cpu/x/cpu.cfs_quota_us", "50000\n");
    assert(cpus("the first version, 1") == 1);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/memory.XXXXXX", tmp ? tmp : "/tmp");
    assert(mkdtemp(root));
    is("nothing is known", 0);
    put("proc/meminfo", "MemTotal:       8000 kB\nMemFree:        10 kB\nMemAvailable:   4000 kB\n");
    is("no control groups", 4000.0 * 1024);
    put("proc/self/cgroup", "0::/a/b\n");
    put("cgroup/a/b/memory.max", "max\n");
    put("cgroup/a/b/memory.current", "5000\n");
    is("no limit", 4000.0 * 1024);
    put("cgroup/a/memory.max", "1000000\n");
    put("cgroup/a/memory.current", "600000\n");
    is("a limit around it", 400000);
    put("cgroup/a/memory.stat", "anon 100000\nfile 500000\nfile_mapped 7\n");
    is("what only caches files is free", 900000);
    put("cgroup/a/b/memory.max", "5000\n");
    is("nothing is left", 1);
    put("proc/self/cgroup", "0::/host/path/of/a/container\n");
    put("cgroup/memory.max", "20000\n");
    put("cgroup/memory.current", "5000\n");
    is("a container's own root", 15000);
    put("proc/self/cgroup", "11:cpu:/x\n4:memory:/x\n0::/none\n");
    put("cgroup/memory.max", "max\n");
    put("cgroup/memory/x/memory.limit_in_bytes", "3000\n");
    put("cgroup/memory/x/memory.usage_in_bytes", "2500\n");
    put("cgroup/memory/x/memory.stat", "cache 1\ntotal_cache 500\n");
    is("the first version", 1000);
    put("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("cgroup/memory/memory.usage_in_bytes", "1\n");
    is("its root has no limit", 1000);
    quotas();
    char *rm = xasprintf("rm -r %s", root);
    assert(system(rm) == 0);
    free(rm);
    return 0;
}
