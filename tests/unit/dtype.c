/* The 16-bit floats against brute force: every pattern there and back, and rounding of values between neighbours. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include "tensor/dtype.h"

/* Nearest-even by definition: the value's neighbours among all finite patterns of one sign. */
static uint16_t brute_f16(float f)
{
    double best = INFINITY;
    uint16_t pick = 0;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double d = fabs((double)f16_to_f32((uint16_t)h) - fabs((double)f));
        if (d < best || (d == best && !(h & 1))) {
            best = d;
            pick = (uint16_t)h;
        }
    }
    /* 65520 and above round to infinity: half a step past the largest number. */
    if (fabs((double)f) >= 65520)
        pick = 0x7c00;
    return (uint16_t)(pick | (signbit(f) ? 0x8000 : 0));
}

static void every_pattern_round_trips(void)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float a = bf16_to_f32((uint16_t)h), b = f16_to_f32((uint16_t)h);
        if (isnan(a))
            assert(isnan(bf16_to_f32(bf16_from_f32(a))));
        else
            assert(bf16_from_f32(a) == h);
        if (isnan(b))
            assert(isnan(f16_to_f32(f16_from_f32(b))));
        else
            assert(f16_from_f32(b) == h);
    }
    puts("every 16-bit pattern round trips");
}

static void f16_values_are_the_definition(void)
{
    for (uint32_t h = 0; h < 0x7c00; h++) {
        int exp = (int)(h >> 10), man = (int)(h & 0x3ff);
        double want = exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24);
        assert((double)f16_to_f32((uint16_t)h) == want);
    }
    assert(isinf(f16_to_f32(0x7c00)) && signbit(f16_to_f32(0x8000)));
    puts("f16 values follow the definition");
}

static void f16_rounds_to_nearest_even(void)
{
    static const float probe[] = {
        0x1p-25f, 0x1.000002p-25f, 0x1.8p-24f, 0x1p-26f, 0x1.ffcp-15f, 0x1.ffep-15f, 0x1.fffp-15f, 1.00048828125f, 1.0004883f,
        1.00146484375f, 65504, 65519.996f, 65520, 70000, 1e-8f, 3.14159274f, -0.1f, -65520, 0x1.0040001p0f, 2049, 2051, -2050};
    for (size_t i = 0; i < sizeof probe / sizeof probe[0]; i++)
        assert(f16_from_f32(probe[i]) == brute_f16(probe[i]));
    puts("f16 rounds to nearest, ties to even");
}

static void bf16_rounds_to_nearest_even(void)
{
    assert(bf16_from_f32(f32_from_bits(0x3f808000)) == 0x3f80);     /* tie, even below */
    assert(bf16_from_f32(f32_from_bits(0x3f818000)) == 0x3f82);     /* tie, even above */
    assert(bf16_from_f32(f32_from_bits(0x3f808001)) == 0x3f81);
    assert(bf16_from_f32(f32_from_bits(0x7f7fffff)) == 0x7f80);     /* overflow */
    assert(bf16_from_f32(f32_from_bits(0xbf807fff)) == 0xbf80);
    puts("bf16 rounds to nearest, ties to even");
}

int main(void)
{
    every_pattern_round_trips();
    f16_values_are_the_definition();
    f16_rounds_to_nearest_even();
    bf16_rounds_to_nearest_even();
    return 0;
}
