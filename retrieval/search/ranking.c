/* retrieval/search/ranking.c: see ranking.h. Queries that ask alike are asked together. More
 * candidates are asked for, twice as many each time, until enough of them may stay or there are no
 * more. */
#include "retrieval/search/ranking.h"

#include <stdlib.h>

#include "retrieval/filter/scope.h"
#include "retrieval/search/candidates.h"

/* Candidates that are asked for at most, of one query and of a batch. */
enum { MOST_CANDIDATES = 1 << 28, BATCH_CANDIDATES = 1 << 20 };

/* Leaving out. */

bool names_are_excluded(const struct text_span *excluded, int n, const char *path, const char *id) {
    const char *const names[] = {path, id, scope_own(id)};
    for (int i = 0; i < n; i++)
        for (size_t j = 0; j < ARRAY_COUNT(names); j++)
            if (span_equals(excluded[i], (struct text_span){names[j], strlen(names[j])}))
                return true;
    return false;
}

static bool is_excluded(const struct retriever_query *query, const struct chunk *chunk) {
    return names_are_excluded(query->excluded, query->n_excluded, chunk->path, chunk->document_id);
}

/* OCR was not sure enough of a page that the chunk stands on. */
static bool is_unsure(const struct retriever_query *query, const struct chunk *chunk) {
    int least = query->choice.min_confidence;
    if (least == 0) return false;
    int confidence = marks_confidence(chunk->marks, chunk->start, chunk->end);
    return confidence > 0 && confidence < least;
}

/* The candidates that stayed so far, and room for one more. */
struct chosen {
    const struct retriever_query *query;
    const struct snapshot *snapshot;
    struct candidate *list; /* [n] */
    struct chunk *chunks;   /* [n] */
    float *vectors;         /* [n, row] where near-duplicates are left out */
    bool *seen;             /* [n] the vector is the picture's own */
    int n, row;
};

static struct chosen chosen_make(const struct ranked_query *query, const struct candidates *found) {
    const struct collection_info *info = found->snapshot->info;
    size_t n = (size_t)min_int(query->k, found->n) + 1;
    struct chosen chosen = {.query = query->query,
                            .snapshot = found->snapshot,
                            .row = max_int(info->dim, info->pictures.dim)};
    chosen.list = xmalloc(n * sizeof *chosen.list);
    chosen.chunks = xmalloc(n * sizeof *chosen.chunks);
    chosen.seen = xcalloc(n, sizeof *chosen.seen);
    if (query->query->choice.distinct > 0)
        chosen.vectors = xmalloc(n * (size_t)chosen.row * sizeof *chosen.vectors);
    return chosen;
}

static void chosen_free(struct chosen *chosen) {
    free(chosen->list);
    free(chosen->chunks);
    free(chosen->seen);
    free(chosen->vectors);
}

static bool is_too_many(const struct chosen *chosen, int64_t document) {
    int same = 0;
    for (int i = 0; i < chosen->n; i++) same += chosen->chunks[i].document == document;
    return chosen->query->choice.per_document > 0 && same >= chosen->query->choice.per_document;
}

/* Whether the vectors that the pictures of two equal texts have are equal too, or neither has one.
 */
static enum status compare_pictures(const struct chosen *chosen, int64_t a, int64_t b, bool *same,
                                    struct error *e) {
    size_t dim = (size_t)chosen->snapshot->info->pictures.dim;
    float *vectors = xcalloc(2 * dim + 1, sizeof *vectors);
    bool has_a = false, has_b = false;
    enum status status = snapshot_picture_vector(chosen->snapshot, a, vectors, &has_a, e);
    if (status == STATUS_OK)
        status = snapshot_picture_vector(chosen->snapshot, b, vectors + dim, &has_b, e);
    *same = has_a == has_b && memcmp(vectors, vectors + dim, dim * sizeof *vectors) == 0;
    free(vectors);
    return status;
}

/* *copy: one that stayed is the same piece of another document with the same text. Such a piece is
 * shown once. */
