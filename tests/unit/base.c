/* base: the thread pool, buffers, the first error wins, control characters, JSON Lines of any length, unfinished files however many. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/par.h"
#include "base/percent.h"
#include "base/stop.h"
#include "base/text.h"

static void count_item(void *arg, size_t i)
{
    ((unsigned char *)arg)[i]++;
}

static void every_item_runs_once(void)
{
    static unsigned char seen[10000];
    for (int threads = 1; threads <= 5; threads++) {
        struct par *p = par_new(threads);
        for (size_t n = 0; n < sizeof seen; n = n * 3 + 1) {
            memset(seen, 0, sizeof seen);
            par_for(p, n, count_item, seen);
            for (size_t i = 0; i < sizeof seen; i++)
                assert(seen[i] == (i < n));
        }
        par_free(p);
    }
    puts("the pool runs every item once, whatever the number of threads");
}

/* Numbers 0 .. n - 1, squared, given in order up to `stop`. */
struct squares { size_t n, taken, given, stop, lane[5], sum; };

static bool take_number(void *arg, size_t lane)
{
    struct squares *s = arg;
    s->lane[lane] = s->taken;
    return s->taken++ < s->n;
}

static void square(void *arg, size_t lane)
{
    struct squares *s = arg;
    s->lane[lane] *= s->lane[lane];
}

static bool give_square(void *arg, size_t lane)
{
    struct squares *s = arg;
    assert(s->lane[lane] == s->given * s->given);
    s->sum += s->lane[lane];
    return s->given++ != s->stop;
}

static void relays_keep_the_order(void)
{
    static const struct relay relay = {take_number, square, give_square};
    for (int threads = 1; threads <= 5; threads++) {
        struct par *p = par_new(threads);
        for (size_t n = 0; n < 5000; n = n * 3 + 1)
            for (size_t stop = 0; stop <= n; stop = stop * 7 + 1) {
                struct squares s = {.n = n, .stop = stop};
                par_relay(p, par_lanes(p, 4), &relay, &s);
                assert(s.given == (stop < n ? stop + 1 : n));
                assert(stop < n || s.taken == n + 1);
            }
        par_free(p);
    }
    puts("a relay gives its pieces in order, and none after a no");
}

static void first_error_wins_and_is_escaped(void)
{
    struct err e = {0, ""};
    assert(err_set(&e, EXIT_DATA, "a\x1b[2Jb%d", 7) == -1);
    assert(err_set(&e, EXIT_IO, "later") == -1);
    assert(e.code == EXIT_DATA && strcmp(e.msg, "a\\x1b[2Jb7") == 0);
    puts("the first error stands, control characters are shown");
}

static void buffers_grow(void)
{
    struct buf b = BUF_INIT;
    for (int i = 0; i < 5000; i++)
        buf_printf(&b, "%d,", i);
    assert(strncmp(b.data, "0,1,2,", 6) == 0 && b.data[b.n] == 0 && strlen(b.data) == b.n);
    buf_free(&b);
    assert(!b.data && !b.n);
    puts("buffers grow and stay terminated");
}

static void sha256_is_the_standard_one(void)
{
    char hex[SHA256_HEX];
    sha256_of("abc", 3, hex);       /* FIPS 180-4, example B.1 */
    assert(strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0);
    puts("SHA-256 gives the standard's example");
}

static void lines_of_any_length(void)
{
    char path[] = "/tmp/q4unit.XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    fputs("{\"a\":1}\n\n  \nnot json\n[", f);
    for (int i = 0; i < 300000; i++)
        fputs("12345,", f);
    fputs("0]\n\"last \\u0000 line\"", f);
    fclose(f);
    struct err e = {0, ""};
    struct jsonl *j = jsonl_open(path, &e);
    json_t *v;
    long line;
    assert(j && jsonl_next(j, &v, &line, &e) == 1 && line == 1 && json_is_object(v));
    json_decref(v);
    assert(jsonl_next(j, &v, &line, &e) == -1 && line == 4 && strstr(e.msg, "line 4"));
    e.code = 0;
    assert(jsonl_next(j, &v, &line, &e) == 1 && json_array_size(v) == 300001);
    json_decref(v);
    assert(jsonl_next(j, &v, &line, &e) == 1 && json_string_length(v) == 11);
    json_decref(v);
    assert(jsonl_next(j, &v, &line, &e) == 0);
    jsonl_close(j);
    unlink(path);
    puts("JSON Lines: blank lines skipped, bad ones named, any length, no last newline needed");
}

