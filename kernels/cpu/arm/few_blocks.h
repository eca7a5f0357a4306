/* kernels/cpu/arm/few_blocks.h: products of up to FEW_ROWS rows with int8, int4 and MXFP4 weights
 * on SDOT: the chains of blocks.h; include after dots_neon.h. */
#pragma once

#include "kernels/cpu/arm/few_rows.h"

/* Codes of four bits as bytes: numbers, or of MXFP4 doubled numbers that are MXFP4_LARGEST too
 * large, which the block's offset takes off. */
ALWAYS_INLINE uint8x16_t code_bytes(uint8x16_t codes, const enum dtype dtype) {
    return dtype == DTYPE_MXFP4 ? codes_look_up(codes) : codes;
}

/* The products of one block. */
ALWAYS_INLINE void block_products(int32x4_t *products, const uint8_t *values,
                                  const struct input_block *x, const struct few_form form) {
    const int lines = form.dtype == DTYPE_INT8 ? BLOCK_QUADS : BLOCK_QUADS / 2;
    struct row_block rows[FEW_ROWS];
    for (int r = 0; r < form.rows; r++) {
        const int32_t offset = form.dtype == DTYPE_MXFP4 ? x[r].offset : 0;
        rows[r] = row_block_load(x[r].q);
        for (int s = 0; s < form.strips; s++)
            products[r * form.strips + s] = vdupq_n_s32(SUM_BEGINS + offset);
    }
    UNROLLED
    for (int line = 0; line < lines; line++) {
        uint8x16_t w[TILE_STRIPS];
        strips_load(w, values + line * QUAD_BYTES, form.strips);
        for (int s = 0; s < form.strips; s++) {
            const uint8x16_t low = code_bytes(low_halves(w[s]), form.dtype),
                             high = code_bytes(high_halves(w[s]), form.dtype);
            for (int r = 0; r < form.rows; r++) {
                int32x4_t *sum = products + r * form.strips + s;
                if (form.dtype == DTYPE_INT8) {
                    *sum = quad_dot(*sum, w[s], rows + r, line);
                    continue;
                }
                *sum = quad_dot(*sum, low, rows + r, line);
                *sum = quad_dot(*sum, high, rows + r, line + lines);
            }
        }
    }
}

/* One block of some strips of a tile enters the sums. */
ALWAYS_INLINE void few_block_add(float32x4_t *totals, const struct packed_block *w,
                                 const struct input_block *x, const struct few_form form) {
    int32x4_t products[FEW_SUMS];
    float32x4_t scales[TILE_STRIPS], minimums[TILE_STRIPS];
    block_products(products, w->values, x, form);
    if (form.dtype == DTYPE_MXFP4)
        for (int s = 0; s < form.strips; s++)
            scales[s] = floats_load_exponents(w->exponents + s * LANES).v;
    else
        strips_load_f16(scales, w->scales, form.strips);
    if (form.dtype == DTYPE_INT4) strips_load_f16(minimums, w->scales + TILE_COLUMNS, form.strips);
    for (int r = 0; r < form.rows; r++)
        for (int s = 0; s < form.strips; s++) {
            float32x4_t *total = totals + r * form.strips + s;
            if (form.dtype == DTYPE_INT4) *total = vfmaq_n_f32(*total, minimums[s], x[r].sum);
            *total = vfmaq_f32(*total, vmulq_n_f32(scales[s], x[r].scale),
                               products_end(products[r * form.strips + s]));
        }
}

/* Blocks that share a line of scales or of exponents; all their bytes, and the bytes of the values
 * of one. */
struct packed_run {
    size_t blocks, bytes, values;
};
ALWAYS_INLINE struct packed_run run_of(const enum dtype dtype) {
    if (dtype == DTYPE_INT8) return (struct packed_run){2, INT8_PAIR_BYTES, INT8_BLOCK_BYTES};
    if (dtype == DTYPE_INT4) return (struct packed_run){1, INT4_BLOCK_BYTES, 0};
    return (struct packed_run){MXFP4_GROUP, MXFP4_GROUP_BYTES, MXFP4_BLOCK_BYTES};
}

/* `blocks` blocks of the run that begins at `line` enter the sums. */
ALWAYS_INLINE void few_run_add(float32x4_t *totals, const uint8_t *line,
                               const struct input_block *x, int strip, const int blocks,
                               const struct few_form form) {
    const int lines = form.dtype == DTYPE_INT8 ? BLOCK_QUADS : BLOCK_QUADS / 2;
    UNROLLED
    for (int block = 0; block < blocks; block++) {
        const struct packed_block packed = {
            .values =
                line + LINE_BYTES + strip * STRIP_BYTES + (size_t)block * run_of(form.dtype).values,
            .scales = (const uint16_t *)(const void *)line + block * TILE_COLUMNS + strip * LANES,
            .exponents = line + block * TILE_COLUMNS + strip * LANES};
        if (strip == 0) lines_fetch(packed.values, lines);
        few_block_add(totals, &packed, x + block * form.rows, form);
    }
}

ALWAYS_INLINE void few_blocks_kernel(const struct few_place *place, const struct few_form form) {
    const struct weight *weight = place->product->args->weight;
    const struct input_block *x = group_input(place->product, 0);
    const struct packed_run run = run_of(form.dtype);
    const int strip = form.strips == TILE_STRIPS ? 0 : place->strip;
    const uint8_t *line = (const uint8_t *)weight->data +
                          (size_t)place->tile * packed_tile_bytes(form.dtype, weight->n_in);
    size_t blocks = (size_t)weight->n_in / QUANTISE_BLOCK;
    float32x4_t totals[FEW_SUMS];
    for (int i = 0; i < form.rows * form.strips; i++) totals[i] = vdupq_n_f32(0);
    for (; blocks >= run.blocks; blocks -= run.blocks, line += run.bytes) {
        few_run_add(totals, line, x, strip, (int)run.blocks, form);
        x += run.blocks * (size_t)form.rows;
    }
    if (blocks == 1) few_run_add(totals, line, x, strip, 1, form);
    if (blocks == 2) few_run_add(totals, line, x, strip, 2, form);
    if (blocks == 3) few_run_add(totals, line, x, strip, 3, form);
    few_store(place, totals, form);
}

FEW_KERNELS(few_blocks_kernel, few_int8, DTYPE_INT8)
FEW_KERNELS(few_blocks_kernel, few_int4, DTYPE_INT4)
FEW_KERNELS(few_blocks_kernel, few_mxfp4, DTYPE_MXFP4)

static inline void few_blocks(const struct block_product *product, int first_tile, int n_tiles) {
    switch (product->args->weight->dtype) {
        case DTYPE_INT8: tiles_few(product, first_tile, n_tiles, few_int8_kernels); break;
        case DTYPE_INT4: tiles_few(product, first_tile, n_tiles, few_int4_kernels); break;
        case DTYPE_MXFP4: tiles_few(product, first_tile, n_tiles, few_mxfp4_kernels); break;
        default: break; /* few_supers.h and linear_vector.h */
    }
}
