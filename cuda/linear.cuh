/* Linears: rows of weights in the file's layout against 1 to 8 tokens, or 64 at a time.
 *
 * A tile is 16 rows; wpt warps share its columns (a chunk, 64 bytes of each row, at a time, in turn), and a block walks over tiles.  A lane loads 16 bytes of two rows, some chunks
 * ahead of use, across tiles; so the memory is asked for the next tile while this one is summed up.  In lane 4 g + t: rows g and g + 8, bytes 16 t .. of the chunk.
 *   int4   16 bytes are one group of 32 columns; the four lanes of a row exchange words, so that each multiplication stays within one group and the group's sum meets its scale
 *   int8, e4m3, bf16   sums run on; a row's scale comes last
 *   f16, f32   the same, once for each of the two or three bf16 terms that make the weight
 * The columns of the tensor core are tokens.  COLUMNS 4: hi terms in columns 0..3, lo terms in 4..7, one multiplication for both; 8: one each; 64: eight times that.
 * COLUMNS 1, int4: a lone token leaves columns free, so they tell the groups apart instead, and nothing is exchanged: column n has the terms (n < 4: hi, else lo) of group
 * n % 4 where the rows' words are that group's, and 0 elsewhere.  A third fewer instructions, which is what the fastest memories need.
 */
#ifndef CUDA_LINEAR_CUH
#define CUDA_LINEAR_CUH
#include "cuda/table.cuh"
#include "cuda/finish.cuh"

