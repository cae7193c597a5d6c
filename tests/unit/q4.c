/* Blocks and grid recovery.  The oracle is written from the rule's words, apart from the code: steps as long double, every one of
 * the 65,536 scales tried. */
#undef NDEBUG
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "quant/q4_twin.h"
#include "quant/recover.h"
#include "tensor/dtype.h"

static uint64_t state = 88172645463325252u;

static uint32_t rnd(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static int rnd_in(int lo, int hi)       /* both included */
{
    return lo + (int)(rnd() % (uint32_t)(hi - lo + 1));
}

static bool same(uint16_t a, uint16_t b)
{
    return a == b || ((a | b) & 0x7fff) == 0;
}

static uint16_t product(int level, float scale)
{
    return bf16_from_f32((float)level * scale);
}

/* --- the oracle ---------------------------------------------------------------------------------------------------- */

/* Is there any scale of the kind with a level for every value? */
static bool any_exact(const uint16_t *x, enum q4_scale kind)
{
    int top = 0;
    for (int i = 1; i < Q4_GROUP; i++)
        if ((x[i] & 0x7fff) > (x[top] & 0x7fff))
            top = i;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float scale = q4_scale_value((uint16_t)bits, kind);
        if (!isfinite(scale))
            continue;
        uint16_t v[16];
        bool peak = false;
        for (int q = -8; q <= 7; q++) {
            v[q + 8] = product(q, scale);
            peak |= same(v[q + 8], x[top]);
        }
        int i = 0;
        for (; peak && i < Q4_GROUP; i++) {
            int u = 0;
            while (u < 16 && !same(v[u], x[i]))
                u++;
            if (u == 16)
                break;
        }
        if (i == Q4_GROUP && isfinite(bf16_to_f32(x[top])))
            return true;
    }
    return false;
}

struct grid { int m, sign, level[Q4_GROUP]; long double lo, hi; bool lo_in, hi_in; };

/* The steps for one (m, sign): false = off. */
static bool grid_at(const uint16_t *x, int m, int sign, struct grid *g)
{
    long double peak = 0;
    for (int i = 0; i < Q4_GROUP; i++)
        if (fabsl((long double)bf16_to_f32(x[i])) > peak)
            peak = fabsl((long double)bf16_to_f32(x[i]));
    *g = (struct grid){.m = m, .sign = sign, .lo = 0, .hi = INFINITY};
    for (int i = 0; i < Q4_GROUP; i++) {
        int q = g->level[i] = (int)rintl((long double)bf16_to_f32(x[i]) * sign * m / peak);
        if (q < -8 || q > 7 || (q == 0 && (x[i] & 0x7fff) != 0))
            return false;
        if (q == 0)
            continue;
        uint16_t a = x[i] & 0x7fff;
        long double v = bf16_to_f32(a), below = bf16_to_f32((uint16_t)(a - 1));
        long double above = a == 0x7f7f ? 0x1p128L : (long double)bf16_to_f32((uint16_t)(a + 1));
        long double lo = (v + below) / 2 / abs(q), hi = (v + above) / 2 / abs(q);
        bool in = !(a & 1);
        if (lo > g->lo)
            g->lo = lo, g->lo_in = in;
        else if (lo == g->lo)
            g->lo_in = g->lo_in && in;
        if (hi < g->hi)
            g->hi = hi, g->hi_in = in;
        else if (hi == g->hi)
            g->hi_in = g->hi_in && in;
    }
    return g->lo < g->hi || (g->lo == g->hi && g->lo_in && g->hi_in);
}

static int hits(const uint16_t *x, const struct grid *g, float scale)
{
    int n = 0;
    for (int i = 0; i < Q4_GROUP; i++)
        n += same(product(g->level[i], scale), x[i]);
    return n;
}

