/* server/api/fields/document_fields.c: see document_fields.h. */
#include "server/api/fields/document_fields.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"
#include "config/json/json_writer.h"
#include "server/api/core/multipart.h"

/* Values of metadata: what filters can compare. */
static bool is_plain(const struct json *json) {
    enum json_kind kind = json_kind(json);
    return kind == JSON_KIND_TEXT || kind == JSON_KIND_INT || kind == JSON_KIND_REAL ||
           kind == JSON_KIND_BOOL;
}

static bool is_value(const struct json *json) {
    if (!json_is_list(json)) return is_plain(json);
    for (size_t i = 0; i < json_count(json); i++)
        if (!is_plain(json_item(json, i))) return false;
    return true;
}

static bool read_metadata(void *object, const struct json *json,
                          const struct request_limits *limits, struct failure *failure) {
    struct document_request *request = object;
    struct json_writer w;
    struct error e;
    if (json_kind(json) != JSON_KIND_OBJECT)
        return failure_set(failure, 400, "invalid_type", "metadata", "metadata must be an object");
    for (struct json_entry it = {0}; json_next(json, &it);)
        if (it.name.size > 0 && it.name.text[0] == '$')
            return failure_set(failure, 400, "invalid_value", "metadata",
                               "metadata: names that begin with $ are the server's own");
    for (struct json_entry it = {0}; json_next(json, &it);)
        if (!is_value(it.value))
            return failure_set(failure, 400, "invalid_value", "metadata",
                               "metadata holds numbers, strings, booleans and lists of these");
    put_begin(&w, &request->metadata);
    put_json(&w, json);
    if (metadata_fits(json, request->metadata.size, &limits->metadata, &e) == STATUS_OK)
        return true;
    return failure_set(failure, 400, "invalid_value", "metadata", "%s", e.text);
}
FIELD_PARSER(parse_metadata, read_metadata)

#define AT(member) JSON_AT(struct document_request, member)
static const struct json_field document_fields[] = {
    {"text", JSON_TEXT, AT(text), .required = true, .help = "all of the document's text"},
    {"id", JSON_TEXT, AT(id),
     .help = "the document's id; default: made of its path, or of its text"},
    {"path", JSON_TEXT, AT(path), .text = "", .help = "its name, as sources show it"},
    {"title", JSON_TEXT, AT(title), .text = "", .help = "its title"},
    {"metadata", JSON_PARSED, .parse = parse_metadata, .schema = "{\"type\":\"object\"}",
     .help = "numbers, strings, booleans and lists of these, by name"},
};
const struct json_table document_table = JSON_TABLE(document_fields);

static const char wait_help[] =
    "false: the answer comes at once, and is a job, which GET /v1/jobs/ID tells of";
static const struct json_field body_fields[] = {
    {.type = JSON_ROWS, .offset = 0, .table = &document_table},
    {"wait", JSON_BOOL, AT(wait), .fallback = 1, .help = wait_help},
};
#undef AT
const struct json_table document_body_table = JSON_TABLE(body_fields);

static bool parse_one(const struct json_table *table, struct document_request *request,
                      const struct json *json, const struct request_limits *limits,
                      struct failure *failure) {
    if (!fields_parse(table, request, json, limits, failure)) return false;
    if (request->text[0] == '\0')
        return failure_set(failure, 400, "invalid_value", "text", "text is empty");
    if (request->id && request->id[0] == '\0')
        return failure_set(failure, 400, "invalid_value", "id", "id is empty");
    return true;
}

static void make_room(struct document_requests *requests, size_t n) {
    requests->list = xcalloc(n, sizeof *requests->list);
    requests->n = (int)n;
}

static bool parse_list(struct document_requests *requests, const struct json *json,
                       const struct request_limits *limits, struct failure *failure) {
    const struct json *list = json_member(json, "documents"), *wait = json_member(json, "wait");
    size_t n = json_count(list);
    if (wait && json_kind(wait) != JSON_KIND_BOOL)
        return failure_set(failure, 400, "invalid_type", "wait", "wait must be true or false");
    if (!json_is_list(list) || n < 1 || n > DOCUMENTS_OF_REQUEST ||
        json_count(json) != (wait ? 2 : 1))
        return failure_set(failure, 400, "invalid_value", "documents",
                           "documents must be a list of 1 to %d documents, and stand alone, or "
                           "with wait",
                           DOCUMENTS_OF_REQUEST);
    requests->wait = wait == NULL || json_bool(wait);
    make_room(requests, n);
    requests->is_list = true;
    for (size_t i = 0; i < n; i++) {
        const struct json *one = json_item(list, i);
        if (json_kind(one) != JSON_KIND_OBJECT)
            return failure_set(failure, 400, "invalid_type", "documents",
                               "documents[%zu] must be an object", i);
        if (!parse_one(&document_table, &requests->list[i], one, limits, failure)) return false;
    }
    return true;
}