namespace {

template <int KIND> struct format {
    static constexpr bool INT4 = KIND <= GK_INT4_F32, BYTES = KIND == GK_INT8 || KIND == GK_FP8;
    static constexpr int PIECES = INT4 ? 4 : BYTES ? 2 : 1;     /* of 32 columns, in a chunk; f32: half a one */
    static constexpr int TERMS = KIND == GK_F16 ? 2 : KIND == GK_F32 ? 3 : 1;       /* of bf16, that make a weight */
};

/* --- from stored bytes to bf16: exact ---------------------------------------------------------------------------------- */

constexpr uint32_t ONE = 0x3f803f80, MINUS_ONE = 0xbf80bf80, BIAS_128 = 0x43004300, MINUS_136 = 0xc308c308, TWO_TO_120 = 0x7b807b80;

/* Nibbles n and n + 4 of a word, n = shift / 4, as levels: 128 + u has u in its last bits. */
GK_DEVICE uint32_t levels(uint32_t w, int shift) { return fma_bf16x2(and_or(w >> shift, 0x000f000f, BIAS_128), ONE, MINUS_136); }

/* Bytes 0 and 2 (or 1 and 3) as int8: 128 + low seven bits - (the sign's bit set: 256, else 128). */
GK_DEVICE uint32_t signed_bytes(uint32_t w, int shift)
{
    const uint32_t v = w >> shift;
    return fma_bf16x2(and_or(v, 0x00800080, BIAS_128), MINUS_ONE, and_or(v, 0x007f007f, BIAS_128));
}
/* The same as e4m3: its seven bits are bf16's exponent and mantissa, short of 2^120; subnormal ones too. */
GK_DEVICE uint32_t float_bytes(uint32_t w, int shift)
{
    const uint32_t v = shift ? and_or(w, 0x80008000, w >> 4 & 0x07f007f0) : and_or(w << 8, 0x80008000, w << 4 & 0x07f007f0);
    return fma_bf16x2(v, TWO_TO_120, 0x80008000);       /* + -0: keeps a zero's sign, which nobody sees */
}

/* Piece `i` of a lane's 16 bytes: what two multiplications of 16 columns take. */
template <int KIND> GK_DEVICE void decode(const uint4 &w, int i, uint32_t (&a)[4])
{
    if constexpr (format<KIND>::INT4) {
        const uint32_t word = i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[j] = levels(word, 4 * j);
    } else if constexpr (format<KIND>::BYTES) {
        const uint32_t word[2] = {i ? w.z : w.x, i ? w.w : w.y};
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[j] = KIND == GK_INT8 ? signed_bytes(word[j / 2], j % 2 * 8) : float_bytes(word[j / 2], j % 2 * 8);
    } else {
        a[0] = w.x, a[1] = w.y, a[2] = w.z, a[3] = w.w;
    }
}

/* Lane t of four has word 0..3 of its own group; afterwards word t of group 0..3. */
GK_DEVICE void exchange(uint4 &w)
{
    const bool odd = lane_id() & 1, upper = lane_id() & 2;
    uint32_t give = odd ? w.x : w.y, got = __shfl_xor_sync(ALL, give, 1);
    odd ? w.x = got : w.y = got;
    give = odd ? w.z : w.w;
    got = __shfl_xor_sync(ALL, give, 1);
    odd ? w.z = got : w.w = got;
    give = upper ? w.x : w.z;
    got = __shfl_xor_sync(ALL, give, 2);
    upper ? w.x = got : w.z = got;
    give = upper ? w.y : w.w;
    got = __shfl_xor_sync(ALL, give, 2);
    upper ? w.y = got : w.w = got;
}

/* --- tiles ------------------------------------------------------------------------------------------------------------- */

/* The 16 rows of a tile: 8 of each half.  Gate and up: the same 8 of two matrices; else 16 of one. */
struct tile {
    const uint8_t *data[2], *scale[2];  /* of the first row of each half */
    int rows[2];                        /* of 8; <= 0: none */
    int row;                            /* the first one's place in the output */
    int cols;
    const struct gk_job *job;           /* an expert's; NULL otherwise */
};

template <int KIND> GK_DEVICE int row_bytes(int cols) { return format<KIND>::INT4 ? cols / 2 : format<KIND>::BYTES ? cols : KIND == GK_F32 ? 4 * cols : 2 * cols; }
template <int KIND> GK_DEVICE int scale_bytes(int cols, int shift) { return format<KIND>::INT4 ? (cols / 32 >> shift) * (KIND == GK_INT4_F32 ? 4 : 2) : 4; }

template <int KIND> GK_DEVICE void set_half(tile &t, int half, const struct gk_matrix &m, int row, int shift)
{
    t.data[half] = (const uint8_t *)m.data + (uint64_t)(uint32_t)row * (uint32_t)row_bytes<KIND>(t.cols);
    t.scale[half] = (const uint8_t *)m.scale + (uint64_t)(uint32_t)row * (uint32_t)scale_bytes<KIND>(t.cols, shift);
    t.rows[half] = m.rows - row;
}

/* False: nothing to do there. */
template <int KIND> GK_DEVICE bool find_tile(const struct gk_linear &a, int index, tile &t)
{
    const bool gated = a.epilogue == GK_GATED;
    const int bits = gated ? 3 : 4, round_up = (1 << bits) - 1;         /* rows of a tile, or of its half */
    const struct gk_matrix *m = a.m;
    int base = 0, segment = 0;

    t.job = nullptr;
    t.cols = a.cols;
    for (const int segments = gated ? a.segments / 2 : a.segments; segment < segments; segment++) {
        const int tiles = (m[segment].rows + round_up) >> bits;
        if (index < tiles)
            break;
        index -= tiles;
        base += m[segment].rows;
    }
    if (segment == (gated ? a.segments / 2 : a.segments)) {
        if (!a.max_jobs)
            return false;
        const unsigned tiles = (unsigned)(a.expert_rows + round_up) >> bits, job = (unsigned)index / tiles;
        if (job >= (unsigned)a.max_jobs || (int)job >= *a.jobs)
            return false;
        index -= (int)(job * tiles);
        base = segment = 0;
        t.job = a.job + job;
        t.cols = a.expert_cols;
        m = a.expert[t.job->expert].m;
    }
    const int row = index << bits;
    t.row = base + row;
    set_half<KIND>(t, 0, m[segment], row, a.scale_shift);
    set_half<KIND>(t, 1, m[gated ? 1 : segment], gated ? row : row + 8, a.scale_shift);
    return true;
}

/* Where a block's warps are: `slots` tiles at a time, each by wpt warps. */
struct walk { int wpt, slots, slot, sub, rounds; };

GK_DEVICE walk walk_of(const struct gk_linear &a)
{
    const int slots = WARPS / a.wpt;
    return {a.wpt, slots, warp_id() / a.wpt, warp_id() % a.wpt, ((a.tiles + slots - 1) / slots - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x};
}

GK_DEVICE int tile_index(const walk &w, int round) { return ((int)blockIdx.x + round * (int)gridDim.x) * w.slots + w.slot; }

/* --- loading ----------------------------------------------------------------------------------------------------------- */

/* The next chunk to load, of this lane's two rows. */
struct cursor {
    int round, chunk, bytes;            /* bytes: of a row; 0 = this tile has none for us */
    const uint8_t *data[2], *scale[2];
    bool has[2];
};
struct stored { uint4 w[2]; uint32_t scale[2]; };   /* scale: COLUMNS 1: of each row, those of two groups; else [0] of both rows, that of one; in f32: of each row, that of one */

template <int KIND> GK_DEVICE void enter(const struct gk_linear &a, const walk &w, cursor &c)
{
    tile t;
    c.chunk = w.sub;
    c.bytes = 0;
    if (!find_tile<KIND>(a, tile_index(w, c.round), t))
        return;
    const int g = lane_id() / 4;
    c.bytes = row_bytes<KIND>(t.cols);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        c.has[i] = g < t.rows[i];
        c.data[i] = t.data[i] + (unsigned)(g * c.bytes);
        if constexpr (format<KIND>::INT4)
            c.scale[i] = t.scale[i] + g * scale_bytes<KIND>(t.cols, a.scale_shift);
    }
}
/* To the first chunk that is ours from here on. */
template <int KIND> GK_DEVICE void settle(const struct gk_linear &a, const walk &w, cursor &c)
{
    while (c.chunk * 64 >= c.bytes && ++c.round < w.rounds)
        enter<KIND>(a, w, c);
}
template <int KIND, int COLUMNS> GK_DEVICE stored load(const struct gk_linear &a, const walk &w, cursor &c)
{
    stored s = {{{0, 0, 0, 0}, {0, 0, 0, 0}}, {0, 0}};
    if (c.round >= w.rounds)
        return s;
    const int at = c.chunk * 64 + lane_id() % 4 * 16;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (c.has[i] && at < c.bytes) {
            s.w[i] = load_weights(c.data[i] + at);
            if constexpr (KIND == GK_INT4_F32)
                s.scale[i] = load_word32((const uint32_t *)c.scale[i] + (at / 16 >> a.scale_shift));
            else if constexpr (format<KIND>::INT4 && COLUMNS > 1)
                s.scale[0] |= load_word16((const uint16_t *)c.scale[i] + (at / 16 >> a.scale_shift)) << 16 * i;
        }
        if constexpr (COLUMNS == 1) {
            const int pair = c.chunk * 2 + lane_id() % 2;
            if (c.has[i] && pair * 32 < c.bytes)
                s.scale[i] = load_word32((const uint32_t *)c.scale[i] + pair);
        }
    }
    c.chunk += w.wpt;
    settle<KIND>(a, w, c);
    return s;
}

