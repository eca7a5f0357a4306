/* config/options/options.c: fills a struct from a JSON file and from key=value pairs, by the rooms'
 * rows. See options.h. */
#include "config/options/options.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/nearest.h"
#include "config/base/utf8.h"

enum { OPTIONS_FILE_LIMIT = 1 << 20 };

const struct json_field option_text_item = {.name = "item", .type = JSON_TEXT};

static const struct json_style option_style = {
    .status = STATUS_INVALID, .quote = "", .member = "option"};

static void *section_of(void *out, const struct option_part *part) {
    return (char *)out + part->offset;
}

void options_init(const struct option_set *set, void *out) {
    for (int i = 0; i < set->count; i++) {
        const struct option_section *section = set->parts[i].section;
        for (int j = 0; j < section->count; j++) {
            const struct json_table row = {.fields = &section->rows[j].field, .count = 1};
            json_table_fallbacks(&row, section_of(out, &set->parts[i]));
        }
    }
}

void options_free(const struct option_set *set, void *out) {
    for (int i = 0; i < set->count; i++) {
        const struct option_section *section = set->parts[i].section;
        for (int j = 0; j < section->count; j++) {
            const struct json_table row = {.fields = &section->rows[j].field, .count = 1};
            json_table_free(&row, section_of(out, &set->parts[i]));
        }
    }
}

static bool is_named(const struct option_part *part, struct text_span name) {
    const char *section = part->section->name;
    return strlen(section) == name.size && memcmp(section, name.text, name.size) == 0;
}

static bool has_section(const struct option_set *set, struct text_span name) {
    for (int i = 0; i < set->count; i++)
        if (is_named(&set->parts[i], name)) return true;
    return false;
}

/* The row of a name in a section, and the part that has it; NULL: none has. */
static const struct option_row *find_row(const struct option_set *set, struct text_span section,
                                         const char *name, const struct option_part **part) {
    for (int i = 0; i < set->count; i++) {
        const struct option_section *rows = set->parts[i].section;
        *part = &set->parts[i];
        for (int j = 0; j < rows->count && is_named(*part, section); j++)
            if (strcmp(rows->rows[j].field.name, name) == 0) return &rows->rows[j];
    }
    return NULL;
}

static const struct option_row *find_key(const struct option_set *set, const char *key,
                                         const struct option_part **part) {
    size_t size = strcspn(key, ".");
    return key[size] == '.' ? find_row(set, (struct text_span){key, size}, key + size + 1, part)
                            : NULL;
}

const struct option_row *options_find(const struct option_set *set, const char *key,
                                      size_t *offset) {
    const struct option_part *part;
    const struct option_row *row = find_key(set, key, &part);
    if (row) *offset = part->offset + row->field.offset;
    return row;
}

static bool ends_key(const char *last, struct text_span name) {
    if (strlen(last) != name.size) return false;
    for (size_t i = 0; i < name.size; i++)
        if (last[i] != (name.text[i] == '-' ? '_' : name.text[i])) return false;
    return true;
}

void options_complete(const struct option_set *set, struct text_span name, struct buffer *keys) {
    for (int i = 0; i < set->count; i++) {
        const struct option_section *section = set->parts[i].section;
        for (int j = 0; j < section->count; j++)
            if (ends_key(section->rows[j].field.name, name))
                buffer_printf(keys, "%s%s.%s", keys->size ? " or " : "", section->name,
                              section->rows[j].field.name);
    }
}

/* The key nearest to a misspelt one, or "". The caller frees *near. */
static void find_nearest(const struct option_set *set, const char *key, struct buffer *near) {
    struct nearest_name nearest = {0};
    options_complete(set, (struct text_span){key, strlen(key)}, near);
    if (near->size) return;
    struct buffer known = {0};
    for (int i = 0; i < set->count; i++) {
        const struct option_section *section = set->parts[i].section;
        for (int j = 0; j < section->count; j++) {
            int best = nearest.name.text ? nearest.distance : INT32_MAX;
            buffer_clear(&known);
            buffer_printf(&known, "%s.%s", section->name, section->rows[j].field.name);
            nearest_offer(&nearest, (struct text_span){key, strlen(key)},
                          (struct text_span){known.data, known.size});
            if (!nearest.name.text || nearest.distance >= best) continue;
            buffer_clear(near);
            buffer_append(near, known.data, known.size);
        }
    }
    buffer_free(&known);
}

