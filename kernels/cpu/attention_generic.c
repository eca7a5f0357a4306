/* kernels/cpu/attention_generic.c: one block of keys enters the softmax of each row, in plain loops: the specification
 * of what attention.c describes. */
#include <math.h>

#include "kernels/cpu/variants.h"

void load_keys_generic(float *to, struct tensor from, int head_dim) {
    for (int i = 0; i < ATTENTION_KEYS; i++)
        for (int d = 0; d < head_dim; d++) {
            float v = 0;
            if (i < from.rows)
                dtype_convert(&v, DTYPE_F32, (char *)row_of(from, i) + (size_t)d * dtype_bytes(from.dtype), from.dtype,
                              1);
            to[d * ATTENTION_KEYS + i] = v;
        }
}

void load_values_generic(float *to, struct tensor from, int head_dim) {
    int padded = packed_tiles(head_dim) * TILE_COLUMNS;
    for (int i = 0; i < from.rows; i++) {
        dtype_convert(to + i * padded, DTYPE_F32, row_of(from, i), from.dtype, (size_t)head_dim);
        for (int d = head_dim; d < padded; d++) to[i * padded + d] = 0;
    }
}

static void attend_row(const struct attention_block *block, int row) {
    struct attention_scratch *s = block->scratch;
    int visible = s->visible[row];
    float scores[ATTENTION_KEYS] = {0}, largest = s->largest[row], sum = 0;
    const float *q = s->queries + row * block->padded;
    for (int d = 0; d < block->head_dim; d++)
        for (int i = 0; i < visible; i++) scores[i] += q[d] * s->keys[d * ATTENTION_KEYS + i];
    for (int i = 0; i < visible; i++) largest = scores[i] > largest ? scores[i] : largest;
    float keep = expf(s->largest[row] - largest), *out = s->outputs + row * block->padded;
    for (int d = 0; d < block->head_dim; d++) out[d] *= keep;
    for (int i = 0; i < visible; i++) {
        float p = expf(scores[i] - largest);
        sum += p;
        for (int d = 0; d < block->head_dim; d++) out[d] += p * s->values[i * block->padded + d];
    }
    s->sum[row] = s->sum[row] * keep + sum;
    s->largest[row] = largest;
}

void attention_generic(const struct attention_block *block) {
    for (int row = 0; row < block->rows; row++)
        if (block->scratch->visible[row] > 0) attend_row(block, row);
}
