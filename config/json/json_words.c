/* config/json/json_words.c: the messages of the table reader. See json_words.h. */
#include "config/json/json_words.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/base/nearest.h"

/* Bytes of a list of names in a message; more are counted. */
enum { NAMES_SHOWN = 900 };

const struct json_style json_file_style = {
    .status = STATUS_INVALID, .quote = "\"", .member = "key", .nearest = true};

static const struct json_style *style_of(const struct json_reader *reader) {
    return reader->style ? reader->style : &json_file_style;
}

static void name_place(struct json_reader *reader, const struct json_place *place) {
    struct buffer name = {0};
    const char *quote = style_of(reader)->quote;
    json_place_print(place, &name);
    snprintf(reader->field, sizeof reader->field, "%s", name.size ? name.data : "");
    snprintf(reader->shown, sizeof reader->shown, "%s%s%s", quote, reader->field, quote);
    buffer_free(&name);
}

const char *words_name(struct json_reader *reader) {
    name_place(reader, reader->place);
    return reader->shown;
}

/* "config.json: ", or with the document's text "config.json:12: ". */
static void print_prefix(const struct json_reader *reader, struct buffer *out) {
    int line = reader->text.size ? json_place_line(reader->place, reader->text) : 0;
    if (reader->name == NULL) return;
    buffer_append_string(out, reader->name);
    if (line > 0) buffer_printf(out, ":%d", line);
    buffer_append_string(out, ": ");
}

enum status json_fail(struct json_reader *reader, enum json_fault fault, const char *format, ...) {
    char text[sizeof reader->e->text];
    struct buffer prefix = {0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_prefix(reader, &prefix);
    name_place(reader, reader->place);
    reader->fault = fault;
    enum status status =
        fault == JSON_FAULT_UNSUPPORTED ? STATUS_UNSUPPORTED : style_of(reader)->status;
    error_set(reader->e, status, "%s%s", prefix.size ? prefix.data : "", text);
    buffer_free(&prefix);
    return status;
}

const char *json_type_words(enum json_type type) {
    static const char *const words[] = {
        [JSON_BOOL] = "true or false",
        [JSON_INT] = "an integer",
        [JSON_INT64] = "an integer",
        [JSON_FLOAT] = "a number",
        [JSON_DOUBLE] = "a number",
        [JSON_TEXT] = "a string",
        [JSON_HEX] = "16 hexadecimal digits in lower case",
        [JSON_CHOICE] = "one of",
        [JSON_STRUCT] = "an object",
        [JSON_ROWS] = "an object",
        [JSON_LIST] = "a list",
        [JSON_RAW] = "any value",
        [JSON_PARSED] = "a value",
        [JSON_NEUTRAL] = "a number",
        [JSON_MUST_BE_FALSE] = "false",
        [JSON_EMPTY] = "nothing",
        [JSON_IGNORED] = "any value",
    };
    return words[type];
}

enum status json_fail_type(struct json_reader *reader, const char *expected,
                           const struct json *found) {
    char shown[JSON_SHOWN_SIZE];
    const char *name = words_name(reader);
    if (style_of(reader)->kinds)
        return json_fail(reader, JSON_FAULT_TYPE, "%s must be %s, not %s", name, expected,
                         json_kind_name(found));
    return json_fail(reader, JSON_FAULT_TYPE, "%s is %s, expected %s", name,
                     json_shown(found, shown), expected);
}

void json_field_range_print(const struct json_field *field, const void *limits,
                            struct buffer *out) {
    int limit;
    double max = field->max;
    if (field->option && limits) {
        memcpy(&limit, (const char *)limits + field->limit_offset, sizeof limit);
        max = limit;
    }
    if (field->type == JSON_CHOICE) {
        for (const struct json_choice *choice = field->choices; choice->name; choice++)
            buffer_printf(out, "%s%s", choice == field->choices ? "" : ", ", choice->name);
    } else if (field->type >= JSON_INT && field->type <= JSON_DOUBLE &&
               (field->min != 0 || max != 0 || field->option)) {
        buffer_printf(out, "%.10g .. %.10g", field->min, max);
    }
}

enum status words_range(struct json_reader *reader, const struct json_field *field,
                        const struct json *found) {
    struct buffer range = {0};
    char shown[JSON_SHOWN_SIZE];
    json_field_range_print(field, reader->limits, &range);
    if (field->option) buffer_printf(&range, " (option %s)", field->option);
    enum status status =
        json_fail(reader, JSON_FAULT_VALUE, "%s is %s, allowed is %s", words_name(reader),
                  json_shown(found, shown), range.size ? range.data : "nothing");
    buffer_free(&range);
    return status;
}

enum status words_choice_type(struct json_reader *reader, const struct json_field *field,
                              const struct json *found) {
    struct buffer expected = {0};
    buffer_append_string(&expected, "one of ");
    json_field_range_print(field, reader->limits, &expected);
    enum status status = json_fail_type(reader, expected.data, found);
    buffer_free(&expected);
    return status;
}

enum status words_list_size(struct json_reader *reader, const struct json_field *field,
                            size_t found) {
    int limit;
    double max = field->max;
    if (field->option) {
        memcpy(&limit, (const char *)reader->limits + field->limit_offset, sizeof limit);
        max = limit;
    }
    return json_fail(reader, JSON_FAULT_VALUE, "%s has %zu items, allowed is %.10g .. %.10g%s%s%s",
                     words_name(reader), found, field->min, max, field->option ? " (option " : "",
                     field->option ? field->option : "", field->option ? ")" : "");
}

enum status words_missing(struct json_reader *reader, const char *name) {
    struct json_place place = {.above = reader->place, .name = name};
    name_place(reader, &place);
    char shown[sizeof reader->shown], field[sizeof reader->field];
    memcpy(shown, reader->shown, sizeof shown);
    memcpy(field, reader->field, sizeof field);
    enum status status = json_fail(reader, JSON_FAULT_MISSING, "%s is missing", shown);
    memcpy(reader->field, field, sizeof field);
    return status;
}

/* Appends rows that a caller may use, "a, b, c", one spelling each; returns how many found no room.
 */
static int print_rows(const struct json_table *table, struct buffer *out) {
    int left = 0;
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        if (field->type == JSON_ROWS) left += print_rows(field->table, out);
        if (field->type == JSON_ROWS || field->type >= JSON_NEUTRAL) continue;
        int size = (int)strcspn(field->name, "|");
        if (out->size + (size_t)size > NAMES_SHOWN)
            left++;
        else
            buffer_printf(out, "%s%.*s", out->size ? ", " : "", size, field->name);
    }
    return left;
}

