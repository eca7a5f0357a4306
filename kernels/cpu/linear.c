/* kernels/cpu/linear.c: y = activation(x W^T + bias): sharing the tiles between threads.
 *
 * Reduction order, the same in every variant, for every number of rows and threads: element (i, j)
 * is even = sum over even k of x[i][k] W[j][k], odd = the same over odd k, each one chain in rising
 * k from zero; y = activation((even + odd) + bias[j]). So a row's result does not depend on the
 * other rows. The vector variants fuse each multiply-add, generic does not: variants differ in the
 * last bits, batches never do. The exceptions: avx512bf16, amx and Arm's bf16 with bf16 weights
 * round x to bf16 first and have one chain over pairs or blocks of k (linear_avx512bf16.c,
 * linear_amx.c, linear_bf16.c); with quantised weights x is rounded to integers, and there is one
 * chain over blocks (blocks.h). */
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/panels.h"

/* Rows from which on they are copied to panels. */
enum { PANEL_LEAST = 128 };

/* A product cut into pieces of `group` tiles. */
struct product {
    const struct linear_args *args;
    const struct block_product *blocks; /* of a quantised weight, else NULL */
    const struct panel_product *panels; /* of many rows with an f32 weight, else NULL */
    const struct pair_product *pairs;   /* of rows in pairs, else NULL */
    const struct cpu_kernels *kernels;
    int tiles, group;
};

static void product_piece(const void *context, int piece, int thread) {
    (void)thread;
    const struct product *product = context;
    const struct linear_args *args = product->args;
    int tile = piece * product->group, n_tiles = min_int(product->group, product->tiles - tile),
        column = tile * TILE_COLUMNS;
    if (product->blocks != NULL && dtype_kquant(args->weight->dtype))
        product->kernels->supers(product->blocks, tile, n_tiles);
    else if (product->blocks != NULL)
        product->kernels->blocks(product->blocks, tile, n_tiles);
    else if (product->pairs != NULL)
        product->kernels->pairs(product->pairs, tile, n_tiles);
    else if (product->panels != NULL)
        product->kernels->panels(product->panels, tile, n_tiles);
    else
        product->kernels->linear(args, tile, n_tiles);
    if (args->activation == ACTIVATION_NONE) return;
    int n = min_int(n_tiles * TILE_COLUMNS, args->weight->n_out - column);
    for (int i = 0; i < args->x.rows; i++) {
        float *y = row_f32(args->y, i) + column;
        product->kernels->activate(y, y, n, args->activation);
    }
}

/* A piece is a group of tiles; it is what a thread owes when it loses its core. The group is what a
 * kernel takes at once: four tiles, and two where several rows meet quantised weights; more where
 * that is too little work to be worth a turn. */
static void product_cut(struct product *product, const struct cpu_kernels *kernels) {
    const struct linear_args *args = product->args;
    double per_tile = (double)args->x.rows * args->weight->n_in * TILE_COLUMNS;
    product->kernels = kernels;
    product->tiles = packed_tiles(args->weight->n_out);
    bool few = product->blocks == NULL || args->x.rows <= FEW_ROWS;
    product->group = few && product->pairs == NULL ? 4 : 2;
    while (product->group * per_tile < 32768 && product->group < product->tiles)
        product->group *= 2;
}

static double product_work(const struct product *product) {
    const struct linear_args *args = product->args;
    return (double)args->x.rows * args->weight->n_in * TILE_COLUMNS * product->tiles;
}

static void pieces_multiply(struct backend *backend, struct product product) {
    product_cut(&product, cpu_of(backend)->kernels);
    cpu_run(backend, product_work(&product), divide_up(product.tiles, product.group), product_piece,
            &product);
}

/* The product of rows [row, row + rows). */
static struct linear_args part_of(const struct linear_args *args, int row, int rows) {
    struct linear_args part = *args;
    part.x = tensor_rows(args->x, row, rows);
    part.y = tensor_rows(args->y, row, rows);
    return part;
}

/* Panels of as many rows as the buffer holds at a time. */

static int panel_rows_most(const struct backend *backend, const struct linear_args *args) {
    int most = (int)(INPUT_BYTES / sizeof(float)) / args->weight->n_in,
        least = cpu_of(backend)->kernels->panel_rows;
    bool many = args->weight->dtype == DTYPE_F32 && args->x.rows >= PANEL_LEAST;
    return many && least > 0 && most >= least ? most : 0;
}

struct panelling {
    const struct panel_product *product;
    const struct cpu_kernels *kernels;
};

static void copy_panel(const void *context, int panel, int thread) {
    (void)thread;
    const struct panelling *panelling = context;
    panelling->kernels->panel(panelling->product, panel);
}

