/* What a linear's epilogue and its last block make of the sums, for few tokens in the launch itself and for many in one of their own; and rows gathered and prepared.
 * Sums are judged in linear.cpp: here the judge starts from the y that the launch left.
 */
#include "tests/cuda/judge.h"
#include <algorithm>

static const float EPS = 1e-6f;

/* A launch of linears over random activations, with room for its y. */
struct problem {
    std::vector<weights> w;
    std::vector<float> x;
    struct gk_launch l;
    float *y; int rows;
};

static problem make(enum gk_kind kind, int tokens, int cols, std::vector<int> rows)
{
    problem p;
    memset(&p.l, 0, sizeof p.l);
    p.l.kernel = GK_LINEAR;
    struct gk_linear &a = p.l.a.linear;
    const int ldx = 2 * gk_padded(cols);
    uint16_t *x = device<uint16_t>((size_t)(tokens * ldx), "x");
    p.x.resize((size_t)(tokens * cols));
    for (float &v : p.x)
        v = activation();
    for (int t = 0; t < tokens; t++)
        prepare(x + t * ldx, &p.x[(size_t)(t * cols)], cols, gk_order_of(kind));
    a.kind = kind, a.tokens = tokens, a.cols = cols, a.x = x, a.ldx = ldx, a.eps = EPS;
    p.rows = 0;
    for (int r : rows) {
        p.w.push_back(make_weights(kind, r, cols));
        a.m[a.segments++] = p.w.back().m;
        p.rows += r;
    }
    p.y = device<float>((size_t)(tokens * p.rows), "y");
    a.y = p.y, a.ldy = p.rows;
    a.count = device<unsigned>(1024, "counts");
    struct gk_token *token = device<struct gk_token>((size_t)tokens, "tokens");
    for (int t = 0; t < tokens; t++)
        token[t] = {(t * 5 + 3) % 7, t == 0 ? 0 : 37 * t, t, 0};
    a.token = token;
    return p;
}

/* Row 2 i + 1 becomes row 2 i, for ties. */
static void pair_rows(weights &w, enum gk_kind kind)
{
    const size_t cols = (size_t)w.cols, row = row_bytes(kind, cols), scale = scale_row_bytes(kind, cols);
    for (size_t r = 0; r + 1 < (size_t)w.m.rows; r += 2) {
        memcpy((uint8_t *)(uintptr_t)w.m.data + (r + 1) * row, (const uint8_t *)w.m.data + r * row, row);
        if (scale)
            memcpy((uint8_t *)(uintptr_t)w.m.scale + (r + 1) * scale, (const uint8_t *)w.m.scale + r * scale, scale);
        for (size_t k = 0; k < cols; k++)
            w.value[(r + 1) * cols + k] = w.value[r * cols + k];
    }
}

static void go(problem &p, const char *what)
{
    const char *fault;
    if (p.l.a.linear.tokens > 8 && p.l.a.linear.finish != GK_NOTHING) {
        struct gk_launch first = p.l;
        first.a.linear.finish = GK_NOTHING;
        fault = run(first, 2);
        CHECK(!fault, "%s: %s", what, fault);
        p.l.kernel = GK_FINISH;
    }
    fault = run(p.l, 2);
    CHECK(!fault, "%s, %d tokens: %s", what, p.l.a.linear.tokens, fault);
    unsigned left = 0;
    for (int i = 0; i < 1024; i++)
        left |= p.l.a.linear.count[i];
    CHECK(left == 0, "%s: counts are not zero afterwards", what);
}

/* |got - want| in units of the bound. */
static double off(double got, double want, double relative, double absolute) { return fabs(got - want) / (relative * fabs(want) + absolute); }

static std::vector<float> random_vector(const float **p, int n, const char *name)
{
    float *d = device<float>((size_t)n, name);
    for (int i = 0; i < n; i++)
        d[i] = 1 + 0.5f * uniform();
    *p = d;
    return std::vector<float>(d, d + n);
}
static double inverse_rms(const double *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += x[i] * x[i];
    return 1 / sqrt(s / n + EPS);
}
static uint16_t *room_for(int tokens, int n) { return device<uint16_t>((size_t)(tokens * 2 * gk_padded(n)), "prepared"); }

