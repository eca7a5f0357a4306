/* kernels/cpu/attention_vector.h: what attention.c describes, on `struct vec`; include after a simd
 * header.
 *
 * There are two ways. Where one row reads each key head, as in decoding, keys and values are read
 * where they are, in the order they lie there, through all heads of the piece: nothing is written
 * but scores and sums, and memory sets the pace. Where several rows read a key head, some keys at a
 * time are converted to f32 first, once for all rows, and tiles of rows and keys, or of rows and
 * columns, are held in registers. Each sum has the same order of operations both ways, and wherever
 * a block of keys ends. */
#pragma once

#include <math.h>
#include <string.h>

#include "kernels/cpu/math_vector.h"

enum {
#ifdef SCORES_IN_FOURS
    SCORE_ROWS = 2, /* rows of a tile with four keys */
#else
    SCORE_ROWS = VEC_SUMS >= 16 ? 4 : 1, /* the same */
#endif
    MIX_ROWS = VEC_SUMS >= 16
                   ? 4
                   : 2, /* rows, and vectors of columns, of a tile; a single row goes with four */
    KEYS_AHEAD = 8192   /* bytes from what is read to what is fetched */
};

#ifndef SCORES_IN_FOURS
/* The running sum of one score is a vector: of columns sixteen apart. */
#define score_sum vec
#define score_zero vec_zero
#define score_add vec_fma
#define scores_store(to, sums) vec_sum_four(to, (sums)[0], (sums)[1], (sums)[2], (sums)[3])
#endif

/* Sixteen columns of which the first n exist; the others are zeros. */
ALWAYS_INLINE struct vec load_columns(const char *p, int n, const enum dtype dtype) {
    uint32_t padded[TILE_COLUMNS] = {0};
    if (n < TILE_COLUMNS) p = memcpy(padded, p, (size_t)n * dtype_bytes(dtype));
    if (dtype == DTYPE_F32) return vec_load((const float *)(const void *)p);
    if (dtype == DTYPE_INT8) return vec_load_int8((const int8_t *)p);
    return dtype == DTYPE_F16 ? vec_load_f16((const uint16_t *)(const void *)p)
                              : vec_load_bf16((const uint16_t *)(const void *)p);
}

/* Keys, or values, of a range that lie row after row in one block. */
struct key_rows {
    const char *data; /* the first */
    const char *next; /* such that row i, from row `left` on, is at next + i * stride: it lies in
                         the next block */
    size_t stride;    /* bytes */
    int first, n;     /* number of the first in the range; how many */
    int left, ahead;  /* rows to the end of the block; rows from what is read to what is fetched */
};

/* Rows of t, which is range->k or range->v: those of the range from `skip` on that block `part` of
 * it holds. */
static inline struct key_rows block_rows(const struct attention_range *range, struct tensor t,
                                         int part, int skip) {
    size_t size = dtype_bytes(t.dtype), columns = (size_t)(range->kv_heads * range->head_dim);
    int begin = part * ATTENTION_BLOCK, from = max_int(0, skip - begin);
    struct key_rows rows = {
        .stride = (size_t)t.stride * size, .first = begin + from, .left = ATTENTION_BLOCK - from};
    rows.data = row_of(t, range->starts[part] + from);
    rows.next = (const char *)row_of(t, range->starts[part + 1]) - (size_t)rows.left * rows.stride;
    rows.n = min_int(ATTENTION_BLOCK, range->keys - begin) - from;
    rows.ahead = min_int(ATTENTION_BLOCK, (int)(KEYS_AHEAD / (columns * size)) + 1);
    return rows;
}

/* The address fetched when row i is read. Past the last key this is any address, and fetching it
 * does nothing. */
static inline const char *row_ahead(const struct key_rows *rows, int i) {
    i += rows->ahead;
    return (i < rows->left ? rows->data : rows->next) + (size_t)i * rows->stride;
}

ALWAYS_INLINE void bytes_fetch(const char *p, size_t bytes) {
    for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(p + line, 0, 3);
}

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
}

/* One row a key head. */

/* How far pairs of a key and a row that are worked on together lie apart: in bytes of keys, and in
 * rows and keys. */
