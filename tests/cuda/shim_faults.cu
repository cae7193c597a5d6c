/* Kernels with one fault each, and next to each the same without: the shim must find the first and pass the second. */
#include "cuda/device.cuh"
#include "tests/cuda/faults.h"

__global__ void right(const struct fault_args a)
{
    GK_DYNAMIC(memory);
    uint32_t *const word = (uint32_t *)memory;
    const int i = (int)threadIdx.x;

    word[i] = (uint32_t)i;
    __syncthreads();
    uint32_t v = word[(i + 1) % GK_THREADS];
    v += __shfl_xor_sync(ALL, v, 1) + (uint32_t)__any_sync(ALL, v == 3) + (uint32_t)__all_sync(ALL, v < 1000) + __ballot_sync(ALL, i % 2);
    atomicAdd(a.global + 1, v);
    __syncwarp();
    if (i == 0)
        a.global[0] = a.input[a.n - 1];
}

__global__ void some_skip_the_barrier(const struct fault_args a)
{
    if (threadIdx.x < 200)
        __syncthreads();
    a.global[threadIdx.x] = 1;
}
__global__ void some_have_ended(const struct fault_args a)
{
    if ((int)threadIdx.x == a.n)
        return;
    __syncthreads();
}
__global__ void two_barriers(const struct fault_args)
{
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}
__global__ void lanes_part(const struct fault_args a)
{
    uint32_t v = threadIdx.x;
    if (threadIdx.x % 32 < 16)
        v = __shfl_xor_sync(ALL, v, 1);
    else
        v = __shfl_xor_sync(ALL, v, 2);
    a.global[threadIdx.x] = v;
}
__global__ void lane_missing(const struct fault_args a)
{
    uint32_t v = threadIdx.x;
    if (threadIdx.x != 77)
        v = __shfl_sync(ALL, v, 0);
    a.global[threadIdx.x] = v;
}
__global__ void half_a_warp(const struct fault_args a)
{
    a.global[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 0);
}

__global__ void past_shared(const struct fault_args)
{
    GK_DYNAMIC(memory);
    ((uint32_t *)memory)[threadIdx.x + 1] = 1;
}
__global__ void past_global_read(const struct fault_args a)
{
    if (threadIdx.x == 5)
        a.global[0] = a.input[a.n];
}
__global__ void past_global_write(const struct fault_args a)
{
    if (threadIdx.x == 6)
        a.global[GK_THREADS] = 1;
}
__global__ void straddles(const struct fault_args a)
{
    if (threadIdx.x == 6)
        a.global[0] = ((const uint4 *)(a.input + a.n))->w;
}
__global__ void unknown_memory(const struct fault_args a) { a.stranger[threadIdx.x] = 1; }
__global__ void before_global(const struct fault_args a)
{
    if (threadIdx.x == 0)
        a.global[0] = a.input[-1];
}
__global__ void writes_lent(const struct fault_args a)
{
    if (threadIdx.x == 0)
        ((uint32_t *)(uintptr_t)a.lent)[0] = 1;
    else if (threadIdx.x == 1)
        a.global[1] = a.lent[1];
}
__global__ void anothers_stack(const struct fault_args a)
{
    GK_DYNAMIC(memory);
    uint32_t mine = threadIdx.x;
    if (threadIdx.x == 0)
        *(uint32_t **)memory = &mine;
    __syncthreads();
    a.global[threadIdx.x] = **(uint32_t **)memory;
}

__global__ void reads_before_written(const struct fault_args a)
{
    GK_DYNAMIC(memory);
    ((uint32_t *)memory)[threadIdx.x] = 1;
    a.global[threadIdx.x] = ((uint32_t *)memory)[(threadIdx.x + 40) % GK_THREADS];
}
__global__ void writes_while_read(const struct fault_args a)
{
    GK_DYNAMIC(memory);
    const uint32_t v = ((uint32_t *)memory)[0];
    if (threadIdx.x == GK_THREADS - 1)
        ((uint32_t *)memory)[0] = v + 1;
    a.global[threadIdx.x] = v;
}
__global__ void both_write(const struct fault_args a) { a.global[threadIdx.x / 2] = threadIdx.x; }
__global__ void halves_of_a_word(const struct fault_args a) { ((uint16_t *)a.global)[threadIdx.x] = (uint16_t)threadIdx.x; }       /* no fault */
__global__ void lanes_race(const struct fault_args a)
{
    GK_DYNAMIC(memory);
    uint32_t *const word = (uint32_t *)memory;
    word[threadIdx.x] = threadIdx.x;
    if (a.n == 0)
        __syncwarp();
    a.global[threadIdx.x] = word[threadIdx.x ^ 1];
}
__global__ void last_lane_writes(const struct fault_args a)
{
    GK_DYNAMIC(memory);
    uint32_t *const word = (uint32_t *)memory;
    if (threadIdx.x >= 32)
        return;
    const uint32_t v = word[0];
    if (a.n == 0)
        __syncwarp();
    if (threadIdx.x == 31)
        word[0] = v + 1;
    a.global[threadIdx.x] = v;
}
__global__ void atomic_and_not(const struct fault_args a)
{
    if (threadIdx.x == 40)
        a.global[0] = 1;
    else
        atomicAdd(a.global, 1u);
}
__global__ void shared_statics(const struct fault_args a)
{
    __shared__ uint32_t word[GK_THREADS];
    word[threadIdx.x] = threadIdx.x;
    if (a.n == 0)
        __syncthreads();
    a.global[threadIdx.x] = word[GK_THREADS - 1 - threadIdx.x];
}

