/* server/doors/messages/messages_turns.c: the messages of a request as turns of a conversation. */
#include <string.h>

#include "server/api/core/traffic.h"
#include "server/doors/messages/messages.h"

/* One message on its way. */
struct turn_reader {
    struct messages_answer *answer;
    struct api *api;
    struct conversation *conversation;
    struct failure *failure;
    size_t number; /* of the message */
    enum speaker speaker;
};

static bool refuse_block(const struct turn_reader *reader, const struct json *block) {
    const char *type = json_word(json_member(block, "type"));
    return failure_set(reader->failure, 400, "invalid_value", "messages",
                       "messages.%zu: a block of type %.60s cannot be read in this place",
                       reader->number, type ? type : "(none)");
}

static bool type_is(const struct json *block, const char *type) {
    return json_text_is(json_member(block, "type"), type);
}

static bool read_text(const struct turn_reader *reader, const struct json *block) {
    const struct json *text = json_member(block, "text");
    if (!json_is_text(text)) return refuse_block(reader, block);
    conversation_say(reader->conversation, json_text(text));
    return true;
}

static bool read_image(const struct turn_reader *reader, const struct json *block) {
    const struct json *source = json_member(block, "source");
    struct text_span type = json_text(json_member(source, "media_type")),
                     data = json_text(json_member(source, "data")),
                     address = json_text(json_member(source, "url"));
    struct buffer url = {0};
    if (type_is(source, "url") && address.size > 0) {
        conversation_show(reader->conversation, address);
        return true;
    }
    if (!type_is(source, "base64") || type.size == 0 || data.size == 0)
        return failure_set(reader->failure, 400, "invalid_value", "messages",
                           "messages.%zu: the source of an image is of type base64, with "
                           "media_type and data, or url",
                           reader->number);
    buffer_append_string(&url, "data:");
    buffer_append(&url, type.text, type.size);
    buffer_append_string(&url, ";base64,");
    buffer_append(&url, data.text, data.size);
    conversation_show(reader->conversation, (struct text_span){url.data, url.size});
    buffer_free(&url);
    return true;
}

/* A block that a message and the result of a tool may both hold. */
static bool read_shown(const struct turn_reader *reader, const struct json *block) {
    if (type_is(block, "text")) return read_text(reader, block);
    if (type_is(block, "image")) return read_image(reader, block);
    if (tool_change_is(block))
        return tool_change_read(&reader->answer->changes, block, reader->conversation) ||
               refuse_block(reader, block);
    if (citable_block_is(block))
        return citable_read(&reader->answer->citables, block, reader->conversation,
                            reader->failure);
    return refuse_block(reader, block);
}

/* Ids of calls are those of the chat behind a prefix, so that a template takes its own back. */
static struct text_span call_id(const struct json *id) {
    static const char *const prefixes[] = {"toolu_", "mcptoolu_"};
    struct text_span text = json_text(id);
    for (size_t i = 0; i < ARRAY_COUNT(prefixes); i++) {
        size_t size = strlen(prefixes[i]);
        if (text.size > size && memcmp(text.text, prefixes[i], size) == 0)
            return (struct text_span){text.text + size, text.size - size};
    }
    return text;
}

static bool read_result(const struct turn_reader *reader, const struct json *block) {
    const struct json *content = json_member(block, "content"),
                      *id = json_member(block, "tool_use_id");
    static const char failed[] = "The tool failed:";
    if (!json_is_text(id)) return refuse_block(reader, block);
    conversation_result(reader->conversation, call_id(id), (struct text_span){0});
    if (json_bool(json_member(block, "is_error")))
        conversation_say(reader->conversation, (struct text_span){failed, sizeof failed - 1});
    if (json_is_text(content)) conversation_say(reader->conversation, json_text(content));
    for (size_t i = 0; json_is_list(content) && i < json_count(content); i++)
        if (!read_shown(reader, json_item(content, i))) return false;
    return true;
}

