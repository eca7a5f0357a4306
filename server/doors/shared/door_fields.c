/* server/doors/shared/door_fields.c: see door_fields.h. */
#include "server/doors/shared/door_fields.h"

#include "server/api/core/traffic.h"
#include "server/api/text/writing_ask.h"

/* Whether a row reads the member, or refuses it. */
static bool is_read(const struct json_table *table, struct text_span name) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        if (field->type == JSON_ROWS ? is_read(field->table, name)
                                     : json_field_is_named(field, name))
            return field->type != JSON_IGNORED;
    }
    return false;
}

bool door_read_json(struct api *api, const struct door_table *table, const struct json *body,
                    void *out, struct failure *failure) {
    int n_passed = 0;
    if (!fields_parse(table->table, out, body, &api->largest, failure)) return false;
    for (struct json_entry it = {0}; json_next(body, &it);)
        n_passed += !is_read(table->table, it.name);
    traffic_note_passed(api->traffic, table->door, "field", n_passed);
    return true;
}

bool door_read(struct api *api, const struct api_request *request, const struct door_table *table,
               struct json **body, void *out, struct failure *failure) {
    return fields_load(body, request->body, request->size, &api->largest, failure) &&
           door_read_json(api, table, *body, out, failure);
}

void chat_body_begin(struct chat_body *body) {
    *body = (struct chat_body){0};
    put_begin(&body->w, &body->text);
    put_object(&body->w);
}

void chat_body_put(struct chat_body *body, const char *name, const struct json *value) {
    if (json_is_absent(value)) return;
    put_key(&body->w, name);
    put_json(&body->w, value);
}

void chat_body_put_retrieval(struct chat_body *body, const struct json *asked) {
    if (!json_is_absent(asked)) {
        chat_body_put(body, "retrieval", asked);
        return;
    }
    put_key_object(&body->w, "retrieval");
    put_key_bool(&body->w, "enabled", false);
    put_object_end(&body->w);
}

bool door_model_is_blind(const struct api *api, const struct json *name) {
    struct failure failure = {0};
    const struct served_model *model = api_model(api, json_word(name), &failure);
    failure_free(&failure);
    return model && model->picture_input == NULL;
}

void chat_body_put_function(struct chat_body *body, struct text_span name) {
    struct json_writer *w = &body->w;
    put_key_object(w, "tool_choice");
    put_key_string(w, "type", "function");
    put_key_object(w, "function");
    put_key_string_n(w, "name", name.text, name.size);
    put_object_end(w);
    put_object_end(w);
}

bool chat_body_parse(struct chat_body *body, struct conversation *conversation, struct api *api,
                     struct chat_request *out, struct failure *failure) {
    const struct request_models models = writing_models(api);
    put_key(&body->w, "messages");
    put_raw(&body->w, conversation_end(conversation));
    put_object_end(&body->w);
    bool ok = chat_request_parse(out, body->text.data, body->text.size, &models, failure);
    buffer_free(&body->text);
    return ok;
}
