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

/* Vectors that are read at a stretch to be compared one by one. */
enum { SCAN_PIECE = 256 };

/* A generation is searched within these limits, of documents that a filter allows and that did not go. */
struct search_scope {
    const struct living_view *view;
    const struct selection *among; /* NULL: all */
};

static bool scope_has(const struct search_scope *scope, int64_t chunk) {
    const struct epoch *x = scope->view->epoch;
    int64_t document = collection_document_of(x->collection, chunk);
    if (scope->among && !selection_has(scope->among, document)) return false;
    return view_has(scope->view, 0, &x->gone[document]);
}

static void forget(struct nearest *kept, int from) {
    for (int i = from; i < kept->k; i++) {
        kept->ids[i] = -1;
        kept->similarities[i] = -2;
    }
}

/* The first of `wide` that are in the scope, in order. Returns how many there are. */
static int keep_there(const struct search_scope *scope, const struct nearest *wide, struct nearest *kept) {
    int n = 0;
    for (int i = 0; i < wide->k && n < kept->k && wide->ids[i] >= 0; i++) {
        if (!scope_has(scope, wide->ids[i])) continue;
        kept->ids[n] = wide->ids[i];
        kept->similarities[n] = wide->similarities[i];
        n++;
    }
    forget(kept, n);
    return n;
}

/* Compares the query with the chunks [first, first + n). */
static enum status scan_chunks(const struct index *index, struct index_scan scan, int64_t n, struct nearest *kept,
                               float *piece, struct error *e) {
    enum status status = STATUS_OK;
    int64_t end = scan.first + n;
    for (; scan.first < end && status == STATUS_OK; scan.first += SCAN_PIECE) {
        scan.count = end - scan.first < SCAN_PIECE ? end - scan.first : SCAN_PIECE;
        status = index_vectors(index, scan.first, (int)scan.count, piece, e);
        if (status == STATUS_OK) index_scan(scan, kept->ids, kept->similarities);
    }
    return status;
}

/* One query, compared with every chunk of the scope. */
static enum status scan_one(const struct search_scope *scope, struct index_query query, struct nearest kept,
                            struct error *e) {
    const struct epoch *x = scope->view->epoch;
    const struct index *index = collection_index(x->collection);
    int64_t n_documents = collection_info(x->collection)->n_documents;
    float *piece = xmalloc((size_t)SCAN_PIECE * (size_t)index->dim * sizeof *piece);
    enum status status = STATUS_OK;
    forget(&kept, 0);
    for (int64_t i = 0; i < n_documents && status == STATUS_OK; i++) {
        if (!selection_has(scope->among, i) || !view_has(scope->view, 0, &x->gone[i])) continue;
        struct stored_document d = collection_document_at(x->collection, i);
        struct index_scan scan = {
            .query = query.vectors, .vectors = piece, .first = d.first_chunk, .dim = index->dim, .k = kept.k};
        status = scan_chunks(index, scan, d.n_chunks, &kept, piece, e);
    }
    free(piece);
    return status;
}

/* Up to so many chunks are compared one by one: about what reading a sixteenth of the lists of an inverted file
 * costs. */
static int64_t few_chunks(const struct index *index) {
    enum { FEW = 4096, FEW_SHARE = 64 };
    return index->count / FEW_SHARE > FEW ? index->count / FEW_SHARE : FEW;
}

/* For how many of all chunks the index is asked first, so that k of the scope are likely among them. */
static int64_t first_width(const struct search_scope *scope, int64_t count, int k) {
    int64_t width = 2 * (int64_t)k + 16;
    return scope->among ? (int64_t)((double)width * (double)count / (double)scope->among->n_chunks) : width;
}

/* One query over the generation, asked for more and more until k of the answers are in the scope, or no others can
 * come. *n gets how many are. */
static enum status search_wider(const struct search_scope *scope, struct index_query query, struct nearest kept, int *n,
                                struct error *e) {
    const struct index *index = collection_index(scope->view->epoch->collection);
    int64_t all = scope->among ? index->count : kept.k + atomic_load(&scope->view->epoch->n_gone_chunks);
    int64_t most = all < index->count ? all : index->count;
    enum status status = STATUS_OK;
    bool more = true;
    if (most > INT32_MAX / 4) most = INT32_MAX / 4;
    for (int64_t k = first_width(scope, index->count, kept.k); more && status == STATUS_OK; k *= 4) {
        struct nearest wide = {.k = (int)(k < most ? k : most)};
        wide.ids = xmalloc((size_t)wide.k * sizeof *wide.ids);
        wide.similarities = xmalloc((size_t)wide.k * sizeof *wide.similarities);
        query.k = wide.k;
        status = index_search(index, query, wide.ids, wide.similarities, e);
        if (status == STATUS_OK) *n = keep_there(scope, &wide, &kept);
        more = status == STATUS_OK && *n < kept.k && k < most && wide.ids[wide.k - 1] >= 0;
        free(wide.ids);
        free(wide.similarities);
    }
    return status;
}

/* An inverted file looks into some of its lists only: where too few of the scope are in these, all are compared. */
static enum status search_one(const struct search_scope *scope, struct index_query query, struct nearest kept,
                              struct error *e) {
    const struct selection *among = scope->among;
    int n = 0;
    if (among && among->n_chunks <= few_chunks(collection_index(scope->view->epoch->collection)))
        return scan_one(scope, query, kept, e);
    enum status status = search_wider(scope, query, kept, &n, e);
    if (status || among == NULL || n == kept.k) return status;
    return scan_one(scope, query, kept, e);
}

static enum status search_generation(const struct search_scope *scope, struct index_query query, int64_t *ids,
                                     float *similarities, struct error *e) {
    const struct epoch *x = scope->view->epoch;
    const struct index *index = collection_index(x->collection);
    if (scope->among == NULL && atomic_load(&x->n_gone_chunks) == 0)
        return index_search(index, query, ids, similarities, e);
    enum status status = STATUS_OK;
    for (int i = 0; i < query.n && status == STATUS_OK; i++) {
        struct index_query one = query;
        one.n = 1;
        one.vectors += (size_t)i * (size_t)index->dim;
        size_t at = (size_t)i * (size_t)query.k;
        status = search_one(scope, one, (struct nearest){ids + at, similarities + at, query.k}, e);
    }
    return status;
}

static void search_log(const struct living_view *v, const struct filter *filter, struct index_query query, int64_t *ids,
                       float *similarities) {
    int64_t n_documents = collection_info(v->epoch->collection)->n_documents;
    int dim = collection_info(v->epoch->collection)->dim;
    for (int number = 0; number < v->n_logged; number++) {
        const struct logged_document *d = epoch_logged(v->epoch, number);
        struct stored_document stored = epoch_document(v->epoch, n_documents + number);
        if (!view_has(v, d->added, &d->gone) || !document_is_allowed(filter, &stored)) continue;
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

enum status view_search(const struct snapshot *s, struct filter *filter, struct index_query query, int64_t *ids,
                        float *similarities, struct error *e) {
    const struct living_view *v = view_read(s);
    if (query.n < 0 || query.k < 1)
        return error_set(e, STATUS_INVALID, "search: %d queries for %d neighbours", query.n, query.k);
    struct selection *among = filter ? selections_find(&v->epoch->selections, v->epoch->collection, filter) : NULL;
    struct search_scope scope = {.view = v, .among = among};
    enum status status = search_generation(&scope, query, ids, similarities, e);
    if (status == STATUS_OK) search_log(v, filter, query, ids, similarities);
    selection_release(among);
    return status;
}