static bool parse_single(struct document_requests *requests, const struct json *json,
                         const struct request_limits *limits, struct failure *failure) {
    make_room(requests, 1);
    if (!parse_one(&document_body_table, &requests->list[0], json, limits, failure)) return false;
    requests->wait = requests->list[0].wait;
    return true;
}

bool document_requests_parse(struct document_requests *requests, struct text_span body,
                             const struct request_limits *limits, struct failure *failure) {
    struct json *json;
    *requests = (struct document_requests){0};
    if (!fields_load(&json, body.text, body.size, limits, failure)) return false;
    bool ok = json_member(json, "documents") ? parse_list(requests, json, limits, failure)
                                             : parse_single(requests, json, limits, failure);
    json_close(json);
    return ok;
}

/* Forms. */

static const struct multipart_part *find_part(const struct multipart *multipart, const char *name) {
    for (int i = 0; i < multipart->n; i++)
        if (strcmp(multipart->parts[i].name, name) == 0) return &multipart->parts[i];
    return NULL;
}

/* Two files of one name: both would be the document of that path, and only one would stay. */
static bool check_file(const struct multipart *multipart, int i, struct failure *failure) {
    const char *name = multipart->parts[i].file_name;
    if (name == NULL || name[0] == '\0')
        return failure_set(failure, 400, "invalid_value", "file",
                           "part %d of the body has no filename", i + 1);
    for (int before = 0; before < i; before++) {
        const struct multipart_part *part = &multipart->parts[before];
        if (strcmp(part->name, "file") == 0 && strcmp(part->file_name, name) == 0)
            return failure_set(failure, 400, "invalid_value", "file",
                               "parts %d and %d of the body are both called \"%.200s\", and the "
                               "second would replace the first; a filename may be a path",
                               before + 1, i + 1, name);
    }
    return true;
}

static bool check_part(const struct multipart *multipart, int i, int n_files,
                       struct failure *failure) {
    static const char *const of_one[] = {"id", "path", "title"};
    const struct multipart_part *part = &multipart->parts[i];
    bool is_file = strcmp(part->name, "file") == 0,
         known = is_file || strcmp(part->name, "metadata") == 0 || strcmp(part->name, "wait") == 0;
    for (size_t j = 0; j < ARRAY_COUNT(of_one); j++) {
        if (strcmp(part->name, of_one[j]) != 0) continue;
        known = true;
        if (n_files != 1)
            return failure_set(failure, 400, "invalid_value", part->name,
                               "%s is of one file, and there are %d", part->name, n_files);
    }
    if (!known)
        return failure_set(failure, 400, "unknown_parameter", part->name,
                           "unknown part \"%.100s\"; file, id, path, title, metadata and wait are "
                           "known",
                           part->name);
    if (is_file) return check_file(multipart, i, failure);
    if (find_part(multipart, part->name) != part)
        return failure_set(failure, 400, "invalid_value", part->name, "%s comes twice", part->name);
    if (!utf8_is_valid(part->body.text, part->body.size) ||
        memchr(part->body.text, 0, part->body.size))
        return failure_set(failure, 400, "invalid_value", part->name, "%s is not UTF-8",
                           part->name);
    return true;
}

/* NULL where there is no such part. */
static char *copy_part(const struct multipart *multipart, const char *name) {
    const struct multipart_part *part = find_part(multipart, name);
    return part ? xstrndup(part->body.text, part->body.size) : NULL;
}

static bool read_form_metadata(struct document_request *request, const struct multipart *multipart,
                               const struct request_limits *limits, struct failure *failure) {
    struct error e;
    struct json *json;
    const struct multipart_part *part = find_part(multipart, "metadata");
    if (part == NULL) return true;
    if (json_parse(&json, part->body, "metadata", &e))
        return failure_set(failure, 400, "invalid_json", "metadata", "%s", e.text);
    bool ok = read_metadata(request, json, limits, failure);
    json_close(json);
    return ok;
}

static bool read_form_wait(struct document_requests *requests, const struct multipart *multipart,
                           struct failure *failure) {
    const struct multipart_part *part = find_part(multipart, "wait");
    requests->wait = part == NULL || span_is(part->body, "true");
    return requests->wait || span_is(part->body, "false") ||
           failure_set(failure, 400, "invalid_value", "wait", "wait must be true or false");
}

static bool fill_form(struct document_requests *requests, const struct multipart *multipart,
                      const struct request_limits *limits, struct failure *failure) {
    int n_files = 0;
    for (int i = 0; i < multipart->n; i++) n_files += strcmp(multipart->parts[i].name, "file") == 0;
    if (n_files == 0)
        return failure_set(failure, 400, "missing_parameter", "file",
                           "the body has no part \"file\"");
    for (int i = 0; i < multipart->n; i++)
        if (!check_part(multipart, i, n_files, failure)) return false;

    if (!read_form_wait(requests, multipart, failure)) return false;
    make_room(requests, (size_t)n_files);
    requests->is_list = true;
    struct document_request *request = requests->list;
    for (int i = 0; i < multipart->n; i++) {
        const struct multipart_part *part = &multipart->parts[i];
        if (strcmp(part->name, "file") != 0) continue;
        request->is_file = true;
        buffer_append(&request->file, part->body.text, part->body.size);
        request->id = copy_part(multipart, "id");
        request->path = copy_part(multipart, "path");
        if (request->path == NULL || request->path[0] == '\0') {
            free(request->path);
            request->path = xstrdup(part->file_name);
        }
        request->title = copy_part(multipart, "title");
        if (request->title == NULL) request->title = xstrdup("");
        if (!read_form_metadata(request, multipart, limits, failure)) return false;
        if (request->id && request->id[0] == '\0')
            return failure_set(failure, 400, "invalid_value", "id", "id is empty");
        request++;
    }
    return true;
}

