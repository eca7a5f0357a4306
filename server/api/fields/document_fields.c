/* server/api/fields/document_fields.c: see document_fields.h. */
#include "server/api/fields/document_fields.h"

#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"

/* Values of metadata: what filters can compare. */
static bool is_plain(const struct json *v) {
    enum json_kind kind = json_kind(v);
    return kind == JSON_KIND_TEXT || kind == JSON_KIND_INT || kind == JSON_KIND_REAL || kind == JSON_KIND_BOOL;
}

static bool is_value(const struct json *v) {
    if (!json_is_list(v)) return is_plain(v);
    for (size_t i = 0; i < json_count(v); i++)
        if (!is_plain(json_item(v, i))) return false;
    return true;
}

static bool read_metadata(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct document_request *r = object;
    struct json_writer w;
    (void)l;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return failure_set(f, 400, "invalid_type", "metadata", "metadata must be an object");
    for (struct json_entry it = {0}; json_next(v, &it);)
        if (!is_value(it.value))
            return failure_set(f, 400, "invalid_value", "metadata",
                               "metadata holds numbers, strings, booleans and lists of these");
    put_begin(&w, &r->metadata);
    put_json(&w, v);
    return true;
}
FIELD_PARSER(parse_metadata, read_metadata)

#define AT(member) JSON_AT(struct document_request, member)
static const struct json_field document_fields[] = {
    {"text", JSON_TEXT, AT(text), .required = true, .help = "all of the document's text"},
    {"id", JSON_TEXT, AT(id), .help = "the document's id; default: made of its path, or of its text"},
    {"path", JSON_TEXT, AT(path), .text = "", .help = "its name, as sources show it"},
    {"title", JSON_TEXT, AT(title), .text = "", .help = "its title"},
    {"metadata", JSON_PARSED, .parse = parse_metadata, .schema = "{\"type\":\"object\"}",
     .help = "numbers, strings, booleans and lists of these, by name"},
};
#undef AT
const struct json_table document_table = JSON_TABLE(document_fields);

bool document_request_parse(struct document_request *r, const char *body, size_t size, const struct request_limits *l,
                            struct failure *f) {
    struct json *json;
    *r = (struct document_request){0};
    if (!fields_load(&json, body, size, l, f)) return false;
    bool ok = fields_parse(&document_table, r, json, l, f);
    json_close(json);
    if (ok && r->text[0] == '\0') return failure_set(f, 400, "invalid_value", "text", "text is empty");
    if (ok && r->id && r->id[0] == '\0') return failure_set(f, 400, "invalid_value", "id", "id is empty");
    return ok;
}

void document_request_free(struct document_request *r) {
    buffer_free(&r->metadata);
    json_table_free(&document_table, r);
    *r = (struct document_request){0};
}

static enum status parse_filter(struct json_reader *r, const struct json *value, void *object) {
    return filter_read(&((struct document_list_request *)object)->filter, r, value);
}

#define AT(member) JSON_AT(struct document_list_request, member)
static const struct json_field list_fields[] = {
    {"limit", JSON_INT64, AT(limit), .min = 1, .max = 1000, .fallback = 100, .help = "how many are listed"},
    {"after", JSON_TEXT, AT(after), .help = "the id of the document behind which the list begins"},
    {"prefix", JSON_TEXT, AT(prefix), .help = "only documents whose path begins so"},
    {"filter", JSON_PARSED, .parse = parse_filter, .schema = "{\"type\":\"string\"}",
     .help = "only documents that it allows, as JSON"},
};
#undef AT
const struct json_table document_list_table = JSON_TABLE(list_fields);

bool document_list_parse(struct document_list_request *r, const struct query_argument *arguments, int n,
                         const struct request_limits *l, struct failure *f) {
    struct json *json;
    *r = (struct document_list_request){0};
    if (!arguments_load(&json, &document_list_table, arguments, n, f)) return false;
    bool ok = fields_parse(&document_list_table, r, json, l, f);
    json_close(json);
    return ok;
}

void document_list_free(struct document_list_request *r) {
    json_table_free(&document_list_table, r);
    filter_release(r->filter);
    *r = (struct document_list_request){0};
}
