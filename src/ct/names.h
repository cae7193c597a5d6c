/* Names: of tensors that belong to one module on disk, and what the loader calls that module.
 *
 * Reference: vLLM hf_to_vllm_mapper and packed_modules_mapping of Gemma 3 and 4 (compressed-tensors reference, section 4.5).
 */
#ifndef CT_NAMES_H
#define CT_NAMES_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define CT_NAME 256         /* bytes of a module's name with its NUL; longer ones are refused by the callers */

enum ct_arch { CT_TEXT, CT_WRAPPED, CT_UNIFIED };   /* …ForCausalLM, …ForConditionalGeneration, Gemma4Unified… */
/* From `architectures`, else from the presence of text_config. */
enum ct_arch ct_arch_of(const json_t *config);

/* What a tensor is to its module: the part of its name after the module's. */
enum ct_part { CT_WEIGHT, CT_WEIGHT_PACKED, CT_WEIGHT_SCALE, CT_WEIGHT_SHAPE, CT_WEIGHT_ZERO_POINT, CT_WEIGHT_G_IDX, CT_INPUT_SCALE, CT_BIAS, CT_WHOLE };
/* Splits "M.weight_scale" into M and the part; a name without a known suffix is CT_WHOLE and its own module. false: too long. */
bool ct_split_name(const char *tensor, char module[CT_NAME], enum ct_part *part);

/* The loader's name of a module on disk; false: too long. */
bool ct_runtime_name(enum ct_arch arch, const char *module, char out[CT_NAME]);
/* The fused layer that the loader makes of this module (runtime names): "….qkv_proj", "….gate_up_proj"; false: stands alone. */
bool ct_fused_name(const char *runtime, char out[CT_NAME]);
#endif
