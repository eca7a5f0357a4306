/* retrieval/sparse/sparse_index.h: the sparse weights of a generation's chunks
 * (config/base/sparse.h), by chunks and by token ids: the file chunks.sparse, mapped.
 *
 * The bytes, little endian, without gaps:
 *
 *   weights   struct sparse_weight each, of chunk 0, of chunk 1, ...; ids rise within a chunk
 *   postings  struct sparse_posting each, the same weights by ids; chunks rise within an id
 *   ends      u64 each: the weights of all chunks up to the end of each chunk
 *   lists     struct sparse_list each; ids rise
 *   foot      struct sparse_foot
 *
 * The bytes of a file are foreign: nothing in them is believed before it is looked at, and what
 * cannot be is STATUS_CORRUPT. */
#pragma once

#include "config/base/sparse.h"

enum { SPARSE_FORMAT = 1 };

struct sparse_posting {
    uint32_t chunk;
    float weight;
};
_Static_assert(sizeof(struct sparse_posting) == 8, "read straight from the file");

/* The postings of an id end at `end`, and begin where those of the id before do. */
struct sparse_list {
    uint32_t id, zero;
    uint64_t end;
};
_Static_assert(sizeof(struct sparse_list) == 16, "read straight from the file");

struct sparse_foot {
    char magic[8]; /* "RETROSPW" */
    uint32_t format, zero;
    uint64_t n_chunks, n_weights, n_lists;
};
_Static_assert(sizeof(struct sparse_foot) == 40, "read straight from the file");

struct sparse_index;

/* Reads the foot, the ends and the lists of `bytes`, which are borrowed and aligned to 8; `name` is
 * what errors call them. STATUS_CORRUPT where they are not the weights of n_chunks chunks. */
enum status sparse_index_open(struct sparse_index **out, struct text_span bytes, int64_t n_chunks,
                              const char *name, struct error *e);
void sparse_index_free(struct sparse_index *index); /* NULL: nothing */
/* Looks at every byte: STATUS_CORRUPT says what is wrong. For `verify`. */
enum status sparse_index_check(const struct sparse_index *index, struct error *e);
/* The weights of a chunk, within the bytes. */
enum status sparse_index_row(const struct sparse_index *index, int64_t chunk,
                             struct sparse_row *row, struct error *e);
int64_t sparse_index_weights(const struct sparse_index *index); /* of all chunks */
/* Weights were damaged: the error of whoever has met it. */
enum status sparse_index_fail(const struct sparse_index *index, const char *what, struct error *e);

/* The postings of an id, from the first on; each is looked at before it is shown. */
struct sparse_cursor {
    const struct sparse_posting *next, *end;
    uint32_t n_chunks;
    int64_t chunk; /* of the posting at hand; SPARSE_END: there are no more, or damage was met */
    float weight;
    const char *damage; /* NULL: none was met */
};
#define SPARSE_END INT64_MAX
void sparse_cursor_open(struct sparse_cursor *cursor, const struct sparse_index *index,
                        uint32_t id);
void sparse_cursor_next(struct sparse_cursor *cursor);

/* Writes what stands behind the weights. */
struct sparse_forward {
    const struct sparse_weight *weights; /* [ends[n_chunks - 1]] of rows without faults */
    const uint64_t *ends;                /* [n_chunks] */
    int64_t n_chunks;
};
typedef enum status sparse_sink(void *context, const void *bytes, size_t size, struct error *e);
/* Postings are made some ids at a time, each time of all weights, in memory for SPARSE_PIECE of
 * them. STATUS_NO_MEMORY. */
enum { SPARSE_PIECE = 4 << 20 };
enum status sparse_index_write(const struct sparse_forward *forward, int64_t piece,
                               sparse_sink *sink, void *context, struct error *e);
