#include "tensor/stream.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct st_reader {
    struct input *in;
    struct st_header *h;
    size_t next;            /* the tensor that st_next gives next */
    uint64_t left;          /* unread bytes of the current one */
    bool ended;             /* the end was checked */
};

uint64_t st_data_offset(const struct st_reader *r)
{
    return 8 + (uint64_t)r->h->json_bytes;
}

/* What the first bytes of a file belong to that people take for safetensors; NULL: nothing known. */
static const char *looks_like(const unsigned char first[8])
{
    static const struct { const char *begin, *what; } known[] = {
        {"version ", "a Git LFS pointer: fetch what it stands for, git lfs pull"},
        {"GGUF", "GGUF: take the checkpoint that is published as safetensors"},
        {"PK\3\4", "a zip archive, as PyTorch writes them: take the checkpoint that is published as safetensors"},
        {"<!DOCTYP", "a web page: download the file itself"},
        {"<!doctyp", "a web page: download the file itself"},
        {"<html", "a web page: download the file itself"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!memcmp(first, known[i].begin, strlen(known[i].begin)))
            return known[i].what;
    return NULL;
}

static int read_header(struct st_reader *r, struct err *e)
{
    unsigned char len[8];
    const char *name = input_name(r->in);
    size_t got = 0;
    long more = 1;
    while (got < sizeof len && (more = input_read(r->in, len + got, sizeof len - got, e)) > 0)
        got += (size_t)more;
    if (more < 0)
        return -1;
    if (got < sizeof len)
        return err_set(e, EXIT_DATA, got ? "%s: ends within the header's length: the file is cut, or the stage before this one failed"
            : "%s: nothing came: the file is empty, or the stage before this one failed", name);
    const char *other = looks_like(len);
    if (other)
        return err_set(e, EXIT_DATA, "%s: no safetensors file, but %s", name, other);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | len[i];
    if (n > ST_MAX_HEADER)
        return err_set(e, EXIT_DATA, "%s: the header claims %llu bytes, at most %u are allowed: not a safetensors file", name,
                       (unsigned long long)n, ST_MAX_HEADER);
    /* Grown as data arrive: a lying length costs no memory. */
    char *json = NULL;
    size_t have = 0;
    while (have < n) {
        size_t step = n - have < 4 * IO_CHUNK ? (size_t)n - have : 4 * IO_CHUNK;
        json = xreallocarray(json, have + step, 1);
        if (input_read_full(r->in, json + have, step, "header", e) != 0 || (have == 0 && json[0] != '{')) {
            free(json);
            return err_set(e, EXIT_DATA, "%s: the header does not begin with '{': not a safetensors file", name);
        }
        have += step;
    }
    r->h = st_header_parse(json, (size_t)n, name, e);
    free(json);
    return r->h ? 0 : -1;
}

/* A file that is cut or too long is refused before anything is made of it; a pipe shows it at its end. */
static int check_length(struct st_reader *r, struct err *e)
{
    uint64_t size, want = st_data_offset(r) + (st_is_plan(r->h) ? 0 : r->h->nbytes);
    if (!input_seekable(r->in))
        return 0;
    if (input_size(r->in, &size, e) != 0)
        return -1;
    if (size < want)
        return err_set(e, EXIT_DATA, "%s: %llu bytes, %llu expected: the file is cut", input_name(r->in), (unsigned long long)size,
                       (unsigned long long)want);
    if (size > want)
        return err_set(e, EXIT_DATA, "%s: %llu bytes, %llu expected: something follows the last tensor: not one safetensors file", input_name(r->in),
                       (unsigned long long)size, (unsigned long long)want);
    return 0;
}

struct st_reader *st_open(const char *path, struct err *e)
{
    struct input *in = input_open(path, e);
    return in ? st_open_input(in, e) : NULL;
}

struct st_reader *st_open_input(struct input *in, struct err *e)
{
    struct st_reader *r = xcalloc(1, sizeof *r);
    r->in = in;
    if (read_header(r, e) != 0 || check_length(r, e) != 0) {
        st_close(r);
        return NULL;
    }
    return r;
}

const struct st_header *st_header_of(const struct st_reader *r)
{
    return r->h;
}

const char *st_reader_name(const struct st_reader *r)
{
    return input_name(r->in);
}

uint64_t st_left(const struct st_reader *r)
{
    return r->left;
}

static const struct st_tensor *current(const struct st_reader *r)
{
    return &r->h->t[r->next - 1];
}

/* A cut file cannot hide behind a seek: its length was checked when it was opened. */
int st_skip(struct st_reader *r, uint64_t n, struct err *e)
{
    if (n == 0)
        return 0;
    if (input_seekable(r->in)) {
        const struct st_tensor *t = current(r);
        if (input_seek(r->in, st_data_offset(r) + t->begin + t->nbytes - r->left + n, e) != 0)
            return -1;
        r->left -= n;
        return 0;
    }
    char *buf = xmalloc(IO_CHUNK);
    int bad = 0;
    while (n > 0 && !bad) {
        size_t step = n < IO_CHUNK ? (size_t)n : IO_CHUNK;
        bad = st_read(r, buf, step, e);
        n -= step;
    }
    free(buf);
    return bad;
}

static int check_end(struct st_reader *r, struct err *e)
{
    char extra;
    long n = input_read(r->in, &extra, 1, e);
    if (n < 0)
        return -1;
    if (n > 0)
        return err_set(e, EXIT_DATA, "%s: data go on after the end that the header states: not one safetensors file", input_name(r->in));
    r->ended = true;
    return 0;
}

const struct st_tensor *st_next(struct st_reader *r, struct err *e)
{
    if (r->ended || e->code)
        return NULL;
    bool plan = st_is_plan(r->h);
    if (st_skip(r, r->left, e) != 0)
        return NULL;
    if (plan || r->next == r->h->n) {
        (void)check_end(r, e);
        return NULL;
    }
    const struct st_tensor *t = &r->h->t[r->next++];
    r->left = t->nbytes;
    return t;
}

int st_read(struct st_reader *r, void *buf, size_t n, struct err *e)
{
    if (n > r->left)
        return err_set(e, EXIT_BUG, "%s: read past the end of %s", input_name(r->in), r->next ? current(r)->name : "the header");
    if (n > 0 && input_read_full(r->in, buf, n, current(r)->name, e) != 0)
        return -1;
    r->left -= n;
    return 0;
}

bool st_seekable(const struct st_reader *r)
{
    return input_seekable(r->in);
}

int st_seek(struct st_reader *r, size_t i, struct err *e)
{
    const struct st_tensor *t = &r->h->t[i];
    r->next = i + 1;
    r->left = t->nbytes;
    r->ended = false;
    return input_seek(r->in, st_data_offset(r) + t->begin, e);
}

int st_rewind(struct st_reader *r, struct err *e)
{
    r->next = 0;
    r->left = 0;
    r->ended = false;
    return input_seek(r->in, st_data_offset(r), e);
}

int st_read_at(struct st_reader *r, const struct st_tensor *t, uint64_t offset, void *buf, size_t n, struct err *e)
{
    if (offset > t->nbytes || n > t->nbytes - offset)
        return err_set(e, EXIT_BUG, "%s: read past the end of %s", st_reader_name(r), t->name);
    return input_pread_full(r->in, buf, n, st_data_offset(r) + t->begin + offset, t->name, e);
}

void st_close(struct st_reader *r)
{
    if (!r)
        return;
    input_close(r->in);
    st_header_free(r->h);
    free(r);
}

/* --- writer -------------------------------------------------------------------------------------------------------- */

struct st_writer {
    struct output *out;
    const struct st_header *h;
    uint64_t left;          /* bytes still owed */
};

struct st_writer *st_create(const char *path, const struct st_header *h, bool zstd, struct err *e)
{
    char *bytes;
    size_t n;
    if (strcmp(path, "-") == 0 && isatty(STDOUT_FILENO)) {
        err_set(e, EXIT_USAGE, "stdout: is a terminal: tensors go to a pipe or a file, try %s --help", prog_name);
        return NULL;
    }
    if (st_header_render(h, &bytes, &n, e) != 0)
        return NULL;
    struct output *out = output_open(path, zstd, e);
    if (out && output_write(out, bytes, n, e) != 0) {
        output_abort(out);
        out = NULL;
    }
    free(bytes);
    if (!out)
        return NULL;
    struct st_writer *w = xcalloc(1, sizeof *w);
    w->out = out;
    w->h = h;
    w->left = st_is_plan(h) ? 0 : h->nbytes;
    return w;
}

static int owe(struct st_writer *w, uint64_t n, struct err *e)
{
    if (n > w->left)
        return err_set(e, EXIT_BUG, "%s: more data than the header promised", output_name(w->out));
    w->left -= n;
    return 0;
}

int st_write(struct st_writer *w, const void *buf, size_t n, struct err *e)
{
    return owe(w, n, e) != 0 ? -1 : output_write(w->out, buf, n, e);
}

int st_pass(struct st_writer *w, struct st_reader *r, uint64_t n, struct err *e)
{
    if (n == 0)
        return 0;
    if (n > r->left)
        return err_set(e, EXIT_BUG, "%s: passed past the end of a tensor", input_name(r->in));
    if (owe(w, n, e) != 0 || output_pass(w->out, r->in, n, current(r)->name, e) != 0)
        return -1;
    r->left -= n;
    return 0;
}

int st_pass_input(struct st_writer *w, struct input *in, uint64_t n, struct err *e)
{
    return owe(w, n, e) != 0 ? -1 : output_pass(w->out, in, n, "side file", e);
}

int st_finish(struct st_writer *w, struct err *e)
{
    int bad = w->left ? err_set(e, EXIT_BUG, "%s: %llu bytes fewer than the header promised", output_name(w->out),
                                (unsigned long long)w->left) : 0;
    if (bad)
        output_abort(w->out);
    else
        bad = output_commit(w->out, e);
    free(w);
    return bad;
}

void st_abandon(struct st_writer *w)
{
    if (!w)
        return;
    output_abort(w->out);
    free(w);
}
