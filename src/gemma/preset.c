#include "gemma/preset.h"

#include <string.h>

/* The numbers in which the text models differ. */
struct shape {
    int hidden, layers, full_every, heads, kv, global_kv, head_dim, global_dim, mlp;
    int ple, shared, wide;
    int experts, top_k, expert_mlp;
    int window, vocab;
};

struct size { const char *name; struct shape full, nano; };

static const struct size sizes[] = {
    {"e2b",
     {1536, 35, 5, 8, 1, 0, 256, 512, 6144, 256, 20, 1, 0, 0, 0, 512, 262144},
     {256, 9, 3, 4, 1, 0, 32, 64, 128, 64, 3, 1, 0, 0, 0, 16, 1024}},
    {"e4b",
     {2560, 42, 6, 8, 2, 0, 256, 512, 10240, 256, 18, 0, 0, 0, 0, 512, 262144},
     {192, 9, 3, 4, 2, 0, 32, 64, 320, 64, 2, 0, 0, 0, 0, 16, 1024}},     /* hidden 192: its root is no bf16 number, as 2560's */
    {"12b",
     {3840, 48, 6, 16, 8, 1, 256, 512, 15360, 0, 0, 0, 0, 0, 0, 1024, 262144},
     {256, 6, 3, 4, 2, 1, 32, 64, 256, 0, 0, 0, 0, 0, 0, 16, 1024}},
    {"26b",
     {2816, 30, 6, 16, 8, 2, 256, 512, 2112, 0, 0, 0, 128, 8, 704, 1024, 262144},
     {256, 6, 3, 4, 4, 2, 32, 64, 128, 0, 0, 0, 8, 2, 32, 16, 1024}},
    {"31b",
     {5376, 60, 6, 32, 16, 4, 256, 512, 21504, 0, 0, 0, 0, 0, 0, 1024, 262144},
     {256, 6, 3, 8, 4, 2, 32, 64, 256, 0, 0, 0, 0, 0, 0, 16, 1024}},
    {"gemma3",
     {640, 18, 6, 4, 1, 0, 256, 256, 2048, 0, 0, 0, 0, 0, 0, 512, 262144},
     {256, 12, 6, 4, 1, 0, 32, 32, 128, 0, 0, 0, 0, 0, 0, 16, 1024}},
};

static json_t *int_or_null(int v)
{
    return v ? json_integer(v) : json_null();
}

static json_t *layer_types(const struct shape *s)
{
    json_t *types = json_array();

    for (int i = 0; i < s->layers; i++)
        json_array_append_new(types, json_string((i + 1) % s->full_every ? "sliding_attention" : "full_attention"));
    return types;
}

