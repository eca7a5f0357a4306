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
    BOTH_TWICE = 4          /* a number of each row, in a register of sums of two columns */
};

/* Blocks of a group's pairs for int8, int4 and MXFP4 lie in the order in which a kernel reads them:
 * for each block the octets of all pairs, an octet of each row by turns, then the scales of all
 * pairs and, for int4, their sums. */
struct pair_octets {
    int8_t q[BLOCK_OCTETS][2][OCTET];
};
struct pair_numbers {
    float both[BOTH_TWICE];
};

/* A super-block of both rows. Its sums are 2^7 high + low, in the order that super_input
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
    if (dtype_kquant(weights)) return sizeof(union super_pair);
    return sizeof(struct pair_octets) +
           (weights == DTYPE_INT4 ? 2 : 1) * sizeof(struct pair_numbers);
}
/* Blocks along K of a pair. */
static inline size_t pair_blocks(const struct weight *weight) {
    if (weight->dtype == DTYPE_BF16) return ((size_t)weight->n_in + PAIR_DEPTH - 1) / PAIR_DEPTH;
    return (size_t)(weight->n_in / dtype_block(weight->dtype));
}
static inline int group_pairs(const struct pair_product *product, int first) {
    return min_int(product->group, product->pairs - first);
}
/* Where block `block` of the group that begins with pair `first` is. */
static inline void *group_data(const struct pair_product *product, int first, size_t block) {
    const struct weight *weight = product->args->weight;
    const size_t index =
        (size_t)first * pair_blocks(weight) + block * (size_t)group_pairs(product, first);
    return product->data + index * pair_block_bytes(weight->dtype);
}
/* Where block `block` of a pair of bf16 or super-blocks is; the pair's next block is group_pairs
 * further. */
static inline void *pair_data(const struct pair_product *product, int pair, size_t block) {
    const int first = pair / product->group * product->group;
    char *group = group_data(product, first, block);
    return group + (size_t)(pair - first) * pair_block_bytes(product->args->weight->dtype);
}
/* The scales, or for int4 what follows them, behind the octets of a group of `pairs`. */
static inline struct pair_numbers *group_numbers(const struct pair_octets *octets, int pairs) {
    return (struct pair_numbers *)(void *)(octets + pairs);
}
