/* config/json/json_table.c: reads objects by table. See json_table.h; words of messages are in
 * json_words.c. */
#include "config/json/json_table.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/json/json_words.h"
#include "config/json/json_writer.h"

/* The next spelling of "a|b|c"; *at starts as the whole and is NULL behind the last. */
static bool next_spelling(const char **at, struct text_span *name) {
    if (*at == NULL) return false;
    size_t size = strcspn(*at, "|");
    *name = (struct text_span){*at, size};
    *at = (*at)[size] == '|' ? *at + size + 1 : NULL;
    return true;
}

bool json_field_is_named(const struct json_field *field, struct text_span name) {
    const char *at = field->name;
    struct text_span spelling;
    while (next_spelling(&at, &spelling))
        if (spelling.size == name.size && memcmp(spelling.text, name.text, name.size) == 0)
            return true;
    return false;
}

/* The first spelling that is there and not null, as the file names it; absent: {NULL, NULL}. */
static const struct json *find_member(const struct json *object, const struct json_field *field,
                                      struct text_span *name) {
    const char *at = field->name;
    while (next_spelling(&at, name)) {
        const struct json *value = json_member_n(object, *name);
        if (!json_is_absent(value)) return value;
    }
    return NULL;
}

static double upper_limit(const struct json_reader *reader, const struct json_field *field) {
    int limit;
    if (field->option == NULL) return field->max;
    memcpy(&limit, (const char *)reader->limits + field->limit_offset, sizeof limit);
    return limit;
}

static bool is_ranged(const struct json_field *field) {
    return field->min != 0 || field->max != 0 || field->option != NULL;
}

static bool in_range(const struct json_reader *reader, const struct json_field *field,
                     double number) {
    return !is_ranged(field) || (number >= field->min && number <= upper_limit(reader, field));
}

static enum status read_integer(struct json_reader *reader, const struct json_field *field,
                                const struct json *value, void *target) {
    int64_t number = json_int(value);
    if (json_kind(value) != JSON_KIND_INT)
        return json_fail_type(reader, json_type_words(field->type), value);
    if (!in_range(reader, field, (double)number)) return words_range(reader, field, value);
    if (field->type == JSON_INT64) {
        memcpy(target, &number, sizeof number);
        return STATUS_OK;
    }
    if (number < INT_MIN || number > INT_MAX)
        return json_fail(reader, JSON_FAULT_VALUE, "%s is %lld, too large a number",
                         words_name(reader), (long long)number);
    int narrow = (int)number;
    memcpy(target, &narrow, sizeof narrow);
    return STATUS_OK;
}

static enum status read_real(struct json_reader *reader, const struct json_field *field,
                             const struct json *value, void *target) {
    double number = json_double(value);
    float narrow = (float)number;
    if (!json_is_numeric(value)) return json_fail_type(reader, json_type_words(field->type), value);
    if (!in_range(reader, field, number)) return words_range(reader, field, value);
    if (field->type == JSON_FLOAT && !isfinite(narrow))
        return json_fail(reader, JSON_FAULT_VALUE, "%s is %g, too large a number",
                         words_name(reader), number);
    if (field->type == JSON_FLOAT)
        memcpy(target, &narrow, sizeof narrow);
    else
        memcpy(target, &number, sizeof number);
    return STATUS_OK;
}

static void set_text(void *target, const char *text) {
    char *owned;
    memcpy(&owned, target, sizeof owned);
    free(owned);
    owned = text ? xstrdup(text) : NULL;
    memcpy(target, &owned, sizeof owned);
}

/* A NUL character would end the C string early, so that something else would be used than was said.
 */
static enum status read_text(struct json_reader *reader, const struct json_field *field,
                             const struct json *value, void *target) {
    const char *word = json_word(value);
    if (json_kind(value) != JSON_KIND_TEXT)
        return json_fail_type(reader, json_type_words(field->type), value);
    if (word == NULL)
        return json_fail(reader, JSON_FAULT_VALUE, "%s holds a NUL character", words_name(reader));
    set_text(target, word);
    return STATUS_OK;
}

static enum status read_hex(struct json_reader *reader, const struct json *value, void *target) {
    uint64_t number;
    const char *word = json_word(value);
    if (word == NULL || strlen(word) != 16 || !hash_parse(word, &number))
        return json_fail_type(reader, json_type_words(JSON_HEX), value);
    memcpy(target, &number, sizeof number);
    return STATUS_OK;
}