static void test_gated(enum gk_kind kind, int tokens, int rows, int cols, enum gk_order order)
{
    problem p = make(kind, tokens, cols, {rows, rows});
    struct gk_linear &a = p.l.a.linear;
    a.epilogue = GK_GATED;
    a.act = {room_for(tokens, rows), 2 * gk_padded(rows), order, 1, NULL};
    go(p, "gated");
    double worst = 0;
    for (int t = 0; t < tokens; t++)
        for (int r = 0; r < rows; r++) {
            const product g = multiply(p.w[0], r, &p.x[(size_t)(t * cols)]), u = multiply(p.w[1], r, &p.x[(size_t)(t * cols)]);
            const double eg = linear_bound(cols, g.size), eu = linear_bound(cols, u.size), want = gelu_of(g.value) * u.value;
            worst = fmax(worst, off(prepared(a.act.x + t * a.act.ld, r, order), want, ldexp(1, -16), 1.2 * eg * fabs(u.value) + (fabs(gelu_of(g.value)) + 1.2 * eg) * eu + 1e-6));
        }
    CHECK(worst <= 1, "gated %d rows, %d tokens, order %d: %g times the bound", rows, tokens, order, worst);
    free_all();
}

static void test_gate_by(int tokens)
{
    problem p = make(GK_INT4_BF16, tokens, 128, {64});
    struct gk_linear &a = p.l.a.linear;
    float *by = device<float>((size_t)(tokens * 200), "by");
    for (int i = 0; i < tokens * 200; i++)
        by[i] = uniform();
    a.epilogue = GK_GATE_BY, a.by = by, a.ldby = 200;
    a.act = {room_for(tokens, 64), 2 * gk_padded(64), GK_NIBBLES, 1, NULL};
    go(p, "gate by");
    double worst = 0;
    for (int t = 0; t < tokens; t++)
        for (int r = 0; r < 64; r++) {
            const product g = multiply(p.w[0], r, &p.x[(size_t)(t * 128)]);
            worst = fmax(worst, off(prepared(a.act.x + t * a.act.ld, r, GK_NIBBLES), gelu_of(g.value) * by[t * 200 + r], ldexp(1, -16), 1.2 * linear_bound(128, g.size) + 1e-6));
        }
    CHECK(worst <= 1, "gate by, %d tokens: %g times the bound", tokens, worst);
    free_all();
}

/* With experts: y = rms(y) dense_w + rms(weighted sum) experts_w first. */
static void test_residual(int tokens, int n, bool experts)
{
    problem p = make(GK_INT8, tokens, 64, {n});
    struct gk_linear &a = p.l.a.linear;
    struct gk_residual &f = a.f.residual;
    const int top_k = 3;
    std::vector<float> w = random_vector(&f.w, n, "w"), w0 = random_vector(&f.out[0].w, n, "w0"), dense, sparse, ey, weight;
    a.finish = experts ? GK_EXPERTS : GK_RESIDUAL;
    f.h = device<float>((size_t)(tokens * n), "h");
    for (int i = 0; i < tokens * n; i++)
        f.h[i] = activation();
    const std::vector<float> h(f.h, f.h + tokens * n);
    f.n = n, f.scalar = 0.375f, f.outs = 3;
    f.out[0].x = room_for(tokens, n), f.out[0].order = GK_NIBBLES;
    f.out[1].x = room_for(tokens, n), f.out[1].order = GK_PLAIN, f.out[1].raw = 1;
    f.out[2].x = room_for(tokens, n), f.out[2].order = GK_BYTES;
    for (struct gk_out &o : f.out)
        o.ld = 2 * gk_padded(n);
    if (experts) {
        dense = random_vector(&f.dense_w, n, "dense"), sparse = random_vector(&f.experts_w, n, "sparse");
        weight = random_vector(&f.weight, tokens * top_k, "weight");
        f.ey = device<float>((size_t)(tokens * top_k * n), "ey");
        for (int i = 0; i < tokens * top_k * n; i++)
            f.ey[i] = uniform();
        ey.assign(f.ey, f.ey + tokens * top_k * n);
        f.top_k = top_k;
    }
    problem plain = p;                  /* y before the finisher, which may change it */
    plain.l.a.linear.finish = GK_NOTHING;
    go(plain, "sums");
    const std::vector<float> y(p.y, p.y + tokens * n);
    go(p, experts ? "experts" : "residual");
    double worst = 0;
    for (int t = 0; t < tokens; t++) {
        std::vector<double> v((size_t)n), e((size_t)n), s((size_t)n);
        for (int i = 0; i < n; i++) {
            v[(size_t)i] = y[(size_t)(t * n + i)];
            for (int k = 0; experts && k < top_k; k++)
                e[(size_t)i] += (double)weight[(size_t)(t * top_k + k)] * ey[(size_t)((t * top_k + k) * n + i)];
        }
        if (experts) {
            const double rv = inverse_rms(v.data(), n), re = inverse_rms(e.data(), n);
            for (size_t i = 0; i < (size_t)n; i++)
                v[i] = v[i] * rv * dense[i] + e[i] * re * sparse[i];
        }
        const double r = inverse_rms(v.data(), n);
        for (size_t i = 0; i < (size_t)n; i++)
            s[i] = (h[(size_t)t * (size_t)n + i] + v[i] * r * w[i]) * 0.375;
        const double r2 = inverse_rms(s.data(), n);
        for (int i = 0; i < n; i++) {
            const double x = s[(size_t)i];
            worst = fmax(worst, off(f.h[t * n + i], x, 4e-6, 4e-6));
            worst = fmax(worst, off(prepared(f.out[0].x + t * f.out[0].ld, i, GK_NIBBLES), x * r2 * w0[(size_t)i], 2e-5, 1e-5));
            worst = fmax(worst, off(prepared(f.out[1].x + t * f.out[1].ld, i, GK_PLAIN), x, 2e-5, 1e-5));
            worst = fmax(worst, off(prepared(f.out[2].x + t * f.out[2].ld, i, GK_BYTES), x * r2, 2e-5, 1e-5));
        }
    }
    CHECK(worst <= 1, "%s, %d tokens of %d: %g times the bound", experts ? "experts" : "residual", tokens, n, worst);
    free_all();
}

