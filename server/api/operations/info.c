/* server/api/operations/info.c: GET /version and GET /props: what this server is, and what a
 * request gets that says nothing. */
#include "config/json/json_writer.h"
#include "server/api/api.h"

struct answer *version_open(struct api *api, const struct api_request *request, struct waker waker,
                            struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    (void)api, (void)request, (void)waker, (void)failure;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "version", RETRO_VERSION);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

/* The rows of numbers, switches and choices, as members of an open object. */
static void write_rows(struct json_writer *w, const struct json_table *table, const void *object) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        bool plain = field->type <= JSON_DOUBLE || field->type == JSON_CHOICE;
        if (!plain) continue;
        put_key(w, field->name);
        json_field_put(w, field, object);
    }
}

/* The numbers and switches of a request that says nothing. */
static void write_settings(struct json_writer *w, const struct served_model *model) {
    struct request_writing silent;
    request_writing_init(&silent);
    json_table_fallbacks(&writing_table, &silent);
    request_writing_defaults(&silent, NULL, &model->limits);

    put_key_object(w, "default_generation_settings");
    put_key_int(w, "n_ctx", model->limits.context);
    put_key_object(w, "params");
    put_key_int(w, "max_tokens", DEFAULT_MAX_TOKENS);
    write_rows(w, &writing_table, &silent);
    put_object_end(w);
    put_object_end(w);
    request_writing_free(&silent);
}

/* The reading of a request that says nothing; null: there is nothing to search. */
static void write_retrieval(struct json_writer *w, const struct served_model *model) {
    if (model->retriever == NULL) {
        put_key_null(w, "retrieval");
        return;
    }
    const struct retrieval_limits *limits = &model->limits.retrieval;
    struct retrieval_choice usual = model->choice;
    bool attends = retrieval_attends(usual.mode);
    usual.k = attends ? model->usual_neighbors : model->usual_passages;
    usual.rerank = usual.rerank && model->rerank_candidates > 0;
    put_key_object(w, "retrieval");
    write_rows(w, &retrieval_choice_table, &usual);
    put_key_int(w, "max_k", attends ? limits->max_neighbors : limits->max_k);
    put_object_end(w);
}

/* Rows that are kept of prompts for later ones that begin alike; null: none are. */
static void write_prefix_cache(struct json_writer *w, const struct served_model *model,
                               const struct principal *who) {
    struct engine_metrics metrics;
    engine_metrics_read(model->engine, &metrics);
    const struct session_blocks *blocks = &metrics.blocks;
    if (blocks->kept_most == 0) {
        put_key_null(w, "prefix_cache");
        return;
    }
    put_key_object(w, "prefix_cache");
    put_key_int(w, "block_tokens", ATTENTION_BLOCK);
    put_key_int(w, "block_bytes", (int64_t)blocks->bytes);
    if (who->key == NULL || who->key->operations)
        put_key_int(w, "blocks", blocks->kept); /* of all clients' prompts */
    put_key_int(w, "max_blocks", blocks->kept_most);
    put_object_end(w);
}

struct answer *props_open(struct api *api, const struct api_request *request, struct waker waker,
                          struct failure *failure) {
    const struct served_model *model = api_model(api, api_argument(request, "model"), failure);
    struct buffer body = {0};
    struct json_writer w;
    (void)waker;
    if (model == NULL) return NULL;
    put_begin(&w, &body);
    put_object(&w);
    write_settings(&w, model);
    write_retrieval(&w, model);
    write_prefix_cache(&w, model, &request->principal);
    put_key_int(&w, "total_slots", model->slots);
    put_key_string(&w, "model_alias", model->id);
    put_key_object(&w, "modalities");
    put_key_bool(&w, "vision", false);
    put_key_bool(&w, "audio", false);
    put_object_end(&w);
    put_chat_template(&w, model->chat);
    put_key_string(&w, "build_info", "retro-server " RETRO_VERSION);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *root_open(struct api *api, const struct api_request *request, struct waker waker,
                         struct failure *failure) {
    struct buffer body = {0};
    (void)api, (void)request, (void)waker, (void)failure;
    buffer_append_string(&body, "retro-server is running\n");
    return answer_text(200, "text/plain; charset=utf-8", &body);
}
