/* A fuzz target that runs without a fuzzer: every file of tests/fuzz/CORPUS is replayed, then changed a few hundred times in the same way each run.
 *
 * A target defines fuzz_one() and FUZZ_CORPUS, and includes this.  With a fuzzer:
 *     clang -fsanitize=fuzzer,address -DFUZZER -Isrc -Ibuild/release tests/unit/fuzz_X.c build/…/libq4sweep.a …   then   ./a.out tests/fuzz/X
 * What it finds goes into the corpus.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fuzz_one(const uint8_t *data, size_t n);

#ifdef FUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_one(data, n);
    return 0;
}
#else

#define FUZZ_CHANGES 200
#define FUZZ_MAX ((size_t)1 << 20)

static uint64_t fuzz_state;

static size_t fuzz_below(size_t n)
{
    fuzz_state = fuzz_state * 6364136223846793005u + 1442695040888963407u;
    return n ? (size_t)(fuzz_state >> 33) % n : 0;
}

/* One to four changes: a bit, a run removed, a run doubled, or a token that parsers stumble over. */
static size_t fuzz_change(uint8_t *p, size_t n)
{
    static const char *const tokens[] = {"null", "{}", "[]", "-1", "0", "18446744073709551615", "1e999", "\"\"", "true", "\"re:(a*)*b\"", "\\u0000", "4294967296", "[[[[", "\"Linear\""};

    for (size_t k = 1 + fuzz_below(4); k; k--) {
        size_t at = fuzz_below(n), len = 1 + fuzz_below(40);

        len = len < n - at ? len : n - at;
        switch (fuzz_below(4)) {
        case 0:
            if (n)
                p[at] ^= (uint8_t)(1u << fuzz_below(8));
            break;
        case 1:
            memmove(p + at, p + at + len, n - at - len);
            n -= len;
            break;
        case 2:
            if (n + len <= FUZZ_MAX) {
                memmove(p + at + len, p + at, n - at);
                n += len;
            }
            break;
        default: {
            const char *t = tokens[fuzz_below(sizeof tokens / sizeof *tokens)];
            size_t m = strlen(t) < n - at ? strlen(t) : n - at;

            memcpy(p + at, t, m);
        }
        }
    }
    return n;
}

static size_t fuzz_read(const char *path, uint8_t *p)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(p, 1, FUZZ_MAX, f) : 0;

    if (f)
        fclose(f);
    return n;
}

int main(void)
{
    const char *root = getenv("Q4ROOT");
    char dir[4096], path[8192];
    uint8_t *seed = malloc(FUZZ_MAX), *p = malloc(FUZZ_MAX);
    int files = 0;
    DIR *d;

    snprintf(dir, sizeof dir, "%s/tests/fuzz/" FUZZ_CORPUS, root ? root : ".");
    d = opendir(dir);
    if (!d || !seed || !p)
        return fprintf(stderr, "%s: no corpus\n", dir), 1;
    for (struct dirent *f; (f = readdir(d)); ) {
        size_t n;

        if (f->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        n = fuzz_read(path, seed);
        fuzz_one(seed, n);
        files++;
        fuzz_state = n;                                 /* the same changes whatever the order of the files */
        for (int i = 0; i < FUZZ_CHANGES; i++) {
            memcpy(p, seed, n);
            fuzz_one(p, fuzz_change(p, n));
        }
    }
    closedir(d);
    free(seed);
    free(p);
    printf("%s: %d files, each changed %d times\n", FUZZ_CORPUS, files, FUZZ_CHANGES);
    return files ? 0 : 1;
}
#endif
