/* server/api/rerank.c: POST /v1/rerank: documents by the cosine of their vectors with the query's, in the shape of
 * Cohere and Jina. The embedder sees query and document apart; GET /v1/models says that. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/embedding.h"

struct ranked {
    int index;
    float relevance;
};

static int compare_ranked(const void *x, const void *y) {
    const struct ranked *a = x, *b = y;
    if (a->relevance != b->relevance) return a->relevance > b->relevance ? -1 : 1;
    return a->index - b->index;
}

/* Text 0 is the query. */
static struct ranked *rank_documents(const struct embed_answer *a) {
    size_t dim = (size_t)a->model->embedder->dim;
    int n = a->n - 1;
    struct ranked *list = xcalloc((size_t)n, sizeof *list);
    for (int i = 0; i < n; i++) {
        const float *document = a->vectors + ((size_t)i + 1) * dim;
        double sum = 0;
        for (size_t j = 0; j < dim; j++) sum += (double)a->vectors[j] * (double)document[j];
        list[i] = (struct ranked){i, (float)sum};
    }
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
    struct ranked *list = rank_documents(a);
    int n = a->n - 1;
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

static bool rerank_prepare(struct embed_answer *a, struct api *api, const struct api_request *r, struct failure *f) {
    struct rerank_request *request = &a->request.rerank;
    const struct request_models models = embed_models(api);
    if (!rerank_request_parse(request, r->body, r->size, &models, f)) return false;
    a->model = api_embedder(api, request->model, f);
    a->n = request->documents.n + 1;
    a->first = EMBED_QUERY;
    a->others = EMBED_DOCUMENT;
    a->texts = xcalloc((size_t)a->n, sizeof *a->texts);
    a->owned = xcalloc((size_t)a->n, sizeof(char *));
    if (!embed_answer_add(a, &request->query, 0, "query", f)) return false;
    for (int i = 1; i < a->n; i++)
        if (!embed_answer_add(a, &request->documents.all[i - 1], i, "documents", f)) return false;
    return true;
}

struct answer *rerank_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct embed_answer *answer = embed_answer_open(waker, rerank_write, rerank_free);
    if (rerank_prepare(answer, a, r, f)) return embed_answer_send(answer, &r->principal, f);
    embed_answer_drop(answer);
    return NULL;
}
