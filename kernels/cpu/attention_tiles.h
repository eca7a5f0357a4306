/* kernels/cpu/attention_tiles.h: scores and sums of values where several rows read each key head;
 * include after a simd header. Some keys at a time become cells first, once for all rows. */
#pragma once

#include "kernels/cpu/attention_rows.h"

enum {
#ifdef SCORES_IN_FOURS
    SCORE_ROWS = 2, /* rows of a tile with four keys */
#else
    SCORE_ROWS = VEC_SUMS >= 16 ? 4 : 1, /* the same */
#endif
    MIX_ROWS = VEC_SUMS >= 16
                   ? 4
                   : 2 /* rows, and vectors of columns, of a tile; a single row goes with four */
};

/* Where the cells of some keys or values of one head are, most often in the copy: cells from one
 * key, or cell of values, to the next, and how many keys there are. */
struct copied {
    const float *data;
    int apart, n;
};

/* Scores of `rows` rows against four keys. */
ALWAYS_INLINE void score_tile(float *scores, const float *q, int cells, const float *k, int apart,
                              const int rows) {
    struct score_sum sums[4 * SCORE_ROWS];
    struct vec v[4];
    for (int i = 0; i < 4 * rows; i++) sums[i] = score_zero();
    for (int d = 0; d < cells; d += TILE_COLUMNS) {
        for (int i = 0; i < 4; i++) v[i] = vec_load(k + i * apart + d);
        for (int r = 0; r < rows; r++) {
            struct vec x = vec_load(q + r * cells + d);
            for (int i = 0; i < 4; i++) sums[4 * r + i] = score_add(x, v[i], sums[4 * r + i]);
        }
    }
    for (int r = 0; r < rows; r++) scores_store(scores + r * ATTENTION_KEYS, sums + 4 * r);
}

/* Sixteen keys side by side: [cells][16], and the next sixteen behind them. A vector of scores is
 * then made of the sixteen sums of each key, added in the order of vec_sum_four: lane and lane + 8
 * first, then 4, 2 and 1 apart. */
struct turned_keys {
    const float *data;
    int cells; /* of a key */
};

enum {
    TURNED_CELLS = 128, /* longer heads gain little */
    TURNED_AT = ATTENTION_COPY / 2,
    TURNED_VECS = 2, /* of sixteen keys, at most */
    TURNED_SUMS = SCORE_ROWS * TURNED_VECS
};

/* The sums over cells lane, lane + 16, ... of `rows` rows. */
ALWAYS_INLINE void sum_lane(struct vec *out, const float *q, struct turned_keys keys,
                            const int lane, const int rows, const int vecs) {
    for (int i = 0; i < rows * vecs; i++) out[i] = vec_zero();
    for (int d = lane; d < keys.cells; d += TILE_COLUMNS) {
        struct vec v[TURNED_VECS];
        for (int t = 0; t < vecs; t++)
            v[t] = vec_load(keys.data + (t * keys.cells + d) * TILE_COLUMNS);
        for (int r = 0; r < rows; r++) {
            struct vec x = vec_set1(q[r * keys.cells + d]);
            for (int t = 0; t < vecs; t++) out[r * vecs + t] = cell_fma(x, v[t], out[r * vecs + t]);
        }
    }
}

#define SUM_LANES(name, half, apart) \
    ALWAYS_INLINE void name(struct vec *out, const float *q, struct turned_keys k, const int lane, \
                            const int rows, const int vecs) { \
        struct vec other[TURNED_SUMS]; \
        half(out, q, k, lane, rows, vecs); \
        half(other, q, k, lane + (apart), rows, vecs); \
        for (int i = 0; i < rows * vecs; i++) out[i] = vec_add(out[i], other[i]); \
    }
SUM_LANES(sum_two_lanes, sum_lane, 8)
SUM_LANES(sum_four_lanes, sum_two_lanes, 4)
#undef SUM_LANES

/* Scores of `rows` rows against 16 vecs keys. Sums of four lanes fit the registers; those of all
 * four such sets are added from memory. */
