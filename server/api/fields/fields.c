/* server/api/fields/fields.c: what the table reader says, as failures of requests. See fields.h. */
#include "server/api/fields/fields.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/lookup.h"
#include "config/base/utf8.h"
#include "config/json/json_writer.h"

/* Values that a request may hold beside its prompts' token ids. */
enum { OTHER_VALUES = 4096 };

/* Values are not repeated in messages: they may be anybody's text. */
static const struct json_style request_style = {.status = STATUS_INVALID,
                                                .quote = "",
                                                .member = "parameter",
                                                .document = "the request body",
                                                .kinds = true};

static const char *code_of(enum json_fault fault) {
    switch (fault) {
        case JSON_FAULT_TYPE: return "invalid_type";
        case JSON_FAULT_MISSING: return "missing_parameter";
        case JSON_FAULT_UNKNOWN: return "unknown_parameter";
        case JSON_FAULT_UNSUPPORTED: return "unsupported_parameter";
        default: return "invalid_value";
    }
}

bool fields_parse(const struct json_table *table, void *object, const struct json *json,
                  const struct request_limits *limits, struct failure *failure) {
    struct error e;
    struct json_reader reader = {
        .style = &request_style, .limits = limits, .context = failure, .e = &e};
    failure->http = 0;
    if (json_table_read(&reader, table, json, object) == STATUS_OK) return true;
    if (failure->http != 0) return false;
    return failure_set(failure, 400, code_of(reader.fault), reader.field[0] ? reader.field : NULL,
                       "%s", e.text);
}

bool fields_load(struct json **out, const char *text, size_t size,
                 const struct request_limits *limits, struct failure *failure) {
    struct error e;
    struct text_span body = {text, size};
    size_t values = json_count_values(body),
           most = (size_t)limits->max_prompts * (size_t)limits->context + OTHER_VALUES;
    *out = NULL;
    if (values > most)
        return failure_set(failure, 400, "too_many_values", NULL,
                           "the body holds %zu JSON values, the limit is %zu (%s %d times the "
                           "context of %d tokens, and "
                           "%d)",
                           values, most, limits->max_prompts_option, limits->max_prompts,
                           limits->context, OTHER_VALUES);
    if (json_parse(out, body, "request", &e))
        return failure_set(failure, 400, "invalid_json", NULL, "%s", e.text);
    return true;
}

/* Fields of several requests. */

enum status field_read_filter(struct filter **out, struct json_reader *reader,
                              const struct json *value) {
    const struct request_limits *limits = reader->limits;
    if (filter_read(out, reader, value)) return reader->e->status;
    size_t bytes = strlen(filter_text(*out));
    if (bytes <= (size_t)limits->retrieval.max_filter_bytes) return STATUS_OK;
    failure_set(reader->context, 400, "invalid_value", "filter",
                "the filter has %zu bytes, the limit is %d (option retrieval.max_filter_bytes)",
                bytes, limits->retrieval.max_filter_bytes);
    return STATUS_INVALID;
}

bool ids_read(struct request_ids *out, const struct json *array, const char *field, const char *of,
              const struct request_limits *limits, struct failure *failure) {
    size_t n = json_count(array);
    out->ids = xmalloc((n + 1) * sizeof *out->ids);
    out->n = (int)n;
    for (size_t i = 0; i < n; i++) {
        const struct json *json = json_item(array, i);
        if (!json_is_int(json))
            return failure_set(failure, 400, "invalid_type", field,
                               "token %zu of %s is not an integer", i, of);
        int64_t id = json_int(json);
        if (id < 0 || id >= limits->vocab)
            return failure_set(failure, 400, "invalid_value", field,
                               "token %zu of %s is %lld, the model's vocabulary is 0 .. %d", i, of,
                               (long long)id, limits->vocab - 1);
        out->ids[i] = (int32_t)id;
    }
    return true;
}

enum status field_parse_text(struct json_reader *reader, const struct json *value, void *object) {
    (void)object;
    return json_is_text(value) ? STATUS_OK : json_fail_type(reader, "a string", value);
}

enum status field_parse_object(struct json_reader *reader, const struct json *value, void *object) {
    (void)object;
    return json_kind(value) == JSON_KIND_OBJECT ? STATUS_OK
                                                : json_fail_type(reader, "an object", value);
}

