/* server/doors/shared/conversation.c: see conversation.h. */
#include "server/doors/shared/conversation.h"

static const char *const role_names[] = {[SPEAKER_SYSTEM] = "system",
                                         [SPEAKER_DEVELOPER] = "developer",
                                         [SPEAKER_USER] = "user",
                                         [SPEAKER_ASSISTANT] = "assistant",
                                         [SPEAKER_TOOL] = "tool"};

void conversation_begin(struct conversation *conversation) {
    put_begin(&conversation->w, &conversation->text);
    put_array(&conversation->w);
}

/* A list that is open until its message ends. */
static struct json_writer *list_open(struct json_writer *w, struct buffer *items) {
    if (items->size > 0) return w;
    put_begin(w, items);
    put_array(w);
    return w;
}

static void put_list(struct json_writer *to, const char *key, struct json_writer *items) {
    put_array_end(items);
    put_key(to, key);
    put_raw(to, (struct text_span){items->out->data, items->out->size});
    buffer_clear(items->out);
}

static void put_content(struct conversation *conversation) {
    struct json_writer *w = &conversation->w;
    const struct buffer *said = &conversation->said;
    if (conversation->shows)
        put_list(w, "content", &conversation->parts_w);
    else if (!conversation->speaks && conversation->calls.size > 0)
        put_key_null(w, "content");
    else
        put_key_string_n(w, "content", said->data, said->size);
}

static void put_span(struct json_writer *w, const char *key, const struct buffer *text) {
    if (text->size > 0) put_key_string_n(w, key, text->data, text->size);
}

static void close_message(struct conversation *conversation) {
    struct json_writer *w = &conversation->w;
    if (conversation->speaker == SPEAKER_NOBODY) return;
    put_object(w);
    put_key_string(w, "role", role_names[conversation->speaker]);
    put_content(conversation);
    put_span(w, "reasoning_content", &conversation->thought);
    if (conversation->calls.size > 0) put_list(w, "tool_calls", &conversation->calls_w);
    put_span(w, "tool_call_id", &conversation->call);
    put_span(w, "name", &conversation->tool);
    put_object_end(w);
    buffer_clear(&conversation->said);
    buffer_clear(&conversation->thought);
    buffer_clear(&conversation->call);
    buffer_clear(&conversation->tool);
    conversation->shows = conversation->speaks = false;
    conversation->speaker = SPEAKER_NOBODY;
}

void conversation_turn(struct conversation *conversation, enum speaker speaker) {
    if (conversation->speaker == speaker) return;
    close_message(conversation);
    conversation->speaker = speaker;
}

bool conversation_turn_of(struct conversation *conversation, const struct json *role) {
    static const struct {
        const char *role;
        enum speaker speaker;
    } roles[] = {{"user", SPEAKER_USER},
                 {"assistant", SPEAKER_ASSISTANT},
                 {"system", SPEAKER_SYSTEM},
                 {"developer", SPEAKER_DEVELOPER}};
    for (size_t i = 0; i < ARRAY_COUNT(roles); i++) {
        if (!json_text_is(role, roles[i].role)) continue;
        conversation_turn(conversation, roles[i].speaker);
        return true;
    }
    return false;
}

void conversation_result(struct conversation *conversation, struct text_span call,
                         struct text_span tool) {
    close_message(conversation);
    conversation->speaker = SPEAKER_TOOL;
    buffer_append(&conversation->call, call.text, call.size);
    buffer_append(&conversation->tool, tool.text, tool.size);
}

static void add_text_part(struct conversation *conversation, struct text_span text) {
    struct json_writer *w = list_open(&conversation->parts_w, &conversation->parts);
    put_object(w);
    put_key_string(w, "type", "text");
    put_key_string_n(w, "text", text.text, text.size);
    put_object_end(w);
}

void conversation_say(struct conversation *conversation, struct text_span text) {
    struct buffer *said = &conversation->said;
    if (conversation->shows) {
        add_text_part(conversation, text);
    } else {
        if (conversation->speaks) buffer_append(said, "\n", 1);
        buffer_append(said, text.text, text.size);
    }
    conversation->speaks = true;
}

void conversation_show(struct conversation *conversation, struct text_span url) {
    static const char unseen[] = "[A picture, which you cannot see.]";
    const struct buffer *said = &conversation->said;
    if (conversation->blind && conversation->speaker == SPEAKER_TOOL) {
        conversation_say(conversation, (struct text_span){unseen, sizeof unseen - 1});
        return;
    }
    if (!conversation->shows && conversation->speaks)
        add_text_part(conversation, (struct text_span){said->data, said->size});
    conversation->shows = true;
    struct json_writer *w = list_open(&conversation->parts_w, &conversation->parts);
    put_object(w);
    put_key_string(w, "type", "image_url");
    put_key_object(w, "image_url");
    put_key_string_n(w, "url", url.text, url.size);
    put_object_end(w);
    put_object_end(w);
}

void conversation_think(struct conversation *conversation, struct text_span text) {
    if (conversation->thought.size > 0) buffer_append(&conversation->thought, "\n", 1);
    buffer_append(&conversation->thought, text.text, text.size);
}

void conversation_call(struct conversation *conversation, struct text_span id,
                       struct text_span name, struct text_span arguments) {
    struct json_writer *w = list_open(&conversation->calls_w, &conversation->calls);
    put_object(w);
    put_key_string_n(w, "id", id.text, id.size);
    put_key_string(w, "type", "function");
    put_key_object(w, "function");
    put_key_string_n(w, "name", name.text, name.size);
    put_key_string_n(w, "arguments", arguments.text, arguments.size);
    put_object_end(w);
    put_object_end(w);
}

struct text_span conversation_end(struct conversation *conversation) {
    close_message(conversation);
    put_array_end(&conversation->w);
    return (struct text_span){conversation->text.data, conversation->text.size};
}

void conversation_free(struct conversation *conversation) {
    buffer_free(&conversation->text);
    buffer_free(&conversation->said);
    buffer_free(&conversation->parts);
    buffer_free(&conversation->thought);
    buffer_free(&conversation->calls);
    buffer_free(&conversation->call);
    buffer_free(&conversation->tool);
}