/* 16 bytes from an address that is a multiple of 8 alone: what a file's layout allows and no GPU reads. */
__global__ void misaligned_weights(const struct fault_args a)
{
    const uint4 w = load_weights((const uint8_t *)a.input + 8 * a.n);
    a.global[threadIdx.x] = w.x;
}
__global__ void misaligned_word(const struct fault_args a)
{
    if (threadIdx.x == 3)
        a.global[0] = *(const uint32_t *)((const uint8_t *)a.input + a.n);
}
__global__ void misaligned_store(const struct fault_args a)
{
    if (threadIdx.x == 3)
        *(float4 *)(a.global + a.n) = make_float4(1, 2, 3, 4);
}
__global__ void atomic_past_the_end(const struct fault_args a)
{
    if (threadIdx.x == 9)
        atomicAdd(a.global + GK_THREADS, 1u);
}
__global__ void mma_without_some(const struct fault_args a)
{
    float c[4] = {0, 0, 0, 0};
    if ((int)threadIdx.x % 32 < a.n)
        mma(c, 1, 2, 3, 4, 5, 6);
    a.global[threadIdx.x] = (uint32_t)c[0];
}
__global__ void more_rounds_than_others(const struct fault_args a)
{
    for (int i = 0; i < (threadIdx.x < 64 ? a.n : 2); i++)
        __syncthreads();
}
__global__ void null_pointer(const struct fault_args a)
{
    if (threadIdx.x == 0)
        a.global[0] = *(const volatile uint32_t *)(uintptr_t)(a.n & 0);
}

/* What an earlier kernel wrote, before and after waiting for it. */
__global__ void reads_the_previous(const struct fault_args a)
{
    uint32_t early = a.input[0];        /* which no kernel writes */
    if (a.n == 1)
        early += a.global[threadIdx.x];
    wait_for_previous();
    if (blockIdx.x == 0)
        a.global[threadIdx.x] = a.global[threadIdx.x] + early;
}
__global__ void writes_before(const struct fault_args a)
{
    if (a.n == 1 && threadIdx.x == 7 && blockIdx.x == 0)
        a.global[0] = 1;
    wait_for_previous();
}
__global__ void never_waits(const struct fault_args a)
{
    if (blockIdx.x == 0)
        a.global[threadIdx.x] = a.input[0];
}
/* No fault: the instructions made by hand (device.cuh) against those that the shim carries out; global[thread]: 0 where they agree. */
__global__ void by_hand(const struct fault_args a)
{
    uint32_t seed = threadIdx.x * 2654435761u + 12345, w[6], wrong = 0;
    for (int round = 0; round < 20; round++) {
        for (uint32_t &x : w) {     /* bf16 of moderate size, both signs, now and then zero or subnormal */
            uint32_t half[2];
            for (uint32_t &h : half) {
                seed = seed * 1664525u + 1013904223u;
                h = (seed >> 16 & 0x807f) | (seed % 9 ? (118 + (seed >> 8 & 15)) << 7 : 0);
            }
            x = half[0] | half[1] << 16;
        }
        float c[4] = {1, -2, 0.5f, 3}, d[4] = {1, -2, 0.5f, 3};
        mma(c, w[0], w[1], w[2], w[3], w[4], w[5]);
        mma_by_hand(d, w[0], w[1], w[2], w[3], w[4], w[5]);
        for (int i = 0; i < 4; i++)
            wrong += !(fabsf(c[i] - d[i]) <= 16 * 0x1p-23f * 4e6f);
        /* levels of int4, int8 and e4m3 are made by this */
        const uint32_t u = 0x43004300 | (seed >> 8 & 0x000f000f), v = seed & 0x87f087f0;
        wrong += fma_bf16x2(u, 0x3f803f80, 0xc308c308) != fma_by_hand(u, 0x3f803f80, 0xc308c308);
        wrong += fma_bf16x2(v, 0x7b807b80, 0x80008000) != fma_by_hand(v, 0x7b807b80, 0x80008000);
        const float x = __uint_as_float(w[0]), y = __uint_as_float(w[1] * 31);
        wrong += !(y != y) && pack_bf16x2(x, y) != pack_by_hand(x, y);
    }
    a.global[threadIdx.x] = wrong;
}

