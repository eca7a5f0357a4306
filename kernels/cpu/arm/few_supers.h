/* kernels/cpu/arm/few_supers.h: products of up to FEW_ROWS rows with Q4_K, Q5_K and Q6_K weights on
 * SDOT: the chains of blocks.h; include after dots_neon.h.
 *
 * A part's sum of products times the part's scale, both integers, is below 2^24 and exact, and so
 * is d times the scale: one multiply-add of d with that integer has the bits of one of d s with the
 * sum. The minimums, eight of six bits a column, meet the eight sums of a row's parts as bytes,
 * those sums cut in two of them. */
#pragma once

#include "kernels/cpu/arm/few_rows.h"

enum { LINE_PARTS = 4 /* whose scales a line holds */, SIX_BITS = 63 };

/* Quad `quad` of a block of 32 whose first line is `values`, a byte for each weight. */
ALWAYS_INLINE uint8x16_t quad_bytes(const uint8_t *values, const int quad, const enum dtype dtype) {
    const int halves = BLOCK_QUADS / 2, line = quad % halves;
    const bool high = quad >= halves;
    const uint8x16_t w = load_quads(values + line * LINE_BYTES);
    const uint8x16_t low = high ? high_halves(w) : low_halves(w);
    values += halves * LINE_BYTES;
    if (dtype == DTYPE_Q4_K) return low;
    if (dtype == DTYPE_Q5_K) {
        const uint8x16_t bits = load_quads(values);
        const uint8x16_t fifth = high ? bits >> line : bits << (4 - line);
        return vorrq_u8(low, vandq_u8(fifth, vdupq_n_u8(0x10)));
    }
    const uint8x16_t bits = load_quads(values + line / 2 * LINE_BYTES);
    const int from = line % 2 * 4 + high * 2;
    const uint8x16_t upper = from < 4 ? bits << (4 - from) : bits >> (from - 4);
    return vorrq_u8(low, vandq_u8(upper, vdupq_n_u8(0x30)));
}

/* A super-block's sums of parts of a row as quads of bytes: the lower bits of parts 0 to 3 and 4 to
 * 7, then the upper ones. */
ALWAYS_INLINE int8x16_t sums_cut(const struct super_input *x) {
    static const uint8_t natural[16] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};
    const int16x8_t sums = vld1q_s16(x->sums);
    const int8x8_t low = vmovn_s16(vandq_s16(sums, vdupq_n_s16((1 << SUM_BITS) - 1))),
                   high = vshrn_n_s16(sums, SUM_BITS);
    return vqtbl1q_s8(vcombine_s8(low, high), vld1q_u8(natural));
}

/* The minimums of a strip of Q4_K or Q5_K, whose lines are `lines`: of parts 0 to 3 and 4 to 7. */
ALWAYS_INLINE void minimums_load(uint8x16_t to[2], const uint8_t *lines) {
    const uint8x16_t first = load_quads(lines), second = load_quads(lines + LINE_BYTES),
                     third = load_quads(lines + 2 * LINE_BYTES);
    to[0] = vandq_u8(third, vdupq_n_u8(SIX_BITS));
    /* The upper two bits of each, those of the first lowest. */
    to[1] = vshrq_n_u8(vsriq_n_u8(third, vsriq_n_u8(second, first, 2), 2), 2);
}

/* One super-block of some strips of a tile: their d and dmin, the lines behind these and those of
 * the values. */
struct super_lines {
    const uint16_t *d;
    const uint8_t *scales, *values;
};
ALWAYS_INLINE struct super_lines super_lines(const uint8_t *packed, int strip,
                                             const enum dtype dtype) {
    return (struct super_lines){
        .d = (const uint16_t *)(const void *)packed + strip * LANES,
        .scales = packed + LINE_BYTES + strip * STRIP_BYTES,
        .values = packed + super_head_lines(dtype) * LINE_BYTES + strip * STRIP_BYTES};
}

