/* server/api/vectors/embeddings.c: POST /v1/embeddings: texts to vectors, in OpenAI's shape. */
#include <math.h>
#include <string.h>

#include "config/base/base64.h"
#include "config/json/json_writer.h"
#include "server/api/vectors/embedding.h"

/* The first n numbers, brought to unit length again. */
static void shorten(float *vector, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)vector[i] * (double)vector[i];
    if (!(sum > 0)) return;
    for (int i = 0; i < n; i++) vector[i] = (float)((double)vector[i] / sqrt(sum));
}

static void write_vector(struct json_writer *w, const struct embedding_request *request,
                         const float *vector, int n) {
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
                   "floats are sent as they lie in memory");
    if (request->format == EMBEDDING_BASE64) {
        struct buffer text = {0};
        base64_encode((struct text_span){(const char *)vector, (size_t)n * sizeof *vector}, &text);
        put_key_string_n(w, "embedding", text.data, text.size);
        buffer_free(&text);
        return;
    }
    put_key_array(w, "embedding");
    for (int i = 0; i < n; i++) put_float(w, vector[i]);
    put_array_end(w);
}

float *embeddings_vector(struct embed_answer *answer, int i, int *n) {
    const struct embedding_request *request = &answer->request.embedding;
    int dim = answer->model->embedder->dim;
    float *vector = answer->vectors + (size_t)i * (size_t)dim;
    *n = request->dimensions ? (int)request->dimensions : dim;
    if (*n < dim && !answer->model->embedder->raw) shorten(vector, *n);
    return vector;
}

static void embeddings_write(struct embed_answer *answer, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (int i = 0; i < answer->n; i++) {
        int n;
        const float *vector = embeddings_vector(answer, i, &n);
        put_object(&w);
        put_key_string(&w, "object", "embedding");
        put_key_int(&w, "index", i);
        write_vector(&w, &answer->request.embedding, vector, n);
        put_object_end(&w);
    }
    put_array_end(&w);
    put_key_string(&w, "model", answer->model->id);
    put_key_object(&w, "usage");
    put_key_int(&w, "prompt_tokens", answer->n_tokens);
    put_key_int(&w, "total_tokens", answer->n_tokens);
    put_object_end(&w);
    put_object_end(&w);
}

static void embeddings_free(struct embed_answer *answer) {
    embedding_request_free(&answer->request.embedding);
}

bool embeddings_prepare(struct embed_answer *answer, struct api *api, const char *field,
                        struct failure *failure) {
    static const enum embed_role roles[] = {[INPUT_PLAIN] = EMBED_PLAIN,
                                            [INPUT_QUERY] = EMBED_QUERY,
                                            [INPUT_DOCUMENT] = EMBED_DOCUMENT};
    struct embedding_request *request = &answer->request.embedding;
    answer->model = api_embedder(api, request->model, failure);
    answer->first = answer->others = roles[request->input_type];
    if (request->dimensions > answer->model->embedder->dim)
        return failure_set(failure, 400, "invalid_value", "dimensions",
                           "dimensions is %lld, vectors of %s have %d",
                           (long long)request->dimensions, answer->model->id,
                           answer->model->embedder->dim);
    int n = request->inputs.n;
    answer->texts = xcalloc((size_t)n, sizeof *answer->texts);
    answer->is_picture = xcalloc((size_t)n, sizeof *answer->is_picture);
    answer->pictures = xcalloc((size_t)n, sizeof *answer->pictures);
    answer->owned = xcalloc((size_t)n, sizeof(char *));
    answer->n = n;
    for (int i = 0; i < n; i++)
        if (!embed_answer_add(answer, &request->inputs.all[i], i, field, failure)) return false;
    return true;
}

struct answer *embeddings_answer_open(
    struct api *api, const struct api_request *request, struct waker waker, bool cuts,
    void (*write)(struct embed_answer *answer, struct buffer *out), struct failure *failure) {
    struct embed_answer *answer = embed_answer_open(waker, write, embeddings_free);
    const struct request_models models = embed_models(api);
    answer->cuts = cuts;
    if (embedding_request_parse(&answer->request.embedding, &embedding_table, request->body,
                                request->size, &models, failure) &&
        embeddings_prepare(answer, api, "input", failure))
        return embed_answer_send(answer, &request->principal, failure);
    answer_close(&answer->base.base);
    return NULL;
}

struct answer *embeddings_open(struct api *api, const struct api_request *request,
                               struct waker waker, struct failure *failure) {
    return embeddings_answer_open(api, request, waker, false, embeddings_write, failure);
}
