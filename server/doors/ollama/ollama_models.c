/* server/doors/ollama/ollama_models.c: the models of the server as Ollama tells of its own, and
 * what does not apply here. */
#include <string.h>

#include "config/base/hash.h"
#include "retro/chat/chat.h"
#include "server/api/chat/chat_skills.h"
#include "server/doors/ollama/ollama.h"

/* Clients take it apart, and refuse servers that are too old. */
static const char spoken_version[] = "0.18.3";

/* A model or an embedder. */
struct told_model {
    const char *id;
    const struct served_model *writes; /* NULL: it embeds */
    const struct served_embedder *embeds;
};

static const char *family_of(const struct told_model *model) {
    return model->writes ? model->writes->info->family : "bert";
}

static int64_t parameters_of(const struct told_model *model) {
    return model->writes ? model->writes->info->n_parameters : 0;
}

static void put_details(struct json_writer *w, const struct told_model *model) {
    int64_t n = parameters_of(model);
    char size[32];
    snprintf(size, sizeof size, n >= 1000000000 ? "%.1fB" : "%.1fM",
             n >= 1000000000 ? (double)n / 1e9 : (double)n / 1e6);
    put_key_object(w, "details");
    put_key_string(w, "parent_model", "");
    put_key_string(w, "format", "safetensors");
    put_key_string(w, "family", family_of(model));
    put_key_array(w, "families");
    put_string(w, family_of(model));
    put_array_end(w);
    put_key_string(w, "parameter_size", size);
    put_key_string(w, "quantization_level",
                   model->writes ? dtype_name(model->writes->info->dtype) : "f32");
    put_object_end(w);
}

/* 64 digits, as clients compare and shorten them. */
static void put_digest(struct json_writer *w, const struct told_model *model) {
    const char *of = model->writes ? model->writes->fingerprint : model->id;
    char digest[80] = "";
    for (uint64_t i = 0; i < 4; i++)
        snprintf(digest + 16 * i, 17, "%016llx", (unsigned long long)hash_bytes(of, strlen(of), i));
    put_key_string(w, "digest", digest);
}

static void put_model(struct json_writer *w, const struct api *api, const struct told_model *model,
                      bool loaded) {
    int64_t bytes = model->writes ? (int64_t)model->writes->info->weight_bytes : 0;
    put_object(w);
    put_key_string(w, "name", model->id);
    put_key_string(w, "model", model->id);
    if (!loaded) ollama_put_time(w, "modified_at", (double)api->created);
    put_key_int(w, "size", bytes);
    put_digest(w, model);
    put_details(w, model);
    if (loaded) {
        put_key_string(w, "expires_at", "2318-01-01T00:00:00Z"); /* as Ollama says: never */
        put_key_int(w, "size_vram", 0);
    }
    put_object_end(w);
}

static struct answer *list_models(const struct api *api, bool loaded) {
    struct buffer body = {0};
    struct json_writer w;
    put_begin(&w, &body);
    put_object(&w);
    put_key_array(&w, "models");
    for (int i = 0; i < api->n_models; i++)
        put_model(&w, api, &(struct told_model){api->models[i].id, &api->models[i], NULL}, loaded);
    for (int i = 0; i < api->n_embedders; i++)
        put_model(&w, api, &(struct told_model){api->embedders[i].id, NULL, &api->embedders[i]},
                  loaded);
    put_array_end(&w);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *ollama_tags(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    (void)request, (void)waker, (void)failure;
    return list_models(api, false);
}

struct answer *ollama_ps(struct api *api, const struct api_request *request, struct waker waker,
                         struct failure *failure) {
    (void)request, (void)waker, (void)failure;
    return list_models(api, true);
}

struct answer *ollama_version(struct api *api, const struct api_request *request,
                              struct waker waker, struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    (void)api, (void)request, (void)waker, (void)failure;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "version", spoken_version);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

/* One model. */

static void put_capabilities(struct json_writer *w, const struct told_model *model) {
    const struct served_model *writes = model->writes;
    put_key_array(w, "capabilities");
    if (model->embeds) put_string(w, "embedding");
    if (writes) put_string(w, "completion");
    if (writes && writes->chat && chat_knows_tools(writes->chat)) put_string(w, "tools");
    if (writes && writes->chat && !chat_is_plain(writes->chat) && writes->picture_input)
        put_string(w, "vision");
    if (writes && writes->chat && chat_thoughts(writes->chat)) put_string(w, "thinking");
    put_array_end(w);
}

static void put_of_family(struct json_writer *w, const struct told_model *model, const char *what,
                          int64_t value) {
    char key[80];
    snprintf(key, sizeof key, "%.40s.%s", family_of(model), what);
    put_key_int(w, key, value);
}

static void put_info(struct json_writer *w, const struct told_model *model) {
    int context = model->writes ? model->writes->limits.context : model->embeds->limits.context;
    put_key_object(w, "model_info");
    put_key_string(w, "general.architecture", family_of(model));
    put_key_string(w, "general.basename", model->id);
    put_key_int(w, "general.parameter_count", parameters_of(model));
    put_of_family(w, model, "context_length", context);
    put_of_family(w, model, "embedding_length",
                  model->writes ? model->writes->info->hidden : model->embeds->embedder->dim);
    put_object_end(w);
}

static struct answer *show(const struct api *api, const struct told_model *model) {
    struct text_span source = model->writes && model->writes->chat
                                  ? chat_source(model->writes->chat)
                                  : (struct text_span){0};
    struct buffer body = {0};
    struct json_writer w;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "modelfile", "");
    put_key_string(&w, "parameters", "");
    put_key_string_n(&w, "template", source.text, source.size);
    put_details(&w, model);
    put_info(&w, model);
    put_capabilities(&w, model);
    ollama_put_time(&w, "modified_at", (double)api->created);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

static bool find(const struct api *api, struct text_span name, struct told_model *out) {
    for (int i = 0; i < api->n_models; i++)
        if (strlen(api->models[i].id) == name.size &&
            memcmp(api->models[i].id, name.text, name.size) == 0) {
            *out = (struct told_model){api->models[i].id, &api->models[i], NULL};
            return true;
        }
    for (int i = 0; i < api->n_embedders; i++)
        if (strlen(api->embedders[i].id) == name.size &&
            memcmp(api->embedders[i].id, name.text, name.size) == 0) {
            *out = (struct told_model){api->embedders[i].id, NULL, &api->embedders[i]};
            return true;
        }
    return false;
}

struct answer *ollama_show(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    const struct door_table rows = {"ollama", &ollama_show_table};
    struct ollama_show_request asked = {0};
    struct told_model model;
    struct answer *answer = NULL;
    struct json *body = NULL;
    (void)waker;
    if (door_read(api, request, &rows, &body, &asked, failure)) {
        struct text_span name = ollama_model_name(asked.model);
        if (name.size > 0 && find(api, name, &model))
            answer = show(api, &model);
        else
            failure_set(failure, name.size > 0 ? 404 : 400, "model_not_found", "model",
                        "model '%.*s' not found", (int)(name.size < 100 ? name.size : 100),
                        name.text ? name.text : "");
    }
    json_close(body);
    return answer;
}

struct answer *ollama_refuse(struct api *api, const struct api_request *request, struct waker waker,
                             struct failure *failure) {
    (void)api, (void)waker;
    failure_set(failure, 400, "not_applicable", NULL,
                "%.60s does not apply here: the models of this server are those of its "
                "configuration",
                request->path);
    return NULL;
}
