/* retrieval/retriever_local.c: texts to vectors piece by piece, vectors to chunk ids in the index, ids to what the
 * collection shows of them. See retriever_local.h. */
#include "retrieval/retriever_local.h"

#include <stdlib.h>

#include "retrieval/candidates.h"
#include "retrieval/query_vectors.h"
#include "retrieval/rerank.h"

struct retriever_local {
    struct retriever base;
    const struct embedder *embedder;
    const struct embedder *pictures; /* their own; NULL: they have none */
    int max_k;
    struct store *documents;
};

static struct snapshot *local_hold(struct retriever *base) {
    return store_hold(((struct retriever_local *)base)->documents);
}

void hit_show(struct hit *hit, const struct snapshot *snapshot, int64_t id, float similarity) {
    struct chunk chunk = snapshot_chunk(snapshot, id);
    *hit = (struct hit){.document = chunk.document_id,
                        .path = chunk.path,
                        .title = chunk.title,
                        .chunk = id,
                        .start = chunk.start,
                        .end = chunk.end,
                        .text = chunk.text,
                        .source = chunk.source,
                        .marks = chunk.marks,
                        .tokens = chunk.tokens,
                        .n_tokens = chunk.n_tokens,
                        .similarity = similarity,
                        .relevance = -1};
}

/* Chunks that were found, best first. */
struct local_found {
    const int64_t *ids; /* [n]; -1: no more */
    const float *similarities;
    const unsigned *by; /* as a hit's; NULL: all are by_all */
    unsigned by_all;
    int n;
};

/* Hits above the floor. */
static void local_fill(struct snapshot *snapshot, const struct retriever_query *query, struct local_found found,
                       struct hits *hits) {
    size_t r = (size_t)max_int(0, query->r);
    int most = 0;
    while (most < found.n && found.ids[most] >= 0) most++;
    if (most == 0) return;

    hits->list = xmalloc((size_t)most * sizeof *hits->list);
    if (r > 0) hits->ids = xmalloc((size_t)most * r * sizeof *hits->ids);
    for (int i = 0; i < most; i++) {
        if (found.similarities[i] < query->min_similarity) continue;
        struct hit *hit = &hits->list[hits->n];
        hit_show(hit, snapshot, found.ids[i], found.similarities[i]);
        hit->by = found.by ? found.by[i] : found.by_all;
        if (r > 0) snapshot_neighbor_tokens(snapshot, found.ids[i], (int)r, hits->ids + (size_t)hits->n * r);
        hits->n++;
    }
    hits->pinned = snapshot_hold(snapshot);
    if (hits->n == 0) hits_free(hits);
}

/* Lists. */

static bool seeks_passages(const struct retriever_local *t, const struct retriever_query *query) {
    if (t->pictures == NULL) return true;
    return query->picture == NULL && (query->vector || query->text.size > 0 || query->picture_vector == NULL);
}

/* Vectors that a query brings are for the lists that they are of. */
static bool seeks_pictures(const struct retriever_local *t, const struct retriever_query *query) {
    bool given = query->vector == NULL || query->picture_vector;
    return t->pictures && given && query->r <= 0 && !query->choice.no_pictures && query->choice.way != RETRIEVE_WORDS;
}

static bool local_needs_candidates(const struct retriever_local *t, const struct retriever_query *query) {
    return candidates_are_needed(query) || seeks_pictures(t, query) || !seeks_passages(t, query);
}

/* The queries' vectors by one of the embedders, [n, dim], zeros where a query is not for its list. */
static enum status local_embed(const struct retriever_local *t, bool pictures, const struct retriever_query *queries,
                               int n, float **out, struct error *e) {
    const struct embedder *embedder = pictures ? t->pictures : t->embedder;
    struct retriever_query *asked = xcalloc((size_t)n + 1, sizeof *asked);
    *out = xcalloc((size_t)n * (size_t)embedder->dim + 1, sizeof **out);
    for (int i = 0; i < n; i++) {
        asked[i] = queries[i];
        if (pictures) asked[i].vector = queries[i].picture_vector;
        if (!(pictures ? seeks_pictures : seeks_passages)(t, &queries[i])) asked[i].k = 0;
    }
    enum status status = query_vectors(embedder, asked, n, t->max_k, *out, e);
    free(asked);
    return status;
}

/* A batch of queries with their vectors. */
struct local_batch {
    const struct retriever_query *queries; /* [n] */
    float *passages, *pictures;            /* [n, dim of each]; pictures NULL: none are sought */
    int n;
};

static enum status local_embed_all(const struct retriever_local *t, struct local_batch *b, struct error *e) {
    bool seen = false;
    for (int i = 0; i < b->n; i++) seen = seen || seeks_pictures(t, &b->queries[i]);
    if (local_embed(t, false, b->queries, b->n, &b->passages, e)) return e->status;
    return seen ? local_embed(t, true, b->queries, b->n, &b->pictures, e) : STATUS_OK;
}

/* Searching. */

static int local_width(const struct retriever_local *t, const struct retriever_query *query) {
    return query_width(query, t->base.reranker, t->max_k);
}

/* Query i, whose hits are chosen among more candidates. */
static enum status local_search_candidates(const struct retriever_local *t, const struct local_batch *b, int i,
                                           struct snapshot *snapshot, struct hits *hits, struct error *e) {
    const struct retriever_query *query = &b->queries[i];
    struct candidate_vectors vectors = {0};
    struct candidates found;
    if (seeks_passages(t, query)) vectors.passages = b->passages + (size_t)i * (size_t)t->embedder->dim;
    if (seeks_pictures(t, query)) vectors.pictures = b->pictures + (size_t)i * (size_t)t->pictures->dim;
    enum status status = candidates_find(&found, snapshot, query, local_width(t, query), vectors, e);
    struct local_found list = {.ids = found.ids, .similarities = found.similarities, .n = found.n};
    if (t->pictures) list.by = found.by;
    if (status == STATUS_OK) local_fill(snapshot, query, list, hits);
    candidates_free(&found);
    return status;
}

