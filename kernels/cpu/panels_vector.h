/* kernels/cpu/panels_vector.h: the kernels of panels.h on `struct vec`; include after linear_vector.h. The arithmetic
 * of one element is the same as there. They are for 32 wide registers; with the 16 of AVX2 the copy takes longer than
 * it saves, measured. */
#pragma once

#include "kernels/cpu/linear_vector.h"
#include "kernels/cpu/panels.h"

/* 28 sums, two vectors of weights and one of x. Panels have at least half of PANEL_ROWS. */
enum { PANEL_ROWS = 14, PANEL_TILES = 2, PANEL_SUMS = PANEL_ROWS * PANEL_TILES };

/* A loop that must vanish: only then are its sums registers. */
#ifdef __clang__
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 32")
#endif

/* Where one kernel instance works. */
struct panel_place {
    struct vector_place at;
    const float *x;    /* the panel */
    const char *ahead; /* what is fetched: `step` bytes more at each depth */
    size_t step;
};

/* One chain of all rows, from depth `first` on, which is 0 or 1. */
ALWAYS_INLINE void sum_chain(struct vec *sums, struct panel_place *p, const int first, const int rows,
                             const int tiles) {
    const struct weight *w = p->at.a->weight;
    const size_t tile_bytes = packed_tile_bytes(DTYPE_F32, w->n_in), one_depth = packed_step(DTYPE_F32);
    const char *weights = (const char *)w->data + packed_tile_start(DTYPE_F32, w->n_in, p->at.tile), *ahead = p->ahead;
    const float *x = p->x;
    struct vec v[PANEL_TILES];
    if (first) weights += one_depth;
    UNROLLED for (int i = 0; i < rows * tiles; i++) sums[i] = vec_zero();
    for (int k = first; k < w->n_in; k += 2) {
        _mm_prefetch(ahead, _MM_HINT_T1);
        ahead += p->step;
        UNROLLED for (int t = 0; t < tiles; t++) v[t] =
            vec_load((const float *)(const void *)(weights + (size_t)t * tile_bytes));
        UNROLLED for (int r = 0; r < rows; r++) {
            struct vec value = vec_set1(x[r]);
            UNROLLED for (int t = 0; t < tiles; t++) sums[r * tiles + t] = vec_fma(value, v[t], sums[r * tiles + t]);
        }
        x += rows;
        weights += 2 * one_depth;
    }
    p->ahead = ahead;
    p->x = x;
}

ALWAYS_INLINE void panel_kernel(struct panel_place *p, const int rows, const int tiles) {
    struct vec sums[PANEL_SUMS];
    float even[PANEL_SUMS * TILE_COLUMNS];
    sum_chain(sums, p, 0, rows, tiles);
    UNROLLED for (int i = 0; i < rows * tiles; i++) vec_store(even + i * TILE_COLUMNS, sums[i]);
    sum_chain(sums, p, 1, rows, tiles);
    UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int t = 0; t < tiles; t++)
        store_sums(&p->at, r, t, vec_load(even + (r * tiles + t) * TILE_COLUMNS), sums[r * tiles + t]);
}

ALWAYS_INLINE void panel_tiles(struct panel_place *p, int rows, const int tiles) {
    if (rows == 7) panel_kernel(p, 7, tiles);
    if (rows == 8) panel_kernel(p, 8, tiles);
    if (rows == 9) panel_kernel(p, 9, tiles);
    if (rows == 10) panel_kernel(p, 10, tiles);
    if (rows == 11) panel_kernel(p, 11, tiles);
    if (rows == 12) panel_kernel(p, 12, tiles);
    if (rows == 13) panel_kernel(p, 13, tiles);
    if (rows == 14) panel_kernel(p, 14, tiles);
}

/* Panels [first, end) past some tiles. */
ALWAYS_INLINE void chunk_tiles(const struct panel_product *p, int first, int end, int tile, const int tiles) {
    const struct weight *w = p->args->weight;
    struct panel_place place = {.at = {.a = p->args, .tile = tile}};
    size_t turn_bytes = (size_t)tiles * packed_tile_bytes(DTYPE_F32, w->n_in);
    place.ahead = (const char *)w->data + packed_tile_start(DTYPE_F32, w->n_in, tile) + turn_bytes;
    place.step = (size_t)tiles * packed_step(DTYPE_F32) / (size_t)(end - first);
    for (int panel = first; panel < end; panel++) {
        place.x = panel_data(p, panel);
        place.at.row = panel_start(p, panel);
        panel_tiles(&place, panel_start(p, panel + 1) - place.at.row, tiles);
    }
}

ALWAYS_INLINE void panels_vector(const struct panel_product *p, int first_tile, int n_tiles) {
    const int chunks = (p->panels + PANEL_CHUNK - 1) / PANEL_CHUNK, end = first_tile + n_tiles;
    for (int chunk = 0; chunk < chunks; chunk++) {
        int first_panel = p->panels * chunk / chunks, end_panel = p->panels * (chunk + 1) / chunks, tile = first_tile;
        for (; tile + PANEL_TILES <= end; tile += PANEL_TILES)
            chunk_tiles(p, first_panel, end_panel, tile, PANEL_TILES);
        if (tile < end) chunk_tiles(p, first_panel, end_panel, tile, 1);
    }
}

/* Where a panel's copy goes: from one depth to the next of its chain are `rows` floats, from chain to chain `odd`. */
struct panel_copy {
    float *to;
    size_t odd;
    const float *from; /* the first row */
    int64_t apart;     /* floats from a row to the next */
    int rows, n;       /* n: depths */
};

ALWAYS_INLINE float *copied_depth(const struct panel_copy *c, int k) {
    return c->to + (k & 1 ? c->odd : 0) + (size_t)(k / 2 * c->rows);
}

/* Depths from `first` on, one by one. */
ALWAYS_INLINE void copy_depths(const struct panel_copy *c, int first) {
    for (int k = first; k < c->n; k++) {
        float *to = copied_depth(c, k);
        for (int r = 0; r < c->rows; r++) to[r] = c->from[r * c->apart + k];
    }
}

/* Sixteen depths from k on. Each is written as a whole vector, whose end the next of its chain cover again: two of at
 * least seven rows each. */
ALWAYS_INLINE void turn_depths(const struct panel_copy *c, int k) {
    float turned[TILE_COLUMNS * TILE_COLUMNS];
    for (int r = 0; r < c->rows; r++) _mm_prefetch((const char *)(c->from + r * c->apart + k + 128), _MM_HINT_T1);
    vec_turn(turned, c->from + k, c->apart, c->rows);
    for (int i = 0; i < TILE_COLUMNS; i++) vec_store(copied_depth(c, k + i), vec_load(turned + i * TILE_COLUMNS));
}

/* One panel, in squares of sixteen. */
ALWAYS_INLINE void panel_vector(const struct panel_product *p, int panel) {
    const struct tensor x = p->args->x;
    struct panel_copy c = {.to = panel_data(p, panel), .n = p->args->weight->n_in, .apart = x.stride};
    int row = panel_start(p, panel), k = 0;
    c.rows = panel_start(p, panel + 1) - row;
    c.from = row_f32(x, row);
    c.odd = (size_t)((c.n + 1) / 2 * c.rows);
    for (; k + TILE_COLUMNS + 4 <= c.n; k += TILE_COLUMNS) turn_depths(&c, k);
    copy_depths(&c, k);
}
