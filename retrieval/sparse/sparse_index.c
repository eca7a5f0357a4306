/* retrieval/sparse/sparse_index.c: reading sparse weights. See sparse_index.h. */
#include "retrieval/sparse/sparse_index.h"

#include <stdlib.h>
#include <string.h>

struct sparse_index {
    const struct sparse_weight *weights;   /* [n_weights] */
    const struct sparse_posting *postings; /* [n_weights] */
    const uint64_t *ends;                  /* [n_chunks] */
    const struct sparse_list *lists;       /* [n_lists] */
    struct sparse_foot foot;
    char *name;
};

enum status sparse_index_fail(const struct sparse_index *index, const char *what, struct error *e) {
    return error_set(e, STATUS_CORRUPT, "%s: %s; build the collection again", index->name, what);
}

/* Opening. */

static const char *find_foot_fault(const struct sparse_foot *foot, uint64_t size,
                                   int64_t n_chunks) {
    uint64_t left = size - sizeof *foot;
    if (memcmp(foot->magic, "RETROSPW", sizeof foot->magic) != 0) return "it has no sparse weights";
    if (foot->format != SPARSE_FORMAT || foot->zero != 0) return "its format is of another version";
    if (foot->n_chunks != (uint64_t)n_chunks) return "it has another number of chunks";
    if (foot->n_weights > left / (sizeof(struct sparse_weight) + sizeof(struct sparse_posting)) ||
        foot->n_chunks > left / sizeof(uint64_t) ||
        foot->n_lists > left / sizeof(struct sparse_list))
        return "it is shorter than it says";
    if (foot->n_weights * (sizeof(struct sparse_weight) + sizeof(struct sparse_posting)) +
            foot->n_chunks * sizeof(uint64_t) + foot->n_lists * sizeof(struct sparse_list) !=
        left)
        return "its length is not the one that its parts need";
    return NULL;
}

static const char *find_ends_fault(const struct sparse_index *index) {
    uint64_t before = 0;
    for (uint64_t i = 0; i < index->foot.n_chunks; i++) {
        if (index->ends[i] < before || index->ends[i] > index->foot.n_weights)
            return "the ends of its chunks do not rise";
        before = index->ends[i];
    }
    return before == index->foot.n_weights ? NULL : "there are weights behind the last chunk";
}

static const char *find_lists_fault(const struct sparse_index *index) {
    uint64_t before = 0;
    for (uint64_t i = 0; i < index->foot.n_lists; i++) {
        const struct sparse_list *list = &index->lists[i];
        if (list->id > SPARSE_MAX_ID || list->zero != 0 ||
            (i > 0 && list->id <= index->lists[i - 1].id))
            return "its ids do not rise";
        if (list->end <= before || list->end > index->foot.n_weights)
            return "the ends of its lists do not rise";
        before = list->end;
    }
    return before == index->foot.n_weights ? NULL : "there are postings of no id";
}

/* Of a foot without faults. */
static struct sparse_index lay_out(struct text_span bytes, const struct sparse_foot *foot) {
    struct sparse_index index = {.foot = *foot};
    const char *at = bytes.text;
    index.weights = (const struct sparse_weight *)(const void *)at;
    at += foot->n_weights * sizeof *index.weights;
    index.postings = (const struct sparse_posting *)(const void *)at;
    at += foot->n_weights * sizeof *index.postings;
    index.ends = (const uint64_t *)(const void *)at;
    at += foot->n_chunks * sizeof *index.ends;
    index.lists = (const struct sparse_list *)(const void *)at;
    return index;
}

enum status sparse_index_open(struct sparse_index **out, struct text_span bytes, int64_t n_chunks,
                              const char *name, struct error *e) {
    struct sparse_foot foot;
    struct sparse_index index = {0};
    const char *fault = bytes.size < sizeof foot ? "it is cut off" : NULL;
    if (fault == NULL) {
        memcpy(&foot, bytes.text + bytes.size - sizeof foot, sizeof foot);
        fault = find_foot_fault(&foot, bytes.size, n_chunks);
    }
    if (fault == NULL) {
        index = lay_out(bytes, &foot);
        fault = find_ends_fault(&index);
    }
    if (fault == NULL) fault = find_lists_fault(&index);
    if (fault)
        return error_set(e, STATUS_CORRUPT, "%s: %s; build the collection again", name, fault);
    index.name = xstrdup(name);
    *out = xmalloc(sizeof **out);
    **out = index;
    return STATUS_OK;
}

