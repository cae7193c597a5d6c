/* timed: run a program and say what it cost.
 *
 *     timed FILE PROGRAM [ARGUMENT]…      exits as PROGRAM does; appends one line to FILE
 *
 * The line: {"wall": seconds, "cpu": user + system seconds of it and all it waited for, "rss_kib": the largest resident set among them}.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

int main(int argc, char **argv)
{
    struct rusage use;
    int status;
    if (argc < 3) {
        fprintf(stderr, "usage: timed FILE PROGRAM [ARGUMENT]…\n");
        return 64;
    }
    double start = now();
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        fprintf(stderr, "timed: %s: %s\n", argv[2], strerror(errno));
        _exit(66);
    }
    if (child < 0 || wait4(child, &status, 0, &use) != child) {
        fprintf(stderr, "timed: %s\n", strerror(errno));
        return 70;
    }
    double wall = now() - start;
    FILE *out = fopen(argv[1], "a");
    if (!out || fprintf(out, "{\"wall\": %.6f, \"cpu\": %.6f, \"rss_kib\": %ld}\n", wall, seconds(use.ru_utime) + seconds(use.ru_stime), use.ru_maxrss) < 0
        || fclose(out) != 0) {
        fprintf(stderr, "timed: %s: %s\n", argv[1], strerror(errno));
        return 74;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
