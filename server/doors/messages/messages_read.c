/* server/doors/messages/messages_read.c: a request of Messages as a chat's. */
#include <string.h>

#include "config/base/text.h"
#include "server/doors/messages/messages.h"

/* System text. */

/* Claude Code's first block has another value each time, and says nothing to a model: left in the
 * prompt it would cost the whole prefix. */
static bool is_billing(struct text_span text) {
    return span_starts_with(text, "x-anthropic-billing-header:");
}

static bool read_system(const struct json *system, struct conversation *conversation,
                        struct failure *failure) {
    if (json_is_absent(system)) return true;
    if (json_is_text(system)) conversation_say(conversation, json_text(system));
    if (json_is_text(system)) return true;
    for (size_t i = 0; i < json_count(system); i++) {
        const struct json *text = json_member(json_item(system, i), "text");
        if (!json_is_text(text)) break;
        if (!is_billing(json_text(text))) conversation_say(conversation, json_text(text));
        if (i + 1 == json_count(system)) return true;
    }
    if (json_is_list(system) && json_count(system) == 0) return true;
    return failure_set(failure, 400, "invalid_type", "system",
                       "system: must be a string or an array of text blocks");
}

/* A system message stands only where it has words. */
static bool read_conversation(struct messages_answer *answer, struct api *api,
                              const struct messages_request *asked,
                              struct conversation *conversation, struct failure *failure) {
    conversation_begin(conversation);
    conversation->blind = door_model_is_blind(api, asked->model);
    conversation_turn(conversation, SPEAKER_SYSTEM);
    answer->citables.enabled = citable_is_wanted(asked->messages);
    if (!read_system(asked->system, conversation, failure)) return false;
    if (answer->citables.enabled)
        conversation_say(conversation, (struct text_span){citable_words, strlen(citable_words)});
    if (!conversation->speaks) conversation->speaker = SPEAKER_NOBODY;
    return messages_read_turns(answer, api, asked->messages, conversation, failure);
}

/* The shape of the answer. */

static bool put_format(const struct messages_request *asked, struct chat_body *body,
                       struct failure *failure) {
    const struct json *format = json_member(asked->output_config, "format"), *schema;
    if (json_is_absent(format)) format = asked->output_format;
    if (json_is_absent(format)) return true;
    schema = json_member(format, "schema");
    if (!json_text_is(json_member(format, "type"), "json_schema") ||
        json_kind(schema) != JSON_KIND_OBJECT)
        return failure_set(failure, 400, "invalid_value", "output_config",
                           "output_config.format: must be {\"type\": \"json_schema\", \"schema\": "
                           "...}");
    put_key_object(&body->w, "response_format");
    put_key_string(&body->w, "type", "json_schema");
    put_key_object(&body->w, "json_schema");
    put_key_string(&body->w, "name", "answer");
    put_key_bool(&body->w, "strict", true);
    put_key(&body->w, "schema");
    put_json(&body->w, schema);
    put_object_end(&body->w);
    put_object_end(&body->w);
    return true;
}

static bool read_thinking(struct messages_answer *answer, const struct json *thinking,
                          struct failure *failure) {
    const struct json *type = json_member(thinking, "type");
    answer->thinks = json_text_is(type, "enabled") || json_text_is(type, "adaptive");
    if (json_is_absent(thinking) || answer->thinks || json_text_is(type, "disabled")) return true;
    return failure_set(failure, 400, "invalid_value", "thinking",
                       "thinking: type must be enabled, adaptive or disabled");
}

/* Variables by which templates turn thoughts on and off; the request's own come last, as later ones
 * would be another value of the same name. */
static void put_variables(const struct messages_answer *answer,
                          const struct messages_request *asked, struct chat_body *body) {
    struct json_writer *w = &body->w;
    put_key_object(w, "chat_template_kwargs");
    if (json_member(asked->template_variables, "enable_thinking") == NULL)
        put_key_bool(w, "enable_thinking", answer->thinks);
    for (struct json_entry it = {0}; json_next(asked->template_variables, &it);) {
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, it.value);
    }
    put_object_end(w);
    chat_body_put(body, "reasoning_effort", json_member(asked->output_config, "effort"));
}