/* --- multiplying ------------------------------------------------------------------------------------------------------- */

/* Where this lane's activations begin: token g of a column tile, or hi and lo of token g % 4. */
template <int COLUMNS> struct activations { const uint16_t *x; size_t step; int tokens; bool rounded; };

template <int KIND, int COLUMNS> GK_DEVICE int piece_at(int chunk, int i)
{
    const int t = lane_id() % 4;
    return format<KIND>::INT4 ? (4 * chunk + i) * 4 + t : format<KIND>::BYTES ? 8 * chunk + 2 * t + i : 4 * chunk + t;
}

GK_DEVICE void multiply_piece(float (&c)[4], const uint32_t (&a)[2][4], const uint4 &b)
{
    mma(c, a[0][0], a[1][0], a[0][1], a[1][1], b.x, b.y);
    mma(c, a[0][2], a[1][2], a[0][3], a[1][3], b.z, b.w);
}

template <int KIND> GK_DEVICE float scale_value(uint32_t bits) { return KIND == GK_INT4_F16 ? f16_value(bits) : bf16_value(bits); }

/* Levels become bf16(level x scale). */
GK_DEVICE void round_products(uint32_t (&a)[4], float by)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = pack_bf16x2(bf16_value(a[i] & 0xffff) * by, __uint_as_float(a[i] & 0xffff0000) * by);
}

