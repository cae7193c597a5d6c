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
        *(uint4 *)(a.global + GK_THREADS - 2) = make_uint4(1, 2, 3, 4);
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

const struct fault_case fault_cases[] = {
    {"nothing wrong", right, 64, NULL},
    {"a barrier that some threads skip", some_skip_the_barrier, 0, "divergence: has ended while thread 0 waits at the barrier"},
    {"a barrier after some have ended", some_have_ended, 64, "divergence: has ended while thread 0 waits at the barrier"},
    {"two barriers", two_barriers, 0, "divergence: waits at the barrier"},
    {"lanes at two shuffles", lanes_part, 0, "divergence: waits at"},
    {"a lane that does not come", lane_missing, 0, "divergence: has ended while lanes of its warp wait"},
    {"a shuffle of half a warp", half_a_warp, 0, "a mask of 0xffff"},
    {"shared memory, past its end", past_shared, 0, "out of bounds: write of 4 bytes, 0 past the end of 'shared memory'"},
    {"global memory read past its end", past_global_read, 64, "out of bounds: read of 4 bytes, 0 past the end of 'input'"},
    {"global memory written past its end", past_global_write, 64, "out of bounds: write of 4 bytes, 0 past the end of 'global'"},
    {"an access over the end", straddles, 64, "out of bounds: write of"},
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
    {"static shared memory", shared_statics, 1, "of 'static shared memory' at byte"},
    {"the same with __syncthreads", shared_statics, 0, NULL},
};
const int fault_case_count = (int)(sizeof fault_cases / sizeof *fault_cases);