ALWAYS_INLINE void score_lanes(float *scores, const float *q, struct turned_keys keys,
                               const int rows, const int vecs) {
    float fours[4][TURNED_SUMS * TILE_COLUMNS];
    for (int lane = 0; lane < 4; lane++) {
        struct vec sums[TURNED_SUMS];
        struct turned_keys from = {keys.data + lane * TILE_COLUMNS, keys.cells};
        sum_four_lanes(sums, q + lane, from, 0, rows, vecs);
        for (int i = 0; i < rows * vecs; i++) vec_store(fours[lane] + i * TILE_COLUMNS, sums[i]);
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < vecs; t++) {
            int at = (r * vecs + t) * TILE_COLUMNS;
            struct vec even = vec_add(vec_load(fours[0] + at), vec_load(fours[2] + at));
            struct vec odd = vec_add(vec_load(fours[1] + at), vec_load(fours[3] + at));
            vec_store(scores + r * ATTENTION_KEYS + t * TILE_COLUMNS, vec_add(even, odd));
        }
}

/* Scores of all rows of one key head against sixteen keys, or twice as many. */
ALWAYS_INLINE void score_turned(float *scores, const float *q, struct turned_keys keys,
                                const int rows, const int vecs) {
    int row = 0;
    for (; row + SCORE_ROWS <= rows; row += SCORE_ROWS)
        score_lanes(scores + row * ATTENTION_KEYS, q + row * keys.cells, keys, SCORE_ROWS, vecs);
    for (; row < rows; row++)
        score_lanes(scores + row * ATTENTION_KEYS, q + row * keys.cells, keys, 1, vecs);
}

/* Whether registers are wide enough, rows are enough and there is room for keys to be turned. */
static inline bool keys_turn(const struct attention_range *range) {
    return VEC_SUMS >= 16 && range->rows > TILE_COLUMNS &&
           key_cells(range->head_dim) <= TURNED_CELLS;
}

/* All rows against the first 16 vecs keys of `k`. */
ALWAYS_INLINE void turn_keys(const struct attention_range *range, float *scores, const float *q,
                             struct copied copied, const int vecs) {
    const int cells = key_cells(range->head_dim);
    float *turned = range->scratch->copy + TURNED_AT;
    for (int t = 0; t < vecs; t++)
        for (int d = 0; d < cells; d += TILE_COLUMNS)
            vec_turn(turned + (t * cells + d) * TILE_COLUMNS,
                     copied.data + t * TILE_COLUMNS * copied.apart + d, copied.apart, TILE_COLUMNS);
    if (cells == 32)
        score_turned(scores, q, (struct turned_keys){turned, 32}, range->rows, vecs);
    else if (cells == 64)
        score_turned(scores, q, (struct turned_keys){turned, 64}, range->rows, vecs);
    else if (cells == 128)
        score_turned(scores, q, (struct turned_keys){turned, 128}, range->rows, vecs);
    else
        score_turned(scores, q, (struct turned_keys){turned, cells}, range->rows, vecs);
}

/* All rows of one key head, from row `first` on, against keys of which the first is number `key`.
 */
static void score_copy(const struct attention_range *range, struct copied copied, int first,
                       int key) {
    const int cells = key_cells(range->head_dim);
    const float *q = query_cells(range) + first * cells;
    float *scores = range->scratch->scores + first * ATTENTION_KEYS + key;
    int done = 0;
    if (keys_turn(range)) {
        for (; done + TURNED_VECS * TILE_COLUMNS <= copied.n; done += TURNED_VECS * TILE_COLUMNS)
            turn_keys(
                range, scores + done, q,
                (struct copied){copied.data + done * copied.apart, copied.apart, copied.n - done},
                TURNED_VECS);
        for (; done + TILE_COLUMNS <= copied.n; done += TILE_COLUMNS)
            turn_keys(
                range, scores + done, q,
                (struct copied){copied.data + done * copied.apart, copied.apart, copied.n - done},
                1);
    }
    int row = 0;
    for (; row + SCORE_ROWS <= range->rows; row += SCORE_ROWS)
        for (int i = done; i < copied.n; i += 4)
            score_tile(scores + row * ATTENTION_KEYS + i, q + row * cells, cells,
                       copied.data + i * copied.apart, copied.apart, SCORE_ROWS);
    for (; row < range->rows; row++)
        for (int i = done; i < copied.n; i += 4)
            score_tile(scores + row * ATTENTION_KEYS + i, q + row * cells, cells,
                       copied.data + i * copied.apart, copied.apart, 1);
}

/* Cells of values of one head: floats from one to the next, and how many there are. */
struct value_cells {
    const float *data;
    int apart, n;
};

