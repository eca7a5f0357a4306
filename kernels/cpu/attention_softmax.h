/* kernels/cpu/attention_softmax.h: the weights that scores become, and how ranges are merged;
 * include after a simd header. */
#pragma once

#include <math.h>

#include "kernels/cpu/attention_rows.h"

/* The bias of keys [key, key + 16) for row `row`. Most lie at one side of what the bias tells
 * apart, or within. */
static inline struct vec load_bias(const struct attention_range *range, int row, int key) {
    const float *bias = range->bias[row];
    int reach = range->reach, first = range->distance[row % range->rows] + key,
        last = first + TILE_COLUMNS - 1;
    if (last <= -reach) return vec_set1(bias[-reach]);
    if (first >= reach) return vec_set1(bias[reach]);
    if (first >= -reach && last <= reach) return vec_load(bias + first);
    float each[TILE_COLUMNS];
    for (int i = 0; i < TILE_COLUMNS; i++)
        each[i] = bias[max_int(-reach, min_int(first + i, reach))];
    return vec_load(each);
}

/* The scales of key `key` of the range, or of the last one where that is before it. */
static inline const uint16_t *scales_row(const struct attention_range *range, struct tensor scales,
                                         int key) {
    int at = min_int(key, range->keys - 1);
    return row_of(scales, range->starts[at / ATTENTION_BLOCK] + at % ATTENTION_BLOCK);
}

/* Scales of sixteen keys and heads [head, head + n), for whose keys and heads `to` begins. */
static inline void turn_scales(float *to, const struct attention_range *range, struct tensor scales,
                               int key, int head, int n) {
    float tile[TILE_COLUMNS * TILE_COLUMNS], turned[TILE_COLUMNS * TILE_COLUMNS];
    for (int i = 0; i < TILE_COLUMNS; i++)
        vec_store(
            tile + i * TILE_COLUMNS,
            load_columns((const char *)(scales_row(range, scales, key + i) + head), n, DTYPE_BF16));
    vec_turn(turned, tile, TILE_COLUMNS, TILE_COLUMNS);
    for (int i = 0; i < n; i++)
        vec_store(to + i * ATTENTION_KEYS, vec_load(turned + i * TILE_COLUMNS));
}

/* to [kv_heads][ATTENTION_KEYS] = the scales of the range's keys or values, from about `first` on.
 * Few heads are copied one by one: a tile of sixteen would be mostly empty. */
static inline void load_scales(float *to, const struct attention_range *range, struct tensor scales,
                               int first) {
    enum { FEW_HEADS = 8 };
    for (int head = 0; head < range->kv_heads; head += TILE_COLUMNS) {
        int n = min_int(TILE_COLUMNS, range->kv_heads - head);
        for (int key = first / TILE_COLUMNS * TILE_COLUMNS; key < range->keys;
             key += TILE_COLUMNS) {
            float *scale = to + head * ATTENTION_KEYS + key;
            if (n >= FEW_HEADS) {
                turn_scales(scale, range, scales, key, head, n);
                continue;
            }
            for (int i = 0; i < TILE_COLUMNS; i++) {
                const uint16_t *row = scales_row(range, scales, key + i) + head;
                for (int j = 0; j < n; j++) scale[j * ATTENTION_KEYS + i] = bf16_to_f32(row[j]);
            }
        }
    }
}

/* Scores of one row with the scales of its keys, the soft-cap and the bias. */
static inline void bend_scores(const struct attention_range *range, int row, int first, int end) {
    float *scores = range->scratch->scores + row * ATTENTION_KEYS;
    const float *scales = range->scratch->k_scales + row / range->rows * ATTENTION_KEYS;
    struct vec cap = vec_set1(range->softcap);
    for (int i = first / TILE_COLUMNS * TILE_COLUMNS; i < end; i += TILE_COLUMNS) {
        struct vec v = vec_load(scores + i);
        if (range->k_scales.data) v = vec_mul(v, vec_load(scales + i));
        if (range->softcap > 0) v = vec_mul(cap, vec_tanh(vec_div(v, cap)));
        if (range->reach >= 0) v = vec_add(v, load_bias(range, row, i));
        vec_store(scores + i, v);
    }
}

/* The weights of one row as cells. Beside the keys that it sees, the other key of a cell has none,
 * whatever its scale is. */
static inline void pair_weights(const struct attention_range *range, int row, int hidden,
                                int visible) {
    float *weights = range->scratch->scores + row * ATTENTION_KEYS;
    if (hidden % CELL != 0) weights[hidden - 1] = 0;
    if (visible % CELL != 0) weights[visible] = 0;
    store_cells(range->scratch->weight_pairs + row * WEIGHT_CELLS, weights, pad_columns(visible));
}

/* Scores of one row become e^(score - largest), times the scales of values; keys that it does not
 * see do not count. */
static inline void soften_row(const struct attention_range *range, int row, int hidden,
                              int visible) {
    float *scores = range->scratch->scores + row * ATTENTION_KEYS;
    const float *scales = range->scratch->v_scales + row / range->rows * ATTENTION_KEYS;
    struct vec top = vec_set1(-INFINITY), sum = vec_zero();
    if (range->softcap > 0 || range->reach >= 0 || range->k_scales.data)
        bend_scores(range, row, hidden, visible);
    for (int i = 0; i < hidden; i++) scores[i] = -INFINITY;
    int full = visible / TILE_COLUMNS * TILE_COLUMNS;
    for (int i = 0; i < full; i += TILE_COLUMNS) top = vec_max(top, vec_load(scores + i));
    if (full < visible) {
        struct vec last = vec_first(vec_load(scores + full), visible - full, -INFINITY);
        top = vec_max(top, last);
        vec_store(scores + full, last);
    }
    float largest = vec_largest(top), total[4];
    for (int i = 0; i < visible; i += TILE_COLUMNS) {
        struct vec p = vec_exp(vec_sub(vec_load(scores + i), vec_set1(largest)));
        sum = vec_add(sum, p);
        vec_store(scores + i, range->v_scales.data ? vec_mul(p, vec_load(scales + i)) : p);
    }
    vec_sum_four(total, sum, sum, sum, sum);
    range->sums.largest[row] = largest;
    range->sums.sum[row] = total[0];
    if (CELL > 1) pair_weights(range, row, hidden, visible);
}

static inline void merge_vector(const struct attention_sums *to, const struct attention_sums *from,
                                int row, int padded) {
    float largest = to->largest[row] > from->largest[row] ? to->largest[row] : from->largest[row];
    struct vec keep = vec_exp(vec_set1(to->largest[row] - largest));
    struct vec enter = vec_exp(vec_set1(from->largest[row] - largest));
    struct vec sum = vec_mul(vec_set1(to->sum[row]), keep);
    vec_store_n(&to->sum[row], vec_fma(vec_set1(from->sum[row]), enter, sum), 1);
    to->largest[row] = largest;
    float *out = to->out + row * padded;
    const float *other = from->out + row * padded;
    for (int d = 0; d < padded; d += TILE_COLUMNS)
        vec_store(out + d, vec_fma(vec_load(other + d), enter, vec_mul(vec_load(out + d), keep)));
}
