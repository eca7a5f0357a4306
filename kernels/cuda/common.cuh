/* kernels/cuda/common.cuh: what the kernels share: launching, loads and stores of any dtype, sums
 * over a warp and a block. Compiled by nvcc for the GPU and by the host compiler against
 * tests/cuda_host. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/cuda.h"

/* The dynamic shared memory of the block; the emulated device defines its own. */
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

/* Before a loop whose arrays are to be registers: nvcc would not unroll one this long by itself;
 * and before one that is seldom run and would be long if it were unrolled. */
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#else
#define UNROLL
#define ROLLED
#endif

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;

/* A tensor in a kernel's arguments: without padding, because lists of work are compared as bytes.
 */
struct view {
    void *data;
    int64_t stride;
    int rows, cols;
    enum dtype dtype;
    int unused;

    view() = default;
    view(const struct tensor &t)
        : data(t.data), stride(t.stride), rows(t.rows), cols(t.cols), dtype(t.dtype), unused(0) {}
};

template <typename A>
struct launch_command {
    void (*kernel)(A);
    size_t shared_bytes;
    unsigned grid[3], block;
    A arguments;
};

template <typename A>
static void launch_run(struct backend *b, const void *arguments) {
    const launch_command<A> &c = *(const launch_command<A> *)arguments;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(c.grid[0], c.grid[1], c.grid[2]);
    config.blockDim = dim3(c.block);
    config.dynamicSmemBytes = c.shared_bytes;
    config.stream = cuda_of(b)->stream;
    cuda_ok(b, cudaLaunchKernelEx(&config, c.kernel, c.arguments), "launching a kernel");
}

/* Every kernel takes one struct of arguments, which has no padding. An empty grid is no launch. */
template <typename A>
void kernel_launch(struct backend *b, void (*kernel)(A), dim3 grid, int block, size_t shared_bytes,
                   const A &arguments) {
    static_assert(sizeof(A) % 8 == 0 && alignof(A) == 8,
                  "commands lie at multiples of 8 bytes, without gaps");
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    launch_command<A> c = {
        kernel, shared_bytes, {grid.x, grid.y, grid.z}, (unsigned)block, arguments};
    work_add(b, launch_run<A>, &c, sizeof c);
}

/* A host array of n elements on the device; NULL for none. */
template <typename T>
const T *array_stage(struct backend *b, const T *host, size_t n) {
    return (const T *)cuda_stage(b, host, n * sizeof(T));
}

static inline unsigned blocks_for(int64_t n, int per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}

/* Threads of a block that handles one row, or pieces of one, V columns a thread: whole warps, as
 * many as there is work for and at most 256. */
static inline int row_threads(int cols, int v) {
    int warps = (cols + WARP * v - 1) / (WARP * v);
    return WARP * (warps < 1 ? 1 : warps < 8 ? warps : 8);
}

/* Grid of kernels that cut every row into pieces, one a block. */
static inline dim3 row_grid(int rows, int cols, int v) {
    return dim3((unsigned)rows, blocks_for(cols, row_threads(cols, v) * v));
}

/* Whether rows of t can be moved in pieces of V elements. */
template <typename T>
static inline bool view_divides(const T *t, int v) {
    size_t piece = (size_t)v * dtype_bytes(t->dtype);
    if (piece > 16) piece = 16;
    return t->cols % v == 0 && t->stride % v == 0 && (uintptr_t)t->data % piece == 0;
}

/* V elements in f32. */
template <int V>
struct lanes {
    float at[V];
};

__device__ inline float half_bits_to_f32(uint16_t bits, enum dtype dtype) {
    return dtype == DTYPE_BF16 ? __uint_as_float((unsigned)bits << 16)
                               : __half2float(__ushort_as_half(bits));
}
__device__ inline uint16_t f32_to_half_bits(float v, enum dtype dtype) {
    return dtype == DTYPE_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(v))
                               : __half_as_ushort(__float2half_rn(v));
}

/* Elements [i, i + V) of an array of any dtype. V > 1: the first is aligned to V elements or 16
 * bytes, whichever is less. The branch on dtype is the same in every thread. */
