/* Synthetic values: on the grid by construction, any part at any time; the toy tokenizer's vocabulary. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "gemma/preset.h"
#include "gemma/toy.h"
#include "quant/synth.h"
#include "tensor/dtype.h"

enum { GROUPS = 20000 };
static uint16_t values[32 * GROUPS];

static double abs_of(uint16_t v)
{
    return (double)bf16_to_f32(v & 0x7fff);
}

/* Is there m in 1..8 and a step s with bf16(l * s) = x for all 32, levels -8..7?  By trial of every f16 step near peak / m. */
static bool on_grid(const uint16_t *x)
{
    double peak = 0;

    for (int j = 0; j < 32; j++)
        peak = abs_of(x[j]) > peak ? abs_of(x[j]) : peak;
    if (peak == 0)
        return true;
    for (int m = 1; m <= 8; m++)
        for (int near = -8; near <= 8; near++)
            for (int sign = 0; sign < 2; sign++) {
                const uint16_t h = (uint16_t)(f16_from_f32((float)(peak / m)) + near);
                const float step = f16_to_f32(sign ? h | 0x8000 : h);
                bool all = step != 0;
                for (int j = 0; all && j < 32; j++) {
                    const float v = bf16_to_f32(x[j]), ratio = v / step;
                    const int l = (int)(ratio + (ratio < 0 ? -0.5f : 0.5f));
                    all = l >= -8 && l <= 7 && (bf16_from_f32((float)l * step) == x[j] || (l == 0 && x[j] == 0));
                }
                if (all)
                    return true;
            }
    return false;
}

static void grid(void)
{
    size_t positive_peak = 0, zero = 0;
    double sum = 0;

    synth_grid(42, 1000, GROUPS, 0.05f, values);
    for (size_t i = 0; i < GROUPS; i++) {
        const uint16_t *x = values + 32 * i;
        unsigned at = 0;
        assert(on_grid(x));
        for (unsigned j = 0; j < 32; j++) {
            at = abs_of(x[j]) > abs_of(x[at]) ? j : at;
            sum += abs_of(x[j]) * abs_of(x[j]);
        }
        zero += abs_of(x[at]) == 0;
        positive_peak += abs_of(x[at]) > 0 && !(x[at] & 0x8000);
    }
    const double std2 = sum / (32.0 * GROUPS);
    assert(std2 > 0.04 * 0.04 && std2 < 0.065 * 0.065);
    assert(zero > GROUPS / 256 && zero < GROUPS / 40);
    assert(positive_peak > GROUPS / 3 && positive_peak < 2 * GROUPS / 3);
    printf("ok: %d groups on the grid: %zu zero, %zu with a positive peak\n", GROUPS, zero, positive_peak);
}

static void parts(void)
{
    uint16_t some[32 * 7], other[32];

    synth_grid(42, 1000 + 123, 7, 0.05f, some);
    assert(!memcmp(some, values + 32 * 123, sizeof some));
    synth_grid(43, 1000, 1, 0.05f, other);
    assert(memcmp(other, values, sizeof other));
    assert(synth_key("a", 1) != synth_key("b", 1) && synth_key("a", 1) != synth_key("a", 2));
    printf("ok: a part made alone equals the same part of the whole; another key gives other values\n");
}

static void off_grid(void)
{
    for (uint64_t g = 0; g < 2000; g++) {
        uint16_t x[32];
        const unsigned j = synth_off_grid(7, g, 0.02f, x);
        assert(j < 32 && !on_grid(x));
        x[j] = 0;
        assert(on_grid(x));
    }
    printf("ok: 2000 planted groups are off the grid by one value each\n");
}

static void bounds(void)
{
    double sum = 0, squares = 0;

    for (uint64_t i = 0; i < 100000; i++) {
        const double u = synth_uniform(5, i), z = synth_normal(5, i);
        assert(u >= 0 && u < 1 && z > -3.5 && z < 3.5);
        sum += z;
        squares += z * z;
    }
    assert(sum / 100000 > -0.02 && sum / 100000 < 0.02 && squares / 100000 > 0.97 && squares / 100000 < 1.03);
    printf("ok: uniform and normal numbers\n");
}

static json_t *file_json(const struct toy_file *f, size_t n, const char *name)
{
    struct err e = {0};

    for (size_t i = 0; i < n; i++)
        if (!strcmp(f[i].name, name))
            return json_parse(f[i].data, f[i].n, name, &e);
    return NULL;
}

/* Ids are a permutation of 0 .. vocab - 1, every merge joins two pieces to a third, added tokens have their own ids. */
static void tokenizer(const char *size)
{
    json_t *config = gemma_preset(size, false, false);
    struct toy_file f[TOY_MAX_FILES];
    struct gemma g;
    struct err e = {0};

    assert(!gemma_config_read(&g, config, size, &e));
    const size_t n = toy_files(config, &g, "{{ bos_token }}", f);
    json_t *tok = file_json(f, n, "tokenizer.json"), *model = json_object_get(tok, "model"), *vocab = json_object_get(model, "vocab");
    bool *seen = xcalloc((size_t)g.vocab, sizeof *seen);
    const char *piece;
    json_t *id, *merge, *token;
    size_t i;

    assert(tok && json_object_size(vocab) == (size_t)g.vocab);
    json_object_foreach(vocab, piece, id) {
        assert(json_integer_value(id) >= 0 && json_integer_value(id) < g.vocab && !seen[json_integer_value(id)]);
        seen[json_integer_value(id)] = true;
    }
    json_array_foreach(json_object_get(model, "merges"), i, merge) {
        const char *l = json_string_value(json_array_get(merge, 0)), *r = json_string_value(json_array_get(merge, 1));
        char *both = xasprintf("%s%s", l, r);
        assert(json_object_get(vocab, l) && json_object_get(vocab, r) && json_object_get(vocab, both));
        free(both);
    }
    json_array_foreach(json_object_get(tok, "added_tokens"), i, token)
        assert(json_equal(json_object_get(token, "id"), json_object_get(vocab, json_string_value(json_object_get(token, "content")))));
    assert(i >= 7 && json_integer_value(json_object_get(vocab, "<0x0A>")) == 248 && json_integer_value(json_object_get(vocab, "\n\n")) == 108);
    assert(toy_speaks(&g, 106) && !toy_speaks(&g, 0) && !toy_speaks(&g, 300) && toy_speaks(&g, 494) && toy_speaks(&g, 1002) && !toy_speaks(&g, 1003));
    free(seen);
    json_decref(tok);
    for (i = 0; i < n; i++)
        free(f[i].data);
    json_decref(config);
    printf("ok: %s: vocabulary, merges and added tokens agree\n", size);
}

int main(void)
{
    prog_init("synth");
    grid();
    parts();
    off_grid();
    bounds();
    tokenizer("e2b");
    tokenizer("12b");
    tokenizer("gemma3");
    return 0;
}
