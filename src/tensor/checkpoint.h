/* A checkpoint, here or remote: a place with an index, with a single model.safetensors or with shards without an index, or one file.
 * Random access by tensor name.  Reads headers only until data are asked for.
 *
 * With an index only the files it names are opened (all their tensors).  Without: model.safetensors if there is one, else every *.safetensors.
 * Refuses: a tensor in two shards, a missing shard, an index that maps a tensor to a file without it.  (ct-check, which reports these
 * instead of refusing them, uses ckpt_open's `faults`.)
 */
#ifndef TENSOR_CHECKPOINT_H
#define TENSOR_CHECKPOINT_H
#include "base/store.h"
#include "tensor/stream.h"

struct ckpt_shard {
    char *name;                 /* file name without directory */
    struct st_reader *reader;   /* NULL = unreadable */
};

struct ckpt_entry { const struct st_tensor *t; size_t shard; };

struct ckpt {
    char *path;
    bool has_index;
    struct ckpt_shard *shard; size_t n_shards;
    struct ckpt_entry *entry; size_t n;         /* all tensors: by shard (names sorted), then by offset */
    struct st_name_index *index;
};

/* The safetensors files of a place by the rules above: names sorted, freed by ckpt_files_free.  index is the weight_map, or NULL.  A place
 * that cannot list its files has an index or a model.safetensors. */
struct ckpt_files { char **name; size_t n; json_t *index; };
int ckpt_files(const struct store *place, struct ckpt_files *f, struct err *e) MUST_CHECK;
void ckpt_files_free(struct ckpt_files *f);

/* faults NULL: the first fault is the error.  Else faults->fn is called for each fault and opening goes on with what is
 * there; only what is the machine's fault (err_of_machine) still ends it. */
struct ckpt_fault {
    const char *shard, *tensor;         /* tensor NULL: it is the whole shard's */
    const char *what;
    bool missing;                       /* there is no such file */
};
struct ckpt_faults { void (*fn)(void *arg, const struct ckpt_fault *f); void *arg; };
struct ckpt *ckpt_open(const char *path, const struct ckpt_faults *faults, struct err *e) MUST_CHECK;
/* The checkpoint in a store, or only this file of it; the store may be closed afterwards. */
struct ckpt *ckpt_open_store(const struct store *place, const char *file, const struct ckpt_faults *faults, struct err *e) MUST_CHECK;
const struct ckpt_entry *ckpt_find(const struct ckpt *c, const char *tensor);       /* NULL = none */
/* n bytes of a tensor from `offset` within it; where files are local from any number of threads. */
int ckpt_read(const struct ckpt *c, const struct ckpt_entry *t, uint64_t offset, void *buf, size_t n, struct err *e) MUST_CHECK;
void ckpt_close(struct ckpt *c);
#endif
