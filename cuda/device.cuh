/* What all kernels share: the few machine instructions, each in one function with a host twin, and prepared activations.
 *
 * nvcc compiles the kernels for the GPU; g++ compiles the same files with GK_HOST defined for the host shim (cuda/host/shim.h), which brings its own threadIdx, barriers,
 * shuffles and votes.  No CUDA header is needed but the compiler's own.
 */
#ifndef CUDA_DEVICE_CUH
#define CUDA_DEVICE_CUH
#include "cuda/kernels.h"
#ifdef GK_HOST
#include "cuda/host/shim.h"
#else
#define GK_DYNAMIC(name) extern __shared__ __align__(16) unsigned char name[]
#endif

#define GK_DEVICE static __device__ __forceinline__

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define GK_NO_BF16                      /* Turing: its tensor cores know no bf16, and nothing else does */
constexpr bool HAS_BF16 = false;
#else
constexpr bool HAS_BF16 = true;
#endif

constexpr unsigned ALL = 0xffffffffu;
constexpr int WARPS = GK_THREADS / 32;

GK_DEVICE int lane_id() { return (int)threadIdx.x % 32; }
GK_DEVICE int warp_id() { return (int)threadIdx.x / 32; }

/* --- machine instructions ---------------------------------------------------------------------------------------------- */

#ifndef GK_HOST
/* 16 bytes that nobody else will want: not kept in the first cache. */
GK_DEVICE uint4 load_weights(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
/* Scales, of which the neighbours will be wanted soon. */
GK_DEVICE uint32_t load_word32(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
GK_DEVICE uint32_t load_word16(const uint16_t *p)
{
    unsigned short v;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(p));
    return v;
}
/* a & b | c in one instruction: left alone, the compiler takes two, one for each constant. */
GK_DEVICE uint32_t and_or(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
GK_DEVICE void prefetch_l2(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
#ifndef GK_NO_BF16
/* c += a b for a [16][16], b [16][8] of bf16; which lane has what: PTX, "Matrix fragments for mma.m16n8k16". */
GK_DEVICE void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/* Two bf16 at a time: a b + c, rounded once. */
GK_DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
/* bf16(low) | bf16(high) << 16, to nearest even. */
GK_DEVICE uint32_t pack_bf16x2(float low, float high)
{
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}
#endif
GK_DEVICE float f16_value(uint32_t bits)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)bits));
    return f;
}
/* Programmatic dependent launch: until here nothing may be touched that an earlier kernel writes; from there on the next kernel's blocks may take free places. */
GK_DEVICE void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
GK_DEVICE void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/* What other blocks wrote: from the second cache. */
GK_DEVICE float4 load_l2(const float *p) { return __ldcg((const float4 *)p); }
GK_DEVICE float2 load_l2_pair(const float *p) { return __ldcg((const float2 *)p); }
GK_DEVICE long long cycles_now() { return clock64(); }
#endif

GK_DEVICE float bf16_value(uint32_t bits) { return __uint_as_float(bits << 16); }

/* --- the same without bf16 in the machine; tests/unit/cuda_shim.cpp holds them to the others ------------------------------ */

GK_DEVICE uint32_t to_bf16(float f)
{
    const uint32_t b = __float_as_uint(f);
    return (b & 0x7fffffffu) > 0x7f800000u ? (b >> 16) | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
GK_DEVICE uint32_t pack_by_hand(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
/* Right where a b + c needs no more bits than f32 has. */
GK_DEVICE uint32_t fma_by_hand(uint32_t a, uint32_t b, uint32_t c)
{
    return pack_by_hand(fmaf(bf16_value(a), bf16_value(b), bf16_value(c)), fmaf(__uint_as_float(a & 0xffff0000), __uint_as_float(b & 0xffff0000), __uint_as_float(c & 0xffff0000)));
}
/* Lane 4 g + t needs rows g and g + 8, which its four neighbours have, and columns 2 t and 2 t + 1, which eight others have: the words go round.  Products are exact, their sums rounded
 * before they meet c. */
GK_DEVICE void mma_by_hand(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    const int four = lane_id() & ~3, column = lane_id() % 4 * 8;
    float sum[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        const uint32_t low[2] = {__shfl_sync(ALL, a0, four + i), __shfl_sync(ALL, a2, four + i)}, high[2] = {__shfl_sync(ALL, a1, four + i), __shfl_sync(ALL, a3, four + i)};
        const uint32_t left[2] = {__shfl_sync(ALL, b0, column + i), __shfl_sync(ALL, b1, column + i)};
        const uint32_t right[2] = {__shfl_sync(ALL, b0, column + 4 + i), __shfl_sync(ALL, b1, column + 4 + i)};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int shift = j % 2 ? 0 : 16;
            const float x = __uint_as_float(low[j / 2] << shift & 0xffff0000), y = __uint_as_float(high[j / 2] << shift & 0xffff0000);
            const float u = __uint_as_float(left[j / 2] << shift & 0xffff0000), v = __uint_as_float(right[j / 2] << shift & 0xffff0000);
            sum[0] = fmaf(x, u, sum[0]), sum[1] = fmaf(x, v, sum[1]), sum[2] = fmaf(y, u, sum[2]), sum[3] = fmaf(y, v, sum[3]);
        }
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        c[k] += sum[k];
}
#ifdef GK_NO_BF16
GK_DEVICE void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) { mma_by_hand(c, a0, a1, a2, a3, b0, b1); }
GK_DEVICE uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) { return fma_by_hand(a, b, c); }
GK_DEVICE uint32_t pack_bf16x2(float low, float high) { return pack_by_hand(low, high); }
#endif

