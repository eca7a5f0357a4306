/* server/doors/responses/responses_items.c: items as turns of a conversation. */
#include <string.h>

#include "config/base/data_url.h"
#include "retrieval/extract/extract.h"
#include "server/api/core/traffic.h"
#include "server/doors/responses/responses.h"

enum {
    FILE_BYTES = 64 << 20, /* of a file, and of its text */
    FILE_SECONDS = 10      /* that a file may take to be read */
};

struct item_reader {
    struct api *api;
    struct conversation *conversation;
    struct failure *failure;
    size_t number;
};

static bool type_is(const struct json *item, const char *type) {
    return json_text_is(json_member(item, "type"), type);
}

static bool refuse(const struct item_reader *reader, const char *why) {
    return failure_set(reader->failure, 400, "invalid_value", "input", "input[%zu]: %s",
                       reader->number, why);
}

static bool refuse_type(const struct item_reader *reader, const struct json *value) {
    const char *type = json_word(json_member(value, "type"));
    return failure_set(reader->failure, 400, "invalid_value", "input",
                       "input[%zu]: the type %.60s cannot be read here", reader->number,
                       type ? type : "(none)");
}

/* Files. */

static void say_file(const struct item_reader *reader, const char *name,
                     const struct buffer *text) {
    struct buffer shown = {0};
    buffer_printf(&shown, "<document title=\"%s\">\n", name);
    buffer_append(&shown, text->data, text->size);
    buffer_append_string(&shown, "\n</document>");
    conversation_say(reader->conversation, (struct text_span){shown.data, shown.size});
    buffer_free(&shown);
}

static bool read_file(const struct item_reader *reader, const struct json *part) {
    struct text_span data = json_text(json_member(part, "file_data")), type;
    const char *name = json_word(json_member(part, "filename"));
    struct extract_limits limits = extract_limits_of(FILE_BYTES);
    struct document_text text = {0};
    struct buffer bytes = {0};
    struct error e;
    limits.seconds = FILE_SECONDS;
    if (!json_is_absent(json_member(part, "file_url")))
        return refuse(reader, "file_url is not fetched: send file_data");
    if (data.size == 0 || name == NULL)
        return refuse(reader, "an input_file has filename and file_data, a data: URL");
    enum status status = data_url_read(&bytes, &type, data, FILE_BYTES, &e);
    if (status == STATUS_OK)
        status = document_extract_upload(name, (struct text_span){bytes.data, bytes.size}, &limits,
                                         &text, &e);
    if (status == STATUS_OK)
        say_file(reader, name, &text.text);
    else
        failure_set(reader->failure, 400, "invalid_file", "input", "input[%zu]: %s", reader->number,
                    e.text);
    document_text_free(&text);
    buffer_free(&bytes);
    return status == STATUS_OK;
}

/* Messages. */

static bool read_image(const struct item_reader *reader, const struct json *part) {
    const struct json *url = json_member(part, "image_url");
    if (!json_is_text(url)) return refuse(reader, "an input_image has image_url, a text");
    conversation_show(reader->conversation, json_text(url));
    return true;
}

static bool read_part(const struct item_reader *reader, const struct json *part) {
    const struct json *text = json_member(part, "text");
    if (type_is(part, "refusal")) text = json_member(part, "refusal");
    if (type_is(part, "input_image")) return read_image(reader, part);
    if (type_is(part, "input_file")) return read_file(reader, part);
    bool says = type_is(part, "input_text") || type_is(part, "output_text") ||
                type_is(part, "text") || type_is(part, "refusal");
    if (!says || !json_is_text(text)) return refuse_type(reader, part);
    conversation_say(reader->conversation, json_text(text));
    return true;
}

/* A text, or parts. */
static bool read_content(const struct item_reader *reader, const struct json *content) {
    if (json_is_text(content)) conversation_say(reader->conversation, json_text(content));
    if (json_is_text(content)) return true;
    if (!json_is_list(content)) return refuse(reader, "content must be a string or an array");
    for (size_t i = 0; i < json_count(content); i++)
        if (!read_part(reader, json_item(content, i))) return false;
    return true;
}

static bool read_message(const struct item_reader *reader, const struct json *item) {
    if (conversation_turn_of(reader->conversation, json_member(item, "role")))
        return read_content(reader, json_member(item, "content"));
    return refuse(reader, "role must be user, assistant, system or developer");
}

/* Calls. */

/* A custom tool's input is any text: an object holds it. */
static void say_custom(const struct item_reader *reader, const struct json *item) {
    struct buffer arguments = {0};
    struct json_writer w;
    put_begin(&w, &arguments);
    put_object(&w);
    put_key(&w, "input");
    put_json(&w, json_member(item, "input"));
    put_object_end(&w);
    conversation_call(reader->conversation, json_text(json_member(item, "call_id")),
                      json_text(json_member(item, "name")),
                      (struct text_span){arguments.data, arguments.size});
    buffer_free(&arguments);
}

