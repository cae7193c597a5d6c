/* choose: the id that all logits would give, whatever the tokens, the cap, the ids left out; equal logits; bounds that hold. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "engine/choose.h"

enum { ROWS = 4096 };

static uint64_t state = 1;
static uint32_t rnd(void) { state = state * 6364136223846793005u + 1442695040888963407u; return (uint32_t)(state >> 33); }
static float normal(void) { float s = 0; for (int i = 0; i < 6; i++) s += (float)rnd() / 2147483648.0f - 0.5f; return s * 1.4f; }

/* Some rows twice, so that there are equal logits; near: but for a last group that hardly counts, so that some are equal once they are capped. */
static struct matrix random_head(size_t cols, enum st_dtype type, float size, bool near)
{
    struct matrix m = {.kind = W_INT4, .rows = ROWS, .cols = cols, .scales = cols / 32, .scale_type = type};
    uint8_t *data = xcalloc(ROWS * cols / 2 + KERNEL_SLACK, 1), *scale = xcalloc(ROWS * m.scales * 2 + KERNEL_SLACK, 1);

    for (size_t i = 0; i < ROWS * cols / 2; i++)
        data[i] = (uint8_t)rnd();
    for (size_t i = 0; i < ROWS * m.scales; i++) {
        const float s = near && i % m.scales == m.scales - 1 ? 0x1p-14f : normal() * size;
        const uint16_t half = type == ST_F16 ? f16_from_f32(s) : bf16_from_f32(s);
        memcpy(scale + 2 * i, &half, 2);
    }
    for (size_t r = ROWS / 2; r < ROWS; r++) {
        memcpy(data + r * cols / 2, data + (r - ROWS / 2) * cols / 2, near ? cols / 2 - 16 : cols / 2);
        memcpy(scale + r * m.scales * 2, scale + (r - ROWS / 2) * m.scales * 2, m.scales * 2);
    }
    m.data = data, m.scale = scale;
    return m;
}

static void same_choice(size_t cols, enum st_dtype type, float size, float softcap, bool leave_out, bool near)
{
    const struct kernels *k = kernels_for(simd_level());
    const struct pace pace = {8192, 512, false};
    const size_t bytes = act_bytes(W_INT4, cols);
    struct matrix m = random_head(cols, type, size, near);
    struct par *par = par_new(3);
    float *x = xcalloc(CHOOSE_TOKENS * cols, sizeof *x), *logits = xcalloc(ROWS, sizeof *logits);
    uint8_t *act = aligned_alloc(64, CHOOSE_TOKENS * bytes);
    int never[2] = {7, 7}, id[CHOOSE_TOKENS];
    struct chooser *all = chooser_new(&m, softcap, true, (struct id_span){never, 0}, k, par);

    for (size_t n = 1; n <= CHOOSE_TOKENS; n++) {
        for (size_t i = 0; i < n * cols; i++)
            x[i] = normal() * (i % 96 == 5 ? 20.0f : 1.0f);
        for (size_t t = 0; t < n; t++)
            k->prepare(W_INT4, x + t * cols, cols, act + t * bytes);
        if (leave_out) {        /* the best of the first token and its twin */
            k->linear_fast(&m, 0, ROWS, NULL, 0, act, 1, &pace, logits, ROWS);
            never[0] = choose_of_logits(all, logits), never[1] = never[0] + ROWS / 2;
        }
        struct chooser *c = chooser_new(&m, softcap, true, (struct id_span){never, leave_out ? 2 : 0}, k, par);
        const bool chose = choose(c, x, n, act, &pace, id);
        assert(chose == (n == 1 || k->bounds != NULL));
        for (size_t t = 0; chose && t < n; t++) {
            k->linear_fast(&m, 0, ROWS, NULL, 0, act + t * bytes, 1, &pace, logits, ROWS);
            if (softcap > 0)
                k->softcap(logits, ROWS, softcap);
            assert(id[t] == choose_of_logits(c, logits));
        }
        chooser_free(c);
    }
    chooser_free(all);
    par_free(par);
    free(x);
    free(logits);
    free(act);
    free((void *)m.data);
    free((void *)m.scale);
}

