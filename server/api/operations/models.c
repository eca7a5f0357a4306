/* server/api/operations/models.c: the models that are served: found by name, and told to clients. */
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/api.h"

/* Names are those of a->models, or of a->embedders, or both. */
static void print_names(const struct api *a, bool models, bool embedders, struct buffer *out) {
    for (int i = 0; i < a->n_models && models; i++)
        buffer_printf(out, "%s'%s'", out->size ? ", " : "", a->models[i].id);
    for (int i = 0; i < a->n_embedders && embedders; i++)
        buffer_printf(out, "%s'%s'", out->size ? ", " : "", a->embedders[i].id);
}

static const struct served_model *find_model(const struct api *a, const char *id) {
    for (int i = 0; i < a->n_models; i++)
        if (strcmp(a->models[i].id, id) == 0) return &a->models[i];
    return NULL;
}

static const struct served_embedder *find_embedder(const struct api *a, const char *id) {
    for (int i = 0; i < a->n_embedders; i++)
        if (strcmp(a->embedders[i].id, id) == 0) return &a->embedders[i];
    return NULL;
}

static void no_such_model(const struct api *a, const char *id, struct failure *f) {
    struct buffer known = {0};
    print_names(a, true, true, &known);
    failure_set(f, 404, "model_not_found", "model", "the model '%.100s' does not exist, this server has %s", id,
                known.data);
    buffer_free(&known);
}

const struct served_model *api_model(const struct api *a, const char *id, struct failure *f) {
    const struct served_model *model = id ? find_model(a, id) : &a->models[0];
    struct buffer known = {0};
    if (model) return model;
    if (find_embedder(a, id) == NULL) {
        no_such_model(a, id, f);
        return NULL;
    }
    print_names(a, true, false, &known);
    failure_set(f, 404, "model_not_found", "model",
                "the model '%.100s' embeds texts and writes none, those that do are %s", id, known.data);
    buffer_free(&known);
    return NULL;
}

const struct served_embedder *api_embedder(const struct api *a, const char *id, struct failure *f) {
    const struct served_embedder *model = id ? find_embedder(a, id) : a->n_embedders ? &a->embedders[0] : NULL;
    struct buffer known = {0};
    if (model) return model;
    print_names(a, false, true, &known);
    if (a->n_embedders == 0)
        failure_set(f, 400, "no_embedder", "model",
                    "this server has no embedder (options retrieval.collection, model.others)");
    else if (find_model(a, id) == NULL)
        no_such_model(a, id, f);
    else
        failure_set(f, 404, "model_not_found", "model", "the model '%.100s' embeds no texts, those that do are %s", id,
                    known.data);
    buffer_free(&known);
    return NULL;
}

bool api_tokenizer(const struct api *a, const char *id, struct served_tokenizer *out, struct failure *f) {
    const struct served_model *model = id ? find_model(a, id) : &a->models[0];
    const struct served_embedder *embedder = id ? find_embedder(a, id) : NULL;
    if (model)
        *out = (struct served_tokenizer){model->id, model->tokenizer, model->eod, &model->limits, model->chat};
    else if (embedder)
        *out = (struct served_tokenizer){embedder->id, embedder->tokenizer, -1, &embedder->limits, NULL};
    else
        no_such_model(a, id, f);
    return model || embedder;
}

static void write_retro(struct json_writer *w, const struct served_model *model, struct filter *filter) {
    const struct model_info *info = model->info;
    struct snapshot *snapshot = model->collection ? collection_hold(model->collection) : NULL;
    int64_t n_documents, n_chunks = snapshot && filter == NULL ? snapshot->n_chunks : 0;
    struct error e;
    /* Another machine is not asked here: others would wait for it. */
    if (snapshot && filter && !collection_is_remote(model->collection) &&
        collection_count(model->collection, filter, &n_documents, &n_chunks, &e))
        n_chunks = 0;
    put_key_object(w, "retro");
    put_key_int(w, "chunk_length", info->chunk_length);
    put_key_int(w, "num_neighbors", info->num_neighbors);
    put_key_int(w, "retrieved_length", info->retrieved_length);
    put_key_int(w, "chunks", n_chunks);
    if (filter == NULL) { /* a tenant is told nothing of others' changes */
        put_key_int(w, "generation", snapshot ? snapshot->generation : 0);
        put_key_int(w, "changes", snapshot ? snapshot->n_changes : 0);
    }
    put_object_end(w);
    snapshot_release(snapshot);
}

/* The members that OpenAI's clients read, and the context, into an open object. */
static void write_card(struct json_writer *w, const struct api *a, const char *id, int context) {
    put_object(w);
    put_key_string(w, "id", id);
    put_key_string(w, "object", "model");
    put_key_int(w, "created", a->created);
    put_key_string(w, "owned_by", "retro-server");
    put_key_int(w, "max_model_len", context);
    put_key_object(w, "meta");
}

static void write_embedder(struct json_writer *w, const struct api *a, const struct served_embedder *model) {
    write_card(w, a, model->id, model->limits.context);
    put_key_string(w, "role", model == a->reranker ? "reranker" : "embedder");
    put_key_int(w, "n_embd", model->embedder->dim);
    put_key_int(w, "n_vocab", model->limits.vocab);
    put_object_end(w);
    put_object_end(w);
}

static void write_model(struct json_writer *w, const struct api *a, const struct served_model *model,
                        struct filter *filter) {
    write_card(w, a, model->id, model->limits.context);
    put_key_string(w, "role", "decoder");
    put_key_string(w, "family", model->info->family);
    put_key_int(w, "n_params", model->info->n_parameters);
    put_key_int(w, "n_vocab", model->info->vocab);
    put_key_bool(w, "chat", model->chat != NULL);
    put_key_bool(w, "pictures", model->chat != NULL && model->picture_input != NULL);
    write_retro(w, model, filter);
    put_object_end(w);
    put_object_end(w);
}

struct answer *models_list(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct buffer body = {0};
    struct json_writer w;
    (void)waker, (void)f;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (int i = 0; i < a->n_models; i++) write_model(&w, a, &a->models[i], principal_filter(&r->principal));
    for (int i = 0; i < a->n_embedders; i++) write_embedder(&w, a, &a->embedders[i]);
    if (a->reranker) write_embedder(&w, a, a->reranker);
    put_array_end(&w);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *model_show(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct buffer body = {0};
    struct json_writer w;
    const char *id = r->path + strlen("/v1/models/");
    const struct served_model *model = find_model(a, id);
    const struct served_embedder *embedder = find_embedder(a, id);
    if (a->reranker && strcmp(a->reranker->id, id) == 0) embedder = a->reranker;
    (void)waker;
    put_begin(&w, &body);
    if (model)
        write_model(&w, a, model, principal_filter(&r->principal));
    else if (embedder)
        write_embedder(&w, a, embedder);
    else
        no_such_model(a, id, f);
    return model || embedder ? answer_text(200, JSON_TYPE, &body) : NULL;
}
