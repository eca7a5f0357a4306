/* server/api/fields/prediction_fields.c: see prediction_fields.h. */
#include "server/api/fields/prediction_fields.h"

static void append_text(struct buffer *text, const struct json *json) {
    struct text_span span = json_text(json);
    buffer_append(text, span.text, span.size);
}

static bool read_parts(struct buffer *text, const struct json *parts, struct failure *failure) {
    for (size_t i = 0; i < json_count(parts); i++) {
        const struct json *part = json_item(parts, i), *said = json_member(part, "text");
        if (!json_text_is(json_member(part, "type"), "text") || !json_is_text(said))
            return failure_set(failure, 400, "invalid_value", "prediction",
                               "part %zu of prediction.content must be {\"type\": \"text\", "
                               "\"text\": ...}",
                               i);
        append_text(text, said);
    }
    return true;
}

bool prediction_read(struct buffer *text, const struct json *json, struct failure *failure) {
    const struct json *content = json_member(json, "content");
    bool named = json_text_is(json_member(json, "type"), "content");
    if (!named || json_count(json) != 2 || !(json_is_text(content) || json_is_list(content)))
        return failure_set(failure, 400, "invalid_value", "prediction",
                           "prediction must be {\"type\": \"content\", \"content\": a text, or an "
                           "array of {\"type\": \"text\", \"text\": ...}}");
    if (json_is_list(content)) return read_parts(text, content, failure);
    append_text(text, content);
    return true;
}
