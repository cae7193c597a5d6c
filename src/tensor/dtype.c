#include "tensor/dtype.h"

#include <stddef.h>

static const struct { const char *name; unsigned bits; } kind[ST_DTYPES] = {
    [ST_BOOL] = {"BOOL", 8}, [ST_F4] = {"F4", 4}, [ST_F6_E2M3] = {"F6_E2M3", 6}, [ST_F6_E3M2] = {"F6_E3M2", 6},
    [ST_U8] = {"U8", 8}, [ST_I8] = {"I8", 8}, [ST_F8_E5M2] = {"F8_E5M2", 8}, [ST_F8_E4M3] = {"F8_E4M3", 8},
    [ST_F8_E8M0] = {"F8_E8M0", 8}, [ST_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8}, [ST_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [ST_I16] = {"I16", 16}, [ST_U16] = {"U16", 16}, [ST_F16] = {"F16", 16}, [ST_BF16] = {"BF16", 16},
    [ST_I32] = {"I32", 32}, [ST_U32] = {"U32", 32}, [ST_F32] = {"F32", 32}, [ST_C64] = {"C64", 64},
    [ST_F64] = {"F64", 64}, [ST_I64] = {"I64", 64}, [ST_U64] = {"U64", 64}
};

const char *st_dtype_name(enum st_dtype d)
{
    return kind[d].name;
}

int st_dtype_from_name(const char *name)
{
    for (int d = 0; d < ST_DTYPES; d++)
        if (strcmp(kind[d].name, name) == 0)
            return d;
    return -1;
}

unsigned st_dtype_bits(enum st_dtype d)
{
    return kind[d].bits;
}

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 mantissa bits. */
float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 0x3ffu;
    if (exp == 31)
        return f32_from_bits(sign | 0x7f800000u | man << 13);
    if (exp)
        return f32_from_bits(sign | (exp + 112) << 23 | man << 13);
    /* man * 2^-24 is exact in binary32. */
    float f = (float)man * 0x1p-24f;
    return sign ? -f : f;
}

uint16_t f16_from_f32(float f)
{
    uint32_t b = f32_bits(f), sign = b >> 16 & 0x8000u, abs = b & 0x7fffffffu;
    if (abs > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (abs >> 13 & 0x3ffu));
    if (abs >= 0x477ff000u)                 /* rounds to 65536 or is larger */
        return (uint16_t)(sign | 0x7c00u);
    if (abs >= 0x38800000u)                 /* normal: drop 13 bits, ties to even; a carry moves the exponent as it should */
        return (uint16_t)(sign | (abs - 0x38000000u + 0xfffu + (abs >> 13 & 1u)) >> 13);
    /* Subnormal: adding 0.5 leaves the 10 bits below 2^-1 rounded to nearest even in the low mantissa. */
    float shifted = f32_from_bits(abs) + 0.5f;
    return (uint16_t)(sign | (f32_bits(shifted) - 0x3f000000u));
}
