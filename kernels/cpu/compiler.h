/* kernels/cpu/compiler.h: words by which kernels tell the compiler how to treat them. */
#pragma once

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Stands before a loop that the compiler must unroll whole: gcc keeps the loop's sums in registers
 * only then. */
#ifdef __clang__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 32")
#endif
