/* retro/chat/chat_render.c: a conversation through its model's template. See chat.h. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "retro/chat/chat_private.h"
#include "retro/chat/thoughts.h"

enum { MAX_VARIABLES = 64 };

/* The members of a message that hold its reasoning; the first is what templates read, the second
 * older ones. */
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

struct tm chat_now(void) {
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t seconds = time(NULL);
    struct tm now;
    char *end;
    if (epoch && *epoch) {
        seconds = (time_t)strtoll(epoch, &end, 10);
        if (*end == '\0' && gmtime_r(&seconds, &now)) return now;
        seconds = time(NULL);
    }
    localtime_r(&seconds, &now);
    return now;
}

/* The request. */

static enum status check_objects(const struct json *list, const char *name, struct error *e) {
    if (list == NULL) return STATUS_OK;
    if (!json_is_list(list))
        return error_set(e, STATUS_INVALID, "%s must be a list of objects, not %s", name,
                         json_kind_name(list));
    for (size_t i = 0; i < json_count(list); i++)
        if (json_kind(json_item(list, i)) != JSON_KIND_OBJECT)
            return error_set(e, STATUS_INVALID, "%s[%zu] must be an object, not %s", name, i,
                             json_kind_name(json_item(list, i)));
    return STATUS_OK;
}

static const struct json *member_find(const struct json *request, const char *name) {
    const struct json *value = json_member(request, name);
    return json_is_absent(value) ? NULL : value;
}

static enum status check_names(const struct json *variables, struct error *e) {
    static const char *const taken[] = {"messages", "tools", "documents", "add_generation_prompt"};
    if (variables == NULL) return STATUS_OK;
    if (json_kind(variables) != JSON_KIND_OBJECT)
        return error_set(e, STATUS_INVALID, "chat_template_kwargs must be an object, not %s",
                         json_kind_name(variables));
    for (size_t i = 0; i < ARRAY_COUNT(taken); i++)
        if (json_member(variables, taken[i]))
            return error_set(e, STATUS_INVALID,
                             "chat_template_kwargs must not hold %s: it is a parameter of its own",
                             taken[i]);
    if (json_count(variables) > MAX_VARIABLES / 2)
        return error_set(e, STATUS_TOO_LARGE,
                         "chat_template_kwargs has %zu members, the limit is %d",
                         json_count(variables), MAX_VARIABLES / 2);
    return STATUS_OK;
}

enum status chat_input_read(struct chat_input *in, const struct json *request, struct error *e) {
    const struct json *prompt = member_find(request, "add_generation_prompt");
    const struct json *final = member_find(request, "continue_final_message");
    *in =
        (struct chat_input){.messages = member_find(request, "messages"),
                            .tools = member_find(request, "tools"),
                            .documents = member_find(request, "documents"),
                            .variables = member_find(request, "chat_template_kwargs"),
                            .template_name = json_word(member_find(request, "chat_template")),
                            .add_generation_prompt = prompt ? json_bool(prompt) : !json_bool(final),
                            .continue_final_message = json_bool(final),
                            .now = chat_now()};
    if (prompt && json_kind(prompt) != JSON_KIND_BOOL)
        return error_set(e, STATUS_INVALID, "add_generation_prompt must be true or false");
    if (final && json_kind(final) != JSON_KIND_BOOL)
        return error_set(e, STATUS_INVALID, "continue_final_message must be true or false");
    if (in->continue_final_message && in->add_generation_prompt)
        return error_set(e, STATUS_INVALID,
                         "continue_final_message and add_generation_prompt are both true: the text "
                         "ends within the last "
                         "message, or behind it");
    if (in->messages == NULL) return error_set(e, STATUS_INVALID, "messages is missing");
    if (check_objects(in->messages, "messages", e) || check_objects(in->tools, "tools", e) ||
        check_objects(in->documents, "documents", e) || check_names(in->variables, e))
        return e->status;
    if (json_count(in->messages) == 0)
        return error_set(e, STATUS_INVALID,
                         "messages is empty: a conversation has at least one message");
    return STATUS_OK;
}

/* Messages as templates get them: no members that are null, reasoning under every name that
 * templates read. */

