/* The header of a safetensors file as data: names, dtypes, shapes, offsets, metadata.  Pure: no I/O.
 *
 * Refuses (EXIT_DATA, naming the tensor): N > 100,000,000; a header that does not begin with '{' or is not UTF-8 JSON; duplicate
 * keys; unknown dtypes; shapes that are no non-negative integers, or overflow; sizes that differ from dtype x shape; holes, overlaps,
 * a first offset other than 0; metadata that is not string to string.
 * Source of the rules: huggingface/safetensors tensor.rs, plus duplicate keys (ours).
 */
#ifndef TENSOR_HEADER_H
#define TENSOR_HEADER_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/hash.h"
#include "tensor/dtype.h"

#define ST_MAX_DIMS 8
#define ST_MAX_HEADER 100000000u

struct st_tensor {
    char *name;                 /* owned by the header */
    enum st_dtype dtype;
    int ndim;                   /* 0 = scalar */
    uint64_t shape[ST_MAX_DIMS];
    uint64_t begin, nbytes;     /* offset from the start of the data, length */
};

struct st_header {
    struct st_tensor *t;        /* in offset order */
    size_t n, cap;
    json_t *meta;               /* object, string to string; never NULL */
    uint64_t nbytes;            /* of data: the end of the last tensor */
    size_t json_bytes;          /* N of a parsed header */
    char sha256[SHA256_HEX];    /* of a parsed header's N JSON bytes, padding included; "" for one being built */
    struct st_name_index *index;/* made at the first st_find */
};

struct st_header *st_header_new(void);
void st_header_free(struct st_header *h);
/* Parse the n JSON bytes (without the 8-byte length).  `name` is the stream's, for messages. */
struct st_header *st_header_parse(const char *json, size_t n, const char *name, struct err *e) MUST_CHECK;
/* Append a tensor after the last one; nbytes follows from dtype and shape. */
void st_header_add(struct st_header *h, const char *name, enum st_dtype dtype, int ndim, const uint64_t *shape);
/* A whole file's beginning: 8-byte length, JSON padded with spaces so that the data start at a multiple of 8.  Metadata
 * keys sorted, tensors in offset order.  EXIT_DATA when larger than ST_MAX_HEADER. Freed by the caller. */
int st_header_render(const struct st_header *h, char **bytes, size_t *n, struct err *e) MUST_CHECK;

const struct st_tensor *st_find(const struct st_header *h, const char *name);      /* NULL = none */
uint64_t st_nelem(const struct st_tensor *t);
bool st_is_plan(const struct st_header *h);     /* __metadata__.plan == "1" */
const char *st_meta(const struct st_header *h, const char *key);                   /* NULL = none */
void st_meta_set(struct st_header *h, const char *key, const char *value);          /* NULL removes */
/* Metadata of `from` into h (a filter's first step). */
void st_meta_copy(struct st_header *h, const struct st_header *from);
/* Metadata `config` parsed; new reference. EXIT_DATA when missing or no JSON object. */
json_t *st_meta_config(const struct st_header *h, const char *name, struct err *e) MUST_CHECK;
/* A key's value as a list of strings or objects: an empty list when it is absent; new reference. EXIT_DATA when it is no JSON array. */
json_t *st_meta_list(const struct st_header *h, const char *key, const char *name, struct err *e) MUST_CHECK;
void st_meta_set_json(struct st_header *h, const char *key, const json_t *value);   /* compact text */
/* One of a stage's args: "--OPTION=VALUE", what is no UTF-8 in it as '?'; new reference. */
json_t *st_stage_arg(const char *option, const char *value);
/* Append this program's stage to `provenance`: args is an array of strings (only options that can change bytes, fixed order; the
 * reference is consumed); parent = the header it read, NULL for a source; name = that of what it read, for messages. */
int st_provenance(struct st_header *h, const char *name, const char *tool, json_t *args, const struct st_header *parent, struct err *e) MUST_CHECK;

/* "file:NAME" tensors: side files that travel inside. Returns NAME or NULL. */
const char *st_side_file(const struct st_tensor *t);
#endif
