/* server/api/fields/token_fields.c: see token_fields.h. */
#include "server/api/fields/token_fields.h"

#include <stdlib.h>

#define TEXT_SCHEMA "{\"type\":\"string\"}"

static bool text_read(struct tokenize_request *request, const struct json *json, const char *name,
                      const struct request_limits *limits, struct failure *failure) {
    if (!json_is_text(json))
        return failure_set(failure, 400, "invalid_type", name, "%s must be a string", name);
    if (request->has_prompt || request->has_content)
        return failure_set(failure, 400, "invalid_value", name,
                           "prompt and content are the same: send one of them");
    return prompt_read(&request->prompt, json, name, name, limits, failure);
}

static bool read_tokenized_prompt(void *object, const struct json *json,
                                  const struct request_limits *limits, struct failure *failure) {
    struct tokenize_request *request = object;
    bool ok = text_read(request, json, "prompt", limits, failure);
    request->has_prompt = true;
    return ok;
}
FIELD_PARSER(parse_tokenized_prompt, read_tokenized_prompt)

static bool read_content(void *object, const struct json *json, const struct request_limits *limits,
                         struct failure *failure) {
    struct tokenize_request *request = object;
    bool ok = text_read(request, json, "content", limits, failure);
    request->has_content = true;
    return ok;
}
FIELD_PARSER(parse_content, read_content)

static enum status parse_add_special(struct json_reader *reader, const struct json *value,
                                     void *object) {
    if (json_kind(value) != JSON_KIND_BOOL) return json_fail_type(reader, "true or false", value);
    ((struct tokenize_request *)object)->add_special = json_bool(value);
    return STATUS_OK;
}

#define AT(member) JSON_AT(struct tokenize_request, member)
static const struct json_field tokenize_fields[] = {
    {"model", JSON_PARSED, .parse = field_parse_text, .schema = TEXT_SCHEMA,
     .help = "a name of /v1/models; default: the first"},
    {"prompt", JSON_PARSED, .parse = parse_tokenized_prompt, .schema = TEXT_SCHEMA,
     .help = "the text"},
    {"content", JSON_PARSED, .parse = parse_content, .schema = TEXT_SCHEMA,
     .help = "the text, in place of prompt"},
    {"add_special_tokens|add_special", JSON_PARSED, .parse = parse_add_special,
     .schema = "{\"type\":\"boolean\"}",
     .help = "tokens that begin or end a text; default: true with prompt, false with content"},
    {"parse_special", JSON_BOOL, AT(parse_special), .fallback = 1,
     .help = "special tokens in the text are tokens"},
    {"return_token_strs", JSON_BOOL, AT(return_strings),
     .help = "token_strs has the tokens' texts"},
    {"with_pieces", JSON_BOOL, AT(with_pieces), .help = "tokens has objects of id and piece"},
};
#undef AT
const struct json_table tokenize_table = JSON_TABLE(tokenize_fields);

bool tokenize_request_parse(struct tokenize_request *request, const char *body, size_t size,
                            const struct request_models *models, struct failure *failure) {
    *request = (struct tokenize_request){.add_special = -1};
    struct text_span text = {body, size};
    if (!fields_read(&tokenize_table, request, &request->model, text, models, failure))
        return false;
    if (request->has_prompt || request->has_content) return true;
    return failure_set(failure, 400, "missing_parameter", "prompt", "prompt is missing");
}

void tokenize_request_free(struct tokenize_request *request) {
    free(request->model);
    free(request->prompt.text);
    free(request->prompt.ids);
    *request = (struct tokenize_request){0};
}

static bool read_tokens(void *object, const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    struct detokenize_request *request = object;
    if (!json_is_list(json))
        return failure_set(failure, 400, "invalid_type", "tokens",
                           "tokens must be an array of token ids");
    return ids_read(&request->tokens, json, "tokens", "tokens", limits, failure);
}
FIELD_PARSER(parse_tokens, read_tokens)

static const struct json_field detokenize_fields[] = {
    {"model", JSON_PARSED, .parse = field_parse_text, .schema = TEXT_SCHEMA,
     .help = "a name of /v1/models; default: the first"},
    {"tokens", JSON_PARSED, .parse = parse_tokens, .required = true,
     .schema = "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}}",
     .help = "token ids"},
};
const struct json_table detokenize_table = JSON_TABLE(detokenize_fields);

bool detokenize_request_parse(struct detokenize_request *request, const char *body, size_t size,
                              const struct request_models *models, struct failure *failure) {
    *request = (struct detokenize_request){0};
    return fields_read(&detokenize_table, request, &request->model, (struct text_span){body, size},
                       models, failure);
}

void detokenize_request_free(struct detokenize_request *request) {
    free(request->model);
    free(request->tokens.ids);
    *request = (struct detokenize_request){0};
}
