/* server/doors/fields/messages_fields.c: see messages_fields.h. */
#include "server/doors/fields/messages_fields.h"

#define AT(member) JSON_AT(struct messages_request, member)
#define SPOKEN "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}"
static const struct json_field asked_fields[] = {
    {"model", JSON_RAW, AT(model), .schema = DOOR_TEXT, .required = true,
     .help = "a name of /v1/models"},
    {"messages", JSON_RAW, AT(messages), .schema = DOOR_LIST, .required = true,
     .help = "the conversation: user, assistant, and system where it stands; content is a text or "
             "blocks of text, image, document, search_result, tool_use, tool_result, thinking"},
    DOOR_VALUE("system", AT(system), SPOKEN, "stands before the conversation: a text or blocks"),
    DOOR_VALUE("tools", AT(tools), DOOR_LIST,
               "functions by name, description and input_schema; mcp_toolset with the "
               "mcp_server_name of a server of option tools.mcp; others are passed over"),
    DOOR_VALUE("tool_choice", AT(tool_choice), DOOR_OBJECT,
               "type auto, any, tool with a name, or none; disable_parallel_tool_use"),
    DOOR_VALUE("thinking", AT(thinking), DOOR_OBJECT,
               "type enabled, adaptive or disabled; budget_tokens changes nothing"),
    DOOR_VALUE("output_config", AT(output_config), DOOR_OBJECT,
               "format of type json_schema; effort, a variable of the template"),
    DOOR_VALUE("output_format", AT(output_format), DOOR_OBJECT,
               "the older name of output_config.format"),
    DOOR_VALUE("retrieval", AT(retrieval), DOOR_OBJECT,
               "as of a chat: passages of the collection, which are not sought without it"),
    DOOR_VALUE("chat_template_kwargs", AT(template_variables), DOOR_OBJECT,
               "variables of the model's template"),
    DOOR_PASSED("cache_control"),
    DOOR_PASSED("metadata"),
    DOOR_PASSED("service_tier"),
    DOOR_PASSED("context_management"),
    DOOR_REFUSED("mcp_servers",
                 "addresses in requests are not called: tools of type mcp_toolset name a server of "
                 "option tools.mcp"),
    DOOR_REFUSED("container", "there is no code execution"),
};
static const struct json_table asked_table = JSON_TABLE(asked_fields);

#define COMMON \
    { .type = JSON_ROWS, .table = &asked_table }
static const struct json_field messages_fields[] = {
    COMMON,
    {"max_tokens", JSON_INT64, AT(max_tokens), .min = 1, .max = INT32_MAX, .required = true,
     .help = "tokens to write at most"},
    DOOR_VALUE("stop_sequences", AT(stop_sequences), "{\"type\":\"array\",\"items\":" DOOR_TEXT "}",
               "texts that end the answer"),
    DOOR_VALUE("stream", AT(stream), DOOR_BOOL, "send events as it is written"),
    DOOR_VALUE("temperature", AT(temperature), DOOR_NUMBER, "0: always the likeliest token"),
    DOOR_VALUE("top_p", AT(top_p), DOOR_NUMBER, "keep the likeliest tokens that sum to this"),
    DOOR_VALUE("top_k", AT(top_k), DOOR_WHOLE, "keep this many tokens"),
};
const struct json_table messages_table = JSON_TABLE(messages_fields, .open = true);

static const struct json_field count_fields[] = {COMMON};
const struct json_table count_tokens_table = JSON_TABLE(count_fields, .open = true);
