/* Where tensors come from, seen as one list: a checkpoint directory (its shards merged), a file, or a stream on stdin.
 *
 * Owns: opening every shard's header, the list of all tensors in source order (shards by name, then by offset), and of a directory its config.json
 * and side files.  A file or stream brings config and side files inside itself.  Refuses a tensor that stands in two shards, and an index that names what no
 * file has.
 */
#ifndef TENSOR_SOURCE_H
#define TENSOR_SOURCE_H
#include "tensor/stream.h"

struct source_tensor {
    const struct st_tensor *t;
    size_t reader, index;       /* which reader, and the tensor's number in its header */
};

struct source {
    struct st_reader **reader; size_t n_readers;
    struct source_tensor *tensor; size_t n;
    struct st_header *header;   /* metadata of the whole, config included; sha256 = that of the only header, or of the shards' digests in a row; no tensors */
    char **side; size_t n_side; /* side files of a directory: paths */
    bool seekable;              /* any tensor can be read at any time */
};

struct source *source_open(const char *path, struct err *e) MUST_CHECK;
void source_close(struct source *s);
#endif