/* The best scale of one grid, by trying every positive number: those inside, else the neighbours.  0 = none. */
static uint16_t best_scale(const uint16_t *x, const struct grid *g, enum q4_scale kind, int *count)
{
    static uint16_t candidate[65536];
    uint16_t end = kind == Q4_F16 ? 0x7c00 : 0x7f80;
    int n = 0, below = 0, above = 0, best = 0;
    for (int b = 1; b < end; b++) {
        long double s = q4_scale_value((uint16_t)b, kind);
        if (s < g->lo || (s == g->lo && !g->lo_in))
            below = b;
        else if (s < g->hi || (s == g->hi && g->hi_in))
            candidate[n++] = (uint16_t)b;
        else if (!above)
            above = b;
    }
    *count = 0;
    if (n == 0) {
        if (!below || !above)
            return 0;
        candidate[n++] = (uint16_t)below;
        candidate[n++] = (uint16_t)above;
    }
    for (int i = 0; i < n; i++) {
        long double s = q4_scale_value(candidate[i], kind), t = q4_scale_value(candidate[best], kind);
        long double middle = (g->lo + g->hi) / 2;
        int c = hits(x, g, (float)g->sign * (float)s);
        if (i == 0 || c > *count || (c == *count && fabsl(s - middle) < fabsl(t - middle))) {
            *count = c;
            best = i;
        }
    }
    return candidate[best];
}

/* The block as the rule wants it; false = off the grid or out of range. */
static bool oracle(const uint16_t *x, enum q4_scale kind, uint8_t *block)
{
    struct grid chosen = {0};
    uint16_t bits = 0;
    bool any = false, exact = false, zero = true;
    for (int i = 0; i < Q4_GROUP; i++) {
        if ((x[i] & 0x7fff) >= 0x7f80)
            return false;
        zero &= (x[i] & 0x7fff) == 0;
    }
    for (int sign = 1; sign >= -1 && !zero; sign -= 2) {
        for (int m = 1; m <= 8 && !exact; m++) {
            struct grid g;
            int count;
            if (!grid_at(x, m, sign, &g))
                continue;
            uint16_t b = best_scale(x, &g, kind, &count);
            exact = b && count == Q4_GROUP;
            if (b && (!any || exact)) {
                chosen = g;
                bits = sign < 0 ? b | 0x8000 : b;
                any = true;
            }
        }
    }
    if (!any && !zero)
        return false;
    block[0] = (uint8_t)bits;
    block[1] = (uint8_t)(bits >> 8);
    for (int j = 0; j < 16; j++)
        block[2 + j] = (uint8_t)((chosen.level[2 * j] + 8) | (chosen.level[2 * j + 1] + 8) << 4);
    return true;
}

/* --- data ---------------------------------------------------------------------------------------------------------- */

static float rnd_scale(enum q4_scale kind, bool usual)
{
    for (;;) {
        uint16_t bits = (uint16_t)(rnd() & 0x7fff);
        if (usual)
            bits = kind == Q4_F16 ? (uint16_t)(0x1400 + rnd() % 0x1400) : (uint16_t)(0x3a00 + rnd() % 0x300);
        float s = q4_scale_value(bits, kind);
        if (isfinite(s) && s != 0)
            return rnd() & 1 ? s : -s;
    }
}

enum { HOWS = 16 };

