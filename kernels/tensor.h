/* kernels/tensor.h: element types, a two-dimensional view, and matrices of weights. Views own
 * nothing. */
#pragma once

#include "config/base/base.h"

/* From INT8 on, types are for weights; int8 is for cached keys and values too, whose scales lie in
 * a tensor of their own (struct attention_args).
 *
 *     int8   w = scale * q, q in [-127, 127]: blocks of QUANTISE_BLOCK along n_in, one f16 scale
 * each int4   w = scale * q + minimum, q in 0 .. 15: the same with an f16 minimum beside the scale
 *     fp8    w = scale * q with q of e4m3 (a sign, 4 bits of exponent, 3 of mantissa) and one f32
 * scale a row: made on a GPU's way in from wider weights. No file holds it, and the CPU does not
 * run it. Q4_K, Q5_K, Q6_K   GGUF's super-blocks of SUPER_BLOCK along n_in: kernels/kquants.h
 *     MXFP4  w = 2^(exponent - 127) * q with q of e2m1: kernels/mxfp4.h; the CPU alone runs it
 *
 * n_in is a multiple of the block. */
enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_INT8,
    DTYPE_INT4,
    DTYPE_FP8,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_MXFP4
};

enum { QUANTISE_BLOCK = 32, SUPER_BLOCK = 256 };

/* Bytes of one super-block, 0 for a type without them. */
static inline size_t super_block_bytes(enum dtype dtype) {
    return dtype == DTYPE_Q4_K ? 144 : dtype == DTYPE_Q5_K ? 176 : dtype == DTYPE_Q6_K ? 210 : 0;
}
static inline bool dtype_kquant(enum dtype dtype) { return super_block_bytes(dtype) != 0; }
static inline bool dtype_quantised(enum dtype dtype) {
    return dtype == DTYPE_INT8 || dtype == DTYPE_INT4 || dtype == DTYPE_MXFP4 ||
           dtype_kquant(dtype);
}
static inline bool dtype_two_a_byte(enum dtype dtype) {
    return dtype == DTYPE_INT4 || dtype == DTYPE_MXFP4;
}
/* Columns that one block of a quantised type holds. */
static inline int dtype_block(enum dtype dtype) {
    return dtype_kquant(dtype) ? SUPER_BLOCK : QUANTISE_BLOCK;
}
/* Of one element; other quantised types have no elements of their own. */
static inline size_t dtype_bytes(enum dtype dtype) {
    if (dtype == DTYPE_INT8) return 1;
    CHECK(!dtype_quantised(dtype) && dtype != DTYPE_FP8);
    return dtype == DTYPE_F32 ? 4 : 2;
}
/* Of a matrix of that many elements with its scales and minimums: what a product has to read. */
static inline size_t matrix_bytes(enum dtype dtype, size_t elements) {
    if (dtype == DTYPE_FP8) return elements;
    if (dtype_kquant(dtype)) return elements / SUPER_BLOCK * super_block_bytes(dtype);
    if (!dtype_quantised(dtype)) return elements * dtype_bytes(dtype);
    if (dtype == DTYPE_MXFP4) return elements / QUANTISE_BLOCK * (QUANTISE_BLOCK / 2 + 1);
    return elements / QUANTISE_BLOCK *
           (dtype == DTYPE_INT8 ? QUANTISE_BLOCK + 2 : QUANTISE_BLOCK / 2 + 4);
}
const char *dtype_name(enum dtype dtype);
/* "f32", "float32", "F32", ... as configuration and checkpoints spell it; false when unknown, or
 * when no wider weights can be converted to it (fp8, Q4_K, Q5_K, Q6_K, MXFP4). */
bool dtype_parse(enum dtype *out, const char *name);

/* Rows of device memory. Element (i, j) is at data + (i * stride + j) * dtype_bytes(dtype). */
struct tensor {
    void *data;
    int64_t stride; /* elements from one row to the next */
    int rows, cols;
    enum dtype dtype;
};

static inline struct tensor tensor_make(void *data, enum dtype dtype, int rows, int cols) {
    return (struct tensor){
        .data = data, .stride = cols, .rows = rows, .cols = cols, .dtype = dtype};
}
/* Rows [first, first + rows), columns [col, col + cols) of t. */
static inline struct tensor tensor_slice(struct tensor t, int first, int rows, int col, int cols) {
    CHECK(first >= 0 && rows >= 0 && first + rows <= t.rows && col >= 0 && cols >= 0 &&
          col + cols <= t.cols);
    t.data =
        (char *)t.data + ((size_t)first * (size_t)t.stride + (size_t)col) * dtype_bytes(t.dtype);
    t.rows = rows;
    t.cols = cols;
    return t;
}
static inline struct tensor tensor_rows(struct tensor t, int first, int rows) {
    return tensor_slice(t, first, rows, 0, t.cols);
}
static inline struct tensor tensor_cols(struct tensor t, int col, int cols) {
    return tensor_slice(t, 0, t.rows, col, cols);
}
static inline float *tensor_f32(struct tensor t) {
    CHECK(t.dtype == DTYPE_F32);
    return (float *)t.data;
}

/* A matrix [n_out, n_in] as files hold it, row after row. int8: one int8_t each; int4 and MXFP4:
 * two a byte, the even column in the low nibble. scales and minimums are f16 [n_out, n_in /
 * QUANTISE_BLOCK], NULL where the dtype has none. Q4_K, Q5_K and Q6_K: rows of super-blocks as a
 * GGUF file holds them, which have their scales inside; no alignment. exponents are MXFP4's, in
 * place of scales. */
struct host_matrix {
    const void *values;
    const uint16_t *scales, *minimums;
    enum dtype dtype;
    const uint8_t *exponents;
};

/* W [n_out, n_in] of y = x W^T in the backend's packed layout; made by backend_pack, owned by
 * whoever packed it. */
struct weight {
    void *data;
    enum dtype dtype;
    int n_out, n_in;
};

/* Conversions, round to nearest even. Exact in the widening direction. */
static inline float bf16_to_f32(uint16_t v) {
    union {
        uint32_t u;
        float f;
    } x = {.u = (uint32_t)v << 16};
    return x.f;
}
static inline uint16_t f32_to_bf16(float v) {
    union {
        float f;
        uint32_t u;
    } x = {.f = v};
    if ((x.u & 0x7fffffff) > 0x7f800000) return (uint16_t)(x.u >> 16 | 0x40); /* quiet NaN */
    return (uint16_t)((x.u + 0x7fff + (x.u >> 16 & 1)) >> 16);
}
float f16_to_f32(uint16_t v);
uint16_t f32_to_f16(float v);
/* n elements, any pair of dtypes that are not quantised; int8 as it is. */
void dtype_convert(void *to, enum dtype to_dtype, const void *from, enum dtype from_dtype,
                   size_t n);
