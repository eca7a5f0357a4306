/* kernels/cpu/x86/linear_avx512.c: the linear kernels for avx512; see linear_vector.h and
 * panels_vector.h. */
#include "kernels/cpu/x86/simd_avx512.h"

#include "kernels/cpu/linear_vector.h"
#include "kernels/cpu/panels_vector.h"
#include "kernels/cpu/variants.h"

void linear_avx512(const struct linear_args *args, int first_tile, int n_tiles) {
    linear_vector(args, first_tile, n_tiles);
}

void panel_avx512(const struct panel_product *product, int panel) { panel_vector(product, panel); }
void panels_avx512(const struct panel_product *product, int first_tile, int n_tiles) {
    panels_vector(product, first_tile, n_tiles);
}
