/* server/api/operations/models.c: the models that are served: found by name, and told to clients.
 */
#include <string.h>
#include <time.h>

#include "config/json/json_writer.h"
#include "retro/chat/chat.h"
#include "server/api/api.h"

/* Names are those of api->models, or of api->embedders, or both. */
static void print_names(const struct api *api, bool models, bool embedders, struct buffer *out) {
    for (int i = 0; i < api->n_models && models; i++)
        buffer_printf(out, "%s'%s'", out->size ? ", " : "", api->models[i].id);
    for (int i = 0; i < api->n_embedders && embedders; i++)
        buffer_printf(out, "%s'%s'", out->size ? ", " : "", api->embedders[i].id);
}

static const struct served_model *find_model(const struct api *api, const char *id) {
    for (int i = 0; i < api->n_models; i++)
        if (strcmp(api->models[i].id, id) == 0) return &api->models[i];
    return NULL;
}

static const struct served_embedder *find_embedder(const struct api *api, const char *id) {
    for (int i = 0; i < api->n_embedders; i++)
        if (strcmp(api->embedders[i].id, id) == 0) return &api->embedders[i];
    return NULL;
}

static void no_such_model(const struct api *api, const char *id, struct failure *failure) {
    struct buffer known = {0};
    print_names(api, true, true, &known);
    failure_set(failure, 404, "model_not_found", "model",
                "the model '%.100s' does not exist, this server has %s", id, known.data);
    buffer_free(&known);
}

const struct served_model *api_model(const struct api *api, const char *id,
                                     struct failure *failure) {
    const struct served_model *model = id ? find_model(api, id) : &api->models[0];
    struct buffer known = {0};
    if (model) return model;
    if (find_embedder(api, id) == NULL) {
        no_such_model(api, id, failure);
        return NULL;
    }
    print_names(api, true, false, &known);
    failure_set(failure, 404, "model_not_found", "model",
                "the model '%.100s' embeds texts and writes none, those that do are %s", id,
                known.data);
    buffer_free(&known);
    return NULL;
}

const struct served_embedder *api_embedder(const struct api *api, const char *id,
                                           struct failure *failure) {
    const struct served_embedder *model = id                 ? find_embedder(api, id)
                                          : api->n_embedders ? &api->embedders[0]
                                                             : NULL;
    struct buffer known = {0};
    if (model) return model;
    print_names(api, false, true, &known);
    if (api->n_embedders == 0)
        failure_set(failure, 400, "no_embedder", "model",
                    "this server has no embedder (options retrieval.collection, model.others)");
    else if (find_model(api, id) == NULL)
        no_such_model(api, id, failure);
    else
        failure_set(failure, 404, "model_not_found", "model",
                    "the model '%.100s' embeds no texts, those that do are %s", id, known.data);
    buffer_free(&known);
    return NULL;
}

bool api_tokenizer(const struct api *api, const char *id, struct served_tokenizer *out,
                   struct failure *failure) {
    const struct served_model *model = id ? find_model(api, id) : &api->models[0];
    const struct served_embedder *embedder = id ? find_embedder(api, id) : NULL;
    if (model)
        *out = (struct served_tokenizer){model->id, model->tokenizer, model->eod, &model->limits,
                                         model->chat};
    else if (embedder)
        *out = (struct served_tokenizer){embedder->id, embedder->tokenizer, -1, &embedder->limits,
                                         NULL};
    else
        no_such_model(api, id, failure);
    return model || embedder;
}

