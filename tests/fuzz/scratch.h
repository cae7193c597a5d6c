/* What targets that read files need: a directory of their own, removed at the end, and files in it.  In memory where there is /dev/shm. */
#ifndef TESTS_FUZZ_SCRATCH_H
#define TESTS_FUZZ_SCRATCH_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char scratch_dir[64];

static void scratch_remove(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", scratch_dir);
    if (system(command) != 0)
        perror(scratch_dir);
}

/* The directory; made by the first call. */
static const char *scratch(void)
{
    if (!*scratch_dir) {
        snprintf(scratch_dir, sizeof scratch_dir, "%s/q4fuzz.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (!mkdtemp(scratch_dir))
            abort();
        atexit(scratch_remove);
    }
    return scratch_dir;
}

/* A file in it with these bytes; its path, valid until the next call. */
static char *scratch_file(const char *name, const uint8_t *p, size_t n)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", scratch(), name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f) != 0)
        abort();
    return path;
}
#endif
