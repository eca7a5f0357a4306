/* kernels/cpu/arm/blocks_neon.c: products with quantised weights for NEON; see blocks_vector.h
 * and supers_vector.h. */
#include "kernels/cpu/arm/dots_neon.h"

#include "kernels/cpu/blocks_vector.h"
#include "kernels/cpu/supers_vector.h"

void blocks_neon(const struct block_product *product, int first_tile, int n_tiles) {
    blocks_vector(product, first_tile, n_tiles);
}

void supers_neon(const struct block_product *product, int first_tile, int n_tiles) {
    supers_vector(product, first_tile, n_tiles);
}