enum status field_parse_bool(struct json_reader *reader, const struct json *value, void *object) {
    (void)object;
    return json_kind(value) == JSON_KIND_BOOL ? STATUS_OK
                                              : json_fail_type(reader, "true or false", value);
}

enum status field_parse_true(struct json_reader *reader, const struct json *value, void *object) {
    (void)object;
    if (json_kind(value) != JSON_KIND_BOOL) return json_fail_type(reader, "true or false", value);
    if (json_bool(value)) return STATUS_OK;
    return json_fail(reader, JSON_FAULT_UNSUPPORTED,
                     "%s is not supported: leave it out or send true", reader->place->name);
}

/* It is compared as a C string, where a NUL would make a known name of an unknown one. */
const struct request_limits *model_read(char **model, const struct json *json,
                                        const struct request_models *models,
                                        struct failure *failure) {
    const struct json *name = json_member(json, "model");
    const char *word = json_word(name);
    if (!json_is_absent(name) && !json_is_text(name)) {
        failure_set(failure, 400, "invalid_type", "model", "model must be a string");
        return NULL;
    }
    if (!json_is_absent(name) && word == NULL) {
        failure_set(failure, 400, "invalid_value", "model", "model holds a NUL character");
        return NULL;
    }
    free(*model);
    *model = word ? xstrdup(word) : NULL;
    return models->limits(models->context, *model, failure);
}

bool fields_read(const struct json_table *table, void *object, char **model, struct text_span body,
                 const struct request_models *models, struct failure *failure) {
    struct json *json;
    if (!fields_load(&json, body.text, body.size, models->largest, failure)) return false;
    const struct request_limits *limits = model_read(model, json, models, failure);
    bool ok = limits && fields_parse(table, object, json, limits, failure);
    json_close(json);
    return ok;
}

/* Query strings. */

static bool is_written_as_json(const struct json_table *table, const char *name) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        if (field->type == JSON_ROWS && is_written_as_json(field->table, name)) return true;
        if (field->type != JSON_ROWS && strcmp(field->name, name) == 0)
            return field->type <= JSON_DOUBLE;
    }
    return false;
}

/* Text in the place of a number stays text, and fails where the table is read. */
static void put_argument(struct json_writer *w, const struct json_table *table,
                         const struct query_argument *argument) {
    struct error ignored;
    struct json *value = NULL;
    struct text_span text = {argument->value, strlen(argument->value)};
    put_key(w, argument->name);
    if (is_written_as_json(table, argument->name) &&
        json_parse_any(&value, text, "query", &ignored) == STATUS_OK)
        put_raw(w, text);
    else
        put_string_n(w, text.text, text.size);
    json_close(value);
}

/* Notes the name among those of the arguments before. */
static bool check_argument(struct lookup_table *names, const struct query_argument *arguments,
                           int i, struct failure *failure) {
    const struct query_argument *argument = &arguments[i];
    uint64_t hash = lookup_hash(argument->name, strlen(argument->name));
    size_t at = 0;
    for (int j; (j = lookup_next(names, hash, &at)) >= 0;)
        if (strcmp(arguments[j].name, argument->name) == 0)
            return failure_set(failure, 400, "invalid_value", argument->name,
                               "%s is given more than once", argument->name);
    lookup_add(names, hash, i);
    if (utf8_is_valid(argument->name, strlen(argument->name)) &&
        utf8_is_valid(argument->value, strlen(argument->value)))
        return true;
    return failure_set(failure, 400, "invalid_value", argument->name, "%s is not valid UTF-8",
                       argument->name);
}

bool arguments_load(struct json **out, const struct json_table *table,
                    const struct query_argument *arguments, int n, struct failure *failure) {
    struct buffer text = {0};
    struct json_writer w;
    struct lookup_table names = {0};
    struct error e;
    bool ok = true;
    *out = NULL;
    put_begin(&w, &text);
    put_object(&w);
    for (int i = 0; i < n && ok; i++) {
        ok = check_argument(&names, arguments, i, failure);
        if (ok) put_argument(&w, table, &arguments[i]);
    }
    put_object_end(&w);
    if (ok && json_parse(out, (struct text_span){text.data, text.size}, "query", &e))
        ok = failure_from_error(failure, &e);
    buffer_free(&text);
    lookup_free(&names);
    return ok;
}