static void write_retro(struct json_writer *w, const struct served_model *model,
                        struct filter *filter) {
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
static void write_card(struct json_writer *w, const struct api *api, const char *id, int context) {
    put_object(w);
    put_key_string(w, "id", id);
    put_key_string(w, "object", "model");
    put_key_int(w, "created", api->created);
    put_key_string(w, "owned_by", "retro-server");
    put_key_int(w, "max_model_len", context);
    put_key_object(w, "meta");
}

static void write_embedder(struct json_writer *w, const struct api *api,
                           const struct served_embedder *model) {
    write_card(w, api, model->id, model->limits.context);
    put_key_string(w, "role", model == api->reranker ? "reranker" : "embedder");
    put_key_int(w, "n_embd", model->embedder->dim);
    put_key_int(w, "n_vocab", model->limits.vocab);
    put_object_end(w);
    put_object_end(w);
}

/* Says where the template of conversations comes from. */
static void put_template(struct json_writer *w, const struct chat *chat) {
    put_key(w, "chat_template");
    if (chat)
        put_string(w, chat_is_plain(chat) ? "plain" : "model");
    else
        put_null(w);
}

static void write_model(struct json_writer *w, const struct api *api,
                        const struct served_model *model, struct filter *filter) {
    write_card(w, api, model->id, model->limits.context);
    put_key_string(w, "role", "decoder");
    put_key_string(w, "family", model->info->family);
    put_key_int(w, "n_params", model->info->n_parameters);
    put_key_int(w, "n_vocab", model->info->vocab);
    put_key_bool(w, "chat", model->chat != NULL);
    put_template(w, model->chat);
    put_key_bool(w, "pictures",
                 model->chat && !chat_is_plain(model->chat) && model->picture_input != NULL);
    write_retro(w, model, filter);
    put_object_end(w);
    put_object_end(w);
}

/* Anthropic's clients say so by a header, and read another card. */

static void write_anthropic(struct json_writer *w, const struct api *api,
                            const struct served_model *model) {
    char created[32];
    time_t seconds = (time_t)api->created;
    struct tm tm;
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
    put_object(w);
    put_key_string(w, "type", "model");
    put_key_string(w, "id", model->id);
    put_key_string(w, "display_name", model->id);
    put_key_string(w, "created_at", created);
    put_key_int(w, "max_input_tokens", model->limits.context);
    put_object_end(w);
}

static struct answer *list_anthropic(const struct api *api) {
    struct buffer body = {0};
    struct json_writer w;
    put_begin(&w, &body);
    put_object(&w);
    put_key_array(&w, "data");
    for (int i = 0; i < api->n_models; i++) write_anthropic(&w, api, &api->models[i]);
    put_array_end(&w);
    put_key_bool(&w, "has_more", false);
    put_key_string(&w, "first_id", api->models[0].id);
    put_key_string(&w, "last_id", api->models[api->n_models - 1].id);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

/* Codex reads a list of its own beside OpenAI's; without it Codex guesses the context. */
static void write_codex_model(struct json_writer *w, const struct served_model *model) {
    put_object(w);
    put_key_string(w, "slug", model->id);
    put_key_string(w, "display_name", model->id);
    put_key_null(w, "description");
    put_key_null(w, "default_reasoning_level");
    put_key_array(w, "supported_reasoning_levels");
    put_array_end(w);
    put_key_string(w, "shell_type", "shell_command");
    put_key_string(w, "visibility", "list");
    put_key_bool(w, "supported_in_api", true);
    put_key_int(w, "priority", 0);
    put_key_string(w, "base_instructions", "");
    put_key_bool(w, "supports_reasoning_summaries", false);
    put_key_bool(w, "support_verbosity", false);
    put_key_object(w, "truncation_policy");
    put_key_string(w, "mode", "bytes");
    put_key_int(w, "limit", 10000);
    put_object_end(w);
    put_key_bool(w, "supports_parallel_tool_calls", true);
    put_key_int(w, "context_window", model->limits.context);
    put_key_array(w, "experimental_supported_tools");
    put_array_end(w);
    put_object_end(w);
}

static void write_codex_models(struct json_writer *w, const struct api *api) {
    put_key_array(w, "models");
    for (int i = 0; i < api->n_models; i++)
        if (api->models[i].chat) write_codex_model(w, &api->models[i]);
    put_array_end(w);
}

struct answer *models_list(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    (void)waker, (void)failure;
    if (request->anthropic_version) return list_anthropic(api);
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (int i = 0; i < api->n_models; i++)
        write_model(&w, api, &api->models[i], principal_filter(&request->principal));
    for (int i = 0; i < api->n_embedders; i++) write_embedder(&w, api, &api->embedders[i]);
    if (api->reranker) write_embedder(&w, api, api->reranker);
    put_array_end(&w);
    write_codex_models(&w, api);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *model_show(struct api *api, const struct api_request *request, struct waker waker,
                          struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    const char *id = request->path + strlen("/v1/models/");
    const struct served_model *model = find_model(api, id);
    const struct served_embedder *embedder = find_embedder(api, id);
    if (api->reranker && strcmp(api->reranker->id, id) == 0) embedder = api->reranker;
    (void)waker;
    put_begin(&w, &body);
    if (model && request->anthropic_version)
        write_anthropic(&w, api, model);
    else if (model)
        write_model(&w, api, model, principal_filter(&request->principal));
    else if (embedder)
        write_embedder(&w, api, embedder);
    else
        no_such_model(api, id, failure);
    return model || embedder ? answer_text(200, JSON_TYPE, &body) : NULL;
}
