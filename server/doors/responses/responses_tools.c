/* server/doors/responses/responses_tools.c: tools of a request as a chat's. */
#include <string.h>

#include "config/base/lookup.h"
#include "config/base/text.h"
#include "server/api/core/traffic.h"
#include "server/doors/responses/responses.h"

static bool type_is(const struct json *value, const char *type) {
    return json_text_is(json_member(value, "type"), type);
}

static bool refuse(struct failure *failure, const char *field, const char *why) {
    return failure_set(failure, 400, "invalid_value", field, "%s: %s", field, why);
}

/* The tools that a choice allows, by name. */
struct allowed {
    const struct json *list; /* NULL: all are */
    struct lookup_table names;
};

static void allowed_open(struct allowed *allowed, const struct json *choice) {
    *allowed = (struct allowed){0};
    if (!type_is(choice, "allowed_tools")) return;
    allowed->list = json_member(choice, "tools");
    for (size_t i = 0; i < json_count(allowed->list); i++) {
        struct text_span name = json_text(json_member(json_item(allowed->list, i), "name"));
        uint64_t hash = lookup_hash(name.text, name.size);
        size_t at = 0;
        if (lookup_next(&allowed->names, hash, &at) < 0) lookup_add(&allowed->names, hash, (int)i);
    }
}

/* A name that is allowed many times is found at its first. */
static bool allowed_has(const struct allowed *allowed, const struct json *tool) {
    struct text_span name = json_text(json_member(tool, "name"));
    size_t at = 0;
    int i =
        allowed->list ? lookup_next(&allowed->names, lookup_hash(name.text, name.size), &at) : -1;
    if (allowed->list == NULL) return true;
    return i >= 0 &&
           span_equals(json_text(json_member(json_item(allowed->list, (size_t)i), "name")), name);
}

/* A function by the name that the model is told. */
static void put_function(struct json_writer *w, const struct json *tool, const char *name) {
    put_object(w);
    put_key_string(w, "type", "function");
    put_key_object(w, "function");
    put_key_string(w, "name", name);
    for (struct json_entry it = {0}; json_next(tool, &it);) {
        bool told = span_is(it.name, "description") || span_is(it.name, "parameters") ||
                    span_is(it.name, "strict");
        if (!told || json_is_absent(it.value)) continue;
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, it.value);
    }
    put_object_end(w);
    put_object_end(w);
}

/* Servers are those of the configuration: a request names one, and never where it is. */
static bool check_mcp(const struct json *tool, struct failure *failure) {
    const struct json *approval = json_member(tool, "require_approval");
    if (!json_is_absent(json_member(tool, "server_url")) ||
        !json_is_absent(json_member(tool, "connector_id")) ||
        !json_is_absent(json_member(tool, "authorization")) ||
        !json_is_absent(json_member(tool, "headers")))
        return refuse(failure, "tools",
                      "addresses in requests are not called: a tool of type mcp has the "
                      "server_label of a server of option tools.mcp, and no server_url, "
                      "connector_id, authorization or headers");
    if (!json_is_text(json_member(tool, "server_label")))
        return refuse(failure, "tools", "a tool of type mcp has a server_label");
    if (!json_text_is(approval, "never"))
        return refuse(failure, "tools",
                      "calls of a tool of type mcp are not asked back for: send "
                      "\"require_approval\": \"never\"");
    return true;
}

static void put_mcp(struct json_writer *w, const struct json *tool) {
    const struct json *allowed = json_member(tool, "allowed_tools");
    if (json_kind(allowed) == JSON_KIND_OBJECT) allowed = json_member(allowed, "tool_names");
    put_object(w);
    put_key(w, "server");
    put_json(w, json_member(tool, "server_label"));
    if (json_is_list(allowed)) {
        put_key(w, "tools");
        put_json(w, allowed);
    }
    put_object_end(w);
}

/* The servers whose tools the model may call, where there are any. */
static void put_servers(struct json_writer *w, const struct json *tools) {
    bool any = false;
    for (size_t i = 0; i < json_count(tools); i++) any = any || type_is(json_item(tools, i), "mcp");
    if (!any) return;
    put_key_array(w, "mcp");
    for (size_t i = 0; i < json_count(tools); i++)
        if (type_is(json_item(tools, i), "mcp")) put_mcp(w, json_item(tools, i));
    put_array_end(w);
}

