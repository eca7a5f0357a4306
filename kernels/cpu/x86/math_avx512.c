/* kernels/cpu/x86/math_avx512.c: elementwise functions for avx512; see math_vector.h, row_math.h
 * and sample_weights.h.
 */
#include "kernels/cpu/x86/simd_avx512.h"

#include "kernels/cpu/delta_vector.h"
#include "kernels/cpu/math_vector.h"
#include "kernels/cpu/row_math.h"
#include "kernels/cpu/sample_weights.h"
#include "kernels/cpu/variants.h"

MATH_KERNELS(KERNEL_FUNCTION, avx512)
ROW_KERNELS(KERNEL_FUNCTION, avx512)
DELTA_KERNELS(KERNEL_FUNCTION, avx512)