bool document_form_parse(struct document_requests *requests, const char *content_type,
                         struct text_span body, const struct request_limits *limits,
                         struct failure *failure) {
    struct error e;
    struct multipart *multipart = xcalloc(1, sizeof *multipart);
    *requests = (struct document_requests){0};
    bool ok = multipart_parse(multipart, content_type, body, &e) == STATUS_OK
                  ? fill_form(requests, multipart, limits, failure)
                  : failure_set(failure, 400, "invalid_form", NULL, "%s", e.text);
    multipart_free(multipart);
    free(multipart);
    return ok;
}

void document_requests_free(struct document_requests *requests) {
    for (int i = 0; i < requests->n; i++) {
        buffer_free(&requests->list[i].metadata);
        buffer_free(&requests->list[i].file);
        json_table_free(&document_table, &requests->list[i]);
    }
    free(requests->list);
    *requests = (struct document_requests){0};
}

/* Query strings. */

static const struct json_field post_fields[] = {
    {"wait", JSON_BOOL, .offset = 0, .fallback = 1, .help = wait_help},
};
const struct json_table document_post_table = JSON_TABLE(post_fields);

bool document_post_parse(bool *wait, const struct query_argument *arguments, int n,
                         const struct request_limits *limits, struct failure *failure) {
    struct json *json;
    bool waits;
    if (!arguments_load(&json, &document_post_table, arguments, n, failure)) return false;
    bool ok = fields_parse(&document_post_table, &waits, json, limits, failure);
    json_close(json);
    if (ok && !waits) *wait = false;
    return ok;
}

static enum status parse_filter(struct json_reader *reader, const struct json *value,
                                void *object) {
    return field_read_filter(&((struct document_list_request *)object)->filter, reader, value);
}

#define AT(member) JSON_AT(struct document_list_request, member)
static const struct json_field choice_fields[] = {
    {"path", JSON_TEXT, AT(path),
     .help = "only the document of this path, or, with a slash at its end, those of a folder"},
    {"filter", JSON_PARSED, .parse = parse_filter, .schema = "{\"type\":\"string\"}",
     .help = "only documents that it allows, as JSON"},
};
const struct json_table document_delete_table = JSON_TABLE(choice_fields);

static const struct json_field list_fields[] = {
    {"limit", JSON_INT64, AT(limit), .min = 1, .max = 1000, .fallback = 100,
     .help = "how many are listed"},
    {"after", JSON_TEXT, AT(after), .help = "the id of the document behind which the list begins"},
    {"prefix", JSON_TEXT, AT(prefix), .help = "only documents whose path begins so"},
    {.type = JSON_ROWS, .offset = 0, .table = &document_delete_table},
};
#undef AT
const struct json_table document_list_table = JSON_TABLE(list_fields);

static bool parse_choice(const struct json_table *table, struct document_list_request *request,
                         const struct query_argument *arguments, int n,
                         const struct request_limits *limits, struct failure *failure) {
    struct json *json;
    *request = (struct document_list_request){0};
    if (!arguments_load(&json, table, arguments, n, failure)) return false;
    bool ok = fields_parse(table, request, json, limits, failure);
    json_close(json);
    return ok;
}

bool document_list_parse(struct document_list_request *request,
                         const struct query_argument *arguments, int n,
                         const struct request_limits *limits, struct failure *failure) {
    return parse_choice(&document_list_table, request, arguments, n, limits, failure);
}

bool document_delete_parse(struct document_list_request *request,
                           const struct query_argument *arguments, int n,
                           const struct request_limits *limits, struct failure *failure) {
    if (!parse_choice(&document_delete_table, request, arguments, n, limits, failure)) return false;
    if (request->filter || (request->path && request->path[0])) return true;
    return failure_set(failure, 400, "missing_parameter", "path",
                       "path or filter must say which documents are deleted");
}

bool document_path_is_named(const char *path, const char *wanted) {
    size_t size = strlen(wanted);
    bool is_folder = size > 0 && wanted[size - 1] == '/';
    return is_folder ? strncmp(path, wanted, size) == 0 : strcmp(path, wanted) == 0;
}

void document_list_free(struct document_list_request *request) {
    json_table_free(&document_list_table, request);
    filter_release(request->filter);
    *request = (struct document_list_request){0};
}