void sparse_index_free(struct sparse_index *index) {
    if (index == NULL) return;
    free(index->name);
    free(index);
}

int64_t sparse_index_weights(const struct sparse_index *index) {
    return (int64_t)index->foot.n_weights;
}

/* Reading. */

enum status sparse_index_row(const struct sparse_index *index, int64_t chunk,
                             struct sparse_row *row, struct error *e) {
    CHECK(chunk >= 0 && (uint64_t)chunk < index->foot.n_chunks);
    uint64_t start = chunk > 0 ? index->ends[chunk - 1] : 0;
    *row = (struct sparse_row){index->weights + start, (int64_t)(index->ends[chunk] - start)};
    const char *fault = sparse_row_fault(*row);
    return fault ? sparse_index_fail(index, fault, e) : STATUS_OK;
}

static const struct sparse_list *find_list(const struct sparse_index *index, uint32_t id) {
    uint64_t low = 0, high = index->foot.n_lists;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (index->lists[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < index->foot.n_lists && index->lists[low].id == id;
    return found ? &index->lists[low] : NULL;
}

void sparse_cursor_open(struct sparse_cursor *cursor, const struct sparse_index *index,
                        uint32_t id) {
    const struct sparse_list *list = find_list(index, id);
    *cursor = (struct sparse_cursor){.n_chunks = (uint32_t)index->foot.n_chunks, .chunk = -1};
    if (list) {
        uint64_t start = list > index->lists ? list[-1].end : 0;
        cursor->next = index->postings + start;
        cursor->end = index->postings + list->end;
    }
    sparse_cursor_next(cursor);
}

void sparse_cursor_next(struct sparse_cursor *cursor) {
    int64_t before = cursor->chunk;
    cursor->chunk = SPARSE_END;
    if (cursor->next == cursor->end) return;
    const struct sparse_posting *posting = cursor->next;
    if (posting->chunk >= cursor->n_chunks || (int64_t)posting->chunk <= before) {
        cursor->damage = "chunks of an id do not rise";
    } else if (!(posting->weight > 0) || !isfinite(posting->weight)) {
        cursor->damage = "a sparse weight is no positive number";
    } else {
        cursor->chunk = posting->chunk;
        cursor->weight = posting->weight;
        cursor->next++;
    }
}

/* Checking. */

/* Whether a chunk has this weight of an id. */
static bool has_weight(struct sparse_row row, uint32_t id, float weight) {
    int64_t low = 0, high = row.n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (row.list[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < row.n && row.list[low].id == id && row.list[low].weight == weight;
}

/* Chunks of an id rise, so no weight is there twice: where each posting is a weight of its chunk
 * and there are as many, all weights are there. */
static enum status check_list(const struct sparse_index *index, uint32_t id, struct error *e) {
    struct sparse_cursor cursor;
    sparse_cursor_open(&cursor, index, id);
    for (; cursor.chunk != SPARSE_END; sparse_cursor_next(&cursor)) {
        struct sparse_row row;
        if (sparse_index_row(index, cursor.chunk, &row, e)) return e->status;
        if (!has_weight(row, id, cursor.weight))
            return sparse_index_fail(index, "a posting is no weight of its chunk", e);
    }
    return cursor.damage ? sparse_index_fail(index, cursor.damage, e) : STATUS_OK;
}

enum status sparse_index_check(const struct sparse_index *index, struct error *e) {
    struct sparse_row row;
    enum status status = STATUS_OK;
    for (uint64_t i = 0; i < index->foot.n_chunks && status == STATUS_OK; i++)
        status = sparse_index_row(index, (int64_t)i, &row, e);
    for (uint64_t i = 0; i < index->foot.n_lists && status == STATUS_OK; i++)
        status = check_list(index, index->lists[i].id, e);
    return status;
}
