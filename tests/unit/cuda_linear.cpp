/* Linears of every kind against the judge: odd rows, few and many tokens, epilogues. */
#include "tests/cuda/judge.h"

static const char *const kinds[] = {"int4 bf16", "int4 f16", "int4 f32", "int8", "fp8", "bf16", "f16", "f32"};

struct problem { weights w; std::vector<float> x; struct gk_launch l; float *y; };

static void fill(problem &p, enum gk_kind kind, int tokens, int cols)
{
    const int ldx = 2 * gk_padded(cols);
    uint16_t *x = device<uint16_t>((size_t)tokens * (size_t)ldx, "x");
    p.x.resize((size_t)tokens * (size_t)cols);
    for (float &v : p.x)
        v = activation();
    for (int t = 0; t < tokens; t++)
        prepare(x + t * ldx, &p.x[(size_t)(t * cols)], cols, gk_order_of(kind));
    memset(&p.l, 0, sizeof p.l);
    p.l.kernel = GK_LINEAR;
    struct gk_linear &a = p.l.a.linear;
    a.kind = kind, a.tokens = tokens, a.cols = cols, a.x = x, a.ldx = ldx, a.eps = 1e-6f;
}

static void test_store(enum gk_kind kind, int rows, int cols, int tokens, int sms, int shift = 0, bool rounded = false)
{
    problem p;
    fill(p, kind, tokens, cols);
    p.w = make_weights(kind, rows, cols, shift);
    p.y = device<float>((size_t)tokens * (size_t)rows, "y");
    struct gk_linear &a = p.l.a.linear;
    a.m[0] = p.w.m, a.segments = 1, a.y = p.y, a.ldy = rows, a.scale_shift = shift, a.rounded = rounded;
    for (double &v : p.w.value)
        v = rounded ? from_bf16(to_bf16((float)v)) : v;
    const char *fault = run(p.l, sms);
    CHECK(!fault, "%s %dx%d, %d tokens: %s", kinds[kind], rows, cols, tokens, fault);
    double worst = 0;
    for (int t = 0; t < tokens; t++)
        for (int r = 0; r < rows; r++) {
            const product want = multiply(p.w, r, &p.x[(size_t)(t * cols)]);
            worst = fmax(worst, fabs(p.y[t * rows + r] - want.value) / linear_bound(cols * terms_of(kind), want.size));
        }
    CHECK(worst <= 1, "%s %dx%d, %d tokens: error %g times the bound", kinds[kind], rows, cols, tokens, worst);
    free_all();
}

/* Weight i becomes what its magnitude is, unless that is 0 (of int4: 1 .. 7). */
static void make_positive(weights &w, size_t i, enum gk_kind kind)
{
    uint8_t *const p = (uint8_t *)(uintptr_t)w.m.data;
    const size_t scales = is_int4(kind) ? (size_t)w.cols / 32 : 1;
    if (is_int4(kind)) {
        const uint16_t s = ((const uint16_t *)w.m.scale)[i / (size_t)w.cols * scales + i % (size_t)w.cols / 32];
        const int level = 1 + (int)(draw() % 7), shift = i % 2 * 4;
        p[i / 2] = (uint8_t)((p[i / 2] & ~(15 << shift)) | (level + 8) << shift);
        w.value[i] = level * (double)from_bf16(s);
    } else if (kind == GK_INT8) {
        p[i] &= 0x7f;
        w.value[i] = p[i] * (double)((const float *)w.m.scale)[i / (size_t)w.cols];
    } else if (kind == GK_BF16) {
        ((uint16_t *)p)[i] &= 0x7fff;
        w.value[i] = from_bf16(((uint16_t *)p)[i]);
    } else {
        w.value[i] = ((float *)p)[i] = fabsf(((float *)p)[i]);
    }
}

/* Everything positive, and long rows: whatever is cut off leads the same way. */
static void test_one_way(enum gk_kind kind, int rows, int cols, int tokens)
{
    problem p;
    fill(p, kind, tokens, cols);
    for (int t = 0; t < tokens; t++) {
        for (int k = 0; k < cols; k++)
            p.x[(size_t)(t * cols + k)] = 0.5f + fabsf(uniform());
        prepare((uint16_t *)(uintptr_t)p.l.a.linear.x + t * p.l.a.linear.ldx, &p.x[(size_t)(t * cols)], cols, gk_order_of(kind));
    }
    p.w = make_weights(kind, rows, cols);
    double worst = 0;
    p.y = device<float>((size_t)(tokens * rows), "y");
    struct gk_linear &a = p.l.a.linear;
    a.m[0] = p.w.m, a.segments = 1, a.y = p.y, a.ldy = rows;
    for (size_t i = 0; i < p.w.value.size(); i++)
        make_positive(p.w, i, kind);
    const char *fault = run(p.l, 1);
    CHECK(!fault, "%s, %d columns, %d tokens: %s", kinds[kind], cols, tokens, fault);
    for (int t = 0; t < tokens; t++)
        for (int r = 0; r < rows; r += 1 + rows / 16) {
            const product want = multiply(p.w, r, &p.x[(size_t)(t * cols)]);
            worst = fmax(worst, fabs(p.y[t * rows + r] - want.value) / linear_bound(cols * terms_of(kind), want.size));
        }
    CHECK(worst <= 1, "%s, %d columns, %d tokens, one way: error %g times the bound", kinds[kind], cols, tokens, worst);
    free_all();
}

static void all(void)
{
    for (int tokens : {1, 5, 9})
        for (enum gk_kind kind : {GK_INT4_BF16, GK_INT8, GK_BF16, GK_F32})
            test_one_way(kind, 16, 21504, tokens);      /* eight warps share a row */
    test_one_way(GK_BF16, 256, 21504, 1);                       /* one warp has it alone */

    for (int kind = GK_INT4_BF16; kind < GK_KINDS; kind++) {
        for (int tokens = 1; tokens <= 8; tokens++)
            test_store((enum gk_kind)kind, 33, 160, tokens, 1);
        test_store((enum gk_kind)kind, 1, 32, 1, 4);
        test_store((enum gk_kind)kind, 31, 704, 2, 2);
        test_store((enum gk_kind)kind, 31, 704, 1, 1);
        test_store((enum gk_kind)kind, 100, 64, 1, 1);
        test_store((enum gk_kind)kind, 33, 1536, 1, 2);
        test_store((enum gk_kind)kind, 300, 128, 1, 1);
        test_store((enum gk_kind)kind, 257, 256, 3, 1);
        test_store((enum gk_kind)kind, 40, 96, 70, 1);
        test_store((enum gk_kind)kind, 16, 1536, 9, 1);
    }
    test_store(GK_INT4_BF16, 33, 256, 5, 1, 2);
    for (int tokens : {1, 6, 20}) {
        test_store(GK_INT4_BF16, 33, 256, tokens, 1, 0, true);
        test_store(GK_INT4_F16, 33, 256, tokens, 1, 1, true);
        test_store(GK_INT4_F32, 33, 256, tokens, 1, 2, true);
    }
}

/* With sums as they are, and as GPUs' tensor cores form them. */
int main(void)
{
    for (bool cut : {false, true}) {
        set_cut_sums(cut);
        all();
    }
    return finish_tests();
}
