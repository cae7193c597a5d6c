#include "quant/q4_twin.h"
#include <strings.h>
#include "base/cpu.h"
#include "tensor/dtype.h"

static const char *const names[] = {[Q4_BF16] = "bf16", [Q4_F16] = "f16"};

const char *q4_scale_name(enum q4_scale kind)
{
    return names[kind];
}

const char *q4_scale_meta(enum q4_scale kind)
{
    return st_dtype_name(kind == Q4_F16 ? ST_F16 : ST_BF16);
}

int q4_scale_from_name(const char *name)
{
    for (int k = Q4_BF16; k <= Q4_F16; k++)
        if (strcasecmp(name, names[k]) == 0)
            return k;
    return -1;
}

float q4_scale_value(uint16_t bits, enum q4_scale kind)
{
    return kind == Q4_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

void q4_split(const uint8_t *blocks, size_t n, uint8_t *packed, uint8_t *scales)
{
    for (size_t i = 0; i < n; i++) {
        memcpy(scales + 2 * i, blocks + Q4_BLOCK * i, 2);
        memcpy(packed + 16 * i, blocks + Q4_BLOCK * i + 2, 16);
    }
}

void q4_join(const uint8_t *packed, const uint8_t *scales, size_t n, uint8_t *blocks)
{
    for (size_t i = 0; i < n; i++) {
        memcpy(blocks + Q4_BLOCK * i, scales + 2 * i, 2);
        memcpy(blocks + Q4_BLOCK * i + 2, packed + 16 * i, 16);
    }
}

void q4_to_bf16_scalar(const uint8_t *blocks, size_t n, enum q4_scale kind, uint16_t *values)
{
    for (size_t i = 0; i < n; i++, blocks += Q4_BLOCK, values += Q4_GROUP) {
        float scale = q4_scale_value((uint16_t)(blocks[0] | blocks[1] << 8), kind);
        uint16_t value[16];                             /* of each nibble: 16 products serve 32 values */
        for (int u = 0; u < 16; u++)
            value[u] = bf16_from_f32((float)(u - 8) * scale);
        for (int j = 0; j < 16; j++) {
            values[2 * j] = value[blocks[2 + j] & 15];
            values[2 * j + 1] = value[blocks[2 + j] >> 4];
        }
    }
}

void q4_to_bf16(const uint8_t *blocks, size_t n, enum q4_scale kind, uint16_t *values)
{
    if (simd_level() >= SIMD_AVX2)
        q4_to_bf16_avx2(blocks, n, kind, values);
    else
        q4_to_bf16_scalar(blocks, n, kind, values);
}
