/* server/api/fields/client_fields.c: see client_fields.h. */
#include "server/api/fields/client_fields.h"

/* Answers are texts. */
static bool read_modalities(void *object, const struct json *json,
                            const struct request_limits *limits, struct failure *failure) {
    (void)object, (void)limits;
    if (json_is_list(json) && json_count(json) == 1 && json_text_is(json_item(json, 0), "text"))
        return true;
    return failure_set(failure, 400, "unsupported_parameter", "modalities",
                       "modalities must be [\"text\"]: answers are texts");
}
FIELD_PARSER(parse_modalities, read_modalities)

#define TEXT(field) \
    { field, JSON_PARSED, .parse = field_parse_text, .schema = "{\"type\":\"string\"}" }
#define BOOL(field) \
    { field, JSON_PARSED, .parse = field_parse_bool, .schema = "{\"type\":\"boolean\"}" }
static const struct json_field client_fields[] = {
    /* OpenAI's. */
    TEXT("user"),
    TEXT("service_tier"),
    TEXT("prompt_cache_key"),
    TEXT("safety_identifier"),
    TEXT("verbosity"),
    {"metadata", JSON_PARSED, .parse = field_parse_object, .schema = "{\"type\":\"object\"}"},
    BOOL("store"),
    {"modalities", JSON_PARSED, .parse = parse_modalities, .schema = "{\"const\":[\"text\"]}"},
    /* vLLM's. */
    {"skip_special_tokens", JSON_PARSED, .parse = field_parse_true, .schema = "{\"const\":true}",
     .help = "special tokens are no text"},
    {"spaces_between_special_tokens", JSON_PARSED, .parse = field_parse_true,
     .schema = "{\"const\":true}"},
    {"length_penalty", JSON_NEUTRAL, .min = 1},
    {"priority", JSON_NEUTRAL, .min = 0},
    {.name = "use_beam_search", .type = JSON_MUST_BE_FALSE},
    {.name = "return_tokens_as_token_ids", .type = JSON_MUST_BE_FALSE},
    {.name = "allowed_token_ids", .type = JSON_EMPTY},
    {.name = "bad_words", .type = JSON_EMPTY},
    /* llama.cpp's and Ollama's. */
    BOOL("cache_prompt"),
    {.name = "keep_alive", .type = JSON_IGNORED},
    {.name = "think", .type = JSON_MUST_BE_FALSE},
};
#undef BOOL
#undef TEXT
const struct json_table client_table = JSON_TABLE(client_fields);
