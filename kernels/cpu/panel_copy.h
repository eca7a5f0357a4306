/* kernels/cpu/panel_copy.h: rows copied to a panel (panels.h) on `struct vec`; include after a simd
 * header. */
#pragma once

#include "kernels/cpu/panels.h"

/* Where a panel's copy goes: from one depth to the next of its chain are `rows` floats, from chain
 * to chain `odd`. */
struct panel_copy {
    float *to;
    size_t odd;
    const float *from; /* the first row */
    int64_t apart;     /* floats from a row to the next */
    int rows, n;       /* n: depths */
};

ALWAYS_INLINE float *copied_depth(const struct panel_copy *copy, int k) {
    return copy->to + (k & 1 ? copy->odd : 0) + (size_t)(k / 2 * copy->rows);
}

/* Depths from `first` on, one by one. */
ALWAYS_INLINE void copy_depths(const struct panel_copy *copy, int first) {
    for (int k = first; k < copy->n; k++) {
        float *to = copied_depth(copy, k);
        for (int r = 0; r < copy->rows; r++) to[r] = copy->from[r * copy->apart + k];
    }
}

/* Sixteen depths from k on. Each is written as a whole vector, whose end the next of its chain
 * cover again: two of at least six rows each. */
ALWAYS_INLINE void turn_depths(const struct panel_copy *copy, int k) {
    float turned[TILE_COLUMNS * TILE_COLUMNS];
    for (int r = 0; r < copy->rows; r++)
        __builtin_prefetch((const char *)(copy->from + r * copy->apart + k + 128), 0, 2);
    vec_turn(turned, copy->from + k, copy->apart, copy->rows);
    for (int i = 0; i < TILE_COLUMNS; i++)
        vec_store(copied_depth(copy, k + i), vec_load(turned + i * TILE_COLUMNS));
}

/* One panel, in squares of sixteen. */
ALWAYS_INLINE void panel_vector(const struct panel_product *product, int panel) {
    const struct tensor x = product->args->x;
    struct panel_copy copy = {
        .to = panel_data(product, panel), .n = product->args->weight->n_in, .apart = x.stride};
    int row = panel_start(product, panel), k = 0;
    copy.rows = panel_start(product, panel + 1) - row;
    copy.from = row_f32(x, row);
    copy.odd = (size_t)((copy.n + 1) / 2 * copy.rows);
    for (; k + TILE_COLUMNS + 4 <= copy.n; k += TILE_COLUMNS) turn_depths(&copy, k);
    copy_depths(&copy, k);
}
