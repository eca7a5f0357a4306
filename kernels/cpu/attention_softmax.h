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

/* The largest score of those that the row sees. All others are -infinity from here on. */
static inline float largest_score(float *scores, int hidden, int visible) {
    struct vec top = vec_set1(-INFINITY);
    for (int i = 0; i < hidden; i++) scores[i] = -INFINITY;
    int full = visible / TILE_COLUMNS * TILE_COLUMNS;
    for (int i = 0; i < full; i += TILE_COLUMNS) top = vec_max(top, vec_load(scores + i));
    if (full < visible) {
        struct vec last = vec_first(vec_load(scores + full), visible - full, -INFINITY);
        top = vec_max(top, last);
        vec_store(scores + full, last);
    }
    return vec_largest(top);
}

/* Scores of one row become weights, e^(score - largest), times the scales of values where `scaled`,
 * and their cells. Returns the sums of the weights without scales, by lanes. */
ALWAYS_INLINE struct vec weigh_keys(const struct attention_range *range, int row, int visible,
                                    float largest, const bool scaled) {
    const float *scales = range->scratch->v_scales + row / range->rows * ATTENTION_KEYS;
    float *scores = range->scratch->scores + row * ATTENTION_KEYS;
    const struct vec top = vec_set1(largest), log2_e = vec_set1(0x1.715476p0f);
    struct vec sum = vec_zero();
    for (int i = 0; i < visible; i += CELL_COLUMNS) {
        struct vec weights[CELL];
        for (int part = 0; part < CELL; part++) {
            int key = i + part * TILE_COLUMNS;
            weights[part] = vec_zero();
            if (key >= visible) continue;
            struct vec x = vec_mul(vec_sub(vec_load(scores + key), top), log2_e);
            weights[part] = vec_exp2_negative(x);
            sum = vec_add(sum, weights[part]);
            if (scaled) weights[part] = vec_mul(weights[part], vec_load(scales + key));
            vec_store(scores + key, weights[part]);
        }
        if (CELL > 1)
            vec_store(range->scratch->weight_pairs + row * WEIGHT_CELLS + i / CELL,
                      cells_of_columns(weights[0], weights[CELL - 1]));
    }
    return sum;
}

/* The other key of a cell of which the row sees one key has no weight, whatever its scale is. */
static inline void clear_weight(const struct attention_range *range, int row, int key,
                                int visible) {
    float *weights = range->scratch->scores + row * ATTENTION_KEYS;
    int first = key / CELL_COLUMNS * CELL_COLUMNS;
    weights[key] = 0;
    store_cells(range->scratch->weight_pairs + row * WEIGHT_CELLS + first / CELL, weights + first,
                min_int(CELL_COLUMNS, pad_columns(visible) - first));
}

/* Scores of one row become weights of the keys that it sees. Returns their sums by lanes. */
static inline struct vec soften_row(const struct attention_range *range, int row, int hidden,
                                    int visible) {
    if (range->softcap > 0 || range->reach >= 0 || range->k_scales.data)
        bend_scores(range, row, hidden, visible);
    float largest = largest_score(range->scratch->scores + row * ATTENTION_KEYS, hidden, visible);
    range->sums.largest[row] = largest;
    if (!range->v_scales.data) return weigh_keys(range, row, visible, largest, false);

    struct vec sum = weigh_keys(range, row, visible, largest, true);
    if (hidden % CELL != 0) clear_weight(range, row, hidden - 1, visible);
    if (visible % CELL != 0) clear_weight(range, row, visible, visible);
    return sum;
}

static inline bool row_sees_keys(const struct attention_range *range, int row) {
    int query = row % range->rows;
    return row < range->kv_heads * range->rows && range->visible[query] > range->hidden[query];
}

/* The same for all rows; four are added up at a time. Rows that see no key of the range keep their
 * sums. */
static inline void soften_rows(const struct attention_range *range) {
    for (int first = 0; first < range->kv_heads * range->rows; first += 4) {
        struct vec sums[4];
        float total[4];
        for (int i = 0; i < 4; i++) {
            int row = first + i, query = row % range->rows;
            sums[i] = row_sees_keys(range, row)
                          ? soften_row(range, row, range->hidden[query], range->visible[query])
                          : vec_zero();
        }
        vec_sum_four(total, sums[0], sums[1], sums[2], sums[3]);
        for (int i = 0; i < 4; i++)
            if (row_sees_keys(range, first + i)) range->sums.sum[first + i] = total[i];
    }
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
