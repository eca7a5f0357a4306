/* server/api/chat/chat_messages.c: from a chat request to the prompt's token ids, through the
 * model's chat template. Templates do not take all that OpenAI's clients send, so it is put into
 * their shape: parts of a text are joined, the arguments of calls become objects, `developer`
 * becomes `system`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/chat/chat.h"
#include "retro/chat/harmony.h"
#include "server/api/chat/chat.h"
#include "server/api/chat/chat_place.h"
#include "server/api/chat/chat_skills.h"
#include "server/api/core/picture_part.h"
#include "server/api/text/retrieval_ask.h"
#include "server/host/prompt/picture_input.h"

/* Parts of a conversation that a template knows. */
struct template_skills {
    bool parts;     /* content may be a list of parts */
    bool pictures;  /* a part may be a picture; then texts are parts, too */
    bool developer; /* the role of this name */
    bool tools, documents;
    bool text_arguments; /* arguments of calls stay the text that was sent */
    int dropped;         /* of the messages, the oldest */
    bool first_system;   /* system messages stand first alone: later ones are the user's */
};

static bool has_literal(struct text_span literals, const char *word) {
    return literals.size > 0 && memmem(literals.text, literals.size, word, strlen(word)) != NULL;
}

/* One of the template's strings is this word, and no more. */
static bool has_word(struct text_span literals, const char *word) {
    for (size_t at = 0; at < literals.size; at += strlen(literals.text + at) + 1)
        if (strcmp(literals.text + at, word) == 0) return true;
    return false;
}

static struct template_skills skills_of(const struct template *template) {
    struct text_span literals = template_literals(template);
    return (struct template_skills){
        .parts = template_reads(template, "text") || has_word(literals, "text"),
        .pictures = has_word(literals, "image"),
        .developer = has_literal(literals, "developer"),
        .tools = template_reads(template, "tools"),
        .documents = template_reads(template, "documents")};
}

bool chat_knows_tools(const struct chat *chat) {
    static const char list[] = "[{}]";
    const struct template *template;
    struct chat_input in = {0};
    struct json *tools;
    struct error e;
    if (json_parse(&tools, (struct text_span){list, sizeof list - 1}, "tools", &e)) return false;
    in.tools = tools;
    bool knows = chat_pick(chat, &in, &template, &e) == STATUS_OK && skills_of(template).tools;
    json_close(tools);
    return knows;
}

/* An assistant's message may be calls alone. */
static bool has_calls(const struct json *message) {
    return json_text_is(json_member(message, "role"), "assistant") &&
           (json_count(json_member(message, "tool_calls")) > 0 ||
            json_kind(json_member(message, "function_call")) == JSON_KIND_OBJECT);
}

/* As OpenAI has it: only a message of calls goes without content. */
static bool check_content(const struct json *message, size_t i, struct failure *failure) {
    const struct json *content = json_member(message, "content");
    bool empty = json_is_list(content) && json_count(content) == 0;
    if (!empty && (!json_is_absent(content) || has_calls(message))) return true;
    char param[40];
    snprintf(param, sizeof param, "messages[%zu].content", i);
    return failure_set(failure, 400, content ? "invalid_value" : "missing_parameter", param,
                       "message %zu has no content%s: it is a string or an array of parts, which "
                       "only an assistant's "
                       "message with tool_calls may lack",
                       i,
                       empty     ? ", but an empty array"
                       : content ? ", but null"
                                 : "");
}

