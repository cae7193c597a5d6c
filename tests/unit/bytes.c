/* Bytes a decoded token reads, against the published table of the sizes' text and emb4 builds (GB, three decimals). */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemma/bytes.h"
#include "gemma/preset.h"

static void add(struct st_header *h, const char *module, const char *suffix, enum st_dtype dtype, int ndim, uint64_t a, uint64_t b)
{
    char name[160];

    snprintf(name, sizeof name, "%s%s", module, suffix);
    st_header_add(h, name, dtype, ndim, (uint64_t[2]){a, b});
}

static void add_int4(struct st_header *h, const char *module, uint64_t rows, uint64_t columns)
{
    add(h, module, ".weight_packed", ST_I32, 2, rows, columns / 8);
    add(h, module, ".weight_scale", ST_BF16, 2, rows, columns / 32);
    add(h, module, ".weight_shape", ST_I64, 1, 2, 0);
}

static void add_8bit(struct st_header *h, const char *module, uint64_t rows, uint64_t columns)
{
    add(h, module, ".weight", ST_I8, 2, rows, columns);
    add(h, module, ".weight_scale", ST_F32, 2, rows, 1);
}

static void add_experts(struct st_header *h, const struct gemma *g, int layer)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};

    for (int x = 0; x < g->experts; x++)
        for (int k = 0; k < 3; k++) {
            char module[96];
            snprintf(module, sizeof module, "model.layers.%d.experts.%d.%s", layer, x, names[k]);
            add_int4(h, module, (uint64_t)(k < 2 ? g->expert_mlp : g->hidden), (uint64_t)(k < 2 ? g->hidden : g->expert_mlp));
        }
}

/* The header of a build: linears int4 or int8, embeddings and an untied head int4 or 16 bits. */
static struct st_header *build(const struct gemma *g, bool int8, bool emb4)
{
    struct st_header *h = st_header_new();
    size_t n;
    struct gemma_tensor *list = gemma_text_tensors(g, &n);

    for (size_t i = 0; i < n; i++) {
        const struct gemma_tensor *t = &list[i];
        const bool table = t->cls == GC_EMBED || t->cls == GC_PLE;
        char module[120];
        snprintf(module, sizeof module, "%.*s", (int)strlen(t->name) - (strstr(t->name, ".weight") ? 7 : 0), t->name);
        if (t->cls == GC_EXPERTS) {
            if (strstr(t->name, "gate_up"))
                add_experts(h, g, t->layer);
        } else if (t->cls == GC_LINEAR && int8)
            add_8bit(h, module, t->shape[0], t->shape[1]);
        else if (t->cls == GC_LINEAR || (table && emb4))
            add_int4(h, module, t->shape[0], t->shape[1]);
        else
            st_header_add(h, t->name, ST_BF16, t->ndim, t->shape);
        if (t->cls == GC_EMBED && emb4)
            add_int4(h, "lm_head", t->shape[0], t->shape[1]);
    }
    free(list);
    return h;
}

static void published_table(void)
{
    static const struct { const char *size, *build; double gb; } want[] = {
        {"e2b", "text", 1.874}, {"e4b", "text", 3.608}, {"12b", "text", 8.247}, {"26b", "text", 3.294}, {"31b", "text", 19.560},
        {"e2b", "emb4", 1.295}, {"e4b", "emb4", 2.643}, {"12b", "emb4", 6.800}, {"26b", "emb4", 2.233}, {"31b", "emb4", 17.534},
        {"e2b", "int8", 2.699}, {"e4b", "int8", 5.351}, {"12b", "int8", 13.025}, {"e2b", "int8emb4", 2.120},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        json_t *config = gemma_preset(want[i].size, true, false);
        struct gemma g;
        struct gemma_bytes b;
        struct err e = {0};

        assert(!gemma_config_read(&g, config, want[i].size, &e));
        struct st_header *h = build(&g, strstr(want[i].build, "int8") != NULL, strstr(want[i].build, "emb4") != NULL);
        gemma_bytes_count(&b, &g, h);
        const double gb = (b.text.read + gemma_kv_read(&g, GEMMA_MEAN_CONTEXT, 2)) / 1e9;
        printf("%s: %s %s: %.4f GB a token, published %.3f\n", fabs(gb - want[i].gb) < 0.0005 ? "ok" : "WRONG", want[i].size, want[i].build, gb, want[i].gb);
        assert(fabs(gb - want[i].gb) < 0.0005);
        /* By storage: all of it, and 8-bit only where the linears are. */
        assert(fabs(b.read[GEMMA_INT4] + b.read[GEMMA_8BIT] + b.read[GEMMA_16BIT] - b.text.read) < 1);
        assert((b.read[GEMMA_8BIT] > 0) == (strstr(want[i].build, "int8") != NULL));
        assert((b.read[GEMMA_INT4] > 0) == (strstr(want[i].build, "int8") == NULL || strstr(want[i].build, "emb4") != NULL));
        st_header_free(h);
        json_decref(config);
    }
}

/* Parameters do not depend on how they are stored; the cache grows as published. */
static void counts(void)
{
    static const struct { const char *size; uint64_t params, kv; } want[] = {
        {"e2b", 4628569379, 18432}, {"e4b", 7463013418, 57344}, {"12b", 11907350320, 344064}, {"26b", 25233141790, 225280}, {"31b", 30697345340, 901120},
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        json_t *config = gemma_preset(want[i].size, true, false);
        struct gemma g;
        struct gemma_bytes b;
        struct err e = {0};

        assert(!gemma_config_read(&g, config, want[i].size, &e));
        struct st_header *h = build(&g, false, false);
        gemma_bytes_count(&b, &g, h);
        assert(b.text.params == want[i].params && b.text.bytes == h->nbytes && b.text.tensors == h->n);
        assert(gemma_kv_bytes(&g, 2) == want[i].kv);
        if (g.experts)
            assert(b.cls[GC_EXPERTS].params == 22837985280 && b.cls[GC_ROUTER].params == 10813440);
        st_header_free(h);
        json_decref(config);
        printf("ok: %s: %llu parameters in a text build, %llu bytes of cache a position\n", want[i].size, (unsigned long long)want[i].params, (unsigned long long)want[i].kv);
    }
}

int main(void)
{
    prog_init("bytes");
    published_table();
    counts();
    return 0;
}
