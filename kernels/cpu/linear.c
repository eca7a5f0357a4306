/* kernels/cpu/linear.c: y = activation(x W^T + bias): sharing the tiles between threads.
 *
 * Reduction order, the same in every variant, for every number of rows and threads: element (i, j) is
 *     even = sum over even k of x[i][k] W[j][k], odd = the same over odd k, each one chain in rising k from zero;
 *     y = activation((even + odd) + bias[j]).
 * So a row's result does not depend on the other rows. The vector variants fuse each multiply-add, generic does not:
 * variants differ in the last bits, batches never do.
 * The exception is avx512bf16 with bf16 weights: x is rounded to bf16 first, and there is one chain over pairs of k. */
#include "kernels/cpu/cpu.h"

/* A product cut into pieces of `group` tiles. */
struct product {
    const struct linear_args *args;
    const struct cpu_kernels *kernels;
    int tiles, group;
};

static void product_piece(const void *context, int piece, int thread) {
    (void)thread;
    const struct product *p = context;
    const struct linear_args *a = p->args;
    int tile = piece * p->group, n_tiles = min_int(p->group, p->tiles - tile), column = tile * TILE_COLUMNS;
    p->kernels->linear(a, tile, n_tiles);
    if (a->activation == ACTIVATION_NONE) return;
    int n = min_int(n_tiles * TILE_COLUMNS, a->weight->n_out - column);
    for (int i = 0; i < a->x.rows; i++) {
        float *y = row_f32(a->y, i) + column;
        p->kernels->activate(y, y, n, a->activation);
    }
}

/* Threads take groups of tiles as they become free, so a core that is busy elsewhere does not hold up the rest. A group
 * is four tiles, what a single row keeps in flight; more where that is too little work to be worth a turn. */
static void multiply(struct backend *b, const struct linear_args *a) {
    double per_tile = (double)a->x.rows * a->weight->n_in * TILE_COLUMNS;
    struct product p = {.args = a, .kernels = cpu_of(b)->kernels, .tiles = packed_tiles(a->weight->n_out), .group = 4};
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
    CHECK(depth <= ROUNDED_VALUES);
    int most = (int)(ROUNDED_VALUES / depth);
    for (int row = 0; row < a->x.rows; row += most) {
        int rows = min_int(most, a->x.rows - row);
        struct linear_args part = *a;
        part.x = tensor_make(cpu->rounded, DTYPE_BF16, rows, (int)depth);
        part.y = tensor_rows(a->y, row, rows);
        struct rounding r = {.to = part.x, .from = tensor_rows(a->x, row, rows), .kernels = cpu->kernels};
        cpu_run(b, (double)rows * (double)depth / 4, rows, round_row, &r);
        multiply(b, &part);
    }
}

void cpu_linear(struct backend *b, const struct linear_args *a) {
    if (a->x.rows == 0) return;
    if (cpu_of(b)->rounded != NULL && a->weight->dtype == DTYPE_BF16)
        multiply_rounded(b, a);
    else
        multiply(b, a);
}