/* Fields in Google's order, which is alphabetical. */
static json_t *gemma4_text(const struct shape *s, bool unified)
{
    const bool large = s->global_kv > 0;
    json_t *rope = json_pack("{s:{s:f, s:f, s:s}, s:{s:f, s:s}}",
                             "full_attention", "partial_rotary_factor", 0.25, "rope_theta", 1e6, "rope_type", "proportional",
                             "sliding_attention", "rope_theta", 1e4, "rope_type", "default");
    json_t *text = json_pack("{s:b, s:f, s:b, s:i, s:s, s:b, s:i, s:f, s:i, s:i, s:s, s:i, s:i, s:f, s:i, s:o, s:i, s:s, s:o}",
                             "attention_bias", 0, "attention_dropout", 0.0, "attention_k_eq_v", large, "bos_token_id", 2, "dtype", "bfloat16",
                             "enable_moe_block", s->experts > 0, "eos_token_id", 1, "final_logit_softcapping", 30.0,
                             "global_head_dim", s->global_dim, "head_dim", s->head_dim, "hidden_activation", "gelu_pytorch_tanh",
                             "hidden_size", s->hidden, "hidden_size_per_layer_input", s->ple, "initializer_range", 0.02,
                             "intermediate_size", s->mlp, "layer_types", layer_types(s), "max_position_embeddings", large ? 262144 : 131072,
                             "model_type", unified ? "gemma4_unified_text" : "gemma4_text", "moe_intermediate_size", int_or_null(s->expert_mlp));
    json_t *rest = json_pack("{s:i, s:o, s:o, s:i, s:i, s:i, s:i, s:f, s:o, s:i, s:b, s:o, s:o, s:b, s:b, s:i, s:i}",
                             "num_attention_heads", s->heads, "num_experts", int_or_null(s->experts),
                             "num_global_key_value_heads", int_or_null(s->global_kv), "num_hidden_layers", s->layers,
                             "num_key_value_heads", s->kv, "num_kv_shared_layers", s->shared, "pad_token_id", 0, "rms_norm_eps", 1e-6,
                             "rope_parameters", rope, "sliding_window", s->window, "tie_word_embeddings", 1,
                             "top_k_experts", int_or_null(s->top_k), "use_bidirectional_attention", large ? json_string("vision") : json_null(),
                             "use_cache", 1, "use_double_wide_mlp", s->wide, "vocab_size", s->vocab,
                             "vocab_size_per_layer_input", unified ? 0 : s->vocab);
    json_object_update(text, rest);
    json_decref(rest);
    return text;
}

/* E2B and E4B have a smaller vision tower than 26B and 31B, with clipped linears and without standardisation. */
static json_t *vision(const struct shape *s, bool full)
{
    const bool small = s->ple > 0;
    const int hidden = !full ? 32 : small ? 768 : 1152, heads = !full ? 2 : small ? 12 : 16, mlp = !full ? 64 : small ? 3072 : 4304;

    return json_pack("{s:s, s:b, s:f, s:i, s:i, s:i, s:s, s:i, s:f, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:{s:f, s:s}, s:b, s:b}",
                     "model_type", "gemma4_vision", "attention_bias", 0, "attention_dropout", 0.0, "default_output_length", 280,
                     "global_head_dim", hidden / heads, "head_dim", hidden / heads, "hidden_activation", "gelu_pytorch_tanh",
                     "hidden_size", hidden, "initializer_range", 0.02, "intermediate_size", mlp, "max_position_embeddings", 131072,
                     "num_attention_heads", heads, "num_hidden_layers", !full ? 2 : small ? 16 : 27, "num_key_value_heads", heads,
                     "patch_size", full ? 16 : 4, "pooling_kernel_size", 3, "position_embedding_size", full ? 10240 : 16,
                     "rms_norm_eps", 1e-6, "rope_parameters", "rope_theta", 100.0, "rope_type", "default",
                     "standardize", !small, "use_clipped_linears", small);
}

static json_t *audio(bool full)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:i, s:f, s:s, s:i, s:f, s:i, s:i, s:i, s:f, s:f, s:[i, i], s:b}",
                     "model_type", "gemma4_audio", "attention_chunk_size", 12, "attention_context_left", 13, "attention_context_right", 0,
                     "attention_invalid_logits_value", -1e9, "attention_logit_cap", 50.0, "conv_kernel_size", 5, "gradient_clipping", 1e10,
                     "hidden_act", "silu", "hidden_size", full ? 1024 : 32, "initializer_range", 0.02, "num_attention_heads", full ? 8 : 2,
                     "num_hidden_layers", full ? 12 : 1, "output_proj_dims", full ? 1536 : 32, "residual_weight", 0.5, "rms_norm_eps", 1e-6,
                     "subsampling_conv_channels", full ? 128 : 16, full ? 32 : 8, "use_clipped_linears", 1);
}

static json_t *unified_vision(const struct shape *s, bool full)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f}",
                     "model_type", "gemma4_unified_vision", "mm_embed_dim", s->hidden, "mm_posemb_size", full ? 1120 : 8,
                     "output_proj_dims", s->hidden, "patch_size", full ? 16 : 2, "pooling_kernel_size", 3,
                     "initializer_range", 0.02, "rms_norm_eps", 1e-6);
}

