/* retrieval/retriever_local.c: texts to vectors piece by piece, vectors to chunk ids in the index, ids to what the
 * collection shows of them. See retriever_local.h. */
#include "retrieval/retriever_local.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/candidates.h"

/* Texts that are embedded at a stretch: some forwards of an embedder on a CPU, a tenth of a second on a slow one. */
enum { EMBED_PIECE = 8 };

struct retriever_local {
    struct retriever base;
    const struct embedder *embedder;
    const struct embedder *reranker; /* NULL: there is none */
    int max_k;
    struct living *documents;
};

static struct snapshot *local_hold(struct retriever *base) {
    return living_hold(((struct retriever_local *)base)->documents);
}

/* k as this query may have it: 0 .. max_k. */
static int local_capped(const struct retriever_local *t, const struct retriever_query *query) {
    return max_int(0, min_int(query->k, t->max_k));
}

/* Only a text can be read beside a chunk. */
static bool local_is_reranked(const struct retriever_local *t, const struct retriever_query *query) {
    return t->reranker && query->choice.rerank > 0 && query->text.size > 0 && local_capped(t, query) > 0;
}

/* How many hits are sought. */
static int local_width(const struct retriever_local *t, const struct retriever_query *query) {
    int k = local_capped(t, query);
    return local_is_reranked(t, query) ? max_int(k, query->choice.rerank) : k;
}

static bool local_abandoned(const struct retriever_query *query) {
    return query->cancelled && atomic_load(query->cancelled);
}

static bool local_all_abandoned(const struct retriever_query *queries, int n) {
    for (int i = 0; i < n; i++)
        if (!local_abandoned(&queries[i])) return false;
    return n > 0;
}

/* places [n] are where the vectors of texts [n] go. */
static enum status local_embed_piece(const struct retriever_local *t, const struct text_span *texts, bool pictures,
                                     float *const *places, int n, struct error *e) {
    size_t dim = (size_t)t->embedder->dim;
    float *embedded = xmalloc((size_t)n * dim * sizeof *embedded);
    enum status status = STATUS_OK;
    struct embed_request request = {
        .texts = texts, .n = n, .pictures = pictures, .role = EMBED_QUERY, .vectors = embedded};
    if (pictures && !t->embedder->sees)
        status = error_set(e, STATUS_UNSUPPORTED, "the embedder %s reads texts, no pictures", t->embedder->name);
    if (status == STATUS_OK) status = embedder_embed(t->embedder, &request, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        memcpy(places[i], embedded + (size_t)i * dim, dim * sizeof *embedded);
    free(embedded);
    return status;
}

/* vectors [n, dim], zeros: given, or embedded. Embedding takes by far the longest, so it goes in pieces, without the
 * queries that nobody waits for. */
static enum status local_embed(const struct retriever_local *t, const struct retriever_query *queries, int n,
                               float *vectors, struct error *e) {
    size_t dim = (size_t)t->embedder->dim;
    struct text_span texts[EMBED_PIECE];
    float *places[EMBED_PIECE];
    enum status status = STATUS_OK;
    int n_texts = 0;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        const struct retriever_query *query = &queries[i];
        float *vector = vectors + (size_t)i * dim;
        if (query->vector) {
            memcpy(vector, query->vector, dim * sizeof *vector);
        } else if (local_capped(t, query) > 0 && query->picture && !local_abandoned(query)) {
            status = local_embed_piece(t, &query->text, true, &vector, 1, e);
        } else if (local_capped(t, query) > 0 && !local_abandoned(query)) {
            texts[n_texts] = query->text;
            places[n_texts] = vector;
            n_texts++;
        }
        if (n_texts == EMBED_PIECE) {
            status = local_embed_piece(t, texts, false, places, n_texts, e);
            n_texts = 0;
        }
    }
    if (n_texts > 0 && status == STATUS_OK) status = local_embed_piece(t, texts, false, places, n_texts, e);
    return status;
}

