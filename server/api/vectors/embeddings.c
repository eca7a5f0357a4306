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

static void write_vector(struct json_writer *w, const struct embedding_request *r, const float *vector, int n) {
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are sent as they lie in memory");
    if (r->format == EMBEDDING_BASE64) {
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

static void embeddings_write(struct embed_answer *a, struct buffer *out) {
    const struct embedding_request *r = &a->request.embedding;
    int dim = a->model->embedder->dim, n = r->dimensions ? (int)r->dimensions : dim;
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (int i = 0; i < a->n; i++) {
        float *vector = a->vectors + (size_t)i * (size_t)dim;
        if (n < dim && !a->model->embedder->raw) shorten(vector, n);
        put_object(&w);
        put_key_string(&w, "object", "embedding");
        put_key_int(&w, "index", i);
        write_vector(&w, r, vector, n);
        put_object_end(&w);
    }
    put_array_end(&w);
    put_key_string(&w, "model", a->model->id);
    put_key_object(&w, "usage");
    put_key_int(&w, "prompt_tokens", a->n_tokens);
    put_key_int(&w, "total_tokens", a->n_tokens);
    put_object_end(&w);
    put_object_end(&w);
}

static void embeddings_free(struct embed_answer *a) { embedding_request_free(&a->request.embedding); }

static bool embeddings_prepare(struct embed_answer *a, struct api *api, const struct api_request *r,
                               struct failure *f) {
    struct embedding_request *request = &a->request.embedding;
    const struct request_models models = embed_models(api);
    if (!embedding_request_parse(request, r->body, r->size, &models, f)) return false;
    a->model = api_embedder(api, request->model, f);
    if (request->dimensions > a->model->embedder->dim)
        return failure_set(f, 400, "invalid_value", "dimensions", "dimensions is %lld, vectors of %s have %d",
                           (long long)request->dimensions, a->model->id, a->model->embedder->dim);
    int n = request->inputs.n;
    a->texts = xcalloc((size_t)n, sizeof *a->texts);
    a->is_picture = xcalloc((size_t)n, sizeof *a->is_picture);
    a->pictures = xcalloc((size_t)n, sizeof *a->pictures);
    a->owned = xcalloc((size_t)n, sizeof(char *));
    a->n = n;
    for (int i = 0; i < n; i++)
        if (!embed_answer_add(a, &request->inputs.all[i], i, "input", f)) return false;
    return true;
}

struct answer *embeddings_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct embed_answer *answer = embed_answer_open(waker, embeddings_write, embeddings_free);
    if (embeddings_prepare(answer, a, r, f)) return embed_answer_send(answer, &r->principal, f);
    answer_close(&answer->base.base);
    return NULL;
}
