/* config/json/json_value.c: the one file that knows the parser. See json_value.h. */
#include "config/json/json_value.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"

/* A struct json is jansson's json_t under a name of ours. */
static const json_t *value_of(const struct json *json) {
    return (const json_t *)(const void *)json;
}
static const struct json *json_of(const json_t *v) { return (const struct json *)(const void *)v; }

/* Where a scan over JSON text is; the text need not be valid. */
struct text_scan {
    size_t values; /* commas and opening brackets outside strings */
    int depth, deepest;
};

static void scan_byte(struct text_scan *scan, char c) {
    switch (c) {
        case '{':
        case '[':
            scan->values++;
            scan->depth++;
            if (scan->depth > scan->deepest) scan->deepest = scan->depth;
            break;
        case '}':
        case ']': scan->depth--; break;
        case ',': scan->values++; break;
        default: break;
    }
}

static struct text_scan scan_text(struct text_span text) {
    struct text_scan scan = {0};
    bool inside = false;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.text[i];
        if (c == '"')
            inside = !inside;
        else if (inside && c == '\\')
            i++;
        else if (!inside)
            scan_byte(&scan, c);
    }
    return scan;
}

size_t json_count_values(struct text_span text) { return scan_text(text).values; }

/* jansson drops a NUL that follows a number; the grammar of JSON has no such byte anywhere. */
static enum status check_bytes(struct text_span text, const char *name, struct error *e) {
    const char *nul = text.size > 0 ? memchr(text.text, 0, text.size) : NULL;
    if (nul == NULL) return STATUS_OK;
    int line = 1;
    for (const char *c = text.text; c < nul; c++) line += *c == '\n';
    return error_set(e, STATUS_INVALID, "%s:%d: not JSON: a NUL byte", name, line);
}

static enum status parse_text(struct json **out, struct text_span text, size_t flags,
                              const char *name, struct error *e) {
    json_error_t at;
    *out = NULL;
    enum status status = check_bytes(text, name, e);
    if (status) return status;
    if (scan_text(text).deepest > JSON_DEPTH_LIMIT)
        return error_set(e, STATUS_INVALID, "%s: nested deeper than %d levels", name,
                         JSON_DEPTH_LIMIT);
    *out = (struct json *)(void *)json_loadb(text.text, text.size, JSON_ALLOW_NUL | flags, &at);
    /* jansson finds no words for a memory that is out. */
    if (*out == NULL && at.text[0] == '\0')
        return error_set(e, STATUS_NO_MEMORY, "%s: it needs more memory than there is", name);
    if (*out == NULL)
        return error_set(e, STATUS_INVALID, "%s:%d:%d: not JSON: %s", name, at.line, at.column,
                         at.text);
    return STATUS_OK;
}

enum status json_parse(struct json **out, struct text_span text, const char *name,
                       struct error *e) {
    return parse_text(out, text, JSON_REJECT_DUPLICATES, name, e);
}

enum status json_parse_any(struct json **out, struct text_span text, const char *name,
                           struct error *e) {
    return parse_text(out, text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, name, e);
}

/* Digits next to each other that the parser holds wherever they stand in a number. */
enum { HELD_DIGITS = 2 };

/* Appends the text with no more digits next to each other than these, outside strings: a number of
 * the same kind, and none where there was none. */
static void shorten_numbers(struct text_span text, struct buffer *out) {
    size_t copied = 0, digits = 0;
    bool inside = false;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.text[i];
        bool digit = !inside && is_digit(c);
        digits = digit ? digits + 1 : 0;
        if (digits > HELD_DIGITS) {
            buffer_append(out, text.text + copied, i - copied);
            copied = i + 1;
        }
        if (c == '"') inside = !inside;
        if (inside && c == '\\') i++;
    }
    if (copied < text.size) buffer_append(out, text.text + copied, text.size - copied);
}

enum json_kind json_check(struct text_span text) {
    struct buffer held = {0};
    struct json *json;
    struct error ignored;
    shorten_numbers(text, &held);
    parse_text(&json, (struct text_span){held.data, held.size}, JSON_DECODE_ANY, "", &ignored);
    enum json_kind kind = json_kind(json);
    json_close(json);
    buffer_free(&held);
    return kind;
}

