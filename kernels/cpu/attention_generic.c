/* kernels/cpu/attention_generic.c: the softmax of one range of keys, and merging ranges, in plain loops: the
 * specification of what attention.c describes. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/variants.h"

/* One key or value of a head in f32. */
static void load_row(float *to, const struct attention_block *block, struct tensor t, int key, int head) {
    const char *from = (const char *)row_of(t, key) + (size_t)(head * block->head_dim) * dtype_bytes(t.dtype);
    dtype_convert(to, DTYPE_F32, from, t.dtype, (size_t)block->head_dim);
}

/* Element d is added to sum d mod 16; the sums are added 8 apart, then 4, 2 and 1. */
static float dot(const float *q, const float *k, int n) {
    float sums[TILE_COLUMNS] = {0};
    for (int d = 0; d < n; d++) sums[d % TILE_COLUMNS] += q[d] * k[d];
    for (int apart = TILE_COLUMNS / 2; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++) sums[i] += sums[i + apart];
    return sums[0];
}

static void soften_row(const struct attention_block *block, int row, int visible) {
    float *scores = block->scratch->scores + row * ATTENTION_KEYS, largest = -INFINITY, sum = 0;
    for (int i = 0; i < visible; i++) largest = scores[i] > largest ? scores[i] : largest;
    for (int i = 0; i < visible; i++) sum += scores[i] = expf(scores[i] - largest);
    block->sums.largest[row] = largest;
    block->sums.sum[row] = sum;
}

static void attend_head(const struct attention_block *block, int head) {
    const struct attention_scratch *s = block->scratch;
    float loaded[ATTENTION_MAX_HEAD];
    int first = head * block->rows;
    for (int key = 0; key < block->k.rows; key++) {
        load_row(loaded, block, block->k, key, head);
        for (int row = 0; row < block->rows; row++)
            block->scratch->scores[(first + row) * ATTENTION_KEYS + key] =
                dot(s->queries + (first + row) * block->padded, loaded, block->head_dim);
    }
    for (int row = 0; row < block->rows; row++)
        if (block->visible[row] > 0) soften_row(block, first + row, block->visible[row]);
    for (int key = 0; key < block->v.rows; key++) {
        load_row(loaded, block, block->v, key, head);
        for (int row = 0; row < block->rows; row++) {
            if (key >= block->visible[row]) continue;
            float *out = block->sums.out + (first + row) * block->padded;
            float p = s->scores[(first + row) * ATTENTION_KEYS + key];
            for (int d = 0; d < block->head_dim; d++) out[d] += p * loaded[d];
        }
    }
}

void attention_generic(const struct attention_block *block) {
    memset(block->sums.out, 0, (size_t)(block->kv_heads * block->rows * block->padded) * sizeof(float));
    for (int head = 0; head < block->kv_heads; head++) attend_head(block, head);
}

void merge_generic(const struct attention_sums *to, const struct attention_sums *from, int row, int padded) {
    float largest = to->largest[row] > from->largest[row] ? to->largest[row] : from->largest[row];
    float keep = expf(to->largest[row] - largest), enter = expf(from->largest[row] - largest);
    to->sum[row] = to->sum[row] * keep + from->sum[row] * enter;
    to->largest[row] = largest;
    for (int i = row * padded; i < (row + 1) * padded; i++) to->out[i] = to->out[i] * keep + from->out[i] * enter;
}
