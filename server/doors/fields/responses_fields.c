/* server/doors/fields/responses_fields.c: see responses_fields.h. */
#include "server/doors/fields/responses_fields.h"

#define AT(member) JSON_AT(struct responses_request, member)
static const struct json_field asked_fields[] = {
    DOOR_VALUE("model", AT(model), DOOR_TEXT, "a name of /v1/models; default: the first"),
    DOOR_VALUE("input", AT(input), "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}",
               "a text, or items: messages, function_call, function_call_output, reasoning, and "
               "others that come back in a history"),
    DOOR_VALUE("instructions", AT(instructions), DOOR_TEXT, "stand before the input"),
    DOOR_VALUE("previous_response_id", AT(previous), DOOR_TEXT,
               "a response that was stored, which the input goes on from"),
    DOOR_VALUE("tools", AT(tools), DOOR_LIST,
               "functions, also in namespaces, file_search, and mcp with the server_label of a "
               "server of option tools.mcp; tools of types that run elsewhere are passed over"),
    DOOR_VALUE("tool_choice", AT(tool_choice), "{\"anyOf\":[" DOOR_TEXT "," DOOR_OBJECT "]}",
               "auto, none, required, a function by name, or allowed_tools"),
    DOOR_VALUE("parallel_tool_calls", AT(parallel_tool_calls), DOOR_BOOL,
               "false: the answer ends with its first call"),
    DOOR_VALUE("text", AT(text), DOOR_OBJECT,
               "format of type text, json_object or json_schema; verbosity changes nothing"),
    DOOR_VALUE("reasoning", AT(reasoning), DOOR_OBJECT,
               "effort, a variable of the template, none: without thoughts; summary changes "
               "nothing"),
    DOOR_VALUE("truncation", AT(truncation), "{\"enum\":[\"auto\",\"disabled\"]}",
               "auto: the oldest turns go where the context is too short"),
    DOOR_VALUE("retrieval", AT(retrieval), DOOR_OBJECT,
               "as of a chat: passages of the collection, which are not sought without it"),
    DOOR_VALUE("chat_template_kwargs", AT(template_variables), DOOR_OBJECT,
               "variables of the model's template"),
    DOOR_REFUSED("conversation", "conversations are not kept: send previous_response_id"),
    DOOR_REFUSED("prompt", "there are no prompts with ids"),
};
static const struct json_table asked_table = JSON_TABLE(asked_fields);

#define COMMON \
    { .type = JSON_ROWS, .table = &asked_table }
static const struct json_field responses_fields[] = {
    COMMON,
    DOOR_VALUE("max_output_tokens", AT(max_output_tokens), DOOR_WHOLE,
               "tokens to write at most; default: as many as the context takes"),
    DOOR_VALUE("temperature", AT(temperature), DOOR_NUMBER, "0: always the likeliest token"),
    DOOR_VALUE("top_p", AT(top_p), DOOR_NUMBER, "keep the likeliest tokens that sum to this"),
    DOOR_VALUE("top_logprobs", AT(top_logprobs), DOOR_WHOLE,
               "alternatives in log-probabilities, with include message.output_text.logprobs"),
    DOOR_VALUE("stream", AT(stream), DOOR_BOOL, "send events as it is written"),
    DOOR_VALUE("store", AT(store), DOOR_BOOL, "false: the response is not kept"),
    DOOR_VALUE("include", AT(include), DOOR_LIST,
               "message.output_text.logprobs, reasoning.encrypted_content"),
    DOOR_VALUE("metadata", AT(metadata), DOOR_OBJECT, "comes back as it is"),
    {.name = "background", .type = JSON_MUST_BE_FALSE, .help = "answers are written at once"},
    DOOR_PASSED("user"),
    DOOR_PASSED("service_tier"),
    DOOR_PASSED("prompt_cache_key"),
    DOOR_PASSED("prompt_cache_retention"),
    DOOR_PASSED("safety_identifier"),
    DOOR_PASSED("stream_options"),
    DOOR_PASSED("client_metadata"),
};
const struct json_table responses_table = JSON_TABLE(responses_fields, .open = true);

static const struct json_field count_fields[] = {COMMON};
const struct json_table input_tokens_table = JSON_TABLE(count_fields, .open = true);
#undef AT

static const struct json_choice orders[] = {
    {"desc", ORDER_DESCENDS}, {"asc", ORDER_ASCENDS}, {NULL, 0}};
#define AT(member) JSON_AT(struct items_query, member)
static const struct json_field query_fields[] = {
    {"limit", JSON_INT64, AT(limit), .min = 1, .max = 100, .fallback = 20, .help = "items at most"},
    {"order", JSON_CHOICE, AT(ascends), .choices = orders, .help = "desc: the latest first"},
    {"after", JSON_TEXT, AT(after), .help = "the id of the item that those follow"},
};
#undef AT
const struct json_table items_query_table = JSON_TABLE(query_fields, .open = true);
