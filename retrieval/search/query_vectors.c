/* retrieval/search/query_vectors.c: texts and pictures to vectors, piece by piece. See
 * query_vectors.h. */
#include "retrieval/search/query_vectors.h"

#include <stdlib.h>
#include <string.h>

/* Texts that are embedded at a stretch: some forwards of an embedder on a CPU, a tenth of a second
 * on a slow one. */
enum { EMBED_PIECE = 8 };

static bool all_are_abandoned(const struct retriever_query *queries, int n) {
    for (int i = 0; i < n; i++)
        if (!query_is_abandoned(&queries[i])) return false;
    return n > 0;
}

/* Texts that are embedded together, or a picture. */
struct embed_piece {
    struct text_span texts[EMBED_PIECE];
    const struct embedder_picture *picture;  /* NULL: none */
    float *places[EMBED_PIECE];              /* of their vectors */
    struct sparse_rows *sparse[EMBED_PIECE]; /* of their sparse weights; NULL: none are wanted */
    int *counts[EMBED_PIECE];                /* of tokens; NULL: nobody counts them */
    int n;
};

static enum status embed_piece(const struct embedder *embedder, struct embed_piece *piece,
                               struct error *e) {
    size_t dim = (size_t)embedder->dim;
    float *embedded = xmalloc((size_t)piece->n * dim * sizeof *embedded);
    int n_tokens[EMBED_PIECE] = {0};
    struct sparse_rows rows = {0};
    struct embed_request request = {.texts = piece->texts,
                                    .pictures = piece->picture,
                                    .n = piece->n,
                                    .role = EMBED_QUERY,
                                    .vectors = embedded,
                                    .n_tokens = n_tokens,
                                    .sparse = piece->sparse[0] ? &rows : NULL};
    enum status status = piece->n > 0 ? embedder_embed(embedder, &request, e) : STATUS_OK;
    for (int i = 0; i < piece->n && status == STATUS_OK; i++) {
        memcpy(piece->places[i], embedded + (size_t)i * dim, dim * sizeof *embedded);
        if (piece->counts[i]) *piece->counts[i] += n_tokens[i];
        if (request.sparse) sparse_rows_add(piece->sparse[i], sparse_rows_row(&rows, i));
    }
    sparse_rows_free(&rows);
    free(embedded);
    piece->n = 0;
    return status;
}

enum status query_vectors(const struct embedder *embedder, const struct retriever_query *queries,
                          int n, int max_k, const struct query_places *out, struct error *e) {
    size_t dim = (size_t)embedder->dim;
    struct embed_piece texts = {.n = 0};
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        const struct retriever_query *query = &queries[i];
        float *vector = out->vectors + (size_t)i * dim;
        if (query->vector) {
            memcpy(vector, query->vector, dim * sizeof *vector);
        } else if (query_capped(query, max_k) > 0 && query->picture && !query_is_abandoned(query)) {
            struct embed_piece seen = {.picture = query->picture, .places = {vector}, .n = 1};
            status = embed_piece(embedder, &seen, e);
        } else if (query_capped(query, max_k) > 0 && !query_is_abandoned(query)) {
            texts.texts[texts.n] = query->text;
            texts.places[texts.n] = vector;
            texts.counts[texts.n] = query->n_embedded;
            texts.sparse[texts.n] = out->sparse ? &out->sparse[i] : NULL;
            texts.n++;
        }
        if (texts.n == EMBED_PIECE) status = embed_piece(embedder, &texts, e);
    }
    if (status == STATUS_OK) status = embed_piece(embedder, &texts, e);
    if (status == STATUS_OK && all_are_abandoned(queries, n))
        return error_set(e, STATUS_CANCELLED, "nobody waits for %d searches", n);
    return status;
}
