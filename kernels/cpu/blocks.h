/* kernels/cpu/blocks.h: products with quantised weights: what the variants share.
 *
 * x is rounded to integers block by block, once for all output columns. Element (i, j) of the
 * product is one chain over the blocks in rising order, from zero, the same for every number of
 * rows and threads:
 *
 *     int8   sum = sum + (weight scale * x scale) * (sum of q_w q_x)
 *     int4   sum = sum + weight minimum * (x scale * sum of q_x)
 *            sum = sum + (weight scale * x scale) * (sum of q_w q_x)
 *     MXFP4  sum = sum + (2^(exponent - 127) * half the x scale) * (sum of 2 q_w q_x)
 *     Q4_K, Q5_K, Q6_K: x is rounded by super-blocks, and each is a chain over its parts in rising
 * order inner = -(dmin * (sum of m * (sum of the part's q_x))), in Q6_K 0 inner = inner + (d s) *
 * (sum of the part's q_w q_x) sum = sum + x scale * inner
 *
 * The sums of products of integers are exact, so only the chains round: the vector variants fuse
 * each multiply-add and agree bitwise with each other, generic does not fuse. */
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/half.h"

/* A block of one row of x: x = scale * q, q in [-127, 127]. */
struct input_block {
    int8_t q[QUANTISE_BLOCK];
    float scale; /* 0 for a block of nothing but zeros, NaN where x is not finite (q is 0); for
                    MXFP4 half of it, as doubled weights meet q */
    float power; /* for int4: of two, which the scale is; -infinity and NaN where the scale is 0 and
                    NaN */
    union {
        int32_t offset; /* for int8: -INT8_OFFSET * sum of q, what makes up for the offset of the
                           packed weights; for MXFP4 -MXFP4_LARGEST * sum of q likewise */
        float sum;      /* for int4: scale * sum of q */
    };
};

/* A super-block of one row of x, by the same rule. */
struct super_input {
    int8_t q[SUPER_BLOCK];
    union {
        int32_t offsets[SUPER_PARTS]; /* for Q6_K: -KQUANT_CENTRE * sum of the part's q */
        int16_t sums[SUPER_BLOCKS]; /* for Q4_K and Q5_K: sums of the parts' q, in the order 0 2 1 3
                                       4 6 5 7 */
    };
    float scale;
};

/* Where the sum of part p lies: the minimums come in quads, whose bytes a vector takes apart as 0
 * and 2, 1 and 3. */
static inline int super_sum_place(int p) { return (p & 4) | (p & 1) << 1 | (p >> 1 & 1); }

enum { INPUT_ROWS = 6 }; /* the most rows that a kernel takes at once */

/* A product whose x is rounded. Rows are in groups: those before row `split` in groups of `group`,
 * the others in groups of `rest`, of which the last may be smaller. Blocks of one group's rows lie
 * side by side: [group][block][row in the group]. */
struct block_product {
    const struct linear_args *args;
    union {
        const struct input_block *x;
        const struct super_input *supers; /* of Q4_K, Q5_K, Q6_K */
    };
    int groups, group, split, rest;
};

/* As few groups as kernels can take, and of equal size but for the last. The last two share
 * their rows where the last would have one or two: no group of several has fewer than INPUT_ROWS
 * / 2. */
static inline void rows_group(struct block_product *product) {
    const int rows = product->args->x.rows, groups = (rows + INPUT_ROWS - 1) / INPUT_ROWS,
              group = (rows + groups - 1) / groups, last = rows - (groups - 1) * group;
    const bool shared = groups > 1 && last < INPUT_ROWS / 2;
    product->groups = groups;
    product->group = group;
    product->split = (shared ? groups - 2 : groups - 1) * group;
    product->rest = shared ? (group + last + 1) / 2 : last;
}
/* The first row of the group that row i is in. */
static inline int group_first(const struct block_product *product, int i) {
    if (i < product->split) return i / product->group * product->group;
    return product->split + (i - product->split) / product->rest * product->rest;
}
/* How many rows are in the group that row i is in. */
static inline int group_rows(const struct block_product *product, int i) {
    if (i < product->split) return product->group;
    return min_int(product->rest, product->args->x.rows - group_first(product, i));
}
/* Where block 0 of row i is; the row's next block is group_rows further. */
static inline size_t group_index(const struct block_product *product, int i) {
    const struct weight *weight = product->args->weight;
    size_t blocks = (size_t)(weight->n_in / dtype_block(weight->dtype)),
           first = (size_t)group_first(product, i);
    return first * blocks + (size_t)i - first;
}
static inline const struct input_block *group_input(const struct block_product *product, int i) {
    return product->x + group_index(product, i);
}
static inline const struct super_input *group_super(const struct block_product *product, int i) {
    return product->supers + group_index(product, i);
}

/* Smaller numbers are taken for zero: 127 divided by them would overflow. */
#define INPUT_LEAST 0x1p-100f
/* The bits of |x| from which on x is infinite or NaN. */
#define INPUT_NOT_FINITE 0x7f800000

/* q = x times the inverse, rounded to nearest even; for int8 and super-blocks |x| / 127 is the
 * scale. */
static inline float input_scale(float largest, bool finite) {
    if (!finite) return __builtin_nanf("");
    return largest < INPUT_LEAST ? 0 : largest / 127;
}
static inline float input_inverse(float largest, bool finite) {
    return finite && largest >= INPUT_LEAST ? 127 / largest : 0;
}
/* Int4 takes the least power of two that is not below |x| / 127. The weight's scale times that is
 * exact, and is had without a multiplication; x keeps half a bit less, which weights of four bits
 * do not show. */
static inline void input_power(struct input_block *to, float largest, bool finite) {
    union float_bits bits = {.f = largest}, scale;
    to->scale = input_scale(largest, finite);
    to->power = finite ? -__builtin_inff() : to->scale;
    if (!(to->scale > 0)) return;
    /* 127 is 2^6 times 1.984375; a larger fraction carries into the exponent. */
    uint32_t exponent = ((bits.u + 0x1ffff) >> 23) - 6;
    scale.u = exponent << 23;
    to->scale = scale.f;
    to->power = (float)exponent - 127;
}
/* Sets the scale; returns the inverse. */
static inline float input_begin(struct input_block *to, float largest, bool finite,
                                enum dtype weights) {
    if (weights == DTYPE_INT8 || weights == DTYPE_MXFP4) {
        to->scale = input_scale(largest, finite) * (weights == DTYPE_MXFP4 ? 0.5f : 1);
        to->power = 0;
        return input_inverse(largest, finite);
    }
    input_power(to, largest, finite);
    return to->scale > 0 ? 1 / to->scale : 0;
}
static inline void input_finish(struct input_block *to, int sum, enum dtype weights) {
    if (weights == DTYPE_INT8)
        to->offset = -INT8_OFFSET * sum;
    else if (weights == DTYPE_MXFP4)
        to->offset = -MXFP4_LARGEST * sum;
    else
        to->sum = to->scale * (float)sum;
}
/* The sum of the part of 32 or, in Q6_K, of 16. */
static inline void super_input_finish(struct super_input *to, int part, int sum,
                                      enum dtype weights) {
    if (weights == DTYPE_Q6_K)
        to->offsets[part] = -KQUANT_CENTRE * sum;
    else
        to->sums[super_sum_place(part)] = (int16_t)sum;
}
