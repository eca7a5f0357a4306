/* server/api/fields/embedding_fields.c: see embedding_fields.h. */
#include "server/api/fields/embedding_fields.h"

#include <stdio.h>

#include <stdlib.h>
#include <string.h>

#include "server/api/core/picture_part.h"

static const struct json_choice formats[] = {{"float", EMBEDDING_FLOAT}, {"base64", EMBEDDING_BASE64}, {NULL, 0}};
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
    { "user", JSON_PARSED, .parse = field_parse_text, .schema = "{\"type\":\"string\"}", .help = "changes nothing" }

/* Embeddings. */

/* A part as messages have it: a text or a picture. */
static bool read_part(struct request_prompt *p, const struct json *part, int i, const struct request_limits *l,
                      struct failure *f) {
    struct picture_source source;
    char of[40];
    const struct picture_place place = {"input", of, l->image_hosts};
    snprintf(of, sizeof of, "input %d", i);
    if (json_text_is(json_member(part, "type"), "text") && json_is_text(json_member(part, "text")))
        return prompt_read(p, json_member(part, "text"), "input", of, l, f);
    if (!picture_part_is(part))
        return failure_set(f, 400, "invalid_type", "input",
                           "%s is neither {\"type\": \"text\", \"text\": ...} nor {\"type\": \"image_url\", ...}", of);
    if (!picture_part_read(part, &place, &source, f)) return false;
    p->picture = true;
    p->web = source.web != NULL;
    p->text = p->web ? source.web : source.bytes.data;
    p->size = p->web ? strlen(source.web) : source.bytes.size;
    return true;
}

static bool read_parts(struct prompt_list *out, const struct json *v, const struct request_limits *l,
                       struct failure *f) {
    size_t n = json_count(v);
    if (n > (size_t)l->max_prompts)
        return failure_set(f, 400, "too_many_prompts", "input",
                           "the request has %zu inputs, the limit is %d (option %s)", n, l->max_prompts,
                           l->max_prompts_option);
    out->all = xcalloc(n, sizeof *out->all);
    for (size_t i = 0; i < n; i++) {
        out->n++;
        if (!read_part(&out->all[i], json_item(v, i), (int)i, l, f)) return false;
    }
    return true;
}

static bool read_input(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct embedding_request *r = object;
    bool parts = json_is_list(v) && json_kind(json_item(v, 0)) == JSON_KIND_OBJECT;
    if (parts ? !read_parts(&r->inputs, v, l, f) : !prompts_read(&r->inputs, v, "input", l, f)) return false;
    for (int i = 0; i < r->inputs.n; i++)
        if (r->inputs.all[i].ids == NULL && r->inputs.all[i].size == 0)
            return failure_set(f, 400, "invalid_value", "input", "input %d is an empty text", i);
    return true;
}
FIELD_PARSER(parse_input, read_input)

#define INPUT_SCHEMA \
    "{\"anyOf\":[" PROMPT_SCHEMA \
    ",{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"string\"}}," \
    "{\"type\":\"array\",\"minItems\":1,\"items\":" PROMPT_IDS_SCHEMA \
    "}," \
    "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"type\"]}}]}"

#define AT(member) JSON_AT(struct embedding_request, member)
static const struct json_field embedding_fields[] = {
    MODEL_ROW,
    {"input", JSON_PARSED, .parse = parse_input, .schema = INPUT_SCHEMA, .required = true,
     .help = "texts, or token ids of the embedder's own vocabulary, or parts of type text and image_url"},
    {"encoding_format", JSON_CHOICE, AT(format), .choices = formats, .help = "base64: little-endian 32-bit floats"},
    {"dimensions", JSON_INT64, AT(dimensions), .min = 1, .max = INT32_MAX,
     .help = "the first numbers of each vector, brought to unit length"},
    {"input_type", JSON_CHOICE, AT(input_type), .choices = input_types,
     .help = "decides the prompt that the embedder puts before each text"},
    USER_ROW,
    {.name = "truncate_prompt_tokens", .type = JSON_EMPTY},
};
#undef AT
const struct json_table embedding_table = JSON_TABLE(embedding_fields);

bool embedding_request_parse(struct embedding_request *r, const char *body, size_t size,
                             const struct request_models *models, struct failure *f) {
    *r = (struct embedding_request){0};
    return fields_read(&embedding_table, r, &r->model, (struct text_span){body, size}, models, f);
}

void embedding_request_free(struct embedding_request *r) {
    free(r->model);
    prompts_free(&r->inputs);
    *r = (struct embedding_request){0};
}

/* Ranking. */

static bool read_rerank_query(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct rerank_request *r = object;
    if (!json_is_text(v)) return failure_set(f, 400, "invalid_type", "query", "query must be a string");
    return prompt_read(&r->query, v, "query", "query", l, f);
}
FIELD_PARSER(parse_rerank_query, read_rerank_query)

/* A text, or an object with one. */
static bool read_documents(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    static const char name[] = "documents";
    struct rerank_request *r = object;
    size_t n = json_count(v);
    if (!json_is_list(v) || n == 0)
        return failure_set(f, 400, "invalid_type", name, "%s must be an array of at least one text", name);
    if (n > (size_t)l->max_prompts)
        return failure_set(f, 400, "too_many_prompts", name, "the request has %zu %s, the limit is %d (option %s)", n,
                           name, l->max_prompts, l->max_prompts_option);
    r->documents.all = xcalloc(n, sizeof *r->documents.all);
    for (size_t i = 0; i < n; i++) {
        const struct json *item = json_item(v, i), *inner = json_member(item, "text");
        const struct json *text = inner ? inner : item;
        if (!json_is_text(text))
            return failure_set(f, 400, "invalid_type", name,
                               "document %zu is neither a string nor an object with a string \"text\"", i);
        r->documents.n++;
        if (!prompt_read(&r->documents.all[i], text, name, "a document", l, f)) return false;
    }
    return true;
}
FIELD_PARSER(parse_documents, read_documents)

#define AT(member) JSON_AT(struct rerank_request, member)
static const struct json_field rerank_fields[] = {
    MODEL_ROW,
    {"query", JSON_PARSED, .parse = parse_rerank_query, .schema = "{\"type\":\"string\"}", .required = true,
     .help = "what the documents are compared with"},
    {"documents", JSON_PARSED, .parse = parse_documents, .required = true,
     .schema = "{\"type\":\"array\",\"minItems\":1,\"items\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"object\","
               "\"required\":[\"text\"],\"properties\":{\"text\":{\"type\":\"string\"}}}]}}",
     .help = "texts, or objects with a text"},
    {"top_n", JSON_INT64, AT(top_n), .min = 1, .max = INT32_MAX, .help = "how many results; default: all"},
    {"return_documents", JSON_BOOL, AT(return_documents), .help = "the texts are in the answer"},
    USER_ROW,
};
#undef AT
const struct json_table rerank_table = JSON_TABLE(rerank_fields);

bool rerank_request_parse(struct rerank_request *r, const char *body, size_t size, const struct request_models *models,
                          struct failure *f) {
    *r = (struct rerank_request){0};
    return fields_read(&rerank_table, r, &r->model, (struct text_span){body, size}, models, f);
}

void rerank_request_free(struct rerank_request *r) {
    free(r->model);
    free(r->query.text);
    free(r->query.ids);
    prompts_free(&r->documents);
    *r = (struct rerank_request){0};
}
