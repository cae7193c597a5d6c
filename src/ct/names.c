#include "ct/names.h"
#include <stdio.h>
#include <string.h>

enum ct_arch ct_arch_of(const json_t *config)
{
    const char *name = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));

    if (name && strstr(name, "Unified"))
        return CT_UNIFIED;
    if (name)
        return strstr(name, "ForCausalLM") ? CT_TEXT : CT_WRAPPED;
    if (!json_is_object(json_object_get(config, "text_config")))
        return CT_TEXT;
    name = json_string_value(json_object_get(config, "model_type"));
    return name && strstr(name, "unified") ? CT_UNIFIED : CT_WRAPPED;
}

static const struct { const char *suffix; enum ct_part part; } parts[] = {
    {".weight_packed", CT_WEIGHT_PACKED}, {".weight_scale", CT_WEIGHT_SCALE}, {".weight_shape", CT_WEIGHT_SHAPE},
    {".weight_zero_point", CT_WEIGHT_ZERO_POINT}, {".weight_g_idx", CT_WEIGHT_G_IDX}, {".input_scale", CT_INPUT_SCALE},
    {".weight", CT_WEIGHT}, {".bias", CT_BIAS}
};

bool ct_split_name(const char *tensor, char module[CT_NAME], enum ct_part *part)
{
    size_t n = strlen(tensor);

    if (n >= CT_NAME)
        return false;
    *part = CT_WHOLE;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t s = strlen(parts[i].suffix);

        if (n > s && strcmp(tensor + n - s, parts[i].suffix) == 0) {
            *part = parts[i].part;
            n -= s;
            break;
        }
    }
    memcpy(module, tensor, n);
    module[n] = '\0';
    return true;
}

struct mapping { const char *disk, *runtime; };

static const struct mapping text_names[] = {
    {"model.language_model.", "model."}, {NULL, NULL}
};
/* Longest prefixes first: the first that fits is taken. */
static const struct mapping wrapped_names[] = {
    {"model.language_model.", "language_model.model."}, {"model.vision_tower.", "vision_tower."},
    {"model.embed_vision.", "embed_vision."}, {"model.audio_tower.", "audio_tower."}, {"model.embed_audio.", "embed_audio."},
    {"model.multi_modal_projector.", "multi_modal_projector."},
    {"lm_head", "language_model.lm_head"}, {"model.", "language_model.model."}, {NULL, NULL}
};

/* Experts on disk as "….moe.experts.7.…", the loader's older name of the bank, are those of "….experts.7.…". */
static void drop_moe(char *name)
{
    char *moe = strstr(name, ".moe.experts.");

    if (moe)
        memmove(moe, moe + strlen(".moe"), strlen(moe + strlen(".moe")) + 1);
}

bool ct_runtime_name(enum ct_arch arch, const char *module, char out[CT_NAME])
{
    static const char embedder[] = "model.vision_embedder.";
    const struct mapping *m = arch == CT_TEXT ? text_names : wrapped_names;
    const char *prefix = "";

    if (arch == CT_UNIFIED && strncmp(module, embedder, sizeof embedder - 1) == 0) {
        module += strlen("model.");
    } else {
        while (m->disk && strncmp(module, m->disk, strlen(m->disk)) != 0)
            m++;
        if (m->disk) {
            prefix = m->runtime;
            module += strlen(m->disk);
        }
    }
    if (snprintf(out, CT_NAME, "%s%s", prefix, module) >= CT_NAME)
        return false;
    drop_moe(out);
    return true;
}

bool ct_fused_name(const char *runtime, char out[CT_NAME])
{
    static const struct { const char *parent, *member, *fused; } fused[] = {
        {".self_attn", ".q_proj", ".qkv_proj"}, {".self_attn", ".k_proj", ".qkv_proj"}, {".self_attn", ".v_proj", ".qkv_proj"},
        {".mlp", ".gate_proj", ".gate_up_proj"}, {".mlp", ".up_proj", ".gate_up_proj"}
    };
    size_t n = strlen(runtime);

    if (strncmp(runtime, "model.layers.", 13) != 0 && strncmp(runtime, "language_model.model.layers.", 28) != 0)
        return false;
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
        size_t p = strlen(fused[i].parent), m = strlen(fused[i].member);

        if (n <= p + m || strcmp(runtime + n - m, fused[i].member) != 0 || strncmp(runtime + n - m - p, fused[i].parent, p) != 0)
            continue;
        return snprintf(out, CT_NAME, "%.*s%s", (int)(n - m), runtime, fused[i].fused) < CT_NAME;
    }
    return false;
}
