#include "base/progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/err.h"

static struct {
    bool on;
    const char *what;
    uint64_t done, total;
    double start, drawn;    /* seconds, monotonic */
} p;

void progress_start(const char *what, uint64_t total)
{
    p.on = prog_verbosity >= 0 && total > 0 && isatty(STDERR_FILENO);
    p.what = what;
    p.done = 0;
    p.total = total;
    p.start = p.drawn = p.on ? clock_seconds() : 0;
}

void progress_add(uint64_t n)
{
    if (!p.on)
        return;
    p.done += n;
    double t = clock_seconds();
    if (t - p.drawn < 1.0 / 6)
        return;
    p.drawn = t;
    fprintf(stderr, "\r%s: %s %3.0f %%  %.1f of %.1f MB  %.2f GB/s\033[K", prog_name, p.what,
            100.0 * (double)p.done / (double)p.total, (double)p.done * 1e-6, (double)p.total * 1e-6,
            (double)p.done * 1e-9 / (t - p.start));
}

void progress_end(void)
{
    if (p.on && p.drawn > p.start)
        fprintf(stderr, "\r\033[K");
    p.on = false;
}
