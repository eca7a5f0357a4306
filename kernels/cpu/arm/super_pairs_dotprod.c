/* kernels/cpu/arm/super_pairs_dotprod.c: products of pairs of rows with super-blocks on SDOT; see
 * pair_supers.h. */
#include "kernels/cpu/arm/dots_neon.h"

#include "kernels/cpu/variants.h"

#include "kernels/cpu/arm/pair_supers.h"

void super_pairs_dotprod(const struct pair_product *product, int first_tile, int n_tiles) {
    super_pairs_vector(product, first_tile, n_tiles);
}
