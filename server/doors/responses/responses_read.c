/* server/doors/responses/responses_read.c: a request of Responses as a chat's. */
#include <string.h>

#include "server/api/text/writing_ask.h"
#include "server/doors/responses/responses.h"

static bool refuse(struct failure *failure, const char *field, const char *why) {
    return failure_set(failure, 400, "invalid_value", field, "%s: %s", field, why);
}

/* The conversation. */

static bool read_input(struct responses_answer *answer, struct conversation *conversation,
                       struct failure *failure) {
    const struct json *input = answer->asked.input;
    if (json_is_text(input)) {
        conversation_turn(conversation, SPEAKER_USER);
        conversation_say(conversation, json_text(input));
        return true;
    }
    if (!json_is_list(input) && !json_is_absent(input))
        return refuse(failure, "input", "must be a string or an array of items");
    return responses_read_items(answer->api, input, conversation, failure);
}

static bool read_history(struct responses_answer *answer, struct conversation *conversation,
                         struct failure *failure) {
    const struct buffer *history = &answer->history;
    struct json *items = NULL;
    struct error e;
    if (history->size == 0) return true;
    if (json_parse(&items, (struct text_span){history->data, history->size}, "history", &e))
        return failure_from_error(failure, &e);
    bool ok = responses_read_items(answer->api, items, conversation, failure);
    json_close(items);
    return ok;
}

/* Clients send an empty input to look whether the server is there: it is a turn without words. */
static bool read_conversation(struct responses_answer *answer, struct conversation *conversation,
                              struct failure *failure) {
    const struct json *instructions = answer->asked.instructions;
    conversation_begin(conversation);
    conversation->blind = door_model_is_blind(answer->api, answer->asked.model);
    if (!json_is_absent(instructions) && !json_is_text(instructions))
        return refuse(failure, "instructions", "must be a string");
    if (json_text(instructions).size > 0) {
        conversation_turn(conversation, SPEAKER_SYSTEM);
        conversation_say(conversation, json_text(instructions));
    }
    if (!read_history(answer, conversation, failure) || !read_input(answer, conversation, failure))
        return false;
    if (json_count(answer->asked.input) == 0 && !json_is_text(answer->asked.input) &&
        answer->history.size == 0)
        conversation_turn(conversation, SPEAKER_USER);
    return true;
}

/* The shape of the answer. */

static bool put_format(const struct responses_answer *answer, struct chat_body *body,
                       struct failure *failure) {
    static const char *const members[] = {"name", "description", "schema", "strict"};
    const struct json *format = json_member(answer->asked.text, "format");
    if (json_is_absent(format)) return true;
    if (!json_text_is(json_member(format, "type"), "json_schema")) {
        chat_body_put(body, "response_format", format);
        return true;
    }
    if (json_kind(json_member(format, "schema")) != JSON_KIND_OBJECT)
        return refuse(failure, "text.format", "a json_schema has name and schema beside its type");
    put_key_object(&body->w, "response_format");
    put_key_string(&body->w, "type", "json_schema");
    put_key_object(&body->w, "json_schema");
    for (size_t i = 0; i < ARRAY_COUNT(members); i++)
        chat_body_put(body, members[i], json_member(format, members[i]));
    put_object_end(&body->w);
    put_object_end(&body->w);
    return true;
}

/* Without effort there are no thoughts, where the template can leave them out. */
static void put_variables(const struct responses_answer *answer, struct chat_body *body) {
    const struct json *effort = json_member(answer->asked.reasoning, "effort"),
                      *given = answer->asked.template_variables;
    bool none = json_text_is(effort, "none");
    put_key_object(&body->w, "chat_template_kwargs");
    if (none && json_member(given, "enable_thinking") == NULL)
        put_key_bool(&body->w, "enable_thinking", false);
    for (struct json_entry it = {0}; json_next(given, &it);) {
        put_key_n(&body->w, it.name.text, it.name.size);
        put_json(&body->w, it.value);
    }
    put_object_end(&body->w);
    if (!none) chat_body_put(body, "reasoning_effort", effort);
}

bool responses_includes(const struct responses_answer *answer, const char *what) {
    const struct json *include = answer->asked.include;
    for (size_t i = 0; json_is_list(include) && i < json_count(include); i++)
        if (json_text_is(json_item(include, i), what)) return true;
    return false;
}