static bool check_message(const struct json *message, size_t i, bool sees,
                          struct failure *failure) {
    const struct json *content = json_member(message, "content");
    if (json_kind(message) != JSON_KIND_OBJECT)
        return failure_set(failure, 400, "invalid_type", "messages", "message %zu is not an object",
                           i);
    if (json_word(json_member(message, "role")) == NULL)
        return failure_set(failure, 400, "invalid_value", "messages",
                           "message %zu has no role that is a string", i);
    if (!json_is_absent(content) && !json_is_text(content) && !json_is_list(content))
        return failure_set(failure, 400, "invalid_type", "messages",
                           "the content of message %zu must be a string, an array of parts or null",
                           i);
    if (!check_content(message, i, failure)) return false;
    for (size_t j = 0; j < json_count(content); j++) {
        const struct json *part = json_item(content, j);
        bool text = json_text_is(json_member(part, "type"), "text") &&
                    json_is_text(json_member(part, "text"));
        if (!text && !(sees && picture_part_is(part)))
            return failure_set(failure, 400, "unsupported_content", "messages",
                               "part %zu of message %zu is not {\"type\": \"text\", \"text\": "
                               "...}; the model reads text%s",
                               j, i, sees ? " and {\"type\": \"image_url\", ...}" : "");
    }
    return true;
}

/* Parts as one text. `mark` stands before it where passages are to stand; NULL: nowhere. */
static void put_joined(struct json_writer *w, const struct json *parts, const char *mark) {
    struct buffer text = {0}, marked = {0};
    chat_join_parts(parts, &text);
    chat_mark_text((struct text_span){text.data, text.size}, mark, &marked);
    put_string_n(w, marked.data, marked.size);
    buffer_free(&text);
    buffer_free(&marked);
}

static void put_marked(struct json_writer *w, struct text_span text, const char *mark) {
    struct buffer marked = {0};
    chat_mark_text(text, mark, &marked);
    put_string_n(w, marked.data, marked.size);
    buffer_free(&marked);
}

static void put_text_part(struct json_writer *w, struct text_span text, const char *mark) {
    put_object(w);
    put_key_string(w, "type", "text");
    put_key(w, "text");
    put_marked(w, text, mark);
    put_object_end(w);
}

/* Templates name a picture's place by a part of this type, as transformers' processors do. */
static void put_picture(struct json_writer *w) {
    put_object(w);
    put_key_string(w, "type", "image");
    put_object_end(w);
}

/* Parts as parts, the mark before the first text. */
static void put_parts(struct json_writer *w, const struct json *parts, const char *mark) {
    put_array(w);
    for (size_t i = 0; i < json_count(parts); i++) {
        const struct json *part = json_item(parts, i);
        if (picture_part_is(part)) {
            put_picture(w);
        } else if (mark) {
            put_text_part(w, json_text(json_member(part, "text")), mark);
            mark = NULL;
        } else {
            put_json(w, part);
        }
    }
    put_array_end(w);
}

/* A text as the only part. */
static void put_one_part(struct json_writer *w, struct text_span text, const char *mark) {
    put_array(w);
    put_text_part(w, text, mark);
    put_array_end(w);
}

static void put_content(struct json_writer *w, const struct json *content,
                        const struct template_skills *skills, const char *mark) {
    if (json_is_list(content) && !skills->parts)
        put_joined(w, content, mark);
    else if (json_is_list(content))
        put_parts(w, content, mark);
    else if (json_is_text(content) && skills->pictures)
        put_one_part(w, json_text(content), mark);
    else if (mark && json_is_text(content))
        put_marked(w, json_text(content), mark);
    else
        put_json(w, content);
}

static void put_arguments(struct json_writer *w, const struct json *value) {
    struct error e;
    struct json *object = NULL;
    struct text_span text = json_text(value);
    if (json_is_text(value) && json_parse(&object, text, "arguments", &e) == STATUS_OK &&
        json_kind(object) == JSON_KIND_OBJECT)
        put_json(w, object);
    else
        put_json(w, value);
    json_close(object);
}

static void put_function(struct json_writer *w, const struct json *function) {
    put_object(w);
    for (struct json_entry it = {0}; json_next(function, &it);) {
        put_key_n(w, it.name.text, it.name.size);
        if (strcmp(it.name.text, "arguments") == 0)
            put_arguments(w, it.value);
        else
            put_json(w, it.value);
    }
    put_object_end(w);
}