static void test_heads(int tokens, int hd, int heads, int kv_heads, bool v_is_k, bool v_norm, int pairs)
{
    const int kv = kv_heads * hd;
    problem p = kv_heads == 0 ? make(GK_INT4_F16, tokens, 96, {heads * hd}) : v_is_k ? make(GK_INT4_F16, tokens, 96, {heads * hd, kv}) : make(GK_INT4_F16, tokens, 96, {heads * hd, kv, kv});
    struct gk_linear &a = p.l.a.linear;
    struct gk_heads &f = a.f.heads;
    const int ring = 3, wide = heads * hd, pages = tokens * ring;
    std::vector<float> qw = random_vector(&f.q_norm, hd, "q norm"), kw = random_vector(&f.k_norm, hd, "k norm");
    float *angles = device<float>((size_t)(tokens * 2 * pairs), "angles");
    for (int t = 0; t < tokens; t++)
        for (int i = 0; i < pairs; i++)
            angles[t * 2 * pairs + i] = cosf((float)(t + i)), angles[t * 2 * pairs + pairs + i] = sinf((float)(t + i));
    int *table = device<int>((size_t)(tokens * ring), "pages");
    for (int i = 0; i < tokens * ring; i++)
        table[i] = pages - 1 - i;
    const size_t values = (size_t)(kv_heads * GK_PAGE * hd * pages + 1);
    a.finish = GK_HEADS, a.group_rows = hd;
    f.head_dim = hd, f.heads = heads, f.kv_heads = kv_heads, f.v_is_k = v_is_k, f.v_norm = v_norm, f.angles = angles, f.pairs = pairs;
    f.q = device<uint16_t>((size_t)(tokens * 2 * wide), "q"), f.ldq = 2 * wide;
    f.cache = {device<uint16_t>(values, "K"), device<uint16_t>(values, "V"), table, ring, ring};
    go(p, "heads");
    double worst = 0;
    for (int t = 0; t < tokens; t++) {
        const int at = a.token[t].position, page = table[t * ring + at / GK_PAGE % ring], slot = at % GK_PAGE;
        for (int i = 0; i < heads + 2 * kv_heads; i++) {
            const int from = i < heads + kv_heads ? i : v_is_k ? i - kv_heads : i;
            std::vector<double> y((size_t)hd), x((size_t)hd);
            for (int k = 0; k < hd; k++)
                y[(size_t)k] = p.y[t * p.rows + from * hd + k];
            const double r = inverse_rms(y.data(), hd);
            const bool is_v = i >= heads + kv_heads;
            for (int k = 0; k < hd; k++)
                x[(size_t)k] = is_v ? (v_norm ? y[(size_t)k] * r : y[(size_t)k]) : y[(size_t)k] * r * (i < heads ? qw : kw)[(size_t)k];
            for (int k = 0; k < pairs && !is_v; k++) {
                const double c = angles[t * 2 * pairs + k], s = angles[t * 2 * pairs + pairs + k], u = x[(size_t)k], v = x[(size_t)(k + hd / 2)];
                x[(size_t)k] = u * c - v * s, x[(size_t)(k + hd / 2)] = v * c + u * s;
            }
            for (int k = 0; k < hd; k++) {
                const size_t block = ((size_t)page * (size_t)kv_heads + (size_t)((i - heads + kv_heads) % (kv_heads ? kv_heads : 1))) * (size_t)(GK_PAGE * hd);
                const double got = i < heads ? prepared(f.q + t * f.ldq + i * 2 * hd, k, GK_PLAIN) :
                    from_bf16(is_v ? f.cache.v[block + (size_t)(k * GK_PAGE + slot)] : f.cache.k[block + (size_t)(slot * hd + k)]);
                worst = fmax(worst, off(got, x[(size_t)k], i < heads ? 2e-5 : ldexp(1, -8), 1e-5));
            }
        }
    }
    CHECK(worst <= 1, "heads of %d: %g times the bound", hd, worst);
    free_all();
}

