/* How the modules of a compressed-tensors checkpoint are stored: `quantization_config` read as the loader reads it.
 *
 * Reference: vLLM quantization/compressed_tensors, compressed-tensors quant_args.py (compressed-tensors reference, sections 4.1 to 4.5).  Knows no tensors: what is
 * really on disk is the checkpoint's business.
 */
#ifndef CT_SCHEME_H
#define CT_SCHEME_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"
#include "ct/names.h"
#include "ct/pattern.h"

enum ct_kind {
    CT_PLAIN,               /* M.weight in 16 or 32 bits */
    CT_PACKED,              /* M.weight_packed I32 [out, in*bits/32], M.weight_scale [out, in/group] ([out, 1] when group is 0), M.weight_shape I64 [2] */
    CT_FP8,                 /* M.weight F8_E4M3 [out, in], M.weight_scale [out, 1] */
    CT_INT8                 /* M.weight I8 [out, in], M.weight_scale [out, 1] */
};
const char *ct_kind_name(enum ct_kind k);       /* "16-bit", "int4", … */

struct ct_scheme {
    enum ct_kind kind;
    int bits;               /* of CT_PACKED: 4 or 8; else 8, or 16 for plain */
    int group;              /* inputs that share a scale; 0 = the whole row */
    bool act8;              /* the loader quantizes activations per token to 8 bits */
};

/* One set of arguments as written; defaults where a key is missing. */
struct ct_args {
    bool present;           /* not null */
    int bits;
    bool is_float, symmetric, dynamic, actorder;
    char strategy[24];      /* "group", "channel", "tensor", "token", … */
    int group_size;         /* 0 = null */
};

struct ct_group {
    char *name;             /* "group_0" */
    char format[40];        /* its own, else the config's */
    struct ct_args weights, input;
};

/* A target and the group it stands for: in the config's order; of two groups that name the same target the later one holds, at the place of the first. */
struct ct_target { struct ct_pattern pattern; size_t group; };

struct ct_quant {
    enum ct_arch arch;
    struct ct_group *group; size_t n_groups;
    struct ct_target *target; size_t n_targets;
    struct ct_pattern *ignore; size_t n_ignore;
};

/* How bad a fault is: the loader stops; it loads and answers wrongly; it works and could be cleaner; worth knowing. */
enum ct_grade { CT_REFUSED, CT_WRONG, CT_UNTIDY, CT_NOTE };
/* Where faults go: `where` is a module, tensor, file or config key, `what` says what is wrong, `loader` is what vLLM says or does (NULL = nothing). */
struct ct_faults { void (*fn)(void *arg, enum ct_grade grade, const char *where, const char *what, const char *loader); void *arg; };

/* From a whole config.json.  NULL with e->code 0 when it has no quantization_config.  A malformed one is EXIT_DATA; what is well formed but not
 * accepted (unknown keys, impossible strategies) goes to `faults`, or is the error when faults is NULL and the loader refuses it. */
struct ct_quant *ct_quant_read(const json_t *config, const char *where, const struct ct_faults *faults, struct err *e) MUST_CHECK;
void ct_quant_free(struct ct_quant *q);

/* How module M (a tensor's name without its suffix, as on disk, any spelling) is stored.  q NULL = plain.  EXIT_DATA where a pattern cannot be decided or
 * the group's format, type and strategy make no known scheme (asymmetric weights, static activations, other bit widths …). */
int ct_scheme_of(const struct ct_quant *q, const char *module, struct ct_scheme *out, struct err *e) MUST_CHECK;

/* The parts of that decision, for the checker.  All names are the loader's (ct_runtime_name). */
enum ct_match ct_ignored(const struct ct_quant *q, const char *name);
/* First group, in config order, with a target that matches the name / the class; NULL = none.  *undecided is set where a pattern before the match could not be decided. */
const struct ct_group *ct_target_by_name(const struct ct_quant *q, const char *name, bool *undecided);
const struct ct_group *ct_target_by_class(const struct ct_quant *q, const char *cls, bool *undecided);
/* The scheme a group gives a linear (or lm_head), or an embedding.  false: none that the loader has; *why says so. */
bool ct_group_scheme(const struct ct_group *g, bool embedding, struct ct_scheme *out, const char **why);
#endif
