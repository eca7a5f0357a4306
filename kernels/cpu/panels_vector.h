/* kernels/cpu/panels_vector.h: the kernels of panels.h on `struct vec`; include after
 * linear_vector.h. The arithmetic of one element is the same as there. They are for 32 wide
 * registers; with the 16 of AVX2 the copy takes longer than it saves, measured. */
#pragma once

#include "kernels/cpu/linear_vector.h"
#include "kernels/cpu/panel_copy.h"

/* 28 sums, two vectors of weights and one of x. Panels have at least half of PANEL_ROWS. */
enum { PANEL_ROWS = 14, PANEL_TILES = 2, PANEL_SUMS = PANEL_ROWS * PANEL_TILES };

/* Where one kernel instance works. */
struct panel_place {
    struct vector_place at;
    const float *x;    /* the panel */
    const char *ahead; /* what is fetched: `step` bytes more at each depth */
    size_t step;
};

/* One chain of all rows, from depth `first` on, which is 0 or 1. */
ALWAYS_INLINE void sum_chain(struct vec *sums, struct panel_place *place, const int first,
                             const int rows, const int tiles) {
    const struct weight *weight = place->at.a->weight;
    const size_t tile_bytes = packed_tile_bytes(DTYPE_F32, weight->n_in),
                 one_depth = packed_step(DTYPE_F32);
    const char *weights = (const char *)weight->data +
                          packed_tile_start(DTYPE_F32, weight->n_in, place->at.tile),
               *ahead = place->ahead;
    const float *x = place->x;
    struct vec v[PANEL_TILES];
    if (first) weights += one_depth;
    UNROLLED for (int i = 0; i < rows * tiles; i++) sums[i] = vec_zero();
    for (int k = first; k < weight->n_in; k += 2) {
        __builtin_prefetch(ahead, 0, 2);
        ahead += place->step;
        UNROLLED for (int t = 0; t < tiles; t++) v[t] =
            vec_load((const float *)(const void *)(weights + (size_t)t * tile_bytes));
        UNROLLED for (int r = 0; r < rows; r++) {
            struct vec value = vec_set1(x[r]);
            UNROLLED for (int t = 0; t < tiles; t++) sums[r * tiles + t] =
                vec_fma(value, v[t], sums[r * tiles + t]);
        }
        x += rows;
        weights += 2 * one_depth;
    }
    place->ahead = ahead;
    place->x = x;
}

ALWAYS_INLINE void panel_kernel(struct panel_place *place, const int rows, const int tiles) {
    struct vec sums[PANEL_SUMS];
    float even[PANEL_SUMS * TILE_COLUMNS];
    sum_chain(sums, place, 0, rows, tiles);
    UNROLLED for (int i = 0; i < rows * tiles; i++) vec_store(even + i * TILE_COLUMNS, sums[i]);
    sum_chain(sums, place, 1, rows, tiles);
    UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int t = 0; t < tiles; t++) store_sums(
        &place->at, r, t, vec_load(even + (r * tiles + t) * TILE_COLUMNS), sums[r * tiles + t]);
}

ALWAYS_INLINE void panel_tiles(struct panel_place *place, int rows, const int tiles) {
    if (rows == 7) panel_kernel(place, 7, tiles);
    if (rows == 8) panel_kernel(place, 8, tiles);
    if (rows == 9) panel_kernel(place, 9, tiles);
    if (rows == 10) panel_kernel(place, 10, tiles);
    if (rows == 11) panel_kernel(place, 11, tiles);
    if (rows == 12) panel_kernel(place, 12, tiles);
    if (rows == 13) panel_kernel(place, 13, tiles);
    if (rows == 14) panel_kernel(place, 14, tiles);
}

/* Panels [first, end) past some tiles. */
ALWAYS_INLINE void chunk_tiles(const struct panel_product *product, int first, int end, int tile,
                               const int tiles) {
    const struct weight *weight = product->args->weight;
    struct panel_place place = {.at = {.a = product->args, .tile = tile}};
    size_t turn_bytes = (size_t)tiles * packed_tile_bytes(DTYPE_F32, weight->n_in);
    place.ahead =
        (const char *)weight->data + packed_tile_start(DTYPE_F32, weight->n_in, tile) + turn_bytes;
    place.step = (size_t)tiles * packed_step(DTYPE_F32) / (size_t)(end - first);
    for (int panel = first; panel < end; panel++) {
        place.x = panel_data(product, panel);
        place.at.row = panel_start(product, panel);
        panel_tiles(&place, panel_start(product, panel + 1) - place.at.row, tiles);
    }
}

ALWAYS_INLINE void panels_vector(const struct panel_product *product, int first_tile, int n_tiles) {
    const int chunks = (product->panels + PANEL_CHUNK - 1) / PANEL_CHUNK,
              end = first_tile + n_tiles;
    for (int chunk = 0; chunk < chunks; chunk++) {
        int first_panel = product->panels * chunk / chunks,
            end_panel = product->panels * (chunk + 1) / chunks, tile = first_tile;
        for (; tile + PANEL_TILES <= end; tile += PANEL_TILES)
            chunk_tiles(product, first_panel, end_panel, tile, PANEL_TILES);
        if (tile < end) chunk_tiles(product, first_panel, end_panel, tile, 1);
    }
}
