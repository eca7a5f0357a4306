/* server/api/info.c: GET /version and GET /props: what this server is, and what a request gets that says nothing. */
#include "config/json/json_writer.h"
#include "server/api/api.h"

struct answer *version_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    struct buffer body = {0};
    struct json_writer w;
    (void)a, (void)r, (void)waker, (void)f;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "version", RETRO_VERSION);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

static void write_number(struct json_writer *w, const struct json_field *field) {
    put_key(w, field->name);
    if (field->type == JSON_DOUBLE)
        put_double(w, field->fallback);
    else if (field->type == JSON_INT64)
        put_int(w, (int64_t)field->fallback);
    else
        put_bool(w, field->fallback != 0);
}

/* The fallbacks of the fields that say how to write. */
static void write_settings(struct json_writer *w, const struct served_model *model) {
    put_key_object(w, "default_generation_settings");
    put_key_int(w, "n_ctx", model->limits.context);
    put_key_object(w, "params");
    put_key_int(w, "max_tokens", DEFAULT_MAX_TOKENS);
    for (int i = 0; i < writing_table.count; i++) {
        const struct json_field *field = &writing_table.fields[i];
        if (field->type == JSON_DOUBLE || field->type == JSON_INT64 || field->type == JSON_BOOL) write_number(w, field);
    }
    put_object_end(w);
    put_object_end(w);
}

struct answer *props_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    const struct served_model *model = api_model(a, api_argument(r, "model"), f);
    struct buffer body = {0};
    struct json_writer w;
    (void)waker;
    if (model == NULL) return NULL;
    put_begin(&w, &body);
    put_object(&w);
    write_settings(&w, model);
    put_key_int(&w, "total_slots", model->slots);
    put_key_string(&w, "model_alias", model->id);
    put_key_object(&w, "modalities");
    put_key_bool(&w, "vision", false);
    put_key_bool(&w, "audio", false);
    put_object_end(&w);
    put_key_null(&w, "chat_template");
    put_key_string(&w, "build_info", "retro-server " RETRO_VERSION);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}
