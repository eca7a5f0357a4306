/* retrieval/store/living_search.c: the nearest chunks of a view: those of the generation from its index, without the
 * ones that went, then the log's by exact search. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/living_private.h"

/* Nearest chunks, best first: -1 and -2 where there are fewer. */
struct nearest {
    int64_t *ids;
    float *similarities;
    int k;
};

/* The first of `wide` that did not go, in order. Returns how many there are. */
static int keep_there(const struct living_view *v, const struct nearest *wide, struct nearest *kept) {
    int n = 0;
    for (int i = 0; i < wide->k && n < kept->k && wide->ids[i] >= 0; i++) {
        if (!view_has_chunk(&v->base, wide->ids[i])) continue;
        kept->ids[n] = wide->ids[i];
        kept->similarities[n] = wide->similarities[i];
        n++;
    }
    for (int i = n; i < kept->k; i++) {
        kept->ids[i] = -1;
        kept->similarities[i] = -2;
    }
    return n;
}

/* One query over the generation, asked for more and more until k of the answers are there, or no others can come. */
static enum status search_one(const struct living_view *v, struct index_query query, struct nearest kept,
                              struct error *e) {
    const struct index *index = collection_index(v->epoch->collection);
    int64_t n_gone = atomic_load(&v->epoch->n_gone_chunks), all = kept.k + n_gone;
    int64_t most = all < index->count ? all : index->count;
    enum status status = STATUS_OK;
    bool more = true;
    for (int64_t k = 2 * (int64_t)kept.k + 16; more && status == STATUS_OK; k *= 4) {
        struct nearest wide = {.k = (int)(k < most ? k : most)};
        wide.ids = xmalloc((size_t)wide.k * sizeof *wide.ids);
        wide.similarities = xmalloc((size_t)wide.k * sizeof *wide.similarities);
        query.k = wide.k;
        status = index_search(index, query, wide.ids, wide.similarities, e);
        if (status == STATUS_OK) more = keep_there(v, &wide, &kept) < kept.k && k < most && wide.ids[wide.k - 1] >= 0;
        free(wide.ids);
        free(wide.similarities);
    }
    return status;
}

static enum status search_generation(const struct living_view *v, struct index_query query, int64_t *ids,
                                     float *similarities, struct error *e) {
    const struct index *index = collection_index(v->epoch->collection);
    if (atomic_load(&v->epoch->n_gone_chunks) == 0) return index_search(index, query, ids, similarities, e);
    enum status status = STATUS_OK;
    for (int i = 0; i < query.n && status == STATUS_OK; i++) {
        struct index_query one = query;
        one.n = 1;
        one.vectors += (size_t)i * (size_t)index->dim;
        size_t at = (size_t)i * (size_t)query.k;
        status = search_one(v, one, (struct nearest){ids + at, similarities + at, query.k}, e);
    }
    return status;
}

static void search_log(const struct living_view *v, struct index_query query, int64_t *ids, float *similarities) {
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
    const struct living_view *v = view_read(s);
    if (query.n < 0 || query.k < 1)
        return error_set(e, STATUS_INVALID, "search: %d queries for %d neighbours", query.n, query.k);
    enum status status = search_generation(v, query, ids, similarities, e);
    if (status == STATUS_OK) search_log(v, query, ids, similarities);
    return status;
}
