/* kernels/cpu/pack.c: weights into the packed layout (layout.h), all threads together. */
#include <string.h>

#include "kernels/cpu/cpu.h"

struct packing {
    const struct weight *weight;
    const struct host_matrix *host;
};

enum { PACK_RUN = 256 };

/* n elements of the weight's own type go to their places in the tile: row `row`, from column k on. */
static void place_run(const struct weight *w, int row, int k, const void *run, int n) {
    for (int i = 0; i < n; i++) {
        size_t at = packed_index(w->dtype, w->n_in, row, k + i);
        if (w->dtype == DTYPE_F32)
            ((uint32_t *)w->data)[at] = ((const uint32_t *)run)[i];
        else
            ((uint16_t *)w->data)[at] = ((const uint16_t *)run)[i];
    }
}

static void pack_row(const struct weight *w, const struct host_matrix *host, int row) {
    uint32_t run[PACK_RUN];
    for (int k = 0; k < w->n_in; k += PACK_RUN) {
        int n = min_int(PACK_RUN, w->n_in - k);
        size_t from = ((size_t)row * (size_t)w->n_in + (size_t)k) * dtype_bytes(host->dtype);
        dtype_convert(run, w->dtype, (const char *)host->values + from, host->dtype, (size_t)n);
        place_run(w, row, k, run, n);
    }
}

/* 32 values of one row, as quads. */
static void place_int8(uint8_t *to, const uint8_t *from) {
    for (int quad = 0; quad < BLOCK_QUADS; quad++)
        for (int i = 0; i < QUAD; i++) to[quad * QUAD_BYTES + i] = from[quad * QUAD + i] ^ INT8_OFFSET;
}

static void place_int4(uint8_t *to, const uint8_t *from) {
    uint8_t q[QUANTISE_BLOCK];
    for (int k = 0; k < QUANTISE_BLOCK; k++) q[k] = from[k / 2] >> (k % 2 ? 4 : 0) & 15;
    for (int k = 0; k < QUANTISE_BLOCK / 2; k++)
        to[k / QUAD * QUAD_BYTES + k % QUAD] = (uint8_t)(q[k] | q[k + QUANTISE_BLOCK / 2] << 4);
}

static void pack_row_blocks(const struct weight *w, const struct host_matrix *host, int row) {
    int blocks = w->n_in / QUANTISE_BLOCK, lane = row % TILE_COLUMNS;
    size_t first = (size_t)row * (size_t)blocks;
    const uint8_t *from = host->values;
    for (int i = 0; i < blocks; i++) {
        struct packed_block block = packed_block(w, row / TILE_COLUMNS, i);
        /* What is read through the block elsewhere is ours to write here. */
        uint16_t *scales = (uint16_t *)(uintptr_t)block.scales + lane;
        uint8_t *values = (uint8_t *)(uintptr_t)block.values + lane * QUAD;
        size_t at = first + (size_t)i;
        scales[0] = host->scales[at];
        if (w->dtype == DTYPE_INT8) {
            place_int8(values, from + at * QUANTISE_BLOCK);
        } else {
            scales[TILE_COLUMNS] = host->minimums[at];
            place_int4(values, from + at * (QUANTISE_BLOCK / 2));
        }
    }
}

/* One tile: 16 rows of the host matrix become 16 columns. What pads the tile stays zero, as it was allocated. */
static void pack_tile(const void *context, int tile, int thread) {
    (void)thread;
    const struct packing *p = context;
    int end = min_int(p->weight->n_out, (tile + 1) * TILE_COLUMNS);
    for (int row = tile * TILE_COLUMNS; row < end; row++) {
        if (dtype_quantised(p->weight->dtype))
            pack_row_blocks(p->weight, p->host, row);
        else
            pack_row(p->weight, p->host, row);
    }
}

size_t cpu_packed_bytes(const struct weight *w) {
    CHECK(w->n_out > 0 && w->n_in > 0 && w->n_out <= INT32_MAX - TILE_COLUMNS);
    size_t bytes;
    return mul_overflows(stored_tiles(w->dtype, w->n_out), packed_tile_bytes(w->dtype, w->n_in), &bytes) ? 0 : bytes;
}

enum status cpu_pack(struct backend *b, struct weight *w, const struct host_matrix *host, struct error *e) {
    size_t bytes = cpu_packed_bytes(w);
    w->data = bytes == 0 ? NULL : b->ops->alloc(b, bytes);
    if (w->data == NULL)
        return error_set(e, STATUS_NO_MEMORY, "cpu: no memory for a [%d, %d] %s weight; use a smaller model or dtype",
                         w->n_out, w->n_in, dtype_name(w->dtype));
    struct packing p = {.weight = w, .host = host};
    cpu_run(b, (double)w->n_out * w->n_in, packed_tiles(w->n_out), pack_tile, &p);
    return STATUS_OK;
}
