/* retrieval/search/retriever.c: texts to vectors, vectors to hits, hits in the order of a reranker.
 * See retriever.h. */
#include "retrieval/retriever.h"

#include <math.h>
#include <stdlib.h>

#include "retrieval/search/query_vectors.h"
#include "retrieval/search/ranking.h"
#include "retrieval/search/recall.h"
#include "retrieval/search/rerank.h"
#include "retrieval/words/word_demands.h"

struct retriever {
    struct collection *collection;
    struct retriever_embedders embedders;
    const struct embedder *reranker; /* NULL: there is none */
    int max_k;
};

/* Hits. */

void hits_free(struct hits *hits) {
    free(hits->list);
    free(hits->ids);
    snapshot_release(hits->pinned);
    *hits = (struct hits){0};
}

int hit_list_names(const struct hit *hit, const char *names[HIT_LISTS]) {
    static const struct {
        enum hit_list list;
        const char *name;
    } lists[HIT_LISTS] = {{HIT_BY_PASSAGES, "passages"},
                          {HIT_BY_WORDS, "words"},
                          {HIT_BY_SPARSE, "sparse"},
                          {HIT_BY_PICTURES, "pictures"}};
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

static void put_corner(struct json_writer *w, float at) { put_float(w, roundf(at * 100) / 100); }

/* The rectangles of one page, from box i on; the first that is another's. */
static size_t put_page(struct json_writer *w, const struct page_box *boxes, size_t i, size_t n) {
    uint32_t page = boxes[i].page;
    put_object(w);
    put_key_int(w, "page", page);
    put_key_float(w, "page_width", boxes[i].page_width);
    put_key_float(w, "page_height", boxes[i].page_height);
    put_key_array(w, "rects");
    for (; i < n && boxes[i].page == page; i++) {
        put_array(w);
        put_corner(w, boxes[i].rect.left);
        put_corner(w, boxes[i].rect.top);
        put_corner(w, boxes[i].rect.right);
        put_corner(w, boxes[i].rect.bottom);
        put_array_end(w);
    }
    put_array_end(w);
    put_object_end(w);
    return i;
}

void hit_put_boxes(struct json_writer *w, const struct hit *hit) {
    struct buffer found = {0};
    if (hit->path == NULL) {
        put_key_null(w, "boxes");
        return;
    }
    if (hit->source.text) place_find_boxes(hit->marks, hit->start, hit->end, &found);
    const struct page_box *boxes = (const void *)found.data;
    size_t n = found.size / sizeof *boxes;
    put_key_array(w, "boxes");
    for (size_t i = 0; i < n;) i = put_page(w, boxes, i, n);
    put_array_end(w);
    buffer_free(&found);
}

void hit_put_worth(struct json_writer *w, const struct hit *hit) {
    const struct hit_worth *worth = &hit->worth;
    if (!worth->joined) return;
    put_key_object(w, "worth");
    put_key_float(w, "total", worth->total);
    put_key_float(w, "vectors", worth->vectors);
    put_key_float(w, "words", worth->words);
    put_key_float(w, "words_weight", worth->weight);
    put_key_int(w, "exact", worth->exact);
    put_key_int(w, "told", worth->told);
    if (worth->sparse_weight > 0) {
        put_key_float(w, "sparse", worth->sparse);
        put_key_float(w, "sparse_weight", worth->sparse_weight);
    }
    put_object_end(w);
}

/* Vectors. */

static bool seeks_passages(const struct retriever *retriever, const struct retriever_query *query) {
    if (retriever->embedders.pictures == NULL) return true;
    return query->picture == NULL &&
           (query->vector || query->text.size > 0 || query->picture_vector == NULL);
}

/* Vectors that a query brings are for the lists that they are of. */
static bool seeks_pictures(const struct retriever *retriever, const struct retriever_query *query) {
    bool given = query->vector == NULL || query->picture_vector;
    return retriever->embedders.pictures && given && query->r <= 0 && !query->choice.no_pictures &&
           query->choice.way != RETRIEVE_WORDS;
}

/* Both lists of a text that is embedded are joined with that of its sparse weights. */
static bool seeks_sparse(const struct retriever_query *query) {
    return query->snapshot->info->sparse && query->choice.way == RETRIEVE_BOTH &&
           query->picture == NULL && query->vector == NULL;
}

/* The embedder of a state of the collection: queries are embedded as its documents were. */
static const struct embedder *embedder_of(const struct retriever *retriever,
                                          const struct snapshot *snapshot) {
    return snapshot->embedder ? snapshot->embedder : retriever->embedders.texts;
}

/* Searching. */

/* A batch of queries with their vectors. */
struct retriever_batch {
    struct retriever_query *queries; /* [n] each with a snapshot, all of one embedder */
    float *passages, *pictures;      /* [n, dim of each]; pictures NULL: none are sought */
    struct sparse_rows *sparse;      /* [n] of each at most one row; NULL: no state is sparse */
    int n;
};

/* The queries' vectors by one of the embedders, zeros where a query is not for its list. */
static enum status embed_queries(const struct retriever *retriever, bool pictures,
                                 struct retriever_batch *batch, struct error *e) {
    const struct embedder *embedder = pictures ? retriever->embedders.pictures
                                               : embedder_of(retriever, batch->queries[0].snapshot);
    size_t n = (size_t)batch->n;
    struct retriever_query *asked = xcalloc(n + 1, sizeof *asked);
    float *vectors = xcalloc(n * (size_t)embedder->dim + 1, sizeof *vectors);
    *(pictures ? &batch->pictures : &batch->passages) = vectors;
    for (size_t i = 0; i < n; i++) {
        const struct retriever_query *query = &batch->queries[i];
        asked[i] = *query;
        if (pictures) asked[i].vector = query->picture_vector;
        if (!(pictures ? seeks_pictures : seeks_passages)(retriever, query)) asked[i].k = 0;
    }
    const struct query_places places = {vectors, pictures ? NULL : batch->sparse};
    enum status status = query_vectors(embedder, asked, batch->n, retriever->max_k, &places, e);
    free(asked);
    return status;
}

static enum status embed_all(const struct retriever *retriever, struct retriever_batch *batch,
                             struct error *e) {
    bool seen = false, sparse = false;
    for (int i = 0; i < batch->n; i++) {
        seen = seen || seeks_pictures(retriever, &batch->queries[i]);
        sparse = sparse || seeks_sparse(&batch->queries[i]);
    }
    sparse = sparse && embedder_of(retriever, batch->queries[0].snapshot)->sparse;
    if (sparse) batch->sparse = xcalloc((size_t)batch->n, sizeof *batch->sparse);
    if (embed_queries(retriever, false, batch, e)) return e->status;
    return seen ? embed_queries(retriever, true, batch, e) : STATUS_OK;
}

static enum status search_embedded(const struct retriever *retriever,
                                   const struct retriever_batch *batch, struct hits *hits,
                                   struct error *e) {
    struct ranked_query *ranked = xcalloc((size_t)batch->n + 1, sizeof *ranked);
    int dim = embedder_of(retriever, batch->queries[0].snapshot)->dim;
    for (int i = 0; i < batch->n; i++) {
        const struct retriever_query *query = &batch->queries[i];
        ranked[i] =
            (struct ranked_query){.query = query,
                                  .k = query_width(query, retriever->reranker, retriever->max_k),
                                  .hits = &hits[i]};
        if (seeks_passages(retriever, query))
            ranked[i].passages = batch->passages + (size_t)i * (size_t)dim;
        if (batch->sparse && seeks_sparse(query) && sparse_rows_count(&batch->sparse[i]) > 0)
            ranked[i].sparse = &batch->sparse[i];
        if (seeks_pictures(retriever, query))
            ranked[i].pictures =
                batch->pictures + (size_t)i * (size_t)retriever->embedders.pictures->dim;
        CHECK(query->snapshot->info->dim == dim);
    }
    enum status status = ranking_find(retriever->collection, ranked, batch->n, e);
    for (int i = 0; i < batch->n && status == STATUS_OK; i++)
        status =
            hits_rerank(&hits[i], &batch->queries[i], retriever->reranker, retriever->max_k, e);
    free(ranked);
    return status;
}

static enum retriever_way choose_way(const struct retriever *retriever,
                                     const struct retriever_query *query) {
    if (query->choice.way != RETRIEVE_USUAL) return query->choice.way;
    bool can = query_ranks_words(query) && !collection_is_remote(retriever->collection);
    return can ? RETRIEVE_BOTH : RETRIEVE_NEAREST;
}

/* Reads the operators of a query, whose text has none then. */
static enum status read_operators(const struct retriever *retriever, struct retriever_query *query,
                                  struct word_demands **out, struct error *e) {
    if (!query->choice.operators || query->k <= 0) return STATUS_OK;
    if (collection_is_remote(retriever->collection))
        return error_set(e, STATUS_UNSUPPORTED,
                         "a collection in Milvus has no words: operators need one on a disk");
    if (query->picture || query->text.size == 0)
        return error_set(e, STATUS_INVALID, "operators are those of a text that is sought");
    enum status status = word_demands_parse(out, query->text, e);
    if (status) return status;
    query->demands = *out;
    if (query->choice.way == RETRIEVE_NEAREST) query->choice.way = RETRIEVE_BOTH;
    query->text = (struct text_span){(*out)->text.data, (*out)->text.size};
    return STATUS_OK;
}

static enum status search_batch(const struct retriever *retriever, struct retriever_query *queries,
                                int n, struct hits *hits, struct error *e) {
    struct retriever_batch batch = {.queries = queries, .n = n};
    enum status status = embed_all(retriever, &batch, e);
    if (status == STATUS_OK) status = search_embedded(retriever, &batch, hits, e);
    for (int i = 0; i < n && batch.sparse; i++) sparse_rows_free(&batch.sparse[i]);
    free(batch.sparse);
    free(batch.passages);
    free(batch.pictures);
    return status;
}

/* The first queries, whose states are of one embedder: all, but for a moment after the
 * collection has turned to another one. */
static int count_alike(const struct retriever *retriever, const struct retriever_query *queries,
                       int n) {
    const struct embedder *embedder = embedder_of(retriever, queries[0].snapshot);
    int alike = 1;
    while (alike < n && embedder_of(retriever, queries[alike].snapshot) == embedder) alike++;
    return alike;
}

enum status retriever_search(struct retriever *retriever, const struct retriever_query *queries,
                             int n, struct hits *hits, struct error *e) {
    struct snapshot *newest = retriever_hold(retriever);
    struct retriever_query *asked = xcalloc((size_t)n + 1, sizeof *asked);
    struct word_demands **demands = xcalloc((size_t)n + 1, sizeof(struct word_demands *));
    enum status status = STATUS_OK;
    memset(hits, 0, (size_t)n * sizeof *hits);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        asked[i] = queries[i];
        if (queries[i].snapshot == NULL) asked[i].snapshot = newest;
        asked[i].choice.way = choose_way(retriever, &queries[i]);
        status = read_operators(retriever, &asked[i], &demands[i], e);
    }
    for (int i = 0, alike = 0; i < n && status == STATUS_OK; i += alike) {
        alike = count_alike(retriever, asked + i, n - i);
        status = search_batch(retriever, asked + i, alike, hits + i, e);
        /* Nobody waits for these; somebody may for the others. */
        if (status == STATUS_CANCELLED && alike < n) status = STATUS_OK;
    }
    for (int i = 0; i < n && status; i++) hits_free(&hits[i]);
    for (int i = 0; i < n; i++) word_demands_free(demands[i]);
    free(demands);
    free(asked);
    snapshot_release(newest);
    return status;
}

