/* kernels/kquants.h: GGUF's super-blocks of 256 weights, as its files hold them (ggml-quants.h of
 * llama.cpp is the definition; the package `gguf` reads them in numpy). A super-block is cut into
 * parts, each with an integer scale:
 *
 *     Q4_K   w = (d s) q - (dmin m), q in 0 .. 15, 8 parts of 32, s and m in 0 .. 63
 *            { f16 d, f16 dmin, uint8 packed[12] (s and m), uint8 q[128] }
 *     Q5_K   the same with q in 0 .. 31
 *            { f16 d, f16 dmin, uint8 packed[12], uint8 fifth[32], uint8 q[128] }
 *     Q6_K   w = (d s) (q - 32), q in 0 .. 63, 16 parts of 16, s in -128 .. 127
 *            { uint8 q[128], uint8 upper[64], int8 s[16], f16 d }
 *
 * d s and dmin m are exact in f32: f16 has 11 bits, s and m at most 8. */
#pragma once

#include "kernels/tensor.h"

enum { SUPER_PARTS = 16, KQUANT_CENTRE = 32 /* of Q6_K */ };

/* One super-block with its numbers apart. */
struct super_block {
    uint16_t d, dmin;              /* f16; dmin is 0 in Q6_K */
    int16_t scales[SUPER_PARTS];   /* 8 of them in Q4_K and Q5_K */
    uint8_t minimums[SUPER_PARTS]; /* 8; 0 in Q6_K */
    uint8_t q[SUPER_BLOCK];
};

/* Columns of a part. */
static inline int super_part(enum dtype dtype) { return dtype == DTYPE_Q6_K ? 16 : 32; }

void super_block_read(struct super_block *to, enum dtype dtype, const void *from);
/* SUPER_BLOCK weights as f32: each product and difference above rounded once. */
void super_block_widen(float *to, enum dtype dtype, const struct super_block *block);
/* n columns, whole super-blocks of one row as GGUF holds them, by the same rule. */
void kquants_widen(float *to, enum dtype dtype, const void *from, int n);
