/* CUDA C++ on the CPU, as much of it as the kernels use: the threads of a block are fibers of one thread, blocks run one after another.
 *
 * A fiber runs until it waits: at a barrier, or in an operation of its warp (shuffle, vote, mma, __syncwarp), which takes place when all 32 lanes have come to it.
 * What is found (host/shim.cpp): lanes or threads that wait at different places or have ended while others wait (divergence); and, where the compiler
 * reports every access (-fsanitize=thread without its library; not under ASan, which finds the strays its own way): access outside registered memory, the block's shared
 * memory, the thread's own stack and the program's constants, or at an address that is no multiple of its size; two threads at one byte, one of them writing, with no barrier between them and not both atomic; in a launch
 * that may begin before the one before it has ended (gk_host_follows), what an earlier kernel wrote read before wait_for_previous(), or anything written.  The first fault ends the launch.
 * Blocks run in no order that anyone could rely on.
 */
#ifndef CUDA_HOST_SHIM_H
#define CUDA_HOST_SHIM_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
/* One block runs at a time, so a static is the block's. */
#define __shared__ static __attribute__((section("gk_shared")))
#define GK_DYNAMIC(name) unsigned char *const name = shim_dynamic()

/* A GPU reads and writes these whole, at multiples of their size; this machine does not mind, so every copy looks. */
void shim_misaligned(const void *p, unsigned n, bool write);
static inline void shim_aligned(const void *p, unsigned n, bool write)
{
    __asm__("" : "+r"(p));              /* the compiler knows what a type's alignment ought to be */
    if ((uintptr_t)p % n)
        shim_misaligned(p, n, write);
}
#define SHIM_VECTOR(name, T, size, members, parameters, initial, copied, assigned) \
    struct alignas(size) name { \
        T members; \
        name() = default; \
        name parameters : initial {} \
        name(const name &o) : copied {} \
        name &operator=(const name &o) { shim_aligned(&o, size, false), shim_aligned(this, size, true); assigned; return *this; } \
    }
#define SHIM_LIST(...) __VA_ARGS__
#define SHIM_2(name, T) SHIM_VECTOR(name, T, 8, SHIM_LIST(x, y), (T a, T b), SHIM_LIST(x(a), y(b)), SHIM_LIST(x((shim_aligned(&o, 8, false), o.x)), y(o.y)), SHIM_LIST(x = o.x, y = o.y))
#define SHIM_4(name, T) SHIM_VECTOR(name, T, 16, SHIM_LIST(x, y, z, w), (T a, T b, T c, T d), SHIM_LIST(x(a), y(b), z(c), w(d)), \
    SHIM_LIST(x((shim_aligned(&o, 16, false), o.x)), y(o.y), z(o.z), w(o.w)), SHIM_LIST(x = o.x, y = o.y, z = o.z, w = o.w))
SHIM_2(uint2, uint32_t);
SHIM_4(uint4, uint32_t);
SHIM_2(float2, float);
SHIM_4(float4, float);
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct dim3 { unsigned x, y, z; };

/* Of the running fiber. */
extern dim3 shim_thread, shim_block, shim_grid_dim, shim_block_dim;
#define threadIdx shim_thread
#define blockIdx shim_block
#define gridDim shim_grid_dim
#define blockDim shim_block_dim
unsigned char *shim_dynamic();

/* --- waiting; `line` tells one place from another ---------------------------------------------------------------------- */

void shim_barrier(const char *file, int line);
/* The lane's word in, all lanes' words out, valid until the fiber waits again. */
enum shim_op { SHIM_SHUFFLE, SHIM_VOTE, SHIM_SYNC, SHIM_MMA };
const uint32_t *shim_exchange(shim_op op, unsigned mask, uint32_t word, const char *file, int line);
void shim_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const char *file, int line);
int shim_lane();
void shim_waited();                     /* for the launch before this one */
long long shim_cycles();

#define __syncthreads() shim_barrier(__FILE__, __LINE__)
#define __syncwarp(...) ((void)shim_exchange(SHIM_SYNC, 0xffffffffu, 0, __FILE__, __LINE__))