/* out += p V, in 16 vecs columns of `rows` rows. */
ALWAYS_INLINE void mix_tile(float *to, int padded, const float *p, struct value_cells values,
                            const int rows, const int vecs) {
    struct vec out[MIX_ROWS * MIX_ROWS], v[4];
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < vecs; t++)
            out[r * vecs + t] = vec_load(to + r * padded + t * TILE_COLUMNS);
    int i = 0;
#ifdef MULTIPLIES_BY_LANE
    for (; i + 4 <= values.n; i += 4) {
        struct four x[MIX_ROWS];
        for (int r = 0; r < rows; r++) x[r] = four_load(p + r * WEIGHT_CELLS + i);
        UNROLLED
        for (int key = 0; key < 4; key++) {
            for (int t = 0; t < vecs; t++)
                v[t] = vec_load(values.data + (i + key) * values.apart + t * TILE_COLUMNS);
            for (int r = 0; r < rows; r++)
                for (int t = 0; t < vecs; t++)
                    out[r * vecs + t] = cell_fma_lane(x[r], key, v[t], out[r * vecs + t]);
        }
    }
#endif
    for (; i < values.n; i++) {
        for (int t = 0; t < vecs; t++)
            v[t] = vec_load(values.data + i * values.apart + t * TILE_COLUMNS);
        for (int r = 0; r < rows; r++) {
            struct vec x = vec_set1(p[r * WEIGHT_CELLS + i]);
            for (int t = 0; t < vecs; t++) out[r * vecs + t] = cell_fma(x, v[t], out[r * vecs + t]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < vecs; t++)
            vec_store(to + r * padded + t * TILE_COLUMNS, out[r * vecs + t]);
}

ALWAYS_INLINE void mix_rows(float *to, int padded, const float *p, struct value_cells values,
                            const int rows) {
    const int vecs = rows == 1 ? 4 : MIX_ROWS;
    const float *data = values.data;
    int d = 0;
    for (; d + vecs * TILE_COLUMNS <= padded; d += vecs * TILE_COLUMNS, values.data = data + d)
        mix_tile(to + d, padded, p, values, rows, vecs);
    for (; d + 2 * TILE_COLUMNS <= padded; d += 2 * TILE_COLUMNS, values.data = data + d)
        mix_tile(to + d, padded, p, values, rows, 2);
    for (; d < padded; d += TILE_COLUMNS, values.data = data + d)
        mix_tile(to + d, padded, p, values, rows, 1);
}

/* Keys [first, end) of those that are copied. */
struct key_piece {
    int first, end;
};

/* The keys that row `row` of each head sees, of the n from number `key` on. */
static inline struct key_piece keys_of_row(const struct attention_range *range, int row, int key,
                                           int n) {
    int first = max_int(0, min_int(n, range->hidden[row] - key));
    return (struct key_piece){first, max_int(first, min_int(n, range->visible[row] - key))};
}

/* out += p V of one row and one cell, of which the row sees one key. */
ALWAYS_INLINE void mix_half(float *out, int padded, const float *p, const float *values,
                            const enum cell_keys keys) {
    struct vec x = vec_set1(*p);
    for (int d = 0; d < padded; d += TILE_COLUMNS)
        vec_store(out + d, cell_fma(x, cells_keep(vec_load(values + d), keys == SECOND_KEY),
                                    vec_load(out + d)));
}

/* `rows` rows that see the same keys of those that are copied: a cell of which they see the second
 * key, whole cells, and a cell of which they see the first. */
ALWAYS_INLINE void mix_piece(float *out, int padded, const float *p, struct copied values,
                             struct key_piece seen, const int rows) {
    const int begin = (seen.first + CELL - 1) / CELL, end = seen.end / CELL;
    if (CELL > 1 && seen.first % CELL != 0)
        for (int r = 0; r < rows; r++)
            mix_half(out + r * padded, padded, p + r * WEIGHT_CELLS + begin - 1,
                     values.data + (begin - 1) * values.apart, SECOND_KEY);
    struct value_cells whole = {values.data + begin * values.apart, values.apart, end - begin};
    mix_rows(out, padded, p + begin, whole, rows);
    if (CELL > 1 && seen.end % CELL != 0)
        for (int r = 0; r < rows; r++)
            mix_half(out + r * padded, padded, p + r * WEIGHT_CELLS + end,
                     values.data + end * values.apart, FIRST_KEY);
}

/* As score_copy, for values; rows that see the same keys go together. */
static void mix_copy(const struct attention_range *range, struct copied values, int first,
                     int key) {
    const int padded = range->padded;
    const bool all_seen =
        range->hidden[range->rows - 1] <= key && range->visible[0] >= key + values.n;
    const float *p = weight_cells(range) + first * WEIGHT_CELLS + key / CELL;
    float *out = range->sums.out + first * padded;
    for (int row = 0; row < range->rows;) {
        int together = row + MIX_ROWS <= range->rows ? MIX_ROWS : 1;
        struct key_piece seen = {0, values.n};
        if (!all_seen) {
            struct key_piece last = keys_of_row(range, row + together - 1, key, values.n);
            seen = keys_of_row(range, row, key, values.n);
            if (last.first != seen.first || last.end != seen.end) together = 1;
        }
        const float *weights = p + row * WEIGHT_CELLS;
        if (seen.end > seen.first && together == 1)
            mix_piece(out + row * padded, padded, weights, values, seen, 1);
        else if (seen.end > seen.first)
            mix_piece(out + row * padded, padded, weights, values, seen, MIX_ROWS);
        row += together;
    }
}

/* Cells of keys [key, key + n) of all heads; zeros in columns beyond head_dim. */
ALWAYS_INLINE void copy_keys(const struct attention_range *range, const struct key_rows *rows,
                             int key, int n, const int columns, const enum dtype dtype) {
    const size_t size = dtype_bytes(dtype), head_bytes = (size_t)columns * size;
    float *to = range->scratch->copy;
    for (int i = key; i < key + n; i++) {
        const char *from = rows->data + (size_t)i * rows->stride, *ahead = row_ahead(rows, i);
        for (int head = 0; head < range->kv_heads; head++) {
            bytes_fetch(ahead + (size_t)head * head_bytes, head_bytes);
            int d = 0;
            for (; d + CELL_COLUMNS <= columns; d += CELL_COLUMNS)
                vec_store(to + d / CELL,
                          load_key_cells(from + (size_t)d * size, CELL_COLUMNS, dtype));
            if (d < columns)
                vec_store(to + d / CELL,
                          load_key_cells(from + (size_t)d * size, columns - d, dtype));
            from += head_bytes;
            to += key_cells(columns);
        }
    }
}

/* One cell of the values of each head, from key `key` of the rows on. */
ALWAYS_INLINE void copy_value_cell(float *to, const struct key_rows *rows, int key,
                                   const enum cell_keys keys, const int columns,
                                   const enum dtype dtype) {
    const size_t size = dtype_bytes(dtype), head_bytes = (size_t)columns * size;
    const char *from = rows->data + (size_t)key * rows->stride;
    for (int head = 0; head < rows->heads; head++) {
        for (int i = 0; i < CELL; i++)
            bytes_fetch(row_ahead(rows, key + i) + (size_t)head * head_bytes, head_bytes);
        int d = 0;
        for (; d + TILE_COLUMNS <= columns; d += TILE_COLUMNS)
            vec_store(to + d, load_value_cells(from + (size_t)d * size, rows->stride, TILE_COLUMNS,
                                               keys, dtype));
        if (d < columns)
            vec_store(to + d, load_value_cells(from + (size_t)d * size, rows->stride, columns - d,
                                               keys, dtype));
        from += head_bytes;
        to += pad_columns(columns);
    }
}

/* As copy_keys, for values; where the number of keys is odd, the last cell has one. */
ALWAYS_INLINE void copy_values(const struct attention_range *range, const struct key_rows *rows,
                               int key, int n, const int columns, const enum dtype dtype) {
    const int end = key + n, apart = range->kv_heads * pad_columns(columns);
    float *to = range->scratch->copy;
    for (; key + CELL <= end; key += CELL, to += apart)
        copy_value_cell(to, rows, key, BOTH_KEYS, columns, dtype);
    if (key < end) copy_value_cell(to, rows, key, FIRST_KEY, columns, dtype);
}

/* Heads of 64 are compiled for themselves, here and where rows are lone: measured, 4 to 12 %
 * faster. Longer heads gain nothing. */
ALWAYS_INLINE void copy_width(const struct attention_range *range, const struct key_rows *rows,
                              int key, int n, const bool scores, const enum dtype dtype) {
    if (scores && range->head_dim == 64)
        copy_keys(range, rows, key, n, 64, dtype);
    else if (scores)
        copy_keys(range, rows, key, n, range->head_dim, dtype);
    else if (range->head_dim == 64)
        copy_values(range, rows, key, n, 64, dtype);
    else
        copy_values(range, rows, key, n, range->head_dim, dtype);
}