static bool read_use(const struct turn_reader *reader, const struct json *block) {
    const struct json *name = json_member(block, "name"), *input = json_member(block, "input");
    struct buffer arguments = {0}, told = {0};
    struct json_writer w;
    bool named = !type_is(block, "mcp_tool_use") || json_word(json_member(block, "server_name"));
    if (!json_is_text(name) || !json_is_text(json_member(block, "id")) || !named ||
        json_kind(input) != JSON_KIND_OBJECT)
        return failure_set(reader->failure, 400, "invalid_value", "messages",
                           "messages.%zu: a tool_use has id, name, and an object as input, an "
                           "mcp_tool_use server_name as well",
                           reader->number);
    put_begin(&w, &arguments);
    put_json(&w, input);
    if (type_is(block, "mcp_tool_use"))
        buffer_printf(&told, "%s__", json_text(json_member(block, "server_name")).text);
    buffer_append(&told, json_text(name).text, json_text(name).size);
    conversation_call(reader->conversation, call_id(json_member(block, "id")),
                      (struct text_span){told.data, told.size},
                      (struct text_span){arguments.data, arguments.size});
    buffer_free(&arguments);
    buffer_free(&told);
    return true;
}

/* Blocks of tools of Anthropic's own servers: nothing here reads them. */
static bool is_foreign(const struct json *block) {
    static const char *const types[] = {"redacted_thinking",
                                        "server_tool_use",
                                        "web_search_tool_result",
                                        "web_fetch_tool_result",
                                        "code_execution_tool_result",
                                        "bash_code_execution_tool_result",
                                        "text_editor_code_execution_tool_result",
                                        "tool_search_tool_result",
                                        "container_upload",
                                        "compaction"};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        if (type_is(block, types[i])) return true;
    return false;
}

static bool read_said(const struct turn_reader *reader, const struct json *block) {
    if (type_is(block, "tool_use") || type_is(block, "mcp_tool_use"))
        return read_use(reader, block);
    if (type_is(block, "text")) return read_text(reader, block);
    if (!type_is(block, "thinking")) return refuse_block(reader, block);
    conversation_think(reader->conversation, json_text(json_member(block, "thinking")));
    return true;
}

static bool read_block(const struct turn_reader *reader, const struct json *block) {
    if (is_foreign(block)) {
        traffic_note_passed(reader->api->traffic, "messages", "block", 1);
        return true;
    }
    /* A server's own results stand in the turn that they were called in. */
    if ((type_is(block, "tool_result") && reader->speaker == SPEAKER_USER) ||
        (type_is(block, "mcp_tool_result") && reader->speaker == SPEAKER_ASSISTANT))
        return read_result(reader, block);
    conversation_turn(reader->conversation, reader->speaker);
    return reader->speaker == SPEAKER_ASSISTANT ? read_said(reader, block)
                                                : read_shown(reader, block);
}

static enum speaker speaker_of(const struct json *message) {
    const struct json *role = json_member(message, "role");
    if (json_text_is(role, "user")) return SPEAKER_USER;
    if (json_text_is(role, "assistant")) return SPEAKER_ASSISTANT;
    return json_text_is(role, "system") ? SPEAKER_SYSTEM : SPEAKER_NOBODY;
}

static bool read_turn(struct turn_reader *reader, const struct json *message) {
    const struct json *content = json_member(message, "content");
    reader->speaker = speaker_of(message);
    if (reader->speaker == SPEAKER_NOBODY)
        return failure_set(reader->failure, 400, "invalid_value", "messages",
                           "messages.%zu: role must be user, assistant or system", reader->number);
    if (json_is_text(content)) {
        conversation_turn(reader->conversation, reader->speaker);
        conversation_say(reader->conversation, json_text(content));
        return true;
    }
    if (!json_is_list(content))
        return failure_set(reader->failure, 400, "invalid_type", "messages",
                           "messages.%zu: content must be a string or an array of blocks",
                           reader->number);
    for (size_t i = 0; i < json_count(content); i++)
        if (!read_block(reader, json_item(content, i))) return false;
    return true;
}

bool messages_read_turns(struct messages_answer *answer, struct api *api,
                         const struct json *messages, struct conversation *conversation,
                         struct failure *failure) {
    struct turn_reader reader = {
        .answer = answer, .api = api, .conversation = conversation, .failure = failure};
    if (!json_is_list(messages) || json_count(messages) == 0)
        return failure_set(failure, 400, "invalid_type", "messages",
                           "messages: at least one message is required");
    for (; reader.number < json_count(messages); reader.number++)
        if (!read_turn(&reader, json_item(messages, reader.number))) return false;
    return true;
}
