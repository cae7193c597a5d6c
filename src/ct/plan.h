/* From a stream's header to a build: which tensors it has, what becomes of each of the stream's, and its config.json.  Pure: no data.
 *
 * Refuses (EXIT_DATA, naming the tensor and the way out): a linear left in 16 bits that `q4_left` does not name; modules that the loader fuses but that are stored
 * differently; linears of two schemes; a packed embed_tokens without a head of its own; zero points and static activation scales; incomplete modules.
 */
#ifndef CT_PLAN_H
#define CT_PLAN_H
#include <stdint.h>
#include "ct/quant_config.h"
#include "tensor/header.h"

enum ct_action {
    CT_COPY,                /* one tensor, unchanged */
    CT_SPLIT,               /* blocks to weight_packed, weight_scale, weight_shape */
    CT_QUANTIZE,            /* 16-bit rows to weight and weight_scale [rows, 1] */
    CT_SIDE_FILE,           /* a file of the build directory */
    CT_DROP                 /* not part of this build */
};

/* What becomes of one tensor of the stream.  A fused expert bank is dealt to `modules`, in the order of its rows: expert 0 gate, expert 0 up, expert 1 gate … or expert 0 down,
 * expert 1 down …; module m has its tensors at out->t[first + m * parts], in the order named above. */
struct ct_step {
    enum ct_action action;
    size_t source;          /* its number in the stream */
    size_t first, parts;
    uint64_t modules, rows, cols;       /* of one module; 0 where nothing is dealt */
};

struct ct_plan {
    struct st_header *out;              /* the build's tensors in the stream's order; metadata: format and what the stream had beyond ours */
    struct ct_step *step; size_t n_steps;
    json_t *config;                     /* config.json */
    char build[32];
    uint64_t quantized_modules;
    uint64_t passed_linears;            /* came packed, in another way than `linears` asks for, and stay as they are */
};

/* `linears` CT_PACKED (int4, made by q4-regrid), CT_FP8 or CT_INT8. */
struct ct_plan *ct_plan_make(const struct st_header *in, const char *name, enum ct_kind linears, struct err *e) MUST_CHECK;
void ct_plan_free(struct ct_plan *p);
#endif