/* Kinds of groups; the step is f16, bf16 or any float. */
static void make_group(int how, uint16_t *x)
{
    int lo = -8, hi = 7, factor = 1, keep = 100, at = rnd_in(0, Q4_GROUP - 1);
    float step = rnd_scale(Q4_F16, true);
    switch (how) {
    case 1: step = rnd_scale(Q4_BF16, true); break;
    case 2: step = ldexpf((float)(rnd() | 1), rnd_in(-46, -34)); break;                 /* any float step */
    case 3: hi = rnd_in(0, 7), lo = -rnd_in(0, 7); break;                               /* small peaks */
    case 4: factor = rnd_in(1, 4), hi = 7 / factor, lo = -8 / factor; break;            /* common divisors */
    case 5: keep = rnd_in(1, 8); break;                                                 /* nearly all zero */
    case 6: step = rnd_scale(Q4_F16, false); break;                                     /* all of f16, subnormals too */
    case 7: step = rnd_scale(Q4_BF16, false); break;                                    /* all of bf16, products overflow too */
    case 8: step = ldexpf((float)rnd_in(1, 9), -24); break;                             /* f16 subnormals */
    case 9: step = ldexpf((float)rnd_in(1, 40), -133); break;                           /* bf16 subnormals */
    case 10: step = ldexpf((float)(rnd() | 1), rnd_in(-60, -14)); break;                /* beyond f16 at both ends */
    default: break;                                                                     /* 0: a Q4_0 export */
    }
    for (int i = 0; i < Q4_GROUP; i++) {
        int q = rnd_in(0, 99) < keep ? factor * rnd_in(lo, hi) : 0;
        x[i] = product(q, step);
        if (q == 0 && (rnd() & 1))
            x[i] ^= 0x8000;
    }
    if (how == 11)
        x[at] = (uint16_t)(x[at] + rnd_in(-2, 2));                                      /* the edge of the grid */
    if (how == 12)
        x[at] = (uint16_t)rnd();                                                        /* anything, NaN too */
    for (int i = 0; i < Q4_GROUP; i++) {
        if (how == 13)                                                                  /* bf16's smallest numbers */
            x[i] = (uint16_t)(rnd_in(0, 20) | (rnd() & 1) << 15);
        if (how == 14)                                                                  /* magnitudes next to 1 and 2 */
            x[i] = (uint16_t)(((rnd() & 1 ? 0x3f80 : 0x4000) + rnd_in(-1, 1)) | (rnd() & 1) << 15);
        if (how == 15)                                                                  /* some values a last bit away */
            x[i] = (uint16_t)(x[i] + (rnd_in(0, 40) ? 0 : rnd_in(-1, 1)));
    }
}

/* --- tests --------------------------------------------------------------------------------------------------------- */

static void test_blocks(void)
{
    uint8_t block[Q4_BLOCK] = {0x80, 0x3f, 0xf0}, packed[16], scales[2], again[Q4_BLOCK];
    memset(block + 3, 0x88, 15);
    uint16_t v[Q4_GROUP];
    q4_to_bf16(block, 1, Q4_BF16, v);
    assert(v[0] == bf16_from_f32(-8) && v[1] == bf16_from_f32(7) && v[2] == 0 && v[31] == 0);
    q4_split(block, 1, packed, scales);
    assert(packed[0] == 0xf0 && packed[15] == 0x88 && scales[0] == 0x80 && scales[1] == 0x3f);
    q4_join(packed, scales, 1, again);
    assert(memcmp(block, again, Q4_BLOCK) == 0);
    for (uint32_t s = 0; s < 65536; s += 7) {
        for (enum q4_scale kind = Q4_BF16; kind <= Q4_F16; kind++) {
            uint8_t many[40 * Q4_BLOCK];
            uint16_t got[40 * Q4_GROUP];
            int n = rnd_in(1, 40);
            for (int i = 0; i < n * Q4_BLOCK; i++)
                many[i] = (uint8_t)rnd();
            memcpy(many, &(uint16_t){(uint16_t)s}, 2);
            q4_to_bf16(many, (size_t)n, kind, got);
            for (int i = 0; i < n * Q4_GROUP; i++) {
                const uint8_t *b = many + i / Q4_GROUP * Q4_BLOCK;
                int j = i % Q4_GROUP, q = (b[2 + j / 2] >> (j % 2 * 4) & 15) - 8;
                uint16_t want = product(q, q4_scale_value((uint16_t)(b[0] | b[1] << 8), kind));
                assert(got[i] == want || (isnan(bf16_to_f32(got[i])) && isnan(bf16_to_f32(want))));
            }
        }
    }
    puts("blocks: split, join, values of both scale types");
}

