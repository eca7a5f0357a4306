/* kernels/cuda/blocks.cuh: weights on the device as our own kernels read them: the packed layout of
 * int8, int4 and fp8, and rows of 16-bit floats, which stay as the library wants them.
 *
 * A row of W is lines of 128 bytes. A line holds 4 blocks of int8 or fp8 or 8 of int4: the host's
 * bytes of these blocks, taken in quads (4 neighbouring values: 4 bytes of int8, 2 of int4) and
 * transposed, so that piece p of 16 bytes, p in 0 .. 7, holds quad p of every block of the line.
 * Eight threads that load a piece each load a line, and for each block they need 32 neighbouring
 * values of x, 16 bytes a thread: both are whole cache lines. int8 is stored as q + 128, without a
 * sign. The values of all rows are followed by the scales, [n_out][lines]{ f16 scale[blocks of a
 * line] }, for int4 { f16 scale[8], f16 minimum[8] }, for fp8 [n_out] f32. Blocks that fill up a
 * row's last line are zeros.
 *
 * A line of f16 or bf16 is 64 neighbouring values, two blocks; a piece is a quad of each, in two
 * loads of 8 bytes. The rest of a row's last line is not in memory and reads as zeros. Rows
 * start at multiples of 8 bytes. */
#pragma once

#include "kernels/cuda/common.cuh"

enum {
    QUAD = 4, /* values of a block that one thread holds */
    LINE_PIECES = QUANTISE_BLOCK / QUAD,
    PIECE_BYTES = 16,
    LINE_BYTES = LINE_PIECES * PIECE_BYTES,
    INT8_OFFSET = 128
};

__host__ __device__ constexpr bool two_bytes(enum dtype dtype) {
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}
/* Blocks in a line, and so quads in a piece. */
__host__ __device__ constexpr int line_blocks(enum dtype dtype) {
    return dtype == DTYPE_INT4 ? 8 : two_bytes(dtype) ? 2 : 4;
}
/* Numbers of 16 bits beside a line. */
__host__ __device__ constexpr int line_scales(enum dtype dtype) {
    return dtype == DTYPE_INT4 ? 16 : dtype == DTYPE_INT8 ? 4 : 0;
}

/* A weight in a kernel's arguments. */
struct blocks {
    const unsigned char *values;
    const uint16_t *scales; /* of fp8: floats; of f16 and bf16: none */
    int n_out, n_in;
    int lines; /* of a row */
    enum dtype dtype;
};

static inline int lines_of(enum dtype dtype, int n_in) {
    int blocks = (n_in + QUANTISE_BLOCK - 1) / QUANTISE_BLOCK;
    return (blocks + line_blocks(dtype) - 1) / line_blocks(dtype);
}

static inline struct blocks blocks_of(const struct weight *weight) {
    int lines = lines_of(weight->dtype, weight->n_in);
    const unsigned char *values = (const unsigned char *)weight->data;
    const unsigned char *scales = values + (size_t)weight->n_out * (size_t)lines * LINE_BYTES;
    return {values,        (const uint16_t *)(const void *)scales,
            weight->n_out, weight->n_in,
            lines,         weight->dtype};
}

/* The 16 bytes of one thread, with the scales of their blocks where there are any; T is the dtype.
 */
template <enum dtype T>
struct block_piece {
    unsigned values[PIECE_BYTES / sizeof(unsigned)];
    unsigned scales[line_scales(T) ? line_scales(T) / 2
                                   : 1]; /* of two blocks each; the minimums follow */
};

/* The column of W where the quad of the piece's block `block` starts; n_in or more: it is filling.
 */
template <enum dtype T>
__device__ inline int quad_column(int at, int block) {
    return (at / LINE_PIECES * line_blocks(T) + block) * QUANTISE_BLOCK + at % LINE_PIECES * QUAD;
}

