/* kernels/cpu/linear.c: y = activation(x W^T + bias): packing the weights and sharing the tiles between threads.
 *
 * Reduction order, the same in every variant, for every number of rows and threads: element (i, j) is
 *     even = sum over even k of x[i][k] W[j][k], odd = the same over odd k, each one chain in rising k from zero;
 *     y = activation((even + odd) + bias[j]).
 * So a row's result does not depend on the other rows. The vector variants fuse each multiply-add, generic does not:
 * variants differ in the last bits, batches never do. */
#include "kernels/cpu/cpu.h"

/* One tile: 16 rows of the host matrix become 16 columns. Rows past n_out and the odd last k stay zero. */
static void pack_tile(const struct weight *w, const void *host, enum dtype host_dtype, int tile) {
    size_t size = dtype_bytes(w->dtype), host_size = dtype_bytes(host_dtype);
    int end = min_int(w->n_out, (tile + 1) * TILE_COLUMNS);
    for (int row = tile * TILE_COLUMNS; row < end; row++) {
        const char *from = (const char *)host + (size_t)row * (size_t)w->n_in * host_size;
        for (int k = 0; k < w->n_in; k++)
            dtype_convert((char *)w->data + packed_index(w->dtype, w->n_in, row, k) * size, w->dtype,
                          from + (size_t)k * host_size, host_dtype, 1);
    }
}

enum status cpu_pack(struct backend *b, struct weight *w, const void *host, enum dtype host_dtype, struct error *e) {
    CHECK(w->n_out > 0 && w->n_in > 0 && w->n_out <= INT32_MAX - TILE_COLUMNS);
    int tiles = packed_tiles(w->n_out);
    size_t bytes;
    bool overflow = mul_overflows((size_t)tiles * TILE_COLUMNS, packed_depth(w->dtype, w->n_in), &bytes) ||
                    mul_overflows(bytes, dtype_bytes(w->dtype), &bytes);
    w->data = overflow ? NULL : b->ops->alloc(b, bytes);
    if (w->data == NULL)
        return error_set(e, STATUS_NO_MEMORY, "cpu: no memory for a [%d, %d] %s weight; use a smaller model or dtype",
                         w->n_out, w->n_in, dtype_name(w->dtype));
    int threads = cpu_threads(cpu_of(b), (double)w->n_out * w->n_in);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int tile = 0; tile < tiles; tile++) pack_tile(w, host, host_dtype, tile);
    return STATUS_OK;
}

/* Threads take groups of tiles as they become free, so a core that is busy elsewhere does not hold up the rest. A group
 * is four tiles: what a single row keeps in flight. Groups are merged where they are too small to be worth a turn. */
void cpu_linear(struct backend *b, const struct linear_args *a) {
    const struct cpu *cpu = cpu_of(b);
    if (a->x.rows == 0) return;
    double work = (double)a->x.rows * a->weight->n_in * a->weight->n_out;
    int threads = cpu_threads(cpu, work), tiles = packed_tiles(a->weight->n_out);
    int group = threads == 1 ? tiles : 4;
    while (group * TILE_COLUMNS * (double)a->x.rows * a->weight->n_in < 32768 && group < tiles) group *= 2;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int tile = 0; tile < tiles; tile += group) {
        int n_tiles = min_int(group, tiles - tile), column = tile * TILE_COLUMNS;
        cpu->kernels->linear(a, tile, n_tiles);
        if (a->activation == ACTIVATION_NONE) continue;
        int n = min_int(n_tiles * TILE_COLUMNS, a->weight->n_out - column);
        for (int i = 0; i < a->x.rows; i++) {
            float *y = row_f32(a->y, i) + column;
            cpu->kernels->activate(y, y, n, a->activation);
        }
    }
}