/* Logits that the cap makes equal, or that are no numbers, are left to all logits. */
static void gives_up(void)
{
    const struct kernels *k = kernels_for(simd_level());
    const struct pace pace = {8192, 512, false};
    struct matrix m = random_head(64, ST_F16, 1.0f, false);
    struct par *par = par_new(1);
    struct chooser *c = chooser_new(&m, 1.0f, true, (struct id_span){NULL, 0}, k, par);
    float x[2 * 64];
    uint8_t *act = aligned_alloc(64, 2 * act_bytes(W_INT4, 64));
    int id[2];

    for (int i = 0; i < 128; i++)
        x[i] = normal();
    for (size_t t = 0; t < 2; t++)
        k->prepare(W_INT4, x + 64 * t, 64, act + t * act_bytes(W_INT4, 64));
    assert(!choose(c, x, 2, act, &pace, id));
    assert(choose(c, x, 1, act, &pace, id));
    chooser_free(c);
    par_free(par);
    free(act);
    free((void *)m.data);
    free((void *)m.scale);
}

/* One token over rows of another kind, whose number is no multiple of anything; a NaN anywhere, and nothing to choose from, are left to all logits. */
static void alone(void)
{
    enum { COLS = 64, N = 1001 };
    const struct kernels *k = kernels_for(simd_level());
    const struct pace pace = {2048, 512, false};
    uint16_t *data = xcalloc(N * COLS + KERNEL_SLACK, sizeof *data);
    struct matrix m = {.kind = W_BF16, .rows = N, .cols = COLS, .data = (const uint8_t *)data};
    float x[COLS], *logits = xcalloc(N, sizeof *logits);
    int none[N], id;
    struct par *par = par_new(2);

    for (int i = 0; i < N; i++)
        none[i] = i;
    for (int round = 0; round < 50; round++) {
        struct chooser *c = chooser_new(&m, 0, true, (struct id_span){none, (size_t)round}, k, par);
        for (size_t i = 0; i < N * COLS; i++)
            data[i] = bf16_from_f32(rnd() % 4 ? normal() : 0);
        for (size_t i = 0; i < COLS; i++)
            x[i] = normal();
        memcpy(data + (N - 1) * COLS, data + (rnd() % N) * COLS, COLS * sizeof *data);
        k->linear_fast(&m, 0, N, x, COLS, NULL, 1, &pace, logits, N);
        assert(choose(c, x, 1, NULL, &pace, &id) && id == choose_of_logits(c, logits));
        data[((size_t)round + rnd() % (size_t)(N - round)) * COLS + rnd() % COLS] = 0x7fc0;
        assert(!choose(c, x, 1, NULL, &pace, &id));
        chooser_free(c);
    }
    memset(data, 0, N * COLS * sizeof *data);
    struct chooser *c = chooser_new(&m, 0, true, (struct id_span){none, N}, k, par), *exact = chooser_new(&m, 0, false, (struct id_span){none, 0}, k, par);
    assert(!choose(c, x, 1, NULL, &pace, &id));
    assert(!choose(exact, x, 1, NULL, &pace, &id));
    chooser_free(c);
    chooser_free(exact);
    par_free(par);
    free(logits);
    free(data);
}

int main(void)
{
    const size_t cols[] = {64, 640, 1152, 2048};

    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        same_choice(cols[i], ST_F16, 1 / 64.0f, 0, false, false);
        same_choice(cols[i], ST_BF16, 1 / 64.0f, 30, false, false);
        same_choice(cols[i], ST_F16, 1 / 64.0f, 30, true, false);
        same_choice(cols[i], ST_F16, 1 / 64.0f, 1e6f, false, true);
    }
    gives_up();
    alone();
    puts("the choice is that of all logits");
    return 0;
}
