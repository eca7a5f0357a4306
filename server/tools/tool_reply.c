/* server/tools/tool_reply.c: messages and events of a server of tools. See tool_reply.h. */
#include "server/tools/tool_reply.h"

#include <string.h>

#include "config/base/utf8.h"

/* Values of one message: parsing takes memory for each. */
enum { VALUES_MOST = 1 << 18 };
/* Of a type's name. */
enum { SHOWN_BYTES = 40 };

/* Messages. */

static bool is_answer_to(const struct json *json, int64_t id) {
    const struct json *own = json_member(json, "id");
    bool answers = json_member(json, "result") || json_member(json, "error");
    return answers && json_is_int(own) && json_int(own) == id;
}

enum status tool_reply_read(struct tool_reply *out, struct text_span text, int64_t id,
                            struct error *e) {
    *out = (struct tool_reply){.kind = TOOL_REPLY_OTHER};
    if (json_count_values(text) > VALUES_MOST)
        return error_set(e, STATUS_TOO_LARGE, "a message of more than %d values", VALUES_MOST);
    if (json_parse(&out->json, text, "a message", e)) return e->status;
    if (json_kind(out->json) != JSON_KIND_OBJECT ||
        !json_text_is(json_member(out->json, "jsonrpc"), "2.0"))
        return error_set(e, STATUS_INVALID, "what came is no message of JSON-RPC 2.0");
    if (json_is_text(json_member(out->json, "method"))) {
        if (!json_is_absent(json_member(out->json, "id"))) out->kind = TOOL_REPLY_REQUEST;
        return STATUS_OK;
    }
    if (!is_answer_to(out->json, id)) return STATUS_OK;
    out->kind = TOOL_REPLY_ANSWER;
    out->result = json_member(out->json, "result");
    out->code = json_int(json_member(json_member(out->json, "error"), "code"));
    if (out->result && json_kind(out->result) != JSON_KIND_OBJECT)
        return error_set(e, STATUS_INVALID, "the result is not an object");
    return STATUS_OK;
}

enum status tool_reply_error(const struct tool_reply *reply, struct error *e) {
    const struct json *error = json_member(reply->json, "error");
    struct text_span message = json_text(json_member(error, "message"));
    return error_set(e, STATUS_INVALID, "the server answered with error %lld: %.*s",
                     (long long)reply->code, (int)(message.size < 300 ? message.size : 300),
                     message.text ? message.text : "");
}

void tool_reply_free(struct tool_reply *reply) {
    json_close(reply->json);
    *reply = (struct tool_reply){0};
}

void tool_reply_put_refusal(const struct tool_reply *request, struct buffer *out) {
    bool ping = json_text_is(json_member(request->json, "method"), "ping");
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "jsonrpc", "2.0");
    put_key(&w, "id");
    put_json(&w, json_member(request->json, "id"));
    put_key_object(&w, ping ? "result" : "error");
    if (!ping) {
        put_key_int(&w, "code", -32601);
        put_key_string(&w, "message", "this client has no such method");
    }
    put_object_end(&w);
    put_object_end(&w);
}

/* Events. */

static void take_line(struct tool_events *events, struct text_span line) {
    static const char field[] = "data:";
    size_t from = sizeof field - 1;
    if (line.size > 0 && line.text[line.size - 1] == '\r') line.size--;
    if (line.size < from || memcmp(line.text, field, from) != 0) return;
    if (line.size > from && line.text[from] == ' ') from++;
    if (events->data.size > 0) buffer_append(&events->data, "\n", 1);
    buffer_append(&events->data, line.text + from, line.size - from);
}

static bool is_blank(struct text_span line) {
    return line.size == 0 || (line.size == 1 && line.text[0] == '\r');
}

bool tool_events_next(struct tool_events *events, struct text_span stream, struct buffer *event) {
    while (events->at + events->seen < stream.size) {
        const char *from = stream.text + events->at + events->seen;
        const char *end = memchr(from, '\n', stream.size - events->at - events->seen);
        if (end == NULL) {
            events->seen = stream.size - events->at;
            return false;
        }
        struct text_span line = {stream.text + events->at,
                                 (size_t)(end - stream.text) - events->at};
        events->at += line.size + 1;
        events->seen = 0;
        if (!is_blank(line)) {
            take_line(events, line);
        } else if (events->data.size > 0) {
            buffer_clear(event);
            buffer_append(event, events->data.data, events->data.size);
            buffer_clear(&events->data);
            return true;
        }
    }
    return false;
}

void tool_events_free(struct tool_events *events) {
    buffer_free(&events->data);
    *events = (struct tool_events){0};
}

/* Results. */

static void add_text(struct buffer *out, struct text_span text) {
    if (text.size == 0) return;
    if (out->size > 0) buffer_append(out, "\n", 1);
    buffer_append(out, text.text, text.size);
}

static void add_note(struct buffer *out, const struct json *type) {
    struct text_span name = json_text(type);
    if (name.size == 0) name = (struct text_span){"unknown", strlen("unknown")};
    if (out->size > 0) buffer_append(out, "\n", 1);
    buffer_printf(out, "(a part of type %.*s, which is not shown)",
                  (int)utf8_prefix(name.text, name.size, SHOWN_BYTES), name.text);
}

static void add_block(struct buffer *out, const struct json *block) {
    const struct json *type = json_member(block, "type"),
                      *within = json_member(json_member(block, "resource"), "text"),
                      *uri = json_member(block, "uri");
    if (json_text_is(type, "text"))
        add_text(out, json_text(json_member(block, "text")));
    else if (json_text_is(type, "resource") && json_is_text(within))
        add_text(out, json_text(within));
    else if (json_text_is(type, "resource_link") && json_is_text(uri))
        add_text(out, json_text(uri));
    else
        add_note(out, type);
}

/* Structured content is in a text block too, but for servers that know no older clients. */
bool tool_result_read(const struct json *result, struct buffer *text) {
    const struct json *content = json_member(result, "content"),
                      *structured = json_member(result, "structuredContent");
    for (size_t i = 0; json_is_list(content) && i < json_count(content); i++)
        add_block(text, json_item(content, i));
    if (text->size == 0 && json_kind(structured) == JSON_KIND_OBJECT) {
        struct json_writer w;
        put_begin(&w, text);
        put_json(&w, structured);
    }
    return json_bool(json_member(result, "isError"));
}
