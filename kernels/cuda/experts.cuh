/* kernels/cuda/experts.cuh: rows sorted by expert, and products that give each expert its own.
 *
 * Only the device knows the rows of an expert: a product launches as many blocks as there could be
 * tiles of rows, and a block finds its expert in `tiles`, or that there is nothing to do. */
#pragma once

#include "kernels/cuda/common.cuh"

/* On the device: expert e has the sorted rows [starts[e], starts[e + 1]), in tiles [tiles[e],
 * tiles[e + 1]). */
struct expert_rows {
    const int32_t *starts, *tiles; /* [experts + 1] */
    int experts, unused;
};

/* y = x W^T of the sorted rows, without gaps between them; each has the W of its expert. */
struct expert_product {
    const struct weight *weights; /* [experts], host */
    struct expert_rows rows;
    int32_t *tiles;  /* rows.tiles, to be written */
    struct tensor x; /* [rows k, n_in] f32 */
    float *y;        /* [rows k, n_out] */
    int most;        /* rows that an expert may have */
};

/* The expert of a tile; experts: there are fewer tiles. */
__device__ inline int expert_of(const struct expert_rows &rows, int tile) {
    int low = 0, high = rows.experts;
    if (tile >= rows.tiles[rows.experts]) return rows.experts;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (rows.tiles[middle] <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Weights of one dtype, on the device; NULL where an expert's has another. */
struct expert_weights {
    const void *const *data; /* [experts], staged */
    const struct weight *first;
};

/* Rows of x in another type, without gaps but for zeros that fill each up to a multiple of columns;
 * valid until the next product. */
struct tensor experts_inputs(struct backend *backend, const struct tensor &x, enum dtype dtype,
                             int multiple);
/* Cuts the rows into tiles of `tile` rows; how many there are at most. */
int experts_cut(struct backend *backend, const struct expert_product *product, int tile);
/* The experts whose weights have the same type as the one at `first`. */
struct expert_weights experts_weights(struct backend *backend, const struct expert_product *product,
                                      int first);

/* blocks.cu: few rows, in f32, by int8, int4, fp8 weights, and by f16 and bf16 weights whose rows
 * are whole quads: the order of a sum is that of linear_blocks. */
void experts_multiply_few(struct backend *backend, const struct expert_product *product,
                          const struct expert_weights *weights);
/* experts_tile.cu: many rows by such weights, both rounded to 16 bits for the tensor cores; and any
 * number by other weights, in f32. The order of a sum depends on the weight's shape alone. */
void experts_multiply_many(struct backend *backend, const struct expert_product *product,
                           const struct expert_weights *weights);
void experts_multiply_plain(struct backend *backend, const struct expert_product *product,
                            const struct expert_weights *weights);