/* One group through the recovery; *exact = all 32 values come back. */
static bool recover_one(const uint16_t *x, enum q4_scale kind, uint8_t *block, bool *exact)
{
    if (q4_recover(x, 1, kind, block) != 1)
        return false;
    uint16_t v[Q4_GROUP];
    q4_to_bf16(block, 1, kind, v);
    *exact = true;
    for (int i = 0; i < Q4_GROUP; i++)
        *exact &= same(v[i], x[i]);
    return true;
}

static void show(const uint16_t *x, const uint8_t *got, const uint8_t *want)
{
    for (int i = 0; i < Q4_GROUP; i++)
        printf("%04x%c", x[i], i % 16 == 15 ? '\n' : ' ');
    for (int i = 0; i < Q4_BLOCK; i++)
        printf("%02x/%02x ", got[i], want[i]);
    puts("(got/want)");
}

static void test_rule(int rounds)
{
    int on = 0, off = 0;
    for (int r = 0; r < rounds; r++) {
        uint16_t x[Q4_GROUP];
        make_group(r % HOWS, x);
        for (enum q4_scale kind = Q4_BF16; kind <= Q4_F16; kind++) {
            uint8_t got[Q4_BLOCK] = {0}, want[Q4_BLOCK] = {0};
            bool exact = false, g = recover_one(x, kind, got, &exact), w = oracle(x, kind, want);
            if (g != w || memcmp(got, want, Q4_BLOCK) != 0) {
                printf("round %d, kind of group %d, %s: recovered %d, oracle %d\n", r, r % HOWS, q4_scale_name(kind), g, w);
                show(x, got, want);
                abort();
            }
            on += g, off += !g;
            assert((g && exact) == any_exact(x, kind));
        }
    }
    printf("rule: %d groups recovered as the oracle does, %d refused; exact wherever any of 65,536 scales is\n", on, off);
}

static void group_of(uint16_t *x, uint16_t fill)
{
    for (int i = 0; i < Q4_GROUP; i++)
        x[i] = fill;
}

static void test_zero_and_signs(void)
{
    uint16_t x[Q4_GROUP];
    uint8_t block[Q4_BLOCK], zero[Q4_BLOCK];
    bool exact;
    struct q4_fault fault;
    memset(zero, 0x88, sizeof zero);
    zero[0] = zero[1] = 0;
    group_of(x, 0x8000);
    assert(recover_one(x, Q4_F16, block, &exact) && exact && memcmp(block, zero, Q4_BLOCK) == 0);
    puts("a group of -0.0: scale 0, levels 0");

    group_of(x, 0);
    x[3] = bf16_from_f32(8), x[4] = bf16_from_f32(-7), x[5] = bf16_from_f32(1);
    assert(recover_one(x, Q4_BF16, block, &exact) && exact && block[1] == 0xbf && block[0] == 0x80);
    puts("a peak of +8 steps: a negative scale");

    x[6] = bf16_from_f32(-8);
    assert(q4_recover(x, 1, Q4_BF16, block) == 0);
    q4_explain(x, &fault);
    assert(fault.kind == Q4_OFF_GRID);
    puts("+8 and -8 steps with odd levels: off the grid");
}

