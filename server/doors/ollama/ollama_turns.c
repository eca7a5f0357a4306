/* server/doors/ollama/ollama_turns.c: Ollama's messages as turns of a conversation. */
#include <string.h>

#include "server/doors/ollama/ollama.h"

/* Results come without the ids of their calls: they are in the order of these. */
struct ollama_turns {
    struct conversation *conversation;
    struct failure *failure;
    int n_calls, n_results;
};

/* Nine letters and digits, as the templates that look at ids want them. */
static struct text_span call_id(int number, char id[16]) {
    snprintf(id, 16, "call%05d", number % 100000);
    return (struct text_span){id, strlen(id)};
}

static bool refuse(struct failure *failure, const char *why) {
    return failure_set(failure, 400, "invalid_value", "messages", "%s", why);
}

bool ollama_read_images(const struct json *images, struct conversation *conversation,
                        struct failure *failure) {
    static const char prefix[] = "data:image/png;base64,";
    if (json_is_absent(images)) return true;
    if (!json_is_list(images)) return refuse(failure, "images must be an array");
    for (size_t i = 0; i < json_count(images); i++) {
        struct text_span data = json_text(json_item(images, i));
        struct buffer url = {0};
        if (data.size == 0) return refuse(failure, "an image is a text in base64");
        if (data.size < 5 || memcmp(data.text, "data:", 5) != 0) buffer_append_string(&url, prefix);
        buffer_append(&url, data.text, data.size);
        conversation_show(conversation, (struct text_span){url.data, url.size});
        buffer_free(&url);
    }
    return true;
}

static bool read_call(struct ollama_turns *reader, const struct json *call) {
    const struct json *function = json_member(call, "function"),
                      *name = json_member(function, "name"),
                      *given = json_member(function, "arguments");
    struct buffer arguments = {0};
    struct json_writer w;
    char id[16];
    if (!json_is_text(name))
        return refuse(reader->failure, "a tool call has a function with a name");
    if (json_is_text(given)) {
        buffer_append(&arguments, json_text(given).text, json_text(given).size);
    } else {
        put_begin(&w, &arguments);
        put_json(&w, given);
    }
    conversation_call(reader->conversation, call_id(reader->n_calls, id), json_text(name),
                      (struct text_span){arguments.data, arguments.size});
    reader->n_calls++;
    buffer_free(&arguments);
    return true;
}

static bool read_said(struct ollama_turns *reader, const struct json *message) {
    const struct json *calls = json_member(message, "tool_calls"),
                      *thought = json_member(message, "thinking");
    if (json_text(thought).size > 0) conversation_think(reader->conversation, json_text(thought));
    for (size_t i = 0; json_is_list(calls) && i < json_count(calls); i++)
        if (!read_call(reader, json_item(calls, i))) return false;
    return true;
}

static bool begin_turn(struct ollama_turns *reader, const struct json *message) {
    const struct json *role = json_member(message, "role"),
                      *tool = json_member(message, "tool_name");
    char id[16];
    if (json_text_is(role, "tool")) {
        if (json_is_absent(tool)) tool = json_member(message, "name");
        conversation_result(reader->conversation, call_id(reader->n_results, id), json_text(tool));
        reader->n_results++;
        return true;
    }
    if (conversation_turn_of(reader->conversation, role)) return true;
    return refuse(reader->failure, "a message's role is system, user, assistant or tool");
}

static bool read_turn(struct ollama_turns *reader, const struct json *message) {
    const struct json *content = json_member(message, "content");
    bool assistant = json_text_is(json_member(message, "role"), "assistant");
    if (!begin_turn(reader, message)) return false;
    if (!json_is_absent(content) && !json_is_text(content))
        return refuse(reader->failure, "a message's content must be a string");
    if (json_text(content).size > 0 || !assistant)
        conversation_say(reader->conversation,
                         content ? json_text(content) : (struct text_span){"", 0});
    if (!ollama_read_images(json_member(message, "images"), reader->conversation, reader->failure))
        return false;
    return !assistant || read_said(reader, message);
}

bool ollama_read_turns(const struct json *messages, struct conversation *conversation,
                       struct failure *failure) {
    struct ollama_turns reader = {.conversation = conversation, .failure = failure};
    for (size_t i = 0; i < json_count(messages); i++)
        if (!read_turn(&reader, json_item(messages, i))) return false;
    return true;
}