static void put_drawing(const struct responses_answer *answer, struct chat_body *body) {
    const struct responses_request *asked = &answer->asked;
    chat_body_put(body, "max_tokens", asked->max_output_tokens);
    chat_body_put(body, "temperature", asked->temperature);
    chat_body_put(body, "top_p", asked->top_p);
    chat_body_put(body, "stream", asked->stream);
    if (!responses_includes(answer, "message.output_text.logprobs")) return;
    put_key_bool(&body->w, "logprobs", true);
    chat_body_put(body, "top_logprobs", asked->top_logprobs);
}

static bool put_retrieval(const struct responses_answer *answer, struct chat_body *body,
                          struct failure *failure) {
    bool given = !json_is_absent(answer->asked.retrieval);
    if (given && answer->searches)
        return refuse(failure, "retrieval", "and file_search both say what is searched: send one");
    if (answer->searches) return responses_put_search(answer, body, failure);
    if (given) {
        chat_body_put(body, "retrieval", answer->asked.retrieval);
        return true;
    }
    put_key_object(&body->w, "retrieval");
    put_key_bool(&body->w, "enabled", false);
    put_object_end(&body->w);
    return true;
}

/* The request. */

static bool check_truncation(const struct json *truncation, struct failure *failure) {
    if (json_is_absent(truncation) || json_text_is(truncation, "auto") ||
        json_text_is(truncation, "disabled"))
        return true;
    return refuse(failure, "truncation", "must be auto or disabled");
}

static bool check_values(const struct responses_request *asked, struct failure *failure) {
    if (!json_is_absent(asked->store) && json_kind(asked->store) != JSON_KIND_BOOL)
        return refuse(failure, "store", "must be true or false");
    if (!json_is_absent(asked->include) && !json_is_list(asked->include))
        return refuse(failure, "include", "must be an array");
    if (!json_is_absent(asked->metadata) && json_kind(asked->metadata) != JSON_KIND_OBJECT)
        return refuse(failure, "metadata", "must be an object");
    return check_truncation(asked->truncation, failure);
}

static bool translate(struct responses_answer *answer, struct failure *failure) {
    struct conversation conversation = {0};
    struct chat_request *request = &answer->chat.request;
    struct chat_body body;
    chat_body_begin(&body);
    chat_body_put(&body, "model", answer->asked.model);
    bool ok = read_conversation(answer, &conversation, failure) &&
              responses_put_tools(answer, &body, failure) && put_format(answer, &body, failure) &&
              put_retrieval(answer, &body, failure);
    if (ok) {
        put_drawing(answer, &body);
        put_variables(answer, &body);
        ok = chat_body_parse(&body, &conversation, answer->api, request, failure);
    }
    buffer_free(&body.text);
    conversation_free(&conversation);
    request->clamps = request->lenient = true;
    request->truncates = json_text_is(answer->asked.truncation, "auto");
    return ok;
}

static bool read_request(struct chat_answer *base, struct api *api,
                         const struct api_request *request, const struct json_table *table,
                         struct failure *failure) {
    struct responses_answer *answer = (struct responses_answer *)base;
    const struct door_table rows = {"responses", table};
    const struct json *previous;
    answer->api = api;
    snprintf(answer->id, sizeof answer->id, "resp_%016llx%016llx",
             (unsigned long long)base->base.id, (unsigned long long)random_number());
    if (!door_read(api, request, &rows, &answer->body, &answer->asked, failure) ||
        !check_values(&answer->asked, failure))
        return false;
    previous = answer->asked.previous;
    return (json_is_absent(previous) ||
            responses_go_on(answer, &request->principal, previous, failure)) &&
           translate(answer, failure);
}

bool responses_read(struct chat_answer *answer, struct api *api, const struct api_request *request,
                    struct failure *failure) {
    return read_request(answer, api, request, &responses_table, failure);
}

bool responses_read_counted(struct chat_answer *answer, struct api *api,
                            const struct api_request *request, struct failure *failure) {
    answer->counts = true;
    return read_request(answer, api, request, &input_tokens_table, failure);
}

void responses_free(struct chat_answer *base) {
    struct responses_answer *answer = (struct responses_answer *)base;
    buffer_free(&answer->history);
    responses_names_free(&answer->names);
    json_close(answer->body);
}