/* The share of the minimums in the sums. */
ALWAYS_INLINE void few_minimums(float32x4_t *inner, const struct super_lines *w,
                                const struct super_input *x, const struct few_form form) {
    float32x4_t scales[TILE_STRIPS];
    int8x16_t cut[FEW_ROWS];
    strips_load_f16(scales, w->d + TILE_COLUMNS, form.strips);
    for (int r = 0; r < form.rows; r++) cut[r] = sums_cut(x + r);
    for (int s = 0; s < form.strips; s++) {
        uint8x16_t both[2];
        minimums_load(both, w->scales + s * STRIP_BYTES);
        const int8x16_t first = vreinterpretq_s8_u8(both[0]), last = vreinterpretq_s8_u8(both[1]);
        for (int r = 0; r < form.rows; r++) {
            int32x4_t sum = vdotq_laneq_s32(vdupq_n_s32(0), first, cut[r], 2);
            sum = vshlq_n_s32(vdotq_laneq_s32(sum, last, cut[r], 3), SUM_BITS);
            sum = vdotq_laneq_s32(sum, first, cut[r], 0);
            sum = vdotq_laneq_s32(sum, last, cut[r], 1);
            inner[r * form.strips + s] = vmulq_f32(vnegq_f32(scales[s]), vcvtq_f32_s32(sum));
        }
    }
}

/* Where a kernel is in a super-block: at a block of 32, whose first line is `values`. `place` finds
 * the part's byte in each word of `scales`, [strip]. */
struct part_at {
    const struct super_input *x;
    const uint8_t *values;
    uint8x16_t scales[TILE_STRIPS], place;
    int block;
};

/* In a word that is not negative the byte is the lowest, else the highest. */
ALWAYS_INLINE uint8x16_t place_first(const enum dtype dtype) {
    const uint32_t none = 0x40; /* past the bytes that there are */
    const uint32_t word =
        dtype == DTYPE_Q6_K ? none | none << 8 | none << 16 : none << 8 | none << 16 | none << 24;
    const uint32x4_t words = {0, 4, 8, 12};
    return vreinterpretq_u8_u32(
        vorrq_u32(vdupq_n_u32(word), dtype == DTYPE_Q6_K ? words << 24 : words));
}
ALWAYS_INLINE uint8x16_t place_next(uint8x16_t place, const enum dtype dtype) {
    const uint32_t one = dtype == DTYPE_Q6_K ? 1u << 24 : 1;
    return vreinterpretq_u8_u32(vaddq_u32(vreinterpretq_u32_u8(place), vdupq_n_u32(one)));
}
ALWAYS_INLINE int32x4_t part_scale(const struct part_at *at, int s, const enum dtype dtype) {
    const int32x4_t word = vreinterpretq_s32_u8(vqtbl1q_u8(at->scales[s], at->place));
    return dtype == DTYPE_Q6_K ? vshrq_n_s32(word, 24) : word;
}

/* Part `part` of the block enters the sums of the super-block, whose d are [strip]. */
ALWAYS_INLINE void few_part_add(float32x4_t *inner, const struct part_at *at, const float32x4_t *d,
                                const int part, const struct few_form form) {
    const int quads = super_part(form.dtype) / QUAD, first = part * quads,
              number = at->block * (BLOCK_QUADS / quads) + part;
    struct row_block rows[FEW_ROWS];
    int32x4_t products[FEW_SUMS];
    for (int r = 0; r < form.rows; r++) {
        const int32_t offset = form.dtype == DTYPE_Q6_K ? at->x[r].offsets[number] : 0;
        rows[r] = row_block_load(at->x[r].q + at->block * QUANTISE_BLOCK);
        for (int s = 0; s < form.strips; s++) products[r * form.strips + s] = vdupq_n_s32(offset);
    }
    UNROLLED
    for (int i = 0; i < quads; i++) {
        /* Both halves of a line follow each other. */
        const int quad = quads == BLOCK_QUADS ? i / 2 + i % 2 * (BLOCK_QUADS / 2) : first + i;
        for (int s = 0; s < form.strips; s++) {
            const uint8x16_t w = quad_bytes(at->values + s * STRIP_BYTES, quad, form.dtype);
            for (int r = 0; r < form.rows; r++) {
                int32x4_t *sum = products + r * form.strips + s;
                *sum = quad_dot(*sum, w, rows + r, quad);
            }
        }
    }
    for (int s = 0; s < form.strips; s++) {
        const int32x4_t scale = part_scale(at, s, form.dtype);
        for (int r = 0; r < form.rows; r++) {
            const int i = r * form.strips + s;
            inner[i] = vfmaq_f32(inner[i], d[s], vcvtq_f32_s32(vmulq_s32(products[i], scale)));
        }
    }
}