template <int KIND, int COLUMNS> GK_DEVICE void multiply(stored s, int chunk, const activations<COLUMNS> &x, float (&sum)[(COLUMNS + 7) / 8][4])
{
    using f = format<KIND>;
    constexpr int TILES = (COLUMNS + 7) / 8;
    const int g = lane_id() / 4;

    uint4 early[f::PIECES];             /* the first terms of all pieces are on their way while words are exchanged */
    if constexpr (TILES == 1) {
#pragma unroll
        for (int i = 0; i < f::PIECES; i++) {
            early[i] = make_uint4(0, 0, 0, 0);
            if (COLUMNS == 4 ? g % 4 < x.tokens : g < x.tokens)
                early[i] = ((const uint4 *)x.x)[2 * piece_at<KIND, COLUMNS>(chunk, i)];
        }
    }
    if constexpr (f::INT4) {
        exchange(s.w[0]);
        exchange(s.w[1]);
    }
#pragma unroll
    for (int i = 0; i < f::PIECES; i++) {
        uint32_t a[2][4];
        float by[2] = {1, 1};
        decode<KIND>(s.w[0], i, a[0]);
        decode<KIND>(s.w[1], i, a[1]);
        if constexpr (f::INT4) {
            if constexpr (KIND == GK_INT4_F32) {
                by[0] = __uint_as_float(__shfl_sync(ALL, s.scale[0], i, 4)), by[1] = __uint_as_float(__shfl_sync(ALL, s.scale[1], i, 4));
            } else {
                const uint32_t bits = __shfl_sync(ALL, s.scale[0], i, 4);
                by[0] = scale_value<KIND>(bits & 0xffff), by[1] = scale_value<KIND>(bits >> 16);
            }
            if (x.rounded) {
                round_products(a[0], by[0]);
                round_products(a[1], by[1]);
                by[0] = by[1] = 1;
            }
        }
        const uint4 *at = (const uint4 *)x.x + 2 * piece_at<KIND, COLUMNS>(chunk, i);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            if (n > 0 && 8 * n >= x.tokens)
                break;
            float c[4] = {0, 0, 0, 0};
            float (&into)[4] = f::INT4 ? c : sum[n];
            uint4 b = make_uint4(0, 0, 0, 0), b2 = b;
            if (TILES == 1)
                b = early[i];
            if (COLUMNS > 4 && 8 * n + g < x.tokens) {
                const uint4 *from = (const uint4 *)((const uint16_t *)at + (size_t)n * x.step);
                if (TILES > 1)
                    b = from[0];
                b2 = from[1];
            }
            multiply_piece(into, a, b);
            if (COLUMNS > 4)
                multiply_piece(into, a, b2);
            if constexpr (f::INT4) {
#pragma unroll
                for (int k = 0; k < 4; k++)
                    sum[n][k] = fmaf(by[k / 2], c[k], sum[n][k]);
            }
        }
    }
}