static void pass_over(const struct responses_answer *answer) {
    traffic_note_passed(answer->api->traffic, "responses", "tool", 1);
}

/* The functions of a namespace. */
static bool put_namespace(struct responses_answer *answer, struct json_writer *w,
                          const struct json *tool, const struct allowed *allowed,
                          struct failure *failure) {
    const struct json *space = json_member(tool, "name"), *list = json_member(tool, "tools");
    if (json_word(space) == NULL || !json_is_list(list))
        return refuse(failure, "tools", "a namespace has a name and tools, an array");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *one = json_item(list, i), *name = json_member(one, "name");
        bool called = type_is(one, "function");
        if (!called) pass_over(answer);
        if (called && json_word(name) == NULL)
            return refuse(failure, "tools", "a function has a name");
        if (called && allowed_has(allowed, one))
            put_function(w, one,
                         responses_name_add(&answer->names, json_text(space), json_text(name)));
    }
    return true;
}

/* Tools that run at OpenAI or in the client, in ways that the models here do not know, are not told
 * to the model. */
static bool put_tool(struct responses_answer *answer, struct json_writer *w,
                     const struct json *tool, const struct allowed *allowed,
                     struct failure *failure) {
    if (type_is(tool, "namespace")) return put_namespace(answer, w, tool, allowed, failure);
    if (type_is(tool, "mcp")) return check_mcp(tool, failure);
    if (type_is(tool, "file_search")) return responses_read_search(answer, tool, failure);
    if (!type_is(tool, "function")) {
        pass_over(answer);
        return true;
    }
    const char *name = json_word(json_member(tool, "name"));
    if (name == NULL) return refuse(failure, "tools", "a function has a name");
    if (allowed_has(allowed, tool)) put_function(w, tool, name);
    return true;
}

static bool put_all(struct responses_answer *answer, struct json_writer *w,
                    struct failure *failure) {
    const struct json *tools = answer->asked.tools;
    struct allowed allowed;
    bool ok = true;
    allowed_open(&allowed, answer->asked.tool_choice);
    put_key_array(w, "tools");
    for (size_t i = 0; ok && i < json_count(tools); i++)
        ok = put_tool(answer, w, json_item(tools, i), &allowed, failure);
    put_array_end(w);
    put_servers(w, tools);
    lookup_free(&allowed.names);
    return ok;
}

static bool put_choice(struct chat_body *body, const struct json *choice, struct failure *failure) {
    const struct json *mode = choice;
    if (json_is_absent(choice) || type_is(choice, "file_search")) return true;
    if (type_is(choice, "allowed_tools")) mode = json_member(choice, "mode");
    if (type_is(choice, "function") && json_is_text(json_member(choice, "name"))) {
        struct buffer name = {0};
        responses_name_join(&name, json_text(json_member(choice, "namespace")),
                            json_text(json_member(choice, "name")));
        chat_body_put_function(body, (struct text_span){name.data, name.size});
        buffer_free(&name);
        return true;
    }
    if (json_text_is(mode, "auto") || json_text_is(mode, "none") ||
        json_text_is(mode, "required")) {
        put_key_string(&body->w, "tool_choice", json_word(mode));
        return true;
    }
    return refuse(failure, "tool_choice",
                  "must be auto, none, required, {\"type\": \"function\", \"name\": ...} or "
                  "{\"type\": \"allowed_tools\", \"mode\": ..., \"tools\": [...]}");
}

bool responses_put_tools(struct responses_answer *answer, struct chat_body *body,
                         struct failure *failure) {
    const struct json *tools = answer->asked.tools;
    if (!json_is_absent(tools) && !json_is_list(tools))
        return refuse(failure, "tools", "must be an array");
    if (!put_all(answer, &body->w, failure)) return false;
    chat_body_put(body, "parallel_tool_calls", answer->asked.parallel_tool_calls);
    if (type_is(answer->asked.tool_choice, "file_search") && !answer->searches)
        return refuse(failure, "tool_choice", "forces file_search, which is not among the tools");
    if (json_text_is(answer->asked.tool_choice, "none")) answer->searches = false;
    return put_choice(body, answer->asked.tool_choice, failure);
}