static enum status is_copy(const struct chosen *chosen, const struct candidate *candidate,
                           const struct chunk *chunk, bool *copy, struct error *e) {
    enum status status = STATUS_OK;
    *copy = false;
    for (int i = 0; i < chosen->n && !*copy && status == STATUS_OK; i++) {
        const struct chunk *other = &chosen->chunks[i];
        *copy = other->document != chunk->document && other->start == chunk->start &&
                span_equals(other->text, chunk->text) && span_equals(other->source, chunk->source);
        if (*copy) status = compare_pictures(chosen, chosen->list[i].id, candidate->id, copy, e);
    }
    return status;
}

/* Reads the chunk's vector behind those that stayed; *near: it is too near to one of them. Pictures
 * that have vectors of their own are compared by these, and with each other alone. */
static enum status is_near(struct chosen *chosen, int64_t id, bool *near, struct error *e) {
    const struct collection_info *info = chosen->snapshot->info;
    size_t row = (size_t)chosen->row;
    bool seen = false;
    *near = false;
    if (chosen->query->choice.distinct <= 0) return STATUS_OK;
    float *own = chosen->vectors + (size_t)chosen->n * row;
    if (snapshot_picture_vector(chosen->snapshot, id, own, &seen, e)) return e->status;
    if (!seen && snapshot_vectors(chosen->snapshot, id, 1, own, e)) return e->status;
    chosen->seen[chosen->n] = seen;
    int dim = seen ? info->pictures.dim : info->dim;
    for (int i = 0; i < chosen->n && !*near; i++)
        *near = chosen->seen[i] == seen && vectors_multiply(own, chosen->vectors + (size_t)i * row,
                                                            dim) > chosen->query->choice.distinct;
    return STATUS_OK;
}

/* Keeps the candidate where it may stay. */
static enum status consider(struct chosen *chosen, const struct candidate *candidate,
                            struct error *e) {
    bool copy, near;
    if (!(candidate->similarity >= chosen->query->min_similarity)) return STATUS_OK;
    struct chunk chunk = snapshot_chunk(chosen->snapshot, candidate->id);
    if (is_excluded(chosen->query, &chunk) || is_too_many(chosen, chunk.document) ||
        is_unsure(chosen->query, &chunk))
        return STATUS_OK;
    if (is_copy(chosen, candidate, &chunk, &copy, e)) return e->status;
    if (copy) return STATUS_OK;
    if (is_near(chosen, candidate->id, &near, e)) return e->status;
    if (near) return STATUS_OK;
    chosen->list[chosen->n] = *candidate;
    chosen->chunks[chosen->n] = chunk;
    chosen->n++;
    return STATUS_OK;
}

/* Showing. */

void hit_show(struct hit *hit, const struct chunk *chunk, float similarity) {
    *hit = (struct hit){.document = chunk->document_id,
                        .path = chunk->path,
                        .title = chunk->title,
                        .chunk = chunk->id,
                        .start = chunk->start,
                        .end = chunk->end,
                        .text = chunk->text,
                        .source = chunk->source,
                        .marks = chunk->marks,
                        .tokens = chunk->tokens,
                        .n_tokens = chunk->n_tokens,
                        .similarity = similarity,
                        .confidence = marks_confidence(chunk->marks, chunk->start, chunk->end),
                        .relevance = -1};
}

static void show_hits(const struct chosen *chosen, struct snapshot *snapshot, struct hits *hits) {
    size_t n = (size_t)chosen->n, r = (size_t)max_int(0, chosen->query->r);
    if (n == 0) return;
    hits->list = xmalloc(n * sizeof *hits->list);
    if (r > 0) hits->ids = xmalloc(n * r * sizeof *hits->ids);
    for (size_t i = 0; i < n; i++) {
        hit_show(&hits->list[i], &chosen->chunks[i], chosen->list[i].similarity);
        if (snapshot->info->pictures.embedder) hits->list[i].by = chosen->list[i].by;
        hits->list[i].worth = chosen->list[i].worth;
        if (r > 0)
            snapshot_neighbor_tokens(snapshot, chosen->list[i].id, (int)r, hits->ids + i * r);
    }
    hits->n = chosen->n;
    hits->pinned = snapshot_hold(snapshot);
}

