/* kernels/cpu/x86/blocks_avx512vnni.c: products with quantised weights for AVX-512 VNNI; see
 * blocks_vector.h and supers_vector.h. */
#include "kernels/cpu/x86/dots_avx512.h"

#include "kernels/cpu/blocks_vector.h"
#include "kernels/cpu/supers_vector.h"

BLOCK_KERNELS(int4_powers, DTYPE_INT4, true)

void blocks_avx512vnni(const struct block_product *product, int first_tile, int n_tiles) {
    if (product->args->weight->dtype == DTYPE_INT4 && __builtin_cpu_is("amd"))
        tiles_pass(product, first_tile, n_tiles, int4_powers_kernels);
    else
        blocks_vector(product, first_tile, n_tiles);
}

void supers_avx512vnni(const struct block_product *product, int first_tile, int n_tiles) {
    supers_vector(product, first_tile, n_tiles);
}
