/* kernels/cpu/panels.h: products of many rows with f32 weights: what linear.c and the variants
 * share.
 *
 * Rows are copied first, for all output columns at once, to panels: up to `panel_rows` rows of the
 * variant, depth after depth, all even depths before all odd ones: [chain][depth][rows]. A kernel
 * holds one chain of sums of a panel's rows and some tiles in registers; it reads the panel as one
 * stream, and a load serves as many sums as there are registers. Measured on Zen 5, the kernel
 * alone reaches 99 % of the peak of FMA, and 93 % with weights that come from memory. */
#pragma once

#include "kernels/cpu/cpu.h"

/* Panels of a chunk: what the tiles of a turn pass over while they are in cache, and the next tiles
 * are fetched. */
enum { PANEL_CHUNK = 8 };

/* A product whose rows were copied. */
struct panel_product {
    const struct linear_args *args;
    float *data; /* panel after panel, [args->x.rows][n_in] floats in all */
    int panels;
};

/* The first row of a panel; panels, and chunks of them, are equal but for one. */
static inline int panel_start(const struct panel_product *product, int panel) {
    return (int)((int64_t)product->args->x.rows * panel / product->panels);
}
static inline float *panel_data(const struct panel_product *product, int panel) {
    return product->data +
           (size_t)panel_start(product, panel) * (size_t)product->args->weight->n_in;
}
