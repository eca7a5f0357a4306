/* retrieval/sparse/sparse_writer.c: sparse weights by chunks become weights by ids. See
 * sparse_index.h. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/sparse/sparse_index.h"

struct inversion {
    const struct sparse_forward *forward;
    uint64_t *starts; /* [n_ids + 1] of the postings of each id, and their end */
    uint32_t n_ids;   /* the largest id + 1 */
    struct sparse_posting *piece;
    sparse_sink *sink;
    void *context;
};

static uint64_t count_weights(const struct sparse_forward *forward) {
    return forward->n_chunks > 0 ? forward->ends[forward->n_chunks - 1] : 0;
}

static enum status count_ids(struct inversion *inversion, struct error *e) {
    const struct sparse_forward *forward = inversion->forward;
    uint64_t n = count_weights(forward);
    for (uint64_t i = 0; i < n; i++)
        if (forward->weights[i].id >= inversion->n_ids)
            inversion->n_ids = forward->weights[i].id + 1;
    inversion->starts = calloc((size_t)inversion->n_ids + 2, sizeof *inversion->starts);
    if (inversion->starts == NULL)
        return error_set(e, STATUS_NO_MEMORY, "counts of %u token ids", inversion->n_ids);
    for (uint64_t i = 0; i < n; i++) inversion->starts[forward->weights[i].id + 1]++;
    for (uint32_t i = 0; i < inversion->n_ids; i++)
        inversion->starts[i + 1] += inversion->starts[i];
    return STATUS_OK;
}

/* The postings of ids [first, last), of all chunks in their order. */
static void fill_piece(struct inversion *inversion, uint32_t first, uint32_t last,
                       uint64_t *places) {
    const struct sparse_forward *forward = inversion->forward;
    uint64_t at = 0, base = inversion->starts[first];
    for (uint32_t id = first; id < last; id++) places[id] = inversion->starts[id] - base;
    for (int64_t chunk = 0; chunk < forward->n_chunks; chunk++)
        for (; at < forward->ends[chunk]; at++) {
            const struct sparse_weight *weight = &forward->weights[at];
            if (weight->id < first || weight->id >= last) continue;
            inversion->piece[places[weight->id]] =
                (struct sparse_posting){(uint32_t)chunk, weight->weight};
            places[weight->id]++;
        }
}

/* An id whose postings are more than a piece has one of its own. */
static enum status write_postings(struct inversion *inversion, int64_t most, struct error *e) {
    enum status status = STATUS_OK;
    uint64_t *places = calloc((size_t)inversion->n_ids + 1, sizeof *places);
    if (places == NULL)
        return error_set(e, STATUS_NO_MEMORY, "places of %u token ids", inversion->n_ids);
    for (uint32_t first = 0, last; first < inversion->n_ids && status == STATUS_OK; first = last) {
        uint64_t begin = inversion->starts[first];
        last = first + 1;
        while (last < inversion->n_ids && inversion->starts[last + 1] - begin <= (uint64_t)most)
            last++;
        size_t size = (size_t)(inversion->starts[last] - begin) * sizeof *inversion->piece;
        inversion->piece = malloc(size + 1);
        if (inversion->piece == NULL) {
            status = error_set(e, STATUS_NO_MEMORY, "%zu bytes of sparse postings", size);
            break;
        }
        fill_piece(inversion, first, last, places);
        status = inversion->sink(inversion->context, inversion->piece, size, e);
        free(inversion->piece);
    }
    free(places);
    return status;
}

static enum status write_lists(const struct inversion *inversion, uint64_t *n_lists,
                               struct error *e) {
    struct buffer lists = {0};
    for (uint32_t id = 0; id < inversion->n_ids; id++) {
        struct sparse_list list = {.id = id, .end = inversion->starts[id + 1]};
        if (inversion->starts[id] != list.end) buffer_append(&lists, &list, sizeof list);
    }
    *n_lists = lists.size / sizeof(struct sparse_list);
    enum status status = inversion->sink(inversion->context, lists.data, lists.size, e);
    buffer_free(&lists);
    return status;
}

static enum status write_foot(const struct inversion *inversion, uint64_t n_lists,
                              struct error *e) {
    struct sparse_foot foot = {.magic = {'R', 'E', 'T', 'R', 'O', 'S', 'P', 'W'},
                               .format = SPARSE_FORMAT,
                               .n_chunks = (uint64_t)inversion->forward->n_chunks,
                               .n_weights = count_weights(inversion->forward),
                               .n_lists = n_lists};
    return inversion->sink(inversion->context, &foot, sizeof foot, e);
}

enum status sparse_index_write(const struct sparse_forward *forward, int64_t piece,
                               sparse_sink *sink, void *context, struct error *e) {
    struct inversion inversion = {.forward = forward, .sink = sink, .context = context};
    uint64_t n_lists = 0;
    size_t ends = (size_t)forward->n_chunks * sizeof *forward->ends;
    enum status status = count_ids(&inversion, e);
    if (status == STATUS_OK) status = write_postings(&inversion, piece, e);
    if (status == STATUS_OK) status = sink(context, forward->ends, ends, e);
    if (status == STATUS_OK) status = write_lists(&inversion, &n_lists, e);
    if (status == STATUS_OK) status = write_foot(&inversion, n_lists, e);
    free(inversion.starts);
    return status;
}
