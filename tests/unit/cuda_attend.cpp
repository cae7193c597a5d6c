/* Attention over pages against a judge in double: head dims, shared KV heads, windows, splits, rings. */
#include "tests/cuda/judge.h"

struct problem { int heads, kv_heads, head_dim, window, splits; std::vector<int> positions; };

/* Tokens of different sequences; pages in a shuffled order, those of a window used again and again. */
static void test_attend(const problem &p, int order)
{
    const int tokens = (int)p.positions.size(), hd = p.head_dim, wide = p.heads * hd;
    int longest = 0;
    for (int at : p.positions)
        longest = at > longest ? at : longest;
    const int all = longest / GK_PAGE + 1, ring = p.window ? (p.window + 2 * GK_PAGE - 2) / GK_PAGE + 1 : all, pool = tokens * ring + 3;
    const size_t page_values = (size_t)p.kv_heads * GK_PAGE * (size_t)hd;
    uint16_t *k = device<uint16_t>(page_values * (size_t)pool, "K"), *v = device<uint16_t>(page_values * (size_t)pool, "V");
    int *pages = device<int>((size_t)(tokens * ring), "pages");
    std::vector<char> used((size_t)pool, 0);
    for (int i = 0; i < tokens * ring; i++) {           /* a permutation, whatever the sizes */
        int at = 3 + (int)(draw() % (unsigned)(tokens * ring));
        while (used[(size_t)at])
            at = 3 + (at - 2) % (tokens * ring);
        used[(size_t)at] = 1;
        pages[i] = at;
    }
    struct gk_token *token = device<struct gk_token>((size_t)tokens, "tokens");
    uint16_t *q = device<uint16_t>((size_t)(tokens * 2 * wide), "q"), *out = device<uint16_t>((size_t)(tokens * 2 * gk_padded(wide)), "out");
    std::vector<float> query((size_t)(tokens * wide));
    for (float &x : query)
        x = activation();
    std::vector<std::vector<float>> keys((size_t)tokens), values((size_t)tokens);
    for (int s = 0; s < tokens; s++) {
        const int last = p.positions[(size_t)s];
        token[s].id = 0, token[s].position = last, token[s].seq = s;
        prepare(q + s * 2 * wide, &query[(size_t)(s * wide)], wide, GK_PLAIN);
        keys[(size_t)s].resize((size_t)(last + 1) * (size_t)(p.kv_heads * hd));
        values[(size_t)s].resize(keys[(size_t)s].size());
        for (int at = 0; at <= last; at++)
            for (int h = 0; h < p.kv_heads; h++)
                for (int i = 0; i < hd; i++) {
                    const size_t page = (size_t)pages[s * ring + at / GK_PAGE % ring], block = (page * (size_t)p.kv_heads + (size_t)h) * GK_PAGE * (size_t)hd;
                    const uint16_t kb = to_bf16(uniform()), vb = to_bf16(uniform());
                    k[block + (size_t)(at % GK_PAGE * hd + i)] = kb, v[block + (size_t)(i * GK_PAGE + at % GK_PAGE)] = vb;
                    keys[(size_t)s][(size_t)((at * p.kv_heads + h) * hd + i)] = from_bf16(kb);
                    values[(size_t)s][(size_t)((at * p.kv_heads + h) * hd + i)] = from_bf16(vb);
                }
    }
    struct gk_launch l;
    memset(&l, 0, sizeof l);
    l.kernel = GK_ATTEND;
    struct gk_attend &a = l.a.attend;
    a.tokens = tokens, a.heads = p.heads, a.kv_heads = p.kv_heads, a.head_dim = hd, a.window = p.window, a.scale = 0.0625f, a.q = q, a.ldq = 2 * wide;
    a.cache = {k, v, pages, ring, ring}, a.token = token, a.splits = p.splits;
    a.partial = device<float>(gk_attend_partial(tokens, p.heads, p.kv_heads, hd, p.splits), "partial");
    a.count = device<unsigned>((size_t)gk_attend_groups(tokens, p.heads, p.kv_heads), "counts");
    a.out.x = out, a.out.ld = 2 * gk_padded(wide), a.out.order = (enum gk_order)order;
    const char *fault = run(l, 4);
    CHECK(!fault, "attention: %s", fault);
    double worst = 0;
    for (int s = 0; s < tokens; s++)
        for (int h = 0; h < p.heads; h++) {
            const int last = p.positions[(size_t)s], first = p.window && last >= p.window ? last - p.window + 1 : 0, from = h / (p.heads / p.kv_heads);
            std::vector<double> w((size_t)(last + 1));
            double most = -INFINITY, sum = 0, size = 0;
            for (int at = first; at <= last; at++) {
                double dot = 0, abs = 0;
                for (int i = 0; i < hd; i++) {
                    const double x = (double)query[(size_t)(s * wide + h * hd + i)] * keys[(size_t)s][(size_t)((at * p.kv_heads + from) * hd + i)];
                    dot += x, abs += fabs(x);
                }
                w[(size_t)at] = dot * a.scale;
                most = fmax(most, w[(size_t)at]), size = fmax(size, abs * a.scale);
            }
            for (int at = first; at <= last; at++)
                sum += w[(size_t)at] = exp(w[(size_t)at] - most);
            for (int i = 0; i < hd; i++) {
                double want = 0;
                for (int at = first; at <= last; at++)
                    want += w[(size_t)at] / sum * values[(size_t)s][(size_t)((at * p.kv_heads + from) * hd + i)];
                /* scores are off by a linear's bound, and probabilities by twice as much relatively; values are below 1 */
                const double got = prepared(out + s * a.out.ld, h * hd + i, order), bound = 2 * linear_bound(hd, size) + linear_bound(last - first + 1 + 128, 1);
                worst = fmax(worst, fabs(got - want) / bound);
            }
        }
    CHECK(worst <= 1, "%d heads of %d on %d KV heads, window %d, %d splits: error %g times the bound", p.heads, hd, p.kv_heads, p.window, p.splits, worst);
    for (int i = 0; i < gk_attend_groups(tokens, p.heads, p.kv_heads); i++)
        CHECK(a.count[i] == 0, "count %d is %u afterwards", i, a.count[i]);
    free_all();
}

static void all(void)
{
    test_attend({1, 1, 32, 0, 1, {0}}, GK_PLAIN);
    test_attend({4, 1, 32, 16, 2, {0, 15, 16, 31, 33, 100, 257}}, GK_NIBBLES);
    test_attend({4, 2, 64, 0, 3, {300}}, GK_BYTES);
    test_attend({8, 1, 256, 0, 4, {294, 0}}, GK_NIBBLES);
    test_attend({8, 1, 512, 0, 8, {700}}, GK_NIBBLES);
    test_attend({16, 1, 512, 0, 2, {130}}, GK_NIBBLES);
    test_attend({4, 2, 256, 512, 4, {511, 512, 513, 900}}, GK_NIBBLES);
    test_attend({10, 1, 96, 0, 1, {127, 128}}, GK_PLAIN);
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
