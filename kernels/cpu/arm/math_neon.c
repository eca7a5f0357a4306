/* kernels/cpu/arm/math_neon.c: elementwise functions for NEON; see math_vector.h, row_math.h and
 * sample_weights.h. */
#include "kernels/cpu/arm/simd_neon.h"

#include "kernels/cpu/delta_vector.h"
#include "kernels/cpu/math_vector.h"
#include "kernels/cpu/row_math.h"
#include "kernels/cpu/sample_weights.h"
#include "kernels/cpu/variants.h"

MATH_KERNELS(KERNEL_FUNCTION, neon)
ROW_KERNELS(KERNEL_FUNCTION, neon)
DELTA_KERNELS(KERNEL_FUNCTION, neon)
