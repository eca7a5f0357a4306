/* kernels/cpu/supers_vector.h: products with Q4_K, Q5_K and Q6_K weights as blocks.h states them;
 * include after a dots header and blocks_vector.h.
 *
 * A few super-blocks of one or two strips are taken apart into a panel that the first-level cache
 * holds: an f32 for each scale and, where more than DIRECT_ROWS rows pass over it, a byte for each
 * weight; fewer rows take the weights apart in registers. Sums of a row wait in y from one panel to
 * the next, so they are one chain whatever the panel's size is. */
#pragma once

#include "kernels/cpu/supers_unpack.h"
#include "kernels/cpu/variants.h"

enum {
    PANEL_SUPERS = 4,
    PANEL_STRIPS = 2,
    DIRECT_ROWS = 24,
    PASS_STRIPS = DOT_SUMS / INPUT_ROWS,
    FEW_STRIPS = TILE_STRIPS < PANEL_STRIPS ? TILE_STRIPS : PANEL_STRIPS /* of few rows */
};

struct super_panel {
    struct panel_super at[PANEL_SUPERS][PANEL_STRIPS];
};

/* The work of one turn: strips from `strip` on, super-blocks [first, first + supers). */
struct super_turn {
    const struct block_product *product;
    const struct super_panel *panel;
    int strip, first, supers;
    bool last, direct; /* direct: the panel holds scales only */
    /* The weights to be fetched meanwhile: while the groups of rows pass over super-block i of the
     * turn, the super-block i places behind `next` is fetched, in each of `tiles` tiles. Each part
     * fetches `share` / 2^16 of its lines. */
    const uint8_t *next;
    uint32_t share;
    int tiles;
};

/* Strip s of super-block i of the turn. */
ALWAYS_INLINE const uint8_t *turn_packed(const struct super_turn *turn, int i, int s) {
    const int strip = turn->strip + s;
    return packed_super(turn->product->args->weight, strip / TILE_STRIPS,
                        (size_t)(turn->first + i)) +
           strip % TILE_STRIPS * STRIP_BYTES;
}

ALWAYS_INLINE void stream_fetch(const uint8_t *from, const int lines) {
    for (int i = 0; i < lines; i++)
        __builtin_prefetch((const char *)from + FETCH_AHEAD + i * LINE_BYTES, 0, 3);
}

/* `packed` is the tile's super-block, `half` which strip of the tile it is. */
ALWAYS_INLINE void super_unpack(struct panel_super *to, const uint8_t *packed, int half,
                                const bool direct, const enum dtype dtype) {
    stream_fetch(packed, super_head_lines(dtype));
    const uint8_t *values = packed + super_head_lines(dtype) * LINE_BYTES + half * STRIP_BYTES;
    scales_unpack(to, packed + LINE_BYTES + half * STRIP_BYTES,
                  (const uint16_t *)(const void *)packed + half * LANES, dtype);
    if (direct) return;
    for (int b = 0; b < SUPER_BLOCKS; b++, values += super_block_lines(dtype) * LINE_BYTES) {
#pragma GCC unroll 8
        for (int i = 0; i < BLOCK_QUADS; i++) {
            words_of v = quad_unpack(values, i, dtype);
            memcpy(to->values[b][i], &v, sizeof v);
        }
    }
}

/* Where a kernel is: a block of 32 columns, which has one part, in Q6_K two. */
struct super_at {
    const struct super_input *x;
    const struct panel_super *w; /* [strip] */
    const uint8_t
        *packed[PANEL_STRIPS]; /* the lines of the block's values, where they are read directly */
    int block;
};

/* The compile-time constants of a kernel. */
struct super_form {
    int rows, strips;
    enum dtype dtype;
    bool direct;
};

/* The share of the minimums in the sums, [row][strip]. */
ALWAYS_INLINE void inner_begin(struct floats *inner, const struct super_at *at, const int rows,
                               const int strips, const enum dtype dtype) {
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < strips; s++) {
            struct ints sum = ints_zero();
            inner[r * strips + s] = floats_zero();
            if (dtype == DTYPE_Q6_K) continue;
            for (int i = 0; i < 4; i++)
                sum =
                    pairs_add(sum, (__typeof__(sum.v))at->w[s].minimums[i], at->x[r].sums + 2 * i);
            struct floats scale = {(__typeof__(scale.v))at->w[s].minimum_scale};
            inner[r * strips + s] = floats_mul(scale, floats_of(sum));
        }
}