static void put_calls(struct json_writer *w, const struct json *calls) {
    put_array(w);
    for (size_t i = 0; i < json_count(calls); i++) {
        const struct json *call = json_item(calls, i);
        if (json_kind(call) != JSON_KIND_OBJECT) {
            put_json(w, call);
            continue;
        }
        put_object(w);
        for (struct json_entry it = {0}; json_next(call, &it);) {
            put_key_n(w, it.name.text, it.name.size);
            if (strcmp(it.name.text, "function") == 0 && json_kind(it.value) == JSON_KIND_OBJECT)
                put_function(w, it.value);
            else
                put_json(w, it.value);
        }
        put_object_end(w);
    }
    put_array_end(w);
}

static bool is_system(const struct json *message) {
    const struct json *role = json_member(message, "role");
    return json_text_is(role, "system") || json_text_is(role, "developer");
}

/* `role` in place of the message's own where it is not NULL. */
static void put_message(struct json_writer *w, const struct json *message,
                        const struct template_skills *skills, const char *mark, const char *role) {
    put_object(w);
    for (struct json_entry it = {0}; json_next(message, &it);) {
        put_key_n(w, it.name.text, it.name.size);
        if (strcmp(it.name.text, "content") == 0)
            put_content(w, it.value, skills, mark);
        else if (role && strcmp(it.name.text, "role") == 0)
            put_string(w, role);
        else if (strcmp(it.name.text, "role") == 0 && !skills->developer &&
                 json_text_is(it.value, "developer"))
            put_string(w, "system");
        else if (strcmp(it.name.text, "tool_calls") == 0 && json_is_list(it.value) &&
                 !skills->text_arguments)
            put_calls(w, it.value);
        else
            put_json(w, it.value);
    }
    put_object_end(w);
}

/* All but the system's messages and the last one. */
static bool is_droppable(const struct json *messages, size_t i) {
    return i + 1 < json_count(messages) && !is_system(json_item(messages, i));
}

/* The messages as the template takes them; the caller closes *out. */
static bool make_messages(const struct json *messages, const struct template_skills *skills,
                          const struct chat_place *place, struct json **out,
                          struct failure *failure) {
    struct buffer text = {0};
    struct json_writer w;
    struct error e;
    bool ok = true;
    int next_mark = 0;
    put_begin(&w, &text);
    put_array(&w);
    size_t dropped = 0, to_drop = (size_t)skills->dropped;
    for (size_t i = 0; ok && i < json_count(messages); i++) {
        char room[CHAT_MARK_BYTES];
        const char *mark = chat_place_mark(place, json_item(messages, i), &next_mark, room);
        if (dropped < to_drop && is_droppable(messages, i)) {
            dropped++;
            continue;
        }
        ok = check_message(json_item(messages, i), i, skills->pictures, failure);
        bool moved = i > 0 && skills->first_system && is_system(json_item(messages, i));
        if (ok) put_message(&w, json_item(messages, i), skills, mark, moved ? "user" : NULL);
    }
    put_array_end(&w);
    if (ok && json_parse(out, (struct text_span){text.data, text.size}, "messages", &e))
        ok = failure_from_error(failure, &e);
    buffer_free(&text);
    return ok;
}

/* Variables of the template: chat_template_kwargs, and the fields of the request that are such. */
static bool make_variables(const struct json *body, struct json **out, struct failure *failure) {
    const struct json *given = json_member(body, "chat_template_kwargs");
    const struct json *effort = json_member(body, "reasoning_effort");
    struct buffer text = {0};
    struct json_writer w;
    struct error e;
    put_begin(&w, &text);
    put_object(&w);
    for (struct json_entry it = {0}; !json_is_absent(given) && json_next(given, &it);) {
        put_key_n(&w, it.name.text, it.name.size);
        put_json(&w, it.value);
    }
    if (!json_is_absent(effort) && json_member(given, "reasoning_effort") == NULL) {
        put_key(&w, "reasoning_effort");
        put_json(&w, effort);
    }
    put_object_end(&w);
    enum status status =
        json_parse(out, (struct text_span){text.data, text.size}, "chat_template_kwargs", &e);
    buffer_free(&text);
    return status == STATUS_OK || failure_from_error(failure, &e);
}

