/* kernels/cpu/layout.h: the packed layout of a weight W [n_out, n_in]: one for each dtype, the same
 * for every variant of a machine, so that a packed file serves every processor of its kind. Arm's
 * int8 has a sign, as SDOT and SMMLA want it; all else is alike.
 *
 * A weight is tiles of 16 output columns, one after another; columns past n_out are zeros. A tile
 * holds all of K:
 *
 *   f32, f16   [k][16]
 *   bf16       two tiles together, [k / 2][2 tiles][16][2]: pairs along K side by side, as
 * vdpbf16ps wants them, and two tiles in one stream, as a single row of it needs two sums to keep
 * up with memory. n_in is rounded up to even, and an odd last tile has a partner of zeros. int8
 * [block / 2]{ f16 scale[2][16], uint8 q[2][8][16][4] }: a pair of blocks of 32 along K. q +
 * INT8_OFFSET, so without a sign where that is 128, in quads along K as vpdpbusd wants them. The
 * second half of a last pair without partner is unused. int4       [block]{ f16 scale[16], f16
 * minimum[16], uint8 q[4][16][4]
 * }: quad i of the block in the low nibbles of q[i], quad i + 4 in the high ones. Q4_K
 * [super-block]{ f16 d[16], f16 dmin[16], uint8 packed[3][16][4], { uint8 q[4][16][4] } [8] }: a
 *              block of 32 as in int4. Byte i of a column's quads in `packed` has in its lower six
 * bits scale i, scale 4 + i and minimum i; the upper two bits of the three are minimum 4 + i, the
 * lowest two first. Q5_K       the same, but a block is { uint8 q[4][16][4], uint8 fifth[16][4] }:
 * bit i of `fifth` belongs to quad i. Q6_K       [super-block]{ f16 d[16], f16 zero[16], int8
 * scale[4][16][4], { uint8 q[4][16][4], uint8 upper[2][16][4] } [8] }: bits 0 and 1 of upper[i]
 * belong to quad 2 i of the block, bits 2 and 3 to quad 2 i + 4, then quads 2 i + 1 and 2 i + 5.
 * MXFP4      [block / 4]{ uint8 exponent[4][16], uint8 q[4][4][16][4] }: four blocks, each as in
 * int4. The rest of a last four is zeros.
 *
 * So every vector of values lies on a cache line where the weight does, and each thread reads one
 * stream. */
#pragma once

#include "kernels/kquants.h"
#include "kernels/mxfp4.h"

/* Changes with the layout. */
#if CPU_ARM
#define CPU_PACKED_LAYOUT "cpu-tiles16-2-signed"
enum { INT8_OFFSET = 0 };
#else
#define CPU_PACKED_LAYOUT "cpu-tiles16-2"
enum { INT8_OFFSET = 128 };
#endif

enum {
    TILE_COLUMNS = 16, /* output columns of one packed tile: a 512-bit vector of f32 */
    QUAD = 4,          /* values along K that one 32-bit lane holds */
    BLOCK_QUADS = QUANTISE_BLOCK / QUAD,
    QUAD_BYTES = TILE_COLUMNS * QUAD, /* one quad of all columns: a 512-bit vector */
    LINE_SCALES = 2 * TILE_COLUMNS,   /* f16 in the line before the values */
    LINE_BYTES = LINE_SCALES * 2,
    INT8_BLOCK_BYTES = BLOCK_QUADS * QUAD_BYTES, /* values alone */
    INT8_PAIR_BYTES = LINE_BYTES + 2 * INT8_BLOCK_BYTES,
    INT4_BLOCK_BYTES = LINE_BYTES + BLOCK_QUADS / 2 * QUAD_BYTES,
    MXFP4_BLOCK_BYTES = BLOCK_QUADS / 2 * QUAD_BYTES, /* codes alone */
    MXFP4_GROUP = QUAD_BYTES / TILE_COLUMNS,          /* blocks whose exponents share a line */
    MXFP4_GROUP_BYTES = LINE_BYTES + MXFP4_GROUP * MXFP4_BLOCK_BYTES,
    SUPER_BLOCKS = SUPER_BLOCK / QUANTISE_BLOCK
};

/* Lines of a packed super-block: before its values, and of each block of 32. */
static inline int super_head_lines(enum dtype dtype) { return dtype == DTYPE_Q6_K ? 5 : 4; }
static inline int super_block_lines(enum dtype dtype) {
    return dtype == DTYPE_Q4_K ? 4 : dtype == DTYPE_Q5_K ? 5 : 6;
}
static inline size_t packed_super_bytes(enum dtype dtype) {
    return (size_t)(super_head_lines(dtype) + SUPER_BLOCKS * super_block_lines(dtype)) * LINE_BYTES;
}

