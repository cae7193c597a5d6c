/* kv: what a sequence occupies at 8,192 tokens, and which keys a token sees before and after the ring has turned. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "engine/engine.h"
#include "engine/kv.h"

enum { WINDOW = 512, HEAD_DIM = 32 };

/* Five sliding layers to a full one, twice; one K/V head. */
static struct gemma two_kinds(void)
{
    struct gemma g = {.layers = 12, .heads = 4, .window = WINDOW};

    for (int i = 0; i < g.layers; i++) {
        g.layer[i].full = i % 6 == 5;
        g.layer[i].head_dim = HEAD_DIM;
        g.layer[i].kv_heads = 1;
        g.layer[i].kv_from = i;
    }
    return g;
}

static uint64_t floats(uint64_t sliding, uint64_t full) { return 2 * HEAD_DIM * (10 * sliding + 2 * full); }

static void bytes(void)
{
    const struct gemma g = two_kinds();
    const uint64_t ring = WINDOW + ENGINE_STEP_TOKENS;

    assert(kv_bytes(&g, 100) == 4 * floats(100, 100));
    assert(kv_bytes(&g, 8192) == 4 * floats(ring, 8192));
    assert(kv_bytes(&g, 8193) - kv_bytes(&g, 8192) == 4 * floats(0, 1));
    puts("8,192 tokens: sliding layers keep their window and one step, a further token costs the full layers only");
}

/* Every position of every layer is written as its number; a token then sees exactly its own window, in order. */
static void windows(void)
{
    const struct gemma g = two_kinds();
    struct seq *s = kv_new(&g, 8192);

    for (long p = 0; p < 8192; p++)
        for (int i = 0; i < g.layers; i++) {
            struct kv_span span[2];
            s->layer[i].k[kv_index(&g.layer[i], &s->layer[i], 0, p)] = (float)p;
            if (p % 61 && p < 8000)
                continue;
            const size_t spans = kv_spans(&g, &g.layer[i], &s->layer[i], 0, p, span);
            long at = g.layer[i].full || p < WINDOW ? 0 : p - WINDOW + 1;
            for (size_t j = 0; j < spans; j++)
                for (size_t n = 0; n < span[j].n; n++)
                    assert(span[j].k[n * HEAD_DIM] == (float)at++);
            assert(at == p + 1);
        }
    kv_free(s);
    puts("a token sees its window, in order, wherever the ring has turned");
}

int main(void)
{
    bytes();
    windows();
    return 0;
}
