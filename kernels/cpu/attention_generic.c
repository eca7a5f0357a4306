/* kernels/cpu/attention_generic.c: the softmax of one range of keys, and merging ranges, in plain
 * loops: the specification of what attention.c describes. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/variants.h"

/* One key or value of a head in f32. */
static void load_row(float *to, const struct attention_range *range, struct tensor t, int key,
                     int head) {
    int row = range->starts[key / ATTENTION_BLOCK] + key % ATTENTION_BLOCK;
    const char *from =
        (const char *)row_of(t, row) + (size_t)(head * range->head_dim) * dtype_bytes(t.dtype);
    if (t.dtype != DTYPE_INT8) {
        dtype_convert(to, DTYPE_F32, from, t.dtype, (size_t)range->head_dim);
        return;
    }
    for (int d = 0; d < range->head_dim; d++) to[d] = ((const int8_t *)from)[d];
}

/* The factor of the integers of a key or value; 1 where they have none. */
static float row_scale(const struct attention_range *range, struct tensor scales, int key,
                       int head) {
    int row = range->starts[key / ATTENTION_BLOCK] + key % ATTENTION_BLOCK;
    return scales.data ? bf16_to_f32(((const uint16_t *)row_of(scales, row))[head]) : 1;
}

/* Element d is added to sum d mod 16; the sums are added 8 apart, then 4, 2 and 1. */
static float row_dot(const float *q, const float *k, int n) {
    float sums[TILE_COLUMNS] = {0};
    for (int d = 0; d < n; d++) sums[d % TILE_COLUMNS] += q[d] * k[d];
    for (int apart = TILE_COLUMNS / 2; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++) sums[i] += sums[i + apart];
    return sums[0];
}

/* The score of a key with the soft-cap and the bias. `at` is the row among those of all key heads.
 */
static float bend_score(const struct attention_range *range, int at, int key, float score) {
    if (range->softcap > 0) score = range->softcap * tanhf(score / range->softcap);
    if (range->reach < 0) return score;
    int distance = range->distance[at % range->rows] + key;
    return score + range->bias[at][max_int(-range->reach, min_int(distance, range->reach))];
}

static void soften_row(const struct attention_range *range, int at) {
    int first = range->hidden[at % range->rows], end = range->visible[at % range->rows];
    float *scores = range->scratch->scores + at * ATTENTION_KEYS, largest = -INFINITY, sum = 0;
    for (int i = first; i < end; i++) {
        scores[i] = bend_score(range, at, i, scores[i]);
        largest = scores[i] > largest ? scores[i] : largest;
    }
    for (int i = first; i < end; i++) {
        scores[i] = expf(scores[i] - largest);
        sum += scores[i];
    }
    range->sums.largest[at] = largest;
    range->sums.sum[at] = sum;
}

static void attend_head(const struct attention_range *range, int head) {
    const struct attention_scratch *scratch = range->scratch;
    float loaded[ATTENTION_MAX_HEAD];
    int first = head * range->rows;
    for (int key = range->hidden[0]; key < range->keys; key++) {
        load_row(loaded, range, range->k, key, head);
        float scale = row_scale(range, range->k_scales, key, head);
        for (int row = 0; row < range->rows; row++)
            range->scratch->scores[(first + row) * ATTENTION_KEYS + key] =
                scale *
                row_dot(scratch->queries + (first + row) * range->padded, loaded, range->head_dim);
    }
    for (int row = 0; row < range->rows; row++)
        if (range->visible[row] > range->hidden[row]) soften_row(range, first + row);
    for (int key = range->hidden[0]; key < range->keys; key++) {
        load_row(loaded, range, range->v, key, head);
        float scale = row_scale(range, range->v_scales, key, head);
        for (int row = 0; row < range->rows; row++) {
            if (key < range->hidden[row] || key >= range->visible[row]) continue;
            float *out = range->sums.out + (first + row) * range->padded;
            float p = scale * scratch->scores[(first + row) * ATTENTION_KEYS + key];
            for (int d = 0; d < range->head_dim; d++) out[d] += p * loaded[d];
        }
    }
}

void attention_generic(const struct attention_range *range) {
    memset(range->sums.out, 0,
           (size_t)(range->kv_heads * range->rows * range->padded) * sizeof(float));
    for (int head = 0; head < range->kv_heads; head++) attend_head(range, head);
}

void merge_generic(const struct attention_sums *to, const struct attention_sums *from, int row,
                   int padded) {
    float largest = to->largest[row] > from->largest[row] ? to->largest[row] : from->largest[row];
    float keep = expf(to->largest[row] - largest), enter = expf(from->largest[row] - largest);
    to->sum[row] = to->sum[row] * keep + from->sum[row] * enter;
    to->largest[row] = largest;
    for (int i = row * padded; i < (row + 1) * padded; i++)
        to->out[i] = to->out[i] * keep + from->out[i] * enter;
}
