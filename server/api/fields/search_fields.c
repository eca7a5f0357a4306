/* server/api/fields/search_fields.c: see search_fields.h. */
#include "server/api/fields/search_fields.h"

#include <stdlib.h>

#include "config/base/data_url.h"

static bool read_query(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct search_request *r = object;
    (void)l;
    if (!json_is_text(v)) return failure_set(f, 400, "invalid_type", "query", "query must be a string");
    r->query_size = json_text(v).size;
    r->query = xstrndup(json_text(v).text, r->query_size);
    return true;
}
FIELD_PARSER(parse_query, read_query)

/* A request is no larger than server.max_body_bytes, and neither is a file in it. */
static const size_t MOST_BYTES = (size_t)1 << 30;

static bool read_image(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct search_request *r = object;
    struct text_span type;
    struct buffer file = {0};
    struct error e;
    (void)l;
    if (!json_is_text(v) || !data_url_is(json_text(v)))
        return failure_set(f, 400, "invalid_type", "image", "image must be a data: URL, data:image/png;base64,...");
    if (data_url_read(&file, &type, json_text(v), MOST_BYTES, &e)) {
        buffer_free(&file);
        return failure_set(f, 400, "invalid_value", "image", "image: %s", e.text);
    }
    r->by_picture = true;
    r->query = file.data;
    r->query_size = file.size;
    return true;
}
FIELD_PARSER(parse_image, read_image)

static enum status parse_filter(struct json_reader *r, const struct json *value, void *object) {
    return field_read_filter(&((struct search_request *)object)->filter, r, value);
}

#define QUERY_SCHEMA "{\"type\":\"string\",\"minLength\":1}"
static const struct json_field search_fields[] = {
    {"query", JSON_PARSED, .parse = parse_query, .schema = QUERY_SCHEMA, .help = "what is searched for"},
    {.type = JSON_ROWS, JSON_AT(struct search_request, choice), .table = &search_choice_table},
    {"filter", JSON_PARSED, .parse = parse_filter, .schema = "{\"type\":\"object\"}",
     .help = "the documents that may be found, by their metadata, id and path"},
    {"q", JSON_PARSED, .parse = parse_query, .schema = QUERY_SCHEMA, .help = "what is searched for"},
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

/* Closes the body or query string. */
static bool parse_search(struct search_request *r, const struct json_table *t, struct json *json,
                         const struct request_limits *l, struct failure *f) {
    bool ok = fields_parse(t, r, json, l, f);
    retrieval_choice_note(&r->choice, json);
    json_close(json);
    if (!ok || r->query_size > 0) return ok;
    if (t == &search_picture_table)
        return failure_set(f, 400, "missing_parameter", "image", "image is missing, or empty");
    return failure_set(f, 400, "missing_parameter", "query", "query (or q in the query string) is missing");
}

static bool parse_body(struct search_request *r, const struct json_table *t, struct text_span body,
                       const struct request_limits *l, struct failure *f) {
    struct json *json;
    *r = (struct search_request){0};
    return fields_load(&json, body.text, body.size, l, f) && parse_search(r, t, json, l, f);
}

bool search_request_parse(struct search_request *r, const char *body, size_t size, const struct request_limits *l,
                          struct failure *f) {
    return parse_body(r, &search_body_table, (struct text_span){body, size}, l, f);
}

bool search_request_parse_picture(struct search_request *r, const char *body, size_t size,
                                  const struct request_limits *l, struct failure *f) {
    return parse_body(r, &search_picture_table, (struct text_span){body, size}, l, f);
}

bool search_request_parse_query(struct search_request *r, const struct query_argument *arguments, int n,
                                const struct request_limits *l, struct failure *f) {
    struct json *json;
    *r = (struct search_request){0};
    return arguments_load(&json, &search_query_table, arguments, n, f) &&
           parse_search(r, &search_query_table, json, l, f);
}

void search_request_free(struct search_request *r) {
    filter_release(r->filter);
    free(r->query);
    *r = (struct search_request){0};
}
