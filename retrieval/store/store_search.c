/* retrieval/store/store_search.c: the nearest chunks of a snapshot: those of the generation from
 * its index, without the ones that went, then the log's by exact search. Pictures with vectors of
 * their own are sought in the same way, in their own index: what the index calls by the number of a
 * picture is its first chunk. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store_private.h"

/* Nearest chunks, best first: -1 and -2 where there are fewer. */
struct nearest {
    int64_t *ids;
    float *similarities;
    int k;
};

/* Vectors that are read at a stretch to be compared one by one. */
enum { SCAN_PIECE = 256 };

/* A generation is searched within these limits, of documents that a filter allows and that did not
 * go. */
struct search_scope {
    const struct store_snapshot *snapshot;
    const struct selection *among; /* NULL: all */
    const struct index
        *index; /* of all chunks, or of pictures; NULL: the generation has none such */
    bool pictures;
};

static int64_t scope_chunk(const struct search_scope *scope, int64_t id) {
    return scope->pictures ? disk_generation_picture_chunk(scope->snapshot->epoch->generation, id)
                           : id;
}

static bool scope_has(const struct search_scope *scope, int64_t chunk) {
    const struct epoch *epoch = scope->snapshot->epoch;
    int64_t document = disk_generation_document_of(epoch->generation, chunk);
    if (scope->among && !selection_has(scope->among, document)) return false;
    return store_snapshot_has(scope->snapshot, 0, &epoch->gone[document]);
}

static void forget(struct nearest *kept, int from) {
    for (int i = from; i < kept->k; i++) {
        kept->ids[i] = -1;
        kept->similarities[i] = -2;
    }
}

/* The first of `wide` that are in the scope, in order. Returns how many there are. */
static int keep_there(const struct search_scope *scope, const struct nearest *wide,
                      struct nearest *kept) {
    int n = 0;
    for (int i = 0; i < wide->k && n < kept->k && wide->ids[i] >= 0; i++) {
        int64_t chunk = scope_chunk(scope, wide->ids[i]);
        if (!scope_has(scope, chunk)) continue;
        kept->ids[n] = chunk;
        kept->similarities[n] = wide->similarities[i];
        n++;
    }
    forget(kept, n);
    return n;
}

/* Compares the query with the chunks [first, first + n). */
static enum status scan_chunks(const struct index *index, struct index_scan scan, int64_t n,
                               struct nearest *kept, float *piece, struct error *e) {
    enum status status = STATUS_OK;
    int64_t end = scan.first + n;
    for (; scan.first < end && status == STATUS_OK; scan.first += SCAN_PIECE) {
        scan.count = end - scan.first < SCAN_PIECE ? end - scan.first : SCAN_PIECE;
        status = index_vectors(index, scan.first, (int)scan.count, piece, e);
        if (status == STATUS_OK) index_scan(scan, kept->ids, kept->similarities);
    }
    return status;
}

/* One query, compared with every picture of the scope. */
static enum status scan_pictures(const struct search_scope *scope, struct index_query query,
                                 struct nearest *kept, float *vector, struct error *e) {
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < scope->index->count && status == STATUS_OK; i++) {
        struct index_scan scan = {.query = query.vectors,
                                  .vectors = vector,
                                  .first = scope_chunk(scope, i),
                                  .count = 1,
                                  .dim = scope->index->dim,
                                  .k = kept->k};
        if (!scope_has(scope, scan.first)) continue;
        status = index_vectors(scope->index, i, 1, vector, e);
        if (status == STATUS_OK) index_scan(scan, kept->ids, kept->similarities);
    }
    return status;
}

/* The same with every chunk. */
static enum status scan_documents(const struct search_scope *scope, struct index_query query,
                                  struct nearest *kept, float *piece, struct error *e) {
    const struct epoch *epoch = scope->snapshot->epoch;
    const struct index *index = scope->index;
    int64_t n_documents = disk_generation_info(epoch->generation)->n_documents;
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < n_documents && status == STATUS_OK; i++) {
        if (!selection_has(scope->among, i) ||
            !store_snapshot_has(scope->snapshot, 0, &epoch->gone[i]))
            continue;
        struct stored_document document = disk_generation_document_at(epoch->generation, i);
        struct index_scan scan = {.query = query.vectors,
                                  .vectors = piece,
                                  .first = document.first_chunk,
                                  .dim = index->dim,
                                  .k = kept->k};
        status = scan_chunks(index, scan, document.n_chunks, kept, piece, e);
    }
    return status;
}

static enum status scan_one(const struct search_scope *scope, struct index_query query,
                            struct nearest kept, struct error *e) {
    float *piece = xmalloc((size_t)SCAN_PIECE * (size_t)scope->index->dim * sizeof *piece);
    forget(&kept, 0);
    enum status status =
        (scope->pictures ? scan_pictures : scan_documents)(scope, query, &kept, piece, e);
    free(piece);
    return status;
}

/* Up to so many chunks are compared one by one: about what reading a sixteenth of the lists of an
 * inverted file costs. */
static int64_t few_chunks(const struct index *index) {
    enum { FEW = 4096, FEW_SHARE = 64 };
    return index->count / FEW_SHARE > FEW ? index->count / FEW_SHARE : FEW;
}

/* For how many of all chunks the index is asked first, so that k of the scope are likely among
 * them. */
static int64_t first_width(const struct search_scope *scope, int k) {
    int64_t width = 2 * (int64_t)k + 16,
            count = disk_generation_info(scope->snapshot->epoch->generation)->n_chunks;
    return scope->among ? (int64_t)((double)width * (double)count / (double)scope->among->n_chunks)
                        : width;
}