static void test_ple(enum gk_kind kind, int tokens, int n, int groups)
{
    problem p = make(GK_INT4_BF16, tokens, 64, {n * groups});
    struct gk_linear &a = p.l.a.linear;
    struct gk_ple &f = a.f.ple;
    weights table = make_weights(kind, 7, n * groups);
    std::vector<float> w = random_vector(&f.w, n, "w");
    a.finish = GK_PLE, a.group_rows = n;
    f.n = n, f.groups = groups, f.scale = 0.0255f, f.table = {kind, table.m.data, table.m.scale, n * groups, 0};
    f.ple = device<float>((size_t)(tokens * n * groups), "ple");
    go(p, "ple");
    double worst = 0;
    for (int t = 0; t < tokens; t++)
        for (int g = 0; g < groups; g++) {
            std::vector<double> y((size_t)n);
            for (int i = 0; i < n; i++)
                y[(size_t)i] = (double)p.y[t * p.rows + g * n + i] * 0.0255f;
            const double r = inverse_rms(y.data(), n);
            for (int i = 0; i < n; i++) {
                double row = table.value[(size_t)(a.token[t].id * n * groups + g * n + i)];
                if (is_int4(kind))
                    row = from_bf16(to_bf16((float)row));
                const double want = (y[(size_t)i] * r * w[(size_t)i] + row * sqrt((double)n)) * sqrt(0.5);
                worst = fmax(worst, off(f.ple[(t * groups + g) * n + i], want, 4e-6, 4e-6));
            }
        }
    CHECK(worst <= 1, "per-layer embeddings, %d tokens: %g times the bound", tokens, worst);
    free_all();
}

/* Scores that are all NaN: the lists stay within their room, and every token has its choices. */
static void test_route_of_nan(int tokens, int experts, int top_k)
{
    problem p = make(GK_BF16, tokens, 64, {experts});
    struct gk_linear &a = p.l.a.linear;
    struct gk_route &f = a.f.route;
    const int most = gk_jobs(tokens, experts, top_k);
    random_vector(&f.expert_scale, experts, "expert scale");
    memset((void *)(uintptr_t)a.x, 0xff, (size_t)(tokens * a.ldx) * sizeof *a.x);
    a.finish = GK_ROUTE;
    f.experts = experts, f.top_k = top_k, f.weight = device<float>((size_t)(tokens * top_k), "weight");
    f.job = device<struct gk_job>((size_t)most, "jobs"), f.jobs = device<int>(1, "number of jobs");
    go(p, "route of NaN");
    int choices = 0;
    for (int j = 0; j < *f.jobs && j < most; j++)
        choices += f.job[j].n;
    CHECK(choices == tokens * top_k, "%d choices of %d tokens, %d each", choices, tokens, top_k);
    free_all();
}

