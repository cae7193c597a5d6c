/* Fuzz target: config.json as ct-check, ct-pack and the engine read it. */
#define FUZZ_CORPUS "config"
#include "../fuzz/driver.h"
#include "base/json.h"
#include "ct/lint.h"

static void count(void *arg, enum ct_grade grade, const char *where, const char *what, const char *loader)
{
    (void)loader;
    if (grade > CT_NOTE || !where || !what)
        abort();
    ++*(long *)arg;
}

static void fuzz_one(const uint8_t *data, size_t n)
{
    struct err e = {0, ""};
    long faults = 0;
    const struct ct_faults to = {count, &faults};
    const struct st_tensor none = {(char *)(uintptr_t)"model.layers.0.mlp.down_proj.weight_packed", ST_I32, 2, {256, 16}, 0, 16384};
    const struct st_tensor *tensor[] = {&none};
    json_t *config = json_parse((const char *)data, n, "fuzz", &e);
    struct ct_disk disk = {config, tensor, 1};
    struct ct_quant *q;
    struct ct_scheme s;

    if (!json_is_object(config)) {
        json_decref(config);
        return;
    }
    ct_lint(&disk, &to);
    q = ct_quant_read(config, "fuzz", NULL, &e);
    if (!q && e.code)
        e = (struct err){0, ""};
    (void)!ct_scheme_of(q, "model.layers.0.self_attn.q_proj", &s, &e);
    ct_quant_free(q);
    json_decref(config);
}
