/* server/api/models.c: the models that are served: found by name, and told to clients. */
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/api.h"

static bool no_such_model(const struct api *a, const char *id, struct failure *f) {
    struct buffer known = {0};
    for (int i = 0; i < a->n_models; i++) buffer_printf(&known, "%s'%s'", i ? ", " : "", a->models[i].id);
    failure_set(f, 404, "model_not_found", "model", "the model '%.100s' does not exist, this server has %s", id,
                known.data);
    buffer_free(&known);
    return false;
}

const struct served_model *api_model(const struct api *a, const char *id, struct failure *f) {
    if (id == NULL) return &a->models[0];
    for (int i = 0; i < a->n_models; i++)
        if (strcmp(a->models[i].id, id) == 0) return &a->models[i];
    no_such_model(a, id, f);
    return NULL;
}

static void write_retro(struct json_writer *w, const struct served_model *model) {
    const struct model_info *info = model->info;
    struct snapshot *snapshot = model->retriever ? retriever_hold(model->retriever) : NULL;
    put_key_object(w, "retro");
    put_key_int(w, "chunk_length", info->chunk_length);
    put_key_int(w, "num_neighbors", info->num_neighbors);
    put_key_int(w, "retrieved_length", info->retrieved_length);
    put_key_int(w, "chunks", snapshot ? snapshot->n_chunks : 0);
    put_key_int(w, "generation", snapshot ? snapshot->version : 0);
    put_object_end(w);
    snapshot_release(snapshot);
}

static void write_model(struct json_writer *w, const struct api *a, const struct served_model *model) {
    put_object(w);
    put_key_string(w, "id", model->id);
    put_key_string(w, "object", "model");
    put_key_int(w, "created", a->created);
    put_key_string(w, "owned_by", "retro-server");
    put_key_int(w, "max_model_len", model->limits.context);
    put_key_object(w, "meta");
    put_key_string(w, "family", model->info->family);
    put_key_int(w, "n_params", model->info->n_parameters);
    put_key_int(w, "n_vocab", model->info->vocab);
    write_retro(w, model);
    put_object_end(w);
    put_object_end(w);
}

struct answer *models_list(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct buffer body = {0};
    struct json_writer w;
    (void)r, (void)waker, (void)f;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (int i = 0; i < a->n_models; i++) write_model(&w, a, &a->models[i]);
    put_array_end(&w);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *model_show(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct buffer body = {0};
    struct json_writer w;
    const struct served_model *model = api_model(a, r->path + strlen("/v1/models/"), f);
    (void)waker;
    if (model == NULL) return NULL;
    put_begin(&w, &body);
    write_model(&w, a, model);
    return answer_text(200, JSON_TYPE, &body);
}
