/* config/json/json_value.h: parsed JSON text, read through a cursor. The parser (jansson) is known
 * to json_value.c only.
 *
 * A `const struct json *` is one value; it belongs to its document, and NULL means "not there".
 * Every function here takes NULL and values of any kind, so that a chain like
 * json_text(json_member(json_item(list, 2), "type")) needs no check in between. Duplicate keys are
 * errors; NUL characters in strings are allowed. */
#pragma once

#include "config/base/buffer.h"

struct json;

enum json_kind {
    JSON_KIND_ABSENT,
    JSON_KIND_NULL,
    JSON_KIND_BOOL,
    JSON_KIND_INT, /* written without point and exponent, fits int64_t */
    JSON_KIND_REAL,
    JSON_KIND_TEXT,
    JSON_KIND_LIST,
    JSON_KIND_OBJECT
};

enum { JSON_FILE_LIMIT = 256 << 20, JSON_DEPTH_LIMIT = 64, JSON_SHOWN_SIZE = 64 };

/* Documents. Errors read "name:line:column: what"; name may be a path. The caller closes *out,
 * which is NULL after an error. */

/* text[0, size) is one list or object. */
enum status json_parse(struct json **out, struct text_span text, const char *name, struct error *e);
/* One value of any kind. */
enum status json_parse_any(struct json **out, struct text_span text, const char *name,
                           struct error *e);
/* The kind of the value that the text is; JSON_KIND_ABSENT: it is none, or deeper than
 * JSON_DEPTH_LIMIT. Its numbers may be of any size and its names doubled, which json_parse refuses:
 * such text is for json_raw.h. */
enum json_kind json_check(struct text_span text);
/* Appends the text with forms for numbers that JSON has none for: an integer of 19 digits or more
 * is a real, and Infinity, -Infinity and NaN, as Python writes them, are strings. The text need not
 * be JSON. */
void json_widen_numbers(struct text_span text, struct buffer *out);
/* A file of at most JSON_FILE_LIMIT bytes, its numbers widened. */
enum status json_parse_file(struct json **out, const char *path, struct error *e);
/* A text as a value; *out is NULL when it is not valid UTF-8. */
enum status json_from_text(struct json **out, struct text_span text, struct error *e);
void json_close(struct json *document);

/* Calls take for the record on each line of a file, in order, until one fails; empty lines are
 * skipped. The record ends with the call. An error names file and line. */
typedef enum status json_record_taker(void *context, const struct json *record, struct error *e);
enum status json_parse_lines(const char *path, json_record_taker *take, void *context,
                             struct error *e);

/* The commas and opening brackets outside strings of text[0, size), which need not be JSON: no
 * fewer than its values, short of one. It bounds the memory that parsing takes, before it takes it.
 */
size_t json_count_values(struct text_span text);

/* Values. */

enum json_kind json_kind(const struct json *json);
static inline bool json_is_int(const struct json *json) { return json_kind(json) == JSON_KIND_INT; }
static inline bool json_is_text(const struct json *json) {
    return json_kind(json) == JSON_KIND_TEXT;
}
static inline bool json_is_list(const struct json *json) {
    return json_kind(json) == JSON_KIND_LIST;
}
bool json_is_numeric(const struct json *json); /* integer or real */
/* NULL or JSON's null: both say that nothing is given. */
bool json_is_absent(const struct json *json);

bool json_bool(const struct json *json);     /* false when it is no bool */
int64_t json_int(const struct json *json);   /* 0 when it is no integer */
double json_double(const struct json *json); /* of an integer or a real; 0 otherwise */
struct text_span json_text(
    const struct json *json); /* NUL-terminated; {NULL, 0} when it is no string */
/* The text when it is a string without NUL characters, NULL otherwise: what can be compared by
 * strcmp. */
const char *json_word(const struct json *json);
bool json_text_is(const struct json *json, const char *text);

size_t json_count(const struct json *json); /* items or members; 0 of other kinds */
const struct json *json_item(const struct json *list, size_t i); /* NULL beyond the end */
const struct json *json_member(const struct json *object, const char *name);
const struct json *json_member_n(const struct json *object, struct text_span name);

/* for (struct json_entry it = {0}; json_next(object, &it);): members in the order of the file. */
struct json_entry {
    struct text_span name; /* NUL-terminated */
    const struct json *value;
    void *at;
};
bool json_next(const struct json *object, struct json_entry *it);

/* Words for messages. */

/* "an object", "true", ... */
const char *json_kind_name(const struct json *json);
/* A scalar as it is written, shortened; other kinds by name. */
const char *json_shown(const struct json *json, char shown[JSON_SHOWN_SIZE]);
