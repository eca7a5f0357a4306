/* server/api/fields/document_fields.c: see document_fields.h. */
#include "server/api/fields/document_fields.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "config/json/json_writer.h"
#include "server/api/core/multipart.h"

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
    struct error e;
    if (json_kind(v) != JSON_KIND_OBJECT)
        return failure_set(f, 400, "invalid_type", "metadata", "metadata must be an object");
    for (struct json_entry it = {0}; json_next(v, &it);)
        if (!is_value(it.value))
            return failure_set(f, 400, "invalid_value", "metadata",
                               "metadata holds numbers, strings, booleans and lists of these");
    put_begin(&w, &r->metadata);
    put_json(&w, v);
    if (metadata_fits(v, r->metadata.size, &l->metadata, &e) == STATUS_OK) return true;
    return failure_set(f, 400, "invalid_value", "metadata", "%s", e.text);
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

static bool parse_one(struct document_request *r, const struct json *json, const struct request_limits *l,
                      struct failure *f) {
    if (!fields_parse(&document_table, r, json, l, f)) return false;
    if (r->text[0] == '\0') return failure_set(f, 400, "invalid_value", "text", "text is empty");
    if (r->id && r->id[0] == '\0') return failure_set(f, 400, "invalid_value", "id", "id is empty");
    return true;
}

static void make_room(struct document_requests *r, size_t n) {
    r->list = xcalloc(n, sizeof *r->list);
    r->n = (int)n;
}

static bool parse_list(struct document_requests *r, const struct json *json, const struct request_limits *l,
                       struct failure *f) {
    const struct json *list = json_member(json, "documents");
    size_t n = json_count(list);
    if (!json_is_list(list) || n < 1 || n > DOCUMENTS_OF_REQUEST || json_count(json) != 1)
        return failure_set(f, 400, "invalid_value", "documents",
                           "documents must be a list of 1 to %d documents, and stand alone", DOCUMENTS_OF_REQUEST);
    make_room(r, n);
    r->is_list = true;
    for (size_t i = 0; i < n; i++) {
        const struct json *one = json_item(list, i);
        if (json_kind(one) != JSON_KIND_OBJECT)
            return failure_set(f, 400, "invalid_type", "documents", "documents[%zu] must be an object", i);
        if (!parse_one(&r->list[i], one, l, f)) return false;
    }
    return true;
}

bool document_requests_parse(struct document_requests *r, struct text_span body, const struct request_limits *l,
                             struct failure *f) {
    struct json *json;
    *r = (struct document_requests){0};
    if (!fields_load(&json, body.text, body.size, l, f)) return false;
    bool is_list = json_member(json, "documents") != NULL;
    if (!is_list) make_room(r, 1);
    bool ok = is_list ? parse_list(r, json, l, f) : parse_one(&r->list[0], json, l, f);
    json_close(json);
    return ok;
}

/* Forms. */

static const struct multipart_part *find_part(const struct multipart *m, const char *name) {
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->parts[i].name, name) == 0) return &m->parts[i];
    return NULL;
}

static bool check_part(const struct multipart *m, int i, int n_files, struct failure *f) {
    static const char *const of_one[] = {"id", "path", "title"};
    const struct multipart_part *p = &m->parts[i];
    bool is_file = strcmp(p->name, "file") == 0, known = is_file || strcmp(p->name, "metadata") == 0;
    for (size_t j = 0; j < ARRAY_COUNT(of_one); j++) {
        if (strcmp(p->name, of_one[j]) != 0) continue;
        known = true;
        if (n_files != 1)
            return failure_set(f, 400, "invalid_value", p->name, "%s is of one file, and there are %d", p->name,
                               n_files);
    }
    if (!known)
        return failure_set(f, 400, "unknown_field", p->name,
                           "unknown part \"%.100s\"; file, id, path, title and metadata are known", p->name);
    if (is_file)
        return (p->file_name && p->file_name[0]) ||
               failure_set(f, 400, "invalid_value", "file", "part %d of the body has no filename", i + 1);
    if (find_part(m, p->name) != p) return failure_set(f, 400, "invalid_value", p->name, "%s comes twice", p->name);
    if (!utf8_is_valid(p->body.text, p->body.size) || memchr(p->body.text, 0, p->body.size))
        return failure_set(f, 400, "invalid_value", p->name, "%s is not UTF-8", p->name);
    return true;
}

/* NULL where there is no such part. */
static char *copy_part(const struct multipart *m, const char *name) {
    const struct multipart_part *p = find_part(m, name);
    return p ? xstrndup(p->body.text, p->body.size) : NULL;
}

static bool read_form_metadata(struct document_request *r, const struct multipart *m, const struct request_limits *l,
                               struct failure *f) {
    struct error e;
    struct json *json;
    const struct multipart_part *p = find_part(m, "metadata");
    if (p == NULL) return true;
    if (json_parse(&json, p->body, "metadata", &e))
        return failure_set(f, 400, "invalid_json", "metadata", "%s", e.text);
    bool ok = read_metadata(r, json, l, f);
    json_close(json);
    return ok;
}

static bool fill_form(struct document_requests *r, const struct multipart *m, const struct request_limits *l,
                      struct failure *f) {
    int n_files = 0;
    for (int i = 0; i < m->n; i++) n_files += strcmp(m->parts[i].name, "file") == 0;
    if (n_files == 0) return failure_set(f, 400, "missing_field", "file", "the body has no part \"file\"");
    for (int i = 0; i < m->n; i++)
        if (!check_part(m, i, n_files, f)) return false;

    make_room(r, (size_t)n_files);
    r->is_list = true;
    struct document_request *d = r->list;
    for (int i = 0; i < m->n; i++) {
        const struct multipart_part *p = &m->parts[i];
        if (strcmp(p->name, "file") != 0) continue;
        d->is_file = true;
        buffer_append(&d->file, p->body.text, p->body.size);
        d->id = copy_part(m, "id");
        d->path = copy_part(m, "path");
        if (d->path == NULL || d->path[0] == '\0') {
            free(d->path);
            d->path = xstrdup(p->file_name);
        }
        d->title = copy_part(m, "title");
        if (d->title == NULL) d->title = xstrdup("");
        if (!read_form_metadata(d, m, l, f)) return false;
        if (d->id && d->id[0] == '\0') return failure_set(f, 400, "invalid_value", "id", "id is empty");
        d++;
    }
    return true;
}

bool document_form_parse(struct document_requests *r, const char *content_type, struct text_span body,
                         const struct request_limits *l, struct failure *f) {
    struct error e;
    struct multipart *m = xcalloc(1, sizeof *m);
    *r = (struct document_requests){0};
    bool ok = multipart_parse(m, content_type, body, &e) == STATUS_OK
                  ? fill_form(r, m, l, f)
                  : failure_set(f, 400, "invalid_form", NULL, "%s", e.text);
    multipart_free(m);
    free(m);
    return ok;
}

void document_requests_free(struct document_requests *r) {
    for (int i = 0; i < r->n; i++) {
        buffer_free(&r->list[i].metadata);
        buffer_free(&r->list[i].file);
        json_table_free(&document_table, &r->list[i]);
    }
    free(r->list);
    *r = (struct document_requests){0};
}

static enum status parse_filter(struct json_reader *r, const struct json *value, void *object) {
    return field_read_filter(&((struct document_list_request *)object)->filter, r, value);
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