static void multiply_panels(struct backend *backend, const struct linear_args *args, int most) {
    const struct cpu *cpu = cpu_of(backend);
    const int passes = (args->x.rows + most - 1) / most;
    for (int pass = 0; pass < passes; pass++) {
        int row = (int)((int64_t)args->x.rows * pass / passes),
            end = (int)((int64_t)args->x.rows * (pass + 1) / passes);
        struct linear_args part = part_of(args, row, end - row);
        struct panel_product product = {.args = &part, .data = cpu->inputs};
        product.panels = (end - row + cpu->kernels->panel_rows - 1) / cpu->kernels->panel_rows;
        struct panelling copying = {.product = &product, .kernels = cpu->kernels};
        cpu_run(backend, (double)(end - row) * args->weight->n_in, product.panels, copy_panel,
                &copying);
        pieces_multiply(backend, (struct product){.args = &part, .panels = &product});
    }
}

struct rounding {
    struct tensor to, from;
    const struct cpu_kernels *kernels;
};

static void round_row(const void *context, int i, int thread) {
    (void)thread;
    const struct rounding *rounding = context;
    uint16_t *to = row_of(rounding->to, i);
    rounding->kernels->round(to, row_f32(rounding->from, i), rounding->from.cols);
    if (rounding->to.cols > rounding->from.cols) to[rounding->from.cols] = 0;
}

/* Whether the kernels read rows as bf16 beside this weight. */
static bool rounds_rows(const struct cpu_kernels *kernels, const struct weight *weight) {
    return kernels->round != NULL && weight->dtype == DTYPE_BF16;
}

/* Rows are rounded once for all tiles, as many as the buffer holds at a time. */
static void multiply_rounded(struct backend *backend, const struct linear_args *args) {
    const struct cpu *cpu = cpu_of(backend);
    size_t depth = packed_depth(DTYPE_BF16, args->weight->n_in);
    CHECK(depth <= INPUT_BYTES / sizeof(uint16_t));
    int most = (int)(INPUT_BYTES / sizeof(uint16_t) / depth);
    for (int row = 0; row < args->x.rows; row += most) {
        int rows = min_int(most, args->x.rows - row);
        struct linear_args part = part_of(args, row, rows);
        struct rounding rounding = {.to = tensor_make(cpu->inputs, DTYPE_BF16, rows, (int)depth),
                                    .from = part.x,
                                    .kernels = cpu->kernels};
        part.x = rounding.to;
        cpu_run(backend, (double)rows * (double)depth / 4, rows, round_row, &rounding);
        pieces_multiply(backend, (struct product){.args = &part});
    }
}

struct quantising {
    const struct block_product *product;
    void *to; /* what the product reads */
    const struct cpu_kernels *kernels;
};

static void quantise_row(const void *context, int i, int thread) {
    (void)thread;
    const struct quantising *quantising = context;
    const struct block_product *product = quantising->product;
    const struct linear_args *args = product->args;
    const enum dtype dtype = args->weight->dtype;
    const size_t index = group_index(product, i);
    const int step = group_rows(product, i), blocks = args->weight->n_in / dtype_block(dtype);
    if (dtype_kquant(dtype))
        quantising->kernels->quantise_supers((struct super_input *)quantising->to + index, step,
                                             row_f32(args->x, i), blocks, dtype);
    else
        quantising->kernels->quantise((struct input_block *)quantising->to + index, step,
                                      row_f32(args->x, i), blocks, dtype);
}

/* Bytes of a row that is rounded for a quantised weight. */
static size_t quantised_row_bytes(const struct weight *weight) {
    size_t block_bytes =
        dtype_kquant(weight->dtype) ? sizeof(struct super_input) : sizeof(struct input_block);
    return (size_t)(weight->n_in / dtype_block(weight->dtype)) * block_bytes;
}

/* The same for quantised weights; rows are put in groups that a kernel takes whole. */
static void multiply_blocks(struct backend *backend, const struct linear_args *args) {
    const struct cpu *cpu = cpu_of(backend);
    size_t row_bytes = quantised_row_bytes(args->weight);
    CHECK(row_bytes <= INPUT_BYTES);
    int most = (int)(INPUT_BYTES / row_bytes);
    for (int row = 0; row < args->x.rows; row += most) {
        int rows = min_int(most, args->x.rows - row);
        struct linear_args part = part_of(args, row, rows);
        struct block_product product = {.args = &part, .x = cpu->inputs};
        rows_group(&product);
        struct quantising quantising = {
            .product = &product, .to = cpu->inputs, .kernels = cpu->kernels};
        cpu_run(backend, (double)rows * args->weight->n_in / 2, rows, quantise_row, &quantising);
        pieces_multiply(backend, (struct product){.args = &part, .blocks = &product});
    }
}

struct pairing {
    const struct pair_product *product;
    const struct cpu_kernels *kernels;
};

static void copy_pair(const void *context, int pair, int thread) {
    (void)thread;
    const struct pairing *pairing = context;
    pairing->kernels->pair(pairing->product, pair);
}

