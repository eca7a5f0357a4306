/* kernels/cpu/supers_vector.h: products with Q4_K, Q5_K and Q6_K weights as blocks.h states them; include after a dots
 * header and blocks_vector.h.
 *
 * A few super-blocks of one or two strips are taken apart into a panel that the first-level cache holds: a byte for
 * each weight, an f32 for each scale. All rows then pass over the panel, so taking apart costs little where rows are
 * many, and where they are few it is done while memory is slower. Sums of a row wait in y from one panel to the next,
 * so they are one chain whatever the panel's size is. */
#pragma once

#include "kernels/cpu/variants.h"

enum { PANEL_SUPERS = 4, PANEL_STRIPS = 2, SUPER_QUADS = SUPER_BLOCK / QUAD };

/* Lanes of 32 bits, for the compiler's own operators. */
typedef uint32_t words_of __attribute__((vector_size(LANES * QUAD), may_alias));
typedef int32_t whole_of __attribute__((vector_size(LANES * QUAD), may_alias));
typedef float float_of __attribute__((vector_size(LANES * QUAD), may_alias));

/* One super-block of one strip. */
struct panel_super {
    _Alignas(64) uint8_t values[SUPER_QUADS][STRIP_BYTES];
    float_of scales[SUPER_PARTS]; /* d s */
    words_of minimums[4];         /* m of parts 0 and 2, 1 and 3, 4 and 6, 5 and 7 as 16 bits each */
    float_of minimum_scale;       /* -dmin */
};

struct super_panel {
    struct panel_super at[PANEL_SUPERS][PANEL_STRIPS];
};

/* What one turn works on: strips from `strip` on, super-blocks [first, first + supers). */
struct super_turn {
    const struct block_product *product;
    const struct super_panel *panel;
    int strip, first, supers;
    bool last;
};

ALWAYS_INLINE words_of words_load(const uint8_t *line) { return (words_of)load_quads(line); }

ALWAYS_INLINE void panel_store(struct panel_super *to, int quad, words_of v) { memcpy(to->values[quad], &v, sizeof v); }

/* Byte i of each lane. */
ALWAYS_INLINE words_of byte_of(words_of v, int i) { return (v >> (8 * i)) & 255u; }

/* `lines` are the strip's part of the lines before the values. */
ALWAYS_INLINE void scales_unpack(struct panel_super *to, const uint8_t *lines, const uint16_t *d,
                                 const enum dtype dtype) {
    float_of scale = (float_of)floats_load_f16(d).v;
    if (dtype == DTYPE_Q6_K) {
        for (int line = 0; line < 4; line++) {
            whole_of v = (whole_of)words_load(lines + line * LINE_BYTES);
            for (int i = 0; i < QUAD; i++)
                to->scales[line * QUAD + i] = scale * __builtin_convertvector(v << (24 - 8 * i) >> 24, float_of);
        }
        return;
    }
    words_of first = words_load(lines), second = words_load(lines + LINE_BYTES);
    words_of third = words_load(lines + 2 * LINE_BYTES), minimums = third & 0x3f3f3f3fu;
    words_of others = (first >> 6 & 0x03030303u) | (second >> 4 & 0x0c0c0c0cu) | (third >> 2 & 0x30303030u);
    first &= 0x3f3f3f3fu;
    second &= 0x3f3f3f3fu;
    for (int i = 0; i < QUAD; i++) {
        to->scales[i] = scale * __builtin_convertvector((whole_of)byte_of(first, i), float_of);
        to->scales[QUAD + i] = scale * __builtin_convertvector((whole_of)byte_of(second, i), float_of);
    }
    to->minimums[0] = minimums & 0x00ff00ffu;
    to->minimums[1] = minimums >> 8 & 0x00ff00ffu;
    to->minimums[2] = others & 0x00ff00ffu;
    to->minimums[3] = others >> 8 & 0x00ff00ffu;
    to->minimum_scale = -(float_of)floats_load_f16(d + TILE_COLUMNS).v;
}

/* The upper bits of quads `quad` and `quad` + 4, where nibbles leave room for them. */
ALWAYS_INLINE void upper_unpack(words_of *low, words_of *high, const uint8_t *upper, int quad, const enum dtype dtype) {
    if (dtype == DTYPE_Q5_K) {
        words_of bits = words_load(upper);
        *low |= bits << (4 - quad) & 0x10101010u;
        *high |= bits >> quad & 0x10101010u;
    }
    if (dtype == DTYPE_Q6_K) {
        words_of bits = words_load(upper + quad / 2 * LINE_BYTES);
        *low |= (quad % 2 ? bits : bits << 4) & 0x30303030u;
        *high |= (quad % 2 ? bits >> 2 : bits << 2) & 0x30303030u;
    }
}