template <class T> static inline T shim_pick(const uint32_t *all, int from)
{
    static_assert(sizeof(T) == 4, "shuffles carry 32 bits");
    T v;
    memcpy(&v, all + (from & 31), 4);
    return v;
}
template <class T> static inline uint32_t shim_word(T v)
{
    uint32_t w;
    memcpy(&w, &v, 4);
    return w;
}
template <class T> static inline T shim_shfl(unsigned mask, T v, int from, int width, const char *file, int line)
{
    const int lane = shim_lane();
    return shim_pick<T>(shim_exchange(SHIM_SHUFFLE, mask, shim_word(v), file, line), (lane & ~(width - 1)) | (from & (width - 1)));
}
template <class T> static inline T shim_shfl_xor(unsigned mask, T v, int by, const char *file, int line)
{
    const int lane = shim_lane();
    return shim_pick<T>(shim_exchange(SHIM_SHUFFLE, mask, shim_word(v), file, line), lane ^ by);
}
#define SHIM_WIDTH(a, b, width, ...) width
#define __shfl_sync(mask, v, from, ...) shim_shfl(mask, v, from, SHIM_WIDTH(0, 0, ##__VA_ARGS__, 32), __FILE__, __LINE__)
#define __shfl_xor_sync(mask, v, by) shim_shfl_xor(mask, v, by, __FILE__, __LINE__)
static inline unsigned shim_ballot(unsigned mask, bool yes, const char *file, int line)
{
    const uint32_t *all = shim_exchange(SHIM_VOTE, mask, yes, file, line);
    unsigned votes = 0;
    for (int i = 0; i < 32; i++)
        votes |= (all[i] & 1u) << i;
    return votes & mask;
}
#define __ballot_sync(mask, yes) shim_ballot(mask, yes, __FILE__, __LINE__)
#define __any_sync(mask, yes) (shim_ballot(mask, yes, __FILE__, __LINE__) != 0)
#define __all_sync(mask, yes) (shim_ballot(mask, !(yes), __FILE__, __LINE__) == 0)

/* --- memory ------------------------------------------------------------------------------------------------------------ */

/* One fiber runs at a time; to the detector these are atomic. */
#define atomicAdd(p, v) __atomic_fetch_add(p, v, __ATOMIC_RELAXED)
#define atomicExch(p, v) __atomic_exchange_n(p, v, __ATOMIC_RELAXED)
#define atomicXor(p, v) __atomic_fetch_xor(p, v, __ATOMIC_RELAXED)
#define __threadfence() ((void)0)

/* --- the machine instructions of device.cuh ---------------------------------------------------------------------------- */

static inline uint32_t __float_as_uint(float f) { return shim_word(f); }
static inline float __uint_as_float(uint32_t w) { float f; memcpy(&f, &w, 4); return f; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t s)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(both >> (s >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return r;
}
static inline uint32_t shim_to_bf16(float f)
{
    const uint32_t b = shim_word(f);
    return (b & 0x7fffffffu) > 0x7f800000u ? (b >> 16 | 0x40) : (b + 0x7fffu + (b >> 16 & 1)) >> 16;
}
static inline uint4 load_weights(const void *p) { return *(const uint4 *)p; }
static inline float4 load_l2(const float *p) { return *(const float4 *)p; }
static inline float2 load_l2_pair(const float *p)
{
    float v[2];
    shim_aligned(p, 8, false);
    memcpy(v, p, 8);
    return {v[0], v[1]};
}
static inline uint32_t load_word32(const uint32_t *p) { return *p; }
static inline uint32_t load_word16(const uint16_t *p) { return *p; }
static inline uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) { return (a & b) | c; }
static inline void prefetch_l2(const void *) {}
static inline void wait_for_previous() { shim_waited(); }
static inline void let_next_start() {}
static inline long long cycles_now() { return shim_cycles(); }
static inline uint32_t pack_bf16x2(float low, float high) { return shim_to_bf16(low) | shim_to_bf16(high) << 16; }
static inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r = 0;
    for (int i = 0; i < 32; i += 16)
        r |= shim_to_bf16((float)((double)__uint_as_float(a >> i << 16) * (double)__uint_as_float(b >> i << 16) + (double)__uint_as_float(c >> i << 16))) << i;
    return r;
}
static inline float f16_value(uint32_t bits) { _Float16 h; const uint16_t b = (uint16_t)bits; memcpy(&h, &b, 2); return (float)h; }
#define mma(c, a0, a1, a2, a3, b0, b1) shim_mma(c, {a0, a1, a2, a3}, {b0, b1}, __FILE__, __LINE__)
#endif