/* sums += the products of quads [first, end) of the block. */
ALWAYS_INLINE void quads_add(struct ints *sums, const struct super_at *at, const int first,
                             const int end, const struct super_form form) {
    const int rows = form.rows, strips = form.strips;
    __typeof__(load_quads(NULL)) w[PANEL_STRIPS];
#pragma GCC unroll 8
    for (int quad = first; quad < end; quad++) {
        for (int s = 0; s < strips; s++)
            w[s] = form.direct ? (__typeof__(w[s]))quad_unpack(at->packed[s], quad, form.dtype)
                               : load_quads(at->w[s].values[at->block][quad]);
        for (int r = 0; r < rows; r++)
            for (int s = 0; s < strips; s++)
                sums[r * strips + s] =
                    int4_add(sums[r * strips + s], w[s],
                             at->x[r].q + at->block * QUANTISE_BLOCK + quad * QUAD);
    }
}

/* Part `part` of the block: integers, of which `together` quads are summed in narrow ones where the
 * variant has those, and then their scales. */
ALWAYS_INLINE void part_add(struct floats *inner, const struct super_at *at, const int part,
                            const struct super_form form) {
    const int rows = form.rows, strips = form.strips;
    const enum dtype dtype = form.dtype;
    const int quads = super_part(dtype) / QUAD, together = min_int(quads, bytes_together(dtype));
    const int place = at->block * (BLOCK_QUADS / quads) + part;
    struct ints sums[DOT_SUMS];
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < strips; s++)
            sums[r * strips + s] =
                dtype == DTYPE_Q6_K ? ints_set1(at->x[r].offsets[place]) : ints_zero();
#pragma GCC unroll 4
    for (int first = part * quads; first < (part + 1) * quads; first += together) {
        struct ints near[DOT_SUMS];
        for (int i = 0; i < rows * strips; i++) near[i] = bytes_begin(sums[i]);
        quads_add(near, at, first, first + together, form);
        for (int i = 0; i < rows * strips; i++) sums[i] = bytes_end(sums[i], near[i]);
    }
    for (int s = 0; s < strips; s++) {
        struct floats scale = {(__typeof__(scale.v))at->w[s].scales[place]};
        for (int r = 0; r < rows; r++) {
            struct floats *sum = &inner[r * strips + s];
            *sum = floats_fma(scale, floats_of(sums[r * strips + s]), *sum);
        }
    }
}

/* Fetches the share of visit number `visit` of the super-block i places behind `next`. */
ALWAYS_INLINE void lines_fetch(const struct super_turn *turn, int i, int visit,
                               const enum dtype dtype) {
    const uint32_t first = (uint32_t)visit * turn->share >> 16,
                   end = (uint32_t)(visit + 1) * turn->share >> 16;
    const size_t tile_bytes = packed_tile_bytes(dtype, turn->product->args->weight->n_in);
    const char *from = (const char *)turn->next + (size_t)i * packed_super_bytes(dtype);
    for (int tile = 0; tile < turn->tiles; tile++, from += tile_bytes)
        for (uint32_t line = first; line < end; line++)
            __builtin_prefetch(from + line * LINE_BYTES, 0, 2);
}

/* inner = what super-block i of the turn brings before the scale of the input. */
ALWAYS_INLINE void super_multiply(struct floats *inner, const struct super_turn *turn,
                                  const struct super_input *input, int i, int group,
                                  const struct super_form form) {
    const int strips = form.strips;
    const enum dtype dtype = form.dtype;
    const bool direct = form.direct;
    const int parts = QUANTISE_BLOCK / super_part(dtype),
              step = super_block_lines(dtype) * LINE_BYTES;
    const bool stream = form.rows <= FEW_ROWS && strips == TILE_STRIPS;
    struct super_at at = {.x = input, .w = turn->panel->at[i], .packed = {NULL}};
    for (int s = 0; s < strips && direct; s++)
        at.packed[s] = turn_packed(turn, i, s) + super_head_lines(dtype) * LINE_BYTES;
    inner_begin(inner, &at, form.rows, strips, dtype);
    for (at.block = 0; at.block < SUPER_BLOCKS; at.block++) {
        if (stream)
            stream_fetch(at.packed[0], super_block_lines(dtype));
        else
            lines_fetch(turn, i, group * SUPER_BLOCKS + at.block, dtype);
        part_add(inner, &at, 0, form);
        if (parts == 2) part_add(inner, &at, 1, form);
        for (int s = 0; s < strips && direct; s++) at.packed[s] += step;
    }
}

