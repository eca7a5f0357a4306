/* kernels/cpu/arm/pairs_dotprod.c: products of pairs of rows with quantised weights on SDOT; see
 * pair_blocks.h. */
#include "kernels/cpu/arm/dots_neon.h"

#include "kernels/cpu/variants.h"

#include "kernels/cpu/arm/pair_blocks.h"

void pairs_dotprod(const struct pair_product *product, int first_tile, int n_tiles) {
    if (dtype_kquant(product->args->weight->dtype))
        super_pairs_dotprod(product, first_tile, n_tiles);
    else
        pairs_vector(product, first_tile, n_tiles);
}