static bool check_skills(const struct chat_request *request, const struct chat_input *in,
                         const struct template_skills *skills, struct failure *failure) {
    if (request->calls_tools && !skills->tools)
        return failure_set(failure, 400, "unsupported_parameter", "tools",
                           "the model's chat template knows no tools: describe them in a message");
    if (json_count(in->documents) > 0 && !skills->documents)
        return failure_set(failure, 400, "unsupported_parameter", "documents",
                           "the model's chat template knows no documents: put them into a message");
    return true;
}

static bool ends_in_word(const struct buffer *text, const char *words) {
    size_t size = text->size, n = strlen(words);
    while (size > 0 && strchr(" \r\n\t", text->data[size - 1])) size--;
    return size >= n && memcmp(text->data + size - n, words, n) == 0;
}

static bool has_later_system(const struct json *messages) {
    for (size_t i = 1; i < json_count(messages); i++)
        if (is_system(json_item(messages, i))) return true;
    return false;
}

/* Renders with the arguments of calls as objects, as most templates want them; where that fails, as
 * they were sent. A template that refuses system messages within a conversation gets them as the
 * user's, in their places: moved to the top they would change the beginning of every prompt. */
static bool render(const struct served_model *model, struct chat_input *in,
                   struct template_skills *skills, const struct chat_place *place,
                   struct template_output *text, struct failure *failure) {
    const struct json *sent = in->messages;
    struct error e = {0}, first = {0};
    int attempts = has_later_system(sent) ? 4 : 2;
    for (int attempt = 0; attempt < attempts; attempt++) {
        struct json *messages = NULL;
        skills->text_arguments = attempt % 2 > 0;
        skills->first_system = attempt > 1;
        if (!make_messages(sent, skills, place, &messages, failure)) return false;
        in->messages = messages;
        enum status status = chat_render(model->chat, in, text, &e);
        json_close(messages);
        if (status == STATUS_OK) return true;
        if (attempt == 0) first = e;
        if (status != STATUS_INVALID) break;
    }
    return failure_from_error(failure, &first);
}

/* Where found passages are to stand; out->place stays NULL where none are sought. */
static bool open_place(const struct served_model *model, const struct chat_request *request,
                       const struct json *messages, struct chat_prompt *out,
                       struct failure *failure) {
    const struct request_retrieval *asked = &request->writing.retrieval;
    const struct chat_asker asker = {
        .messages = messages,
        .query = (enum retrieval_query)asked->choice.query,
        .rewrite = out->rewrite,
        .conversations = retrieval_keeps(model, asked) ? model->conversations : NULL,
        .who = out->who};
    if (!retrieval_reads_passages(model, asked)) return true;
    out->place = chat_place_open(&asker);
    if (out->place || !asked->given) return true;
    return failure_set(failure, 400, "no_query", "messages",
                       "passages stand in the last message of the user and are sought by it, and "
                       "no such message has a text");
}

/* A guided answer of a model that writes in channels is its final message, which is begun for it:
 * it thinks nothing before. Where the answer may be a call, the guide has the channels in it. */
static bool begin_final(const struct served_model *model, const struct chat_request *request,
                        const struct chat_input *in, struct chat_prompt *out,
                        struct failure *failure) {
    struct error e;
    enum guide_kind kind = request->writing.guide.kind;
    bool whole = kind != GUIDE_NONE && kind != GUIDE_CALLS && !request->calls_tools;
    if (!whole || !in->add_generation_prompt || !chat_has_channels(model->chat)) return true;
    return !tokenizer_encode(model->tokenizer, harmony_final, strlen(harmony_final),
                             TOKENIZER_PARSE_SPECIAL, &out->ids, &e) ||
           failure_from_error(failure, &e);
}