/* The blocks whose parts have their scales in one line. */
ALWAYS_INLINE void few_line_add(float32x4_t *inner, struct part_at *at, const float32x4_t *d,
                                const bool fetch, const struct few_form form) {
    const int parts = QUANTISE_BLOCK / super_part(form.dtype),
              lines = super_block_lines(form.dtype), end = at->block + LINE_PARTS / parts;
    at->place = place_first(form.dtype);
    for (; at->block < end; at->block++, at->values += lines * LINE_BYTES) {
        if (fetch) lines_fetch(at->values, lines);
        UNROLLED
        for (int part = 0; part < parts; part++) {
            few_part_add(inner, at, d, part, form);
            at->place = place_next(at->place, form.dtype);
        }
    }
}

/* One super-block of some strips of a tile enters the sums. */
ALWAYS_INLINE void few_super_add(float32x4_t *totals, struct super_lines w,
                                 const struct super_input *x, const bool fetch,
                                 const struct few_form form) {
    const enum dtype dtype = form.dtype;
    const uint8_t six_bits = dtype == DTYPE_Q6_K ? 255 : SIX_BITS;
    float32x4_t inner[FEW_SUMS], d[TILE_STRIPS];
    struct part_at at = {.x = x, .values = w.values};
    if (fetch) lines_fetch(w.scales - LINE_BYTES, super_head_lines(dtype));
    for (int i = 0; i < form.rows * form.strips; i++) inner[i] = vdupq_n_f32(0);
    if (dtype != DTYPE_Q6_K) few_minimums(inner, &w, x, form);
    strips_load_f16(d, w.d, form.strips);
    for (; at.block < SUPER_BLOCKS; w.scales += LINE_BYTES) {
        for (int s = 0; s < form.strips; s++)
            at.scales[s] = vandq_u8(load_quads(w.scales + s * STRIP_BYTES), vdupq_n_u8(six_bits));
        few_line_add(inner, &at, d, fetch, form);
    }
    for (int r = 0; r < form.rows; r++)
        for (int i = r * form.strips; i < (r + 1) * form.strips; i++)
            totals[i] = vfmaq_n_f32(totals[i], inner[i], x[r].scale);
}

ALWAYS_INLINE void few_supers_kernel(const struct few_place *place, const struct few_form form) {
    const struct weight *weight = place->product->args->weight;
    const struct super_input *x = group_super(place->product, 0);
    const uint8_t *packed = packed_super(weight, place->tile, 0);
    const int supers = weight->n_in / SUPER_BLOCK,
              strip = form.strips == TILE_STRIPS ? 0 : place->strip;
    float32x4_t totals[FEW_SUMS];
    for (int i = 0; i < form.rows * form.strips; i++) totals[i] = vdupq_n_f32(0);
    for (int super = 0; super < supers; super++, x += form.rows) {
        few_super_add(totals, super_lines(packed, strip, form.dtype), x, strip == 0, form);
        packed += packed_super_bytes(form.dtype);
    }
    few_store(place, totals, form);
}

FEW_KERNELS(few_supers_kernel, few_q4_k, DTYPE_Q4_K)
FEW_KERNELS(few_supers_kernel, few_q5_k, DTYPE_Q5_K)
FEW_KERNELS(few_supers_kernel, few_q6_k, DTYPE_Q6_K)

static inline void few_supers(const struct block_product *product, int first_tile, int n_tiles) {
    switch (product->args->weight->dtype) {
        case DTYPE_Q4_K: tiles_few(product, first_tile, n_tiles, few_q4_k_kernels); break;
        case DTYPE_Q5_K: tiles_few(product, first_tile, n_tiles, few_q5_k_kernels); break;
        case DTYPE_Q6_K: tiles_few(product, first_tile, n_tiles, few_q6_k_kernels); break;
        default: break; /* few_blocks.h */
    }
}
