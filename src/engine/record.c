#include "engine/record.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "tensor/stream.h"

struct tensor { char *name; size_t rows, wide; uint64_t at; bool dropped; };

struct record {
    int fd;
    uint64_t end;               /* of the room given out */
    struct tensor *t; size_t n, cap;
};

struct record *record_new(struct err *e)
{
    const int fd = io_spool_fd(e);

    if (fd < 0)
        return NULL;
    struct record *r = xcalloc(1, sizeof *r);
    r->fd = fd;
    return r;
}

int record_tensor(struct record *r, const char *name, size_t rows, size_t wide, size_t *tensor, struct err *e)
{
    for (size_t i = 0; i < r->n; i++)
        if (!r->t[i].dropped && !strcmp(r->t[i].name, name))
            return err_set(e, EXIT_DATA, "%s would be written twice: give every line its own id", name);
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 64;
        r->t = xreallocarray(r->t, r->cap, sizeof *r->t);
    }
    r->t[r->n] = (struct tensor){.name = xstrdup(name), .wide = wide, .at = r->end};
    r->end += (uint64_t)rows * wide * sizeof(float);
    *tensor = r->n++;
    return 0;
}

int record_row(struct record *r, size_t tensor, const float *row, struct err *e)
{
    struct tensor *t = &r->t[tensor];
    const size_t bytes = t->wide * sizeof *row;

    return io_pwrite_full(r->fd, row, bytes, t->at + bytes * t->rows++, "spool of tensors", e);
}

void record_drop(struct record *r, size_t tensor) { r->t[tensor].dropped = true; }

static int copy(struct record *r, const struct tensor *t, struct st_writer *w, char *tile, struct err *e)
{
    const uint64_t bytes = (uint64_t)t->rows * t->wide * sizeof(float);

    for (uint64_t done = 0; done < bytes;) {
        const size_t n = bytes - done < IO_CHUNK ? (size_t)(bytes - done) : IO_CHUNK;
        if (io_pread_full(r->fd, tile, n, t->at + done, "spool of tensors", e) || st_write(w, tile, n, e))
            return -1;
        done += n;
    }
    return 0;
}

int record_write(struct record *r, const char *path, struct err *e)
{
    struct st_header *h = st_header_new();

    for (size_t i = 0; i < r->n; i++)
        if (!r->t[i].dropped)
            st_header_add(h, r->t[i].name, ST_F32, 2, (uint64_t[]){r->t[i].rows, r->t[i].wide});
    st_meta_set(h, "format", "pt");
    struct st_writer *w = st_create(path, h, false, e);
    char *tile = xmalloc(IO_CHUNK);
    bool failed = !w;
    for (size_t i = 0; !failed && i < r->n; i++)
        failed = !r->t[i].dropped && copy(r, &r->t[i], w, tile, e);
    if (w && failed)
        st_abandon(w);
    else if (w)
        failed = st_finish(w, e);
    free(tile);
    st_header_free(h);
    return failed ? -1 : 0;
}

void record_free(struct record *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        free(r->t[i].name);
    free(r->t);
    close(r->fd);
    free(r);
}