/* Thoughts that the template begins are over at once, where the answer is to have none. */
static bool end_thoughts(const struct served_model *model, struct chat_prompt *out,
                         struct failure *failure) {
    struct error e;
    const char *text = thought_marks_of(chat_thoughts(model->chat))->closing;
    enum status status = tokenizer_encode(model->tokenizer, text, strlen(text),
                                          TOKENIZER_PARSE_SPECIAL, &out->ids, &e);
    out->thinks = false;
    out->thought = true;
    return status == STATUS_OK || failure_from_error(failure, &e);
}

static bool fill(const struct served_model *model, const struct chat_request *request,
                 struct chat_input *in, struct chat_prompt *out, enum call_format *format,
                 struct failure *failure) {
    const struct template *template;
    struct template_output text = {0};
    struct error e;
    if (!request->calls_tools) in->tools = NULL;
    if (chat_pick(model->chat, in, &template, &e)) return failure_from_error(failure, &e);
    struct template_skills skills = skills_of(template);
    skills.pictures = skills.pictures && model->picture_input;
    skills.dropped = request->dropped;
    bool ok = check_skills(request, in, &skills, failure) &&
              open_place(model, request, in->messages, out, failure) &&
              render(model, in, &skills, out->place, &text, failure) &&
              (!out->place || chat_place_find(out->place, &text, failure));
    if (ok && chat_encode(template, model->tokenizer, &text, &out->ids, &e))
        ok = failure_from_error(failure, &e);
    ok = ok && begin_final(model, request, in, out, failure);
    if (ok && out->place) chat_place_keep(out->place, template, model->tokenizer, &text);
    if (ok && out->place && out->pictures)
        ok = chat_place_count(out->place, model_picture_id(out->pictures->model), failure);
    if (ok && out->pictures && picture_set_merge(out->pictures, &out->ids, &e))
        ok = failure_from_error(failure, &e);
    const struct thought_marks *marks = thought_marks_of(chat_thoughts(model->chat));
    out->thinks = ok && ends_in_word(&text.text, marks->begin);
    out->thought = ok && ends_in_word(&text.text, marks->end);
    if (out->thinks && request->unthinking) ok = end_thoughts(model, out, failure);
    *format = request->calls_tools ? call_format_of(template_literals(template)) : CALLS_NONE;
    template_output_free(&text);
    return ok;
}

/* As a completion's prompt: special tokens in it are tokens. */
static bool encode_raw(const struct served_model *model, const struct json *messages,
                       struct chat_prompt *out, struct failure *failure) {
    const struct json *last = json_item(messages, json_count(messages) - 1);
    struct text_span text = json_text(json_member(last, "content"));
    struct error e;
    if (tokenizer_encode(model->tokenizer, text.text ? text.text : "", text.size,
                         TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, &out->ids, &e))
        return failure_from_error(failure, &e);
    if (out->ids.n == 0 && model->eod >= 0) tokens_append(&out->ids, model->eod, 0);
    return true;
}

/* By the template. */
static bool encode_chat(const struct served_model *model, const struct chat_request *request,
                        struct chat_prompt *out, enum call_format *format,
                        struct failure *failure) {
    struct chat_input in;
    struct json *variables = NULL;
    struct error e;
    if (chat_input_read(&in, request->body, &e)) {
        failure_from_error(failure, &e);
        return false;
    }
    in.messages = chat_request_messages(request);
    if (request->tools) in.tools = request->tools;
    bool ok = make_variables(request->body, &variables, failure);
    in.variables = variables;
    ok = ok && fill(model, request, &in, out, format, failure);
    json_close(variables);
    return ok;
}

bool chat_prompt_make(const struct served_model *model, const struct chat_request *request,
                      struct chat_prompt *out, enum call_format *format, struct failure *failure) {
    bool ok = request->raw ? encode_raw(model, json_member(request->body, "messages"), out, failure)
                           : encode_chat(model, request, out, format, failure);
    if (ok && out->ids.n == 0)
        ok = failure_set(failure, 400, "invalid_value", "messages",
                         "the chat template makes an empty text of the messages");
    return ok;
}

void chat_prompt_free(struct chat_prompt *prompt) {
    tokens_free(&prompt->ids);
    chat_place_close(prompt->place);
}