static enum status unknown_option(struct json_reader *reader, const struct option_set *set,
                                  const char *key) {
    struct buffer near = {0};
    enum status status;
    find_nearest(set, key, &near);
    if (near.size)
        status = json_fail(reader, JSON_FAULT_UNKNOWN,
                           "unknown option \"%.100s\"; did you mean \"%s\"?", key, near.data);
    else
        status = json_fail(reader, JSON_FAULT_UNKNOWN,
                           "unknown option \"%.100s\"; --help lists all", key);
    buffer_free(&near);
    return status;
}

static enum status unknown_section(struct json_reader *reader, const struct option_set *set,
                                   struct text_span name) {
    struct nearest_name nearest = {0};
    size_t ignored, size = strcspn(name.text, ".");
    if (options_find(set, name.text, &ignored))
        return json_fail(reader, JSON_FAULT_UNKNOWN,
                         "\"%s\" is written nested in a file: {\"%.*s\": {\"%s\": ...}}", name.text,
                         (int)size, name.text, name.text + size + 1);
    for (int i = 0; i < set->count; i++) {
        const char *section = set->parts[i].section->name;
        nearest_offer(&nearest, name, (struct text_span){section, strlen(section)});
    }
    if (nearest.name.text)
        return json_fail(reader, JSON_FAULT_UNKNOWN,
                         "unknown section \"%.100s\"; did you mean \"%s\"?", name.text,
                         nearest.name.text);
    return json_fail(reader, JSON_FAULT_UNKNOWN,
                     "unknown section \"%.100s\"; --help lists all options", name.text);
}

/* Only a shell replaces these. */
static bool needs_shell(const char *path) {
    return path[0] == '~' || path[0] == '$' || strstr(path, "$HOME") || strstr(path, "${HOME}");
}

/* A path as it was written becomes one that can be opened; "" stays. */
static enum status place_path(struct json_reader *reader, char **path, const char *base) {
    struct buffer joined = {0};
    if (needs_shell(*path))
        return json_fail(reader, JSON_FAULT_VALUE,
                         "%s.%s is \"%.100s\"; ~ and $HOME are not replaced here: write the whole "
                         "path, or one relative "
                         "to %s",
                         reader->place->above->name, reader->place->name, *path,
                         base[0] ? "the file's folder" : "the working directory");
    /* An address is no path. */
    if ((*path)[0] == '\0' || (*path)[0] == '/' || base[0] == '\0' || strstr(*path, "://"))
        return STATUS_OK;
    buffer_printf(&joined, "%s%s%s", base, base[strlen(base) - 1] == '/' ? "" : "/", *path);
    free(*path);
    *path = xstrdup(joined.data);
    buffer_free(&joined);
    return STATUS_OK;
}

static enum status read_path(struct json_reader *reader, const struct option_row *row,
                             const struct json *value, void *section, const char *base) {
    if (!json_is_text(value)) return json_fail_type(reader, option_type_words(row), value);
    if (json_field_read(reader, &row->field, value, section)) return reader->e->status;
    return place_path(reader, (char **)(void *)((char *)section + row->field.offset), base);
}

static enum status read_structs(struct json_reader *reader, const struct option_row *row,
                                const struct json *value, void *section, const char *base) {
    const struct json_list *list =
        (const struct json_list *)(const void *)((char *)section + row->field.offset);
    enum status status = json_field_read(reader, &row->field, value, section);
    for (size_t i = 0; i < list->count && status == STATUS_OK && row->path; i++)
        status = place_path(
            reader, (char **)(void *)((char *)list->items + i * row->field.item_size), base);
    return status;
}

static void add_hint(const struct option_row *row, const struct json *value, struct error *e) {
    for (const struct option_hint *hint = row->hints; hint && hint->value; hint++) {
        size_t used = strlen(e->text);
        if (json_text_is(value, hint->value))
            snprintf(e->text + used, sizeof e->text - used, "; %s", hint->text);
    }
}

/* One value of a section's struct. reader->place is the option's. */
static enum status read_option(struct json_reader *reader, const struct option_row *row,
                               const struct json *value, void *section, const char *base) {
    if (row->field.type == JSON_LIST && !json_is_list(value))
        return json_fail_type(reader, option_type_words(row), value);
    if (option_has_structs(row)) return read_structs(reader, row, value, section, base);
    if (row->path) return read_path(reader, row, value, section, base);
    enum status status = json_field_read(reader, &row->field, value, section);
    if (status) add_hint(row, value, reader->e);
    return status;
}

