/* compressed-tensors rules: patterns, names, schemes; and comparing stored rows with their source. */
#undef NDEBUG
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/json.h"
#include "ct/scheme.h"
#include "quant/compare.h"
#include "quant/q4.h"
#include "quant/recover.h"
#include "quant/w8.h"


/* --- patterns ---------------------------------------------------------------------------------------------------------- */

static enum ct_match match(const char *pattern, const char *name)
{
    struct ct_pattern p;
    enum ct_match m;

    ct_pattern_init(&p, pattern, NULL);
    m = ct_pattern_name(&p, name);
    ct_pattern_free(&p);
    return m;
}

static void patterns(void)
{
    static const struct { const char *pattern, *name; enum ct_match m; } cases[] = {
        {"re:((a*)*(a*)*)*b", "model", CT_UNDECIDED}, {"re:((((a+)+)+)+)+$", "model", CT_UNDECIDED}, {"re:model)", "model", CT_UNDECIDED},
        {"re:(model.*)?", "model", CT_MATCH}, {"re:(m|o)+(d.*)(e.*)?l", "model", CT_MATCH}, {"re:(a*)(b*)c*", "model", CT_MATCH},
        {"lm_head", "lm_head", CT_MATCH}, {"lm_head", "lm_head2", CT_NO_MATCH}, {"re:lm_head", "lm_head2", CT_MATCH},
        {"re:^lm_head$", "language_model.lm_head", CT_NO_MATCH}, {"re:.*lm_head$", "language_model.lm_head", CT_MATCH},
        {"re:embed", "model.embed", CT_NO_MATCH},                       /* anchored at the start, as re.match is */
        {"re:.*embed_tokens", "model.embed_tokens_per_layer", CT_MATCH},        /* … and not at the end */
        {"re:.*\\.embed_tokens$", "model.embed_tokens_per_layer", CT_NO_MATCH},
        {"re:model\\.layers\\.\\d+\\.mlp\\..*", "model.layers.17.mlp.up_proj", CT_MATCH},
        {"re:model\\.layers\\.\\d+\\.mlp\\..*", "model.layers.x.mlp.up_proj", CT_NO_MATCH},
        {"re:.*self_attn.(q|k|v)_proj$", "model.layers.3.self_attn.k_proj", CT_MATCH},
        {"re:.*(?:gate|up)_proj$", "a.up_proj", CT_MATCH}, {"re:.*?up_proj$", "a.up_proj", CT_MATCH},
        {"re:.*layers\\.[0-4]\\.", "layers.3.x", CT_MATCH}, {"re:.*layers\\.[^0-4]\\.", "layers.3.x", CT_NO_MATCH},
        {"re:a|b", "b", CT_MATCH}, {"re:a|b", "cb", CT_NO_MATCH},
        {"re:(?!vision).*", "x", CT_UNDECIDED}, {"re:(a)\\1", "aa", CT_UNDECIDED}, {"re:a{2}", "aa", CT_UNDECIDED}, {"re:(", "(", CT_UNDECIDED},
        {"re:a++", "aa", CT_UNDECIDED}, {"re:\\bx", "x", CT_UNDECIDED}, {"re:x\\", "x", CT_UNDECIDED}, {"re:[", "[", CT_UNDECIDED}
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (match(cases[i].pattern, cases[i].name) != cases[i].m) {
            printf("%s on %s: %d\n", cases[i].pattern, cases[i].name, match(cases[i].pattern, cases[i].name));
            abort();
        }
    printf("patterns: %zu cases\n", sizeof cases / sizeof *cases);
}

static void classes(void)
{
    struct ct_pattern p;

    ct_pattern_init(&p, "Linear", NULL);
    assert(ct_pattern_class(&p, "QKVParallelLinear") == CT_MATCH);
    assert(ct_pattern_class(&p, "VocabParallelEmbedding") == CT_NO_MATCH);
    assert(ct_pattern_class(&p, "ParallelLMHead") == CT_NO_MATCH);
    ct_pattern_free(&p);
    ct_pattern_init(&p, "embedding", NULL);
    assert(ct_pattern_class(&p, "VocabParallelEmbedding") == CT_MATCH);
    ct_pattern_free(&p);
    puts("classes: substrings of any case");
}

/* --- names ------------------------------------------------------------------------------------------------------------- */

static void runtime(enum ct_arch arch, const char *disk, const char *want)
{
    char out[CT_NAME];

    assert(ct_runtime_name(arch, disk, out));
    assert(strcmp(out, want) == 0);
}

static void names(void)
{
    char out[CT_NAME], long_name[400];
    enum ct_part part;

    runtime(CT_TEXT, "model.language_model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj");
    runtime(CT_TEXT, "model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj");
    runtime(CT_TEXT, "lm_head", "lm_head");
    runtime(CT_TEXT, "model.language_model.layers.3.moe.experts.7.up_proj", "model.layers.3.experts.7.up_proj");
    runtime(CT_WRAPPED, "model.layers.3.moe.experts.7.up_proj", "language_model.model.layers.3.experts.7.up_proj");
    runtime(CT_WRAPPED, "model.language_model.norm", "language_model.model.norm");
    runtime(CT_WRAPPED, "lm_head", "language_model.lm_head");
    runtime(CT_WRAPPED, "model.vision_tower.x", "vision_tower.x");
    runtime(CT_WRAPPED, "vision_tower.x", "vision_tower.x");
    runtime(CT_WRAPPED, "model.vision_embedder.patch_dense", "language_model.model.vision_embedder.patch_dense");
    runtime(CT_UNIFIED, "model.vision_embedder.patch_dense", "vision_embedder.patch_dense");
    assert(ct_fused_name("model.layers.3.self_attn.k_proj", out) && strcmp(out, "model.layers.3.self_attn.qkv_proj") == 0);
    assert(ct_fused_name("language_model.model.layers.3.mlp.up_proj", out) && strcmp(out, "language_model.model.layers.3.mlp.gate_up_proj") == 0);
    assert(!ct_fused_name("model.layers.3.self_attn.o_proj", out));
    assert(!ct_fused_name("vision_tower.encoder.layers.3.self_attn.k_proj", out));
    assert(!ct_fused_name("model.layers.3.experts.0.up_proj", out));
    assert(ct_split_name("a.b.weight_scale", out, &part) && part == CT_WEIGHT_SCALE && strcmp(out, "a.b") == 0);
    assert(ct_split_name("a.layer_scalar", out, &part) && part == CT_WHOLE && strcmp(out, "a.layer_scalar") == 0);
    memset(long_name, 'x', sizeof long_name);
    long_name[399] = '\0';
    assert(!ct_split_name(long_name, out, &part) && !ct_runtime_name(CT_TEXT, long_name, out));
    puts("names: disk to run time, fused layers, parts");
}

/* --- schemes ----------------------------------------------------------------------------------------------------------- */

#define CONFIG(groups, ignore) "{\"architectures\":[\"Gemma4ForCausalLM\"],\"quantization_config\":{\"quant_method\":\"compressed-tensors\"," \
    "\"format\":\"pack-quantized\",\"config_groups\":{" groups "},\"ignore\":[" ignore "]}}"
#define INT4(name, target, group) "\"" name "\":{\"targets\":[" target "],\"weights\":{\"num_bits\":4,\"strategy\":\"group\",\"group_size\":" group "}}"

static struct ct_quant *read_quant(const char *text, struct err *e)
{
    json_t *config = json_parse(text, strlen(text), "test", e);
    struct ct_quant *q = config ? ct_quant_read(config, "test", NULL, e) : NULL;

    json_decref(config);
    return q;
}

static struct ct_scheme scheme(const char *text, const char *module)
{
    struct err e = {0, ""};
    struct ct_quant *q = read_quant(text, &e);
    struct ct_scheme s;

    assert(q && !ct_scheme_of(q, module, &s, &e));
    ct_quant_free(q);
    return s;
}

static void schemes(void)
{
    static const char config[] = CONFIG(INT4("g", "\"Linear\"", "64") "," INT4("h", "\"re:.*down_proj$\"", "128") "," INT4("t", "\"re:.*embed_tokens$\"", "32"),
        "\"model.language_model.layers.1.mlp.up_proj\",\"re:.*layers\\\\.2\\\\.self_attn.*\"");
    struct err e = {0, ""};
    struct ct_scheme s = {CT_PACKED, 0, 0, false};

    assert(scheme(config, "model.layers.0.mlp.up_proj").group == 64);
    assert(scheme(config, "model.layers.0.mlp.down_proj").group == 128);
    assert(scheme(config, "model.language_model.layers.0.mlp.down_proj").group == 128);
    assert(scheme(config, "model.layers.1.mlp.up_proj").kind == CT_PLAIN);     /* mapped from the other spelling */
    assert(scheme(config, "model.layers.2.self_attn.q_proj").kind == CT_PLAIN);
    assert(scheme(config, "model.embed_tokens").kind == CT_PACKED);
    assert(scheme(config, "model.embed_tokens_per_layer").kind == CT_PLAIN);
    assert(scheme(config, "lm_head").kind == CT_PLAIN);
    assert(scheme(config, "model.layers.0.router.proj").kind == CT_PLAIN);
    assert(scheme(config, "model.layers.0.input_layernorm").kind == CT_PLAIN);
    assert(!ct_scheme_of(NULL, "x", &s, &e) && s.kind == CT_PLAIN);
    puts("schemes: group sizes by module, ignore, tables");
}

static void refused(const char *text, const char *because)
{
    struct err e = {0, ""};
    struct ct_quant *q = read_quant(text, &e);

    if (q || e.code != EXIT_DATA || !strstr(e.msg, because)) {
        fprintf(stderr, "%s\nexpected: %s\ngot: %s\n", text, because, q ? "a config" : e.msg);
        abort();
    }
}

/* The config is read, but no scheme for this module follows from it. */
static void no_scheme(const char *text, const char *because)
{
    struct err e = {0, ""};
    struct ct_scheme s;
    struct ct_quant *q = read_quant(text, &e);

    assert(q && ct_scheme_of(q, "model.layers.0.mlp.up_proj", &s, &e) && e.code == EXIT_DATA && strstr(e.msg, because));
    ct_quant_free(q);
}

static void bad_configs(void)
{
    struct err e = {0, ""};

    refused("{\"quantization_config\":[]}", "quantization_config is no object");
    refused("{\"quantization_config\":{}}", "quant_method is \"\", expected \"compressed-tensors\"");
    refused("{\"quantization_config\":{\"quant_method\":\"gptq\",\"config_groups\":{}}}", "quant_method is \"gptq\"");
    refused("{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":[]}}", "quantization_config.config_groups is no object");
    refused(CONFIG("\"g\":[]", ""), "config_groups.g: a group has targets and weights, this is none");
    refused(CONFIG("\"g\":{\"weights\":{}}", ""), "config_groups.g.targets is no array");
    refused(CONFIG("\"g\":{\"weights\":7}", ""), "weights or activations of config_groups.g: an object is expected");
    refused(CONFIG("\"g\":{\"targets\":[1],\"weights\":{}}", ""), "config_groups.g: entry 0 of its targets is no string");
    refused(CONFIG(INT4("g", "\"Linear\"", "0"), ""), "strategy \"group\" needs a positive group_size");
    refused(CONFIG(INT4("g", "\"Linear\"", "\"x\""), ""), "group_size");
    refused(CONFIG(INT4("g", "\"Linear\"", "32"), "7"), "quantization_config.ignore: entry 0 is no string");
    refused(CONFIG("\"g\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"nonsense\":1}}", ""), "nonsense");
    struct ct_quant *q = read_quant("{}", &e);
    assert(!q && e.code == 0);                          /* not quantized: no error */
    no_scheme(CONFIG("\"g\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"symmetric\":false,\"strategy\":\"group\",\"group_size\":32}}", ""),
        "model.layers.0.mlp.up_proj: quantization group g: asymmetric weights");
    no_scheme(CONFIG(INT4("g", "\"re:(?=x)y\"", "32"), ""), "quantization_config has a regex that this program cannot decide for it: list names instead");
    struct ct_scheme s;
    char longest[400];
    memset(longest, 'm', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    q = read_quant(CONFIG(INT4("g", "\"Linear\"", "32"), ""), &e);
    assert(q && ct_scheme_of(q, longest, &s, &e) && strstr(e.msg, "its name in the loader has more than 255 bytes"));
    ct_quant_free(q);
    puts("bad configs: refused with a message");
}

/* --- comparing --------------------------------------------------------------------------------------------------------- */

static uint64_t seed = 1;

static uint32_t rnd(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

/* One group: levels at random, the largest magnitude 8, a bf16 scale with few bits. */
static void make_group(uint16_t *values, uint8_t *block, enum q4_scale kind)
{
    float step = ldexpf(1.0f + (float)(rnd() % 64) / 64, -(int)(rnd() % 10));

    for (int i = 0; i < Q4_GROUP; i++)
        values[i] = bf16_from_f32((float)(i == 0 ? -8 : (int)(rnd() % 16) - 8) * step);
    assert(q4_recover(values, 1, kind, block) == 1);
}

static void compare_int4(void)
{
    uint16_t values[Q4_GROUP];
    uint8_t block[Q4_BLOCK], codes[16], scale[2];
    struct cmp_row row = {CMP_INT4, codes, scale, ST_F16, Q4_GROUP};

    for (int n = 0; n < 2000; n++) {
        struct cmp_tally t = {0};
        int at = (int)(rnd() % 16), by = 1 << rnd() % 8;

        make_group(values, block, Q4_F16);
        q4_split(block, 1, codes, scale);
        cmp_row_add(&t, values, Q4_GROUP, &row);
        assert(t.values == 32 && t.exact == 32 && t.exact_groups == 1 && t.wrong == 0 && t.not_best == 0 && t.worst == 0);
        codes[at] ^= (uint8_t)by;                       /* one flipped bit of one nibble */
        memset(&t, 0, sizeof t);
        cmp_row_add(&t, values, Q4_GROUP, &row);
        assert(t.wrong == 1 && t.exact == 31 && t.first_wrong == (uint64_t)(2 * at + (by > 8)));
        codes[at] ^= (uint8_t)by;
        scale[0] ^= 64;                                 /* the scale off by 2^-4 of its mantissa: never the best */
        memset(&t, 0, sizeof t);
        cmp_row_add(&t, values, Q4_GROUP, &row);
        assert(t.exact < 32 && t.wrong + t.not_best > 0);
    }
    puts("int4: exact groups pass, every flipped bit is found, other scales are not the best");
}

static void compare_w8(enum w8_kind kind)
{
    enum { N = 96 };
    uint16_t values[N];
    uint8_t codes[N];
    float scale;
    struct cmp_row row = {kind == W8_FP8 ? CMP_FP8 : CMP_INT8, codes, (uint8_t *)&scale, ST_F32, N};

    for (int n = 0; n < 2000; n++) {
        struct cmp_tally t = {0};
        int at = (int)(rnd() % N);

        for (int i = 0; i < N; i++)
            values[i] = bf16_from_f32(((float)(rnd() % 2001) - 1000) * ldexpf(1, -(int)(rnd() % 8)));
        assert(w8_quantize_row(kind, values, N, codes, &scale) == -1);
        cmp_row_add(&t, values, N, &row);
        assert(t.values == N && t.wrong == 0 && t.not_best == 0);
        codes[at] ^= 2;
        memset(&t, 0, sizeof t);
        cmp_row_add(&t, values, N, &row);
        assert(t.wrong == 1 && t.first_wrong == (uint64_t)at);
        codes[at] ^= 2;
        scale *= 1.0f + 1.0f / 4096;
        memset(&t, 0, sizeof t);
        cmp_row_add(&t, values, N, &row);
        assert(t.wrong + t.not_best > 0);
    }
    printf("%s: the rounding passes, another code or scale does not\n", kind == W8_FP8 ? "fp8" : "int8");
}

/* Damage that only a value comparison sees: NaN scales, scales of 0, a negative one. */
static void compare_odd(void)
{
    uint16_t values[Q4_GROUP];
    uint8_t block[Q4_BLOCK], codes[16], scale[2];
    struct cmp_row row = {CMP_INT4, codes, scale, ST_BF16, Q4_GROUP};
    static const uint16_t odd[] = {0x7fc0, 0x7f80, 0x0000, 0x8000};

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct cmp_tally t = {0};

        make_group(values, block, Q4_BF16);
        q4_split(block, 1, codes, scale);
        scale[0] = (uint8_t)odd[i];
        scale[1] = (uint8_t)(odd[i] >> 8);
        cmp_row_add(&t, values, Q4_GROUP, &row);
        assert(t.wrong > 0);
    }
    memset(values, 0, sizeof values);
    memset(codes, 0x88, sizeof codes);
    scale[0] = scale[1] = 0;
    values[3] = 0x8000;                                 /* -0 equals +0 */
    struct cmp_tally t = {0};
    cmp_row_add(&t, values, Q4_GROUP, &row);
    assert(t.exact == 32 && t.wrong == 0 && t.not_best == 0);
    puts("int4: scales that are no numbers, zeros of either sign");
}

/* Rows that are what their source gives, with some damage, at every SIMD level: counted as value by value. */
static void compare_fast(void)
{
    enum { GROUPS_OF_ROW = 67, N = GROUPS_OF_ROW * Q4_GROUP };
    static uint16_t values[N];
    static uint8_t codes[N], scales[2 * GROUPS_OF_ROW], block[Q4_BLOCK];
    float scale;

    for (int n = 0; n < 300; n++) {
        struct cmp_row int4 = {CMP_INT4, codes, scales, n & 1 ? ST_F16 : ST_BF16, Q4_GROUP}, row = {CMP_FP8, codes, (uint8_t *)&scale, ST_F32, N};

        for (int g = 0; g < GROUPS_OF_ROW; g++) {
            float step = (n % 3 ? 1 : -1) * ldexpf(1.0f + (float)(rnd() % 1024) / 1024, -(int)(rnd() % 10));

            for (int i = 0; i < Q4_GROUP; i++)
                values[g * Q4_GROUP + i] = bf16_from_f32((float)(i == 0 ? -8 : g % 9 == 8 ? 0 : (int)(rnd() % 16) - 8) * step);
            assert(q4_recover(values + g * Q4_GROUP, 1, n & 1 ? Q4_F16 : Q4_BF16, block) == 1);
            q4_split(block, 1, codes + g * 16, scales + g * 2);
            if (n % 4 == 3 && g % 5 == 0)
                values[g * Q4_GROUP + rnd() % Q4_GROUP] ^= (uint16_t)(1 << rnd() % 16);
            if (n % 4 == 2 && g % 7 == 0)
                scales[2 * g] ^= 1;
        }
        for (int kind = -1; kind <= W8_INT8; kind++) {
            struct cmp_tally each = {0};

            row.kind = kind == W8_FP8 ? CMP_FP8 : CMP_INT8;
            if (kind >= 0 && w8_quantize_row((enum w8_kind)kind, values, N, codes, &scale) >= 0)
                continue;
            if (kind >= 0 && n % 4 == 1)
                codes[rnd() % N] ^= 1;
            cmp_row_add_each(&each, values, N, kind < 0 ? &int4 : &row);
            for (int level = SIMD_SCALAR; level <= SIMD_AVX512; level++) {
                struct cmp_tally fast = {0};

                if (simd_force(simd_name((enum simd)level)) == 0) {
                    cmp_row_add(&fast, values, N, kind < 0 ? &int4 : &row);
                    assert(memcmp(&fast, &each, sizeof fast) == 0);
                }
            }
            (void)simd_force("avx512");
        }
    }
    puts("rows: counted as value by value, whatever is wrong with them, at every SIMD level");
}

int main(void)
{
    patterns();
    classes();
    names();
    schemes();
    bad_configs();
    compare_int4();
    compare_fast();
    compare_odd();
    compare_w8(W8_FP8);
    compare_w8(W8_INT8);
    return 0;
}
