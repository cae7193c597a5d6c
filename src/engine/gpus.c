#include "engine/gpus.h"
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/err.h"

/* data/gpus.json as a string literal; the Makefile makes it. */
static const char text[] =
#include "gpus_json.h"
;

#define MAX_GPUS 32

static struct {
    json_t *all;
    struct gpu gpu[MAX_GPUS];
    size_t n;
    char names[16 * MAX_GPUS];
    struct gpu_vllm vllm;
    struct gpu_ours ours;
} table;

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

static const json_t *names_of(size_t i) { return json_object_get(json_array_get(json_object_get(table.all, "gpus"), i), "names"); }

static void read_gpus(void)
{
    const json_t *list = json_object_get(table.all, "gpus");

    table.n = json_array_size(list);
    if (!table.n || table.n > MAX_GPUS)
        die_msg(EXIT_BUG, "data/gpus.json, as compiled in, lists %zu GPUs", table.n);
    for (size_t i = 0; i < table.n; i++) {
        const json_t *o = json_array_get(list, i);
        const char *name = json_string_value(json_array_get(names_of(i), 0));
        table.gpu[i] = (struct gpu){name, number(o, "gb_per_s"), number(o, "memory_gb"), number(o, "kernel_us"), number(o, "compute_capability"),
            (int)number(o, "sms"), number(o, "l2_mb"), number(o, "share_of_peak")};
        const size_t at = strlen(table.names);
        snprintf(table.names + at, sizeof table.names - at, "%s%s", i ? ", " : "", name);
    }
}

static void read_table(void)
{
    const json_t *v, *o;

    if (table.all)
        return;
    table.all = json_loads(text, 0, NULL);
    read_gpus();
    v = json_object_get(table.all, "vllm"), o = json_object_get(table.all, "ours");
    table.vllm = (struct gpu_vllm){gpu_find(json_string_value(json_object_get(v, "gpu"))), number(v, "int4_gb_per_s"), number(v, "8bit_gb_per_s"),
        number(v, "16bit_gb_per_s"), number(v, "layer_us"), number(v, "moe_layer_us")};
    table.ours = (struct gpu_ours){number(o, "share_of_peak"), number(o, "token_us"), number(o, "compute_capability")};
}

const struct gpu *gpu_find(const char *name)
{
    read_table();
    for (size_t i = 0; i < table.n; i++) {
        const json_t *names = names_of(i), *one;
        size_t j;
        json_array_foreach((json_t *)names, j, one)
            if (!strcasecmp(json_string_value(one), name))
                return &table.gpu[i];
    }
    return NULL;
}

const char *gpu_names(void)
{
    read_table();
    return table.names;
}

const struct gpu_vllm *gpu_vllm(void)
{
    read_table();
    return &table.vllm;
}

const struct gpu_ours *gpu_ours(void)
{
    read_table();
    return &table.ours;
}
