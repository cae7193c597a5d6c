/* Runs a fuzz target on files, without a fuzzer: usage: NAME FILE…  What a fuzzer once found stays in tests/fuzz/corpus and is replayed by make test. */
#include <stdio.h>
#include <stdlib.h>
#include "base/err.h"
#include "base/io.h"
#include "fuzz.h"

int main(int argc, char **argv)
{
    prog_init(argv[0]);
    for (int i = 1; i < argc; i++) {
        struct err e = {0};
        char *text;
        size_t n;
        if (io_slurp(argv[i], (size_t)64 << 20, &text, &n, &e) != 0)
            die(&e);
        /* Exactly as long as the file: a sanitizer sees a read past its end. */
        uint8_t *data = malloc(n ? n : 1);
        for (size_t k = 0; k < n; k++)
            data[k] = (uint8_t)text[k];
        free(text);
        LLVMFuzzerTestOneInput(data, n);
        free(data);
    }
    printf("%d inputs\n", argc - 1);
    return 0;
}