/* One query over the generation, asked for more and more until k of the answers are in the scope,
 * or no others can come. *n gets how many are. */
static enum status search_wider(const struct search_scope *scope, struct index_query query,
                                struct nearest kept, int *n, struct error *e) {
    const struct index *index = scope->index;
    int64_t all =
        scope->among ? index->count : kept.k + atomic_load(&scope->snapshot->epoch->n_gone_chunks);
    int64_t most = all < index->count ? all : index->count;
    enum status status = STATUS_OK;
    bool more = true;
    if (most > INT32_MAX / 4) most = INT32_MAX / 4;
    for (int64_t k = first_width(scope, kept.k); more && status == STATUS_OK; k *= 4) {
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

/* An inverted file looks into some of its lists only: where too few of the scope are in these, all
 * are compared. */
static enum status search_one(const struct search_scope *scope, struct index_query query,
                              struct nearest kept, struct error *e) {
    const struct selection *among = scope->among;
    int n = 0;
    if (among && among->n_chunks <= few_chunks(scope->index))
        return scan_one(scope, query, kept, e);
    enum status status = search_wider(scope, query, kept, &n, e);
    if (status || among == NULL || n == kept.k) return status;
    return scan_one(scope, query, kept, e);
}

static enum status search_generation(const struct search_scope *scope, struct index_query query,
                                     int64_t *ids, float *similarities, struct error *e) {
    const struct epoch *epoch = scope->snapshot->epoch;
    const struct index *index = scope->index;
    size_t n = (size_t)query.n * (size_t)query.k;
    enum status status = STATUS_OK;
    if (index == NULL) {
        forget(&(struct nearest){ids, similarities, (int)n}, 0);
        return STATUS_OK;
    }
    if (scope->among == NULL && atomic_load(&epoch->n_gone_chunks) == 0) {
        status = index_search(index, query, ids, similarities, e);
        for (size_t i = 0; i < n && status == STATUS_OK && scope->pictures; i++)
            if (ids[i] >= 0) ids[i] = scope_chunk(scope, ids[i]);
        return status;
    }
    for (int i = 0; i < query.n && status == STATUS_OK; i++) {
        struct index_query one = query;
        one.n = 1;
        one.vectors += (size_t)i * (size_t)index->dim;
        size_t at = (size_t)i * (size_t)query.k;
        status = search_one(scope, one, (struct nearest){ids + at, similarities + at, query.k}, e);
    }
    return status;
}

static void search_log(const struct search_scope *scope, const struct filter *filter,
                       struct index_query query, int64_t *ids, float *similarities) {
    const struct store_snapshot *snapshot = scope->snapshot;
    const struct collection_info *info = disk_generation_info(snapshot->epoch->generation);
    int64_t n_documents = info->n_documents;
    int dim = scope->pictures ? info->pictures.dim : info->dim;
    for (int number = 0; number < snapshot->n_logged; number++) {
        const struct logged_document *document = epoch_logged(snapshot->epoch, number);
        struct stored_document stored = epoch_document(snapshot->epoch, n_documents + number);
        if (!store_snapshot_has(snapshot, document->added, &document->gone) ||
            !document_is_allowed(filter, &stored))
            continue;
        const struct document_image *image = &document->bytes->image;
        if (scope->pictures && image->document.picture == NULL) continue;
        struct index_scan scan = {
            .vectors = scope->pictures ? image->document.picture : image->vectors,
            .count = scope->pictures ? 1 : image->document.n_chunks,
            .first = document->first_chunk,
            .dim = dim,
            .k = query.k};
        for (size_t i = 0; i < (size_t)query.n; i++) {
            scan.query = query.vectors + i * (size_t)dim;
            index_scan(scan, ids + i * (size_t)query.k, similarities + i * (size_t)query.k);
        }
    }
}

enum status store_search(const struct snapshot *snapshot, const struct nearest_query *nearest_query,
                         int64_t *ids, float *similarities, struct error *e) {
    struct search_scope scope = {.snapshot = store_snapshot_read(snapshot),
                                 .pictures = nearest_query->pictures};
    struct index_query query = {
        .vectors = nearest_query->vectors, .n = nearest_query->n, .k = nearest_query->k};
    struct epoch *epoch = scope.snapshot->epoch;
    if (nearest_query->n < 0 || nearest_query->k < 1)
        return error_set(e, STATUS_INVALID, "search: %d queries for %d neighbours",
                         nearest_query->n, nearest_query->k);
    struct selection *among =
        nearest_query->filter
            ? selections_find(&epoch->selections, epoch->generation, nearest_query->filter)
            : NULL;
    scope.among = among;
    scope.index = nearest_query->pictures ? disk_generation_pictures(epoch->generation)
                                          : disk_generation_index(epoch->generation);
    enum status status = search_generation(&scope, query, ids, similarities, e);
    if (status == STATUS_OK) search_log(&scope, nearest_query->filter, query, ids, similarities);
    selection_release(among);
    return status;
}

int64_t store_count_pictures(const struct snapshot *snapshot) {
    const struct store_snapshot *store_snapshot = store_snapshot_read(snapshot);
    struct search_scope scope = {.snapshot = store_snapshot, .pictures = true};
    int64_t n = 0,
            n_generation = disk_generation_info(store_snapshot->epoch->generation)->pictures.n;
    for (int64_t i = 0; i < n_generation; i++) n += scope_has(&scope, scope_chunk(&scope, i));
    for (int i = 0; i < store_snapshot->n_logged; i++) {
        const struct logged_document *document = epoch_logged(store_snapshot->epoch, i);
        n += document->bytes->image.document.picture &&
             store_snapshot_has(store_snapshot, document->added, &document->gone);
    }
    return n;
}
