/* server/doors/ollama/ollama_read.c: requests of Ollama's API as a chat's. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/chat/chat.h"
#include "server/doors/ollama/ollama.h"

struct text_span ollama_model_name(const struct json *name) {
    static const char latest[] = ":latest";
    struct text_span text = json_text(name);
    if (span_ends_with(text, latest)) text.size -= sizeof latest - 1;
    return text;
}

static bool refuse(struct failure *failure, const char *field, const char *why) {
    return failure_set(failure, 400, "invalid_value", field, "%s %s", field, why);
}

/* How an answer is written. */

static void put_length(const struct json *options, struct chat_body *body) {
    const struct json *length = json_member(options, "num_predict");
    if (json_is_int(length) && json_int(length) < 1) return; /* as long as the context lets it */
    chat_body_put(body, "max_tokens", length);
}

/* Options of the machine, and of ways to draw that are not here, change nothing. */
static bool put_options(const struct json *options, struct chat_body *body,
                        struct failure *failure) {
    static const char *const same[] = {"temperature",
                                       "top_k",
                                       "top_p",
                                       "min_p",
                                       "seed",
                                       "stop",
                                       "repeat_penalty",
                                       "presence_penalty",
                                       "frequency_penalty"};
    if (!json_is_absent(options) && json_kind(options) != JSON_KIND_OBJECT)
        return refuse(failure, "options", "must be an object");
    for (size_t i = 0; i < ARRAY_COUNT(same); i++)
        chat_body_put(body, same[i], json_member(options, same[i]));
    put_length(options, body);
    return true;
}

static bool put_format(const struct json *format, struct chat_body *body, struct failure *failure) {
    bool schema = json_kind(format) == JSON_KIND_OBJECT;
    if (json_is_absent(format) || json_text_is(format, "")) return true;
    if (!schema && !json_text_is(format, "json"))
        return refuse(failure, "format", "must be \"json\" or a JSON Schema");
    put_key_object(&body->w, "response_format");
    put_key_string(&body->w, "type", schema ? "json_schema" : "json_object");
    if (schema) {
        put_key_object(&body->w, "json_schema");
        put_key_string(&body->w, "name", "answer");
        put_key_bool(&body->w, "strict", true);
        chat_body_put(body, "schema", format);
        put_object_end(&body->w);
    }
    put_object_end(&body->w);
    return true;
}

static bool put_thinking(struct ollama_answer *answer, const struct ollama_request *asked,
                         struct chat_body *body, struct failure *failure) {
    const struct json *think = asked->think;
    bool says = json_kind(think) == JSON_KIND_BOOL, words = json_is_text(think);
    answer->thinks = !says || json_bool(think);
    if (!json_is_absent(think) && !says && !words)
        return refuse(failure, "think", "must be true, false or a text");
    put_key_object(&body->w, "chat_template_kwargs");
    if (says && json_member(asked->template_variables, "enable_thinking") == NULL)
        put_key_bool(&body->w, "enable_thinking", answer->thinks);
    for (struct json_entry it = {0}; json_next(asked->template_variables, &it);) {
        put_key_n(&body->w, it.name.text, it.name.size);
        put_json(&body->w, it.value);
    }
    put_object_end(&body->w);
    if (words) chat_body_put(body, "reasoning_effort", think);
    return true;
}

/* The request. */

static bool is_zero(const struct json *keep_alive) {
    return (json_is_numeric(keep_alive) && json_double(keep_alive) == 0) ||
           json_text_is(keep_alive, "0") || json_text_is(keep_alive, "0s");
}

static void put_stream(const struct json *stream, struct chat_body *body) {
    if (json_is_absent(stream))
        put_key_bool(&body->w, "stream", true);
    else
        chat_body_put(body, "stream", stream);
}

static bool put_request(struct ollama_answer *answer, const struct ollama_request *asked,
                        struct chat_body *body, struct failure *failure) {
    struct text_span name = ollama_model_name(asked->model), given = json_text(asked->model);
    if (name.size == 0) return refuse(failure, "model", "is required");
    buffer_append(&answer->model, given.text, given.size);
    put_key_string_n(&body->w, "model", name.text, name.size);
    put_stream(asked->stream, body);
    chat_body_put_retrieval(body, asked->retrieval);
    return put_options(asked->options, body, failure) && put_format(asked->format, body, failure) &&
           put_thinking(answer, asked, body, failure);
}

