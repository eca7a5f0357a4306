/* server/doors/messages/messages_tools.c: the tools of a request, as they are told to the model. */
#include <string.h>

#include "config/base/text.h"
#include "server/api/core/traffic.h"
#include "server/doors/messages/messages.h"

static bool put_tool(struct json_writer *w, const struct json *tool, struct failure *failure) {
    const struct json *schema = json_member(tool, "input_schema");
    if (!json_is_text(json_member(tool, "name")) || json_kind(schema) != JSON_KIND_OBJECT)
        return failure_set(failure, 400, "invalid_value", "tools",
                           "tools: each has a name, and an object as input_schema");
    put_object(w);
    put_key_string(w, "type", "function");
    put_key_object(w, "function");
    for (struct json_entry it = {0}; json_next(tool, &it);) {
        bool described = span_is(it.name, "name") || span_is(it.name, "description") ||
                         span_is(it.name, "strict");
        if (!described || json_is_absent(it.value)) continue;
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, it.value);
    }
    put_key(w, "parameters");
    put_json(w, schema);
    put_object_end(w);
    put_object_end(w);
    return true;
}

/* A server of option tools.mcp by its name: the request never says where it is. */
static bool put_toolset(struct json_writer *w, const struct json *tool, struct failure *failure) {
    const struct json *name = json_member(tool, "mcp_server_name");
    if (!json_is_text(name))
        return failure_set(failure, 400, "invalid_value", "tools",
                           "tools: an mcp_toolset has mcp_server_name, the name of a server of "
                           "option tools.mcp");
    if (!json_is_absent(json_member(tool, "configs")) ||
        !json_is_absent(json_member(tool, "default_config")))
        return failure_set(failure, 400, "unsupported_parameter", "tools",
                           "tools: the tools of an mcp_toolset are those that option tools.mcp "
                           "allows; configs and default_config are not read");
    put_json(w, name);
    return true;
}

static bool put_toolsets(const struct json *tools, struct chat_body *body,
                         struct failure *failure) {
    bool any = false, ok = true;
    for (size_t i = 0; i < json_count(tools); i++)
        any = any || json_text_is(json_member(json_item(tools, i), "type"), "mcp_toolset");
    if (!any) return true;
    put_key_array(&body->w, "mcp");
    for (size_t i = 0; ok && i < json_count(tools); i++)
        if (json_text_is(json_member(json_item(tools, i), "type"), "mcp_toolset"))
            ok = put_toolset(&body->w, json_item(tools, i), failure);
    put_array_end(&body->w);
    return ok;
}

static bool type_begins(const struct json *tool, const char *with) {
    return span_starts_with(json_text(json_member(tool, "type")), with);
}

/* Whether the client lets the model search for tools, and names those that it found. A search that
 * would run at Anthropic finds nothing here. */
static bool client_searches(const struct json *tools) {
    for (size_t i = 0; i < json_count(tools); i++)
        if (type_begins(json_item(tools, i), "tool_search_tool")) return false;
    return true;
}

/* A tool that is found before it is told of, and one that went, are not told to the model. */
static bool is_told(const struct tool_changes *changes, const struct json *tool, bool searches) {
    const struct tool_change *change =
        tool_change_find(changes, json_text(json_member(tool, "name")));
    if (change) return change->is_there && change->definition == NULL;
    return !searches || !json_bool(json_member(tool, "defer_loading"));
}

static bool put_defined(const struct tool_changes *changes, struct json_writer *w,
                        struct failure *failure) {
    for (int i = 0; i < changes->n; i++) {
        const struct tool_change *change = &changes->list[i];
        if (change->is_there && change->definition && !put_tool(w, change->definition, failure))
            return false;
    }
    return true;
}

/* Tools of other types run at Anthropic, or have schemas that only its models know. */
static bool put_tools(struct messages_answer *answer, struct api *api, const struct json *tools,
                      struct chat_body *body, struct failure *failure) {
    bool searches = client_searches(tools);
    int n_passed = 0;
    if (json_is_absent(tools) && answer->changes.n == 0) return true;
    if (!json_is_absent(tools) && !json_is_list(tools))
        return failure_set(failure, 400, "invalid_type", "tools", "tools: must be an array");
    put_key_array(&body->w, "tools");
    for (size_t i = 0; i < json_count(tools); i++) {
        const struct json *tool = json_item(tools, i), *type = json_member(tool, "type");
        bool own = json_is_absent(type) || json_text_is(type, "custom");
        n_passed += !own && !json_text_is(type, "mcp_toolset");
        if (own && is_told(&answer->changes, tool, searches) && !put_tool(&body->w, tool, failure))
            return false;
    }
    if (!put_defined(&answer->changes, &body->w, failure)) return false;
    put_array_end(&body->w);
    traffic_note_passed(api->traffic, "messages", "tool", n_passed);
    return put_toolsets(tools, body, failure);
}

static bool put_choice(const struct json *choice, struct chat_body *body, struct failure *failure) {
    const struct json *type = json_member(choice, "type"), *name = json_member(choice, "name");
    struct json_writer *w = &body->w;
    if (json_is_absent(choice)) return true;
    if (json_bool(json_member(choice, "disable_parallel_tool_use")))
        put_key_bool(w, "parallel_tool_calls", false);
    if (json_text_is(type, "tool") && json_is_text(name)) {
        chat_body_put_function(body, json_text(name));
        return true;
    }
    bool any = json_text_is(type, "any");
    if (any || json_text_is(type, "auto") || json_text_is(type, "none")) {
        put_key_string(w, "tool_choice", any ? "required" : json_word(type));
        return true;
    }
    return failure_set(failure, 400, "invalid_value", "tool_choice",
                       "tool_choice: type must be auto, any, tool with a name, or none");
}

bool messages_put_tools(struct messages_answer *answer, struct api *api,
                        const struct messages_request *asked, struct chat_body *body,
                        struct failure *failure) {
    return put_tools(answer, api, asked->tools, body, failure) &&
           put_choice(asked->tool_choice, body, failure);
}