static json_t *unified_audio(bool full)
{
    const int dim = full ? 640 : 32;

    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:f, s:f}",
                     "model_type", "gemma4_unified_audio", "audio_embed_dim", dim, "audio_samples_per_token", dim, "hidden_size", dim,
                     "output_proj_dims", dim, "initializer_range", 0.02, "rms_norm_eps", 1e-6);
}

static json_t *gemma4(const struct shape *s, bool full, bool towers)
{
    const bool unified = s->global_kv == 1, small = s->ple > 0;
    const int end = s->vocab;
    const int boi = full ? 255999 : end - 7, boa = full ? 256000 : end - 6, image = full ? 258880 : end - 5;
    json_t *vision_config = !towers ? json_null() : unified ? unified_vision(s, full) : vision(s, full);
    json_t *audio_config = !towers || (!unified && !small) ? json_null() : unified ? unified_audio(full) : audio(full);

    json_t *config = json_pack("{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:[i, i], s:f, s:b, s:o, s:o, s:o}",
                               "architectures", unified ? "Gemma4UnifiedForConditionalGeneration" : "Gemma4ForConditionalGeneration",
                               "model_type", unified ? "gemma4_unified" : "gemma4", "audio_token_id", image + 1, "boa_token_id", boa,
                               "boi_token_id", boi, "eoa_token_index", image + 3, "eoi_token_id", image + 2, "image_token_id", image,
                               "video_token_id", image + 4, "dtype", "bfloat16", "eos_token_id", 1, 106, "initializer_range", 0.02,
                               "tie_word_embeddings", 1, "text_config", gemma4_text(s, unified),
                               "audio_config", audio_config, "vision_config", vision_config);
    if (!unified)
        json_object_set_new(config, "vision_soft_tokens_per_image", json_integer(280));
    json_object_set_new(config, "transformers_version", json_string(unified ? "5.10.0.dev0" : "5.5.0.dev0"));
    return config;
}

/* Gemma 3 270M: flat, and with the older spelling of rope. */
static json_t *gemma3(const struct shape *s)
{
    json_t *config = json_pack("{s:[s], s:b, s:f, s:n, s:i, s:s, s:i, s:n, s:i, s:s, s:i, s:f, s:i}",
                               "architectures", "Gemma3ForCausalLM", "attention_bias", 0, "attention_dropout", 0.0, "attn_logit_softcapping",
                               "bos_token_id", 2, "dtype", "bfloat16", "eos_token_id", 1, "final_logit_softcapping", "head_dim", s->head_dim,
                               "hidden_activation", "gelu_pytorch_tanh", "hidden_size", s->hidden, "initializer_range", 0.02,
                               "intermediate_size", s->mlp);
    json_t *rest = json_pack("{s:o, s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:n, s:f, s:i, s:s, s:b, s:i}",
                             "layer_types", layer_types(s), "max_position_embeddings", 32768, "model_type", "gemma3_text",
                             "num_attention_heads", s->heads, "num_hidden_layers", s->layers, "num_key_value_heads", s->kv, "pad_token_id", 0,
                             "query_pre_attn_scalar", s->head_dim, "rms_norm_eps", 1e-6, "rope_local_base_freq", 1e4, "rope_scaling",
                             "rope_theta", 1e6, "sliding_window", s->window, "transformers_version", "4.55.0", "use_cache", 1,
                             "vocab_size", s->vocab);
    json_object_update(config, rest);
    json_decref(rest);
    return config;
}

json_t *gemma_preset(const char *size, bool full, bool towers)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct shape *s = full ? &sizes[i].full : &sizes[i].nano;
        if (!strcmp(size, sizes[i].name))
            return !strcmp(size, "gemma3") ? gemma3(s) : gemma4(s, full, towers);
    }
    return NULL;
}
