/* retrieval/store/store_sparse.c: the chunks of a snapshot that share token ids with a text, by
 * their sparse weights. Chunks of the generation are looked at by windows of their numbers, each id
 * of the text through its postings; those of the log have their weights at hand. Either way the
 * products are added in the order of ids, so a chunk has the same score wherever it lies. */
#include <stdlib.h>

#include "retrieval/store/best_chunks.h"
#include "retrieval/store/store_private.h"

enum { WINDOW = 4096 };

struct sparse_search {
    const struct store_snapshot *snapshot;
    const struct sparse_query *query;
    const struct selection *among; /* NULL: all documents of the generation */
    const struct sparse_index *index;
    struct sparse_cursor *cursors; /* [query->weights.n] */
    struct best_chunks best;
    double sums[WINDOW];
    uint64_t found[WINDOW / 64]; /* a bit each */
};

enum status store_sparse_row(const struct store_snapshot *snapshot, int64_t chunk,
                             struct sparse_row *row, struct error *e) {
    const struct disk_generation *generation = snapshot->epoch->generation;
    if (chunk < disk_generation_info(generation)->n_chunks)
        return sparse_index_row(disk_generation_sparse(generation), chunk, row, e);
    const struct logged_document *document =
        epoch_logged(snapshot->epoch, store_snapshot_logged(snapshot, chunk));
    *row = sparse_table_row(&document->bytes->image.document.sparse,
                            (int)(chunk - document->first_chunk));
    return STATUS_OK;
}

/* The generation. */

static bool is_searched(const struct sparse_search *search, int64_t chunk) {
    const struct epoch *epoch = search->snapshot->epoch;
    int64_t document = disk_generation_document_of(epoch->generation, chunk);
    if (search->among && !selection_has(search->among, document)) return false;
    return store_snapshot_has(search->snapshot, 0, &epoch->gone[document]);
}

static void add_products(struct sparse_search *search, int64_t i, int64_t first) {
    struct sparse_cursor *cursor = &search->cursors[i];
    double weight = (double)search->query->weights.list[i].weight;
    for (; cursor->chunk < first + WINDOW; sparse_cursor_next(cursor)) {
        int64_t place = cursor->chunk - first;
        search->sums[place] += weight * (double)cursor->weight;
        search->found[place / 64] |= 1ULL << (place % 64);
    }
}

static void score_window(struct sparse_search *search, int64_t first) {
    for (int64_t i = 0; i < search->query->weights.n; i++) add_products(search, i, first);
    for (int i = 0; i < WINDOW / 64; i++) {
        for (uint64_t left = search->found[i]; left != 0; left &= left - 1) {
            int place = 64 * i + __builtin_ctzll(left);
            struct scored scored = {(float)search->sums[place], first + place};
            search->sums[place] = 0;
            if (is_searched(search, scored.id)) best_chunks_keep(&search->best, scored);
        }
        search->found[i] = 0;
    }
}

static enum status find_damage(const struct sparse_search *search, struct error *e) {
    for (int64_t i = 0; i < search->query->weights.n; i++)
        if (search->cursors[i].damage)
            return sparse_index_fail(search->index, search->cursors[i].damage, e);
    return STATUS_OK;
}

static enum status check_cancelled(const struct sparse_search *search, struct error *e) {
    const atomic_bool *cancelled = search->query->cancelled;
    if (cancelled == NULL || !atomic_load(cancelled)) return STATUS_OK;
    return error_set(e, STATUS_CANCELLED, "nobody waits for the search any more");
}

static enum status search_generation(struct sparse_search *search, struct error *e) {
    const struct sparse_row weights = search->query->weights;
    int64_t n_chunks = disk_generation_info(search->snapshot->epoch->generation)->n_chunks;
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < weights.n; i++)
        sparse_cursor_open(&search->cursors[i], search->index, weights.list[i].id);
    for (int64_t first = 0; first < n_chunks && status == STATUS_OK; first += WINDOW) {
        status = check_cancelled(search, e);
        if (status == STATUS_OK) score_window(search, first);
    }
    return status ? status : find_damage(search, e);
}

/* The log. */

static enum status search_logged(struct sparse_search *search, struct error *e) {
    const struct epoch *epoch = search->snapshot->epoch;
    int64_t n_documents = disk_generation_info(epoch->generation)->n_documents;
    for (int number = 0; number < search->snapshot->n_logged; number++) {
        const struct logged_document *document = epoch_logged(epoch, number);
        if (check_cancelled(search, e)) return e->status;
        if (!store_snapshot_has(search->snapshot, document->added, &document->gone)) continue;
        struct stored_document stored = epoch_document(epoch, n_documents + number);
        if (!document_is_allowed(search->query->filter, &stored)) continue;
        const struct collection_document *image = &document->bytes->image.document;
        for (int i = 0; i < image->n_chunks; i++) {
            float score =
                sparse_row_multiply(search->query->weights, sparse_table_row(&image->sparse, i));
            if (score > 0)
                best_chunks_keep(&search->best, (struct scored){score, document->first_chunk + i});
        }
    }
    return STATUS_OK;
}

static void select_documents(struct sparse_search *search, struct selection **selection) {
    struct epoch *epoch = search->snapshot->epoch;
    if (search->query->filter == NULL) return;
    *selection = selections_find(&epoch->selections, epoch->generation, search->query->filter);
    bool all = (*selection)->n_documents == disk_generation_info(epoch->generation)->n_documents;
    search->among = all ? NULL : *selection;
}

enum status store_search_sparse(const struct snapshot *snapshot, const struct sparse_query *query,
                                struct sparse_found *found, struct error *e) {
    struct sparse_search *search = xcalloc(1, sizeof *search);
    struct selection *selection = NULL;
    size_t k = (size_t)query->k, n = (size_t)query->weights.n;
    search->snapshot = store_snapshot_read(snapshot);
    search->query = query;
    search->index = disk_generation_sparse(search->snapshot->epoch->generation);
    CHECK(search->index);
    search->cursors = xcalloc(n + 1, sizeof *search->cursors);
    search->best =
        (struct best_chunks){.list = xcalloc(k + 1, sizeof(struct scored)), .k = query->k};
    select_documents(search, &selection);
    enum status status = search_generation(search, e);
    if (status == STATUS_OK) status = search_logged(search, e);
    best_chunks_sort(&search->best);
    for (int i = 0; i < query->k; i++) {
        bool there = status == STATUS_OK && i < search->best.n;
        found->ids[i] = there ? search->best.list[i].id : FOUND_NONE;
        found->scores[i] = there ? search->best.list[i].score : 0;
    }
    selection_release(selection);
    free(search->cursors);
    free(search->best.list);
    free(search);
    return status;
}
