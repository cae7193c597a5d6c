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
#endif
