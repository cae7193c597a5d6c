/* Where tensors come from, seen as one list: the shards of a checkpoint merged, a file, or a stream on stdin.
 *
 * Owns: opening every shard's header, the list of all tensors in source order (shards by name, then by offset), and of a checkpoint its config.json
 * and the names of its side files.  A file or stream brings config and side files inside itself.  Refuses a tensor that stands in two shards, and
 * an index that names what no file has.
 */
#ifndef TENSOR_SOURCE_H
#define TENSOR_SOURCE_H
#include "base/store.h"
#include "tensor/stream.h"

struct source_tensor {
    const struct st_tensor *t;
    size_t reader, index;       /* which reader, and the tensor's number in its header */
};

struct source_side { char *name; uint64_t nbytes; };

struct source {
    struct st_reader **reader;
    char **file;                /* each reader's file in the store; NULL for a local file or stream */
    size_t n_readers;
    struct source_tensor *tensor; size_t n;
    struct st_header *header;   /* metadata of the whole, config included, no tensors; sha256 = that of the only header, or of the shards' digests
                                 * in a row */
    struct source_side *side; size_t n_side;
    bool seekable;              /* any tensor can be read at any time */
};

/* A lone file, or "-". */
struct source *source_open_file(const char *path, struct err *e) MUST_CHECK;
/* One file of a store by itself. */
struct source *source_open_file_of(const struct store *place, const char *file, struct err *e) MUST_CHECK;
/* A checkpoint in a store, which must outlive the source. */
struct source *source_open_store(const struct store *place, struct err *e) MUST_CHECK;
void source_close(struct source *s);
#endif