static enum status read_choice(struct json_reader *reader, const struct json_field *field,
                               const struct json *value, void *target) {
    if (json_kind(value) != JSON_KIND_TEXT) return words_choice_type(reader, field, value);
    for (const struct json_choice *choice = field->choices; choice->name; choice++) {
        if (!json_text_is(value, choice->name)) continue;
        memcpy(target, &choice->value, sizeof choice->value);
        return STATUS_OK;
    }
    return words_range(reader, field, value);
}

static enum status read_list(struct json_reader *reader, const struct json_field *field,
                             const struct json *value, struct json_list *list) {
    bool single = field->or_one && json_kind(value) != JSON_KIND_LIST;
    size_t count = single ? 1 : json_count(value);
    if (!single && json_kind(value) != JSON_KIND_LIST)
        return json_fail_type(reader, "an array", value);
    if (!in_range(reader, field, (double)count)) return words_list_size(reader, field, count);

    /* The items are counted as they are read, so that a failure leaves a list that can be freed. */
    void *items = calloc(count ? count : 1, field->item_size);
    if (items == NULL)
        return error_set(reader->e, STATUS_NO_MEMORY, "%zu items of %s", count, words_name(reader));
    json_list_free(field, list);
    list->items = items;
    for (size_t i = 0; i < count; i++) {
        const struct json_place *above = reader->place;
        struct json_place place = {.above = above, .item = i};
        void *item = (char *)list->items + i * field->item_size;
        list->count++;
        if (!single) reader->place = &place;
        enum status status =
            json_field_read(reader, field->item, single ? value : json_item(value, i), item);
        reader->place = above;
        if (status) return status;
    }
    return STATUS_OK;
}

static enum status read_unsupported(struct json_reader *reader, const struct json_field *field,
                                    const struct json *value) {
    bool empty =
        json_kind(value) >= JSON_KIND_TEXT && json_count(value) == 0 && json_text(value).size == 0;
    switch (field->type) {
        case JSON_NEUTRAL:
            if (json_is_numeric(value) && json_double(value) == field->min) return STATUS_OK;
            return json_fail(reader, JSON_FAULT_UNSUPPORTED,
                             "%s is not supported: leave it out or send %.15g", words_name(reader),
                             field->min);
        case JSON_MUST_BE_FALSE:
            if (json_kind(value) == JSON_KIND_BOOL && !json_bool(value)) return STATUS_OK;
            return json_fail(reader, JSON_FAULT_UNSUPPORTED, "%s is not supported: must be false",
                             words_name(reader));
        default:
            if (empty) return STATUS_OK;
            return json_fail(reader, JSON_FAULT_UNSUPPORTED, "%s is not supported: leave it out",
                             words_name(reader));
    }
}

enum status json_field_read(struct json_reader *reader, const struct json_field *field,
                            const struct json *value, void *out) {
    void *target = (char *)out + field->offset;
    bool flag = json_bool(value);
    switch (field->type) {
        case JSON_BOOL:
            if (json_kind(value) != JSON_KIND_BOOL)
                return json_fail_type(reader, json_type_words(field->type), value);
            memcpy(target, &flag, sizeof flag);
            return STATUS_OK;
        case JSON_INT:
        case JSON_INT64: return read_integer(reader, field, value, target);
        case JSON_FLOAT:
        case JSON_DOUBLE: return read_real(reader, field, value, target);
        case JSON_TEXT: return read_text(reader, field, value, target);
        case JSON_HEX: return read_hex(reader, value, target);
        case JSON_CHOICE: return read_choice(reader, field, value, target);
        case JSON_ROWS:
        case JSON_STRUCT: return json_table_read(reader, field->table, value, target);
        case JSON_LIST: return read_list(reader, field, value, target);
        case JSON_RAW: memcpy(target, &value, sizeof value); return STATUS_OK;
        case JSON_PARSED: return field->parse(reader, value, out);
        case JSON_NEUTRAL:
        case JSON_MUST_BE_FALSE:
        case JSON_EMPTY: return read_unsupported(reader, field, value);
        case JSON_IGNORED: return STATUS_OK;
    }
    CHECK(!"a json_type");
    return STATUS_INTERNAL;
}

static const char *choice_name(const struct json_field *field, int value) {
    const struct json_choice *choice = field->choices;
    while (choice->name && choice->value != value) choice++;
    CHECK(choice->name);
    return choice->name;
}

