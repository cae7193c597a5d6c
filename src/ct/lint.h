/* Will vLLM load this build, and with what error not: decided from config.json and the tensors' headers alone.
 *
 * Source of the rules: compressed-tensors reference, sections 4.3 to 4.10 (vLLM 0.29 to 0.33, what it said in recorded runs).  Every fault goes to `faults`
 * with its grade; nothing is printed here.
 */
#ifndef CT_LINT_H
#define CT_LINT_H
#include "ct/scheme.h"
#include "gemma/config.h"
#include "tensor/header.h"

/* What stands on disk, names unique. */
struct ct_disk {
    const json_t *config;
    const struct st_tensor *const *tensor; size_t n;
};

void ct_lint(const struct ct_disk *disk, const struct ct_faults *faults);

/* The parts that say how a module lies on disk, shared with whoever reads its values. */
struct ct_module {
    char disk[CT_NAME], runtime[CT_NAME];
    const struct st_tensor *part[CT_WHOLE + 1];     /* by enum ct_part; CT_WHOLE: a tensor without a known suffix */
    bool used;                                      /* the linter's mark: something expected it */
};
struct ct_modules {
    struct ct_module *m; size_t n;
    struct st_name_index *by_runtime;
};
/* Group tensors by module.  Two spellings of one module end in the first; names that are too long are left out: both are faults (faults NULL: ignored). */
void ct_modules_make(struct ct_modules *all, enum ct_arch arch, const struct st_tensor *const *tensor, size_t n, const struct ct_faults *faults);
void ct_modules_free(struct ct_modules *all);
struct ct_module *ct_modules_find(const struct ct_modules *all, const char *runtime);       /* NULL = none */
/* CT_PACKED, CT_FP8, CT_INT8 or CT_PLAIN by the parts and dtypes that are there; -1: no complete module. */
int ct_module_kind(const struct ct_module *m);
#endif
