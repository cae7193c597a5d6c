/* Each of the shim's detectors finds a fault planted for it, and nothing where there is none. */
#include "tests/cuda/judge.h"
#include "tests/cuda/faults.h"

int main(void)
{
    static uint32_t stranger[GK_THREADS + 64];
    const unsigned grid[3] = {2, 1, 1};

    for (int i = 0; i < fault_case_count; i++) {
        const struct fault_case &c = fault_cases[i];
        const bool needs_watch = c.words && strncmp(c.words, "divergence", 10) && strncmp(c.words, "a mask", 6);
        if (needs_watch && !gk_host_watches()) {
            printf("skipped: %s: this build does not watch memory\n", c.name);
            continue;
        }
        struct fault_args a = {device<uint32_t>(66, "input"), c.n, device<uint32_t>(GK_THREADS, "global"), NULL, (uint32_t *)malloc(sizeof stranger)};
        uint32_t *lent = (uint32_t *)calloc(GK_THREADS, 4);
        a.lent = lent;
        (void)gk_host_lend(lent, GK_THREADS * 4, "lent");
        const char *fault = gk_host_kernel(c.kernel, a, grid, GK_THREADS, GK_THREADS * 4);
        if (c.follows && !fault) {
            gk_host_follows();
            fault = gk_host_kernel(c.kernel, a, grid, GK_THREADS, GK_THREADS * 4);
        }
        printf("%s: %s\n", c.name, fault ? fault : "no fault");
        CHECK(c.words ? fault && strstr(fault, c.words) : !fault, "%s: expected %s", c.name, c.words ? c.words : "no fault");
        for (int t = 0; t < GK_THREADS && !strcmp(c.name, "instructions made by hand"); t++)
            CHECK(a.global[t] == 0, "%s: thread %d is wrong %u times", c.name, t, a.global[t]);
        gk_host_unlend(lent);
        free(lent);
        free(a.stranger);
        free_all();
    }
    return finish_tests();
}