/* The group of rows from `row` on passes over the turn's weights. Totals stay in memory, which the
 * assembly makes the compiler believe: they are needed once a super-block, the registers all the
 * time. */
ALWAYS_INLINE void super_kernel(const struct super_turn *turn, int row, const int rows,
                                const int strips, const enum dtype dtype, const bool direct) {
    const struct super_form form = {rows, strips, dtype, direct};
    const struct linear_args *args = turn->product->args;
    const struct super_input *input = group_super(turn->product, row) + (size_t)turn->first * rows;
    struct floats totals[DOT_SUMS];
    int n[PANEL_STRIPS];
    for (int s = 0; s < strips; s++)
        n[s] = max_int(0, min_int(LANES, args->weight->n_out - (turn->strip + s) * LANES));
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < strips; s++) {
            const float *y = row_f32(args->y, row + r) + (turn->strip + s) * LANES;
            totals[r * strips + s] = turn->first == 0 ? floats_zero() : floats_load_n(y, n[s]);
        }
    for (int i = 0; i < turn->supers; i++, input += rows) {
        struct floats inner[DOT_SUMS];
        __asm__("" : : "r"(totals) : "memory");
        super_multiply(inner, turn, input, i, row / turn->product->group, form);
        for (int r = 0; r < rows; r++)
            for (int s = 0; s < strips; s++) {
                struct floats *total = &totals[r * strips + s];
                *total = floats_fma(floats_set1(input[r].scale), inner[r * strips + s], *total);
            }
    }
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < strips; s++) {
            int column = (turn->strip + s) * LANES;
            const float *bias = args->bias == NULL || !turn->last ? NULL : args->bias + column;
            floats_store(row_f32(args->y, row + r) + column, totals[r * strips + s], bias, n[s]);
        }
}

/* Whether there is such a kernel: sums fit the registers. Panels are for full passes only, and a
 * pass that reads many rows directly has groups of at least three, unless few rows take as many
 * strips: other instances would cost the compiler time for nothing. */
ALWAYS_INLINE bool kernel_exists(const int rows, const int strips, const bool direct) {
    const bool full = strips == PASS_STRIPS, few = strips == FEW_STRIPS;
    return rows * strips <= DOT_SUMS && (direct ? !full || few || rows >= 3 : full);
}

ALWAYS_INLINE void super_rows(const struct super_turn *turn, int row, int rows, const int strips,
                              const enum dtype dtype, const bool direct) {
    if (rows == 1 && kernel_exists(1, strips, direct))
        super_kernel(turn, row, 1, strips, dtype, direct);
    if (rows == 2 && kernel_exists(2, strips, direct))
        super_kernel(turn, row, 2, strips, dtype, direct);
    if (rows == 3 && kernel_exists(3, strips, direct))
        super_kernel(turn, row, 3, strips, dtype, direct);
    if (rows == 4 && kernel_exists(4, strips, direct))
        super_kernel(turn, row, 4, strips, dtype, direct);
    if (rows == 5 && kernel_exists(5, strips, direct))
        super_kernel(turn, row, 5, strips, dtype, direct);
    if (rows == 6 && kernel_exists(6, strips, direct))
        super_kernel(turn, row, 6, strips, dtype, direct);
}

/* Chooses the weights to be fetched while the rows pass: the next panel. Few rows take the weights
 * as one stream instead and fetch its later lines. */