struct step {
    size_t bytes;
    int rows, keys;
};

static inline int pad_columns(int columns) {
    return (columns + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS;
}

/* A key, where it lies and its number in the range, and the row whose score it makes. */
struct key_pair {
    const char *data;
    int row, key;
};

/* Scores of four pairs of a key and a row, from `first` on. */
ALWAYS_INLINE void score_four(const struct attention_range *range, struct key_pair first,
                              struct step step, const int columns, const enum dtype dtype) {
    const int padded = pad_columns(columns), apart = step.rows * padded;
    const size_t size = dtype_bytes(dtype);
    const char *k = first.data;
    const float *q = range->scratch->queries + first.row * padded;
    struct score_sum sums[4] = {score_zero(), score_zero(), score_zero(), score_zero()};
    int d = 0;
    for (; d + TILE_COLUMNS <= columns; d += TILE_COLUMNS)
        for (int i = 0; i < 4; i++)
            sums[i] = score_add(
                vec_load(q + i * apart + d),
                load_columns(k + (size_t)i * step.bytes + (size_t)d * size, TILE_COLUMNS, dtype),
                sums[i]);
    if (d < columns)
        for (int i = 0; i < 4; i++)
            sums[i] = score_add(
                vec_load(q + i * apart + d),
                load_columns(k + (size_t)i * step.bytes + (size_t)d * size, columns - d, dtype),
                sums[i]);
    float four[4], *scores = range->scratch->scores + first.row * ATTENTION_KEYS + first.key;
    scores_store(four, sums);
    for (int i = 0; i < 4; i++) scores[i * (step.rows * ATTENTION_KEYS + step.keys)] = four[i];
}

/* Four keys of a head go together, the last with some of those before; fewer than four, each four
 * times. */
ALWAYS_INLINE void score_few_heads(const struct attention_range *range, const struct key_rows *rows,
                                   const int columns, const enum dtype dtype) {
    const size_t head_bytes = (size_t)columns * dtype_bytes(dtype);
    const int together = rows->n < 4 ? 1 : 4;
    const struct step step =
        rows->n < 4 ? (struct step){0} : (struct step){.bytes = rows->stride, .keys = 1};
    for (int i = 0; i < rows->n; i += together)
        for (int head = 0; head < range->kv_heads; head++) {
            int key = min_int(i, rows->n - together);
            const char *k = rows->data + (size_t)key * rows->stride + (size_t)head * head_bytes;
            for (int j = 0; j < together; j++)
                bytes_fetch(row_ahead(rows, key + j) + (size_t)head * head_bytes, head_bytes);
            score_four(range, (struct key_pair){k, head, rows->first + key}, step, columns, dtype);
        }
}

/* Four heads of a key go together, the last with some of those before. */
ALWAYS_INLINE void score_lone_rows(const struct attention_range *range, const struct key_rows *rows,
                                   const int columns, const enum dtype dtype) {
    const size_t head_bytes = (size_t)columns * dtype_bytes(dtype);
    const struct step step = {.bytes = head_bytes, .rows = 1};
    for (int key = 0; key < rows->n; key++) {
        const char *data = rows->data + (size_t)key * rows->stride, *ahead = row_ahead(rows, key);
        for (int i = 0; i < range->kv_heads; i += 4) {
            int head = min_int(i, range->kv_heads - 4);
            bytes_fetch(ahead + (size_t)head * head_bytes, 4 * head_bytes);
            score_four(range,
                       (struct key_pair){data + (size_t)head * head_bytes, head, rows->first + key},
                       step, columns, dtype);
        }
    }
}

/* Values of one head from some column on: bytes from one to the next, and the columns that are
 * left. */
struct head_values {
    const char *data;
    size_t stride;
    int columns;
};

/* out += p V over `keys` values, in their first 16 columns, of which n exist. */
ALWAYS_INLINE void mix_columns(float *out, const struct vec *p, struct head_values values, int n,
                               const int keys, const enum dtype dtype) {
    struct vec sum = vec_load(out);
    for (int i = 0; i < keys; i++)
        sum = vec_fma(p[i], load_columns(values.data + (size_t)i * values.stride, n, dtype), sum);
    vec_store(out, sum);
}

ALWAYS_INLINE void mix_keys(float *out, const float *p, struct head_values values, const int keys,
                            const enum dtype dtype) {
    struct vec x[4];
    for (int i = 0; i < keys; i++) x[i] = vec_set1(p[i]);
    for (; values.columns >= TILE_COLUMNS; values.columns -= TILE_COLUMNS) {
        mix_columns(out, x, values, TILE_COLUMNS, keys, dtype);
        out += TILE_COLUMNS;
        values.data += TILE_COLUMNS * dtype_bytes(dtype);
    }
    if (values.columns > 0) mix_columns(out, x, values, values.columns, keys, dtype);
}

/* Where there are few heads, four keys at a time go past the sums of each. */
ALWAYS_INLINE void mix_lone_rows(const struct attention_range *range, const struct key_rows *rows,
                                 const int columns, const enum dtype dtype) {
    const size_t head_bytes = (size_t)columns * dtype_bytes(dtype), stride = rows->stride;
    const int heads = range->kv_heads, padded = pad_columns(columns);
    const float *scores = range->scratch->scores + rows->first;
    const char *data = rows->data;
    int key = 0;
    for (; heads < 4 && key + 4 <= rows->n; key += 4, data += 4 * stride)
        for (int head = 0; head < heads; head++) {
            struct head_values values = {data + (size_t)head * head_bytes, stride, columns};
            for (int i = 0; i < 4; i++)
                bytes_fetch(row_ahead(rows, key + i) + (size_t)head * head_bytes, head_bytes);
            mix_keys(range->sums.out + head * padded, scores + head * ATTENTION_KEYS + key, values,
                     4, dtype);
        }
    for (; key < rows->n; key++, data += stride) {
        const float *p = scores + key;
        const char *ahead = row_ahead(rows, key);
        float *out = range->sums.out;
        struct head_values values = {data, stride, columns};
        for (int head = 0; head < heads; head++) {
            bytes_fetch(ahead + (size_t)head * head_bytes, head_bytes);
            mix_keys(out, p, values, 1, dtype);
            out += padded;
            p += ATTENTION_KEYS;
            values.data += head_bytes;
        }
    }
}

/* Several rows a key head. */

/* Where some keys or values of one head are, most often in the copy: floats from one to the next,
 * and how many there are. */
struct copied {
    const float *data;
    int apart, n;
};

/* Scores of `rows` rows against four keys. */
ALWAYS_INLINE void score_tile(float *scores, const float *q, int padded, const float *k, int apart,
                              const int rows) {
    struct score_sum sums[4 * SCORE_ROWS];
    struct vec v[4];
    for (int i = 0; i < 4 * rows; i++) sums[i] = score_zero();
    for (int d = 0; d < padded; d += TILE_COLUMNS) {
        for (int i = 0; i < 4; i++) v[i] = vec_load(k + i * apart + d);
        for (int r = 0; r < rows; r++) {
            struct vec x = vec_load(q + r * padded + d);
            for (int i = 0; i < 4; i++) sums[4 * r + i] = score_add(x, v[i], sums[4 * r + i]);
        }
    }
    for (int r = 0; r < rows; r++) scores_store(scores + r * ATTENTION_KEYS, sums + 4 * r);
}

/* Sixteen keys side by side: [columns][16], and the next sixteen behind them. A vector of scores is
 * then made of the sixteen sums of each key, added in the order of vec_sum_four: lane and lane + 8
 * first, then 4, 2 and 1 apart. */
struct turned_keys {
    const float *data;
    int columns; /* padded */
};

enum {
    TURNED_COLUMNS = 128, /* longer heads gain little */
    TURNED_AT = ATTENTION_COPY / 2,
    TURNED_VECS = 2, /* of sixteen keys, at most */
    TURNED_SUMS = SCORE_ROWS * TURNED_VECS
};

/* The sums over columns lane, lane + 16, ... of `rows` rows. */
ALWAYS_INLINE void sum_lane(struct vec *out, const float *q, struct turned_keys keys,
                            const int lane, const int rows, const int vecs) {
    for (int i = 0; i < rows * vecs; i++) out[i] = vec_zero();
    for (int d = lane; d < keys.columns; d += TILE_COLUMNS) {
        struct vec v[TURNED_VECS];
        for (int t = 0; t < vecs; t++)
            v[t] = vec_load(keys.data + (t * keys.columns + d) * TILE_COLUMNS);
        for (int r = 0; r < rows; r++) {
            struct vec x = vec_set1(q[r * keys.columns + d]);
            for (int t = 0; t < vecs; t++) out[r * vecs + t] = vec_fma(x, v[t], out[r * vecs + t]);
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
        struct turned_keys from = {keys.data + lane * TILE_COLUMNS, keys.columns};
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
        score_lanes(scores + row * ATTENTION_KEYS, q + row * keys.columns, keys, SCORE_ROWS, vecs);
    for (; row < rows; row++)
        score_lanes(scores + row * ATTENTION_KEYS, q + row * keys.columns, keys, 1, vecs);
}

/* Whether registers are wide enough, rows are enough and there is room for keys to be turned. */
static inline bool keys_turn(const struct attention_range *range) {
    return VEC_SUMS >= 16 && range->rows > TILE_COLUMNS && range->padded <= TURNED_COLUMNS;
}

/* All rows against the first 16 vecs keys of `k`. */
ALWAYS_INLINE void turn_keys(const struct attention_range *range, float *scores, const float *q,
                             struct copied copied, const int vecs) {
    const int padded = range->padded;
    float *turned = range->scratch->copy + TURNED_AT;
    for (int t = 0; t < vecs; t++)
        for (int d = 0; d < padded; d += TILE_COLUMNS)
            vec_turn(turned + (t * padded + d) * TILE_COLUMNS,
                     copied.data + t * TILE_COLUMNS * copied.apart + d, copied.apart, TILE_COLUMNS);
    if (padded == 32)
        score_turned(scores, q, (struct turned_keys){turned, 32}, range->rows, vecs);
    else if (padded == 64)
        score_turned(scores, q, (struct turned_keys){turned, 64}, range->rows, vecs);
    else if (padded == 128)
        score_turned(scores, q, (struct turned_keys){turned, 128}, range->rows, vecs);
    else
        score_turned(scores, q, (struct turned_keys){turned, padded}, range->rows, vecs);
}

/* All rows of one key head, from row `first` on, against keys of which the first is number `key`.
 */
static void score_copy(const struct attention_range *range, struct copied copied, int first,
                       int key) {
    const int padded = range->padded;
    const float *q = range->scratch->queries + first * padded;
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
            score_tile(scores + row * ATTENTION_KEYS + i, q + row * padded, padded,
                       copied.data + i * copied.apart, copied.apart, SCORE_ROWS);
    for (; row < range->rows; row++)
        for (int i = done; i < copied.n; i += 4)
            score_tile(scores + row * ATTENTION_KEYS + i, q + row * padded, padded,
                       copied.data + i * copied.apart, copied.apart, 1);
}

/* out += p V, in 16 vecs columns of `rows` rows. */
ALWAYS_INLINE void mix_tile(float *to, int padded, const float *p, struct copied values,
                            const int rows, const int vecs) {
    struct vec out[MIX_ROWS * MIX_ROWS], v[4];
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < vecs; t++)
            out[r * vecs + t] = vec_load(to + r * padded + t * TILE_COLUMNS);
    int i = 0;
#ifdef MULTIPLIES_BY_LANE
    for (; i + 4 <= values.n; i += 4) {
        struct four x[MIX_ROWS];
        for (int r = 0; r < rows; r++) x[r] = four_load(p + r * ATTENTION_KEYS + i);
        UNROLLED
        for (int key = 0; key < 4; key++) {
            for (int t = 0; t < vecs; t++)
                v[t] = vec_load(values.data + (i + key) * values.apart + t * TILE_COLUMNS);
            for (int r = 0; r < rows; r++)
                for (int t = 0; t < vecs; t++)
                    out[r * vecs + t] = vec_fma_lane(x[r], key, v[t], out[r * vecs + t]);
        }
    }
#endif
    for (; i < values.n; i++) {
        for (int t = 0; t < vecs; t++)
            v[t] = vec_load(values.data + i * values.apart + t * TILE_COLUMNS);
        for (int r = 0; r < rows; r++) {
            struct vec x = vec_set1(p[r * ATTENTION_KEYS + i]);
            for (int t = 0; t < vecs; t++) out[r * vecs + t] = vec_fma(x, v[t], out[r * vecs + t]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < vecs; t++)
            vec_store(to + r * padded + t * TILE_COLUMNS, out[r * vecs + t]);
}

ALWAYS_INLINE void mix_rows(float *to, int padded, const float *p, struct copied values,
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

/* As score_copy, for values; rows that see the same keys go together. */
static void mix_copy(const struct attention_range *range, struct copied values, int first,
                     int key) {
    const int padded = range->padded;
    const bool all_seen =
        range->hidden[range->rows - 1] <= key && range->visible[0] >= key + values.n;
    const float *p = range->scratch->scores + first * ATTENTION_KEYS + key;
    float *out = range->sums.out + first * padded;
    for (int row = 0; row < range->rows;) {
        int together = row + MIX_ROWS <= range->rows ? MIX_ROWS : 1;
        struct key_piece seen = {0, values.n};
        if (!all_seen) {
            struct key_piece last = keys_of_row(range, row + together - 1, key, values.n);
            seen = keys_of_row(range, row, key, values.n);
            if (last.first != seen.first || last.end != seen.end) together = 1;
        }
        struct copied mine = {values.data + seen.first * values.apart, values.apart,
                              seen.end - seen.first};
        const float *weights = p + row * ATTENTION_KEYS + seen.first;
        if (together == 1)
            mix_rows(out + row * padded, padded, weights, mine, 1);
        else
            mix_rows(out + row * padded, padded, weights, mine, MIX_ROWS);
        row += together;
    }
}

/* Keys, or values, [key, key + n) of all heads in f32; zeros in columns beyond head_dim. */
ALWAYS_INLINE void copy_keys(const struct attention_range *range, const struct key_rows *rows,
                             int key, int n, const int columns, const enum dtype dtype) {
    const size_t size = dtype_bytes(dtype), head_bytes = (size_t)columns * size;
    const int padded = pad_columns(columns);
    float *to = range->scratch->copy;
    for (int i = key; i < key + n; i++) {
        const char *from = rows->data + (size_t)i * rows->stride, *ahead = row_ahead(rows, i);
        for (int head = 0; head < range->kv_heads; head++) {
            bytes_fetch(ahead + (size_t)head * head_bytes, head_bytes);
            int d = 0;
            for (; d + TILE_COLUMNS <= columns; d += TILE_COLUMNS)
                vec_store(to + d, load_columns(from + (size_t)d * size, TILE_COLUMNS, dtype));
            if (d < columns)
                vec_store(to + d, load_columns(from + (size_t)d * size, columns - d, dtype));
            from += head_bytes;
            to += padded;
        }
    }
}

/* Heads of 64 are compiled for themselves, here and where rows are lone: measured, 4 to 12 %
 * faster. Longer heads gain nothing. */
ALWAYS_INLINE void copy_width(const struct attention_range *range, const struct key_rows *rows,
                              int key, int n, const enum dtype dtype) {
    if (range->head_dim == 64)
        copy_keys(range, rows, key, n, 64, dtype);
    else
        copy_keys(range, rows, key, n, range->head_dim, dtype);
}

/* Keys or values that are copied at a time. Many rows take as many as half of the room holds, the
 * other half is for turned keys, or all of it where heads are too long for these; few take four, so
 * that memory need not wait for them long. Sixteen rows of 576 columns gain 7 %, more rows 12 %. */
static inline int copy_step(const struct attention_range *range) {
    const bool longer = range->padded > TURNED_COLUMNS,
               few = range->rows <= 16 && range->rows * range->padded <= 16 * TURNED_COLUMNS;
    int room = (longer ? ATTENTION_COPY : TURNED_AT) / (range->kv_heads * range->padded);
    room -= room % (room < TILE_COLUMNS ? 4 : TILE_COLUMNS);
    return few ? 4 : max_int(4, min_int(64, room));
}

/* How many keys are turned where they lie: they are read once, and need no copy. Values are read
 * once for every few rows, and rows of a matrix often lie in the same places of a cache, so those
 * are copied. */
ALWAYS_INLINE int keys_in_place(const struct attention_range *range, const struct key_rows *rows,
                                const bool scores, const enum dtype dtype) {
    bool fit = scores && dtype == DTYPE_F32 && range->head_dim == range->padded && keys_turn(range);
    return fit ? rows->n / TILE_COLUMNS * TILE_COLUMNS : 0;
}

/* Scores of what is copied beyond the last key do no harm. */
ALWAYS_INLINE void copy_pass(const struct attention_range *range, const struct key_rows *rows,
                             const bool scores, const enum dtype dtype) {
    const int apart = range->kv_heads * range->padded, step = copy_step(range);
    const int in_place = keys_in_place(range, rows, scores, dtype);
    for (int head = 0; in_place > 0 && head < range->kv_heads; head++) {
        const float *from = (const float *)(const void *)rows->data + head * range->head_dim;
        struct copied there = {from, (int)(rows->stride / sizeof(float)), in_place};
        score_copy(range, there, head * range->rows, rows->first);
    }
    for (int key = in_place; key < rows->n; key += step) {
        int n = min_int(step, rows->n - key);
        copy_width(range, rows, key, n, dtype);
        for (int head = 0; head < range->kv_heads; head++) {
            struct copied copied = {range->scratch->copy + head * range->padded, apart, n};
            if (scores)
                score_copy(range, copied, head * range->rows, rows->first + key);
            else
                mix_copy(range, copied, head * range->rows, rows->first + key);
        }
    }
}

/* Scores of some keys of the range, or the sums of their values, where one row reads each key head.
 */
ALWAYS_INLINE void lone_pass(const struct attention_range *range, const struct key_rows *rows,
                             const bool scores, const int columns, const enum dtype dtype) {
    if (scores && range->kv_heads < 4)
        score_few_heads(range, rows, columns, dtype);
    else if (scores)
        score_lone_rows(range, rows, columns, dtype);
    else
        mix_lone_rows(range, rows, columns, dtype);
}

/* The same for any number of rows and all keys, block by block. A lone row sees all keys from its
 * first on; others begin at a multiple of four keys, so that four scores that are written together
 * lie in one row. */
ALWAYS_INLINE void range_pass(const struct attention_range *range, const bool scores,
                              const enum dtype dtype) {
    const int skip = range->rows == 1 ? range->hidden[0] : range->hidden[0] / 4 * 4;
    for (int part = skip / ATTENTION_BLOCK; part * ATTENTION_BLOCK < range->keys; part++) {
        const struct key_rows rows = block_rows(range, scores ? range->k : range->v, part, skip);
        if (range->rows > 1)
            copy_pass(range, &rows, scores, dtype);
        else if (range->head_dim == 64)
            lone_pass(range, &rows, scores, 64, dtype);
        else
            lone_pass(range, &rows, scores, range->head_dim, dtype);
    }
}

ALWAYS_INLINE void any_pass(const struct attention_range *range, const bool scores) {
    switch (range->k.dtype) {
        case DTYPE_F32: range_pass(range, scores, DTYPE_F32); break;
        case DTYPE_F16: range_pass(range, scores, DTYPE_F16); break;
        case DTYPE_BF16: range_pass(range, scores, DTYPE_BF16); break;
        case DTYPE_INT8: range_pass(range, scores, DTYPE_INT8); break;
        default: break; /* weights only */
    }
}

static inline void attention_vector(const struct attention_range *range) {
    any_pass(range, true);
    if (range->k_scales.data)
        load_scales(range->scratch->k_scales, range, range->k_scales, range->hidden[0]);
    if (range->v_scales.data)
        load_scales(range->scratch->v_scales, range, range->v_scales, range->hidden[0]);
    for (int i = 0; i < range->kv_heads * range->rows; i++) {
        int hidden = range->hidden[i % range->rows], visible = range->visible[i % range->rows];
        if (visible > hidden) soften_row(range, i, hidden, visible);
    }
    memset(range->sums.out, 0,
           (size_t)(range->kv_heads * range->rows * range->padded) * sizeof(float));
    any_pass(range, false);
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
