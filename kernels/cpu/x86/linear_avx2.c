/* kernels/cpu/x86/linear_avx2.c: the linear kernels for avx2; see linear_vector.h. */
#include "kernels/cpu/x86/simd_avx2.h"

#include "kernels/cpu/linear_vector.h"
#include "kernels/cpu/variants.h"

void linear_avx2(const struct linear_args *args, int first_tile, int n_tiles) {
    linear_vector(args, first_tile, n_tiles);
}
