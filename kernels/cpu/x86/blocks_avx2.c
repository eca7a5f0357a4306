/* kernels/cpu/x86/blocks_avx2.c: products with quantised weights for avx2; see blocks_vector.h and
 * supers_vector.h. */
#include "kernels/cpu/x86/dots_avx2.h"

#include "kernels/cpu/blocks_vector.h"
#include "kernels/cpu/supers_vector.h"

void blocks_avx2(const struct block_product *product, int first_tile, int n_tiles) {
    blocks_vector(product, first_tile, n_tiles);
}

void supers_avx2(const struct block_product *product, int first_tile, int n_tiles) {
    supers_vector(product, first_tile, n_tiles);
}