/* The experts of each token, then gate and up, then down, beside a dense MLP where there are few tokens. */
static void test_experts(enum gk_kind kind, int tokens, int experts, int top_k)
{
    const int hidden = 96, wide = 64, dense = 48;
    problem p = make(GK_BF16, tokens, hidden, {experts});
    pair_rows(p.w[0], GK_BF16);
    struct gk_linear &a = p.l.a.linear;
    struct gk_route &f = a.f.route;
    std::vector<float> scale = random_vector(&f.expert_scale, experts, "expert scale");
    const int most = gk_jobs(tokens, experts, top_k);
    a.finish = GK_ROUTE;
    f.experts = experts, f.top_k = top_k, f.weight = device<float>((size_t)(tokens * top_k), "weight");
    f.job = device<struct gk_job>((size_t)most, "jobs"), f.jobs = device<int>(1, "number of jobs");
    go(p, "route");
    CHECK(*f.jobs >= 1 && *f.jobs <= most, "%d jobs, room for %d", *f.jobs, most);
    std::vector<int> choice((size_t)(tokens * top_k), -1);
    double worst = 0;
    for (int j = 0; j < *f.jobs; j++)
        for (int i = 0; i < f.job[j].n; i++)
            choice[(size_t)(f.job[j].at[i].token * top_k + f.job[j].at[i].choice)] = f.job[j].expert;
    for (int t = 0; t < tokens; t++) {
        std::vector<int> want;
        double sum = 0;
        for (int i = 0; i < experts; i++) {
            int better = 0;
            for (int k = 0; k < experts; k++)
                better += p.y[t * experts + k] > p.y[t * experts + i] || (p.y[t * experts + k] == p.y[t * experts + i] && k < i);
            if (better < top_k)
                want.push_back(i), sum += exp((double)p.y[t * experts + i]);
        }
        for (int k = 0; k < top_k; k++) {
            CHECK(choice[(size_t)(t * top_k + k)] == want[(size_t)k], "token %d: choice %d is expert %d, not %d", t, k, choice[(size_t)(t * top_k + k)], want[(size_t)k]);
            worst = fmax(worst, off(f.weight[t * top_k + k], exp((double)p.y[t * experts + want[(size_t)k]]) / sum * scale[(size_t)want[(size_t)k]], 4e-6, 1e-30));
        }
    }
    CHECK(worst <= 1, "weights of experts: %g times the bound", worst);

    /* gate and up */
    const bool apart = tokens > 8;
    problem up = make(kind, tokens, hidden, {dense, dense});
    struct gk_linear &u = up.l.a.linear;
    std::vector<weights> gate, rise, fall;
    struct gk_expert *table = device<struct gk_expert>((size_t)experts, "experts"), *table2 = device<struct gk_expert>((size_t)experts, "experts");
    for (int i = 0; i < experts; i++) {
        gate.push_back(make_weights(kind, wide, hidden)), rise.push_back(make_weights(kind, wide, hidden)), fall.push_back(make_weights(kind, hidden, wide));
        table[i].m[0] = gate[(size_t)i].m, table[i].m[1] = rise[(size_t)i].m, table2[i].m[0] = fall[(size_t)i].m;
    }
    u.epilogue = GK_GATED, u.act = {room_for(tokens, dense), 2 * gk_padded(dense), gk_order_of(kind), 1, NULL};
    u.expert = table, u.expert_rows = wide, u.expert_cols = hidden, u.top_k = top_k, u.max_jobs = most, u.job = f.job, u.jobs = f.jobs;
    u.expert_x = u.x, u.expert_ldx = u.ldx;
    u.expert_act = {room_for(tokens * top_k, wide), 2 * gk_padded(wide), gk_order_of(kind), 1, NULL};
    if (apart)
        u.segments = 0;
    go(up, "experts' gate and up");
    worst = 0;
    for (int t = 0; t < tokens; t++)
        for (int k = 0; k < top_k; k++)
            for (int r = 0; r < wide; r++) {
                const size_t e = (size_t)choice[(size_t)(t * top_k + k)];
                const product g = multiply(gate[e], r, &up.x[(size_t)(t * hidden)]), v = multiply(rise[e], r, &up.x[(size_t)(t * hidden)]);
                const double eg = linear_bound(hidden, g.size), eu = linear_bound(hidden, v.size);
                worst = fmax(worst, off(prepared(u.expert_act.x + (t * top_k + k) * u.expert_act.ld, r, u.expert_act.order), gelu_of(g.value) * v.value, ldexp(1, -16),
                    1.2 * eg * fabs(v.value) + (fabs(gelu_of(g.value)) + 1.2 * eg) * eu + 1e-6));
            }
    CHECK(worst <= 1, "experts' gate and up, %d tokens: %g times the bound", tokens, worst);

    /* down, each expert's into its place */
    problem down = make(kind, tokens, 32, {hidden});
    struct gk_linear &d = down.l.a.linear;
    d.expert = table2, d.expert_rows = hidden, d.expert_cols = wide, d.top_k = top_k, d.max_jobs = most, d.job = f.job, d.jobs = f.jobs;
    d.expert_x = u.expert_act.x, d.expert_ldx = u.expert_act.ld;
    d.expert_y = device<float>((size_t)(tokens * top_k * hidden), "ey"), d.expert_ldy = hidden;
    if (apart)
        d.segments = 0;
    go(down, "experts' down");
    worst = 0;
    for (int i = 0; i < tokens * top_k; i++) {
        std::vector<float> x((size_t)wide);
        for (int r = 0; r < wide; r++)
            x[(size_t)r] = (float)prepared(d.expert_x + i * d.expert_ldx, r, gk_order_of(kind));
        for (int r = 0; r < hidden; r++) {
            const product want = multiply(fall[(size_t)choice[(size_t)i]], r, x.data());
            worst = fmax(worst, off(d.expert_y[i * hidden + r], want.value, 0, linear_bound(wide, want.size)));
        }
    }
    CHECK(worst <= 1, "experts' down, %d tokens: %g times the bound", tokens, worst);
    free_all();
}

