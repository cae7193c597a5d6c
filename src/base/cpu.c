#include "base/cpu.h"

#include <cpuid.h>
#include <string.h>
#include "base/err.h"

static enum simd limit = SIMD_AVX512;
static const char *const names[] = {"scalar", "avx2", "avx512"};

/* clang 14 does not know the name "f16c" in __builtin_cpu_supports. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

static enum simd best_of_cpu(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2"))
        return SIMD_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return SIMD_AVX2;
    return SIMD_SCALAR;
}

enum simd simd_level(void)
{
    enum simd best = best_of_cpu();
    return best < limit ? best : limit;
}

bool cpu_has_vnni(void)
{
    return simd_level() == SIMD_AVX512 && __builtin_cpu_supports("avx512vnni");
}

int simd_force(const char *name)
{
    if (!name)
        return 0;
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            limit = (enum simd)i;
            return best_of_cpu() < limit ? -1 : 0;
        }
    return -1;
}

void simd_option(const char *name)
{
    if (simd_force(name) != 0)
        die_msg(EXIT_UNAVAILABLE, "--simd %s: this CPU has no more than %s", name, simd_name(simd_level()));
}

const char *simd_name(enum simd level)
{
    return names[level];
}