static void test_faults(void)
{
    uint16_t x[Q4_GROUP];
    uint8_t block[Q4_BLOCK];
    bool exact;
    struct q4_fault fault;
    group_of(x, 0x7fc0);
    x[0] = 0;
    assert(q4_recover(x, 1, Q4_BF16, block) == 0);
    q4_explain(x, &fault);
    assert(fault.kind == Q4_NOT_FINITE && fault.at == 1);
    group_of(x, 0x3f80);
    x[9] = 0xff80;
    assert(q4_recover(x, 1, Q4_F16, block) == 0);
    q4_explain(x, &fault);
    assert(fault.kind == Q4_NOT_FINITE && fault.at == 9);
    puts("NaN and infinity: off, named");

    for (int e = -1; e <= 1; e += 2) {
        for (int i = 0; i < Q4_GROUP; i++)
            x[i] = product(i % 16 - 8, ldexpf(1.25f, 30 * e));
        assert(q4_recover(x, 1, Q4_F16, block) == 0);
        q4_explain(x, &fault);
        assert(fault.kind == Q4_STEP_RANGE && fault.step > 0.9 * ldexp(1.25, 30 * e) && fault.step < 1.1 * ldexp(1.25, 30 * e));
        assert(recover_one(x, Q4_BF16, block, &exact) && exact);
    }
    puts("steps beyond f16 at both ends: refused for f16, exact for bf16");

    group_of(x, bf16_from_f32(98304));                  /* 1 step of 98304 is no f16, 2 of 49152 are */
    assert(recover_one(x, Q4_F16, block, &exact) && exact);
    puts("a step beyond f16 whose half is not: the half");

    for (int i = 0; i < Q4_GROUP; i++)
        x[i] = product(i % 16 - 8, 0.0123f);
    for (int bad = 0; bad < Q4_GROUP; bad++) {
        uint16_t good = x[bad];
        x[bad] = bf16_from_f32(0.0123f * 3.5f);
        assert(q4_recover(x, 1, Q4_F16, block) == 0);
        q4_explain(x, &fault);
        assert(fault.kind == Q4_OFF_GRID && fault.at == bad);
        x[bad] = good;
    }
    puts("one value off the grid: that one is named");
}

/* The first failing group's index, with good groups on either side of it. */
static void test_stop(void)
{
    enum { N = 600 };
    static uint16_t x[N * Q4_GROUP];
    static uint8_t blocks[N * Q4_BLOCK], good[N * Q4_BLOCK];
    for (enum q4_scale kind = Q4_BF16; kind <= Q4_F16; kind++) {
        for (int i = 0; i < N; i++)
            make_group(0, x + i * Q4_GROUP);
        assert(q4_recover(x, N, kind, good) == N);
        for (int bad = 0; bad < N; bad += bad < 70 ? 1 : 23) {
            uint16_t keep = x[bad * Q4_GROUP + 5], last = x[(N - 1) * Q4_GROUP + 5];
            x[bad * Q4_GROUP + 5] = bad & 1 ? 0x7f80 : 0xffc0;
            x[(N - 1) * Q4_GROUP + 5] = 0x7f80;
            assert(q4_recover(x, N, kind, blocks) == (size_t)bad);
            assert(memcmp(good, blocks, (size_t)bad * Q4_BLOCK) == 0);
            x[(N - 1) * Q4_GROUP + 5] = last;
            x[bad * Q4_GROUP + 5] = keep;
        }
    }
    puts("a group without a block: its index, the ones before it written");
}

static void test_tally(void)
{
    uint16_t x[3 * Q4_GROUP];
    uint8_t blocks[3 * Q4_BLOCK];
    float step = 1 + 1 / 512.0f;                        /* an f16 that bf16 rounds to 1 */
    for (int i = 0; i < 3 * Q4_GROUP; i++)
        x[i] = i < Q4_GROUP ? 0 : product(i % 16 - 8, i < 2 * Q4_GROUP ? step : -step);
    for (int i = Q4_GROUP; i < 3 * Q4_GROUP; i++)       /* 5 steps and more differ in bf16 from those of 1: keep the interval narrow */
        assert((x[i] & 0x7fff) == (product(abs(i % 16 - 8), step) & 0x7fff));
    assert(q4_recover(x, 3, Q4_F16, blocks) == 3);
    struct q4_tally t = {0};
    q4_tally_add(&t, x, blocks, 3, Q4_F16);
    assert(t.groups == 3 && t.zero == 1 && t.negative == 1);
    assert(t.written.values == 96 && t.written.groups == 3 && t.written.worst == 0);
    unsigned seen = 0;
    double worst = 0;
    for (int i = 0; i < 3 * Q4_GROUP; i++) {
        uint16_t bits = (uint16_t)(blocks[i / 32 * Q4_BLOCK] | blocks[i / 32 * Q4_BLOCK + 1] << 8);
        float scale = bf16_to_f32(bf16_from_f32(f16_to_f32(bits)));
        uint16_t v = product((blocks[i / 32 * Q4_BLOCK + 2 + i % 32 / 2] >> (i % 2 * 4) & 15) - 8, scale);
        seen += same(x[i], v);
        worst = fmax(worst, fabs((double)bf16_to_f32(x[i]) - bf16_to_f32(v)) / bf16_to_f32(product(8, step)));
    }
    assert(t.as_bf16.values == seen && t.as_bf16.groups == (seen == 96 ? 3 : 1) && t.as_bf16.worst == worst);
    puts("tally: what is written and what a bf16 reader sees");
}