void hit_show(struct hit *hit, const struct snapshot *view, int64_t id, float similarity) {
    struct chunk chunk = view_chunk(view, id);
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

/* Hits above the floor. */
static void local_fill(struct snapshot *view, const struct retriever_query *query, int k, const int64_t *ids,
                       const float *similarities, struct hits *hits) {
    size_t r = (size_t)max_int(0, query->r);
    int most = 0;
    while (most < k && ids[most] >= 0) most++;
    if (most == 0) return;

    hits->list = xmalloc((size_t)most * sizeof *hits->list);
    if (r > 0) hits->ids = xmalloc((size_t)most * r * sizeof *hits->ids);
    for (int i = 0; i < most; i++) {
        if (similarities[i] < query->min_similarity) continue;
        hit_show(&hits->list[hits->n], view, ids[i], similarities[i]);
        if (r > 0) view_neighbor_tokens(view, ids[i], (int)r, hits->ids + (size_t)hits->n * r);
        hits->n++;
    }
    hits->pinned = snapshot_hold(view);
    if (hits->n == 0) hits_free(hits);
}

/* One query whose hits are chosen among more candidates. */
static enum status local_search_candidates(struct snapshot *view, const struct retriever_query *query,
                                           struct index_query one, struct hits *hits, struct error *e) {
    struct candidates found;
    enum status status = candidates_find(&found, view, query, one, e);
    if (status == STATUS_OK) local_fill(view, query, found.n, found.ids, found.similarities, hits);
    candidates_free(&found);
    return status;
}

/* Queries of one snapshot, one filter and one k: an index of some kinds finds other chunks for another k. */
static enum status local_search_alike(const struct retriever_local *t, struct snapshot *view,
                                      const struct retriever_query *queries, struct index_query query,
                                      struct hits *hits, struct error *e) {
    size_t k = (size_t)query.k, n = (size_t)query.n;
    int64_t *ids = xmalloc(n * k * sizeof *ids);
    float *similarities = xmalloc(n * k * sizeof *similarities);
    CHECK(view_info(view)->dim == t->embedder->dim);
    enum status status = view_search(view, queries->filter, query, ids, similarities, e);
    for (size_t i = 0; i < n && status == STATUS_OK; i++)
        local_fill(view, &queries[i], query.k, ids + i * k, similarities + i * k, &hits[i]);
    free(ids);
    free(similarities);
    return status;
}

/* Queries from `first` on that can be searched for together. */
static int local_alike(const struct retriever_local *t, const struct retriever_query *queries, int first, int n) {
    int end = first + 1;
    if (candidates_are_needed(&queries[first])) return 1;
    while (end < n && !candidates_are_needed(&queries[end]) && queries[end].snapshot == queries[first].snapshot &&
           queries[end].filter == queries[first].filter &&
           local_width(t, &queries[end]) == local_width(t, &queries[first]))
        end++;
    return end - first;
}

/* Reranking. */

/* The more relevant first; equal ones stay in the order in which they were found. */
static int compare_relevance(const void *a, const void *b) {
    const struct hit *const *x = a, *const *y = b;
    if ((*x)->relevance != (*y)->relevance) return (*x)->relevance > (*y)->relevance ? -1 : 1;
    return (*x > *y) - (*x < *y);
}

/* Puts hits in the order of their relevance, and keeps the first k. */
static void local_reorder(struct hits *hits, int k, size_t r) {
    int n = min_int(hits->n, k);
    const struct hit **order = xmalloc((size_t)hits->n * sizeof *order);
    struct hit *list = xmalloc((size_t)n * sizeof *list);
    int32_t *ids = hits->ids ? xmalloc((size_t)n * r * sizeof *ids) : NULL;
    for (int i = 0; i < hits->n; i++) order[i] = &hits->list[i];
    qsort(order, (size_t)hits->n, sizeof *order, compare_relevance);
    for (int i = 0; i < n; i++) {
        size_t from = (size_t)(order[i] - hits->list);
        list[i] = *order[i];
        if (ids) memcpy(ids + (size_t)i * r, hits->ids + from * r, r * sizeof *ids);
    }
    free(order);
    free(hits->list);
    free(hits->ids);
    hits->list = list;
    hits->ids = ids;
    hits->n = n;
}

static enum status local_rerank(const struct retriever_local *t, const struct retriever_query *query, struct hits *hits,
                                struct error *e) {
    if (hits->n == 0) return STATUS_OK;
    struct text_span *texts = xmalloc((size_t)hits->n * sizeof *texts);
    float *relevances = xmalloc((size_t)hits->n * sizeof *relevances);
    for (int i = 0; i < hits->n; i++) texts[i] = hits->list[i].text;
    struct embed_request request = {.query = query->text, .texts = texts, .n = hits->n, .vectors = relevances};
    enum status status = embedder_embed(t->reranker, &request, e);
    if (status == STATUS_OK) {
        for (int i = 0; i < hits->n; i++) hits->list[i].relevance = relevances[i];
        local_reorder(hits, local_capped(t, query), (size_t)max_int(0, query->r));
    }
    free(texts);
    free(relevances);
    return status;
}

static enum status local_search(struct retriever *base, const struct retriever_query *queries, int n, struct hits *hits,
                                struct error *e) {
    struct retriever_local *t = (struct retriever_local *)base;
    size_t dim = (size_t)t->embedder->dim;
    struct snapshot *newest = local_hold(base);
    float *vectors = xcalloc((size_t)n * dim, sizeof *vectors);
    enum status status = local_embed(t, queries, n, vectors, e);
    if (status == STATUS_OK && local_all_abandoned(queries, n))
        status = error_set(e, STATUS_CANCELLED, "nobody waits for %d searches", n);
    for (int i = 0, alike; i < n && status == STATUS_OK; i += alike) {
        alike = local_alike(t, queries, i, n);
        struct index_query query = {.vectors = vectors + (size_t)i * dim, .n = alike, .k = local_width(t, &queries[i])};
        struct snapshot *snapshot = queries[i].snapshot ? queries[i].snapshot : newest;
        if (query.k > 0 && candidates_are_needed(&queries[i]) && snapshot->n_chunks > 0)
            status = local_search_candidates(snapshot, &queries[i], query, hits + i, e);
        else if (query.k > 0)
            status = local_search_alike(t, snapshot, queries + i, query, hits + i, e);
        for (int j = i; j < i + alike && status == STATUS_OK; j++)
            if (local_is_reranked(t, &queries[j]) && !local_abandoned(&queries[j]))
                status = local_rerank(t, &queries[j], &hits[j], e);
    }
    free(vectors);
    snapshot_release(newest);
    return status;
}

static void local_close(struct retriever *base) { free(base); }

void retriever_local_set_reranker(struct retriever *t, const struct embedder *reranker) {
    ((struct retriever_local *)t)->reranker = reranker;
}

enum status retriever_local_open(struct retriever **out, struct living *documents, const struct embedder *embedder,
                                 int max_k, struct error *e) {
    static const struct retriever_ops ops = {
        .name = "local", .hold = local_hold, .search = local_search, .close = local_close};
    if (max_k < 1) return error_set(e, STATUS_INVALID, "retriever: at most %d hits of a query; 1 or more", max_k);
    struct snapshot *view = living_hold(documents);
    enum status status = collection_match_embedder(view_info(view), embedder, e);
    snapshot_release(view);
    if (status) return status;
    struct retriever_local *t = xmalloc(sizeof *t);
    *t = (struct retriever_local){.base = {.ops = &ops}, .embedder = embedder, .max_k = max_k, .documents = documents};
    *out = &t->base;
    return STATUS_OK;
}
