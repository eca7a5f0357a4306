/* config/json/json_table.h: structs filled from JSON objects by table.
 *
 * A row says what a member is called, of which type and range it is and where it goes. The reader
 * checks everything that a row says, refuses unknown members (unless the table is open) and words
 * every message alike:
 *
 *     static const struct json_field size_fields[] = {
 *         {"num_layers|n_layer", JSON_INT, JSON_AT(struct size, layers), .min = 1, .max = 512},
 *         {"norm_eps", JSON_FLOAT, JSON_AT(struct size, epsilon), .fallback = 1e-5},
 *         {"activation", JSON_CHOICE, JSON_AT(struct size, activation), .choices = activations,
 *          .required = true},
 *     };
 *     static const struct json_table size_table = JSON_TABLE(size_fields, .open = true);
 *     ...
 *     struct json_reader reader = {.name = "config.json", .e = e};
 *     return json_table_read(&reader, &size_table, root, &size);
 *
 * A member that is null counts as absent. A field that is absent keeps what the caller put there,
 * or gets the row's fallback. Numbers in files may be any: only those within the range and the C
 * type get through. */
#pragma once

#include "config/json/json_place.h"
#include "config/json/json_value.h"

struct json_reader;
struct json_table;
struct json_writer;

enum json_type {
    JSON_BOOL,   /* bool */
    JSON_INT,    /* int */
    JSON_INT64,  /* int64_t */
    JSON_FLOAT,  /* float; an integer will do */
    JSON_DOUBLE, /* double; an integer will do */
    JSON_TEXT,   /* char *, owned, without NUL characters; NULL or owned before, when it is freed */
    JSON_HEX,    /* uint64_t: a string of 16 lower-case hexadecimal digits */
    JSON_CHOICE, /* an enum (or int): the value beside the name in `choices` */
    JSON_STRUCT, /* a struct at offset, by `table` */
    JSON_ROWS, /* no member: the rows of `table`, whose struct is at offset, are rows of this table
                  too */
    JSON_LIST, /* struct json_list: min .. max items, each by the row `item` */
    JSON_RAW,  /* const struct json *: the value itself, which belongs to the document */
    JSON_PARSED,        /* the row's `parse` does the rest */
    JSON_NEUTRAL,       /* not supported: a number that must be `min`, where it changes nothing */
    JSON_MUST_BE_FALSE, /* not supported: must be false */
    JSON_EMPTY,         /* not supported: must be "", {} or [] */
    JSON_IGNORED        /* means nothing here and is harmless */
};

/* Ends with {NULL, 0}. Several names may mean the same. */
struct json_choice {
    const char *name;
    int value;
};

/* Items are in the order of the file; zero-initialise. json_table_free frees them. */
struct json_list {
    void *items;
    size_t count;
};

/* Fills `object`, the struct that the table's offsets point into, from the value of one member. */
typedef enum status json_field_parser(struct json_reader *r, const struct json *value,
                                      void *object);

struct json_field {
    const char *name; /* "k"; with other spellings "num_layers|n_layer": the first that is there */
    enum json_type type;
    size_t offset;
    double min, max; /* allowed, both included; 0 and 0: any finite number. Of JSON_LIST the number
                        of items */
    bool required;
    double fallback;  /* of an absent bool, number or choice when it is not 0 */
    const char *text; /* of an absent JSON_TEXT when it is not NULL */
    const struct json_choice *choices;
    const struct json_table *table;
    const struct json_field *item; /* its offset is 0, its name is not used */
    size_t item_size;              /* bytes of an item in memory */
    bool or_one;                   /* JSON_LIST: a value that is no list stands for a list of one */
    const char
        *option; /* the option that sets max; then max is the int at limit_offset of the limits */
    size_t limit_offset;
    json_field_parser *parse;
    const char
        *schema;      /* of JSON_PARSED, for readers of the table: what it takes, in JSON Schema */
    const char *help; /* what it means, for readers of the table */
};

#define JSON_AT(type, member) .offset = offsetof(type, member)

struct json_table {
    const struct json_field *fields;
    int count;
    bool open; /* members without a row are ignored; else they are errors */
};
#define JSON_TABLE(rows, ...) \
    { .fields = (rows), .count = (int)ARRAY_COUNT(rows), __VA_ARGS__ }

/* How messages are worded. */
struct json_style {
    enum status status; /* of a document that breaks the rules */
    const char *quote;  /* around names: "\"" or "" */
    const char *member; /* what a member is called: "key", "parameter" */
    const char
        *document; /* what the document is called: "the request body"; NULL: by its name alone */
    const char
        *advice;  /* behind an unknown name that is near to none; NULL: all names of the table */
    bool nearest; /* a misspelt name is answered by the nearest one */
    bool kinds; /* "k must be a number, not a string" instead of "k is \"x\", expected a number" */
};
/* "config.json: \"hidden_size\" is 0, allowed is 1 .. 65536", STATUS_INVALID: for files that others
 * write. */
extern const struct json_style json_file_style;

enum json_fault {
    JSON_FAULT_NONE,
    JSON_FAULT_TYPE,
    JSON_FAULT_VALUE,
    JSON_FAULT_MISSING,
    JSON_FAULT_UNKNOWN,
    JSON_FAULT_UNSUPPORTED
};

/* One reading of one document. The caller fills the first part. */
struct json_reader {
    const char *name;      /* messages begin with it: "config.json"; NULL: with the field */
    struct text_span text; /* the document's, for line numbers behind the name; empty: none */
    const struct json_style *style; /* NULL: json_file_style */
    const void *limits;             /* what limit_offset of rows points into */
    void *context;                  /* for parsers of rows */
    struct error *e;

    /* After a failure. */
    enum json_fault fault;
    char field[64]; /* "retrieval.k", cut off where it is longer; "" for the document itself */
    char shown[72]; /* the same in quotes */

    const struct json_place *place; /* of the value that is being read */
};

/* Reads `object`, which is the document or the value of the row whose parser calls this. */
enum status json_table_read(struct json_reader *reader, const struct json_table *table,
                            const struct json *object, void *out);
/* One value as the row `f` wants it; messages call it by reader->place. */
enum status json_field_read(struct json_reader *reader, const struct json_field *field,
                            const struct json *value, void *out);
/* Writes the value of a field of `object`, which is a boolean, a number, a text or a choice. */
void json_field_put(struct json_writer *w, const struct json_field *field, const void *object);
/* Gives every field its fallback, whatever is in it: for structs that start from defaults. Text
 * must be NULL or owned. */
void json_table_fallbacks(const struct json_table *table, void *out);
/* Frees the text and lists that the table's rows own and makes them NULL. */
void json_table_free(const struct json_table *table, void *out);
/* The same for one list of the row `f`. */
void json_list_free(const struct json_field *field, struct json_list *list);

/* For parsers of rows: the failure of the value at reader->place, with the reader's prefix before
 * the words. The second form words a wrong type as the reader does; `expected` is "a string", "an
 * array of at least one text". */
enum status json_fail(struct json_reader *reader, enum json_fault fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum status json_fail_type(struct json_reader *reader, const char *expected,
                           const struct json *found);
/* The row's value as text for messages: "1 .. 512", "a, b, c" or "". */
void json_field_range_print(const struct json_field *field, const void *limits, struct buffer *out);
/* "an integer", "a string", ... */
const char *json_type_words(enum json_type type);
/* Whether one of the row's spellings is `name`. */
bool json_field_is_named(const struct json_field *field, struct text_span name);
