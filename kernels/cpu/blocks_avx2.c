/* kernels/cpu/blocks_avx2.c: int8 and int4 products for avx2; see blocks_vector.h. */
#include "kernels/cpu/dots_avx2.h"

#include "kernels/cpu/blocks_vector.h"

void blocks_avx2(const struct block_product *p, int first_tile, int n_tiles) { blocks_vector(p, first_tile, n_tiles); }
