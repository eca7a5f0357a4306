/* server/api/vectors/rerank.c: POST /v1/rerank, in the shape of Cohere and Jina: documents by what a reranker thinks of
 * them beside the query; or by the cosine of an embedder's vectors, which sees query and document apart. GET /v1/models
 * says which of the two a model is. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/vectors/embedding.h"

struct ranked {
    int index;
    float relevance;
};

static int compare_ranked(const void *x, const void *y) {
    const struct ranked *a = x, *b = y;
    if (a->relevance != b->relevance) return a->relevance > b->relevance ? -1 : 1;
    return a->index - b->index;
}

/* A reranker's vectors are the relevances of the documents; of an embedder, text 0 is the query. */
static float relevance_of(const struct embed_answer *a, int i) {
    size_t dim = (size_t)a->model->embedder->dim;
    const float *document = a->vectors + ((size_t)i + 1) * dim;
    double sum = 0;
    if (a->query.text) return a->vectors[i];
    for (size_t j = 0; j < dim; j++) sum += (double)a->vectors[j] * (double)document[j];
    return (float)sum;
}

static struct ranked *rank_documents(const struct embed_answer *a, int n) {
    struct ranked *list = xcalloc((size_t)n, sizeof *list);
    for (int i = 0; i < n; i++) list[i] = (struct ranked){i, relevance_of(a, i)};
    qsort(list, (size_t)n, sizeof *list, compare_ranked);
    return list;
}

static void write_result(struct json_writer *w, const struct rerank_request *r, const struct ranked *result) {
    const struct request_prompt *document = &r->documents.all[result->index];
    put_object(w);
    put_key_int(w, "index", result->index);
    put_key_float(w, "relevance_score", result->relevance);
    if (r->return_documents) {
        put_key_object(w, "document");
        put_key_string_n(w, "text", document->text, document->size);
        put_object_end(w);
    }
    put_object_end(w);
}

static void rerank_write(struct embed_answer *a, struct buffer *out) {
    const struct rerank_request *r = &a->request.rerank;
    int n = r->documents.n;
    struct ranked *list = rank_documents(a, n);
    struct json_writer w;
    if (r->top_n > 0 && r->top_n < n) n = (int)r->top_n;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_string(&w, "model", a->model->id);
    put_key_array(&w, "results");
    for (int i = 0; i < n; i++) write_result(&w, r, &list[i]);
    put_array_end(&w);
    put_key_object(&w, "usage");
    put_key_int(&w, "prompt_tokens", a->n_tokens);
    put_key_int(&w, "total_tokens", a->n_tokens);
    put_object_end(&w);
    put_object_end(&w);
    free(list);
}

static void rerank_free(struct embed_answer *a) { rerank_request_free(&a->request.rerank); }

/* Whether the reranker is meant: by its name, or by none. */
static bool means_reranker(const struct api *a, const char *name) {
    return a->reranker && (name == NULL || strcmp(name, a->reranker->id) == 0);
}

static const struct request_limits *choose_ranking(void *context, const char *name, struct failure *f) {
    struct api *a = context;
    if (means_reranker(a, name)) return &a->reranker->limits;
    const struct served_embedder *model = api_embedder(a, name, f);
    return model ? &model->limits : NULL;
}

/* The documents, which are read beside the query: its tokens count once for each. */
static bool add_pairs(struct embed_answer *a, struct failure *f) {
    struct rerank_request *request = &a->request.rerank;
    a->n = request->documents.n;
    if (!embed_answer_add(a, &request->query, 0, "query", f)) return false;
    a->query = a->texts[0];
    a->n_tokens *= a->n;
    for (int i = 0; i < a->n; i++)
        if (!embed_answer_add(a, &request->documents.all[i], i, "documents", f)) return false;
    return true;
}

static bool add_texts(struct embed_answer *a, struct failure *f) {
    struct rerank_request *request = &a->request.rerank;
    a->n = request->documents.n + 1;
    a->first = EMBED_QUERY;
    a->others = EMBED_DOCUMENT;
    if (!embed_answer_add(a, &request->query, 0, "query", f)) return false;
    for (int i = 1; i < a->n; i++)
        if (!embed_answer_add(a, &request->documents.all[i - 1], i, "documents", f)) return false;
    return true;
}

static bool rerank_prepare(struct embed_answer *a, struct api *api, const struct api_request *r, struct failure *f) {
    struct rerank_request *request = &a->request.rerank;
    const struct request_models models = {choose_ranking, api, &api->largest_embedder};
    if (!rerank_request_parse(request, r->body, r->size, &models, f)) return false;
    bool pairs = means_reranker(api, request->model);
    a->model = pairs ? api->reranker : api_embedder(api, request->model, f);
    a->texts = xcalloc((size_t)request->documents.n + 1, sizeof *a->texts);
    a->owned = xcalloc((size_t)request->documents.n + 1, sizeof(char *));
    return pairs ? add_pairs(a, f) : add_texts(a, f);
}

struct answer *rerank_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct embed_answer *answer = embed_answer_open(waker, rerank_write, rerank_free);
    if (rerank_prepare(answer, a, r, f)) return embed_answer_send(answer, &r->principal, f);
    answer_close(&answer->base.base);
    return NULL;
}