/* An answer that goes on with the last message, where that is the assistant's own words. */
static void put_continued(const struct json *messages, const struct conversation *conversation,
                          struct chat_body *body) {
    size_t n = json_count(messages);
    const struct json *last = n > 0 ? json_item(messages, n - 1) : NULL;
    if (!json_text_is(json_member(last, "role"), "assistant")) return;
    if (!conversation->speaks || conversation->calls.size > 0) return;
    put_key_bool(&body->w, "continue_final_message", true);
}

static void put_drawing(const struct messages_request *asked, struct chat_body *body) {
    if (asked->max_tokens > 0) put_key_int(&body->w, "max_tokens", asked->max_tokens);
    chat_body_put(body, "stop", asked->stop_sequences);
    chat_body_put(body, "temperature", asked->temperature);
    chat_body_put(body, "top_p", asked->top_p);
    chat_body_put(body, "top_k", asked->top_k);
    chat_body_put(body, "stream", asked->stream);
}

/* The request. */

static bool marks_cache(const struct json *value, int depth) {
    if (json_kind(value) == JSON_KIND_OBJECT &&
        !json_is_absent(json_member(value, "cache_control")))
        return true;
    for (size_t i = 0; depth > 0 && json_is_list(value) && i < json_count(value); i++)
        if (marks_cache(json_item(value, i), depth - 1)) return true;
    return depth > 0 && json_is_list(json_member(value, "content")) &&
           marks_cache(json_member(value, "content"), depth - 1);
}

static bool translate(struct messages_answer *answer, struct api *api,
                      const struct messages_request *asked, struct failure *failure) {
    struct conversation conversation = {0};
    struct chat_body body;
    chat_body_begin(&body);
    chat_body_put(&body, "model", asked->model);
    bool ok = read_thinking(answer, asked->thinking, failure) &&
              read_conversation(answer, api, asked, &conversation, failure) &&
              messages_put_tools(answer, api, asked, &body, failure) &&
              put_format(asked, &body, failure);
    if (ok) {
        put_continued(asked->messages, &conversation, &body);
        put_drawing(asked, &body);
        put_variables(answer, asked, &body);
        chat_body_put_retrieval(&body, asked->retrieval);
        ok = chat_body_parse(&body, &conversation, api, &answer->chat.request, failure);
    }
    buffer_free(&body.text);
    conversation_free(&conversation);
    answer->chat.request.clamps = true;
    return ok;
}

enum { BLOCK_DEPTH = 4 }; /* of blocks in blocks: a message, a result, its content */

static bool read_request(struct chat_answer *base, struct api *api,
                         const struct api_request *request, const struct json_table *table,
                         struct failure *failure) {
    struct messages_answer *answer = (struct messages_answer *)base;
    const struct door_table rows = {"messages", table};
    struct messages_request asked = {0};
    if (!door_read(api, request, &rows, &answer->body, &asked, failure)) return false;
    answer->counts_cache = marks_cache(answer->body, 0) || marks_cache(asked.system, BLOCK_DEPTH) ||
                           marks_cache(asked.tools, BLOCK_DEPTH) ||
                           marks_cache(asked.messages, BLOCK_DEPTH);
    return translate(answer, api, &asked, failure);
}

bool messages_read(struct chat_answer *answer, struct api *api, const struct api_request *request,
                   struct failure *failure) {
    return read_request(answer, api, request, &messages_table, failure);
}

bool messages_read_counted(struct chat_answer *answer, struct api *api,
                           const struct api_request *request, struct failure *failure) {
    answer->counts = true;
    return read_request(answer, api, request, &count_tokens_table, failure);
}

void messages_free(struct chat_answer *base) {
    struct messages_answer *answer = (struct messages_answer *)base;
    citable_free(&answer->citables);
    tool_changes_free(&answer->changes);
    json_close(answer->body);
}
