/* retrieval/milvus/client/answers.h: the answers of Milvus, as they come from the network: nothing
 * in them is believed. They are read in place; what they say points into the bytes. */
#pragma once

#include "retrieval/milvus/client/wire.h"

/* The status that an answer is, or that is its first field. STATUS_OK where the server did what was
 * asked. *again: it says that another attempt may go well (STATUS_BUSY). STATUS_NOT_FOUND: there is
 * no such collection. */
enum status answer_status_check(struct text_span answer, bool is_status, bool *again,
                                struct error *e);

/* One column of rows. Of the three lists one is there. */
struct answer_column {
    struct text_span name;
    struct text_span *texts;  /* [n] VarChar and JSON */
    int64_t *numbers;         /* [n] Int64 */
    struct text_span vectors; /* f32 [n, dim], unaligned */
    int n, dim;
};

enum { ANSWER_COLUMNS = 16, ANSWER_ROWS = 1 << 24 };

struct answer_rows {
    struct answer_column columns[ANSWER_COLUMNS];
    int n_columns;
    int n; /* rows: of each column as many */
};
/* Of a QueryResults. Free it, on failure too. STATUS_CORRUPT. */
enum status answer_rows_read(struct answer_rows *out, struct text_span answer, struct error *e);
void answer_rows_free(struct answer_rows *rows);
/* A column of that name and kind; STATUS_CORRUPT: there is none. */
enum status answer_texts(const struct answer_rows *rows, const char *name,
                         const struct text_span **out, struct error *e);
enum status answer_numbers(const struct answer_rows *rows, const char *name, const int64_t **out,
                           struct error *e);

/* Of a SearchResults: rows of all queries one after another, with their scores. */
struct answer_hits {
    struct answer_rows rows;
    struct text_span scores; /* f32 [rows.n], unaligned */
    int64_t *counts;         /* [n_queries] rows of each query; they add up to rows.n */
    int n_queries;
};
/* For so many queries. Free it, on failure too. STATUS_CORRUPT. */
enum status answer_hits_read(struct answer_hits *out, struct text_span answer, int n_queries,
                             struct error *e);
void answer_hits_free(struct answer_hits *hits);
float answer_float(struct text_span floats, int i);

/* Of a DescribeCollectionResponse: the description that the collection was made with,
 * NUL-terminated in *out. */
enum status answer_description_read(struct buffer *out, struct text_span answer, struct error *e);
/* Of a GetLoadStateResponse. */
enum status answer_is_loaded(bool *out, struct text_span answer, struct error *e);
/* Of a BoolResponse. */
enum status answer_truth(bool *out, struct text_span answer, struct error *e);