static enum status read_section(struct json_reader *reader, const struct option_set *set,
                                struct text_span name, const struct json *object, void *out,
                                const char *base) {
    const struct json_place *above = reader->place;
    enum status status = STATUS_OK;
    if (json_kind(object) != JSON_KIND_OBJECT)
        return json_fail_type(reader, "an object of options", object);
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(object, &it);) {
        const struct option_part *part;
        const struct option_row *row = find_row(set, name, it.name.text, &part);
        struct json_place place = {.above = above, .name = it.name.text};
        struct buffer key = {0};
        buffer_printf(&key, "%.*s.%s", (int)name.size, name.text, it.name.text);
        reader->place = &place;
        if (row)
            status = read_option(reader, row, it.value, section_of(out, part), base);
        else
            status = unknown_option(reader, set, key.data);
        reader->place = above;
        buffer_free(&key);
    }
    return status;
}

enum status options_parse(const struct option_set *set, void *out, struct text_span text,
                          const char *name, const char *base, struct error *e) {
    struct json_reader reader = {.name = name, .text = text, .style = &option_style, .e = e};
    struct json *root;
    enum status status = json_parse(&root, text, name, e);
    if (status) return status;
    if (json_kind(root) != JSON_KIND_OBJECT)
        status = error_set(e, STATUS_INVALID, "%s: expected an object of sections", name);
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(root, &it);) {
        struct json_place place = {.name = it.name.text};
        bool known = has_section(set, it.name);
        reader.place = &place;
        status = known ? read_section(&reader, set, it.name, it.value, out, base)
                       : unknown_section(&reader, set, it.name);
        reader.place = NULL;
    }
    json_close(root);
    return status;
}

enum status options_read(const struct option_set *set, void *out, const char *path,
                         struct error *e) {
    struct buffer text = {0};
    enum status status = file_read(path, OPTIONS_FILE_LIMIT, &text, e);
    if (status == STATUS_OK) {
        const char *slash = strrchr(path, '/');
        char *base = xstrndup(path, slash ? (size_t)(slash - path) + 1 : 0);
        status = options_parse(set, out, (struct text_span){text.data, text.size}, path, base, e);
        free(base);
    }
    buffer_free(&text);
    return status;
}

/* The JSON value that the text of --set means for this option. */
static enum status value_of_text(struct json **value, const struct option_row *row,
                                 const char *text, struct error *e) {
    struct text_span span = {text, strlen(text)};
    bool texts = row->field.type == JSON_LIST && !option_has_structs(row);
    bool literal =
        row->field.type == JSON_TEXT || row->field.type == JSON_CHOICE || (texts && text[0] != '[');
    if (!utf8_is_valid(text, span.size)) return error_set(e, STATUS_INVALID, "not valid UTF-8");
    if (!literal && json_parse_any(value, span, "--set", e) == STATUS_OK) return STATUS_OK;
    return json_from_text(value, span, e);
}

/* Puts one more text behind a list. */
static void append_text(struct json_list *list, const char *text) {
    char **items = xrealloc(list->items, (list->count + 1) * sizeof *items);
    items[list->count] = xstrdup(text);
    list->count++;
    list->items = items;
}

static enum status assign_text(struct json_reader *reader, const struct option_part *part,
                               const struct option_row *row, const char *text, void *out) {
    struct json *value = NULL;
    enum status status = value_of_text(&value, row, text, reader->e);
    void *section = section_of(out, part);
    if (status)
        status = json_fail(reader, JSON_FAULT_VALUE, "%s.%s is not valid UTF-8",
                           part->section->name, row->field.name);
    else if (row->field.type == JSON_LIST && text[0] != '[' && !option_has_structs(row))
        append_text((struct json_list *)(void *)((char *)section + row->field.offset), text);
    else
        status = read_option(reader, row, value, section, "");
    json_close(value);
    return status;
}

enum status options_assign(const struct option_set *set, void *out, const char *assignment,
                           struct error *e) {
    struct json_reader reader = {.name = "--set", .style = &option_style, .e = e};
    const char *equals = strchr(assignment, '=');
    if (equals == NULL)
        return error_set(e, STATUS_INVALID,
                         "--set: \"%.100s\" has no \"=\"; write --set retrieval.k=4", assignment);

    char *key = xstrndup(assignment, (size_t)(equals - assignment));
    const struct option_part *part;
    const struct option_row *row = find_key(set, key, &part);
    enum status status;
    if (row == NULL) {
        status = unknown_option(&reader, set, key);
    } else {
        struct json_place section = {.name = part->section->name};
        struct json_place place = {.above = &section, .name = row->field.name};
        reader.place = &place;
        status = assign_text(&reader, part, row, equals + 1, out);
    }
    free(key);
    return status;
}