/* Fills in the hits of a query; *enough: as many as are wanted, or all that there are. */
static enum status choose(const struct ranked_query *query, const struct candidates *found,
                          bool last, bool *enough, struct error *e) {
    struct chosen chosen = chosen_make(query, found);
    enum status status = STATUS_OK;
    for (int i = 0; i < found->n && chosen.n < query->k && status == STATUS_OK; i++)
        status = consider(&chosen, &found->list[i], e);
    *enough = last || chosen.n == query->k || !found->more;
    if (status == STATUS_OK && *enough) show_hits(&chosen, found->snapshot, query->hits);
    chosen_free(&chosen);
    return status;
}

/* Searching. */

/* Queries that still lack hits. */
struct search {
    struct collection *collection;
    const struct ranked_query **queries; /* [n] */
    int n, width;
    bool last; /* no search is wider */
};

/* Those that lack hits behind it are put to kept->queries. */
static enum status search_batch(const struct search *search, int first, int n, struct search *kept,
                                struct error *e) {
    struct ranked_batch batch = {search->collection, search->queries + first, n, search->width};
    struct candidates *found = xcalloc((size_t)n, sizeof *found);
    enum status status = candidates_find(&batch, found, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        bool enough;
        const struct ranked_query *query = batch.queries[i];
        status = choose(query, &found[i], search->last, &enough, e);
        if (enough) continue;
        kept->queries[kept->n] = query;
        kept->n++;
    }
    candidates_free(found, n);
    return status;
}

/* Whether more than the nearest may be looked at. Another machine is rather asked for more than
 * twice, where it looks less closely at a filter than we do. */
static bool needs_more(const struct collection *collection,
                       const struct ranked_query *ranked_query) {
    const struct retriever_query *query = ranked_query->query;
    return query->n_excluded > 0 || query->choice.per_document > 0 || query->choice.distinct > 0 ||
           query->choice.min_confidence > 0 || candidates_lists(ranked_query) != HIT_BY_PASSAGES ||
           (query->filter && collection_is_remote(collection));
}

/* Queries that ask for the same. */
static enum status search_alike(struct search *search, struct error *e) {
    const struct ranked_query *query = search->queries[0];
    int64_t limit = query->query->snapshot->chunk_limit;
    int most = limit < MOST_CANDIDATES ? (int)limit : MOST_CANDIDATES;
    enum status status = STATUS_OK;
    if (query->k == 0 || most == 0 || candidates_lists(query) == 0) return STATUS_OK;
    search->width = needs_more(search->collection, query) ? min_int(2 * query->k, most) : query->k;
    while (search->n > 0 && status == STATUS_OK) {
        struct search kept = {.queries = search->queries};
        int step = max_int(1, BATCH_CANDIDATES / search->width), n;
        search->last = search->width >= most;
        for (int first = 0; first < search->n && status == STATUS_OK; first += n) {
            n = min_int(step, search->n - first);
            status = search_batch(search, first, n, &kept, e);
        }
        search->n = kept.n;
        search->width = search->width < most / 2 ? 2 * search->width : most;
    }
    return status;
}

static bool is_alike(const struct collection *collection, const struct ranked_query *left,
                     const struct ranked_query *right) {
    const struct retriever_query *query = left->query, *retriever_query = right->query;
    return left->k == right->k && query->snapshot == retriever_query->snapshot &&
           candidates_lists(left) == candidates_lists(right) &&
           query->excluded == retriever_query->excluded &&
           query->n_excluded == retriever_query->n_excluded &&
           needs_more(collection, left) == needs_more(collection, right) &&
           (query->choice.distinct > 0) == (retriever_query->choice.distinct > 0) &&
           filter_is_same(query->filter, retriever_query->filter);
}

enum status ranking_find(struct collection *collection, const struct ranked_query *queries, int n,
                         struct error *e) {
    const struct ranked_query **order = xmalloc(((size_t)n + 1) * sizeof(struct ranked_query *));
    enum status status = STATUS_OK;
    int alike;
    for (int first = 0; first < n && status == STATUS_OK; first += alike) {
        for (alike = 0;
             first + alike < n && is_alike(collection, &queries[first], &queries[first + alike]);
             alike++)
            order[alike] = &queries[first + alike];
        status = search_alike(
            &(struct search){.collection = collection, .queries = order, .n = alike}, e);
    }
    free(order);
    return status;
}
