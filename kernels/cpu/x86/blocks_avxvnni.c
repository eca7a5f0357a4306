/* kernels/cpu/x86/blocks_avxvnni.c: products with quantised weights for AVX-VNNI; see
 * blocks_vector.h and supers_vector.h.
 */
#include "kernels/cpu/x86/dots_avx2.h"

#include "kernels/cpu/blocks_vector.h"
#include "kernels/cpu/supers_vector.h"

void blocks_avxvnni(const struct block_product *product, int first_tile, int n_tiles) {
    blocks_vector(product, first_tile, n_tiles);
}

void supers_avxvnni(const struct block_product *product, int first_tile, int n_tiles) {
    supers_vector(product, first_tile, n_tiles);
}
