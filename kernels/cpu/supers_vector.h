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
    DIRECT_ROWS = 4 * INPUT_ROWS,
    WIDE_STRIPS = TILE_STRIPS < PANEL_STRIPS ? TILE_STRIPS : PANEL_STRIPS /* of few rows */
};

struct super_panel {
    struct panel_super at[PANEL_SUPERS][PANEL_STRIPS];
};

/* The work of one turn: strips from `strip` on, super-blocks [first, first + supers). */
struct super_turn {
    const struct block_product *product;
    struct super_panel *panel;
    int strip, first, supers, group; /* of rows */
    bool last;
    /* The weights to be fetched meanwhile: while the groups of rows pass over super-block i of the
     * turn, the super-block i places behind `next` is fetched, in each tile of the strips. Each
     * part fetches `share` / 2^16 of its lines. */
    const uint8_t *next;
    uint32_t share;
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

/* Strip s of super-block i of the turn: its scales, to their place in the panel. */
ALWAYS_INLINE void head_unpack(const struct super_turn *turn, int i, int s,
                               const enum dtype dtype) {
    const int half = (turn->strip + s) % TILE_STRIPS;
    const uint8_t *packed = turn_packed(turn, i, s) - half * STRIP_BYTES;
    stream_fetch(packed, super_head_lines(dtype));
    scales_unpack(&turn->panel->at[i % PANEL_SUPERS][s], packed + LINE_BYTES + half * STRIP_BYTES,
                  (const uint16_t *)(const void *)packed + half * LANES, dtype);
}

/* The same with its values. */
ALWAYS_INLINE void super_unpack(const struct super_turn *turn, int i, int s,
                                const enum dtype dtype) {
    struct panel_super *to = &turn->panel->at[i][s];
    const uint8_t *values = turn_packed(turn, i, s) + super_head_lines(dtype) * LINE_BYTES;
    head_unpack(turn, i, s, dtype);
    for (int b = 0; b < SUPER_BLOCKS; b++, values += super_block_lines(dtype) * LINE_BYTES) {
#pragma GCC unroll 8
        for (int quad = 0; quad < BLOCK_QUADS; quad++) {
            words_of v = quad_unpack(values, quad, dtype);
            memcpy(to->values[b][quad], &v, sizeof v);
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
                sums[r * strips + s] = int4_quad_add(sums[r * strips + s], w[s],
                                                     at->x[r].q + at->block * QUANTISE_BLOCK, quad);
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
                               const struct super_form form) {
    const enum dtype dtype = form.dtype;
    const uint32_t first = (uint32_t)visit * turn->share >> 16,
                   end = (uint32_t)(visit + 1) * turn->share >> 16;
    const size_t tile_bytes = packed_tile_bytes(dtype, turn->product->args->weight->n_in);
    const char *from = (const char *)turn->next + (size_t)i * packed_super_bytes(dtype);
    for (int tile = 0; tile < tiles_of(form.strips); tile++, from += tile_bytes)
        for (uint32_t line = first; line < end; line++)
            __builtin_prefetch(from + line * LINE_BYTES, 0, 2);
}

/* inner = what super-block i of the turn brings before the scale of the input. */
ALWAYS_INLINE void super_multiply(struct floats *inner, const struct super_turn *turn,
                                  const struct super_input *input, int i,
                                  const struct super_form form) {
    const int strips = form.strips;
    const enum dtype dtype = form.dtype;
    const bool direct = form.direct;
    const int parts = QUANTISE_BLOCK / super_part(dtype),
              step = super_block_lines(dtype) * LINE_BYTES;
    const bool stream = form.rows <= FEW_ROWS && strips == TILE_STRIPS;
    struct super_at at = {.x = input, .w = turn->panel->at[i % PANEL_SUPERS], .packed = {NULL}};
    for (int s = 0; s < strips && direct; s++)
        at.packed[s] = turn_packed(turn, i, s) + super_head_lines(dtype) * LINE_BYTES;
    inner_begin(inner, &at, form.rows, strips, dtype);
    for (at.block = 0; at.block < SUPER_BLOCKS; at.block++) {
        if (stream)
            stream_fetch(at.packed[0], super_block_lines(dtype));
        else
            lines_fetch(turn, i, turn->group * SUPER_BLOCKS + at.block, form);
        part_add(inner, &at, 0, form);
        if (parts == 2) part_add(inner, &at, 1, form);
        for (int s = 0; s < strips && direct; s++) at.packed[s] += step;
    }
}

/* The group of rows from `row` on passes over the turn's weights. Totals stay in memory, which the
 * assembly makes the compiler believe: they are needed once a super-block, the registers all the
 * time. */
ALWAYS_INLINE void super_kernel(const struct super_turn *turn, int row,
                                const struct super_form form) {
    const int rows = form.rows, strips = form.strips;
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
        for (int s = 0; s < strips && form.direct && turn->group == 0; s++)
            head_unpack(turn, i, s, form.dtype);
        __asm__("" : : "r"(totals) : "memory");
        super_multiply(inner, turn, input, i, form);
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

/* FEW_SUPERS is how many strips few rows take at once. The others say whether there is such a
 * kernel, as in blocks_vector.h; panels are for full passes of more than DIRECT_ROWS rows. */
#define FEW_SUPERS(rows) (WIDE_STRIPS * (rows) <= DOT_SUMS ? WIDE_STRIPS : 1)
#define DIRECT_EXISTS(rows, strips) \
    (MANY_MEET(rows, strips) || ((rows) <= FEW_ROWS && (strips) == FEW_SUPERS(rows)))
#define PANEL_EXISTS(rows, strips) ((rows) >= INPUT_ROWS / 2 && (strips) == PASS_STRIPS)

typedef void super_function(const struct super_turn *turn, int row);
typedef void unpack_function(const struct super_turn *turn, int i, int s);

/* The functions of a type; kernels by rows - 1 and strips - 1. */
struct super_kernels {
    unpack_function *unpack;
    super_function *direct[INPUT_ROWS][PANEL_STRIPS], *panel[INPUT_ROWS][PANEL_STRIPS];
};

#define SUPER_FUNCTION(type, way, rows, strips, dtype, direct) \
    static __attribute__((noinline)) void type##_##way##_##rows##x##strips( \
        const struct super_turn *turn, int row) { \
        const struct super_turn own = *turn; \
        super_kernel(&own, row, (struct super_form){rows, strips, dtype, direct}); \
    }
#define SUPER_FUNCTIONS(type, dtype, rows) \
    SUPER_FUNCTION(type, direct, rows, 1, dtype, true) \
    SUPER_FUNCTION(type, direct, rows, 2, dtype, true) \
    SUPER_FUNCTION(type, panel, rows, 1, dtype, false) \
    SUPER_FUNCTION(type, panel, rows, 2, dtype, false)
#define DIRECT_COLUMN(type, rows) \
    {DIRECT_EXISTS(rows, 1) ? type##_direct_##rows##x1 : NULL, \
     DIRECT_EXISTS(rows, 2) ? type##_direct_##rows##x2 : NULL},
#define PANEL_COLUMN(type, rows) \
    {PANEL_EXISTS(rows, 1) ? type##_panel_##rows##x1 : NULL, \
     PANEL_EXISTS(rows, 2) ? type##_panel_##rows##x2 : NULL},
#define SUPER_KERNELS(type, dtype) \
    FOR_EACH_ROWS(SUPER_FUNCTIONS, type, dtype) \
    static __attribute__((noinline)) void type##_unpack(const struct super_turn *turn, int i, \
                                                        int s) { \
        super_unpack(turn, i, s, dtype); \
    } \
    static const struct super_kernels type##_kernels = { \
        .unpack = type##_unpack, \
        .direct = {FOR_EACH_ROWS(DIRECT_COLUMN, type)}, \
        .panel = {FOR_EACH_ROWS(PANEL_COLUMN, type)}};

SUPER_KERNELS(q4_k, DTYPE_Q4_K)
SUPER_KERNELS(q5_k, DTYPE_Q5_K)
SUPER_KERNELS(q6_k, DTYPE_Q6_K)

/* Chooses the weights to be fetched while the rows pass: what a panel holds from the turn's second
 * on, or of few rows, which have one turn, the next super-block. */
static void turn_fetch(struct super_turn *turn, int strips) {
    const struct block_product *product = turn->product;
    const struct weight *weight = product->args->weight;
    const int lines = (int)packed_super_bytes(weight->dtype) / LINE_BYTES;
    const int tile = turn->strip / TILE_STRIPS;
    turn->share = ((uint32_t)lines << 16) / (uint32_t)(product->groups * SUPER_BLOCKS) + 1;
    if (product->args->x.rows <= FEW_ROWS)
        turn->next = packed_super(weight, tile, 1);
    else if (turn->last)
        turn->next = packed_super(weight, (turn->strip + strips) / TILE_STRIPS, 0);
    else
        turn->next = packed_super(weight, tile, (size_t)(turn->first + turn->supers));
}

static void panel_unpack(const struct super_turn *turn, int strips, unpack_function *unpack) {
    for (int i = 0; i < turn->supers; i++)
        for (int s = 0; s < strips; s++) unpack(turn, i, s);
}

/* All super-blocks of some strips, a panel at a time. One group of rows alone needs no more than
 * one super-block's scales at a time. */
static void strips_multiply(const struct block_product *product, struct super_panel *panel,
                            int strip, int strips, const struct super_kernels *kernels) {
    const int supers = product->args->weight->n_in / SUPER_BLOCK, rows = product->args->x.rows;
    const int most = rows <= FEW_ROWS ? supers : PANEL_SUPERS;
    const bool direct = rows <= DIRECT_ROWS || strips != PASS_STRIPS;
    struct super_turn turn = {.product = product, .panel = panel, .strip = strip};
    for (; turn.first < supers; turn.first += most) {
        turn.supers = min_int(most, supers - turn.first);
        turn.last = turn.first + turn.supers == supers;
        turn_fetch(&turn, strips);
        if (!direct) panel_unpack(&turn, strips, kernels->unpack);
        turn.group = 0;
        for (int row = 0; row < rows; row += group_rows(product, row), turn.group++) {
            const int together = group_rows(product, row);
            super_function *kernel = direct ? kernels->direct[together - 1][strips - 1]
                                            : kernels->panel[together - 1][strips - 1];
            CHECK(kernel != NULL);
            kernel(&turn, row);
        }
    }
}

static void tiles_multiply(const struct block_product *product, int first_tile, int n_tiles,
                           const struct super_kernels *kernels) {
    struct super_panel panel;
    const int rows = product->args->x.rows, end = (first_tile + n_tiles) * TILE_STRIPS;
    const int most = rows <= FEW_ROWS ? FEW_SUPERS(rows) : PASS_STRIPS;
    for (int strip = first_tile * TILE_STRIPS, strips; strip < end; strip += strips) {
        strips = min_int(most, end - strip);
        strips_multiply(product, &panel, strip, strips, kernels);
    }
}

static void supers_vector(const struct block_product *product, int first_tile, int n_tiles) {
    switch (product->args->weight->dtype) {
        case DTYPE_Q4_K: tiles_multiply(product, first_tile, n_tiles, &q4_k_kernels); break;
        case DTYPE_Q5_K: tiles_multiply(product, first_tile, n_tiles, &q5_k_kernels); break;
        case DTYPE_Q6_K: tiles_multiply(product, first_tile, n_tiles, &q6_k_kernels); break;
        default: break; /* blocks_vector.h and linear_vector.h */
    }
}
