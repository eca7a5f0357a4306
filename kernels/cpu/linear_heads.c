/* kernels/cpu/linear_heads.c: a product for each head of a row. The products are those of linear.c,
 * whose rows do not depend on each other: few rows are multiplied head by head, each by one thread,
 * and more as one product after the other. */
#include <string.h>

#include "kernels/cpu/cpu.h"

struct heads_product {
    const struct linear_heads_args *args;
    const struct cpu *cpu;
    size_t depth,
        apart; /* of a row that is rounded, and of threads' rooms for such rows; 0: none is */
};

static struct linear_args product_of(const struct linear_heads_args *args, int head) {
    const struct weight *weight = &args->weights[head];
    int from = args->x.cols / args->heads, to = args->y.cols / args->heads;
    return (struct linear_args){.y = tensor_cols(args->y, head * to, weight->n_out),
                                .x = tensor_cols(args->x, head * from, weight->n_in),
                                .weight = weight};
}

/* The columns of a head that no product makes. */
static void keep_columns(const struct linear_heads_args *args, int head) {
    const struct weight *weight = &args->weights[head];
    int from = args->x.cols / args->heads, to = args->y.cols / args->heads;
    for (int i = 0; i < args->x.rows && args->kept > 0; i++)
        memcpy(row_f32(args->y, i) + (ptrdiff_t)head * to + weight->n_out,
               row_f32(args->x, i) + (ptrdiff_t)head * from + weight->n_in,
               (size_t)args->kept * sizeof(float));
}

/* Rows as bf16, which the kernels of such weights read. */
static struct tensor round_rows(const struct heads_product *product, struct tensor x, int thread) {
    uint16_t *room = (uint16_t *)product->cpu->inputs + (size_t)thread * product->apart;
    struct tensor rounded = tensor_make(room, DTYPE_BF16, x.rows, (int)product->depth);
    for (int i = 0; i < x.rows; i++) {
        uint16_t *to = row_of(rounded, i);
        product->cpu->kernels->round(to, row_f32(x, i), x.cols);
        if (rounded.cols > x.cols) to[x.cols] = 0;
    }
    return rounded;
}

static void multiply_head(const void *context, int head, int thread) {
    const struct heads_product *product = context;
    struct linear_args args = product_of(product->args, head);
    if (product->depth > 0) args.x = round_rows(product, args.x, thread);
    product->cpu->kernels->linear(&args, 0, packed_tiles(args.weight->n_out));
    keep_columns(product->args, head);
}

void cpu_linear_heads(struct backend *backend, const struct linear_heads_args *args) {
    const struct cpu *cpu = cpu_of(backend);
    const struct weight *first = &args->weights[0];
    struct heads_product product = {.args = args, .cpu = cpu};
    if (cpu->kernels->round && first->dtype == DTYPE_BF16) {
        product.depth = packed_depth(DTYPE_BF16, first->n_in);
        product.apart = INPUT_BYTES / sizeof(uint16_t) / (size_t)cpu->threads / 32 * 32;
    }
    bool few = args->x.rows <= FEW_ROWS && !dtype_quantised(first->dtype) &&
               product.depth * (size_t)args->x.rows <= product.apart;
    if (few) {
        double work = (double)args->x.rows * first->n_in * first->n_out * args->heads;
        cpu_run(backend, work, args->heads, multiply_head, &product);
        return;
    }
    for (int head = 0; head < args->heads; head++) {
        struct linear_args one = product_of(args, head);
        cpu_linear(backend, &one);
        keep_columns(args, head);
    }
}
