/* kernels/cpu/arm/few_rows.h: what the products of up to FEW_ROWS rows with quantised weights on
 * SDOT share (few_blocks.h, few_supers.h): their forms, their sums and where these go; include
 * after dots_neon.h.
 *
 * A kernel takes all rows and some strips of a tile, and holds a sum of integers and a sum of
 * floats of each row and strip in registers. Sixteen values of a row in a register are four quads,
 * of which an instruction names one: nothing is copied to all lanes. */
#pragma once

#include "kernels/cpu/arm/sums_neon.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/strips.h"

enum {
    FEW_SUMS = 8,    /* of rows and strips at once */
    HALF_BLOCK = 16, /* values of a row that a register holds */
    BLOCK_REGISTERS = QUANTISE_BLOCK / HALF_BLOCK
};

/* The compile-time constants of a kernel. */
struct few_form {
    int rows, strips;
    enum dtype dtype;
};

/* Where a kernel works: strips from `strip` on of a tile. */
struct few_place {
    const struct block_product *product;
    int tile, strip;
};

/* Strips that so many rows take at once. */
#define FEW_STRIPS(rows) ((rows)*TILE_STRIPS <= FEW_SUMS ? TILE_STRIPS : FEW_SUMS / FEW_ROWS)

/* A block of a row. */
struct row_block {
    int8x16_t values[BLOCK_REGISTERS];
};
ALWAYS_INLINE struct row_block row_block_load(const int8_t *q) {
    return (struct row_block){{vld1q_s8(q), vld1q_s8(q + HALF_BLOCK)}};
}

/* sum + the products of a quad of four columns, bytes with a sign, with quad `quad` of x; `quad` is
 * a constant where loops are unrolled. */
ALWAYS_INLINE int32x4_t quad_dot(int32x4_t sum, uint8x16_t w, const struct row_block *x,
                                 const int quad) {
    const int8x16_t bytes = vreinterpretq_s8_u8(w), values = x->values[quad / 4];
    switch (quad % 4) {
        case 0: return vdotq_laneq_s32(sum, bytes, values, 0);
        case 1: return vdotq_laneq_s32(sum, bytes, values, 1);
        case 2: return vdotq_laneq_s32(sum, bytes, values, 2);
        default: return vdotq_laneq_s32(sum, bytes, values, 3);
    }
}

/* A line of quads of some strips by one instruction: gcc would load each where it is used. */
ALWAYS_INLINE void strips_load(uint8x16_t *to, const uint8_t *from, const int strips) {
    if (strips == TILE_STRIPS) {
        const uint8x16x4_t four = vld1q_u8_x4(from);
        for (int s = 0; s < TILE_STRIPS; s++) to[s] = four.val[s];
        return;
    }
    const uint8x16x2_t two = vld1q_u8_x2(from);
    for (int s = 0; s < 2; s++) to[s] = two.val[s];
}

/* The f16 of some strips. */
ALWAYS_INLINE void strips_load_f16(float32x4_t *to, const uint16_t *from, const int strips) {
    for (int s = 0; s < strips; s += 2) {
        const float16x8_t two = vreinterpretq_f16_u16(vld1q_u16(from + s * LANES));
        to[s] = vcvt_f32_f16(vget_low_f16(two));
        to[s + 1] = vcvt_high_f32_f16(two);
    }
}

ALWAYS_INLINE void lines_fetch(const uint8_t *from, const int lines) {
    for (int i = 0; i < lines; i++)
        __builtin_prefetch((const char *)from + FETCH_AHEAD + i * LINE_BYTES, 0, 3);
}

/* Sums are [row][strip]. */
ALWAYS_INLINE void few_store(const struct few_place *place, const float32x4_t *totals,
                             const struct few_form form) {
    const struct linear_args *args = place->product->args;
    for (int r = 0; r < form.rows; r++)
        for (int s = 0; s < form.strips; s++) {
            const int column = place->tile * TILE_COLUMNS + (place->strip + s) * LANES,
                      n = min_int(LANES, args->weight->n_out - column);
            if (n <= 0) continue;
            floats_store(row_f32(args->y, r) + column, (struct floats){totals[r * form.strips + s]},
                         args->bias == NULL ? NULL : args->bias + column, n);
        }
}

typedef void few_function(const struct few_place *place);

/* The kernels of a type, by rows - 1: a function of its own for each. */
#define FEW_FUNCTION(type, rows, dtype) \
    static __attribute__((noinline)) void type##_##rows(const struct few_place *place) { \
        type##_kernel(place, (struct few_form){rows, FEW_STRIPS(rows), dtype}); \
    }
#define FEW_KERNELS(kernel, name, dtype) \
    ALWAYS_INLINE void name##_kernel(const struct few_place *place, const struct few_form form) { \
        kernel(place, form); \
    } \
    FEW_FUNCTION(name, 1, dtype) \
    FEW_FUNCTION(name, 2, dtype) \
    FEW_FUNCTION(name, 3, dtype) \
    FEW_FUNCTION(name, 4, dtype) \
    static few_function *const name##_kernels[FEW_ROWS] = {name##_1, name##_2, name##_3, name##_4};

/* All strips of the tiles, one after another. */
static void tiles_few(const struct block_product *product, int first_tile, int n_tiles,
                      few_function *const kernels[FEW_ROWS]) {
    const int rows = product->args->x.rows;
    CHECK(rows <= FEW_ROWS); /* more are in pairs */
    for (int tile = first_tile; tile < first_tile + n_tiles; tile++)
        for (int strip = 0; strip < TILE_STRIPS; strip += FEW_STRIPS(rows))
            kernels[rows - 1](&(struct few_place){product, tile, strip});
}