static const struct json *find_reasoning(const struct json *message) {
    const struct json *reasoning = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(reasoning_names) && reasoning == NULL; i++)
        reasoning = member_find(message, reasoning_names[i]);
    return reasoning;
}

/* Whether the template takes thoughts as parts of a content alone, and no member of a message. */
static bool thinks_in_parts(const struct template *template) {
    static const char member[] = "reasoning_content";
    struct text_span literals = template_literals(template);
    return thought_form_of(literals) == THOUGHTS_BRACKETED && !template_reads(template, member) &&
           memmem(literals.text, literals.size, member, sizeof member - 1) == NULL;
}

/* The content as a list of parts, of which thoughts are the first. */
static void put_thinking_content(struct json_writer *w, const struct json *reasoning,
                                 const struct json *content, bool continued) {
    put_array(w);
    put_object(w);
    put_key_string(w, "type", "thinking");
    put_key(w, "thinking");
    put_json(w, reasoning);
    put_object_end(w);
    if (json_is_text(content) && (continued || json_text(content).size > 0)) {
        put_object(w);
        put_key_string(w, "type", "text");
        put_key(w, "text");
        if (continued)
            continued_put(w, content);
        else
            put_json(w, content);
        put_object_end(w);
    } else if (json_is_list(content) && continued) {
        continued_put_parts(w, content);
    } else {
        for (size_t i = 0; i < json_count(content); i++) put_json(w, json_item(content, i));
    }
    put_array_end(w);
}

/* An assistant's message that has thoughts, for a template that takes them as parts. */
static void put_thinking_message(struct json_writer *w, const struct json *message,
                                 bool continued) {
    put_object(w);
    put_key(w, "content");
    put_thinking_content(w, find_reasoning(message), json_member(message, "content"), continued);
    for (struct json_entry it = {0}; json_next(message, &it);) {
        if (json_is_absent(it.value) || strcmp(it.name.text, "content") == 0) continue;
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, it.value);
    }
    put_object_end(w);
}

static void put_message(struct json_writer *w, const struct json *message, bool continued) {
    const struct json *reasoning = find_reasoning(message);
    put_object(w);
    if (reasoning) {
        const struct json *thinking = member_find(message, "thinking");
        put_key(w, "thinking");
        put_json(w, thinking ? thinking : reasoning);
    }
    bool written = false;
    for (struct json_entry it = {0}; json_next(message, &it);) {
        bool is_content = strcmp(it.name.text, "reasoning_content") == 0;
        if (json_is_absent(it.value) || (reasoning && strcmp(it.name.text, "thinking") == 0))
            continue;
        put_key_n(w, it.name.text, it.name.size);
        if (continued && strcmp(it.name.text, "content") == 0)
            continued_put(w, it.value);
        else
            put_json(w, it.value);
        written = written || is_content;
    }
    if (reasoning && !written) {
        put_key(w, "reasoning_content");
        put_json(w, reasoning);
    }
    put_object_end(w);
}

/* Whether the message is one of put_thinking_message's. */
static bool has_thoughts(const struct json *message) {
    return json_text_is(json_member(message, "role"), "assistant") &&
           json_text(find_reasoning(message)).size > 0;
}

static enum status make_messages(const struct chat_input *in, const struct template *template,
                                 struct json **out, struct error *e) {
    bool in_parts = thinks_in_parts(template);
    struct buffer text = {0};
    struct json_writer w;
    size_t n = json_count(in->messages);
    if (in->continue_final_message && continued_check(in->messages, e)) return e->status;
    put_begin(&w, &text);
    put_array(&w);
    for (size_t i = 0; i < n; i++) {
        const struct json *message = json_item(in->messages, i);
        bool continued = in->continue_final_message && i + 1 == n;
        if (in_parts && has_thoughts(message))
            put_thinking_message(&w, message, continued);
        else
            put_message(&w, message, continued);
    }
    put_array_end(&w);
    enum status status = json_parse(out, (struct text_span){text.data, text.size}, "messages", e);
    buffer_free(&text);
    return status;
}

/* The template. */

static const struct named_template *template_find(const struct chat *chat, const char *name) {
    for (int i = 0; i < chat->n_templates; i++)
        if (strcmp(chat->templates[i].name, name) == 0) return &chat->templates[i];
    return NULL;
}

