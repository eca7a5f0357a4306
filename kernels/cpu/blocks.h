/* kernels/cpu/blocks.h: products with int8 and int4 weights: what the variants share.
 *
 * x is rounded to integers block by block, as the weights are, once for all output columns. Element (i, j) of the
 * product is one chain over the blocks in rising order, from zero, the same for every number of rows and threads: int8
 * sum = sum + (weight scale * x scale) * (sum of q_w q_x) int4   sum = sum + weight minimum * (x scale * sum of q_x);
 * sum = sum + (weight scale * x scale) * (sum of q_w q_x) The sums inside a block are of integers and exact, so only
 * the chain rounds: the vector variants fuse each multiply-add and agree bitwise with each other, generic does not
 * fuse. */
#pragma once

#include "kernels/cpu/cpu.h"

/* A block of one row of x: x = scale * q, q in [-127, 127]. */
struct input_block {
    int8_t q[QUANTISE_BLOCK];
    float scale; /* largest magnitude / 127; 0 for a block of nothing but zeros, NaN where x is not finite (q is 0) */
    union {
        int32_t offset; /* for int8: -INT8_OFFSET * sum of q, what makes up for the offset of the packed weights */
        float sum;      /* for int4: scale * sum of q */
    };
};

enum { INPUT_ROWS = 6 }; /* the most rows that a kernel takes at once */

/* A product whose x is rounded. Rows are in groups of `group`, the last may be smaller, and blocks of one group's rows
 * lie side by side: [group][block][row in the group]. */
struct block_product {
    const struct linear_args *args;
    const struct input_block *x;
    int group;
};

static inline int group_rows(const struct block_product *p, int first) {
    return min_int(p->group, p->args->x.rows - first);
}
/* Block 0 of row i; the row's next block is group_rows further. */
static inline const struct input_block *group_input(const struct block_product *p, int i) {
    size_t blocks = (size_t)p->args->weight->n_in / QUANTISE_BLOCK, first = (size_t)(i / p->group * p->group);
    return p->x + first * blocks + (size_t)i - first;
}

/* Smaller numbers are taken for zero: 127 divided by them would overflow. */
#define INPUT_LEAST 0x1p-100f
/* The bits of |x| from which on x is infinite or NaN. */
#define INPUT_NOT_FINITE 0x7f800000

/* What is left to do once q is there: the scale of a block whose largest |x| has these bits. */
static inline float input_scale(float largest, bool finite) {
    if (!finite) return __builtin_nanf("");
    return largest < INPUT_LEAST ? 0 : largest / 127;
}
/* q = x times this, rounded to nearest even. */
static inline float input_inverse(float largest, bool finite) {
    return finite && largest >= INPUT_LEAST ? 127 / largest : 0;
}
static inline void input_finish(struct input_block *to, int sum, enum dtype weights) {
    if (weights == DTYPE_INT8)
        to->offset = -INT8_OFFSET * sum;
    else
        to->sum = to->scale * (float)sum;
}
