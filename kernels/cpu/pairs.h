/* kernels/cpu/pairs.h: products for instructions that multiply two rows by two columns at once
 * (SMMLA and BFMMLA of Arm): what linear.c and the variants share.
 *
 * More than FEW_ROWS rows of x are put in pairs first, once for all output columns: what one
 * instruction takes of both rows lies side by side. Element (i, j) of the product is the chain that
 * one row has (blocks.h; linear_bf16.c), so a row has the same bits alone and among others. An odd
 * last row has a partner of zeros, whose results nobody stores. */
#pragma once

#include "kernels/cpu/blocks.h"

enum {
    OCTET = 8, /* bytes along K that one instruction takes of a row or a column */
    BLOCK_OCTETS = QUANTISE_BLOCK / OCTET,
    SUPER_OCTETS = SUPER_BLOCK / OCTET,
    PAIR_DEPTH = OCTET / 2, /* bf16 along K of an octet */
    GROUP_PAIRS = 4,        /* the most pairs that a kernel takes at once */
    BOTH_TWICE = 4,         /* a number of each row, in a register of sums of two columns */
    SUM_BITS = 7            /* of a sum of a part's q that fit `low` */
};

/* A block of both rows for int8, int4 and MXFP4: as they were rounded, then joined. */
union block_pair {
    struct input_block rows[2];
    struct {
        int8_t q[BLOCK_OCTETS][2][OCTET];
        float scales[BOTH_TWICE];
        float sums[BOTH_TWICE]; /* of int4 only */
    } joined;
};

/* A super-block of both rows. Its sums are 2^SUM_BITS high + low, in the order that super_input
 * has; in Q6_K, whose panels take the centre off the weights, they mean nothing. */
union super_pair {
    struct super_input rows[2];
    struct {
        int8_t q[SUPER_OCTETS][2][OCTET];
        int8_t low[2][SUPER_BLOCKS], high[2][SUPER_BLOCKS];
        float scales[BOTH_TWICE];
    } joined;
};

/* Four values of both rows for bf16. */
struct depth_pair {
    uint16_t values[2][PAIR_DEPTH];
};

/* A product whose x is in pairs. Pairs are in groups of `group`, the last may be smaller, and
 * blocks of one group's pairs lie side by side: [group][block][pair in the group]. */
struct pair_product {
    const struct linear_args *args;
    char *data;
    int pairs, group;
};

static inline size_t pair_block_bytes(enum dtype weights) {
    if (weights == DTYPE_BF16) return sizeof(struct depth_pair);
    return dtype_kquant(weights) ? sizeof(union super_pair) : sizeof(union block_pair);
}
/* Blocks along K of a pair. */
static inline size_t pair_blocks(const struct weight *weight) {
    if (weight->dtype == DTYPE_BF16) return ((size_t)weight->n_in + PAIR_DEPTH - 1) / PAIR_DEPTH;
    return (size_t)(weight->n_in / dtype_block(weight->dtype));
}
static inline int group_pairs(const struct pair_product *product, int first) {
    return min_int(product->group, product->pairs - first);
}
/* Where block `block` of a pair is; the pair's next block is group_pairs further. */
static inline void *pair_data(const struct pair_product *product, int pair, size_t block) {
    const struct weight *weight = product->args->weight;
    const size_t first = (size_t)(pair / product->group * product->group),
                 step = (size_t)group_pairs(product, (int)first),
                 index = first * pair_blocks(weight) + block * step + (size_t)pair - first;
    return product->data + index * pair_block_bytes(weight->dtype);
}