/* A child makes a directory with n files in it, keeps one, and ends: by a signal, or as a program does. */
static void leave_unfinished(const char *dir, int n, int sig)
{
    char path[200];
    cleanup_add(dir);
    assert(mkdir(dir, 0700) == 0);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%d", dir, i);
        cleanup_add(path);
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    snprintf(path, sizeof path, "%s.kept", dir);
    cleanup_add(path);
    close(open(path, O_WRONLY | O_CREAT, 0600));
    cleanup_forget(path);
    if (sig)
        raise(sig);
    cleanup_now();
    _exit(0);
}

static void unfinished_files_go(void)
{
    char dir[100], kept[120];
    snprintf(dir, sizeof dir, "%s/q4unit.%ld", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
    snprintf(kept, sizeof kept, "%s.kept", dir);
    for (int n = 1; n < 20000; n = n * 27 + 1) {
        for (int sig = 0; sig <= SIGTERM; sig += SIGTERM) {
            int status;
            pid_t pid = fork();
            if (pid == 0)
                leave_unfinished(dir, n, sig);
            assert(waitpid(pid, &status, 0) == pid && (sig ? WIFSIGNALED(status) && WTERMSIG(status) == sig : status == 0));
            assert(access(dir, F_OK) != 0 && access(kept, F_OK) == 0);
            unlink(kept);
        }
    }
    puts("unfinished files and their directory go, however many, on a signal too; what was finished stays");
}

/* That an earlier call was interrupted must not hide the end of stdin, nor an alarm be needed to see it. */
static void end_of_stdin_is_seen(void)
{
    int pipe_ends[2];
    assert(pipe(pipe_ends) == 0 && dup2(pipe_ends[0], 0) == 0);
    close(pipe_ends[1]);
    stop_catch(false);
    alarm(10);
    errno = EINTR;
    assert(stop_asked(true, 1000) == STOP_EOF);
    alarm(0);
    puts("the end of stdin asks a server to stop, whatever errno was");
}

static void text_is_repaired(void)
{
    json_t *v = json_repaired("a\xff\0\xc3\xa4\xc3", 6);
    assert(json_string_length(v) == 6 && memcmp(json_string_value(v), "a?\0\xc3\xa4?", 6) == 0);
    json_decref(v);
    puts("what is no UTF-8 becomes '?', and nothing else does");
}

static void ends_are_told(void)
{
    assert(ends_with("a.json", ".json") && ends_with(".json", ".json") && ends_with("x", ""));
    assert(!ends_with("json", ".json") && !ends_with("a.jsonl", ".json") && !ends_with("", "a"));
    puts("the end of a name is told");
}

static void urls_are_encoded(void)
{
    struct buf b = BUF_INIT;
    percent_encode(&b, "a Z~/%\0\xc3", 8, "/");
    assert(b.n == 16 && memcmp(b.data, "a%20Z~/%25%00%C3", 16) == 0);
    buf_free(&b);
    percent_encode(&b, "/@", 2, "");
    assert(b.n == 6 && memcmp(b.data, "%2F%40", 6) == 0);
    buf_free(&b);
    percent_decode(&b, "a%2fb%2Fc%%41+%4", 16, false);
    assert(b.n == 10 && memcmp(b.data, "a/b/c%A+%4", 10) == 0);
    buf_free(&b);
    puts("a URL is encoded and decoded");
}

int main(void)
{
    every_item_runs_once();
    relays_keep_the_order();
    first_error_wins_and_is_escaped();
    buffers_grow();
    sha256_is_the_standard_one();
    lines_of_any_length();
    unfinished_files_go();
    text_is_repaired();
    ends_are_told();
    urls_are_encoded();
    end_of_stdin_is_seen();
    return 0;
}
