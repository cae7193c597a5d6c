#include "quant/synth.h"

#include "quant/q4.h"
#include "tensor/dtype.h"

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t draw(uint64_t key, uint64_t i)
{
    return mix(key + (i + 1) * 0x9e3779b97f4a7c15u);
}

uint64_t synth_key(const char *name, uint64_t seed)
{
    uint64_t key = mix(seed + 1);

    for (; *name; name++)
        key = mix(key ^ (unsigned char)*name);
    return key;
}

double synth_uniform(uint64_t key, uint64_t i)
{
    return (double)(draw(key, i) >> 11) / 9007199254740992.0;
}

/* The sum of four uniform numbers has variance 1/3. */
double synth_normal(uint64_t key, uint64_t i)
{
    const uint64_t r = draw(key, i);
    const uint64_t sum = (r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48);

    return ((double)sum + 2 - 131072) / 65536 * 1.7320508075688772;
}

/* ---- groups on the grid ----------------------------------------------------------------------------------------- */

enum kind { PEAK_8, PEAK_7, ZERO, SINGLE, EVEN, THREES, SMALL, SUBNORMAL };

/* A random byte to a level: normal with a standard deviation of 2.7 levels, |level| <= 7.  LEVEL_STD takes it back out of the step. */
#define LEVEL_STD 2.7f
static const int8_t level_of_byte[256] = {
#define R2(v) v, v
#define R4(v) R2(v), R2(v)
#define R8(v) R4(v), R4(v)
#define R16(v) R8(v), R8(v)
    R16(0), R16(0), R4(0),
    R16(1), R16(1), 1, R16(-1), R16(-1), -1,
    R16(2), R8(2), R4(2), R16(-2), R8(-2), R4(-2),
    R16(3), R4(3), 3, R16(-3), R4(-3), -3,
    R8(4), R4(4), R2(4), R8(-4), R4(-4), R2(-4),
    R8(5), R8(-5), R4(6), R4(-6), R2(7), R2(-7),
};

static enum kind kind_of(uint64_t bits)
{
    static const struct { unsigned below; enum kind kind; } table[] = {
        {222, PEAK_8}, {238, PEAK_7}, {241, ZERO}, {245, SINGLE}, {249, EVEN}, {253, THREES}, {255, SMALL}, {256, SUBNORMAL}};
    unsigned i = 0;

    while ((bits & 0xff) >= table[i].below)
        i++;
    return table[i].kind;
}

/* One group's choices. */
struct group { enum kind kind; unsigned at; float step; uint64_t word[4]; };

static void choose(struct group *g, uint64_t key, uint64_t index, float std)
{
    const uint64_t base = key + index * 0xd1342543de82ef95u, r = draw(base, 0);

    g->kind = kind_of(r);
    g->at = (unsigned)(r >> 8) & 31;
    const float spread = 0.6f + (float)(r >> 16 & 0xffff) * (0.8f / 65536);
    const float size = g->kind == SUBNORMAL ? (float)(1 + (r >> 32 & 0x3ff)) / 16777216.0f : std / LEVEL_STD * spread;
    g->step = f16_to_f32(f16_from_f32(r >> 63 ? -size : size));
    for (unsigned k = 0; k < 4; k++)
        g->word[k] = draw(base, k + 1);
}

static int plain_level(const struct group *g, unsigned j)
{
    return level_of_byte[g->word[j / 8] >> (j % 8 * 8) & 0xff];
}

static int level(const struct group *g, unsigned j)
{
    const int l = plain_level(g, j);

    switch (g->kind) {
    case ZERO:
        return 0;
    case SINGLE:
        return j == g->at ? (int)(g->word[0] >> 60) - 8 : 0;
    case EVEN:
        return l / 2 * 2;
    case THREES:
        return l / 3 * 3;
    case SMALL:
        return l < -3 ? -3 : l > 2 ? 2 : l;
    case PEAK_7:
        return j == g->at ? 7 : l;
    default:
        return j == g->at ? -8 : l;
    }
}

/* value[8 + l] = bf16(l * step), +0 for level 0. */
static void values_of(float step, uint16_t value[16])
{
    for (int l = 1; l <= 8; l++) {
        const uint16_t v = bf16_from_f32((float)l * step);
        value[8 - l] = v ^ 0x8000;
        if (l < 8)
            value[8 + l] = v;
    }
    value[8] = 0;
}

void synth_grid(uint64_t key, uint64_t first, size_t groups, float std, uint16_t *out)
{
    for (size_t i = 0; i < groups; i++, out += Q4_GROUP) {
        struct group g;
        uint16_t value[16];

        choose(&g, key, first + i, std);
        values_of(g.step, value);
        if (g.kind == PEAK_8) {         /* nine of ten, without a branch a value */
            for (unsigned j = 0; j < Q4_GROUP; j++)
                out[j] = value[8 + plain_level(&g, j)];
            out[g.at] = value[0];
        } else {
            for (unsigned j = 0; j < Q4_GROUP; j++)
                out[j] = value[8 + level(&g, j)];
        }
    }
}

unsigned synth_off_grid(uint64_t key, uint64_t group, float std, uint16_t out[32])
{
    struct group g;
    uint16_t value[16];

    choose(&g, key, group, std);
    g.kind = PEAK_8;
    g.step = f16_to_f32(f16_from_f32(std / LEVEL_STD));
    values_of(g.step, value);
    for (unsigned j = 0; j < Q4_GROUP; j++)
        out[j] = value[8 + level(&g, j)];
    const unsigned odd = (g.at + 1) % Q4_GROUP;
    out[odd] = bf16_from_f32(3.5f * g.step);
    return odd;
}
