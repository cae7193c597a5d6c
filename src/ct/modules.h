/* Tensors on disk grouped to modules, whatever spelling their names have: how each module is stored, by the parts that are there.
 *
 * Knows no config: whether a module should be there, and so stored, is the linter's question (ct/lint.h).
 */
#ifndef CT_MODULES_H
#define CT_MODULES_H
#include "ct/scheme.h"
#include "tensor/header.h"

struct ct_module {
    char disk[CT_NAME], runtime[CT_NAME];           /* its name in the files; the loader's (ct_runtime_name) */
    const struct st_tensor *part[CT_WHOLE + 1];     /* by enum ct_part; CT_WHOLE: a tensor without a known suffix */
    bool used;                                      /* the caller's mark: something expected it */
};
struct ct_modules {
    struct ct_module *m; size_t n;
    struct st_name_index *by_runtime;
};
/* Two spellings of one module end in the first; names that are too long are left out: both are faults (faults NULL: ignored).  The tensors must outlive it. */
void ct_modules_make(struct ct_modules *all, enum ct_arch arch, const struct st_tensor *const *tensor, size_t n, const struct ct_faults *faults);
void ct_modules_free(struct ct_modules *all);
struct ct_module *ct_modules_find(const struct ct_modules *all, const char *runtime);       /* NULL = none */
/* CT_PACKED, CT_FP8, CT_INT8 or CT_PLAIN by the parts and dtypes that are there; -1: no complete module. */
int ct_module_kind(const struct ct_module *m);
/* BF16, F16 or F32: what a weight that is not quantized, and a scale, may be. */
bool ct_is_float(const struct st_tensor *t);
#endif
