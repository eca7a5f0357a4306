/* config/base/sparse.h: sparse vectors of texts: the weight of each token id that a text has, as
 * bge-m3's lexical head gives them (retro/run/embed/sparse_head.h). Ids that are not there weigh
 * nothing. */
#pragma once

#include <math.h>

#include "config/base/buffer.h"

/* Ids are those of a vocabulary; no tokenizer that we read has more. */
enum { SPARSE_MAX_ID = (1 << 24) - 1 };

struct sparse_weight {
    uint32_t id;
    float weight; /* above 0 */
};
_Static_assert(sizeof(struct sparse_weight) == 8, "stored as it is");

/* The weights of one text; ids rise. */
struct sparse_row {
    const struct sparse_weight *list; /* [n] */
    int64_t n;
};

/* Rows one after the other, borrowed: row i has weights [ends[i - 1], ends[i]). */
struct sparse_table {
    const uint32_t *ends; /* NULL: there are no rows */
    const struct sparse_weight *weights;
};
static inline struct sparse_row sparse_table_row(const struct sparse_table *table, int i) {
    uint32_t start = i > 0 ? table->ends[i - 1] : 0;
    return (struct sparse_row){table->weights + start, table->ends[i] - start};
}

/* Rows that grow; zero-initialise. */
struct sparse_rows {
    struct buffer ends, weights;
};
static inline int sparse_rows_count(const struct sparse_rows *rows) {
    return (int)(rows->ends.size / sizeof(uint32_t));
}
/* Until the next row comes. */
static inline struct sparse_table sparse_rows_table(const struct sparse_rows *rows) {
    return (struct sparse_table){(const uint32_t *)(const void *)rows->ends.data,
                                 (const struct sparse_weight *)(const void *)rows->weights.data};
}
static inline struct sparse_row sparse_rows_row(const struct sparse_rows *rows, int i) {
    struct sparse_table table = sparse_rows_table(rows);
    return sparse_table_row(&table, i);
}
static inline void sparse_rows_add(struct sparse_rows *rows, struct sparse_row row) {
    if (row.n > 0) buffer_append(&rows->weights, row.list, (size_t)row.n * sizeof *row.list);
    uint32_t end = (uint32_t)(rows->weights.size / sizeof *row.list);
    buffer_append(&rows->ends, &end, sizeof end);
}
static inline void sparse_rows_clear(struct sparse_rows *rows) {
    buffer_clear(&rows->ends);
    buffer_clear(&rows->weights);
}
static inline void sparse_rows_free(struct sparse_rows *rows) {
    buffer_free(&rows->ends);
    buffer_free(&rows->weights);
}

/* The fault of a row; NULL: there is none. */
static inline const char *sparse_row_fault(struct sparse_row row) {
    for (int64_t i = 0; i < row.n; i++) {
        if (row.list[i].id > SPARSE_MAX_ID) return "a sparse weight is of an id that is too large";
        if (i > 0 && row.list[i].id <= row.list[i - 1].id)
            return "ids of sparse weights do not rise";
        if (!(row.list[i].weight > 0) || !isfinite(row.list[i].weight))
            return "a sparse weight is no positive number";
    }
    return NULL;
}

/* The score of two texts: the products of the weights of the ids that both have, added in the order
 * of ids. */
static inline float sparse_row_multiply(struct sparse_row left, struct sparse_row right) {
    double sum = 0;
    for (int64_t i = 0, j = 0; i < left.n && j < right.n;) {
        uint32_t id = left.list[i].id, other = right.list[j].id;
        if (id == other) sum += (double)left.list[i].weight * (double)right.list[j].weight;
        i += id <= other;
        j += other <= id;
    }
    return (float)sum;
}
