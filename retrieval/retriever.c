/* retrieval/retriever.c: texts to vectors, vectors to hits, hits in the order of a reranker. See retriever.h. */
#include "retrieval/retriever.h"

#include <stdlib.h>

#include "retrieval/query_vectors.h"
#include "retrieval/ranking.h"
#include "retrieval/rerank.h"

struct retriever {
    struct collection *collection;
    struct retriever_embedders embedders;
    const struct embedder *reranker; /* NULL: there is none */
    int max_k;
};

/* Hits. */

void hits_free(struct hits *h) {
    free(h->list);
    free(h->ids);
    snapshot_release(h->pinned);
    *h = (struct hits){0};
}

int hit_list_names(const struct hit *hit, const char *names[HIT_LISTS]) {
    static const struct {
        enum hit_list list;
        const char *name;
    } lists[HIT_LISTS] = {{HIT_BY_PASSAGES, "passages"}, {HIT_BY_WORDS, "words"}, {HIT_BY_PICTURES, "pictures"}};
    int n = 0;
    for (int i = 0; i < HIT_LISTS; i++) {
        if ((hit->by & (unsigned)lists[i].list) == 0) continue;
        names[n] = lists[i].name;
        n++;
    }
    return n;
}

void hit_put_lists(struct json_writer *w, const struct hit *hit) {
    const char *names[HIT_LISTS];
    int n = hit_list_names(hit, names);
    if (n == 0) return;
    put_key_array(w, "by");
    for (int i = 0; i < n; i++) put_string(w, names[i]);
    put_array_end(w);
}

/* Vectors. */

static bool seeks_passages(const struct retriever *t, const struct retriever_query *query) {
    if (t->embedders.pictures == NULL) return true;
    return query->picture == NULL && (query->vector || query->text.size > 0 || query->picture_vector == NULL);
}

/* Vectors that a query brings are for the lists that they are of. */
static bool seeks_pictures(const struct retriever *t, const struct retriever_query *query) {
    bool given = query->vector == NULL || query->picture_vector;
    return t->embedders.pictures && given && query->r <= 0 && !query->choice.no_pictures &&
           query->choice.way != RETRIEVE_WORDS;
}

/* The queries' vectors by one of the embedders, [n, dim], zeros where a query is not for its list. */
static enum status embed_queries(const struct retriever *t, bool pictures, const struct retriever_query *queries, int n,
                                 float **out, struct error *e) {
    const struct embedder *embedder = pictures ? t->embedders.pictures : t->embedders.texts;
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

/* Searching. */

/* A batch of queries with their vectors. */
struct retriever_batch {
    struct retriever_query *queries; /* [n] each with a snapshot */
    float *passages, *pictures;      /* [n, dim of each]; pictures NULL: none are sought */
    int n;
};

static enum status embed_all(const struct retriever *t, struct retriever_batch *b, struct error *e) {
    bool seen = false;
    for (int i = 0; i < b->n; i++) seen = seen || seeks_pictures(t, &b->queries[i]);
    if (embed_queries(t, false, b->queries, b->n, &b->passages, e)) return e->status;
    return seen ? embed_queries(t, true, b->queries, b->n, &b->pictures, e) : STATUS_OK;
}

static enum status search_embedded(const struct retriever *t, const struct retriever_batch *b, struct hits *hits,
                                   struct error *e) {
    struct ranked_query *ranked = xcalloc((size_t)b->n + 1, sizeof *ranked);
    for (int i = 0; i < b->n; i++) {
        const struct retriever_query *query = &b->queries[i];
        ranked[i] =
            (struct ranked_query){.query = query, .k = query_width(query, t->reranker, t->max_k), .hits = &hits[i]};
        if (seeks_passages(t, query)) ranked[i].passages = b->passages + (size_t)i * (size_t)t->embedders.texts->dim;
        if (seeks_pictures(t, query)) ranked[i].pictures = b->pictures + (size_t)i * (size_t)t->embedders.pictures->dim;
        CHECK(query->snapshot->info->dim == t->embedders.texts->dim);
    }
    enum status status = ranking_find(t->collection, ranked, b->n, e);
    for (int i = 0; i < b->n && status == STATUS_OK; i++)
        status = hits_rerank(&hits[i], &b->queries[i], t->reranker, t->max_k, e);
    free(ranked);
    return status;
}

enum status retriever_search(struct retriever *t, const struct retriever_query *queries, int n, struct hits *hits,
                             struct error *e) {
    struct snapshot *newest = retriever_hold(t);
    struct retriever_batch b = {.queries = xcalloc((size_t)n + 1, sizeof *b.queries), .n = n};
    memset(hits, 0, (size_t)n * sizeof *hits);
    for (int i = 0; i < n; i++) {
        b.queries[i] = queries[i];
        if (queries[i].snapshot == NULL) b.queries[i].snapshot = newest;
    }
    enum status status = embed_all(t, &b, e);
    if (status == STATUS_OK) status = search_embedded(t, &b, hits, e);
    for (int i = 0; i < n && status; i++) hits_free(&hits[i]);
    free(b.queries);
    free(b.passages);
    free(b.pictures);
    snapshot_release(newest);
    return status;
}

/* Opening. */

struct snapshot *retriever_hold(struct retriever *t) {
    return collection_hold(t->collection);
}

bool retriever_has_words(const struct retriever *t, const struct snapshot *s) {
    return t->collection->ops->has_words == NULL || t->collection->ops->has_words(t->collection, s);
}

enum status retriever_make_words(struct retriever *t, struct snapshot *s, struct error *e) {
    int64_t none;
    return t->collection->ops->search_words(t->collection, s, &(struct word_query){.text = {"", 0}, .k = 1}, &none, e);
}

void retriever_set_reranker(struct retriever *t, const struct embedder *reranker) { t->reranker = reranker; }
void retriever_close(struct retriever *t) { free(t); }

enum status retriever_open(struct retriever **out, struct collection *c, struct retriever_embedders embedders,
                           int max_k, struct error *e) {
    if (max_k < 1) return error_set(e, STATUS_INVALID, "retriever: at most %d hits of a query; 1 or more", max_k);
    struct snapshot *snapshot = collection_hold(c);
    enum status status = collection_match_embedder(snapshot->info, embedders.texts, e);
    if (status == STATUS_OK) status = collection_match_picture_embedder(snapshot->info, embedders.pictures, e);
    snapshot_release(snapshot);
    if (status) return status;
    *out = xmalloc(sizeof **out);
    **out = (struct retriever){.collection = c, .embedders = embedders, .max_k = max_k};
    return STATUS_OK;
}
