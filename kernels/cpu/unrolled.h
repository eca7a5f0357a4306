/* kernels/cpu/unrolled.h: before a loop that must vanish: only then are its sums registers. */
#pragma once

#ifdef __clang__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 32")
#endif