/* Digits of a number that surely fits int64_t. */
enum { SAFE_DIGITS = 18 };

/* Whether the digits [start, end) outside strings are an integer: no point and no exponent is next
 * to them. */
static bool is_integer(struct text_span text, size_t start, size_t end) {
    char before = start > 0 ? text.text[start - 1] : ' ',
         after = end < text.size ? text.text[end] : ' ';
    if (before == '-' && start > 1) before = text.text[start - 2];
    return strchr(".eE+", before) == NULL && strchr(".eE", after) == NULL;
}

/* The bytes at the beginning of [at, end) that Python writes for a number that JSON lacks. */
static size_t count_unnumbered(const char *at, const char *end) {
    static const char *const words[] = {"Infinity", "-Infinity", "NaN"};
    for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(end - at) >= size && memcmp(at, words[i], size) == 0) return size;
    }
    return 0;
}

void json_widen_numbers(struct text_span text, struct buffer *out) {
    size_t copied = 0, i = 0;
    bool inside = false;
    while (i < text.size) {
        size_t end = i, word = 0;
        if (!inside) word = count_unnumbered(text.text + i, text.text + text.size);
        while (!inside && end < text.size && is_digit(text.text[end])) end++;
        if (end - i > SAFE_DIGITS && is_integer(text, i, end)) {
            buffer_append(out, text.text + copied, end - copied);
            buffer_append_string(out, ".0");
            copied = end;
        }
        if (word > 0) {
            buffer_append(out, text.text + copied, i - copied);
            buffer_printf(out, "\"%.*s\"", (int)word, text.text + i);
            end = copied = i + word;
        }
        if (end == i && text.text[i] == '"') inside = !inside;
        if (end == i) end += inside && text.text[i] == '\\' ? 2 : 1;
        i = end;
    }
    if (copied < text.size) buffer_append(out, text.text + copied, text.size - copied);
}

/* Hugging Face writes 10^30 for a limit that nobody knows. */
enum status json_parse_file(struct json **out, const char *path, struct error *e) {
    struct buffer text = {0}, wide = {0};
    *out = NULL;
    enum status status = file_read(path, JSON_FILE_LIMIT, &text, e);
    if (status == STATUS_OK) {
        json_widen_numbers((struct text_span){text.data, text.size}, &wide);
        status = json_parse(out, (struct text_span){wide.data, wide.size}, path, e);
    }
    buffer_free(&text);
    buffer_free(&wide);
    return status;
}

enum status json_from_text(struct json **out, struct text_span text, struct error *e) {
    *out = (struct json *)(void *)json_stringn(text.text, text.size);
    return *out ? STATUS_OK : error_set(e, STATUS_INVALID, "not valid UTF-8");
}

void json_close(struct json *document) { json_decref((json_t *)(void *)document); }

static enum status take_line(struct text_span line, const char *where, json_record_taker *take,
                             void *context, struct error *e) {
    struct json *record;
    enum status status = json_parse(&record, line, where, e);
    if (status) return status;
    status = take(context, record, e);
    if (status) error_prefix(e, "%s", where);
    json_close(record);
    return status;
}

enum status json_parse_lines(const char *path, json_record_taker *take, void *context,
                             struct error *e) {
    struct file_map map;
    struct buffer where = {0};
    enum status status = file_map_open(&map, path, e);
    if (status) return status;
    const char *at = (const char *)map.data;
    const char *end = at ? at + map.size : at;
    for (int line = 1; at < end && status == STATUS_OK; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop ? stop : end) - at);
        buffer_clear(&where);
        buffer_printf(&where, "%s:%d", path, line);
        if (size > 0)
            status = take_line((struct text_span){at, size}, where.data, take, context, e);
        at = stop ? stop + 1 : end;
    }
    buffer_free(&where);
    file_map_close(&map);
    return status;
}