static void print_names(const struct json_table *table, struct buffer *out) {
    int left = print_rows(table, out);
    if (left > 0) buffer_printf(out, " and %d more", left);
}

static void offer_rows(struct nearest_name *nearest, const struct json_table *table,
                       struct text_span name) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        if (field->type == JSON_ROWS) offer_rows(nearest, field->table, name);
        for (const char *at = field->type == JSON_ROWS ? "" : field->name; *at;) {
            size_t size = strcspn(at, "|");
            nearest_offer(nearest, name, (struct text_span){at, size});
            at += size + (at[size] == '|');
        }
    }
}

static struct nearest_name find_nearest(const struct json_table *table, struct text_span name) {
    struct nearest_name nearest = {0};
    offer_rows(&nearest, table, name);
    return nearest;
}

enum status words_unknown(struct json_reader *reader, const struct json_table *table,
                          struct text_span name) {
    const struct json_style *style = style_of(reader);
    struct nearest_name nearest = {0};
    struct json_place place = {.above = reader->place, .name = name.text};
    struct buffer names = {0}, above = {0};
    if (style->nearest) nearest = find_nearest(table, name);
    json_place_print(reader->place, &above);
    print_names(table, &names);

    enum status status;
    reader->place = &place;
    const char *quote = style->quote, *shown = words_name(reader);
    if (nearest.name.text)
        status = json_fail(reader, JSON_FAULT_UNKNOWN, "unknown %s %s; did you mean %s%s%s%.*s%s?",
                           style->member, shown, quote, above.size ? above.data : "",
                           above.size ? "." : "", (int)nearest.name.size, nearest.name.text, quote);
    else
        status = json_fail(reader, JSON_FAULT_UNKNOWN, "unknown %s %s; %s%s", style->member, shown,
                           style->advice ? "" : "known are ",
                           style->advice ? style->advice : names.data);
    reader->place = place.above;
    buffer_free(&names);
    buffer_free(&above);
    return status;
}

enum status words_not_an_object(struct json_reader *reader, const struct json *found) {
    const struct json_style *style = style_of(reader);
    if (reader->place) return json_fail_type(reader, "an object", found);
    if (style->document)
        return json_fail(reader, JSON_FAULT_TYPE, "%s must be an object, not %s", style->document,
                         json_kind_name(found));
    return json_fail(reader, JSON_FAULT_TYPE, "expected an object, not %s", json_kind_name(found));
}