static enum status none_fits(const struct chat *chat, const char *name, struct error *e) {
    struct buffer names = {0};
    for (int i = 0; i < chat->n_templates; i++)
        buffer_printf(&names, "%s%s", i ? ", " : "", chat->templates[i].name);
    if (name)
        error_set(e, STATUS_INVALID, "the model has no chat template named %.60s; it has %.200s",
                  name, names.data);
    else
        error_set(e, STATUS_INVALID,
                  "the model has several chat templates and no default; name one of %.200s",
                  names.data);
    buffer_free(&names);
    return e->status;
}

enum status chat_pick(const struct chat *chat, const struct chat_input *in,
                      const struct template **out, struct error *e) {
    const struct named_template *template = NULL;
    if (in->template_name) {
        template = template_find(chat, in->template_name);
    } else {
        if (in->tools) template = template_find(chat, "tool_use");
        if (template == NULL) template = template_find(chat, "default");
    }
    if (template == NULL) return none_fits(chat, in->template_name, e);
    *out = template->template;
    if (template->template) return STATUS_OK;
    *e = template->error;
    return e->status;
}

struct text_span chat_source(const struct chat *chat) {
    const struct named_template *template = template_find(chat, "default");
    return template ? (struct text_span){template->source.data ? template->source.data : "",
                                         template->source.size}
                    : (struct text_span){0};
}

static void set_variable(struct template_variable *variables, int *n,
                         struct template_variable variable) {
    for (int i = 0; i < *n; i++) {
        if (strcmp(variables[i].name, variable.name) != 0) continue;
        variables[i] = variable;
        return;
    }
    variables[*n] = variable;
    ++*n;
}

/* Whether the template's text names the content that is gone on with, as transformers asks for. */
static enum status check_continues(const struct chat *chat, const struct template *template,
                                   struct error *e) {
    for (int i = 0; i < chat->n_templates; i++) {
        const struct buffer *source = &chat->templates[i].source;
        if (chat->templates[i].template == template &&
            memmem(source->data, source->size, "content", strlen("content")))
            return STATUS_OK;
    }
    return error_set(
        e, STATUS_INVALID,
        "continue_final_message is true, and the chat template names no content of a message");
}

enum status chat_render(const struct chat *chat, const struct chat_input *in,
                        struct template_output *out, struct error *e) {
    struct template_variable variables[MAX_VARIABLES + CHAT_MAX_TOKENS];
    struct json *messages = NULL, *prompt = NULL;
    const struct template *template;
    const char *truth = in->add_generation_prompt ? "true" : "false";
    size_t before = out->text.size;
    int n = 0;
    enum status status = chat_pick(chat, in, &template, e);
    if (status == STATUS_OK && in->continue_final_message)
        status = check_continues(chat, template, e);
    if (status == STATUS_OK) status = make_messages(in, template, &messages, e);
    if (status == STATUS_OK)
        status = json_parse_any(&prompt, (struct text_span){truth, strlen(truth)},
                                "add_generation_prompt", e);
    for (int i = 0; i < chat->n_tokens; i++)
        set_variable(variables, &n,
                     (struct template_variable){chat->tokens[i].name, chat->tokens[i].value, true});
    for (struct json_entry it = {0}; in->variables && json_next(in->variables, &it);)
        set_variable(variables, &n, (struct template_variable){it.name.text, it.value, false});
    set_variable(variables, &n, (struct template_variable){"messages", messages, false});
    set_variable(variables, &n, (struct template_variable){"tools", in->tools, false});
    set_variable(variables, &n, (struct template_variable){"documents", in->documents, false});
    set_variable(variables, &n, (struct template_variable){"add_generation_prompt", prompt, true});
    struct template_input input = {variables, n, in->now};
    if (status == STATUS_OK) status = template_render(template, &input, out, e);
    if (status == STATUS_OK && in->continue_final_message)
        status = continued_cut(in->messages, out, e);
    if (status == STATUS_OK) chat_pictures_write(chat, before, out);
    json_close(messages);
    json_close(prompt);
    return status;
}