/* One token, int4: see COLUMNS 1. */
template <int KIND> GK_DEVICE void multiply_alone(const stored &s, int chunk, const activations<1> &x, float (&sum)[1][4])
{
    const int g = lane_id() / 4, t = lane_id() % 4;
    const uint4 *from = (const uint4 *)x.x + 2 * 4 * (4 * chunk + t);
    uint4 b[4];
    float c[4] = {0, 0, 0, 0};

#pragma unroll
    for (int i = 0; i < 4; i++) {
        b[i] = make_uint4(0, 0, 0, 0);
        if (g % 4 == t)
            b[i] = from[2 * i];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t a[2][4];
        decode<KIND>(s.w[0], i, a[0]);
        decode<KIND>(s.w[1], i, a[1]);
        multiply_piece(c, a, b[i]);
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        sum[0][k] = fmaf(scale_value<KIND>(k % 2 ? s.scale[k / 2] >> 16 : s.scale[k / 2] & 0xffff), c[k], sum[0][k]);
}

/* Two floats as so many bf16 terms each, largest first: exact for as many bits as those have. */
template <int TERMS> GK_DEVICE void split(float low, float high, uint32_t (&term)[TERMS])
{
#pragma unroll
    for (int i = 0; i < TERMS; i++) {
        term[i] = pack_bf16x2(low, high);
        low -= bf16_value(term[i] & 0xffff), high -= __uint_as_float(term[i] & 0xffff0000);
    }
}

/* f16: 8 columns a lane, f32: 4. */
template <int KIND, int COLUMNS> GK_DEVICE void multiply_terms(const stored &s, int chunk, const activations<COLUMNS> &x, float (&sum)[(COLUMNS + 7) / 8][4])
{
    constexpr int TERMS = format<KIND>::TERMS, PAIRS = KIND == GK_F16 ? 4 : 2;
    const int g = lane_id() / 4, t = lane_id() % 4;
    uint32_t a[2][PAIRS][TERMS];

#pragma unroll
    for (int r = 0; r < 2; r++) {
        const uint32_t word[4] = {s.w[r].x, s.w[r].y, s.w[r].z, s.w[r].w};
#pragma unroll
        for (int p = 0; p < PAIRS; p++)
            if constexpr (KIND == GK_F16)
                split(f16_value(word[p] & 0xffff), f16_value(word[p] >> 16), a[r][p]);
            else
                split(__uint_as_float(word[2 * p]), __uint_as_float(word[2 * p + 1]), a[r][p]);
    }
    const uint16_t *at = x.x + (KIND == GK_F16 ? 16 * (4 * chunk + t) : 16 * (2 * chunk + t / 2) + t % 2 * 4);
#pragma unroll
    for (int n = 0; n < (COLUMNS + 7) / 8; n++) {
        if (n > 0 && 8 * n >= x.tokens)
            break;
#pragma unroll
        for (int low = 0; low < (COLUMNS > 4 ? 2 : 1); low++) {
            uint4 b = make_uint4(0, 0, 0, 0);
            if (COLUMNS == 4 ? g % 4 < x.tokens : 8 * n + g < x.tokens) {
                const uint16_t *from = at + (size_t)n * x.step + 8 * low;
                if constexpr (KIND == GK_F16) {
                    b = *(const uint4 *)from;
                } else {
                    const uint2 half = *(const uint2 *)from;
                    b.x = half.x, b.y = half.y;
                }
            }
#pragma unroll
            for (int i = 0; i < TERMS; i++) {
                mma(sum[n], a[0][0][i], a[1][0][i], a[0][1][i], a[1][1][i], b.x, b.y);
                if constexpr (KIND == GK_F16)
                    mma(sum[n], a[0][2][i], a[1][2][i], a[0][3][i], a[1][3][i], b.z, b.w);
            }
        }
    }
}

/* --- results ----------------------------------------------------------------------------------------------------------- */

/* Rows of outputs as the warps leave them in shared memory: [warp][16][columns]. */
template <int COLUMNS> constexpr int WIDE = COLUMNS == 4 ? 8 : COLUMNS;       /* 1: the columns are summed on the way */

template <int COLUMNS> GK_DEVICE void leave(float *room, const float (&sum)[(COLUMNS + 7) / 8][4])
{
    const int g = lane_id() / 4, t = lane_id() % 4;
    float *to = room + warp_id() * 16 * WIDE<COLUMNS>;
    if constexpr (COLUMNS == 1) {
        float low = sum[0][0] + sum[0][1], high = sum[0][2] + sum[0][3];
        low += __shfl_xor_sync(ALL, low, 1), high += __shfl_xor_sync(ALL, high, 1);
        low += __shfl_xor_sync(ALL, low, 2), high += __shfl_xor_sync(ALL, high, 2);
        if (t == 0)
            to[g] = low, to[g + 8] = high;
    } else {
#pragma unroll
        for (int n = 0; n < (COLUMNS + 7) / 8; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                to[(g + k / 2 * 8) * WIDE<COLUMNS> + n * 8 + 2 * t + k % 2] = sum[n][k];
    }
}
template <int COLUMNS> GK_DEVICE float collect(const float *room, const walk &w, int row, int column)
{
    const float *from = room + w.slot * w.wpt * 16 * WIDE<COLUMNS> + row * WIDE<COLUMNS> + column;
    float s = 0;
    for (int i = 0; i < w.wpt; i++, from += 16 * WIDE<COLUMNS>)
        s += COLUMNS == 4 ? from[0] + from[4] : from[0];
    return s;
}

/* One value of a segment, or of an expert's output. */
GK_DEVICE void put(const struct gk_linear &a, const tile &t, int row, int column, int token, float v, struct gk_best &best)
{
    switch (a.epilogue) {
    case GK_STORE:
        if (t.job)
            a.expert_y[(size_t)(t.job->at[column].token * a.top_k + t.job->at[column].choice) * (size_t)a.expert_ldy + (size_t)row] = v;
        else
            a.y[(size_t)token * (size_t)a.ldy + (size_t)row] = v;
        return;
    case GK_GATE_BY:
        put_value(a.act.x + (size_t)token * (size_t)a.act.ld, row, a.act.order, gelu(v) * a.by[(size_t)token * (size_t)a.ldby + (size_t)row]);
        return;
    default:
        if (a.softcap > 0)
            v = a.softcap * tanh_of(v / a.softcap);
        if (a.y)
            a.y[(size_t)token * (size_t)a.ldy + (size_t)row] = v;
        if (is_better(v, row, best)) {
            for (int i = 0; i < a.f.choice.n_banned; i++)
                if (a.f.choice.banned[i] == row)
                    return;
            best = {v, row};
        }
    }
}

template <int KIND> GK_DEVICE float row_scale(const tile &t, int half, int row)
{
    return format<KIND>::BYTES ? ((const float *)t.scale[half])[row] : 1.0f;
}

template <int KIND, int COLUMNS> GK_DEVICE void results(const struct gk_linear &a, const walk &w, const tile &t, const float *room, int tokens, int first_token, struct gk_best &best)
{
    for (int i = w.sub * 32 + lane_id(); i < 8 * COLUMNS; i += w.wpt * 32) {
        const int r = i / COLUMNS, column = i % COLUMNS;
        if (column >= tokens)
            continue;
        const int token = first_token + column;
        const bool has0 = r < t.rows[0], has1 = r < t.rows[1];
        const float v0 = has0 ? collect<COLUMNS>(room, w, r, column) * row_scale<KIND>(t, 0, r) : 0;
        const float v1 = has1 ? collect<COLUMNS>(room, w, r + 8, column) * row_scale<KIND>(t, 1, r) : 0;
        if (a.epilogue == GK_GATED) {
            const struct gk_out &out = t.job ? a.expert_act : a.act;
            const int row = t.job ? t.job->at[column].token * a.top_k + t.job->at[column].choice : token;
            if (has0)
                put_value(out.x + (size_t)row * (size_t)out.ld, t.row + r, out.order, gelu(v0) * v1);
            continue;
        }
        if (has0)
            put(a, t, t.row + r, column, token, v0, best);
        if (has1)
            put(a, t, t.row + r + 8, column, token, v1, best);
    }
}

/* --- the end ----------------------------------------------------------------------------------------------------------- */

/* Shared memory, after the warps' sums: a word a warp, and what the finisher needs. */
struct end_room { float word[WARPS]; unsigned flag[WARPS]; };
static_assert(sizeof(end_room) == GK_END_BYTES && sizeof(route_room) == GK_ROUTE_BYTES && WARPS * sizeof(top_room) == GK_TOP_BYTES, "shape.c counts shared memory by these");
static_assert(sizeof(struct gk_linear) <= 4096, "what a kernel takes by value");

/* Groups of rows that this round completed; row: the first of this warp's tile, -1 = none; first: the thread that speaks for it. */
GK_DEVICE void finish_groups(const struct gk_linear &a, int slots, int slot, bool first, int row, end_room &end)
{
    __threadfence();
    __syncthreads();
    if (first) {
        const unsigned group = row >= 0 ? (unsigned)(row / a.group_rows) : 0, all = (unsigned)a.group_rows / 16;
        end.flag[slot] = 0;
        if (row >= 0 && atomicAdd(&a.count[group], 1u) == all - 1) {
            atomicExch(&a.count[group], 0u);
            end.flag[slot] = group + 1;
        }
    }
    __syncthreads();
    for (int s = 0; s < slots; s++) {
        const unsigned flag = end.flag[s];
        if (!flag)
            continue;
        __threadfence();
        for (int token = warp_id(); token < a.tokens; token += WARPS)
            finish_token(a, (int)flag - 1, token);
    }
    __syncthreads();
}

template <int COLUMNS> GK_DEVICE void leave_best(const struct gk_linear &a, struct gk_best best, struct gk_best *room)
{
    __syncthreads();
    room[threadIdx.x] = best;
    __syncthreads();
    for (int t = warp_id(); t < a.tokens; t += WARPS) {
        struct gk_best b = {-INFINITY, 0x7fffffff};
        for (int i = t + COLUMNS * lane_id(); i < GK_THREADS; i += COLUMNS * 32)
            if (is_better(room[i].value, room[i].id, b))
                b = room[i];
        b = better_of_warp(b);
        if (lane_id() == 0)
            a.f.choice.partial[(size_t)t * gridDim.x + blockIdx.x] = b;
    }
}

/* This block's best of every token, and its largest where they are wanted. */
template <int COLUMNS> static __device__ __noinline__ void leave_choices(const struct gk_linear &a, struct gk_best best, top_room *room)
{
    const walk w = walk_of(a);
    const int run = 16 * w.slots;

    leave_best<COLUMNS>(a, best, (struct gk_best *)room);
    if (!a.f.choice.top)
        return;
    __syncthreads();
    if (a.tokens == 1)
        leave_top_of<true>(a, 0, run, run * w.rounds, *room);
    else if (warp_id() < a.tokens)
        leave_top_of<false>(a, warp_id(), run, run * w.rounds, room[warp_id()]);
    __syncthreads();
}

/* All rows are there, for one block. */
static __device__ __noinline__ void finish_all(const struct gk_linear &a, unsigned char *room, end_room &end)
{
    if (a.finish == GK_ROUTE) {
        finish_route(a, *(route_room *)room);
    } else if (a.finish == GK_BEST) {
        for (int t = warp_id(); t < a.tokens; t += WARPS)
            finish_best(a.f.choice, t, (int)gridDim.x);
        if (a.f.choice.top && a.tokens == 1)
            finish_top_of<true>(a.f.choice, 0, (int)gridDim.x, *(top_room *)room);
        else if (a.f.choice.top && warp_id() < a.tokens)
            finish_top_of<false>(a.f.choice, warp_id(), (int)gridDim.x, ((top_room *)room)[warp_id()]);
    } else if (a.tokens == 1) {
        finish_residual(a, 0, end.word);
    } else {
        for (int t = warp_id(); t < a.tokens; t += WARPS)
            finish_residual_of(a, t, end.word);
    }
}

/* Chunks on their way: 48 KiB an SM with one token; and blocks an SM.  Without bf16 in the machine products take registers, and a slower memory needs fewer of either. */
template <int KIND, int COLUMNS> constexpr int DEPTH = !HAS_BF16 || COLUMNS == 64 || KIND == GK_INT4_F32 ? 1 : COLUMNS == 1 ? 3 : 2;
template <int KIND, int COLUMNS> constexpr int BLOCKS = HAS_BF16 || COLUMNS == 1 || (KIND > GK_INT4_F32 && COLUMNS < 64) ? 2 : 1;

template <int KIND, int COLUMNS> __global__ void __launch_bounds__(GK_THREADS, (BLOCKS<KIND, COLUMNS>)) linear(const __grid_constant__ struct gk_linear a)
{
    GK_DYNAMIC(memory);
    constexpr int TILES = (COLUMNS + 7) / 8, ROOM = WARPS * 16 * WIDE<COLUMNS>;
    end_room &end = *(end_room *)memory;
    float *const room = (float *)(memory + sizeof(end_room));
    const int first_token = (int)blockIdx.y * COLUMNS, tokens = min(a.tokens - first_token, COLUMNS);
    const walk w = walk_of(a);
    constexpr bool FINISHES = COLUMNS <= 8;         /* many tokens have a launch for that */
    const bool grouped = FINISHES && (a.finish == GK_HEADS || a.finish == GK_PLE);
    struct gk_best best = {-INFINITY, 0x7fffffff};
    cursor next = {};
    constexpr int depth = DEPTH<KIND, COLUMNS>;
    stored ring[depth];

    if (a.max_jobs)
        wait_for_previous();            /* it says which experts */
    enter<KIND>(a, w, next);
    settle<KIND>(a, w, next);
    for (int i = 0; i < depth; i++)
        ring[i] = load<KIND, COLUMNS>(a, w, next);
    if (!a.max_jobs)
        wait_for_previous();
    let_next_start();
    for (int round = 0; round < w.rounds; round++) {
        tile t = {};
        const bool has = find_tile<KIND>(a, tile_index(w, round), t);
        float sum[TILES][4] = {};
        activations<COLUMNS> x = {nullptr, 8 * (size_t)a.ldx, tokens, a.rounded != 0};
        if (has) {
            const int g = lane_id() / 4, column = COLUMNS == 1 ? 0 : COLUMNS == 4 ? g % 4 : g;
            if (t.job) {
                x.tokens = t.job->n;
                /* a column past the job's reads nothing */
                const int i = min(column, x.tokens - 1), from = a.epilogue == GK_GATED ? t.job->at[i].token : t.job->at[i].token * a.top_k + t.job->at[i].choice;
                x.x = a.expert_x + (size_t)from * (size_t)a.expert_ldx;
            } else {
                x.x = a.x + (size_t)(first_token + min(column, tokens - 1)) * (size_t)a.ldx;
            }
            if (COLUMNS <= 4)
                x.x += g / 4 * 8;
            for (int chunk = w.sub; chunk * 64 < row_bytes<KIND>(t.cols); chunk += w.wpt) {
                const stored now = ring[0];
#pragma unroll
                for (int i = 1; i < depth; i++)
                    ring[i - 1] = ring[i];
                ring[depth - 1] = load<KIND, COLUMNS>(a, w, next);
                if constexpr (COLUMNS == 1)
                    multiply_alone<KIND>(now, chunk, x, sum);
                else if constexpr (format<KIND>::TERMS > 1)
                    multiply_terms<KIND, COLUMNS>(now, chunk, x, sum);
                else
                    multiply<KIND, COLUMNS>(now, chunk, x, sum);
            }
        }
        float *const here = COLUMNS == 64 ? room : room + round % 2 * ROOM;
        leave<COLUMNS>(here, sum);
        if (w.wpt == 1)
            __syncwarp();
        else
            __syncthreads();
        if (has)
            results<KIND, COLUMNS>(a, w, t, here, x.tokens, first_token, best);
        if (grouped)
            finish_groups(a, w.slots, w.slot, w.sub == 0 && lane_id() == 0, has ? t.row : -1, end);
        else if (w.wpt == 1)
            __syncwarp();
        else if (COLUMNS == 64)
            __syncthreads();            /* one room for all rounds */
    }
    ask_ahead(a.ahead);
    if constexpr (FINISHES) {
        if (a.finish == GK_BEST)
            leave_choices<COLUMNS>(a, best, (top_room *)room);
        if (a.finish != GK_NOTHING && !grouped && last_of(a.count, gridDim.x, end.flag))
            finish_all(a, memory + sizeof(end_room), end);
    }
}

}  // namespace

template <int KIND> static const void *linear_of(int columns)
{
    if constexpr (KIND == GK_INT4_BF16 || KIND == GK_INT4_F16)
        if (columns == 1)
            return (const void *)linear<KIND, 1>;
    if constexpr (KIND != GK_INT4_F32)
        if (columns == 64)
            return (const void *)linear<KIND, 64>;
    return columns == 4 ? (const void *)linear<KIND, 4> : (const void *)linear<KIND, 8>;
}
#endif
