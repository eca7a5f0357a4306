/* kernels/cpu/linear.c: y = activation(x W^T + bias): sharing the tiles between threads.
 *
 * Reduction order, the same in every variant, for every number of rows and threads: element (i, j) is
 *     even = sum over even k of x[i][k] W[j][k], odd = the same over odd k, each one chain in rising k from zero;
 *     y = activation((even + odd) + bias[j]).
 * So a row's result does not depend on the other rows. The vector variants fuse each multiply-add, generic does not:
 * variants differ in the last bits, batches never do.
 * The exceptions: avx512bf16 with bf16 weights rounds x to bf16 first and has one chain over pairs of k; with quantised
 * weights x is rounded to integers, and there is one chain over blocks (blocks.h). */
#include "kernels/cpu/blocks.h"

/* A product cut into pieces of `group` tiles. */
struct product {
    const struct linear_args *args;
    const struct block_product *blocks; /* of a quantised weight, else NULL */
    const struct cpu_kernels *kernels;
    int tiles, group;
};

static void product_piece(const void *context, int piece, int thread) {
    (void)thread;
    const struct product *p = context;
    const struct linear_args *a = p->args;
    int tile = piece * p->group, n_tiles = min_int(p->group, p->tiles - tile), column = tile * TILE_COLUMNS;
    if (p->blocks != NULL && dtype_kquant(a->weight->dtype))
        p->kernels->supers(p->blocks, tile, n_tiles);
    else if (p->blocks != NULL)
        p->kernels->blocks(p->blocks, tile, n_tiles);
    else
        p->kernels->linear(a, tile, n_tiles);
    if (a->activation == ACTIVATION_NONE) return;
    int n = min_int(n_tiles * TILE_COLUMNS, a->weight->n_out - column);
    for (int i = 0; i < a->x.rows; i++) {
        float *y = row_f32(a->y, i) + column;
        p->kernels->activate(y, y, n, a->activation);
    }
}

/* A piece is a group of tiles; it is what a thread owes when it loses its core. The group is what a kernel takes at
 * once: four tiles, and two where several rows meet quantised weights; more where that is too little work to be worth a
 * turn. */
static void rows_multiply(struct backend *b, const struct linear_args *a, const struct block_product *blocks) {
    double per_tile = (double)a->x.rows * a->weight->n_in * TILE_COLUMNS;
    struct product p = {.args = a,
                        .blocks = blocks,
                        .kernels = cpu_of(b)->kernels,
                        .tiles = packed_tiles(a->weight->n_out),
                        .group = blocks != NULL && a->x.rows > FEW_ROWS ? 2 : 4};
    while (p.group * per_tile < 32768 && p.group < p.tiles) p.group *= 2;
    cpu_run(b, per_tile * p.tiles, (p.tiles + p.group - 1) / p.group, product_piece, &p);
}

struct rounding {
    struct tensor to, from;
    const struct cpu_kernels *kernels;
};

static void round_row(const void *context, int i, int thread) {
    (void)thread;
    const struct rounding *r = context;
    uint16_t *to = row_of(r->to, i);
    r->kernels->round(to, row_f32(r->from, i), r->from.cols);
    if (r->to.cols > r->from.cols) to[r->from.cols] = 0;
}

/* Rows are rounded once for all tiles, as many as the buffer holds at a time. */
static void multiply_rounded(struct backend *b, const struct linear_args *a) {
    const struct cpu *cpu = cpu_of(b);
    size_t depth = packed_depth(DTYPE_BF16, a->weight->n_in);
    CHECK(depth <= INPUT_BYTES / sizeof(uint16_t));
    int most = (int)(INPUT_BYTES / sizeof(uint16_t) / depth);
    for (int row = 0; row < a->x.rows; row += most) {
        int rows = min_int(most, a->x.rows - row);
        struct linear_args part = *a;
        part.x = tensor_make(cpu->inputs, DTYPE_BF16, rows, (int)depth);
        part.y = tensor_rows(a->y, row, rows);
        struct rounding r = {.to = part.x, .from = tensor_rows(a->x, row, rows), .kernels = cpu->kernels};
        cpu_run(b, (double)rows * (double)depth / 4, rows, round_row, &r);
        rows_multiply(b, &part, NULL);
    }
}

struct quantising {
    const struct block_product *product;
    void *to; /* what the product reads */
    const struct cpu_kernels *kernels;
};

static void quantise_row(const void *context, int i, int thread) {
    (void)thread;
    const struct quantising *q = context;
    const struct block_product *p = q->product;
    const struct linear_args *a = p->args;
    const enum dtype dtype = a->weight->dtype;
    const size_t index = group_index(p, i);
    const int step = group_rows(p, i / p->group * p->group), blocks = a->weight->n_in / dtype_block(dtype);
    if (dtype_kquant(dtype))
        q->kernels->quantise_supers((struct super_input *)q->to + index, step, row_f32(a->x, i), blocks, dtype);
    else
        q->kernels->quantise((struct input_block *)q->to + index, step, row_f32(a->x, i), blocks, dtype);
}

/* The same for quantised weights; rows are put in equal groups that a kernel takes whole. */
static void multiply_blocks(struct backend *b, const struct linear_args *a) {
    const struct cpu *cpu = cpu_of(b);
    const enum dtype dtype = a->weight->dtype;
    size_t block_bytes = dtype_kquant(dtype) ? sizeof(struct super_input) : sizeof(struct input_block);
    size_t row_bytes = (size_t)(a->weight->n_in / dtype_block(dtype)) * block_bytes;
    CHECK(row_bytes <= INPUT_BYTES);
    int most = (int)(INPUT_BYTES / row_bytes);
    for (int row = 0; row < a->x.rows; row += most) {
        int rows = min_int(most, a->x.rows - row), groups = (rows + INPUT_ROWS - 1) / INPUT_ROWS;
        struct linear_args part = *a;
        part.x = tensor_rows(a->x, row, rows);
        part.y = tensor_rows(a->y, row, rows);
        struct block_product p = {.args = &part, .x = cpu->inputs, .group = (rows + groups - 1) / groups};
        struct quantising q = {.product = &p, .to = cpu->inputs, .kernels = cpu->kernels};
        cpu_run(b, (double)rows * a->weight->n_in / 2, rows, quantise_row, &q);
        rows_multiply(b, &part, &p);
    }
}

void cpu_linear(struct backend *b, const struct linear_args *a) {
    if (a->x.rows == 0) return;
    if (dtype_quantised(a->weight->dtype))
        multiply_blocks(b, a);
    else if (cpu_of(b)->kernels->round != NULL && a->weight->dtype == DTYPE_BF16)
        multiply_rounded(b, a);
    else
        rows_multiply(b, a, NULL);
}