/* A peak at level -8 of either sign, levels 3, 5, 7 with their doubles each missing or within one place of what an eighth of the peak gives. */
static void make_peak(unsigned mantissa, unsigned how, uint16_t *x)
{
    uint16_t peak = (uint16_t)((unsigned)rnd_in(30, 240) << 7 | mantissa);
    float c = bf16_to_f32(peak) / 8;
    int place[4] = {0, (int)(how & 3) - 1, (int)(how >> 2 & 3) - 1, (int)(how >> 4 & 3) - 1}, many = rnd_in(1, 12);
    bool minus = rnd() & 1;
    for (int i = 0; i < Q4_GROUP; i++) {
        int q = i == 0 ? 8 : rnd_in(0, 12) < many ? rnd_in(0, 7) : rnd() & 1 ? 1 << rnd_in(0, 2) : 3 + 2 * rnd_in(0, 2), odd = q ? q >> __builtin_ctz((unsigned)q) : 1;
        int off = place[odd / 2] == 2 ? 0 : place[odd / 2];
        if (place[odd / 2] == 2)
            q = 0;
        x[i] = (uint16_t)(q ? product(q, c) + off : 0);
        if (q != 8 ? rnd() & 1 : minus)
            x[i] |= 0x8000;
    }
}

/* All of them, at the level forced; blocks and tally as the scalar loop and the tally have them. */
static void test_peaks(const char *level)
{
    enum { N = 128 * 64 };
    static uint16_t x[N * Q4_GROUP];
    static uint8_t want[N * Q4_BLOCK], got[N * Q4_BLOCK];
    long groups = 0, exact = 0;
    for (unsigned i = 0; i < N; i++)
        make_peak(i / 64, i % 64, x + i * Q4_GROUP);
    for (size_t from = 0, n, g; from < N; from += n + 1) {
        simd_force("scalar");
        n = q4_recover(x + from * Q4_GROUP, N - from, Q4_BF16, want);
        simd_force(level);
        struct q4_tally t = {0}, u = {0};
        g = q4_recover(x + from * Q4_GROUP, N - from, Q4_BF16, got);
        assert(g == n && memcmp(want, got, n * Q4_BLOCK) == 0);
        assert(q4_recover_counted(x + from * Q4_GROUP, n, Q4_BF16, got, &t) == n && memcmp(want, got, n * Q4_BLOCK) == 0);
        simd_force("scalar");
        q4_tally_add(&u, x + from * Q4_GROUP, want, n, Q4_BF16);
        assert(memcmp(&t, &u, sizeof t) == 0);
        groups += (long)n;
        exact += (long)t.written.groups;
    }
    printf("%s: of %d groups with a peak at -8 %ld are on the grid, %ld with an exact scale, as the scalar loop has them\n", level, N, groups, exact);
}

