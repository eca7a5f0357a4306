/* kernels/cpu/linear.c: y = activation(x W^T + bias): sharing the tiles between threads.
 *
 * Reduction order, the same in every variant, for every number of rows and threads: element (i, j) is
 *     even = sum over even k of x[i][k] W[j][k], odd = the same over odd k, each one chain in rising k from zero;
 *     y = activation((even + odd) + bias[j]).
 * So a row's result does not depend on the other rows. The vector variants fuse each multiply-add, generic does not:
 * variants differ in the last bits, batches never do.
 * The exceptions: avx512bf16 and amx with bf16 weights round x to bf16 first and have one chain over pairs or blocks of
 * k (linear_avx512bf16.c, linear_amx.c); with quantised weights x is rounded to integers, and there is one chain over
 * blocks (blocks.h). */
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/panels.h"

/* Rows from which on they are copied to panels. */
enum { PANEL_LEAST = 128 };

/* A product cut into pieces of `group` tiles. */
struct product {
    const struct linear_args *args;
    const struct block_product *blocks; /* of a quantised weight, else NULL */
    const struct panel_product *panels; /* of many rows with an f32 weight, else NULL */
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
    else if (p->panels != NULL)
        p->kernels->panels(p->panels, tile, n_tiles);
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
static void pieces_multiply(struct backend *b, struct product p) {
    const struct linear_args *a = p.args;
    double per_tile = (double)a->x.rows * a->weight->n_in * TILE_COLUMNS;
    p.kernels = cpu_of(b)->kernels;
    p.tiles = packed_tiles(a->weight->n_out);
    p.group = p.blocks != NULL && a->x.rows > FEW_ROWS ? 2 : 4;
    while (p.group * per_tile < 32768 && p.group < p.tiles) p.group *= 2;
    cpu_run(b, per_tile * p.tiles, (p.tiles + p.group - 1) / p.group, product_piece, &p);
}

/* Panels of as many rows as the buffer holds at a time. */

static int panel_rows_most(const struct backend *b, const struct linear_args *a) {
    int most = (int)(INPUT_BYTES / sizeof(float)) / a->weight->n_in, least = cpu_of(b)->kernels->panel_rows;
    bool many = a->weight->dtype == DTYPE_F32 && a->x.rows >= PANEL_LEAST;
    return many && least > 0 && most >= least ? most : 0;
}

struct panelling {
    const struct panel_product *product;
    const struct cpu_kernels *kernels;
};

static void copy_panel(const void *context, int panel, int thread) {
    (void)thread;
    const struct panelling *p = context;
    p->kernels->panel(p->product, panel);
}

static void multiply_panels(struct backend *b, const struct linear_args *a, int most) {
    const struct cpu *cpu = cpu_of(b);
    const int passes = (a->x.rows + most - 1) / most;
    for (int pass = 0; pass < passes; pass++) {
        int row = (int)((int64_t)a->x.rows * pass / passes), end = (int)((int64_t)a->x.rows * (pass + 1) / passes);
        struct linear_args part = *a;
        part.x = tensor_rows(a->x, row, end - row);
        part.y = tensor_rows(a->y, row, end - row);
        struct panel_product p = {.args = &part, .data = cpu->inputs};
        p.panels = (end - row + cpu->kernels->panel_rows - 1) / cpu->kernels->panel_rows;
        struct panelling copying = {.product = &p, .kernels = cpu->kernels};
        cpu_run(b, (double)(end - row) * a->weight->n_in, p.panels, copy_panel, &copying);
        pieces_multiply(b, (struct product){.args = &part, .panels = &p});
    }
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
        pieces_multiply(b, (struct product){.args = &part});
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
        pieces_multiply(b, (struct product){.args = &part, .blocks = &p});
    }
}

void cpu_linear(struct backend *b, const struct linear_args *a) {
    if (a->x.rows == 0) return;
    int most = panel_rows_most(b, a);
    if (most > 0)
        multiply_panels(b, a, most);
    else if (dtype_quantised(a->weight->dtype))
        multiply_blocks(b, a);
    else if (cpu_of(b)->kernels->round != NULL && a->weight->dtype == DTYPE_BF16)
        multiply_rounded(b, a);
    else
        pieces_multiply(b, (struct product){.args = a});
}
