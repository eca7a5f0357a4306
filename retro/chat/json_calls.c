/* retro/chat/json_calls.c: calls as JSON, {"name": ..., "arguments": {...}}. No type need hold the
 * numbers that a model writes, and names may be doubled: arguments go on as they are spelt. See
 * chat_reply.h. */
#include <string.h>

#include "config/base/text.h"
#include "config/json/json_raw.h"
#include "retro/chat/chat_reply_private.h"

/* The call that comes next, without arguments; NULL: the name is none. */
static struct tool_call *begin_call(struct chat_reply *reply, struct text_span name) {
    if (name.size == 0 || memchr(name.text, '\0', name.size)) return NULL;
    reply->calls =
        xgrow(reply->calls, reply->n_calls, &reply->calls_capacity, sizeof *reply->calls);
    struct tool_call *call = &reply->calls[reply->n_calls];
    reply->n_calls++;
    *call = (struct tool_call){.name = xstrndup(name.text, name.size)};
    return call;
}

bool reply_add_call(struct chat_reply *reply, struct text_span name, struct text_span arguments) {
    bool object = json_check(arguments) == JSON_KIND_OBJECT;
    struct tool_call *call = object ? begin_call(reply, name) : NULL;
    if (call) json_respace(arguments, &call->arguments);
    return call != NULL;
}

/* Adds a call whose arguments are told as a text, which is mostly JSON. Whoever carries out the
 * call says so where it is none, and the model may try again. */
static bool add_told_call(struct chat_reply *reply, struct text_span name, struct text_span told) {
    if (reply_add_call(reply, name, told)) return true;
    struct tool_call *call = begin_call(reply, name);
    if (call) buffer_append(&call->arguments, told.text, told.size);
    return call != NULL;
}

/* The values of a call's members; {NULL, 0}: there is none. */
struct call_members {
    struct text_span name, arguments, parameters;
};

/* Of doubled members the last counts, as most readers of JSON have it. */
static struct call_members find_members(struct text_span call) {
    struct call_members members = {0};
    struct json_walk walk = json_walk_begin(call);
    for (struct text_span name, value; json_walk_next(&walk, &name, &value);) {
        if (json_token_is(name, "name"))
            members.name = value;
        else if (json_token_is(name, "arguments"))
            members.arguments = value;
        else if (json_token_is(name, "parameters"))
            members.parameters = value;
    }
    return members;
}

/* The text that a string token means, for the caller to close; NULL: the value is no string. */
static struct json *read_token(struct text_span value) {
    struct json *text = NULL;
    struct error ignored;
    if (span_starts_with(value, "\"")) json_parse_any(&text, value, "call", &ignored);
    return text;
}

/* {NAME: {...}} */
static bool read_keyed_call(struct chat_reply *reply, struct text_span call) {
    struct json_walk walk = json_walk_begin(call);
    struct text_span key, arguments, more, value;
    if (!json_walk_next(&walk, &key, &arguments) || json_walk_next(&walk, &more, &value))
        return false;
    struct json *name = read_token(key);
    bool good = reply_add_call(reply, json_text(name), arguments);
    json_close(name);
    return good;
}

static bool read_json_call(struct chat_reply *reply, struct text_span call) {
    static const char none[] = "{}";
    struct call_members members = find_members(call);
    struct text_span given = members.arguments.size ? members.arguments : members.parameters,
                     arguments = {none, sizeof none - 1};
    struct json *name = read_token(members.name), *told = read_token(given);
    if (span_starts_with(given, "{")) arguments = given;
    bool tells = trim_blanks(json_text(told)).size > 0;
    bool good = tells ? add_told_call(reply, json_text(name), json_text(told))
                      : reply_add_call(reply, json_text(name), arguments);
    json_close(name);
    json_close(told);
    return good;
}

bool json_calls_read(struct chat_reply *reply, struct text_span span) {
    int before = reply->n_calls;
    enum json_kind kind = json_check(span);
    struct json_walk walk = json_walk_begin(span);
    bool good = kind == JSON_KIND_LIST;
    if (kind == JSON_KIND_OBJECT) return read_json_call(reply, span);
    for (struct text_span name, call; good && json_walk_next(&walk, &name, &call);)
        good = span_starts_with(call, "{") &&
               (reply->format == CALLS_APERTUS ? read_keyed_call(reply, call)
                                               : read_json_call(reply, call));
    while (!good && reply->n_calls > before) chat_reply_drop_call(reply);
    return reply->n_calls > before;
}
