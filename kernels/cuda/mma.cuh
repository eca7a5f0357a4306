/* kernels/cuda/mma.cuh: what attention on tensor cores needs of a GPU beyond CUDA C++: products of
 * 16-bit matrices by a warp, the loads that bring them into its registers, and copies into shared
 * memory that nobody waits for at once. Each is one instruction of the PTX ISA, for sm_80 and
 * later; the emulated device has its own (tests/cuda_host).
 *
 * Fragments. A matrix lies in the registers of the 32 lanes, two 16-bit elements a register, the
 * first in the low half. With g = lane / 4 and t = lane % 4, a lane holds A [16 x 16]  a[0]: (g,
 * 2t), (g, 2t+1)     a[1]: (g+8, 2t), (g+8, 2t+1) a[2]: (g, 2t+8), (g, 2t+9)   a[3]: (g+8, 2t+8),
 * (g+8, 2t+9) B [16 x 8]   b0: (2t, g), (2t+1, g)       b1: (2t+8, g), (2t+9, g) C [16 x 8]   f32
 * c[0]: (g, 2t)   c[1]: (g, 2t+1)   c[2]: (g+8, 2t)   c[3]: (g+8, 2t+1) so two C side by side,
 * rounded, are one A. */
#pragma once

#include "kernels/cuda/common.cuh"
#ifndef __CUDACC__
#include <cuda_host_mma.h>
#endif

/* Both as halves of one register, rounded to nearest even to T. */
template <enum dtype T>
__device__ inline unsigned halves_pack(float low, float high) {
#ifdef __CUDACC__
    unsigned packed;
    if constexpr (T == DTYPE_BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
#else
    return f32_to_half_bits(low, T) | (unsigned)f32_to_half_bits(high, T) << 16;
#endif
}

/* 2^x within two units of the last place; 0 where the result would be subnormal. */
__device__ inline float exp2_approximately(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    float y = exp2f(x);
    return y < 0x1p-126f ? 0 : y;
#endif
}

/* c += a b of the whole warp, products and sums in f32. */
template <enum dtype T>
__device__ inline void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                   unsigned b1) {
#ifdef __CUDACC__
    if constexpr (T == DTYPE_BF16)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    float wide[12];
    for (int i = 0; i < 8; i++) wide[i] = half_bits_to_f32((uint16_t)(a[i / 2] >> 16 * (i & 1)), T);
    for (int i = 0; i < 4; i++)
        wide[8 + i] = half_bits_to_f32((uint16_t)((i < 2 ? b0 : b1) >> 16 * (i & 1)), T);
    cuda_host_mma(c, wide, __LINE__);
#endif
}

/* Four 8 x 8 matrices of 16-bit elements from shared memory. Lane i brings the address of row i % 8
 * of matrix i / 8: 16 bytes, aligned to 16. r[m] becomes elements (g, 2t), (g, 2t+1) of matrix m.
 */
__device__ inline void matrices_load(unsigned (&r)[4], const void *row) {
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row)));
#else
    cuda_host_load_matrices(r, row, false, __LINE__);
#endif
}

/* The same, transposed: r[m] becomes elements (2t, g), (2t+1, g) of matrix m. */
__device__ inline void matrices_load_transposed(unsigned (&r)[4], const void *row) {
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row)));
#else
    cuda_host_load_matrices(r, row, true, __LINE__);
#endif
}

/* Begins to copy 16 bytes to shared memory, past the L1 cache: the first `bytes`, 0 to 16, from
 * global memory, zeros after them. Both addresses are aligned to 16. Nothing may touch the
 * destination before copies_wait. */
__device__ inline void copy_begin(void *shared, const void *global, int bytes) {
#ifdef __CUDACC__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes)
                 : "memory");
#else
    cuda_host_copy_begin(shared, global, bytes, __LINE__);
#endif
}

/* The copies that this thread began are there, for this thread; for others after a barrier that
 * follows. */
__device__ inline void copies_wait() {
#ifdef __CUDACC__
    asm volatile("cp.async.wait_all;" ::: "memory");
#else
    cuda_host_copies_wait();
#endif
}