/* `packed` is the tile's super-block, `half` which strip of the tile it is; what lies `ahead` is fetched. */
ALWAYS_INLINE void super_unpack(struct panel_super *to, const uint8_t *packed, int half, size_t ahead,
                                const enum dtype dtype) {
    const int lines = super_block_lines(dtype);
    for (int i = 0; i < super_head_lines(dtype); i++)
        _mm_prefetch((const char *)packed + ahead + i * LINE_BYTES, _MM_HINT_T0);
    scales_unpack(to, packed + LINE_BYTES + half * STRIP_BYTES, (const uint16_t *)(const void *)packed + half * LANES,
                  dtype);
    packed += super_head_lines(dtype) * LINE_BYTES + half * STRIP_BYTES;
    for (int b = 0; b < SUPER_BLOCKS; b++, packed += lines * LINE_BYTES) {
        for (int i = 0; i < lines; i++) _mm_prefetch((const char *)packed + ahead + i * LINE_BYTES, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int i = 0; i < BLOCK_QUADS / 2; i++) {
            words_of both = words_load(packed + i * LINE_BYTES);
            words_of low = both & 0x0f0f0f0fu, high = both >> 4 & 0x0f0f0f0fu;
            upper_unpack(&low, &high, packed + BLOCK_QUADS / 2 * LINE_BYTES, i, dtype);
            panel_store(to, b * BLOCK_QUADS + i, low);
            panel_store(to, b * BLOCK_QUADS + i + BLOCK_QUADS / 2, high);
        }
    }
}

/* Sums of a kernel's rows over one super-block, [row][strip]. */
struct super_sums {
    struct floats inner[DOT_SUMS];
    struct ints part[DOT_SUMS];
};

/* inner = what the minimums bring. */
ALWAYS_INLINE void sums_begin(struct super_sums *sums, const struct super_input *x, const struct panel_super *w,
                              const int rows, const int strips, const enum dtype dtype) {
    for (int i = 0; i < rows * strips; i++) sums->inner[i] = floats_zero();
    if (dtype == DTYPE_Q6_K) return;
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < strips; s++) {
            struct ints sum = ints_zero();
            for (int i = 0; i < 4; i++) sum = pairs_add(sum, (__typeof__(sum.v))w[s].minimums[i], x[r].sums + 2 * i);
            struct floats scale = {(__typeof__(scale.v))w[s].minimum_scale};
            sums->inner[r * strips + s] = floats_mul(scale, floats_of(sum));
        }
}

/* Part p: its integers are summed as far as bytes_add allows, then widened, and enter inner. */
ALWAYS_INLINE void sums_add_part(struct super_sums *sums, const struct super_input *x, const struct panel_super *w,
                                 int p, const int rows, const int strips, const enum dtype dtype) {
    const int quads = super_part(dtype) / QUAD, together = min_int(quads, bytes_together(dtype));
    struct ints near[DOT_SUMS];
    for (int i = 0; i < rows * strips; i++)
        sums->part[i] = dtype == DTYPE_Q6_K ? ints_set1(x[i / strips].offsets[p]) : ints_zero();
#pragma GCC unroll 4
    for (int first = 0; first < quads; first += together) {
        for (int i = 0; i < rows * strips; i++) near[i] = bytes_begin(sums->part[i]);
#pragma GCC unroll 8
        for (int quad = p * quads + first; quad < p * quads + first + together; quad++)
            for (int s = 0; s < strips; s++) {
                __typeof__(load_quads(NULL)) values = load_quads(w[s].values[quad]);
                for (int r = 0; r < rows; r++)
                    near[r * strips + s] = int4_add(near[r * strips + s], values, x[r].q + quad * QUAD);
            }
        for (int i = 0; i < rows * strips; i++) sums->part[i] = bytes_end(sums->part[i], near[i]);
    }
    for (int s = 0; s < strips; s++) {
        struct floats scale = {(__typeof__(scale.v))w[s].scales[p]};
        for (int i = s; i < rows * strips; i += strips)
            sums->inner[i] = floats_fma(scale, floats_of(sums->part[i]), sums->inner[i]);
    }
}