/* --- teams ------------------------------------------------------------------------------------------------------------- */

/* A team is the whole block, or a warp. */
template <bool BLOCK> GK_DEVICE int rank_in_team() { return BLOCK ? (int)threadIdx.x : lane_id(); }
template <bool BLOCK> GK_DEVICE int team_size() { return BLOCK ? GK_THREADS : 32; }
template <bool BLOCK> GK_DEVICE void team_sync()
{
    if (BLOCK)
        __syncthreads();
    else
        __syncwarp();
}

GK_DEVICE float warp_sum(float x)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(ALL, x, i);
    return x;
}

/* Of everything that this block's threads wrote before, other blocks see all once they see the count; true in every thread of the block that brings it to
 * `all`, whose reads then come after the others' writes.  The count is zero again afterwards.  `flag` is a word of shared memory. */
GK_DEVICE bool last_of(unsigned *count, unsigned all, unsigned *flag)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        *flag = atomicAdd(count, 1u) == all - 1;
        if (*flag)
            atomicExch(count, 0u);
    }
    __syncthreads();
    const bool last = *flag != 0;
    if (last)
        __threadfence();
    return last;
}

/* The whole grid asks for the next matrices, a line of 128 bytes at a time. */
GK_DEVICE void ask_ahead(const struct gk_ahead (&ahead)[2])
{
    const size_t blocks = (size_t)gridDim.x * gridDim.y * gridDim.z, block = blockIdx.x + gridDim.x * (blockIdx.y + (size_t)gridDim.y * blockIdx.z);

    for (int i = 0; i < 2; i++)
        for (size_t at = (block * GK_THREADS + threadIdx.x) * 128; at < ahead[i].bytes; at += blocks * GK_THREADS * 128)
            prefetch_l2((const uint8_t *)ahead[i].p + at);
}

/* --- functions --------------------------------------------------------------------------------------------------------- */

/* tanh by e^(-2|x|): two units in the last place, no branch, no overflow. */
GK_DEVICE float tanh_of(float x)
{
    const float e = expf(-2 * fabsf(x));
    return copysignf((1 - e) / (1 + e), x);
}
GK_DEVICE float gelu(float x) { return 0.5f * x * (1 + tanh_of(0.79788456080286536f * (x + 0.044715f * x * x * x))); }

/* --- prepared activations ---------------------------------------------------------------------------------------------- */

/* Where column i of 8 lies. */
GK_DEVICE int slot_of(int i, int order) { return order == GK_NIBBLES ? i % 4 * 2 + i / 4 : order == GK_BYTES ? (i & 4) + i % 2 * 2 + i / 2 % 2 : i; }

/* Columns 8 piece .. 8 piece + 7 of one token. */
GK_DEVICE void put_piece(uint16_t *x, int piece, int order, const float (&v)[8])
{
    uint32_t hi[4], lo[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        /* which two columns stand in word i */
        const float a = order == GK_NIBBLES ? v[i] : order == GK_BYTES ? v[(i & 2) * 2 + i % 2] : v[2 * i];
        const float b = order == GK_NIBBLES ? v[i + 4] : order == GK_BYTES ? v[(i & 2) * 2 + i % 2 + 2] : v[2 * i + 1];
        hi[i] = pack_bf16x2(a, b);
        lo[i] = pack_bf16x2(a - bf16_value(hi[i] & 0xffff), b - bf16_value(hi[i] >> 16));
    }
    uint4 *to = (uint4 *)x + 2 * piece;
    to[0] = make_uint4(hi[0], hi[1], hi[2], hi[3]);
    to[1] = make_uint4(lo[0], lo[1], lo[2], lo[3]);
}
GK_DEVICE void put_value(uint16_t *x, int column, int order, float v)
{
    uint16_t *to = x + column / 8 * 16 + slot_of(column % 8, order);
    const uint32_t hi = pack_bf16x2(v, 0) & 0xffff;
    to[0] = (uint16_t)hi;
    to[8] = (uint16_t)pack_bf16x2(v - bf16_value(hi), 0);
}
#endif
