#include "ct/modules.h"
#include <stdlib.h>
#include <string.h>
#include "tensor/nameindex.h"

struct ct_module *ct_modules_find(const struct ct_modules *all, const char *runtime)
{
    size_t i = name_index_find(all->by_runtime, runtime);

    return i == NAME_NONE ? NULL : &all->m[i];
}

static void tell(const struct ct_faults *faults, enum ct_grade grade, const char *where, const char *what, const char *loader)
{
    if (faults)
        faults->fn(faults->arg, grade, where, what, loader);
}

static void add_tensor(struct ct_modules *all, enum ct_arch arch, const struct st_tensor *t, const struct ct_faults *faults)
{
    struct ct_module *m = &all->m[all->n];
    enum ct_part part;
    size_t there;

    memset(m, 0, sizeof *m);
    if (!ct_split_name(t->name, m->disk, &part) || !ct_runtime_name(arch, m->disk, m->runtime)) {
        tell(faults, CT_REFUSED, t->name, "name too long for any module", "ValueError: There is no module or parameter of that name");
        return;
    }
    there = name_index_add(all->by_runtime, m->runtime, all->n);
    if (there == NAME_NONE) {
        m->part[part] = t;
        all->n++;
    } else if (all->m[there].part[part]) {
        tell(faults, CT_UNTIDY, t->name, "stored under two spellings of one name", NULL);
    } else {
        all->m[there].part[part] = t;
    }
}

void ct_modules_make(struct ct_modules *all, enum ct_arch arch, const struct st_tensor *const *tensor, size_t n, const struct ct_faults *faults)
{
    all->m = xcalloc(n + 1, sizeof *all->m);            /* never moved: the index keeps pointers into it */
    all->n = 0;
    all->by_runtime = name_index_new(n);
    for (size_t i = 0; i < n; i++)
        add_tensor(all, arch, tensor[i], faults);
}

void ct_modules_free(struct ct_modules *all)
{
    name_index_free(all->by_runtime);
    free(all->m);
}

bool ct_is_float(const struct st_tensor *t)
{
    return t->dtype == ST_BF16 || t->dtype == ST_F16 || t->dtype == ST_F32;
}

int ct_module_kind(const struct ct_module *m)
{
    const struct st_tensor *w = m->part[CT_WEIGHT], *packed = m->part[CT_WEIGHT_PACKED], *scale = m->part[CT_WEIGHT_SCALE];

    if (m->part[CT_WHOLE])
        return w || packed || scale ? -1 : CT_PLAIN;
    if (packed)
        return w || !scale || !ct_is_float(scale) || (packed->dtype != ST_I32 && packed->dtype != ST_U32) ? -1 : CT_PACKED;
    if (!w)
        return -1;
    if (w->dtype == ST_F8_E4M3 || w->dtype == ST_I8)
        return !scale || !ct_is_float(scale) ? -1 : w->dtype == ST_I8 ? CT_INT8 : CT_FP8;
    return ct_is_float(w) && !scale ? CT_PLAIN : -1;
}