static void test_head(enum gk_kind kind, int tokens, int vocab, bool logits)
{
    problem p = make(kind, tokens, 64, {vocab});
    pair_rows(p.w[0], kind);
    struct gk_linear &a = p.l.a.linear;
    int *banned = device<int>(2, "banned");
    a.epilogue = GK_HEAD, a.softcap = 30, a.finish = GK_BEST;
    banned[0] = banned[1] = -1;
    a.f.choice = {device<struct gk_best>((size_t)tokens, "best"), device<struct gk_best>((size_t)tokens * 64, "partial"), banned, 2, NULL, NULL};
    go(p, "head");
    double worst = 0;
    int favourite = -1;
    for (int pass = 0; pass < 2; pass++) {
        for (int t = 0; t < tokens; t++) {
            float most = -INFINITY;
            int id = -1;
            for (int r = 0; r < vocab; r++) {
                const product want = multiply(p.w[0], r, &p.x[(size_t)(t * 64)]);
                worst = fmax(worst, off(p.y[t * vocab + r], 30 * tanh(want.value / 30), 1e-6, linear_bound(64, want.size) + 1e-6));
                if (p.y[t * vocab + r] > most && r != banned[0])
                    most = p.y[t * vocab + r], id = r;
            }
            CHECK(a.f.choice.best[t].id == id && a.f.choice.best[t].value == most, "token %d: chose %d (%g), not %d (%g)", t, a.f.choice.best[t].id,
                (double)a.f.choice.best[t].value, id, (double)most);
            favourite = id;
        }
        banned[0] = favourite;          /* the second time the last token's choice may not be made, and logits are not wanted */
        p.l.a.linear.y = pass == 0 && logits ? p.y : NULL;
        go(p, "head with a banned id");
    }
    CHECK(worst <= 1, "head: %g times the bound", worst);
    free_all();
}

/* The largest of every token and the sum over all, beside the choice: against a sort of the logits that the launch left. */
static void test_top(int tokens, int vocab, int sms)
{
    problem p = make(GK_INT4_BF16, tokens, 64, {vocab});
    pair_rows(p.w[0], GK_INT4_BF16);
    struct gk_linear &a = p.l.a.linear;
    const struct gk_device d = {sms};
    a.epilogue = GK_HEAD, a.softcap = vocab % 2 ? 0 : 30, a.finish = GK_BEST;
    a.f.choice.best = device<struct gk_best>((size_t)tokens, "best"), a.f.choice.partial = device<struct gk_best>((size_t)tokens * 2 * (size_t)sms, "partial");
    a.f.choice.top = device<struct gk_top>((size_t)tokens, "top"), a.f.choice.top_partial = device<struct gk_top>((size_t)tokens * 2 * (size_t)sms, "lists of blocks");
    const char *fault = gk_shape(&p.l, &d);
    fault = fault ? fault : gk_host_launch(&p.l);
    CHECK(!fault, "top of %d: %s", vocab, fault);
    for (int t = 0; t < tokens; t++) {
        const float *y = p.y + t * vocab;
        const struct gk_top &top = a.f.choice.top[t];
        std::vector<int> order((size_t)vocab);
        double sum = 0;
        for (int i = 0; i < vocab; i++)
            order[(size_t)i] = i, sum += exp((double)y[i] - (double)a.f.choice.best[t].value);
        std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return y[i] > y[j]; });
        int wrong = 0;
        for (int i = 0; i < GK_TOP; i++)
            wrong += i < vocab ? top.best[i].id != order[(size_t)i] || top.best[i].value != y[order[(size_t)i]] : top.best[i].id != -1 || top.best[i].value != -INFINITY;
        CHECK(!wrong, "top of %d rows, token %d of %d, %d SMs: %d places are wrong", vocab, t, tokens, sms, wrong);
        CHECK(top.most == a.f.choice.best[t].value && top.best[0].id == a.f.choice.best[t].id, "top of %d rows: the first is not the choice", vocab);
        CHECK(fabs(top.sum / sum - 1) < 1e-5, "top of %d rows: the sum is %g, not %g", vocab, (double)top.sum, sum);
    }
    for (int i = 0; i < 1024; i++)
        CHECK(a.count[i] == 0, "count %d is left", i);
    a.y = NULL;
    CHECK(gk_shape(&p.l, &d), "the largest of logits that are not kept are accepted");
    free_all();
}

