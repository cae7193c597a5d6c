#include "engine/gpus.h"
#include <stddef.h>
#include <strings.h>

static const struct gpu gpus[] = {
    {"T4", 320}, {"L4", 300}, {"A10G", 600}, {"L40S", 864}, {"A100-40", 1555}, {"A100-80", 2039}, {"H100", 3350}, {"H200", 4800}, {"B200", 8000},
};

const struct gpu *gpu_find(const char *name)
{
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (!strcasecmp(gpus[i].name, name))
            return &gpus[i];
    return NULL;
}

const char *gpu_names(void)
{
    return "T4, L4, A10G, L40S, A100-40, A100-80, H100, H200, B200";
}