enum json_kind json_kind(const struct json *json) {
    static const enum json_kind kinds[] = {
        [JSON_OBJECT] = JSON_KIND_OBJECT, [JSON_ARRAY] = JSON_KIND_LIST,
        [JSON_STRING] = JSON_KIND_TEXT,   [JSON_INTEGER] = JSON_KIND_INT,
        [JSON_REAL] = JSON_KIND_REAL,     [JSON_TRUE] = JSON_KIND_BOOL,
        [JSON_FALSE] = JSON_KIND_BOOL,    [JSON_NULL] = JSON_KIND_NULL,
    };
    return json ? kinds[json_typeof(value_of(json))] : JSON_KIND_ABSENT;
}

bool json_is_numeric(const struct json *json) {
    return json_kind(json) == JSON_KIND_INT || json_kind(json) == JSON_KIND_REAL;
}

bool json_is_absent(const struct json *json) {
    return json == NULL || json_kind(json) == JSON_KIND_NULL;
}

bool json_bool(const struct json *json) { return json_is_true(value_of(json)); }
int64_t json_int(const struct json *json) { return json_integer_value(value_of(json)); }
double json_double(const struct json *json) { return json_number_value(value_of(json)); }

struct text_span json_text(const struct json *json) {
    return (struct text_span){json_string_value(value_of(json)),
                              json_string_length(value_of(json))};
}

const char *json_word(const struct json *json) {
    struct text_span text = json_text(json);
    return text.text && strlen(text.text) == text.size ? text.text : NULL;
}

bool json_text_is(const struct json *json, const char *text) {
    const char *word = json_word(json);
    return word && strcmp(word, text) == 0;
}

size_t json_count(const struct json *json) {
    return json_kind(json) == JSON_KIND_OBJECT ? json_object_size(value_of(json))
                                               : json_array_size(value_of(json));
}

const struct json *json_item(const struct json *list, size_t i) {
    return json_of(json_array_get(value_of(list), i));
}

const struct json *json_member(const struct json *object, const char *name) {
    return json_of(json_object_get(value_of(object), name));
}

const struct json *json_member_n(const struct json *object, struct text_span name) {
    return json_of(json_object_getn(value_of(object), name.text, name.size));
}

bool json_next(const struct json *object, struct json_entry *it) {
    /* Iterating changes nothing, but jansson's type says otherwise. */
    json_t *members = (json_t *)(uintptr_t)value_of(object);
    it->at = it->at ? json_object_iter_next(members, it->at) : json_object_iter(members);
    if (it->at == NULL) return false;
    it->name = (struct text_span){json_object_iter_key(it->at), json_object_iter_key_len(it->at)};
    it->value = json_of(json_object_iter_value(it->at));
    return true;
}

const char *json_kind_name(const struct json *json) {
    static const char *const names[] = {
        [JSON_KIND_ABSENT] = "nothing",     [JSON_KIND_NULL] = "null",
        [JSON_KIND_BOOL] = "false",         [JSON_KIND_INT] = "an integer",
        [JSON_KIND_REAL] = "a real number", [JSON_KIND_TEXT] = "a string",
        [JSON_KIND_LIST] = "an array",      [JSON_KIND_OBJECT] = "an object",
    };
    return json_bool(json) ? "true" : names[json_kind(json)];
}

const char *json_shown(const struct json *json, char shown[JSON_SHOWN_SIZE]) {
    struct text_span text = json_text(json);
    switch (json_kind(json)) {
        case JSON_KIND_TEXT: {
            size_t used = utf8_prefix(text.text, text.size, JSON_SHOWN_SIZE - 6);
            snprintf(shown, JSON_SHOWN_SIZE, "\"%.*s%s\"", (int)used, text.text,
                     used < text.size ? "..." : "");
            return shown;
        }
        case JSON_KIND_INT:
            snprintf(shown, JSON_SHOWN_SIZE, "%lld", (long long)json_int(json));
            return shown;
        case JSON_KIND_REAL:
            snprintf(shown, JSON_SHOWN_SIZE, "%.15g", json_double(json));
            return shown;
        case JSON_KIND_LIST: return "a list";
        default: return json_kind_name(json);
    }
}
