/* retro/model/grid.h: the chunk grid of a growing sequence (docs/spec/retro-model.md 11.7, 11.8).
 * Pure arithmetic.
 *
 * With m the chunk length and f the first, short chunk: chunk 0 is rows [0, f'), f' = f or m when f
 * is 0; chunk j >= 1 is rows [f' + (j-1) m, f' + j m). Row p closes chunk j when p + 1 is that
 * chunk's end, and reads the neighbours of chunk floor((p + 1 - f') / m): the closing row already
 * reads the chunk it closes. Rows before the first closing read none. */
#pragma once

enum grid_mode {
    GRID_END,  /* f = P mod m: the prompt's end is a chunk end, so any prompt retrieves (default) */
    GRID_START /* f = 0: chunks from row 0, DeepMind's layout */
};

struct grid {
    int m; /* chunk length */
    int f; /* rows of chunk 0, 1..m */
};

static inline struct grid grid_make(enum grid_mode mode, int prompt_length, int m) {
    int f = mode == GRID_END ? prompt_length % m : 0;
    return (struct grid){.m = m, .f = f ? f : m};
}
/* First row of chunk j, and one past its last. */
static inline int grid_start(struct grid grid, int j) {
    return j == 0 ? 0 : grid.f + (j - 1) * grid.m;
}
static inline int grid_end(struct grid grid, int j) { return grid.f + j * grid.m; }
/* Chunks that are complete when the sequence has n rows. */
static inline int grid_complete(struct grid grid, int n) {
    return n < grid.f ? 0 : 1 + (n - grid.f) / grid.m;
}
/* The chunk whose neighbours row p reads, or -1. */
static inline int grid_read(struct grid grid, int p) { return grid_complete(grid, p + 1) - 1; }
/* Whether row p closes a chunk (grid_read gives which). */
static inline int grid_closes(struct grid grid, int p) {
    return p + 1 >= grid.f && (p + 1 - grid.f) % grid.m == 0;
}