ALWAYS_INLINE void turn_fetch(struct super_turn *turn, const int strips, const enum dtype dtype) {
    const struct block_product *product = turn->product;
    const struct weight *weight = product->args->weight;
    const int rows = product->args->x.rows, groups = (rows + product->group - 1) / product->group;
    const int lines = (int)packed_super_bytes(dtype) / LINE_BYTES;
    const int tile = turn->strip / TILE_STRIPS;
    turn->tiles = max_int(1, strips / TILE_STRIPS);
    turn->share = ((uint32_t)lines << 16) / (uint32_t)(groups * SUPER_BLOCKS) + 1;
    if (turn->last)
        turn->next = packed_super(weight, (turn->strip + strips) / TILE_STRIPS, 0);
    else
        turn->next = packed_super(weight, tile, (size_t)(turn->first + turn->supers));
}

/* All super-blocks of some strips, a panel at a time. */
ALWAYS_INLINE void strips_multiply(const struct block_product *product, struct super_panel *panel,
                                   int strip, const int strips, const enum dtype dtype) {
    const int supers = product->args->weight->n_in / SUPER_BLOCK, rows = product->args->x.rows;
    const int most = rows <= FEW_ROWS ? 1 : PANEL_SUPERS;
    struct super_turn turn = {.product = product,
                              .panel = panel,
                              .strip = strip,
                              .direct = rows <= DIRECT_ROWS || strips != PASS_STRIPS};
    for (; turn.first < supers; turn.first += most) {
        turn.supers = min_int(most, supers - turn.first);
        turn.last = turn.first + turn.supers == supers;
        turn_fetch(&turn, strips, dtype);
        for (int i = 0; i < turn.supers; i++)
            for (int s = 0; s < strips; s++) {
                const int half = (strip + s) % TILE_STRIPS;
                super_unpack(&panel->at[i][s], turn_packed(&turn, i, s) - half * STRIP_BYTES, half,
                             turn.direct, dtype);
            }
        for (int row = 0; row < rows; row += product->group) {
            if (turn.direct)
                super_rows(&turn, row, group_rows(product, row), strips, dtype, true);
            else
                super_rows(&turn, row, group_rows(product, row), strips, dtype, false);
        }
    }
}

/* A function of its own for each type and width: compilers take minutes over one function that
 * holds all kernels. */
#define STRIPS_MULTIPLY(name, strips, dtype) \
    static __attribute__((noinline)) void name(const struct block_product *p, \
                                               struct super_panel *panel, int strip) { \
        strips_multiply(p, panel, strip, strips, dtype); \
    }
STRIPS_MULTIPLY(strip_multiply_q4_k, 1, DTYPE_Q4_K)
STRIPS_MULTIPLY(strip_multiply_q5_k, 1, DTYPE_Q5_K)
STRIPS_MULTIPLY(strip_multiply_q6_k, 1, DTYPE_Q6_K)
STRIPS_MULTIPLY(pair_multiply_q4_k, 2, DTYPE_Q4_K)
STRIPS_MULTIPLY(pair_multiply_q5_k, 2, DTYPE_Q5_K)
STRIPS_MULTIPLY(pair_multiply_q6_k, 2, DTYPE_Q6_K)

typedef void strips_function(const struct block_product *p, struct super_panel *panel, int strip);

static void tiles_multiply(const struct block_product *product, int first_tile, int n_tiles,
                           strips_function *one, strips_function *two) {
    struct super_panel panel;
    int end = (first_tile + n_tiles) * TILE_STRIPS, most = PASS_STRIPS;
    if (product->args->x.rows <= FEW_ROWS)
        most = FEW_STRIPS * product->group <= DOT_SUMS ? FEW_STRIPS : 1;
    for (int strip = first_tile * TILE_STRIPS, strips; strip < end; strip += strips) {
        strips = min_int(most, end - strip);
        if (strips == 2)
            two(product, &panel, strip);
        else
            one(product, &panel, strip);
    }
}

static void supers_vector(const struct block_product *product, int first_tile, int n_tiles) {
    switch (product->args->weight->dtype) {
        case DTYPE_Q4_K:
            tiles_multiply(product, first_tile, n_tiles, strip_multiply_q4_k, pair_multiply_q4_k);
            break;
        case DTYPE_Q5_K:
            tiles_multiply(product, first_tile, n_tiles, strip_multiply_q5_k, pair_multiply_q5_k);
            break;
        case DTYPE_Q6_K:
            tiles_multiply(product, first_tile, n_tiles, strip_multiply_q6_k, pair_multiply_q6_k);
            break;
        default: break; /* blocks_vector.h and linear_vector.h */
    }
}
