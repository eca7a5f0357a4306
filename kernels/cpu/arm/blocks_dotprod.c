/* kernels/cpu/arm/blocks_dotprod.c: products of few rows with quantised weights for NEON with SDOT;
 * see few_blocks.h and few_supers.h. */
#include "kernels/cpu/arm/dots_neon.h"

#include "kernels/cpu/arm/few_blocks.h"
#include "kernels/cpu/arm/few_supers.h"
#include "kernels/cpu/variants.h"

void blocks_dotprod(const struct block_product *product, int first_tile, int n_tiles) {
    few_blocks(product, first_tile, n_tiles);
}

void supers_dotprod(const struct block_product *product, int first_tile, int n_tiles) {
    few_supers(product, first_tile, n_tiles);
}
