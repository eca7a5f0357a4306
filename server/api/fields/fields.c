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
static const struct json_style request_style = {
    .status = STATUS_INVALID, .quote = "", .member = "parameter", .document = "the request body", .kinds = true};

static const char *code_of(enum json_fault fault) {
    switch (fault) {
        case JSON_FAULT_TYPE: return "invalid_type";
        case JSON_FAULT_MISSING: return "missing_parameter";
        case JSON_FAULT_UNKNOWN: return "unknown_parameter";
        case JSON_FAULT_UNSUPPORTED: return "unsupported_parameter";
        default: return "invalid_value";
    }
}

bool fields_parse(const struct json_table *t, void *object, const struct json *json, const struct request_limits *l,
                  struct failure *f) {
    struct error e;
    struct json_reader r = {.style = &request_style, .limits = l, .context = f, .e = &e};
    f->http = 0;
    if (json_table_read(&r, t, json, object) == STATUS_OK) return true;
    if (f->http != 0) return false;
    return failure_set(f, 400, code_of(r.fault), r.field[0] ? r.field : NULL, "%s", e.text);
}

bool fields_load(struct json **out, const char *text, size_t size, const struct request_limits *l, struct failure *f) {
    struct error e;
    struct text_span body = {text, size};
    size_t values = json_count_values(body), most = (size_t)l->max_prompts * (size_t)l->context + OTHER_VALUES;
    *out = NULL;
    if (values > most)
        return failure_set(
            f, 400, "too_many_values", NULL,
            "the body holds %zu JSON values, the limit is %zu (%s %d times the context of %d tokens, and "
            "%d)",
            values, most, l->max_prompts_option, l->max_prompts, l->context, OTHER_VALUES);
    if (json_parse(out, body, "request", &e)) return failure_set(f, 400, "invalid_json", NULL, "%s", e.text);
    return true;
}

/* Fields of several requests. */

enum status field_read_filter(struct filter **out, struct json_reader *r, const struct json *value) {
    const struct request_limits *l = r->limits;
    if (filter_read(out, r, value)) return r->e->status;
    size_t bytes = strlen(filter_text(*out));
    if (bytes <= (size_t)l->retrieval.max_filter_bytes) return STATUS_OK;
    failure_set(r->context, 400, "invalid_value", "filter",
                "the filter has %zu bytes, the limit is %d (option retrieval.max_filter_bytes)", bytes,
                l->retrieval.max_filter_bytes);
    return STATUS_INVALID;
}

bool ids_read(struct request_ids *out, const struct json *array, const char *field, const char *of,
              const struct request_limits *l, struct failure *f) {
    size_t n = json_count(array);
    out->ids = xmalloc((n + 1) * sizeof *out->ids);
    out->n = (int)n;
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_item(array, i);
        if (!json_is_int(v))
            return failure_set(f, 400, "invalid_type", field, "token %zu of %s is not an integer", i, of);
        int64_t id = json_int(v);
        if (id < 0 || id >= l->vocab)
            return failure_set(f, 400, "invalid_value", field,
                               "token %zu of %s is %lld, the model's vocabulary is 0 .. %d", i, of, (long long)id,
                               l->vocab - 1);
        out->ids[i] = (int32_t)id;
    }
    return true;
}

enum status field_parse_text(struct json_reader *r, const struct json *value, void *object) {
    (void)object;
    return json_is_text(value) ? STATUS_OK : json_fail_type(r, "a string", value);
}

enum status field_parse_object(struct json_reader *r, const struct json *value, void *object) {
    (void)object;
    return json_kind(value) == JSON_KIND_OBJECT ? STATUS_OK : json_fail_type(r, "an object", value);
}

enum status field_parse_bool(struct json_reader *r, const struct json *value, void *object) {
    (void)object;
    return json_kind(value) == JSON_KIND_BOOL ? STATUS_OK : json_fail_type(r, "true or false", value);
}

