/* config/options/options_print.c: options as JSON (--print-config), as text (--help) and as the
 * tables of docs/config.md. */
#include <string.h>

#include "config/json/json_writer.h"
#include "config/options/options.h"

const char *option_type_words(const struct option_row *row) {
    if (option_has_structs(row)) return "a list of objects";
    if (row->path) return "a path";
    return row->field.type == JSON_LIST ? "a list of strings" : json_type_words(row->field.type);
}

static void put_texts(struct json_writer *w, const struct json_list *list) {
    char *const *items = list->items;
    put_array_line(w);
    for (size_t i = 0; i < list->count; i++) put_string(w, items[i]);
    put_array_end(w);
}

static void put_members(struct json_writer *w, const struct json_table *table, const char *item) {
    put_object(w);
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        put_key(w, field->name);
        if (field->type == JSON_LIST)
            put_texts(w, (const void *)(item + field->offset));
        else
            json_field_put(w, field, item);
    }
    put_object_end(w);
}

static void put_structs(struct json_writer *w, const struct json_field *field,
                        const struct json_list *list) {
    put_array_line(w);
    for (size_t i = 0; i < list->count; i++)
        put_members(w, field->item->table, (const char *)list->items + i * field->item_size);
    put_array_end(w);
}

static void put_value(struct json_writer *w, const struct option_row *row, const void *section) {
    const void *field = (const char *)section + row->field.offset;
    if (row->field.type != JSON_LIST)
        json_field_put(w, &row->field, section);
    else if (option_has_structs(row))
        put_structs(w, &row->field, field);
    else
        put_texts(w, field);
}

/* Whether part i is the first of its section; the one behind the last is. */
static bool begins_section(const struct option_set *set, int i) {
    return i == 0 || i == set->count ||
           strcmp(set->parts[i].section->name, set->parts[i - 1].section->name) != 0;
}

void options_print_json(const struct option_set *set, const void *values, FILE *out) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin_indented(&w, &text, 4);
    put_object(&w);
    for (int i = 0; i < set->count; i++) {
        const struct option_section *section = set->parts[i].section;
        if (begins_section(set, i)) put_key_object(&w, section->name);
        for (int j = 0; j < section->count; j++) {
            put_key(&w, section->rows[j].field.name);
            put_value(&w, &section->rows[j], (const char *)values + set->parts[i].offset);
        }
        if (begins_section(set, i + 1)) put_object_end(&w);
    }
    put_object_end(&w);
    put_line(&w, out);
    buffer_free(&text);
}

/* A default as it is written in a file; "empty" where there is none. */
static void print_default(const struct option_row *row, const void *section, struct buffer *out) {
    struct json_writer w;
    if (row->field.type == JSON_TEXT && row->field.text[0] == '\0') {
        buffer_append_string(out, "empty");
        return;
    }
    put_begin_spaced(&w, out);
    put_value(&w, row, section);
}

static void print_help_line(const char *section, const struct option_row *row, const void *defaults,
                            FILE *out) {
    struct buffer key = {0}, range = {0}, value = {0};
    buffer_printf(&key, "%s.%s", section, row->field.name);
    json_field_range_print(&row->field, NULL, &range);
    print_default(row, defaults, &value);
    fprintf(out, "  %-28s %s (%s%s%s; default %s)\n", key.data, row->help, option_type_words(row),
            range.size ? ", " : "", range.size ? range.data : "", value.data);
    buffer_free(&key);
    buffer_free(&range);
    buffer_free(&value);
}

void options_print_help(const struct option_set *set, const void *defaults, FILE *out) {
    for (int i = 0; i < set->count; i++) {
        const struct option_section *section = set->parts[i].section;
        const void *values = (const char *)defaults + set->parts[i].offset;
        for (int j = 0; j < section->count; j++)
            print_help_line(section->name, &section->rows[j], values, out);
    }
}

static void print_table_row(const char *section, const struct option_row *row, const void *defaults,
                            FILE *out) {
    struct buffer range = {0}, value = {0};
    json_field_range_print(&row->field, NULL, &range);
    print_default(row, defaults, &value);
    fprintf(out, "| `%s.%s` | %s | `%s` | %s | %s |\n", section, row->field.name,
            option_type_words(row), value.data, range.size ? range.data : "", row->help);
    buffer_free(&range);
    buffer_free(&value);
}

void options_print_markdown(const struct option_set *set, const void *defaults, FILE *out) {
    for (int i = 0; i < set->count; i++) {
        const struct option_section *section = set->parts[i].section;
        const void *values = (const char *)defaults + set->parts[i].offset;
        if (begins_section(set, i))
            fprintf(out,
                    "\n## %s\n\n| option | type | default | allowed | meaning "
                    "|\n|---|---|---|---|---|\n",
                    section->name);
        for (int j = 0; j < section->count; j++)
            print_table_row(section->name, &section->rows[j], values, out);
    }
}