/* Whether two of the n chunks are one piece of two documents with the same text. */
static bool local_repeats(const struct snapshot *snapshot, const int64_t *ids, int n) {
    struct chunk *chunks = xcalloc((size_t)n + 1, sizeof *chunks);
    bool found = false;
    for (int i = 0; i < n && ids[i] >= 0 && !found; i++) {
        chunks[i] = snapshot_chunk(snapshot, ids[i]);
        for (int j = 0; j < i && !found; j++) found = chunk_is_copy(&chunks[i], &chunks[j]);
    }
    free(chunks);
    return found;
}

/* Queries of one snapshot, one filter and one k: an index of some kinds finds other chunks for another k. */
static enum status local_search_alike(const struct retriever_local *t, const struct local_batch *b, int first,
                                      struct index_query query, struct hits *hits, struct error *e) {
    const struct retriever_query *queries = b->queries + first;
    struct snapshot *snapshot = queries->snapshot;
    size_t k = (size_t)query.k, n = (size_t)query.n;
    int64_t *ids = xmalloc(n * k * sizeof *ids);
    float *similarities = xmalloc(n * k * sizeof *similarities);
    CHECK(snapshot_info(snapshot)->dim == t->embedder->dim);
    enum status status = store_search(snapshot, queries->filter, query, ids, similarities, e);
    for (size_t i = 0; i < n && status == STATUS_OK; i++) {
        struct local_found found = {.ids = ids + i * k,
                                    .similarities = similarities + i * k,
                                    .by_all = t->pictures ? HIT_BY_PASSAGES : 0,
                                    .n = query.k};
        if (local_repeats(snapshot, found.ids, found.n))
            status = local_search_candidates(t, b, first + (int)i, snapshot, &hits[i], e);
        else
            local_fill(snapshot, &queries[i], found, &hits[i]);
    }
    free(ids);
    free(similarities);
    return status;
}

/* Queries from `first` on that can be searched for together. */
static int local_alike(const struct retriever_local *t, const struct retriever_query *queries, int first, int n) {
    int end = first + 1;
    if (local_needs_candidates(t, &queries[first])) return 1;
    while (end < n && !local_needs_candidates(t, &queries[end]) && queries[end].snapshot == queries[first].snapshot &&
           queries[end].filter == queries[first].filter &&
           local_width(t, &queries[end]) == local_width(t, &queries[first]))
        end++;
    return end - first;
}

/* The queries [first, first + n), which can be searched for together. */
static enum status local_search_some(const struct retriever_local *t, const struct local_batch *b, int first, int n,
                                     struct hits *hits, struct error *e) {
    const struct retriever_query *queries = b->queries + first;
    struct snapshot *snapshot = queries->snapshot;
    struct index_query query = {
        .vectors = b->passages + (size_t)first * (size_t)t->embedder->dim, .n = n, .k = local_width(t, queries)};
    enum status status = STATUS_OK;
    if (query.k > 0 && local_needs_candidates(t, queries) && snapshot->n_chunks > 0)
        status = local_search_candidates(t, b, first, snapshot, hits, e);
    else if (query.k > 0 && seeks_passages(t, queries))
        status = local_search_alike(t, b, first, query, hits, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = hits_rerank(&hits[i], &queries[i], t->base.reranker, t->max_k, e);
    return status;
}

static enum status local_search(struct retriever *base, const struct retriever_query *queries, int n, struct hits *hits,
                                struct error *e) {
    struct retriever_local *t = (struct retriever_local *)base;
    struct snapshot *newest = local_hold(base);
    struct local_batch b = {.n = n};
    struct retriever_query *asked = xcalloc((size_t)n + 1, sizeof *asked);
    for (int i = 0; i < n; i++) {
        asked[i] = queries[i];
        if (asked[i].snapshot == NULL) asked[i].snapshot = newest;
    }
    b.queries = asked;

    enum status status = local_embed_all(t, &b, e);
    for (int i = 0, alike; i < n && status == STATUS_OK; i += alike) {
        alike = local_alike(t, asked, i, n);
        status = local_search_some(t, &b, i, alike, hits + i, e);
    }
    free(asked);
    free(b.passages);
    free(b.pictures);
    snapshot_release(newest);
    return status;
}

static void local_close(struct retriever *base) { free(base); }

enum status retriever_local_open(struct retriever **out, struct store *documents, const struct embedder *embedder,
                                 const struct embedder *pictures, int max_k, struct error *e) {
    static const struct retriever_ops ops = {
        .name = "local", .hold = local_hold, .search = local_search, .close = local_close};
    if (max_k < 1) return error_set(e, STATUS_INVALID, "retriever: at most %d hits of a query; 1 or more", max_k);
    struct snapshot *snapshot = store_hold(documents);
    enum status status = collection_match_embedder(snapshot_info(snapshot), embedder, e);
    if (status == STATUS_OK) status = collection_match_picture_embedder(snapshot_info(snapshot), pictures, e);
    snapshot_release(snapshot);
    if (status) return status;
    struct retriever_local *t = xmalloc(sizeof *t);
    *t = (struct retriever_local){
        .base = {.ops = &ops}, .embedder = embedder, .pictures = pictures, .max_k = max_k, .documents = documents};
    *out = &t->base;
    return STATUS_OK;
}