static void test_embed(enum gk_kind kind)
{
    const int n = 160, tokens = 3;
    weights table = make_weights(kind, 11, n);
    struct gk_launch l;
    memset(&l, 0, sizeof l);
    l.kernel = GK_EMBED;
    struct gk_embed &a = l.a.embed;
    struct gk_token *token = device<struct gk_token>((size_t)tokens, "tokens");
    for (int t = 0; t < tokens; t++)
        token[t].id = 10 - 4 * t;
    a.tokens = tokens, a.table = {kind, table.m.data, table.m.scale, n, 0}, a.token = token, a.scale = 12.65f, a.eps = EPS;
    a.h = device<float>((size_t)(tokens * n), "h"), a.outs = 1;
    std::vector<float> w = random_vector(&a.out[0].w, n, "w");
    a.out[0].x = room_for(tokens, n), a.out[0].ld = 2 * gk_padded(n), a.out[0].order = GK_BYTES;
    const char *fault = run(l, 2);
    CHECK(!fault, "embedding: %s", fault);
    double worst = 0;
    auto judge = [&](const struct gk_out &o, int out, const float *h) {
        std::vector<double> x(h, h + n);
        const double r = inverse_rms(x.data(), n);
        for (int i = 0; i < n; i++)
            worst = fmax(worst, off(prepared(o.x + out * o.ld, i, o.order), x[(size_t)i] * r * w[(size_t)i], 2e-5, 1e-5));
    };
    for (int t = 0; t < tokens; t++) {
        for (int i = 0; i < n; i++) {
            double v = table.value[(size_t)(token[t].id * n + i)];
            if (is_int4(kind))
                v = from_bf16(to_bf16((float)v));
            worst = fmax(worst, off(a.h[t * n + i], v * 12.65f, 2e-7, 1e-12));
        }
        judge(a.out[0], t, a.h + t * n);
    }
    struct gk_launch l2;
    memset(&l2, 0, sizeof l2);
    l2.kernel = GK_PREPARE;
    int *from = device<int>(2, "from");
    from[0] = 2, from[1] = 0;
    l2.a.prepare = {2, n, EPS, a.h, from, {{room_for(2, n), 2 * gk_padded(n), GK_NIBBLES, 0, a.out[0].w}}, 1};
    fault = run(l2, 2);
    CHECK(!fault, "prepare: %s", fault);
    judge(l2.a.prepare.out[0], 0, a.h + 2 * n);
    judge(l2.a.prepare.out[0], 1, a.h);
    CHECK(worst <= 1, "embedding: %g times the bound", worst);
    free_all();
}

static void test_read(size_t words)
{
    uint32_t *p = device<uint32_t>(words, "words"), want = 0;
    for (size_t i = 0; i < words; i++)
        want ^= p[i] = draw();
    struct gk_launch l;
    memset(&l, 0, sizeof l);
    l.kernel = GK_READ;
    l.a.read = {p, 4 * words, device<unsigned>(1, "sink")};
    const char *fault = run(l, 1);
    CHECK(!fault && *l.a.read.sink == want, "plain read of %zu words: %s", words, fault ? fault : "not all were read");
    free_all();
}