/* By the name that the model knows the function by. */
static void say_call(const struct item_reader *reader, const struct json *item) {
    struct buffer name = {0};
    responses_name_join(&name, json_text(json_member(item, "namespace")),
                        json_text(json_member(item, "name")));
    conversation_call(reader->conversation, json_text(json_member(item, "call_id")),
                      (struct text_span){name.data, name.size},
                      json_text(json_member(item, "arguments")));
    buffer_free(&name);
}

static bool read_call(const struct item_reader *reader, const struct json *item) {
    const struct json *arguments = json_member(item, "arguments");
    bool custom = type_is(item, "custom_tool_call");
    if (!json_is_text(json_member(item, "call_id")) || !json_is_text(json_member(item, "name")) ||
        (!custom && !json_is_text(arguments)))
        return refuse(reader, "a call has call_id, name and arguments, which are texts");
    conversation_turn(reader->conversation, SPEAKER_ASSISTANT);
    if (custom)
        say_custom(reader, item);
    else
        say_call(reader, item);
    return true;
}

static bool read_result(const struct item_reader *reader, const struct json *item) {
    if (!json_is_text(json_member(item, "call_id")))
        return refuse(reader, "the output of a call has call_id");
    conversation_result(reader->conversation, json_text(json_member(item, "call_id")),
                        (struct text_span){0});
    return read_content(reader, json_member(item, "output"));
}

/* A call that the server carried out, and its result. */
static bool read_own_call(const struct item_reader *reader, const struct json *item) {
    const struct json *label = json_member(item, "server_label"), *name = json_member(item, "name"),
                      *arguments = json_member(item, "arguments"),
                      *output = json_member(item, "output");
    struct text_span id = json_text(json_member(item, "id"));
    struct buffer told = {0};
    if (!json_is_text(label) || !json_is_text(name) || !json_is_text(arguments))
        return refuse(reader, "an mcp_call has server_label, name and arguments, which are texts");
    buffer_printf(&told, "%s__%s", json_text(label).text, json_text(name).text);
    struct text_span tool = {told.data, told.size};
    conversation_turn(reader->conversation, SPEAKER_ASSISTANT);
    conversation_call(reader->conversation, id, tool, json_text(arguments));
    conversation_result(reader->conversation, id, tool);
    conversation_say(reader->conversation,
                     json_text(json_is_text(output) ? output : json_member(item, "error")));
    buffer_free(&told);
    return true;
}

/* Thoughts are told whole, or in a summary. */
static bool read_reasoning(const struct item_reader *reader, const struct json *item) {
    const struct json *told = json_member(item, "content");
    if (json_count(told) == 0) told = json_member(item, "summary");
    conversation_turn(reader->conversation, SPEAKER_ASSISTANT);
    for (size_t i = 0; i < json_count(told); i++)
        conversation_think(reader->conversation,
                           json_text(json_member(json_item(told, i), "text")));
    return true;
}

/* Items. */

/* Items of tools that ran elsewhere: nothing here reads them. */
static bool is_foreign(const struct json *item) {
    static const char *const types[] = {
        "file_search_call",     "web_search_call",         "computer_call",
        "computer_call_output", "code_interpreter_call",   "image_generation_call",
        "local_shell_call",     "local_shell_call_output", "shell_call",
        "shell_call_output",    "apply_patch_call",        "apply_patch_call_output",
        "mcp_list_tools",       "mcp_approval_request",    "mcp_approval_response",
        "tool_search_call",     "tool_search_output",      "compaction"};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        if (type_is(item, types[i])) return true;
    return false;
}

static bool read_item(const struct item_reader *reader, const struct json *item) {
    bool untyped = json_is_absent(json_member(item, "type"));
    if (type_is(item, "message") || (untyped && json_member(item, "role") != NULL))
        return read_message(reader, item);
    if (type_is(item, "function_call") || type_is(item, "custom_tool_call"))
        return read_call(reader, item);
    if (type_is(item, "function_call_output") || type_is(item, "custom_tool_call_output"))
        return read_result(reader, item);
    if (type_is(item, "mcp_call")) return read_own_call(reader, item);
    if (type_is(item, "reasoning")) return read_reasoning(reader, item);
    if (type_is(item, "item_reference"))
        return refuse(reader,
                      "item_reference names an item that is not kept by itself: send the "
                      "item, or previous_response_id");
    if (!is_foreign(item)) return refuse_type(reader, item);
    traffic_note_passed(reader->api->traffic, "responses", "item", 1);
    return true;
}

bool responses_read_items(struct api *api, const struct json *items,
                          struct conversation *conversation, struct failure *failure) {
    struct item_reader reader = {.api = api, .conversation = conversation, .failure = failure};
    for (; reader.number < json_count(items); reader.number++)
        if (!read_item(&reader, json_item(items, reader.number))) return false;
    return true;
}
