/* server/api/fields.c: JSON objects read by table. See fields.h. */
#include "server/api/fields.h"

#include <math.h>
#include <string.h>

/* Values that a request may hold beside its prompts' token ids. */
enum { OTHER_VALUES = 4096 };

static const char *kind(const json_t *v) {
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array",     [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a real number", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null"};
    return names[json_typeof(v)];
}

static bool wrong_type(struct failure *f, const char *name, const char *expected, const json_t *v) {
    return failure_set(f, 400, "invalid_type", name, "%s must be %s, not %s", name, expected, kind(v));
}

static double upper_bound(const struct field *row, const struct request_limits *l) {
    int limit;
    if (row->option == NULL) return row->max;
    memcpy(&limit, (const char *)l + row->limit_offset, sizeof limit);
    return limit;
}

static bool check_range(const struct field *row, const char *name, double v, const struct request_limits *l,
                        struct failure *f) {
    double max = upper_bound(row, l);
    if (v >= row->min && v <= max) return true;
    return failure_set(f, 400, "invalid_value", name, "%s is %.10g, allowed is %.10g .. %.10g%s%s%s", name, v, row->min,
                       max, row->option ? " (option " : "", row->option ? row->option : "", row->option ? ")" : "");
}

static bool parse_number(const struct field *row, const char *name, void *target, const json_t *v,
                         const struct request_limits *l, struct failure *f) {
    bool integer = row->type == FIELD_INT;
    if (integer ? !json_is_integer(v) : !json_is_number(v))
        return wrong_type(f, name, integer ? "an integer" : "a number", v);
    if (!check_range(row, name, json_number_value(v), l, f)) return false;
    if (integer)
        *(int64_t *)target = json_integer_value(v);
    else
        *(double *)target = json_number_value(v);
    return true;
}

static bool parse_unsupported(const struct field *row, const char *name, const json_t *v, struct failure *f) {
    bool harmless = row->type == FIELD_NEUTRAL ? json_is_number(v) && json_number_value(v) == row->min
                                               : (json_is_string(v) && json_string_length(v) == 0) ||
                                                     (json_is_object(v) && json_object_size(v) == 0) ||
                                                     (json_is_array(v) && json_array_size(v) == 0);
    if (harmless) return true;
    if (row->type == FIELD_NEUTRAL)
        return failure_set(f, 400, "unsupported_parameter", name, "%s is not supported: leave it out or send %.10g",
                           name, row->min);
    return failure_set(f, 400, "unsupported_parameter", name, "%s is not supported: leave it out", name);
}

static bool parse_field(const struct field *row, const char *name, void *object, const json_t *v,
                        const struct request_limits *l, struct failure *f) {
    void *target = (char *)object + row->offset;
    if (json_is_null(v)) return true;
    switch (row->type) {
        case FIELD_BOOL:
            if (!json_is_boolean(v)) return wrong_type(f, name, "true or false", v);
            *(bool *)target = json_is_true(v);
            return true;
        case FIELD_INT:
        case FIELD_NUMBER: return parse_number(row, name, target, v, l, f);
        case FIELD_NEUTRAL:
        case FIELD_EMPTY: return parse_unsupported(row, name, v, f);
        case FIELD_PARSED: return row->parse(object, v, l, f);
    }
    return true;
}

static bool unknown(const struct field_table *t, const char *key, struct failure *f) {
    struct buffer known = {0}, name = {0};
    for (int i = 0; i < t->n; i++)
        if (t->rows[i].type <= FIELD_NUMBER || t->rows[i].type == FIELD_PARSED)
            buffer_printf(&known, "%s%s", known.size ? ", " : "", t->rows[i].name);
    buffer_printf(&name, "%s%.100s", t->prefix, key);
    failure_set(f, 400, "unknown_parameter", name.data, "unknown parameter %s; known are %s", name.data, known.data);
    buffer_free(&known);
    buffer_free(&name);
    return false;
}

static bool not_an_object(const struct field_table *t, const json_t *json, struct failure *f) {
    struct buffer name = {0};
    if (t->prefix[0] == '\0')
        return failure_set(f, 400, "invalid_type", NULL, "the request body must be an object, not %s", kind(json));
    buffer_append(&name, t->prefix, strlen(t->prefix) - 1); /* without its dot */
    wrong_type(f, name.data, "an object", json);
    buffer_free(&name);
    return false;
}

bool fields_parse(const struct field_table *t, void *object, const json_t *json, const struct request_limits *l,
                  struct failure *f) {
    json_t *members = (json_t *)(uintptr_t)json; /* iterating changes nothing, but jansson's type says otherwise */
    if (!json_is_object(json)) return not_an_object(t, json, f);
    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at)) {
        const char *key = json_object_iter_key(at);
        struct buffer name = {0};
        int i = 0;
        while (i < t->n && strcmp(t->rows[i].name, key) != 0) i++;
        if (i == t->n) return unknown(t, key, f);
        buffer_printf(&name, "%s%s", t->prefix, key);
        bool ok = parse_field(&t->rows[i], name.data, object, json_object_iter_value(at), l, f);
        buffer_free(&name);
        if (!ok) return false;
    }
    return true;
}

/* Commas and opening brackets outside strings: at least the number of values, short of one. */
static size_t count_values(const char *text, size_t size) {
    size_t n = 0;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                in_string = false;
        } else if (text[i] == '"') {
            in_string = true;
        } else {
            n += text[i] == ',' || text[i] == '[' || text[i] == '{';
        }
    }
    return n;
}

bool fields_load(json_t **out, const char *text, size_t size, const struct request_limits *l, struct failure *f) {
    struct error e;
    size_t values = count_values(text, size), most = (size_t)l->max_prompts * (size_t)l->context + OTHER_VALUES;
    *out = NULL;
    if (values > most)
        return failure_set(f, 400, "too_many_values", NULL,
                           "the body holds %zu JSON values, the limit is %zu (server.max_prompts %d times the context "
                           "of %d tokens, and %d)",
                           values, most, l->max_prompts, l->context, OTHER_VALUES);
    if (json_load_text(out, text, size, "request", &e)) return failure_set(f, 400, "invalid_json", NULL, "%s", e.text);
    return true;
}
