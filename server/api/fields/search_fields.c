/* server/api/fields/search_fields.c: see search_fields.h. */
#include "server/api/fields/search_fields.h"

#include <stdlib.h>

#include "config/base/data_url.h"

static bool read_query(void *object, const struct json *json, const struct request_limits *limits,
                       struct failure *failure) {
    struct search_request *request = object;
    (void)limits;
    if (!json_is_text(json))
        return failure_set(failure, 400, "invalid_type", "query", "query must be a string");
    request->query_size = json_text(json).size;
    request->query = xstrndup(json_text(json).text, request->query_size);
    return true;
}
FIELD_PARSER(parse_query, read_query)

/* A request is no larger than server.max_body_bytes, and neither is a file in it. */
static const size_t MOST_BYTES = (size_t)1 << 30;

static bool read_image(void *object, const struct json *json, const struct request_limits *limits,
                       struct failure *failure) {
    struct search_request *request = object;
    struct text_span type;
    struct buffer file = {0};
    struct error e;
    (void)limits;
    if (!json_is_text(json) || !data_url_is(json_text(json)))
        return failure_set(failure, 400, "invalid_type", "image",
                           "image must be a data: URL, data:image/png;base64,...");
    if (data_url_read(&file, &type, json_text(json), MOST_BYTES, &e)) {
        buffer_free(&file);
        return failure_set(failure, 400, "invalid_value", "image", "image: %s", e.text);
    }
    request->by_picture = true;
    request->query = file.data;
    request->query_size = file.size;
    return true;
}
FIELD_PARSER(parse_image, read_image)

static enum status parse_filter(struct json_reader *reader, const struct json *value,
                                void *object) {
    return field_read_filter(&((struct search_request *)object)->filter, reader, value);
}

#define QUERY_SCHEMA "{\"type\":\"string\",\"minLength\":1}"
static const struct json_field search_fields[] = {
    {"query", JSON_PARSED, .parse = parse_query, .schema = QUERY_SCHEMA,
     .help = "what is searched for"},
    {.type = JSON_ROWS, JSON_AT(struct search_request, choice), .table = &search_choice_table},
    {"filter", JSON_PARSED, .parse = parse_filter, .schema = "{\"type\":\"object\"}",
     .help = "the documents that may be found, by their metadata, id and path"},
    {"boxes", JSON_BOOL, JSON_AT(struct search_request, boxes),
     .help = "tell where on its pages each result stands"},
    {"explain", JSON_BOOL, JSON_AT(struct search_request, explain),
     .help = "tell of each hit what put it where it stands"},
    {"operators", JSON_BOOL, JSON_AT(struct search_request, operators),
     .help = "read operators in the query: \"a phrase\" stands in each hit, -word in none, begin* "
             "is any word that begins so"},
    {"q", JSON_PARSED, .parse = parse_query, .schema = QUERY_SCHEMA,
     .help = "what is searched for"},
};
/* All but the last row for a body, all but the first for a query string. */
enum { SEARCH_FIELDS = ARRAY_COUNT(search_fields) - 1 };
const struct json_table search_body_table = {.fields = search_fields, .count = SEARCH_FIELDS};
const struct json_table search_query_table = {.fields = search_fields + 1, .count = SEARCH_FIELDS};

static const struct json_field picture_fields[] = {
    {"image", JSON_PARSED, .parse = parse_image, .schema = QUERY_SCHEMA,
     .help = "what is searched for: a picture as a data: URL"},
    {.type = JSON_ROWS, JSON_AT(struct search_request, choice), .table = &picture_choice_table},
    {"filter", JSON_PARSED, .parse = parse_filter, .schema = "{\"type\":\"object\"}",
     .help = "the documents that may be found, by their metadata, id and path"},
};
const struct json_table search_picture_table = JSON_TABLE(picture_fields);

static bool read_search(struct search_request *request, const struct json_table *table,
                        const struct json *json, const struct request_limits *limits,
                        struct failure *failure) {
    bool ok = fields_parse(table, request, json, limits, failure);
    retrieval_choice_note(&request->choice, json);
    if (!ok || request->query_size > 0) return ok;
    if (table == &search_picture_table)
        return failure_set(failure, 400, "missing_parameter", "image",
                           "image is missing, or empty");
    return failure_set(failure, 400, "missing_parameter", "query",
                       "query (or q in the query string) is missing");
}

/* Closes the body or query string. */
static bool parse_search(struct search_request *request, const struct json_table *table,
                         struct json *json, const struct request_limits *limits,
                         struct failure *failure) {
    bool ok = read_search(request, table, json, limits, failure);
    json_close(json);
    return ok;
}

bool search_request_read(struct search_request *request, const struct json *json,
                         const struct request_limits *limits, struct failure *failure) {
    *request = (struct search_request){0};
    return read_search(request, &search_body_table, json, limits, failure);
}

static bool parse_body(struct search_request *request, const struct json_table *table,
                       struct text_span body, const struct request_limits *limits,
                       struct failure *failure) {
    struct json *json;
    *request = (struct search_request){0};
    return fields_load(&json, body.text, body.size, limits, failure) &&
           parse_search(request, table, json, limits, failure);
}

bool search_request_parse(struct search_request *request, const char *body, size_t size,
                          const struct request_limits *limits, struct failure *failure) {
    return parse_body(request, &search_body_table, (struct text_span){body, size}, limits, failure);
}

bool search_request_parse_picture(struct search_request *request, const char *body, size_t size,
                                  const struct request_limits *limits, struct failure *failure) {
    return parse_body(request, &search_picture_table, (struct text_span){body, size}, limits,
                      failure);
}

bool search_request_parse_query(struct search_request *request,
                                const struct query_argument *arguments, int n,
                                const struct request_limits *limits, struct failure *failure) {
    struct json *json;
    *request = (struct search_request){0};
    return arguments_load(&json, &search_query_table, arguments, n, failure) &&
           parse_search(request, &search_query_table, json, limits, failure);
}

void search_request_free(struct search_request *request) {
    filter_release(request->filter);
    free(request->query);
    *request = (struct search_request){0};
}