const struct fault_case fault_cases[] = {
    {"nothing wrong", right, 64, NULL},
    {"a barrier that some threads skip", some_skip_the_barrier, 0, "divergence: has ended while thread 0 waits at the barrier"},
    {"a barrier after some have ended", some_have_ended, 64, "divergence: has ended while thread 0 waits at the barrier"},
    {"two barriers", two_barriers, 0, "divergence: waits at the barrier"},
    {"lanes at two shuffles", lanes_part, 0, "divergence: waits at"},
    {"a lane that does not come", lane_missing, 0, "divergence: has ended while lanes of its warp wait"},
    {"a shuffle of half a warp", half_a_warp, 0, "a mask of 0xffff"},
    {"shared memory, past its end", past_shared, 0, "out of bounds: write of 4 bytes, 0 past the end of 'shared memory'"},
    {"global memory read past its end", past_global_read, 66, "out of bounds: read of 4 bytes, 0 past the end of 'input'"},
    {"global memory written past its end", past_global_write, 64, "out of bounds: write of 4 bytes, 0 past the end of 'global'"},
    {"an access over the end", straddles, 64, "out of bounds: read of"},
    {"memory that nobody registered", unknown_memory, 64, "which is no registered memory"},
    {"global memory before its start", before_global, 64, "out of bounds: read of 4 bytes"},
    {"lent memory written", writes_lent, 64, "write to 'lent', which is lent for reading"},
    {"another thread's stack", anothers_stack, 64, "which is no registered memory"},
    {"shared memory read where another thread writes", reads_before_written, 64, "race: "},
    {"shared memory written where others read", writes_while_read, 64, "race: write of 'shared memory'"},
    {"global memory written twice", both_write, 64, "race: write of 'global'"},
    {"two halves of one word", halves_of_a_word, 64, NULL},
    {"a race within a warp", lanes_race, 1, "race: "},
    {"the same with __syncwarp", lanes_race, 0, NULL},
    {"what all lanes read, written by the last", last_lane_writes, 1, "race: write of 'shared memory'"},
    {"the same with __syncwarp", last_lane_writes, 0, NULL},
    {"atomic and not", atomic_and_not, 64, "race:"},
    {"16 bytes at a multiple of 8", misaligned_weights, 1, "misaligned: read of 16 bytes"},
    {"16 bytes at a multiple of 16", misaligned_weights, 2, NULL},
    {"a word at an odd address", misaligned_word, 6, "misaligned: read of 4 bytes"},
    {"16 bytes written at a multiple of 4", misaligned_store, 1, "misaligned: write of 16 bytes"},
    {"an atomic past the end", atomic_past_the_end, 64, "out of bounds: "},
    {"an mma that lanes do not come to", mma_without_some, 20, "divergence: has ended while lanes of its warp wait"},
    {"a barrier once more than others", more_rounds_than_others, 3, "divergence: has ended while thread 0 waits at the barrier"},
    {"as often as others", more_rounds_than_others, 2, NULL},
    {"a null pointer", null_pointer, 64, "which is no registered memory"},
    {"instructions made by hand", by_hand, 64, NULL},
    {"read before the previous kernel has ended", reads_the_previous, 1, "too early: read of 'global'", true},
    {"read after it has", reads_the_previous, 0, NULL, true},
    {"written before the previous kernel has ended", writes_before, 1, "too early: write of 'global'", true},
    {"written after it has", writes_before, 0, NULL, true},
    {"a kernel that never waits for the previous one", never_waits, 0, "too early: write of 'global'", true},
    {"static shared memory", shared_statics, 1, "of 'static shared memory' at byte"},
    {"the same with __syncthreads", shared_statics, 0, NULL},
};
const int fault_case_count = (int)(sizeof fault_cases / sizeof *fault_cases);
