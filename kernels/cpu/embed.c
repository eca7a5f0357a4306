/* kernels/cpu/embed.c: token, position and type embeddings. Words are read out of the packed layout, which is often
 * shared with the output matrix. */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* The weights themselves, rounded once: products and sums of quantised ones are of f32. */
static void word_blocks(float *y, const struct weight *w, int id) {
    int lane = id % TILE_COLUMNS;
    for (int i = 0; i < w->n_in / QUANTISE_BLOCK; i++, y += QUANTISE_BLOCK) {
        struct packed_block block = packed_block(w, id / TILE_COLUMNS, i);
        float scale = f16_to_f32(block.scales[lane]);
        if (w->dtype == DTYPE_INT8) {
            for (int k = 0; k < QUANTISE_BLOCK; k++) y[k] = scale * (float)packed_int8(block, lane, k);
        } else {
            float minimum = f16_to_f32(block.scales[TILE_COLUMNS + lane]);
            for (int k = 0; k < QUANTISE_BLOCK; k++) y[k] = scale * (float)packed_int4(block, lane, k) + minimum;
        }
    }
}

static void word_supers(float *y, const struct weight *w, int id) {
    for (size_t s = 0; s < (size_t)w->n_in / SUPER_BLOCK; s++, y += SUPER_BLOCK) {
        struct super_block block;
        packed_super_read(&block, w->dtype, packed_super(w, id / TILE_COLUMNS, s), id % TILE_COLUMNS);
        super_block_widen(y, w->dtype, &block);
    }
}

static void word_row(float *y, const struct weight *w, int id) {
    const uint16_t *halves = w->data;
    if (dtype_kquant(w->dtype)) {
        word_supers(y, w, id);
        return;
    }
    if (dtype_quantised(w->dtype)) {
        word_blocks(y, w, id);
        return;
    }
    for (int k = 0; k < w->n_in; k++) {
        size_t at = packed_index(w->dtype, w->n_in, id, k);
        switch (w->dtype) {
            case DTYPE_F32: y[k] = ((const float *)w->data)[at]; break;
            case DTYPE_F16: y[k] = f16_to_f32(halves[at]); break;
            case DTYPE_BF16: y[k] = bf16_to_f32(halves[at]); break;
            default: break; /* quantised: above; fp8: refused by pack */
        }
    }
}

static void embed_row(const void *context, int i, int thread) {
    (void)thread;
    const struct embed_args *a = context;
    float *y = row_f32(a->y, i);
    if (a->ids[i] < 0)
        memset(y, 0, (size_t)a->y.cols * sizeof *y);
    else
        word_row(y, a->word, a->ids[i]);
    if (a->scale > 0)
        for (int k = 0; k < a->y.cols; k++) y[k] *= a->scale;
    if (a->position != NULL) {
        const float *position = row_f32(*a->position, a->positions[i]);
        for (int k = 0; k < a->y.cols; k++) y[k] += position[k];
    }
    if (a->type != NULL) {
        const float *type = row_f32(*a->type, 0);
        for (int k = 0; k < a->y.cols; k++) y[k] += type[k];
    }
}

void cpu_embed(struct backend *b, const struct embed_args *a) {
    cpu_run(b, 4.0 * a->y.rows * a->y.cols, a->y.rows, embed_row, a);
}
