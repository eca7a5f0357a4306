/* server/api/fields/chat_fields.c: see chat_fields.h. */
#include "server/api/fields/chat_fields.h"

#include <stdlib.h>
#include <string.h>

/* Lists and objects that the template reads. */

static enum status parse_list(struct json_reader *reader, const struct json *value, void *object) {
    (void)object;
    return json_is_list(value) ? STATUS_OK : json_fail_type(reader, "an array", value);
}

static bool read_tools(void *object, const struct json *json, const struct request_limits *limits,
                       struct failure *failure) {
    (void)object, (void)limits;
    if (!json_is_list(json))
        return failure_set(failure, 400, "invalid_type", "tools", "tools must be an array");
    for (size_t i = 0; i < json_count(json); i++) {
        const struct json *tool = json_item(json, i), *function = json_member(tool, "function");
        if (!json_text_is(json_member(tool, "type"), "function") ||
            !json_is_text(json_member(function, "name")))
            return failure_set(
                failure, 400, "invalid_value", "tools",
                "tool %zu must be {\"type\": \"function\", \"function\": {\"name\": ..., ...}}", i);
    }
    return true;
}
FIELD_PARSER(parse_tools, read_tools)

/* {"type": "function", "function": {"name": ...}} */
static bool read_named_tool(struct chat_request *request, const struct json *json,
                            struct failure *failure) {
    request->forces_call = true;
    if (json_text_is(json_member(json, "type"), "function") &&
        json_is_text(json_member(json_member(json, "function"), "name")))
        return true;
    return failure_set(
        failure, 400, "invalid_value", "tool_choice",
        "tool_choice is \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": "
        "{\"name\": ...}}");
}

static bool read_tool_choice(void *object, const struct json *json,
                             const struct request_limits *limits, struct failure *failure) {
    struct chat_request *request = object;
    (void)limits;
    if (json_text_is(json, "auto") || json_text_is(json, "none")) return true;
    request->forces_call = json_text_is(json, "required");
    if (request->forces_call) return true;
    if (json_is_text(json) || json_kind(json) == JSON_KIND_OBJECT)
        return read_named_tool(request, json, failure);
    return failure_set(failure, 400, "invalid_type", "tool_choice",
                       "tool_choice must be a string or an object");
}
FIELD_PARSER(parse_tool_choice, read_tool_choice)

static enum status parse_parallel(struct json_reader *reader, const struct json *value,
                                  void *object) {
    if (json_kind(value) != JSON_KIND_BOOL) return json_fail_type(reader, "true or false", value);
    ((struct chat_request *)object)->one_call = !json_bool(value);
    return STATUS_OK;
}

/* True, or names of servers; or objects that list the tools of them that are wanted. */
static bool read_mcp(void *object, const struct json *json, const struct request_limits *limits,
                     struct failure *failure) {
    struct chat_request *request = object;
    bool good = json_kind(json) == JSON_KIND_BOOL || json_is_list(json);
    (void)limits;
    for (size_t i = 0; good && json_is_list(json) && i < json_count(json); i++) {
        const struct json *one = json_item(json, i), *tools = json_member(one, "tools");
        good = json_is_text(one) || (json_is_text(json_member(one, "server")) &&
                                     (json_is_absent(tools) || json_is_list(tools)));
    }
    if (!good)
        return failure_set(failure, 400, "invalid_value", "mcp",
                           "mcp is true, false, or an array of names of option tools.mcp, or of "
                           "objects {\"server\": name, \"tools\": [names]}");
    request->mcp = json;
    return true;
}
FIELD_PARSER(parse_mcp, read_mcp)