/* No launch asks for more shared memory than the sources' gates say (tests/cuda-gates.bats), and what no kernel can do is refused. */
static void test_shapes(void)
{
    struct gk_launch l;
    const struct gk_device d = {58};
    for (int tokens : {1, 2, 5, 64, 128})
        for (int ends = GK_NOTHING; ends <= (tokens > 8 ? GK_NOTHING : GK_BEST); ends++) {
            memset(&l, 0, sizeof l);
            l.kernel = GK_LINEAR;
            struct gk_linear &a = l.a.linear;
            a.tokens = tokens, a.cols = 5376, a.segments = 1, a.m[0].rows = 21504, a.finish = (enum gk_finish)ends, a.group_rows = 256;
            if (ends == GK_HEADS)
                a.f.heads.head_dim = 256;
            if (ends == GK_RESIDUAL || ends == GK_EXPERTS)
                a.f.residual.n = 5376;
            if (ends == GK_ROUTE)
                a.f.route.experts = 128, a.f.route.top_k = 8;
            const char *wrong = gk_shape(&l, &d);
            if (ends == GK_BEST) {
                static struct gk_top list;
                static float y;
                a.f.choice.top = a.f.choice.top_partial = &list, a.y = &y;
                wrong = gk_shape(&l, &d);
            }
            CHECK(!wrong && l.shared <= 32832 && l.grid[0] <= 116 && l.grid[1] == (unsigned)(tokens + 63) / 64, "shape for %d tokens: %s", tokens, wrong ? wrong : "too large");
        }
    memset(&l, 0, sizeof l);
    l.kernel = GK_ATTEND;
    l.a.attend.tokens = 1, l.a.attend.heads = 32, l.a.attend.kv_heads = 4, l.a.attend.head_dim = 512, l.a.attend.splits = 4;
    CHECK(!gk_shape(&l, &d) && l.shared == 24992 && l.grid[0] == 4 && l.grid[1] == 4, "shape of attention: %u bytes", l.shared);
    l.a.attend.head_dim = 544;
    CHECK(gk_shape(&l, &d), "a head of 544 columns is accepted");
    memset(&l, 0, sizeof l);
    l.kernel = GK_LINEAR;
    l.a.linear.tokens = 1, l.a.linear.cols = 48, l.a.linear.segments = 1, l.a.linear.m[0].rows = 5;
    CHECK(gk_shape(&l, &d), "48 columns are accepted");
    l.a.linear.cols = 64, l.a.linear.tokens = 9, l.a.linear.finish = GK_RESIDUAL;
    CHECK(gk_shape(&l, &d), "a finisher for 9 tokens is accepted");
}

static void all(void)
{
    test_shapes();
    for (int tokens : {1, 3, 8, 11}) {
        test_gated(GK_INT4_BF16, tokens, 33, 160, GK_NIBBLES);
        test_gate_by(tokens);
        test_residual(tokens, 96, false);
        test_residual(tokens, 640, true);
        test_heads(tokens, 32, 4, 1, false, true, 16);
        test_ple(GK_INT4_BF16, tokens, 64, 9);
        test_experts(GK_INT4_BF16, tokens, 16, 8);
    }
    test_gated(GK_FP8, 2, 31, 64, GK_BYTES);
    test_gated(GK_BF16, 70, 16, 64, GK_PLAIN);
    test_residual(1, 5376, false);
    test_heads(2, 256, 2, 1, false, false, 128);
    test_heads(3, 512, 2, 1, true, true, 64);
    test_heads(2, 64, 4, 0, false, true, 8);
    for (enum gk_kind kind : {GK_INT4_F16, GK_INT4_F32, GK_INT8, GK_FP8, GK_BF16, GK_F16, GK_F32}) {
        test_ple(kind, 2, 64, 2);
        test_embed(kind);
    }
    test_experts(GK_INT8, 2, 8, 3);
    test_route_of_nan(2, 64, 3);
    test_route_of_nan(20, 40, 8);
    test_experts(GK_INT4_F16, 100, 8, 4);
    test_head(GK_INT4_BF16, 1, 1000, true);
    test_head(GK_BF16, 3, 333, true);
    test_head(GK_INT8, 8, 1000, true);
    test_top(1, 4099, 2);
    test_top(1, 50, 1);
    test_top(3, 1000, 1);
    test_top(8, 2050, 3);
    test_top(5, 97, 2);
    test_read(64);
    test_read(100004);
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