/* The same for instructions that take two rows at once. */
static void multiply_pairs(struct backend *backend, const struct linear_args *args) {
    const struct cpu *cpu = cpu_of(backend);
    const size_t pair_bytes = pair_blocks(args->weight) * pair_block_bytes(args->weight->dtype);
    CHECK(pair_bytes <= INPUT_BYTES);
    const int most = 2 * (int)(INPUT_BYTES / pair_bytes);
    for (int row = 0; row < args->x.rows; row += most) {
        int rows = min_int(most, args->x.rows - row), pairs = (rows + 1) / 2,
            groups = (pairs + GROUP_PAIRS - 1) / GROUP_PAIRS;
        struct linear_args part = part_of(args, row, rows);
        struct pair_product product = {.args = &part,
                                       .data = cpu->inputs,
                                       .pairs = pairs,
                                       .group = (pairs + groups - 1) / groups};
        struct pairing pairing = {.product = &product, .kernels = cpu->kernels};
        cpu_run(backend, (double)rows * args->weight->n_in / 2, pairs, copy_pair, &pairing);
        pieces_multiply(backend, (struct product){.args = &part, .pairs = &product});
    }
}

static bool takes_pairs(const struct cpu_kernels *kernels, const struct linear_args *args) {
    if (kernels->pairs == NULL || args->x.rows <= FEW_ROWS) return false;
    return dtype_quantised(args->weight->dtype) || rounds_rows(kernels, args->weight);
}

void cpu_linear(struct backend *backend, const struct linear_args *args) {
    if (args->x.rows == 0) return;
    int most = panel_rows_most(backend, args);
    if (most > 0)
        multiply_panels(backend, args, most);
    else if (takes_pairs(cpu_of(backend)->kernels, args))
        multiply_pairs(backend, args);
    else if (dtype_quantised(args->weight->dtype))
        multiply_blocks(backend, args);
    else if (rounds_rows(cpu_of(backend)->kernels, args->weight))
        multiply_rounded(backend, args);
    else
        pieces_multiply(backend, (struct product){.args = args});
}

size_t cpu_lone_row_bytes(const struct backend *backend, const struct weight *weight) {
    size_t bytes = 0;
    if (dtype_quantised(weight->dtype))
        bytes = quantised_row_bytes(weight);
    else if (rounds_rows(cpu_of(backend)->kernels, weight))
        bytes = packed_depth(DTYPE_BF16, weight->n_in) * sizeof(uint16_t);
    return (bytes + QUAD_BYTES - 1) / QUAD_BYTES * QUAD_BYTES;
}

struct lone_products {
    struct product each[LONE_PRODUCTS];
    struct linear_args args[LONE_PRODUCTS];
    struct block_product blocks[LONE_PRODUCTS];
    int pieces; /* of each */
};

/* The row of product i becomes what kernels read, in `room`. */
static void prepare_row(struct lone_products *products, int i, const struct cpu_kernels *kernels,
                        void *room) {
    struct linear_args *args = &products->args[i];
    const struct weight *weight = args->weight;
    if (dtype_quantised(weight->dtype)) {
        products->blocks[i] = (struct block_product){.args = args, .x = room};
        rows_group(&products->blocks[i]);
        struct quantising quantising = {
            .product = &products->blocks[i], .to = room, .kernels = kernels};
        quantise_row(&quantising, 0, 0);
    } else if (rounds_rows(kernels, weight)) {
        int depth = (int)packed_depth(DTYPE_BF16, weight->n_in);
        struct rounding rounding = {
            .to = tensor_make(room, DTYPE_BF16, 1, depth), .from = args->x, .kernels = kernels};
        round_row(&rounding, 0, 0);
        args->x = rounding.to;
    }
}

/* The row of product i is that of an earlier one. */
static void share_row(struct lone_products *products, int i, int earlier) {
    products->args[i].x = products->args[earlier].x;
    if (products->each[i].blocks == NULL) return;
    products->blocks[i] = products->blocks[earlier];
    products->blocks[i].args = &products->args[i];
}

/* The first product with the same row; i: there is none. */
static int find_row(const struct linear_args *args, int i) {
    int earlier = 0;
    while (args[earlier].x.data != args[i].x.data) earlier++;
    return earlier;
}

static void lone_piece(const void *context, int piece, int thread) {
    const struct lone_products *products = context;
    product_piece(&products->each[piece / products->pieces], piece % products->pieces, thread);
}

void cpu_linear_lone(struct backend *backend, const struct linear_args *args, int n, void *room) {
    const struct cpu_kernels *kernels = cpu_of(backend)->kernels;
    const size_t row_bytes = cpu_lone_row_bytes(backend, args[0].weight);
    struct lone_products products;
    CHECK(n > 0 && n <= LONE_PRODUCTS);
    for (int i = 0; i < n; i++) {
        bool blocks = dtype_quantised(args[i].weight->dtype);
        products.args[i] = args[i];
        products.each[i] = (struct product){.args = &products.args[i],
                                            .blocks = blocks ? &products.blocks[i] : NULL};
        int earlier = find_row(args, i);
        if (earlier < i)
            share_row(&products, i, earlier);
        else
            prepare_row(&products, i, kernels, (char *)room + (size_t)i * row_bytes);
        product_cut(&products.each[i], kernels);
    }

    const struct product *first = &products.each[0];
    products.pieces = divide_up(first->tiles, first->group);
    cpu_run(backend, n * product_work(first), n * products.pieces, lone_piece, &products);
}
