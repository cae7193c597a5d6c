#include "base/self.h"
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/err.h"

char *self_directory(void)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    while (n > 0 && self[n - 1] != '/') n--;
    return n > 1 ? xstrndup(self, (size_t)n - 1) : NULL;
}

char *self_beside(const char *bin, const char *name)
{
    static const char *const WHERE[] = {"..", "../share/q4sweep", "../../.."};
    for (size_t i = 0; i < sizeof WHERE / sizeof *WHERE; i++) {
        char *path = xasprintf("%s/%s/%s", bin, WHERE[i], name);
        if (!access(path, R_OK)) return path;
        free(path);
    }
    return NULL;
}
