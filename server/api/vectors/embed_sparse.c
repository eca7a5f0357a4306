/* server/api/vectors/embed_sparse.c: POST /embed_sparse: texts to sparse vectors, in the shape of
 * Text Embeddings Inference. */
#include "config/json/json_writer.h"
#include "server/api/vectors/embedding.h"

static void put_row(struct json_writer *w, struct sparse_row row) {
    put_array(w);
    for (int64_t i = 0; i < row.n; i++) {
        put_object(w);
        put_key_int(w, "index", row.list[i].id);
        put_key_float(w, "value", row.list[i].weight);
        put_object_end(w);
    }
    put_array_end(w);
}

static void embed_sparse_write(struct embed_answer *answer, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_array(&w);
    for (int i = 0; i < answer->n; i++) put_row(&w, sparse_rows_row(&answer->sparse, i));
    put_array_end(&w);
}

static void embed_sparse_free(struct embed_answer *answer) {
    embedding_request_free(&answer->request.embedding);
}

static bool embed_sparse_prepare(struct embed_answer *answer, struct api *api,
                                 const struct api_request *api_request, struct failure *failure) {
    struct embedding_request *request = &answer->request.embedding;
    const struct request_models models = embed_models(api);
    if (!embedding_request_parse(request, &embed_sparse_table, api_request->body, api_request->size,
                                 &models, failure))
        return false;
    const struct served_embedder *model = api_embedder(api, request->model, failure);
    if (!model->embedder->sparse)
        return failure_set(failure, 400, "unsupported_model", "model",
                           "%s has no sparse weights: its folder has no sparse_linear.safetensors",
                           model->id);
    answer->wants_sparse = true;
    answer->cuts = request->truncate;
    return embeddings_prepare(answer, api, "inputs", failure);
}

struct answer *embed_sparse_open(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    struct embed_answer *answer = embed_answer_open(waker, embed_sparse_write, embed_sparse_free);
    if (embed_sparse_prepare(answer, api, request, failure))
        return embed_answer_send(answer, &request->principal, failure);
    answer_close(&answer->base.base);
    return NULL;
}
