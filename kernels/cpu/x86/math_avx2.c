/* kernels/cpu/x86/math_avx2.c: elementwise functions for avx2; see math_vector.h, row_math.h and
 * sample_weights.h. */
#include "kernels/cpu/x86/simd_avx2.h"

#include "kernels/cpu/delta_vector.h"
#include "kernels/cpu/math_vector.h"
#include "kernels/cpu/row_math.h"
#include "kernels/cpu/sample_weights.h"
#include "kernels/cpu/variants.h"

MATH_KERNELS(KERNEL_FUNCTION, avx2)
ROW_KERNELS(KERNEL_FUNCTION, avx2)
DELTA_KERNELS(KERNEL_FUNCTION, avx2)
