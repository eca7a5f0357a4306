/* kernels/cpu/linear_avx2.c: the linear kernels for avx2; see linear_vector.h. */
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/linear_vector.h"
#include "kernels/cpu/variants.h"

void linear_avx2(const struct linear_args *a, int first_tile, int n_tiles) { linear_vector(a, first_tile, n_tiles); }
