/* server/doors/fields/ollama_fields.c: see ollama_fields.h. */
#include "server/doors/fields/ollama_fields.h"

#define MODEL(struct_name) \
    { \
        "model|name", JSON_RAW, JSON_AT(struct struct_name, model), \
            .schema = DOOR_TEXT, .required = true, \
            .help = "a name of /api/tags; NAME:latest is NAME" \
    }
#define AT(member) JSON_AT(struct ollama_request, member)
static const struct json_field common_fields[] = {
    MODEL(ollama_request),
    DOOR_VALUE("options", AT(options), DOOR_OBJECT,
               "num_predict, temperature, top_k, top_p, min_p, seed, stop, repeat_penalty, "
               "presence_penalty, frequency_penalty; others change nothing"),
    DOOR_VALUE("format", AT(format), "{\"anyOf\":[" DOOR_TEXT "," DOOR_OBJECT "]}",
               "\"json\", or a JSON Schema"),
    DOOR_VALUE("think", AT(think), "{\"anyOf\":[" DOOR_BOOL "," DOOR_TEXT "]}",
               "whether the model thinks first, and how much: a variable of the template"),
    DOOR_VALUE("stream", AT(stream), DOOR_BOOL, "default: true, a line for each part"),
    DOOR_VALUE("keep_alive", AT(keep_alive), DOOR_ANY, "changes nothing: models stay loaded"),
    DOOR_VALUE("retrieval", AT(retrieval), DOOR_OBJECT,
               "as of a chat: passages of the collection, which are not sought without it"),
    DOOR_VALUE("chat_template_kwargs", AT(template_variables), DOOR_OBJECT,
               "variables of the model's template"),
};
static const struct json_table common_table = JSON_TABLE(common_fields);
#define COMMON \
    { .type = JSON_ROWS, .table = &common_table }

static const struct json_field chat_fields[] = {
    COMMON,
    DOOR_VALUE("messages", AT(messages), DOOR_LIST,
               "objects with role, content, images, tool_calls, tool_name, thinking; none: the "
               "answer says that the model is loaded"),
    DOOR_VALUE("tools", AT(tools), DOOR_LIST, "functions that the model may call"),
};
const struct json_table ollama_chat_table = JSON_TABLE(chat_fields, .open = true);

static const struct json_field generate_fields[] = {
    COMMON,
    DOOR_VALUE("prompt", AT(prompt), DOOR_TEXT,
               "what the user says; none: the answer says that the model is loaded"),
    DOOR_VALUE("system", AT(system), DOOR_TEXT, "stands before it"),
    DOOR_VALUE("images", AT(images), DOOR_LIST, "pictures in base64"),
    {"raw", JSON_BOOL, AT(raw), .help = "the prompt is read as it is, without a template"},
    DOOR_REFUSED("suffix", "send prompt and suffix to /v1/completions"),
    DOOR_REFUSED("template", "a model has its own"),
    DOOR_PASSED("context"),
};
const struct json_table ollama_generate_table = JSON_TABLE(generate_fields, .open = true);
#undef AT

#define AT(member) JSON_AT(struct ollama_embed_request, member)
static const struct json_field embed_fields[] = {
    MODEL(ollama_embed_request),
    {"input", JSON_RAW, AT(input), .required = true,
     .schema = "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}",
     .help = "a text, or texts"},
    DOOR_VALUE("dimensions", AT(dimensions), DOOR_WHOLE, "the first numbers of each vector"),
    DOOR_VALUE("truncate", AT(truncate), DOOR_BOOL,
               "false: a text that is too long is refused, and not cut"),
    DOOR_PASSED("options"),
    DOOR_PASSED("keep_alive"),
};
const struct json_table ollama_embed_table = JSON_TABLE(embed_fields, .open = true);

static const struct json_field embeddings_fields[] = {
    MODEL(ollama_embed_request),
    {"prompt", JSON_RAW, AT(prompt), .required = true, .schema = DOOR_TEXT, .help = "a text"},
    DOOR_PASSED("options"),
    DOOR_PASSED("keep_alive"),
};
const struct json_table ollama_embeddings_table = JSON_TABLE(embeddings_fields, .open = true);
#undef AT

static const struct json_field show_fields[] = {MODEL(ollama_show_request), DOOR_PASSED("verbose")};
const struct json_table ollama_show_table = JSON_TABLE(show_fields, .open = true);
