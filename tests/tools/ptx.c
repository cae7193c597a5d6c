/* ptx TARGET FILE…: the PTX text for one target (sm_75) that lies, uncompressed, in object files: what a driver would translate.  One after another on stdout; 1 = there is none. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts begin with a comment or .version and end with a zero byte. */
static bool print_texts(const char *p, size_t n, const char *target)
{
    static const char begin[] = ".version ";
    bool any = false;

    for (const char *at = p; (at = memchr(at, '.', n - (size_t)(at - p))); at++) {
        const size_t left = n - (size_t)(at - p);
        const char *end = memchr(at, 0, left);
        char want[32];
        const int wide = snprintf(want, sizeof want, ".target %s", target);
        if (left < sizeof begin || memcmp(at, begin, sizeof begin - 1) || !end)
            continue;
        const char *line = strstr(at, ".target ");
        if (line && line < end && !strncmp(line, want, (size_t)wide) && (line[wide] == '\n' || line[wide] == ','))
            any |= fwrite(at, 1, (size_t)(end - at), stdout) > 0;
        at = end - 1;
    }
    return any;
}

int main(int argc, char **argv)
{
    bool any = false;

    for (int i = 2; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        long n = -1;
        if (f && !fseek(f, 0, SEEK_END))
            n = ftell(f);
        char *p = n > 0 ? calloc((size_t)n + 1, 1) : NULL;
        if (!p || fseek(f, 0, SEEK_SET) || fread(p, 1, (size_t)n, f) != (size_t)n) {
            fprintf(stderr, "ptx: %s: cannot be read\n", argv[i]);
            return 74;
        }
        any |= print_texts(p, (size_t)n, argv[1]);
        free(p);
        fclose(f);
    }
    return any ? 0 : 1;
}