/* The group of rows from `row` on passes over the panel. */
ALWAYS_INLINE void super_kernel(const struct super_turn *t, int row, const int rows, const int strips,
                                const enum dtype dtype) {
    const struct linear_args *a = t->product->args;
    const struct super_input *x = group_super(t->product, row) + (size_t)t->first * rows;
    struct floats totals[DOT_SUMS];
    int n[PANEL_STRIPS];
    for (int s = 0; s < strips; s++) n[s] = max_int(0, min_int(LANES, a->weight->n_out - (t->strip + s) * LANES));
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < strips; s++) {
            const float *y = row_f32(a->y, row + r) + (t->strip + s) * LANES;
            totals[r * strips + s] = t->first == 0 ? floats_zero() : floats_load_n(y, n[s]);
        }
    for (int i = 0; i < t->supers; i++, x += rows) {
        const struct panel_super *w = t->panel->at[i];
        struct super_sums sums;
        sums_begin(&sums, x, w, rows, strips, dtype);
        for (int p = 0; p < SUPER_BLOCK / super_part(dtype); p++) sums_add_part(&sums, x, w, p, rows, strips, dtype);
        for (int r = 0; r < rows; r++)
            for (int s = 0; s < strips; s++) {
                struct floats *total = &totals[r * strips + s];
                *total = floats_fma(floats_set1(x[r].scale), sums.inner[r * strips + s], *total);
            }
    }
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < strips; s++) {
            int column = (t->strip + s) * LANES;
            const float *bias = a->bias == NULL || !t->last ? NULL : a->bias + column;
            floats_store(row_f32(a->y, row + r) + column, totals[r * strips + s], bias, n[s]);
        }
}

ALWAYS_INLINE void super_rows(const struct super_turn *t, int row, int rows, const int strips, const enum dtype dtype) {
    if (rows == 1 && strips <= DOT_SUMS) super_kernel(t, row, 1, strips, dtype);
    if (rows == 2 && 2 * strips <= DOT_SUMS) super_kernel(t, row, 2, strips, dtype);
    if (rows == 3 && 3 * strips <= DOT_SUMS) super_kernel(t, row, 3, strips, dtype);
    if (rows == 4 && 4 * strips <= DOT_SUMS) super_kernel(t, row, 4, strips, dtype);
    if (rows == 5 && 5 * strips <= DOT_SUMS) super_kernel(t, row, 5, strips, dtype);
    if (rows == 6 && 6 * strips <= DOT_SUMS) super_kernel(t, row, 6, strips, dtype);
}

/* All super-blocks of some strips, a panel at a time. */
ALWAYS_INLINE void strips_multiply(const struct block_product *p, struct super_panel *panel, int strip,
                                   const int strips, const enum dtype dtype) {
    const struct weight *w = p->args->weight;
    const int supers = w->n_in / SUPER_BLOCK, rows = p->args->x.rows;
    const int most = rows <= FEW_ROWS ? 1 : PANEL_SUPERS;
    struct super_turn t = {.product = p, .panel = panel, .strip = strip};
    for (; t.first < supers; t.first += most) {
        t.supers = min_int(most, supers - t.first);
        t.last = t.first + t.supers == supers;
        for (int i = 0; i < t.supers; i++)
            for (int s = 0; s < strips; s++) {
                int at = strip + s;
                const uint8_t *packed = packed_super(w, at / TILE_STRIPS, (size_t)(t.first + i));
                super_unpack(&panel->at[i][s], packed, at % TILE_STRIPS, FETCH_AHEAD, dtype);
            }
        for (int row = 0; row < rows; row += p->group) super_rows(&t, row, group_rows(p, row), strips, dtype);
    }
}

ALWAYS_INLINE void supers_of(const struct block_product *p, int first_tile, int n_tiles, const enum dtype dtype) {
    struct super_panel panel;
    int end = (first_tile + n_tiles) * TILE_STRIPS, most = DOT_SUMS / INPUT_ROWS;
    if (p->args->x.rows <= FEW_ROWS) most = TILE_STRIPS * p->group <= DOT_SUMS ? TILE_STRIPS : 1;
    for (int strip = first_tile * TILE_STRIPS, strips; strip < end; strip += strips) {
        strips = min_int(most, end - strip);
        if (strips == 2)
            strips_multiply(p, &panel, strip, 2, dtype);
        else
            strips_multiply(p, &panel, strip, 1, dtype);
    }
}

ALWAYS_INLINE void supers_vector(const struct block_product *p, int first_tile, int n_tiles) {
    switch (p->args->weight->dtype) {
        case DTYPE_Q4_K: supers_of(p, first_tile, n_tiles, DTYPE_Q4_K); break;
        case DTYPE_Q5_K: supers_of(p, first_tile, n_tiles, DTYPE_Q5_K); break;
        case DTYPE_Q6_K: supers_of(p, first_tile, n_tiles, DTYPE_Q6_K); break;
        default: break; /* blocks_vector.h and linear_vector.h */
    }
}
