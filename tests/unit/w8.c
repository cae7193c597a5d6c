/* 8-bit rows: all bf16 patterns against an oracle that searches the nearest code, the SIMD twins against the scalar loop. */
#undef NDEBUG
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "quant/w8.h"
#include "tensor/dtype.h"

/* The 127 non-negative finite E4M3 numbers from the format's definition, rising. */
static double fp8_number(int code)
{
    int e = code >> 3, m = code & 7;
    return e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
}

/* Nearest number, ties to the even code, of v clamped to 448. */
static uint8_t nearest_fp8(float v)
{
    double a = fmin(fabs((double)v), 448);
    int best = 0;
    for (int c = 1; c < 127; c++) {
        double d = fabs(fp8_number(c) - a), b = fabs(fp8_number(best) - a);
        if (d < b || (d == b && !(c & 1)))
            best = c;
    }
    return (uint8_t)(best | (signbit(v) ? 0x80 : 0));
}

static uint8_t nearest_int8(float v)
{
    double a = fabs((double)v), low = floor(a), n = a - low < 0.5 ? low : a - low > 0.5 ? low + 1 : fmod(low, 2) == 0 ? low : low + 1;
    return (uint8_t)(int8_t)(v < 0 ? -fmin(n, 127) : fmin(n, 127));
}

static void test_numbers(void)
{
    for (int c = 0; c < 127; c++)
        assert(w8_e4m3_to_f32((uint8_t)c) == fp8_number(c) && w8_e4m3_to_f32((uint8_t)(c | 0x80)) == -fp8_number(c));
    assert(isnan(w8_e4m3_to_f32(0x7f)) && isnan(w8_e4m3_to_f32(0xff)) && w8_e4m3_to_f32(0x7e) == 448);
    puts("E4M3: all 256 codes");
}

/* Every finite bf16 pattern, in rows that begin with their peak. */
static void test_patterns(enum w8_kind kind, const char *level)
{
    enum { ROW = 259 };
    uint16_t row[ROW];
    uint8_t codes[ROW];
    float scale, values[ROW];
    const float top = kind == W8_FP8 ? 448 : 127;
    long n = 0;
    assert(simd_force(level) == 0);
    for (uint32_t peak = 0x80; peak < 0x7f80; peak += 0x41) {          /* ratios from 1 down to far below a code */
        for (int i = 0; i < ROW; i++) {
            uint32_t down = (uint32_t)i * 7 % 2000;
            row[i] = (uint16_t)((peak > down ? peak - down : 0) | (i % 3 == 1 ? 0x8000 : 0));
        }
        assert(w8_quantize_row(kind, row, ROW, codes, &scale) == -1);
        assert(scale == bf16_to_f32((uint16_t)peak) / top);
        w8_dequantize_row(kind, codes, ROW, scale, values);
        for (int i = 0; i < ROW; i++, n++) {
            float v = bf16_to_f32(row[i]) / scale;
            assert(codes[i] == (kind == W8_FP8 ? nearest_fp8(v) : nearest_int8(v)));
            float number = kind == W8_FP8 ? w8_e4m3_to_f32(codes[i]) : (float)(int8_t)codes[i];
            assert(f32_bits(values[i]) == f32_bits(number * scale));
        }
    }
    printf("%s, %s: %ld values as the oracle has them\n", kind == W8_FP8 ? "fp8" : "int8", level, n);
}

/* All 65,536 patterns next to a peak of 2 and of the largest number, at all SIMD levels. */
static void test_all_patterns(enum w8_kind kind, const char *level)
{
    static uint16_t row[65536];
    static uint8_t want[65536], got[65536];
    static float values[65536], values_want[65536];
    float s1, s2;
    for (int peak = 0x4000; peak <= 0x7f7f; peak += 0x3f7f) {
        for (int i = 0; i < 65536; i++)
            row[i] = (uint16_t)((i & 0x7fff) > peak ? i & 0x8000 : i);
        assert(simd_force("scalar") == 0 && w8_quantize_row(kind, row, 65535, want, &s1) == -1);
        w8_dequantize_row(kind, want, 65535, s1, values_want);
        assert(simd_force(level) == 0 && w8_quantize_row(kind, row, 65535, got, &s2) == -1);
        w8_dequantize_row(kind, got, 65535, s2, values);
        assert(s1 == s2 && memcmp(want, got, 65535) == 0 && memcmp(values, values_want, 65535 * 4) == 0);
        for (int i = 0; i < 65535; i += peak == 0x4000 ? 1 : 17)
            assert(want[i] == (kind == W8_FP8 ? nearest_fp8(bf16_to_f32(row[i]) / s1) : nearest_int8(bf16_to_f32(row[i]) / s1)));
    }
    for (int i = 0; i < 256; i++)
        want[i] = (uint8_t)i;
    w8_dequantize_row(kind, want, 256, 0.37f, values);
    for (int i = 0; i < 256; i++) {
        float number = kind == W8_FP8 ? w8_e4m3_to_f32((uint8_t)i) : (float)(int8_t)i;
        assert(isnan(number) ? isnan(values[i]) : f32_bits(values[i]) == f32_bits(number * 0.37f));
    }
    printf("%s, %s: all bf16 patterns, all codes\n", kind == W8_FP8 ? "fp8" : "int8", level);
}

static void test_edges(enum w8_kind kind, const char *level)
{
    uint16_t row[100] = {0};
    uint8_t codes[100];
    float scale;
    assert(simd_force(level) == 0);
    row[7] = 0x8000;
    assert(w8_quantize_row(kind, row, 100, codes, &scale) == -1 && scale == 1);
    for (int i = 0; i < 100; i++)
        assert((codes[i] & 0x7f) == 0);
    for (int n = 0; n < 100; n++)
        assert(w8_quantize_row(kind, row, (size_t)n, codes, &scale) == -1 && scale == 1);
    for (int bad = 0; bad < 100; bad++) {
        row[bad] = bad & 1 ? 0x7f80 : 0xffc1;
        row[99] = 0x7fc0;
        assert(w8_quantize_row(kind, row, 100, codes, &scale) == bad);
        row[bad] = row[99] = 0;
    }
    row[0] = 1;                                                 /* the smallest number there is: its quotient lies above the top code */
    assert(w8_quantize_row(kind, row, 100, codes, &scale) == -1 && codes[0] == (kind == W8_FP8 ? 0x7e : 127));
    printf("%s, %s: zero rows, all lengths, NaN and infinity\n", kind == W8_FP8 ? "fp8" : "int8", level);
}

int main(void)
{
    static const char *const levels[] = {"scalar", "avx2", "avx512"};
    test_numbers();
    for (int i = 0; i < 3; i++) {
        if (simd_force(levels[i]) != 0) {
            printf("%s: not on this CPU\n", levels[i]);
            continue;
        }
        for (enum w8_kind kind = W8_FP8; kind <= W8_INT8; kind++) {
            test_patterns(kind, levels[i]);
            test_all_patterns(kind, levels[i]);
            test_edges(kind, levels[i]);
        }
    }
    return 0;
}