enum status field_parse_true(struct json_reader *r, const struct json *value, void *object) {
    (void)object;
    if (json_kind(value) != JSON_KIND_BOOL) return json_fail_type(r, "true or false", value);
    if (json_bool(value)) return STATUS_OK;
    return json_fail(r, JSON_FAULT_UNSUPPORTED, "%s is not supported: leave it out or send true", r->place->name);
}

/* It is compared as a C string, where a NUL would make a known name of an unknown one. */
const struct request_limits *model_read(char **model, const struct json *json, const struct request_models *models,
                                        struct failure *f) {
    const struct json *name = json_member(json, "model");
    const char *word = json_word(name);
    if (!json_is_absent(name) && !json_is_text(name)) {
        failure_set(f, 400, "invalid_type", "model", "model must be a string");
        return NULL;
    }
    if (!json_is_absent(name) && word == NULL) {
        failure_set(f, 400, "invalid_value", "model", "model holds a NUL character");
        return NULL;
    }
    free(*model);
    *model = word ? xstrdup(word) : NULL;
    return models->limits(models->context, *model, f);
}

bool fields_read(const struct json_table *t, void *object, char **model, struct text_span body,
                 const struct request_models *models, struct failure *f) {
    struct json *json;
    if (!fields_load(&json, body.text, body.size, models->largest, f)) return false;
    const struct request_limits *l = model_read(model, json, models, f);
    bool ok = l && fields_parse(t, object, json, l, f);
    json_close(json);
    return ok;
}

/* Query strings. */

static bool is_written_as_json(const struct json_table *t, const char *name) {
    for (int i = 0; i < t->count; i++) {
        const struct json_field *f = &t->fields[i];
        if (f->type == JSON_ROWS && is_written_as_json(f->table, name)) return true;
        if (f->type != JSON_ROWS && strcmp(f->name, name) == 0) return f->type <= JSON_DOUBLE;
    }
    return false;
}

/* Text in the place of a number stays text, and fails where the table is read. */
static void put_argument(struct json_writer *w, const struct json_table *t, const struct query_argument *a) {
    struct error ignored;
    struct json *value = NULL;
    struct text_span text = {a->value, strlen(a->value)};
    put_key(w, a->name);
    if (is_written_as_json(t, a->name) && json_parse_any(&value, text, "query", &ignored) == STATUS_OK)
        put_raw(w, text);
    else
        put_string_n(w, text.text, text.size);
    json_close(value);
}

/* Notes the name among those of the arguments before. */
static bool check_argument(struct lookup_table *names, const struct query_argument *arguments, int i,
                           struct failure *f) {
    const struct query_argument *a = &arguments[i];
    uint64_t hash = lookup_hash(a->name, strlen(a->name));
    size_t at = 0;
    for (int j; (j = lookup_next(names, hash, &at)) >= 0;)
        if (strcmp(arguments[j].name, a->name) == 0)
            return failure_set(f, 400, "invalid_value", a->name, "%s is given more than once", a->name);
    lookup_add(names, hash, i);
    if (utf8_is_valid(a->name, strlen(a->name)) && utf8_is_valid(a->value, strlen(a->value))) return true;
    return failure_set(f, 400, "invalid_value", a->name, "%s is not valid UTF-8", a->name);
}

bool arguments_load(struct json **out, const struct json_table *t, const struct query_argument *arguments, int n,
                    struct failure *f) {
    struct buffer text = {0};
    struct json_writer w;
    struct lookup_table names = {0};
    struct error e;
    bool ok = true;
    *out = NULL;
    put_begin(&w, &text);
    put_object(&w);
    for (int i = 0; i < n && ok; i++) {
        ok = check_argument(&names, arguments, i, f);
        if (ok) put_argument(&w, t, &arguments[i]);
    }
    put_object_end(&w);
    if (ok && json_parse(out, (struct text_span){text.data, text.size}, "query", &e)) ok = failure_from_error(f, &e);
    buffer_free(&text);
    lookup_free(&names);
    return ok;
}
