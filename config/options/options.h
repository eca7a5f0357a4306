/* config/options/options.h: the engine of options. Rooms declare rows beside what the rows set; a
 * program joins the rooms' sections to an option_set, which fills one struct from a JSON file and
 * from --set, and prints --help,
 * --print-config and docs/config.md.
 *
 * Keys are dotted ("retrieval.k"); in the file they nest: {"retrieval": {"k": 2}}. An unknown key,
 * a wrong type or a value out of range is an error with file, line, allowed range and nearest known
 * name. A relative path is relative to the file's folder, in --set to the working directory. A list
 * is a JSON array in the file; --set x=["a","b"] takes its place, --set x=a adds one item to it. */
#pragma once

#include <stdio.h>

#include "config/json/json_table.h"

/* Text that a message adds where a choice was refused. A list ends with {NULL, NULL}. */
struct option_hint {
    const char *value, *text;
};

/* One option. `field` has its name within the section, and its type: JSON_BOOL, JSON_INT,
 * JSON_DOUBLE, JSON_TEXT (never NULL, owned), JSON_CHOICE, or JSON_LIST of JSON_TEXT or of
 * JSON_STRUCT, whose rows are JSON_TEXT, JSON_CHOICE and lists of JSON_TEXT; its offset is into the
 * section's struct.
 */
struct option_row {
    struct json_field field;
    bool path; /* relative paths are put below the file's folder: of JSON_TEXT, or of the first
                * member of a list's structs, a char * */
    const char *help; /* one line, no full stop */
    const struct option_hint *hints;
};
#define OPTION_BOOL(type, member, value, words) \
    { .field = {#member, JSON_BOOL, JSON_AT(type, member), .fallback = (value)}, .help = (words) }
#define OPTION_INT(type, member, value, low, high, words) \
    { \
        .field = {#member,      JSON_INT,      JSON_AT(type, member), \
                  .min = (low), .max = (high), .fallback = (value)}, \
        .help = (words) \
    }
#define OPTION_DOUBLE(type, member, value, low, high, words) \
    { \
        .field = {#member,      JSON_DOUBLE,   JSON_AT(type, member), \
                  .min = (low), .max = (high), .fallback = (value)}, \
        .help = (words) \
    }
#define OPTION_TEXT(type, member, value, words) \
    { .field = {#member, JSON_TEXT, JSON_AT(type, member), .text = (value)}, .help = (words) }
#define OPTION_PATH(type, member, words) \
    { \
        .field = {#member, JSON_TEXT, JSON_AT(type, member), .text = ""}, .path = true, \
        .help = (words) \
    }
#define OPTION_CHOICE(type, member, value, names, words, ...) \
    { \
        .field = {#member, JSON_CHOICE, JSON_AT(type, member), .choices = (names), \
                  .fallback = (value)}, \
        .help = (words), __VA_ARGS__ \
    }
#define OPTION_TEXTS(type, member, words) \
    { \
        .field = {#member, JSON_LIST, JSON_AT(type, member), .item = &option_text_item, \
                  .item_size = sizeof(char *)}, \
        .help = (words) \
    }
#define OPTION_STRUCTS(type, member, row, bytes, paths, words) \
    { \
        .field = {#member, JSON_LIST, JSON_AT(type, member), .item = (row), .item_size = (bytes)}, \
        .path = (paths), .help = (words) \
    }
extern const struct json_field option_text_item;

static inline bool option_has_structs(const struct option_row *row) {
    return row->field.type == JSON_LIST && row->field.item->type == JSON_STRUCT;
}

struct option_section {
    const char *name;
    const struct option_row *rows;
    int count;
};

/* A section, and where its struct is in the whole. Several parts may be one section: neighbours in
 * the set, of one name, each with a struct of its own. */
struct option_part {
    const struct option_section *section;
    size_t offset;
};

struct option_set {
    const struct option_part *parts;
    int count;
};

/* Defaults for every option of `out`, which is all zeros; then options_read and options_assign on
 * top. */
void options_init(const struct option_set *set, void *out);
void options_free(const struct option_set *set, void *out);
enum status options_read(const struct option_set *set, void *out, const char *path,
                         struct error *e);
/* The text of a file; `name` is what errors call it, relative paths are put below `base` unless
 * that is empty. */
enum status options_parse(const struct option_set *set, void *out, struct text_span text,
                          const char *name, const char *base, struct error *e);
/* "retrieval.k=4" */
enum status options_assign(const struct option_set *set, void *out, const char *assignment,
                           struct error *e);

/* The option of a dotted key, NULL when there is none; *offset is of its field in the whole. */
const struct option_row *options_find(const struct option_set *set, const char *key,
                                      size_t *offset);
/* Appends the keys whose last part is `name`, joined by " or ": "server.port" for "port". A dash of
 * the name is an underscore of the key. */
void options_complete(const struct option_set *set, struct text_span name, struct buffer *keys);
/* "an integer", "a path", "a list of strings", ... */
const char *option_type_words(const struct option_row *row);

/* The effective values, as a file that options_read accepts. */
void options_print_json(const struct option_set *set, const void *values, FILE *out);
/* One option a line, and the sections of docs/config.md, with the defaults from `defaults`. */
void options_print_help(const struct option_set *set, const void *defaults, FILE *out);
void options_print_markdown(const struct option_set *set, const void *defaults, FILE *out);