/* n_in of a float weight with what pads it. */
static inline size_t packed_depth(enum dtype dtype, int n_in) {
    return (size_t)n_in + (dtype == DTYPE_BF16 ? (size_t)(n_in & 1) : 0);
}
static inline int packed_tiles(int n_out) {
    return n_out / TILE_COLUMNS + (n_out % TILE_COLUMNS != 0);
}
/* The same with what pads it. */
static inline size_t stored_tiles(enum dtype dtype, int n_out) {
    size_t tiles = (size_t)packed_tiles(n_out);
    return dtype == DTYPE_BF16 ? tiles + (tiles & 1) : tiles;
}
static inline size_t packed_tile_bytes(enum dtype dtype, int n_in) {
    size_t blocks = (size_t)n_in / QUANTISE_BLOCK;
    if (dtype == DTYPE_INT8) return (blocks + 1) / 2 * INT8_PAIR_BYTES;
    if (dtype == DTYPE_INT4) return blocks * INT4_BLOCK_BYTES;
    if (dtype == DTYPE_MXFP4) return (blocks + MXFP4_GROUP - 1) / MXFP4_GROUP * MXFP4_GROUP_BYTES;
    if (dtype_kquant(dtype)) return (size_t)n_in / SUPER_BLOCK * packed_super_bytes(dtype);
    return packed_depth(dtype, n_in) * TILE_COLUMNS * dtype_bytes(dtype);
}
/* Where a tile of a float weight starts, in bytes, and how many bytes lie from one k (bf16: pair of
 * k) to the next. */
static inline size_t packed_tile_start(enum dtype dtype, int n_in, int tile) {
    size_t partner = dtype == DTYPE_BF16 ? (size_t)tile & 1 : 0;
    return ((size_t)tile - partner) * packed_tile_bytes(dtype, n_in) + partner * QUAD_BYTES;
}
static inline size_t packed_step(enum dtype dtype) {
    return dtype == DTYPE_BF16 ? 2 * QUAD_BYTES : TILE_COLUMNS * dtype_bytes(dtype);
}
/* Where element (row, k) of a float weight is, counted in elements. */
static inline size_t packed_index(enum dtype dtype, int n_in, int row, int k) {
    size_t start = packed_tile_start(dtype, n_in, row / TILE_COLUMNS),
           lane = (size_t)row % TILE_COLUMNS;
    if (dtype != DTYPE_BF16)
        return (start + (size_t)k * packed_step(dtype)) / dtype_bytes(dtype) + lane;
    return (start + (size_t)k / 2 * packed_step(dtype)) / 2 + lane * 2 + ((size_t)k & 1);
}

/* One block of all columns of a tile of int8, int4 or MXFP4: where its scales and its values start;
 * minimums follow scales. */
struct packed_block {
    const uint16_t *scales; /* NULL for MXFP4, which has exponents */
    const uint8_t *values, *exponents;
};
static inline struct packed_block packed_block(const struct weight *weight, int tile, int block) {
    const char *at =
        (const char *)weight->data + (size_t)tile * packed_tile_bytes(weight->dtype, weight->n_in);
    if (weight->dtype == DTYPE_INT4) {
        at += (size_t)block * INT4_BLOCK_BYTES;
        return (struct packed_block){.scales = (const uint16_t *)(const void *)at,
                                     .values = (const uint8_t *)at + LINE_BYTES};
    }
    if (weight->dtype == DTYPE_MXFP4) {
        size_t within = (size_t)block % MXFP4_GROUP;
        at += (size_t)block / MXFP4_GROUP * MXFP4_GROUP_BYTES;
        return (struct packed_block){
            .values = (const uint8_t *)at + LINE_BYTES + within * MXFP4_BLOCK_BYTES,
            .exponents = (const uint8_t *)at + within * TILE_COLUMNS};
    }
    size_t second = (size_t)block & 1;
    at += (size_t)block / 2 * INT8_PAIR_BYTES;
    return (struct packed_block){
        .scales = (const uint16_t *)(const void *)at + second * TILE_COLUMNS,
        .values = (const uint8_t *)at + LINE_BYTES + second * INT8_BLOCK_BYTES};
}
/* The q of column `lane`, k in 0 .. 31 of the block. */
static inline int packed_int8(struct packed_block block, int lane, int k) {
    return (int8_t)(block.values[k / QUAD * QUAD_BYTES + lane * QUAD + k % QUAD] ^ INT8_OFFSET);
}
/* Of MXFP4 the code. */
static inline int packed_int4(struct packed_block block, int lane, int k) {
    int quad = k / QUAD, half = BLOCK_QUADS / 2;
    return block.values[quad % half * QUAD_BYTES + lane * QUAD + k % QUAD] >>
               (quad < half ? 0 : 4) &
           15;
}

/* Super-block `index` of all columns of a tile. */
static inline const uint8_t *packed_super(const struct weight *weight, int tile, size_t index) {
    const uint8_t *at = (const uint8_t *)weight->data +
                        (size_t)tile * packed_tile_bytes(weight->dtype, weight->n_in);
    return at + index * packed_super_bytes(weight->dtype);
}
/* Column `lane` of a packed super-block, its numbers apart. */
void packed_super_read(struct super_block *to, enum dtype dtype, const uint8_t *packed, int lane);
