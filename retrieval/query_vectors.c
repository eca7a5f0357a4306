/* retrieval/query_vectors.c: texts and pictures to vectors, piece by piece. See query_vectors.h. */
#include "retrieval/query_vectors.h"

#include <stdlib.h>
#include <string.h>

/* Texts that are embedded at a stretch: some forwards of an embedder on a CPU, a tenth of a second on a slow one. */
enum { EMBED_PIECE = 8 };

static bool all_are_abandoned(const struct retriever_query *queries, int n) {
    for (int i = 0; i < n; i++)
        if (!query_is_abandoned(&queries[i])) return false;
    return n > 0;
}

/* places [n] are where the vectors of texts [n] go. */
static enum status embed_piece(const struct embedder *embedder, const struct text_span *texts, bool pictures,
                               float *const *places, int n, struct error *e) {
    size_t dim = (size_t)embedder->dim;
    float *embedded = xmalloc((size_t)n * dim * sizeof *embedded);
    enum status status = STATUS_OK;
    struct embed_request request = {
        .texts = texts, .n = n, .pictures = pictures, .role = EMBED_QUERY, .vectors = embedded};
    if (pictures && !embedder->sees)
        status = error_set(e, STATUS_UNSUPPORTED, "the embedder %s reads texts, no pictures", embedder->name);
    if (status == STATUS_OK) status = embedder_embed(embedder, &request, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        memcpy(places[i], embedded + (size_t)i * dim, dim * sizeof *embedded);
    free(embedded);
    return status;
}

enum status query_vectors(const struct embedder *embedder, const struct retriever_query *queries, int n, int max_k,
                          float *vectors, struct error *e) {
    size_t dim = (size_t)embedder->dim;
    struct text_span texts[EMBED_PIECE];
    float *places[EMBED_PIECE];
    enum status status = STATUS_OK;
    int n_texts = 0;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        const struct retriever_query *query = &queries[i];
        float *vector = vectors + (size_t)i * dim;
        if (query->vector) {
            memcpy(vector, query->vector, dim * sizeof *vector);
        } else if (query_capped(query, max_k) > 0 && query->picture && !query_is_abandoned(query)) {
            status = embed_piece(embedder, &query->text, true, &vector, 1, e);
        } else if (query_capped(query, max_k) > 0 && !query_is_abandoned(query)) {
            texts[n_texts] = query->text;
            places[n_texts] = vector;
            n_texts++;
        }
        if (n_texts == EMBED_PIECE) {
            status = embed_piece(embedder, texts, false, places, n_texts, e);
            n_texts = 0;
        }
    }
    if (n_texts > 0 && status == STATUS_OK) status = embed_piece(embedder, texts, false, places, n_texts, e);
    if (status == STATUS_OK && all_are_abandoned(queries, n))
        return error_set(e, STATUS_CANCELLED, "nobody waits for %d searches", n);
    return status;
}
