/* server/doors/ollama/ollama_embed.c: POST /api/embed and the older POST /api/embeddings: requests
 * for embeddings in other words. */
#include <string.h>

#include "server/api/vectors/embedding.h"
#include "server/doors/ollama/ollama.h"

static void put_vector(struct json_writer *w, struct embed_answer *answer, int i) {
    int n;
    const float *vector = embeddings_vector(answer, i, &n);
    for (int j = 0; j < n; j++) put_float(w, vector[j]);
    put_array_end(w);
}

static void write_all(struct embed_answer *answer, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "model", answer->model->id);
    put_key_array(&w, "embeddings");
    for (int i = 0; i < answer->n; i++) {
        put_array(&w);
        put_vector(&w, answer, i);
    }
    put_array_end(&w);
    put_key_int(&w, "total_duration", (int64_t)((time_now() - answer->opened) * 1e9));
    put_key_int(&w, "load_duration", 0);
    put_key_int(&w, "prompt_eval_count", answer->n_tokens);
    put_object_end(&w);
}

static void write_one(struct embed_answer *answer, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_array(&w, "embedding");
    put_vector(&w, answer, 0);
    put_object_end(&w);
}

/* No texts give no vectors. */
static struct answer *answer_nothing(const struct ollama_embed_request *asked) {
    struct buffer body = {0};
    struct json_writer w;
    put_begin(&w, &body);
    put_object(&w);
    put_key(&w, "model");
    put_json(&w, asked->model);
    put_key_array(&w, "embeddings");
    put_array_end(&w);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

/* The request as one for /v1/embeddings. */
static struct answer *ask(struct api *api, const struct api_request *request, struct waker waker,
                          const struct ollama_embed_request *asked, struct failure *failure) {
    struct text_span name = ollama_model_name(asked->model);
    struct api_request translated = *request;
    struct chat_body body;
    bool all = asked->prompt == NULL;
    bool cuts = json_is_absent(asked->truncate) || json_bool(asked->truncate);
    chat_body_begin(&body);
    put_key_string_n(&body.w, "model", name.text, name.size);
    chat_body_put(&body, "input", all ? asked->input : asked->prompt);
    chat_body_put(&body, "dimensions", asked->dimensions);
    put_object_end(&body.w);
    translated.body = body.text.data;
    translated.size = body.text.size;
    struct answer *answer =
        embeddings_answer_open(api, &translated, waker, cuts, all ? write_all : write_one, failure);
    buffer_free(&body.text);
    return answer;
}

static struct answer *open_by(const struct json_table *table, struct api *api,
                              const struct api_request *request, struct waker waker,
                              struct failure *failure) {
    const struct door_table rows = {"ollama", table};
    struct ollama_embed_request asked = {0};
    struct json *body = NULL;
    struct answer *answer = NULL;
    if (!door_read(api, request, &rows, &body, &asked, failure))
        answer = NULL;
    else if (!json_is_text(asked.model) || (asked.prompt && !json_is_text(asked.prompt)))
        failure_set(failure, 400, "invalid_type", "model", "model and prompt must be strings");
    else if (json_is_list(asked.input) && json_count(asked.input) == 0)
        answer = answer_nothing(&asked);
    else
        answer = ask(api, request, waker, &asked, failure);
    json_close(body);
    return answer;
}

struct answer *ollama_embed_open(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    return open_by(&ollama_embed_table, api, request, waker, failure);
}

struct answer *ollama_embeddings_open(struct api *api, const struct api_request *request,
                                      struct waker waker, struct failure *failure) {
    return open_by(&ollama_embeddings_table, api, request, waker, failure);
}
