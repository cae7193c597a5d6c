#include "base/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

double groups_number(const char *directory, const char *file, const char *key)
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

/* Of a line "ID:CONTROLLERS:PATH" of PROC/self/cgroup the path, and in *version whose interface it is; NULL = another controller's. */
static char *path_for(char *line, const char *controller, int *version)
{
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL, *rest;

    if (!path)
        return NULL;
    *path++ = 0;
    path[strcspn(path, "\n")] = 0;
    *version = names[1] ? 1 : 2;        /* the second one has all controllers in one tree */
    if (*version == 2)
        return path;
    for (const char *name = strtok_r(names + 1, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        if (strcmp(name, controller) == 0)
            return path;
    return NULL;
}

/* In a container the path may be one of the host's: then only the last, its own root, is there. */
static void look_up(const char *root, char *path, int version, double (*limit)(const char *, int), double *least)
{
    for (;;) {
        char *directory = xasprintf("%s%s", root, path), *slash = strrchr(path, '/');
        const double found = limit(directory, version);
        free(directory);
        if (found >= 0 && (*least < 0 || found < *least))
            *least = found;
        if (!*path)
            return;
        *(slash ? slash : path) = 0;
    }
}

double groups_least(const char *proc, const char *groups, const char *controller, double (*limit)(const char *directory, int version))
{
    char *file = xasprintf("%s/self/cgroup", proc), line[4096], *path;
    FILE *f = fopen(file, "r");
    double least = -1;
    int version;

    while (f && fgets(line, sizeof line, f))
        if ((path = path_for(line, controller, &version))) {
            char *root = version == 2 ? xstrdup(groups) : xasprintf("%s/%s", groups, controller);
            look_up(root, path, version, limit, &least);
            free(root);
        }
    if (f)
        fclose(f);
    free(file);
    return least;
}