/* Every SIMD level against the scalar one: whole batches of every kind, and mixed ones. */
static void test_twins(int rounds)
{
    enum { N = 67 };
    static uint16_t x[N * Q4_GROUP];
    static uint8_t want[N * Q4_BLOCK], got[N * Q4_BLOCK];
    for (int level = SIMD_AVX2; level <= SIMD_AVX512; level++) {
        if (simd_force(simd_name((enum simd)level)) != 0) {
            printf("%s: not on this CPU\n", simd_name((enum simd)level));
            continue;
        }
        long groups = 0;
        for (int r = 0; r < rounds; r++) {
            enum q4_scale kind = r & 1 ? Q4_F16 : Q4_BF16;
            int how = r / 2 % (HOWS + 1);
            for (int i = 0; i < N; i++)
                make_group(how < HOWS ? how : rnd_in(0, HOWS - 1), x + i * Q4_GROUP);
            for (size_t from = 0; from < N; ) {
                simd_force("scalar");
                size_t w = q4_recover(x + from * Q4_GROUP, N - from, kind, want);
                simd_force(simd_name((enum simd)level));
                size_t g = q4_recover(x + from * Q4_GROUP, N - from, kind, got);
                for (size_t i = 0; i < w && i < g; i++) {
                    if (memcmp(want + i * Q4_BLOCK, got + i * Q4_BLOCK, Q4_BLOCK) != 0) {
                        printf("%s, round %d, kind of group %d, %s, group %zu\n", simd_name((enum simd)level), r, how, q4_scale_name(kind), i);
                        show(x + (from + i) * Q4_GROUP, got + i * Q4_BLOCK, want + i * Q4_BLOCK);
                        abort();
                    }
                }
                assert(g == w);
                struct q4_tally t = {0}, u = {0};
                q4_recover_counted(x + from * Q4_GROUP, w, kind, got, &t);
                q4_tally_add(&u, x + from * Q4_GROUP, want, w, kind);
                assert(memcmp(&t, &u, sizeof t) == 0);
                groups += (long)w;
                from += w + 1;
            }
        }
        printf("%s: %ld blocks as the scalar loop makes them\n", simd_name((enum simd)level), groups);
        for (int r = 0; r < rounds / 3000 + 1; r++)
            test_peaks(simd_name((enum simd)level));
    }
    simd_force("avx512");
}

static void test_values_twin(void)
{
    enum { N = 33 };
    uint8_t blocks[N * Q4_BLOCK];
    uint16_t want[N * Q4_GROUP], got[N * Q4_GROUP];
    if (simd_force("avx2") != 0)
        return;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        for (int i = 0; i < N * Q4_BLOCK; i++)
            blocks[i] = (uint8_t)rnd();
        blocks[0] = (uint8_t)bits, blocks[1] = (uint8_t)(bits >> 8);
        enum q4_scale kind = bits & 1 ? Q4_F16 : Q4_BF16;
        int n = bits % 16 ? 1 : N;
        q4_to_bf16_scalar(blocks, (size_t)n, kind, want);
        q4_to_bf16_avx2(blocks, (size_t)n, kind, got);
        assert(memcmp(want, got, (size_t)n * Q4_GROUP * 2) == 0);
        make_group((int)(bits % 6), got);
        memcpy(want, got, Q4_GROUP * 2);
        for (int k = 0; k < 3; k++)
            want[rnd_in(0, Q4_GROUP - 1)] ^= (uint16_t)(rnd() & 0x8003);
        struct q4_difference a = q4_compare_scalar(got, want), b = q4_compare_avx2(got, want);
        assert(a.same == b.same && a.largest == b.largest && a.peak == b.peak);
    }
    simd_force("avx512");
    puts("values and comparisons in AVX2: as the scalar loops, for all scales");
}

int main(int argc, char **argv)
{
    test_blocks();
    test_zero_and_signs();
    test_faults();
    test_stop();
    test_tally();
    test_values_twin();
    test_twins(argc > 2 ? atoi(argv[2]) : 3400);
    test_rule(argc > 1 ? atoi(argv[1]) : 1600);
    return 0;
}