static bool finish(struct ollama_answer *answer, const struct ollama_request *asked,
                   struct chat_body *body, struct conversation *conversation, struct api *api,
                   struct failure *failure) {
    struct chat_request *request = &answer->chat.request;
    bool ok = put_request(answer, asked, body, failure) &&
              chat_body_parse(body, conversation, api, request, failure);
    buffer_free(&body->text);
    conversation_free(conversation);
    request->clamps = request->lenient = request->watched = true;
    answer->unloads = is_zero(asked->keep_alive);
    return ok;
}

/* Without words nothing is written: the answer says that the model is loaded. */
static void say_nothing(struct ollama_answer *answer, struct conversation *conversation) {
    answer->chat.counts = true;
    conversation_turn(conversation, SPEAKER_USER);
    conversation_say(conversation, (struct text_span){"", 0});
}

bool ollama_read_chat(struct chat_answer *base, struct api *api, const struct api_request *request,
                      struct failure *failure) {
    struct ollama_answer *answer = (struct ollama_answer *)base;
    const struct door_table rows = {"ollama", &ollama_chat_table};
    struct ollama_request asked = {0};
    struct conversation conversation = {0};
    struct chat_body body;
    answer->opened = time_now();
    if (!door_read(api, request, &rows, &answer->body, &asked, failure)) return false;
    if (!json_is_absent(asked.messages) && !json_is_list(asked.messages))
        return refuse(failure, "messages", "must be an array");
    conversation_begin(&conversation);
    chat_body_begin(&body);
    if (json_count(asked.messages) == 0) say_nothing(answer, &conversation);
    chat_body_put(&body, "tools", asked.tools);
    bool ok = ollama_read_turns(asked.messages, &conversation, failure);
    if (ok) return finish(answer, &asked, &body, &conversation, api, failure);
    buffer_free(&body.text);
    conversation_free(&conversation);
    return false;
}

/* A model without a template of its own reads the prompt as it is. */
static bool is_raw(struct api *api, const struct ollama_request *asked) {
    struct text_span span = ollama_model_name(asked->model);
    char *name = xstrndup(span.text ? span.text : "", span.size);
    struct failure failure = {0};
    const struct served_model *model = api_model(api, name, &failure);
    failure_free(&failure);
    free(name);
    return asked->raw || (model && (model->chat == NULL || chat_is_plain(model->chat)));
}

bool ollama_read_generate(struct chat_answer *base, struct api *api,
                          const struct api_request *request, struct failure *failure) {
    struct ollama_answer *answer = (struct ollama_answer *)base;
    const struct door_table rows = {"ollama", &ollama_generate_table};
    struct ollama_request asked = {0};
    struct conversation conversation = {0};
    struct chat_body body;
    answer->generates = true;
    answer->opened = time_now();
    if (!door_read(api, request, &rows, &answer->body, &asked, failure)) return false;
    if (!json_is_absent(asked.prompt) && !json_is_text(asked.prompt))
        return refuse(failure, "prompt", "must be a string");
    bool raw = is_raw(api, &asked);
    conversation_begin(&conversation);
    chat_body_begin(&body);
    if (json_text(asked.system).size > 0 && !raw) {
        conversation_turn(&conversation, SPEAKER_SYSTEM);
        conversation_say(&conversation, json_text(asked.system));
    }
    conversation_turn(&conversation, SPEAKER_USER);
    if (json_text(asked.prompt).size > 0)
        conversation_say(&conversation, json_text(asked.prompt));
    else
        say_nothing(answer, &conversation);
    bool ok = ollama_read_images(asked.images, &conversation, failure);
    if (ok && finish(answer, &asked, &body, &conversation, api, failure)) {
        answer->chat.request.raw = raw;
        return true;
    }
    buffer_free(&body.text);
    conversation_free(&conversation);
    return false;
}

void ollama_free(struct chat_answer *base) {
    struct ollama_answer *answer = (struct ollama_answer *)base;
    buffer_free(&answer->model);
    json_close(answer->body);
}