#define AT(member) JSON_AT(struct chat_request, member)
#define LIMIT(member) .limit_offset = offsetof(struct request_limits, member)
#define OBJECTS_SCHEMA "{\"type\":\"array\",\"items\":{\"type\":\"object\"}}"
static const struct json_field chat_fields[] = {
    {"model", JSON_PARSED, .parse = field_parse_text, .schema = "{\"type\":\"string\"}",
     .help = "a name of /v1/models; default: the first"},
    {"messages", JSON_PARSED, .parse = parse_list,
     .schema = "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\"}}",
     .help = "the conversation: objects with role and content"},
    {"max_completion_tokens", JSON_INT64, AT(max_completion_tokens), .min = 1, .max = INT32_MAX,
     .help = "tokens to write; default: as many as the context takes"},
    {"max_tokens", JSON_INT64, AT(max_tokens), .min = 1, .max = INT32_MAX,
     .help = "the older name of the same"},
    {.type = JSON_ROWS, AT(writing), .table = &writing_table},
    {"logprobs", JSON_BOOL, AT(logprobs), .help = "log-probabilities of the answer's tokens"},
    {"top_logprobs", JSON_INT64, AT(top_logprobs), .min = 0, .option = "server.max_logprobs",
     LIMIT(max_logprobs), .help = "and of this many alternatives"},
    {"tools", JSON_PARSED, .parse = parse_tools, .schema = OBJECTS_SCHEMA,
     .help = "functions that the model may call, where its template knows tools"},
    {"tool_choice", JSON_PARSED, .parse = parse_tool_choice,
     .schema = "{\"anyOf\":[{\"enum\":[\"auto\",\"none\",\"required\"]},{\"type\":\"object\","
               "\"required\":[\"type\","
               "\"function\"]}]}",
     .help = "none: the model is not told of the tools; required, or the name of a function: the "
             "answer is a call"},
    {"parallel_tool_calls", JSON_PARSED, .parse = parse_parallel,
     .schema = "{\"type\":\"boolean\"}",
     .help = "false: the answer ends with its first call; true: the model calls as many as it "
             "likes"},
    {"mcp", JSON_PARSED, .parse = parse_mcp,
     .schema = "{\"anyOf\":[{\"type\":\"boolean\"},{\"type\":\"array\"}]}",
     .help = "servers of option tools.mcp whose tools the model may call, which the server itself "
             "carries out: true, their names, or objects with server and tools"},
    {"documents", JSON_PARSED, .parse = parse_list, .schema = OBJECTS_SCHEMA,
     .help = "for templates that know documents"},
    {"chat_template_kwargs", JSON_PARSED, .parse = field_parse_object,
     .schema = "{\"type\":\"object\"}",
     .help = "more variables of the template, as enable_thinking"},
    {"reasoning_effort", JSON_PARSED, .parse = field_parse_text, .schema = "{\"type\":\"string\"}",
     .help = "the template's variable of this name"},
    {"chat_template", JSON_PARSED, .parse = field_parse_text, .schema = "{\"type\":\"string\"}",
     .help = "the name of one of the model's templates, where it has several"},
    {"add_generation_prompt", JSON_PARSED, .parse = field_parse_bool,
     .schema = "{\"type\":\"boolean\"}",
     .help = "false: the model may go on with the last message's speaker"},
    {"continue_final_message", JSON_BOOL, AT(continues),
     .help = "true: the answer goes on with the last message"},
    {.name = "functions", .type = JSON_EMPTY},
    {.name = "function_call", .type = JSON_EMPTY},
    {.name = "audio", .type = JSON_EMPTY},
};
#undef LIMIT
#undef AT
const struct json_table chat_table = JSON_TABLE(chat_fields);

/* A forced call is one of the tools that there are. */
static bool check_tool_choice(const struct chat_request *request, struct failure *failure) {
    const struct json *tools = chat_request_tools(request);
    const struct json *name =
        json_member(json_member(json_member(request->body, "tool_choice"), "function"), "name");
    const char *word = json_word(name);
    if (!request->forces_call) return true;
    for (size_t i = 0; i < json_count(tools); i++) {
        const struct json *tool = json_member(json_member(json_item(tools, i), "function"), "name");
        if (name == NULL || (word && json_text_is(tool, word))) return true;
    }
    return failure_set(failure, 400, "invalid_value", "tool_choice",
                       "tool_choice forces a call of a tool that is not there");
}

/* An agent's turn, which ends with the result of a tool as often as with words of a person, is
 * given passages where it asks for them. */
static void settle_agent(struct chat_request *request) {
    struct request_retrieval *retrieval = &request->writing.retrieval;
    bool asks = json_is_list(request->mcp) || json_bool(request->mcp);
    if (retrieval->given || (json_count(json_member(request->body, "tools")) == 0 && !asks)) return;
    retrieval->choice.enabled = false;
    retrieval->choice.said |= 1U << CHOICE_ENABLED;
}

bool chat_request_settle_tools(struct chat_request *request, struct failure *failure) {
    request->calls_tools = json_count(chat_request_tools(request)) > 0 &&
                           !json_text_is(json_member(request->body, "tool_choice"), "none");
    return check_tool_choice(request, failure);
}

static bool check_chat(struct chat_request *request, struct failure *failure) {
    if (json_is_absent(json_member(request->body, "messages")))
        return failure_set(failure, 400, "missing_parameter", "messages", "messages is missing");
    if (request->top_logprobs > 0 && !request->logprobs)
        return failure_set(failure, 400, "invalid_value", "top_logprobs",
                           "top_logprobs is only for logprobs: true");
    if (request->max_tokens > 0 && request->max_completion_tokens > 0 &&
        request->max_tokens != request->max_completion_tokens)
        return failure_set(failure, 400, "invalid_value", "max_tokens",
                           "max_tokens and max_completion_tokens differ");
    if (request->max_completion_tokens > 0) request->max_tokens = request->max_completion_tokens;
    bool asks = json_is_list(request->mcp) || json_bool(request->mcp);
    if (!asks && !chat_request_settle_tools(request, failure)) return false;
    settle_agent(request);
    return request_writing_check(
        &request->writing, request->max_tokens > 0 ? request->max_tokens : INT32_MAX, failure);
}

bool chat_request_parse(struct chat_request *request, const char *body, size_t size,
                        const struct request_models *models, struct failure *failure) {
    *request = (struct chat_request){0};
    request_writing_init(&request->writing);
    if (!fields_load(&request->body, body, size, models->largest, failure)) return false;
    const struct request_limits *limits =
        model_read(&request->model, request->body, models, failure);
    if (!limits || !fields_parse(&chat_table, request, request->body, limits, failure) ||
        !check_chat(request, failure))
        return false;
    request_writing_defaults(&request->writing, request->body, limits);
    return true;
}

void chat_request_free(struct chat_request *request) {
    json_close(request->body);
    json_close(request->messages);
    json_close(request->tools);
    free(request->model);
    request_writing_free(&request->writing);
    *request = (struct chat_request){0};
}
