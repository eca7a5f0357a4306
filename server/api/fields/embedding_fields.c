/* server/api/fields/embedding_fields.c: see embedding_fields.h. */
#include "server/api/fields/embedding_fields.h"

#include <stdio.h>

#include <stdlib.h>
#include <string.h>

#include "server/api/core/picture_part.h"

static const struct json_choice formats[] = {
    {"float", EMBEDDING_FLOAT}, {"base64", EMBEDDING_BASE64}, {NULL, 0}};
static const struct json_choice input_types[] = {{"query", INPUT_QUERY},
                                                 {"document", INPUT_DOCUMENT},
                                                 {"search_query", INPUT_QUERY},
                                                 {"search_document", INPUT_DOCUMENT},
                                                 {NULL, 0}};
#define MODEL_ROW \
    { \
        "model", JSON_PARSED, .parse = field_parse_text, .schema = "{\"type\":\"string\"}", \
                              .help = "a name of /v1/models; default: the first embedder" \
    }
#define USER_ROW \
    { \
        "user", JSON_PARSED, .parse = field_parse_text, .schema = "{\"type\":\"string\"}", \
                             .help = "changes nothing" \
    }

/* Embeddings. */

/* A part as messages have it: a text or a picture. */
static bool read_part(struct request_prompt *prompt, const struct json *part, int i,
                      const struct request_limits *limits, struct failure *failure) {
    struct picture_source source;
    char of[40];
    const struct picture_place place = {"input", of, limits->image_hosts};
    snprintf(of, sizeof of, "input %d", i);
    if (json_text_is(json_member(part, "type"), "text") && json_is_text(json_member(part, "text")))
        return prompt_read(prompt, json_member(part, "text"), "input", of, limits, failure);
    if (!picture_part_is(part))
        return failure_set(
            failure, 400, "invalid_type", "input",
            "%s is neither {\"type\": \"text\", \"text\": ...} nor {\"type\": \"image_url\", ...}",
            of);
    if (!picture_part_read(part, &place, &source, failure)) return false;
    prompt->picture = true;
    prompt->web = source.web != NULL;
    prompt->text = prompt->web ? source.web : source.bytes.data;
    prompt->size = prompt->web ? strlen(source.web) : source.bytes.size;
    return true;
}

static bool read_parts(struct prompt_list *out, const struct json *json,
                       const struct request_limits *limits, struct failure *failure) {
    size_t n = json_count(json);
    if (n > (size_t)limits->max_prompts)
        return failure_set(failure, 400, "too_many_prompts", "input",
                           "the request has %zu inputs, the limit is %d (option %s)", n,
                           limits->max_prompts, limits->max_prompts_option);
    out->all = xcalloc(n, sizeof *out->all);
    for (size_t i = 0; i < n; i++) {
        out->n++;
        if (!read_part(&out->all[i], json_item(json, i), (int)i, limits, failure)) return false;
    }
    return true;
}

static bool check_inputs(const struct prompt_list *inputs, const char *field,
                         struct failure *failure) {
    for (int i = 0; i < inputs->n; i++)
        if (inputs->all[i].ids == NULL && inputs->all[i].size == 0)
            return failure_set(failure, 400, "invalid_value", field, "%s %d is an empty text",
                               field, i);
    return true;
}

static bool read_input(void *object, const struct json *json, const struct request_limits *limits,
                       struct failure *failure) {
    struct embedding_request *request = object;
    bool parts = json_is_list(json) && json_kind(json_item(json, 0)) == JSON_KIND_OBJECT;
    if (parts ? !read_parts(&request->inputs, json, limits, failure)
              : !prompts_read(&request->inputs, json, "input", limits, failure))
        return false;
    return check_inputs(&request->inputs, "input", failure);
}
FIELD_PARSER(parse_input, read_input)

/* Texts alone: no embedder that sees pictures is sparse. */
static bool read_inputs(void *object, const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    struct embedding_request *request = object;
    return prompts_read(&request->inputs, json, "inputs", limits, failure) &&
           check_inputs(&request->inputs, "inputs", failure);
}
FIELD_PARSER(parse_inputs, read_inputs)

#define INPUT_SCHEMA \
    "{\"anyOf\":[" PROMPT_SCHEMA \
    ",{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"string\"}}," \
    "{\"type\":\"array\",\"minItems\":1,\"items\":" PROMPT_IDS_SCHEMA \
    "}," \
    "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"type\"]}}]" \
    "}"

#define AT(member) JSON_AT(struct embedding_request, member)
static const struct json_field embedding_fields[] = {
    MODEL_ROW,
    {"input", JSON_PARSED, .parse = parse_input, .schema = INPUT_SCHEMA, .required = true,
     .help = "texts, or token ids of the embedder's own vocabulary, or parts of type text and "
             "image_url"},
    {"encoding_format", JSON_CHOICE, AT(format), .choices = formats,
     .help = "base64: little-endian 32-bit floats"},
    {"dimensions", JSON_INT64, AT(dimensions), .min = 1, .max = INT32_MAX,
     .help = "the first numbers of each vector, brought to unit length"},
    {"input_type", JSON_CHOICE, AT(input_type), .choices = input_types,
     .help = "decides the prompt that the embedder puts before each text"},
    USER_ROW,
    {.name = "truncate_prompt_tokens", .type = JSON_EMPTY},
};
const struct json_table embedding_table = JSON_TABLE(embedding_fields);

