/* server/api/vectors/rerank.c: POST /v1/rerank, in the shape of Cohere and Jina: documents by what
 * a reranker thinks of them beside the query; or by the cosine of an embedder's vectors, which sees
 * query and document apart. GET /v1/models says which of the two a model is. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/vectors/embedding.h"

struct ranked {
    int index;
    float relevance;
};

static int compare_ranked(const void *x, const void *y) {
    const struct ranked *left = x, *right = y;
    if (left->relevance != right->relevance) return left->relevance > right->relevance ? -1 : 1;
    return left->index - right->index;
}

/* A reranker's vectors are the relevances of the documents; of an embedder, text 0 is the query. */
static float relevance_of(const struct embed_answer *answer, int i) {
    size_t dim = (size_t)answer->model->embedder->dim;
    const float *document = answer->vectors + ((size_t)i + 1) * dim;
    double sum = 0;
    if (answer->query.text) return answer->vectors[i];
    for (size_t j = 0; j < dim; j++) sum += (double)answer->vectors[j] * (double)document[j];
    return (float)sum;
}

static struct ranked *rank_documents(const struct embed_answer *answer, int n) {
    struct ranked *list = xcalloc((size_t)n, sizeof *list);
    for (int i = 0; i < n; i++) list[i] = (struct ranked){i, relevance_of(answer, i)};
    qsort(list, (size_t)n, sizeof *list, compare_ranked);
    return list;
}

static void write_result(struct json_writer *w, const struct rerank_request *request,
                         const struct ranked *result) {
    const struct request_prompt *document = &request->documents.all[result->index];
    put_object(w);
    put_key_int(w, "index", result->index);
    put_key_float(w, "relevance_score", result->relevance);
    if (request->return_documents) {
        put_key_object(w, "document");
        put_key_string_n(w, "text", document->text, document->size);
        put_object_end(w);
    }
    put_object_end(w);
}

static void rerank_write(struct embed_answer *answer, struct buffer *out) {
    const struct rerank_request *request = &answer->request.rerank;
    int n = request->documents.n;
    struct ranked *list = rank_documents(answer, n);
    struct json_writer w;
    if (request->top_n > 0 && request->top_n < n) n = (int)request->top_n;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_string(&w, "model", answer->model->id);
    put_key_array(&w, "results");
    for (int i = 0; i < n; i++) write_result(&w, request, &list[i]);
    put_array_end(&w);
    put_key_object(&w, "usage");
    put_key_int(&w, "prompt_tokens", answer->n_tokens);
    put_key_int(&w, "total_tokens", answer->n_tokens);
    put_object_end(&w);
    put_object_end(&w);
    free(list);
}

static void rerank_free(struct embed_answer *answer) {
    rerank_request_free(&answer->request.rerank);
}

/* Whether the reranker is meant: by its name, or by none. */
static bool means_reranker(const struct api *api, const char *name) {
    return api->reranker && (name == NULL || strcmp(name, api->reranker->id) == 0);
}

static const struct request_limits *choose_ranking(void *context, const char *name,
                                                   struct failure *failure) {
    struct api *api = context;
    if (means_reranker(api, name)) return &api->reranker->limits;
    const struct served_embedder *model = api_embedder(api, name, failure);
    return model ? &model->limits : NULL;
}

/* The documents, which are read beside the query: its tokens count once for each. */
static bool add_pairs(struct embed_answer *answer, struct failure *failure) {
    struct rerank_request *request = &answer->request.rerank;
    answer->n = request->documents.n;
    if (!embed_answer_add(answer, &request->query, 0, "query", failure)) return false;
    answer->query = answer->texts[0];
    answer->n_tokens *= answer->n;
    for (int i = 0; i < answer->n; i++)
        if (!embed_answer_add(answer, &request->documents.all[i], i, "documents", failure))
            return false;
    return true;
}

static bool add_texts(struct embed_answer *answer, struct failure *failure) {
    struct rerank_request *request = &answer->request.rerank;
    answer->n = request->documents.n + 1;
    answer->first = EMBED_QUERY;
    answer->others = EMBED_DOCUMENT;
    if (!embed_answer_add(answer, &request->query, 0, "query", failure)) return false;
    for (int i = 1; i < answer->n; i++)
        if (!embed_answer_add(answer, &request->documents.all[i - 1], i, "documents", failure))
            return false;
    return true;
}

static bool rerank_prepare(struct embed_answer *answer, struct api *api,
                           const struct api_request *api_request, struct failure *failure) {
    struct rerank_request *request = &answer->request.rerank;
    const struct request_models models = {choose_ranking, api, &api->largest_embedder};
    if (!rerank_request_parse(request, api_request->body, api_request->size, &models, failure))
        return false;
    bool pairs = means_reranker(api, request->model);
    answer->model = pairs ? api->reranker : api_embedder(api, request->model, failure);
    answer->texts = xcalloc((size_t)request->documents.n + 1, sizeof *answer->texts);
    answer->owned = xcalloc((size_t)request->documents.n + 1, sizeof(char *));
    return pairs ? add_pairs(answer, failure) : add_texts(answer, failure);
}

struct answer *rerank_open(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    struct embed_answer *answer = embed_answer_open(waker, rerank_write, rerank_free);
    if (rerank_prepare(answer, api, request, failure))
        return embed_answer_send(answer, &request->principal, failure);
    answer_close(&answer->base.base);
    return NULL;
}
