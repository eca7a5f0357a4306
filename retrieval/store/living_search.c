/* retrieval/store/living_search.c: the nearest chunks of a view: those of the generation from its index, without the
 * ones that went, then the log's by exact search. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/living_private.h"

/* The index's answer to one query without what went: the first k of `wide` in order. Returns how many are left. */
static int keep_there(const struct view *v, const int64_t *wide_ids, const float *wide, int n_wide, int k, int64_t *ids,
                      float *similarities) {
    int n = 0;
    for (int i = 0; i < n_wide && n < k && wide_ids[i] >= 0; i++) {
        if (!view_has_chunk(&v->base, wide_ids[i])) continue;
        ids[n] = wide_ids[i];
        similarities[n] = wide[i];
        n++;
    }
    for (int i = n; i < k; i++) {
        ids[i] = -1;
        similarities[i] = -2;
    }
    return n;
}

/* One query over the generation, asked for more and more until k of the answers are there, or no others can come. */
static enum status search_one(const struct view *v, struct index_query query, int64_t n_gone, int64_t *ids,
                              float *similarities, struct error *e) {
    const struct index *index = collection_index(v->epoch->collection);
    int64_t most = query.k + n_gone < index->count ? query.k + n_gone : index->count;
    int k = query.k;
    enum status status = STATUS_OK;
    for (int64_t wide = 2 * (int64_t)k + 16; status == STATUS_OK; wide *= 4) {
        struct index_query wider = query;
        wider.k = (int)(wide < most ? wide : most);
        wider.k = max_int(wider.k, 1);
        int64_t *wide_ids = xmalloc((size_t)wider.k * sizeof *wide_ids);
        float *wide_similarities = xmalloc((size_t)wider.k * sizeof *wide_similarities);
        status = index_search(index, wider, wide_ids, wide_similarities, e);
        int n = status ? 0 : keep_there(v, wide_ids, wide_similarities, wider.k, k, ids, similarities);
        bool is_last = status || n == k || wide >= most || wide_ids[wider.k - 1] < 0;
        free(wide_ids);
        free(wide_similarities);
        if (is_last) break;
    }
    return status;
}

static enum status search_generation(const struct view *v, struct index_query query, int64_t *ids, float *similarities,
                                     struct error *e) {
    const struct index *index = collection_index(v->epoch->collection);
    int64_t n_gone = atomic_load(&v->epoch->n_gone_chunks);
    if (n_gone == 0) return index_search(index, query, ids, similarities, e);
    enum status status = STATUS_OK;
    for (int i = 0; i < query.n && status == STATUS_OK; i++) {
        struct index_query one = query;
        one.n = 1;
        one.vectors += (size_t)i * (size_t)index->dim;
        status = search_one(v, one, n_gone, ids + (size_t)i * (size_t)query.k,
                            similarities + (size_t)i * (size_t)query.k, e);
    }
    return status;
}

static void search_log(const struct view *v, struct index_query query, int64_t *ids, float *similarities) {
    int dim = collection_info(v->epoch->collection)->dim;
    for (int number = 0; number < v->n_logged; number++) {
        const struct logged_document *d = epoch_logged(v->epoch, number);
        if (!view_has(v, d->added, &d->gone)) continue;
        struct index_scan scan = {.vectors = d->bytes->image.vectors,
                                  .count = d->bytes->image.n_chunks,
                                  .first = d->first_chunk,
                                  .dim = dim,
                                  .k = query.k};
        for (size_t i = 0; i < (size_t)query.n; i++) {
            scan.query = query.vectors + i * (size_t)dim;
            index_scan(scan, ids + i * (size_t)query.k, similarities + i * (size_t)query.k);
        }
    }
}

enum status view_search(const struct snapshot *s, struct index_query query, int64_t *ids, float *similarities,
                        struct error *e) {
    const struct view *v = view_read(s);
    if (query.n < 0 || query.k < 1)
        return error_set(e, STATUS_INVALID, "search: %d queries for %d neighbours", query.n, query.k);
    enum status status = search_generation(v, query, ids, similarities, e);
    if (status == STATUS_OK) search_log(v, query, ids, similarities);
    return status;
}
