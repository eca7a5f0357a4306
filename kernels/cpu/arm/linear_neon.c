/* kernels/cpu/arm/linear_neon.c: the linear kernels for NEON; see linear_vector.h. */
#include "kernels/cpu/arm/simd_neon.h"

#include "kernels/cpu/linear_vector.h"
#include "kernels/cpu/variants.h"

void linear_neon(const struct linear_args *args, int first_tile, int n_tiles) {
    linear_vector(args, first_tile, n_tiles);
}