template <int V>
__device__ inline lanes<V> lanes_load(const void *data, enum dtype dtype, int64_t i) {
    lanes<V> out;
    if (dtype == DTYPE_F32) {
        const float *p = (const float *)data + i;
        if constexpr (V % 4 == 0) {
            for (int j = 0; j < V; j += 4) {
                float4 the_float4 = *(const float4 *)(p + j);
                out.at[j] = the_float4.x, out.at[j + 1] = the_float4.y,
                out.at[j + 2] = the_float4.z, out.at[j + 3] = the_float4.w;
            }
        } else {
            for (int j = 0; j < V; j++) out.at[j] = p[j];
        }
        return out;
    }
    const uint16_t *p = (const uint16_t *)data + i;
    if constexpr (V % 4 == 0) {
        unsigned words[V / 2];
        if constexpr (V % 8 == 0) {
            for (int j = 0; j < V / 2; j += 4) {
                uint4 the_uint4 = *(const uint4 *)(p + 2 * j);
                words[j] = the_uint4.x, words[j + 1] = the_uint4.y, words[j + 2] = the_uint4.z,
                words[j + 3] = the_uint4.w;
            }
        } else {
            for (int j = 0; j < V / 2; j += 2) {
                uint2 the_uint2 = *(const uint2 *)(p + 2 * j);
                words[j] = the_uint2.x, words[j + 1] = the_uint2.y;
            }
        }
        for (int j = 0; j < V; j++)
            out.at[j] = half_bits_to_f32((uint16_t)(words[j / 2] >> 16 * (j & 1)), dtype);
    } else {
        for (int j = 0; j < V; j++) out.at[j] = half_bits_to_f32(p[j], dtype);
    }
    return out;
}

/* The converse of load; V is 1 or 4. */
template <int V>
__device__ inline void lanes_store(void *data, enum dtype dtype, int64_t i, const lanes<V> &in) {
    if constexpr (V == 1) {
        if (dtype == DTYPE_F32)
            ((float *)data)[i] = in.at[0];
        else
            ((uint16_t *)data)[i] = f32_to_half_bits(in.at[0], dtype);
    } else if (dtype == DTYPE_F32) {
        float4 the_float4 = {in.at[0], in.at[1], in.at[2], in.at[3]};
        *(float4 *)((float *)data + i) = the_float4;
    } else {
        unsigned halves[4];
        for (int j = 0; j < 4; j++) halves[j] = f32_to_half_bits(in.at[j], dtype);
        uint2 the_uint2 = {halves[0] | halves[1] << 16, halves[2] | halves[3] << 16};
        *(uint2 *)((uint16_t *)data + i) = the_uint2;
    }
}

template <typename T>
__device__ inline T warp_sum(T v) {
    for (int offset = WARP / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(ALL_LANES, v, offset);
    return v;
}

/* The first of a thread's V columns under row_grid. */
template <int V>
__device__ inline int first_column() {
    return (int)(blockIdx.y * blockDim.x + threadIdx.x) * V;
}

/* The sum of every thread's v, the same bits in every thread; `shared` holds one T per warp. */
template <typename T>
__device__ inline T block_sum(T v, T *shared) {
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP,
        warps = (int)blockDim.x / WARP;
    v = warp_sum(v);
    if (warps == 1) return v;
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    v = warp_sum(lane < warps ? shared[lane] : T(0));
    __syncthreads(); /* so that `shared` may be written again */
    return v;
}

/* The functions of enum activation, as kernels/cpu/math_generic.c has them. */
__device__ inline float value_activate(float x, enum activation activation) {
    switch (activation) {
        case ACTIVATION_NONE: return x;
        case ACTIVATION_GELU_TANH:
            return 0.5f * x * (1.0f + tanhf(0.79788456f * x * (1.0f + 0.044715f * x * x)));
        case ACTIVATION_GELU_ERF: return 0.5f * x * erfcf(-0.70710678f * x);
        case ACTIVATION_SILU: return x / (1.0f + expf(-x));
        case ACTIVATION_RELU: return x < 0 ? 0 : x;
        case ACTIVATION_RELU_SQUARED: return x < 0 ? 0 : x * x;
        case ACTIVATION_QUICK_GELU: return x / (1.0f + expf(-1.702f * x));
        case ACTIVATION_SIGMOID: return 1 / (1.0f + expf(-x));
    }
    return x;
}