void json_field_put(struct json_writer *w, const struct json_field *field, const void *object) {
    const void *at = (const char *)object + field->offset;
    switch (field->type) {
        case JSON_BOOL: put_bool(w, *(const bool *)at); break;
        case JSON_INT: put_int(w, *(const int *)at); break;
        case JSON_INT64: put_int(w, *(const int64_t *)at); break;
        case JSON_DOUBLE: put_double(w, *(const double *)at); break;
        case JSON_TEXT: put_string(w, *(char *const *)at); break;
        case JSON_CHOICE: put_string(w, choice_name(field, *(const int *)at)); break;
        default: CHECK(!"a type that is written by its row");
    }
}

static void set_fallback(const struct json_field *field, void *out) {
    void *target = (char *)out + field->offset;
    bool flag = field->fallback != 0;
    float narrow = (float)field->fallback;
    int number = (int)field->fallback;
    int64_t wide = (int64_t)field->fallback;
    switch (field->type) {
        case JSON_BOOL: memcpy(target, &flag, sizeof flag); break;
        case JSON_INT:
        case JSON_CHOICE: memcpy(target, &number, sizeof number); break;
        case JSON_INT64: memcpy(target, &wide, sizeof wide); break;
        case JSON_FLOAT: memcpy(target, &narrow, sizeof narrow); break;
        case JSON_DOUBLE: memcpy(target, &field->fallback, sizeof field->fallback); break;
        case JSON_TEXT: set_text(target, field->text); break;
        case JSON_ROWS:
        case JSON_STRUCT: json_table_fallbacks(field->table, target); break;
        default: break;
    }
}

void json_table_fallbacks(const struct json_table *table, void *out) {
    for (int i = 0; i < table->count; i++) set_fallback(&table->fields[i], out);
}

/* A row whose member is not there. A struct may have fallbacks of its own. */
static enum status read_absent(struct json_reader *reader, const struct json_field *field,
                               void *out) {
    char first[64];
    if (field->required) {
        snprintf(first, sizeof first, "%.*s", (int)strcspn(field->name, "|"), field->name);
        return words_missing(reader, first);
    }
    if (field->fallback != 0 || field->text) set_fallback(field, out);
    return STATUS_OK;
}

static enum status read_rows(struct json_reader *reader, const struct json_table *table,
                             const struct json *object, void *out);

static enum status read_row(struct json_reader *reader, const struct json_field *field,
                            const struct json *object, void *out) {
    struct text_span spelling;
    if (field->type == JSON_ROWS)
        return read_rows(reader, field->table, object, (char *)out + field->offset);
    const struct json *value = find_member(object, field, &spelling);
    if (value == NULL) return read_absent(reader, field, out);

    char name[64];
    const struct json_place *above = reader->place;
    struct json_place place = {.above = above, .name = name};
    snprintf(name, sizeof name, "%.*s", (int)spelling.size, spelling.text);
    reader->place = &place;
    enum status status = json_field_read(reader, field, value, out);
    reader->place = above;
    return status;
}

static enum status read_rows(struct json_reader *reader, const struct json_table *table,
                             const struct json *object, void *out) {
    for (int i = 0; i < table->count; i++) {
        enum status status = read_row(reader, &table->fields[i], object, out);
        if (status) return status;
    }
    return STATUS_OK;
}

static bool table_has(const struct json_table *table, struct text_span name) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        if (field->type == JSON_ROWS ? table_has(field->table, name)
                                     : json_field_is_named(field, name))
            return true;
    }
    return false;
}

enum status json_table_read(struct json_reader *reader, const struct json_table *table,
                            const struct json *object, void *out) {
    if (json_kind(object) != JSON_KIND_OBJECT) return words_not_an_object(reader, object);
    enum status status = read_rows(reader, table, object, out);
    if (status) return status;
    for (struct json_entry it = {0}; !table->open && json_next(object, &it);)
        if (!table_has(table, it.name)) return words_unknown(reader, table, it.name);
    return STATUS_OK;
}

void json_list_free(const struct json_field *field, struct json_list *list) {
    struct json_table item = {.fields = field->item, .count = 1};
    for (size_t i = 0; i < list->count; i++)
        json_table_free(&item, (char *)list->items + i * field->item_size);
    free(list->items);
    *list = (struct json_list){0};
}

void json_table_free(const struct json_table *table, void *out) {
    for (int i = 0; i < table->count; i++) {
        const struct json_field *field = &table->fields[i];
        void *target = (char *)out + field->offset;
        if (field->type == JSON_TEXT) set_text(target, NULL);
        if (field->type == JSON_LIST) json_list_free(field, target);
        if (field->type == JSON_STRUCT || field->type == JSON_ROWS)
            json_table_free(field->table, target);
    }
}
