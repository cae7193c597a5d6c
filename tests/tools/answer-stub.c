/* answer-stub FILE: an HTTP server that gives the bytes of a file, 64 KiB at most, for an answer to whatever is asked, and closes.  Prints its URL; serves until killed. */
#include <stdio.h>
#include <unistd.h>
#include "../fuzz/server.h"

int main(int argc, char **argv)
{
    static uint8_t answer[1 << 16];
    FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!f) {
        fprintf(stderr, "usage: answer-stub FILE\n");
        return 64;
    }
    size_t n = fread(answer, 1, sizeof answer, f);
    fclose(f);
    printf("http://127.0.0.1:%d\n", server_answers(answer, n));
    fflush(stdout);
    for (;;)
        pause();
}