/* Those of Text Embeddings Inference, and the embedder's name. */
static const struct json_choice truncation_directions[] = {{"right", 0}, {"Right", 0}, {NULL, 0}};
static const struct json_choice prompt_names[] = {
    {"query", INPUT_QUERY}, {"document", INPUT_DOCUMENT}, {"passage", INPUT_DOCUMENT}, {NULL, 0}};
static const struct json_field embed_sparse_fields[] = {
    MODEL_ROW,
    {"inputs", JSON_PARSED, .parse = parse_inputs, .schema = PROMPTS_SCHEMA, .required = true,
     .help = "texts, or token ids of the embedder's own vocabulary"},
    {"truncate", JSON_BOOL, AT(truncate),
     .help = "a text that is too long loses its end, and is not refused"},
    {"truncation_direction", JSON_CHOICE, AT(truncation), .choices = truncation_directions,
     .help = "the end of a text that truncate takes"},
    {"prompt_name", JSON_CHOICE, AT(input_type), .choices = prompt_names,
     .help = "the prompt that the embedder puts before each text"},
};
#undef AT
const struct json_table embed_sparse_table = JSON_TABLE(embed_sparse_fields);

bool embedding_request_parse(struct embedding_request *request, const struct json_table *table,
                             const char *body, size_t size, const struct request_models *models,
                             struct failure *failure) {
    *request = (struct embedding_request){0};
    return fields_read(table, request, &request->model, (struct text_span){body, size}, models,
                       failure);
}

void embedding_request_free(struct embedding_request *request) {
    free(request->model);
    prompts_free(&request->inputs);
    *request = (struct embedding_request){0};
}

/* Ranking. */

static bool read_rerank_query(void *object, const struct json *json,
                              const struct request_limits *limits, struct failure *failure) {
    struct rerank_request *request = object;
    if (!json_is_text(json))
        return failure_set(failure, 400, "invalid_type", "query", "query must be a string");
    return prompt_read(&request->query, json, "query", "query", limits, failure);
}
FIELD_PARSER(parse_rerank_query, read_rerank_query)

/* A text, or an object with one. */
static bool read_documents(void *object, const struct json *json,
                           const struct request_limits *limits, struct failure *failure) {
    static const char name[] = "documents";
    struct rerank_request *request = object;
    size_t n = json_count(json);
    if (!json_is_list(json) || n == 0)
        return failure_set(failure, 400, "invalid_type", name,
                           "%s must be an array of at least one text", name);
    if (n > (size_t)limits->max_prompts)
        return failure_set(failure, 400, "too_many_prompts", name,
                           "the request has %zu %s, the limit is %d (option %s)", n, name,
                           limits->max_prompts, limits->max_prompts_option);
    request->documents.all = xcalloc(n, sizeof *request->documents.all);
    for (size_t i = 0; i < n; i++) {
        const struct json *item = json_item(json, i), *inner = json_member(item, "text");
        const struct json *text = inner ? inner : item;
        if (!json_is_text(text))
            return failure_set(
                failure, 400, "invalid_type", name,
                "document %zu is neither a string nor an object with a string \"text\"", i);
        request->documents.n++;
        if (!prompt_read(&request->documents.all[i], text, name, "a document", limits, failure))
            return false;
    }
    return true;
}
FIELD_PARSER(parse_documents, read_documents)

#define AT(member) JSON_AT(struct rerank_request, member)
static const struct json_field rerank_fields[] = {
    MODEL_ROW,
    {"query", JSON_PARSED, .parse = parse_rerank_query, .schema = "{\"type\":\"string\"}",
     .required = true, .help = "what the documents are compared with"},
    {"documents", JSON_PARSED, .parse = parse_documents, .required = true,
     .schema = "{\"type\":\"array\",\"minItems\":1,\"items\":{\"anyOf\":[{\"type\":\"string\"},{"
               "\"type\":\"object\","
               "\"required\":[\"text\"],\"properties\":{\"text\":{\"type\":\"string\"}}}]}}",
     .help = "texts, or objects with a text"},
    {"top_n", JSON_INT64, AT(top_n), .min = 1, .max = INT32_MAX,
     .help = "how many results; default: all"},
    {"return_documents", JSON_BOOL, AT(return_documents), .help = "the texts are in the answer"},
    USER_ROW,
};
#undef AT
const struct json_table rerank_table = JSON_TABLE(rerank_fields);

bool rerank_request_parse(struct rerank_request *request, const char *body, size_t size,
                          const struct request_models *models, struct failure *failure) {
    *request = (struct rerank_request){0};
    return fields_read(&rerank_table, request, &request->model, (struct text_span){body, size},
                       models, failure);
}

void rerank_request_free(struct rerank_request *request) {
    free(request->model);
    free(request->query.text);
    free(request->query.ids);
    prompts_free(&request->documents);
    *request = (struct rerank_request){0};
}
