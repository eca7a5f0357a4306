/* retrieval/retriever.c: one step of the retrieval loop: texts to vectors piece by piece, vectors to chunk
 * ids in one search, ids to the tokens that the model's neighbour encoder reads. */
#include "retrieval/retriever.h"

#include <inttypes.h>
#include <stdlib.h>

/* Texts that are embedded at a stretch: some forwards of an embedder on a CPU, a tenth of a second on a slow one. */
enum { EMBED_PIECE = 8 };

struct retriever {
    const struct collection *collection;
    const struct embedder *embedder;
    int r, max_k;
};

enum status retriever_open(struct retriever **out, const struct collection *c, const struct embedder *embedder, int r,
                           int max_k, struct error *e) {
    const struct collection_info *info = collection_info(c);
    if (r < 1 || max_k < 1)
        return error_set(e, STATUS_INVALID,
                         "retriever: retrieved length %d and at most %d neighbours; both are at "
                         "least 1",
                         r, max_k);
    if (embedder->dim != info->dim || embedder->hash != info->embedder_hash)
        return error_set(e, STATUS_INVALID,
                         "embedder %s gives %d numbers (hash %016" PRIx64
                         "), the collection holds %d of %s (hash "
                         "%016" PRIx64 "); build the collection again with this embedder",
                         embedder->name, embedder->dim, embedder->hash, info->dim, info->embedder, info->embedder_hash);
    struct retriever *t = xmalloc(sizeof *t);
    *t = (struct retriever){.collection = c, .embedder = embedder, .r = r, .max_k = max_k};
    *out = t;
    return STATUS_OK;
}

void retriever_close(struct retriever *t) { free(t); }

void retriever_result_free(struct retriever_result *result) {
    free(result->chunks);
    free(result->similarities);
    free(result->ids);
    *result = (struct retriever_result){0};
}

/* What is above the floor of the first `k` neighbours found; they come best first, so the first below ends it. */
static void fill(const struct retriever *t, const struct retriever_query *query, int k, const int64_t *ids,
                 const float *similarities, struct retriever_result *result) {
    int n = 0;
    while (n < k && ids[n] >= 0 && similarities[n] >= query->min_similarity) n++;
    *result = (struct retriever_result){.k = n};
    if (n == 0) return;
    result->chunks = xmalloc((size_t)n * sizeof *result->chunks);
    result->similarities = xmalloc((size_t)n * sizeof *result->similarities);
    result->ids = xmalloc((size_t)n * (size_t)t->r * sizeof *result->ids);
    for (int i = 0; i < n; i++) {
        result->chunks[i] = collection_chunk(t->collection, ids[i]);
        result->similarities[i] = similarities[i];
        collection_neighbor_tokens(t->collection, ids[i], t->r, result->ids + (size_t)i * (size_t)t->r);
    }
}

/* k as this query may have it: 0 .. max_k. */
static int capped(const struct retriever *t, const struct retriever_query *query) {
    return max_int(0, min_int(query->k, t->max_k));
}

static bool nobody_waits(const struct retriever_query *queries, int n) {
    for (int i = 0; i < n; i++)
        if (queries[i].cancelled == NULL || !atomic_load(queries[i].cancelled)) return false;
    return true;
}

/* Embedding takes by far the longest, so it goes in pieces, without those that nobody waits for. vectors [n, dim] are
 * zeros. */
static enum status embed_queries(const struct retriever *t, const struct retriever_query *queries, int n,
                                 float *vectors, struct error *e) {
    struct text_span texts[EMBED_PIECE];
    for (int first = 0; first < n; first += EMBED_PIECE) {
        int count = min_int(EMBED_PIECE, n - first);
        if (nobody_waits(queries + first, count)) continue;
        for (int i = 0; i < count; i++) texts[i] = queries[first + i].text;
        float *piece = vectors + (size_t)first * (size_t)t->embedder->dim;
        if (t->embedder->embed(t->embedder->self, texts, count, piece, e)) return e->status;
    }
    if (nobody_waits(queries, n)) return error_set(e, STATUS_CANCELLED, "nobody waits for %d searches", n);
    return STATUS_OK;
}

static enum status search(const struct retriever *t, const struct retriever_query *queries, int n, int k,
                          struct retriever_result *results, struct error *e) {
    size_t dim = (size_t)t->embedder->dim;
    float *vectors = xcalloc((size_t)n * dim, sizeof *vectors);
    int64_t *ids = xmalloc((size_t)n * (size_t)k * sizeof *ids);
    float *similarities = xmalloc((size_t)n * (size_t)k * sizeof *similarities);
    enum status status = embed_queries(t, queries, n, vectors, e);
    if (status == STATUS_OK)
        status = index_search(collection_index(t->collection), (struct index_query){.vectors = vectors, .n = n, .k = k},
                              ids, similarities, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        fill(t, &queries[i], capped(t, &queries[i]), ids + (size_t)i * (size_t)k, similarities + (size_t)i * (size_t)k,
             &results[i]);
    free(vectors);
    free(ids);
    free(similarities);
    return status;
}

enum status retriever_search(struct retriever *t, const struct retriever_query *queries, int n,
                             struct retriever_result *results, struct error *e) {
    int k = 0;
    for (int i = 0; i < n; i++) {
        results[i] = (struct retriever_result){0};
        k = max_int(k, capped(t, &queries[i]));
    }
    return k == 0 ? STATUS_OK : search(t, queries, n, k, results, e);
}
