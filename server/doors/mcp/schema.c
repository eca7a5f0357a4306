/* server/doors/mcp/schema.c: JSON Schema of a tool's arguments, read off the table that reads them.
 * Clients of other makers pass schemas on to models, some of which take little: each property has
 * one type, and the object at the top has properties and nothing that combines schemas. */
#include <string.h>

#include "config/base/text.h"
#include "server/doors/mcp/tools.h"

static double most_of(const struct json_field *field, const struct request_limits *limits) {
    int limit;
    if (field->option == NULL) return field->max;
    memcpy(&limit, (const char *)limits + field->limit_offset, sizeof limit);
    return limit;
}

static void write_number(struct json_writer *w, const char *key, double value, bool whole) {
    put_key(w, key);
    if (whole)
        put_int(w, (int64_t)value);
    else
        put_double(w, value);
}

static void write_type(struct json_writer *w, const struct json_field *field,
                       const struct request_limits *limits) {
    bool whole = field->type == JSON_INT || field->type == JSON_INT64;
    double most = most_of(field, limits);
    if (field->type == JSON_BOOL) put_key_string(w, "type", "boolean");
    if (field->type == JSON_TEXT) put_key_string(w, "type", "string");
    if (!whole && field->type != JSON_DOUBLE) return;
    put_key_string(w, "type", whole ? "integer" : "number");
    if (field->min == 0 && most == 0) return;
    write_number(w, "minimum", field->min, whole);
    write_number(w, "maximum", most, whole);
}

/* Of several types a value may have, one is told: the others are for clients that know more. */
static void write_members(struct json_writer *w, struct text_span object) {
    struct json *json;
    struct error e;
    if (json_parse(&json, object, "a schema", &e)) return;
    for (struct json_entry it = {0}; json_next(json, &it);) {
        bool several = span_is(it.name, "type") && json_is_list(it.value);
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, several ? json_item(it.value, 0) : it.value);
    }
    json_close(json);
}

static void write_field(struct json_writer *w, const struct json_field *field,
                        const struct request_limits *limits) {
    put_key_n(w, field->name, strcspn(field->name, "|"));
    put_object(w);
    if (field->type == JSON_PARSED)
        write_members(w, (struct text_span){field->schema, strlen(field->schema)});
    else
        write_type(w, field, limits);
    if (field->help) put_key_string(w, "description", field->help);
    put_object_end(w);
}

static void write_fields(struct json_writer *w, const struct json_table *table,
                         const struct request_limits *limits) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        if (field->type == JSON_ROWS)
            write_fields(w, field->table, limits);
        else
            write_field(w, field, limits);
    }
}

static void write_words(struct json_writer *w, const char *words) {
    put_array(w);
    while (*words) {
        size_t size = strcspn(words, " ");
        put_string_n(w, words, size);
        words += size + (words[size] == ' ');
    }
    put_array_end(w);
}

void mcp_schema_write(struct json_writer *w, const struct mcp_tool *tool,
                      const struct request_limits *limits) {
    put_object(w);
    put_key_string(w, "type", "object");
    put_key_object(w, "properties");
    write_fields(w, tool->table, limits);
    put_object_end(w);
    if (tool->required[0]) {
        put_key(w, "required");
        write_words(w, tool->required);
    }
    put_key_bool(w, "additionalProperties", false);
    put_object_end(w);
}