/* Piece `at` of a row, counted from the row's start. */
template <enum dtype T>
__device__ inline block_piece<T> piece_load(const struct blocks &w, int row, int at) {
    block_piece<T> p;
    if constexpr (two_bytes(T)) {
        const uint16_t *from = (const uint16_t *)(const void *)w.values + (int64_t)row * w.n_in;
        UNROLL
        for (int block = 0; block < line_blocks(T); block++) {
            int col = quad_column<T>(at, block);
            uint2 v = {0, 0};
            if (col < w.n_in) v = *(const uint2 *)(from + col);
            p.values[2 * block] = v.x, p.values[2 * block + 1] = v.y;
        }
        return p;
    }
    int64_t line = (int64_t)row * w.lines + at / LINE_PIECES;
    uint4 v = *(const uint4 *)(w.values + line * LINE_BYTES + at % LINE_PIECES * PIECE_BYTES);
    p.values[0] = v.x, p.values[1] = v.y, p.values[2] = v.z, p.values[3] = v.w;
    const uint16_t *scales = w.scales + line * line_scales(T);
    if constexpr (T == DTYPE_INT8) {
        uint2 the_uint2 = *(const uint2 *)scales;
        p.scales[0] = the_uint2.x, p.scales[1] = the_uint2.y;
    } else if constexpr (T == DTYPE_INT4) {
        for (int i = 0; i < 8; i += 4) {
            uint4 the_uint4 = *(const uint4 *)(scales + 2 * i);
            p.scales[i] = the_uint4.x, p.scales[i + 1] = the_uint4.y, p.scales[i + 2] = the_uint4.z,
            p.scales[i + 3] = the_uint4.w;
        }
    }
    return p;
}

template <enum dtype T>
__device__ inline float block_scale(const block_piece<T> &p, int i) {
    return half_bits_to_f32((uint16_t)(p.scales[i / 2] >> 16 * (i & 1)), DTYPE_F16);
}

/* The bits of e4m3 are those of an f32 that is 2^120 too small: its subnormals are subnormal there
 * too. */
__device__ inline float e4m3_to_f32(unsigned bits) {
    return __uint_as_float((bits & 0x80) << 24 | (bits & 0x7f) << 20) * 0x1p120f;
}

/* The scale of an fp8 row, which dequantise leaves out. */
template <enum dtype T>
__device__ inline float row_scale(const struct blocks &w, int row) {
    return T == DTYPE_FP8 ? ((const float *)(const void *)w.scales)[row] : 1;
}

/* The quad of a piece's block as f32: the values of f16 and bf16; q of fp8; scale q and scale q +
 * minimum, rounded once: products of 11 by 8 bits are exact. An integer below 2^8 becomes a float
 * by or-ing it into the mantissa of a power of two, where it counts as it is, and taking that away
 * again: cheaper than a conversion. Nibble j need not be shifted for it: it is or-ed into 2^(23 -
 * 4j). */
template <enum dtype T>
__device__ inline lanes<QUAD> piece_dequantise(const block_piece<T> &p, int block) {
    lanes<QUAD> w;
    float scale = line_scales(T) ? block_scale(p, line_scales(T) ? block : 0) : 1;
    for (int j = 0; j < QUAD; j++) {
        if constexpr (two_bytes(T)) {
            w.at[j] = half_bits_to_f32((uint16_t)(p.values[2 * block + j / 2] >> 16 * (j & 1)), T);
        } else if constexpr (T == DTYPE_FP8) {
            w.at[j] = e4m3_to_f32(p.values[block] >> 8 * j & 0xff);
        } else if constexpr (T == DTYPE_INT8) {
            unsigned one = 150u << 23, q = p.values[block] >> 8 * j & 0xff;
            w.at[j] = scale * (__uint_as_float(one | q) - (__uint_as_float(one) + INT8_OFFSET));
        } else {
            unsigned one = (150u - 4 * j) << 23,
                     q = p.values[block / 2] >> 16 * (block & 1) & 15u << 4 * j;
            float minimum = block_scale(p, line_blocks(T) + block);
            w.at[j] = fmaf(scale, __uint_as_float(one | q) - __uint_as_float(one), minimum);
        }
    }
    return w;
}

/* One element of W as f32: for a few rows of it, where no speed is to be had. */
__device__ inline float value_dequantise(const struct blocks &the_blocks, int row, int col) {
    int blocks = line_blocks(the_blocks.dtype), block = col / QUANTISE_BLOCK % blocks,
        quad = col % QUANTISE_BLOCK / QUAD;
    int64_t line = (int64_t)row * the_blocks.lines + col / QUANTISE_BLOCK / blocks;
    const unsigned char *at =
        the_blocks.values + line * LINE_BYTES + quad * PIECE_BYTES + block * (PIECE_BYTES / blocks);
    if (the_blocks.dtype == DTYPE_FP8)
        return row_scale<DTYPE_FP8>(the_blocks, row) * e4m3_to_f32(at[col % QUAD]);
    const uint16_t *scales = the_blocks.scales + line * line_scales(the_blocks.dtype) + block;
    float scale = half_bits_to_f32(*scales, DTYPE_F16);
    if (the_blocks.dtype == DTYPE_INT8) return scale * (float)(at[col % QUAD] - INT8_OFFSET);
    int q = at[col % QUAD / 2] >> 4 * (col & 1) & 15;
    return scale * (float)q + half_bits_to_f32(scales[blocks], DTYPE_F16);
}
