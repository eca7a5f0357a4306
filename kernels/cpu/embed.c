/* kernels/cpu/embed.c: token, position and type embeddings. Words are read out of the packed
 * layout, which is often shared with the output matrix. */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* The weights themselves, rounded once: products and sums of quantised ones are of f32. */
static void word_blocks(float *y, const struct weight *weight, int id) {
    int lane = id % TILE_COLUMNS;
    for (int i = 0; i < weight->n_in / QUANTISE_BLOCK; i++, y += QUANTISE_BLOCK) {
        struct packed_block block = packed_block(weight, id / TILE_COLUMNS, i);
        if (weight->dtype == DTYPE_MXFP4) {
            float half = 0.5f * mxfp4_scale(block.exponents[lane]);
            for (int k = 0; k < QUANTISE_BLOCK; k++)
                y[k] = half * (float)mxfp4_doubled(packed_int4(block, lane, k));
            continue;
        }
        float scale = f16_to_f32(block.scales[lane]);
        if (weight->dtype == DTYPE_INT8) {
            for (int k = 0; k < QUANTISE_BLOCK; k++)
                y[k] = scale * (float)packed_int8(block, lane, k);
        } else {
            float minimum = f16_to_f32(block.scales[TILE_COLUMNS + lane]);
            for (int k = 0; k < QUANTISE_BLOCK; k++)
                y[k] = scale * (float)packed_int4(block, lane, k) + minimum;
        }
    }
}

static void word_supers(float *y, const struct weight *weight, int id) {
    for (size_t s = 0; s < (size_t)weight->n_in / SUPER_BLOCK; s++, y += SUPER_BLOCK) {
        struct super_block block;
        packed_super_read(&block, weight->dtype, packed_super(weight, id / TILE_COLUMNS, s),
                          id % TILE_COLUMNS);
        super_block_widen(y, weight->dtype, &block);
    }
}

static void word_row(float *y, const struct weight *weight, int id) {
    const uint16_t *halves = weight->data;
    if (dtype_kquant(weight->dtype)) {
        word_supers(y, weight, id);
        return;
    }
    if (dtype_quantised(weight->dtype)) {
        word_blocks(y, weight, id);
        return;
    }
    for (int k = 0; k < weight->n_in; k++) {
        size_t at = packed_index(weight->dtype, weight->n_in, id, k);
        switch (weight->dtype) {
            case DTYPE_F32: y[k] = ((const float *)weight->data)[at]; break;
            case DTYPE_F16: y[k] = f16_to_f32(halves[at]); break;
            case DTYPE_BF16: y[k] = bf16_to_f32(halves[at]); break;
            default: break; /* quantised: above; fp8: refused by pack */
        }
    }
}

static void embed_row(const void *context, int i, int thread) {
    (void)thread;
    const struct embed_args *args = context;
    float *y = row_f32(args->y, i);
    if (args->ids[i] < 0)
        memset(y, 0, (size_t)args->y.cols * sizeof *y);
    else
        word_row(y, args->word, args->ids[i]);
    if (args->scale > 0)
        for (int k = 0; k < args->y.cols; k++) y[k] *= args->scale;
    if (args->position != NULL) {
        const float *position = row_f32(*args->position, args->positions[i]);
        for (int k = 0; k < args->y.cols; k++) y[k] += position[k];
    }
    if (args->type != NULL) {
        const float *type = row_f32(*args->type, 0);
        for (int k = 0; k < args->y.cols; k++) y[k] += type[k];
    }
}

void cpu_embed(struct backend *backend, const struct embed_args *args) {
    cpu_run(backend, 4.0 * args->y.rows * args->y.cols, args->y.rows, embed_row, args);
}
