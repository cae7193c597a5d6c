/* Any JSON as config.json: the model's description, its text-only form and its quantization_config are read or refused. */
#include <stdlib.h>
#include "base/json.h"
#include "ct/scheme.h"
#include "fuzz.h"
#include "gemma/config.h"
#include "gemma/names.h"

static void read_model(const json_t *config)
{
    struct err e = {0, ""};
    struct gemma *g = xmalloc(sizeof *g);
    if (gemma_config_read(g, config, "fuzz", &e) == 0) {
        size_t n;
        /* A model of a thousand layers' worth of experts is legal and only slow. */
        if (g->experts <= 64)
            free(gemma_text_tensors(g, &n));
    } else if (e.code != EXIT_DATA)
        abort();
    free(g);
}

static void read_quantization(const json_t *config)
{
    static const char *const module[] = {"model.layers.0.mlp.up_proj", "model.language_model.layers.3.self_attn.q_proj", "lm_head",
                                         "model.embed_tokens", "model.layers.1.experts.0.gate_proj"};
    struct err e = {0, ""};
    struct ct_quant *q = ct_quant_read(config, "fuzz", NULL, &e);
    for (size_t i = 0; q && i < sizeof module / sizeof module[0]; i++) {
        struct ct_scheme scheme;
        struct err ignored = {0, ""};
        if (ct_scheme_of(q, module[i], &scheme, &ignored) != 0 && ignored.code != EXIT_DATA)
            abort();
    }
    ct_quant_free(q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0, ""};
    json_t *config = json_parse((const char *)data, n, "fuzz", &e);
    if (!json_is_object(config)) {
        json_decref(config);
        return 0;
    }
    read_model(config);
    read_quantization(config);
    json_t *lifted = gemma_config_lift(config);
    read_model(lifted);
    json_decref(lifted);
    json_decref(config);
    return 0;
}