/* Recalling. */

bool retriever_recalls(const struct retriever *retriever) {
    return !collection_is_remote(retriever->collection);
}

void retriever_recall(struct retriever *retriever, const struct recall *recall) {
    recall_from(retriever->collection, recall);
}

void recalled_release(struct recalled *list, int n) {
    for (int i = 0; i < n; i++) snapshot_release(list[i].pinned);
}

/* Opening. */

struct snapshot *retriever_hold(struct retriever *retriever) {
    return collection_hold(retriever->collection);
}

bool retriever_has_words(const struct retriever *retriever, const struct snapshot *snapshot) {
    return retriever->collection->ops->has_words == NULL ||
           retriever->collection->ops->has_words(retriever->collection, snapshot);
}

enum status retriever_make_words(struct retriever *retriever, struct snapshot *snapshot,
                                 struct error *e) {
    int64_t none;
    float share;
    return retriever->collection->ops->search_words(
        retriever->collection, snapshot, &(struct word_query){.text = {"", 0}, .k = 1},
        &(struct word_found){.ids = &none, .shares = &share}, e);
}

void retriever_set_reranker(struct retriever *retriever, const struct embedder *reranker) {
    retriever->reranker = reranker;
}
void retriever_close(struct retriever *retriever) { free(retriever); }

enum status retriever_open(struct retriever **out, struct collection *collection,
                           struct retriever_embedders embedders, int max_k, struct error *e) {
    if (max_k < 1)
        return error_set(e, STATUS_INVALID, "retriever: at most %d hits of a query; 1 or more",
                         max_k);
    struct snapshot *snapshot = collection_hold(collection);
    enum status status = collection_match_embedder(snapshot->info, embedders.texts, e);
    if (status == STATUS_OK)
        status = collection_match_picture_embedder(snapshot->info, embedders.pictures, e);
    snapshot_release(snapshot);
    if (status) return status;
    *out = xmalloc(sizeof **out);
    **out = (struct retriever){.collection = collection, .embedders = embedders, .max_k = max_k};
    return STATUS_OK;
}
