/* retro/template/json.c: values from JSON, and to it as json.dumps of Python writes it: the filter
 * tojson. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

/* The names of speakers: templates build control tokens from the role, as "<|" + role + "|>". */
static bool is_known_role(struct text_span name, const struct json *value) {
    static const char *const roles[] = {"system",        "developer",   "user",     "assistant",
                                        "tool",          "function",    "ipython",  "model",
                                        "observation",   "documents",   "document", "context",
                                        "tool_response", "environment", "control"};
    if (name.size != strlen("role") || memcmp(name.text, "role", name.size) != 0) return false;
    for (size_t i = 0; i < ARRAY_COUNT(roles); i++)
        if (json_text_is(value, roles[i])) return true;
    return false;
}

struct value value_from_json(struct template_run *run, const struct json *json, bool foreign) {
    struct value value = value_none();
    struct text_span text = json_text(json);
    run_step(run, 1);
    switch (json_kind(json)) {
        case JSON_KIND_BOOL: return value_bool(json_bool(json));
        case JSON_KIND_INT: return value_int(json_int(json));
        case JSON_KIND_REAL: return value_float(json_double(json));
        case JSON_KIND_TEXT: return value_string(string_of(run->m, text.text, text.size, foreign));
        case JSON_KIND_LIST:
            value = value_list(run, LIST_PLAIN);
            for (size_t i = 0; i < json_count(json); i++)
                list_append(run, value, value_from_json(run, json_item(json, i), foreign));
            return value;
        case JSON_KIND_OBJECT: {
            struct template_dict *dict = memory_take(run->m, sizeof *dict);
            size_t n = json_count(json);
            dict->entries = memory_take(run->m, n * sizeof *dict->entries);
            dict->capacity = (int)n;
            for (struct json_entry it = {0}; json_next(json, &it);) {
                bool own = foreign && !is_known_role(it.name, it.value);
                struct value key =
                    value_string(string_of(run->m, it.name.text, it.name.size, foreign));
                dict->entries[dict->n] =
                    (struct dict_entry){key, value_from_json(run, it.value, own)};
                dict->n++;
            }
            return (struct value){.kind = VALUE_DICT, .dict = dict};
        }
        default: return value;
    }
}

/* A document being written. */
struct json_text {
    struct template_run *r;
    struct text_builder out;
    const struct template_string *item, *key; /* separators */
    const struct template_string *indent;     /* of one level, NULL: all on one line */
    bool ascii, sort;
    int depth;
};

static void write_value(struct json_text *text, struct value value);

static void write_u(struct json_text *text, unsigned code) {
    builder_printf(&text->out, "\\u%04x", code);
}

static void write_string(struct json_text *text, const struct template_string *string) {
    static const char escaped[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    builder_words(&text->out, "\"");
    for (size_t at = 0, n; at < string->size; at += n) {
        int32_t c;
        n = (size_t)utf8_read(string->text + at, string->size - at, &c);
        const char *found = c > 0 && c < 0x80 ? strchr(escaped, c) : NULL;
        if (found) {
            builder_words(&text->out, "\\");
            builder_character(&text->out, letters[found - escaped], string, at);
        } else if (c < 0x20 || (text->ascii && c >= 0x80 && c < 0x10000) ||
                   (text->ascii && c == 0x7F && false)) {
            write_u(text, (unsigned)c);
        } else if (text->ascii && c >= 0x10000) {
            write_u(text, 0xD800 + (((unsigned)c - 0x10000) >> 10));
            write_u(text, 0xDC00 + (((unsigned)c - 0x10000) & 0x3FF));
        } else {
            builder_part(&text->out, string, at, at + n);
        }
    }
    builder_words(&text->out, "\"");
}

static void write_real(struct json_text *text, double v) {
    if (isnan(v))
        builder_words(&text->out, "NaN");
    else if (isinf(v))
        builder_words(&text->out, v > 0 ? "Infinity" : "-Infinity");
    else
        float_write(&text->out, v);
}

static void new_line(struct json_text *text) {
    if (text->indent == NULL) return;
    builder_words(&text->out, "\n");
    for (int i = 0; i < text->depth; i++) builder_add(&text->out, text->indent);
}

static void write_list(struct json_text *text, const struct template_list *list) {
    builder_words(&text->out, "[");
    text->depth++;
    for (int i = 0; i < list->n; i++) {
        if (i > 0) builder_add(&text->out, text->item);
        new_line(text);
        write_value(text, list->items[i]);
    }
    text->depth--;
    if (list->n > 0) new_line(text);
    builder_words(&text->out, "]");
}

static void write_key(struct json_text *text, struct value key) {
    if (key.kind == VALUE_STRING) {
        write_string(text, key.string);
    } else if (key.kind == VALUE_LIST || key.kind == VALUE_UNDEFINED) {
        run_fail(text->r, "keys must be str, int, float, bool or None, not %s", value_type(key));
    } else {
        builder_words(&text->out, "\"");
        write_value(text, key);
        builder_words(&text->out, "\"");
    }
}

static int by_key(const void *a, const void *b) {
    return string_compare(((const struct dict_entry *)a)->key.string,
                          ((const struct dict_entry *)b)->key.string);
}

static const struct dict_entry *sorted_entries(struct json_text *text,
                                               const struct template_dict *dict) {
    struct dict_entry *copy = memory_take(text->r->m, (size_t)dict->n * sizeof *copy + 1);
    for (int i = 0; i < dict->n; i++) {
        if (dict->entries[i].key.kind != VALUE_STRING)
            run_refuse(text->r, "sort_keys of keys that are no strings");
        copy[i] = dict->entries[i];
    }
    if (dict->n > 1) qsort(copy, (size_t)dict->n, sizeof *copy, by_key);
    return copy;
}

static void write_dict(struct json_text *text, const struct template_dict *dict) {
    const struct dict_entry *entries = text->sort ? sorted_entries(text, dict) : dict->entries;
    builder_words(&text->out, "{");
    text->depth++;
    for (int i = 0; i < dict->n; i++) {
        if (i > 0) builder_add(&text->out, text->item);
        new_line(text);
        write_key(text, entries[i].key);
        builder_add(&text->out, text->key);
        write_value(text, entries[i].value);
    }
    text->depth--;
    if (dict->n > 0) new_line(text);
    builder_words(&text->out, "}");
}

static void write_value(struct json_text *text, struct value value) {
    run_enter(text->r);
    switch (value.kind) {
        case VALUE_NONE: builder_words(&text->out, "null"); break;
        case VALUE_BOOL: builder_words(&text->out, value.truth ? "true" : "false"); break;
        case VALUE_INT: builder_printf(&text->out, "%lld", (long long)value.number); break;
        case VALUE_FLOAT: write_real(text, value.real); break;
        case VALUE_STRING: write_string(text, value.string); break;
        case VALUE_DICT: write_dict(text, value.dict); break;
        case VALUE_LIST:
            if (value.list->type == LIST_PLAIN || value.list->type == LIST_TUPLE ||
                value.list->type == LIST_GROUP) {
                write_list(text, value.list);
                break;
            }
            /* fall through */
        default: run_fail(text->r, "Object of type %s is not JSON serializable", value_type(value));
    }
    run_leave(text->r);
}

static const struct template_string *words_of(struct json_text *text, const char *words) {
    return value_words(text->r, words).string;
}

static void read_layout(struct json_text *text, const struct json_layout *layout) {
    struct value indent = layout->indent, separators = layout->separators;
    if (indent.kind == VALUE_STRING) {
        text->indent = indent.string;
    } else if (indent.kind == VALUE_INT || indent.kind == VALUE_BOOL) {
        char blanks[64];
        int64_t n = value_index(indent);
        if (n >= (int64_t)sizeof blanks)
            run_refuse(text->r, "tojson with an indent of %lld", (long long)n);
        if (n < 0) n = 0;
        memset(blanks, ' ', sizeof blanks);
        text->indent = string_of(text->r->m, blanks, (size_t)n, false);
    } else if (indent.kind != VALUE_NONE && indent.kind != VALUE_ABSENT) {
        run_fail(text->r, "tojson: indent is a %s", value_type(indent));
    }
    text->item = words_of(text, text->indent ? "," : ", ");
    text->key = words_of(text, ": ");
    if (separators.kind == VALUE_NONE || separators.kind == VALUE_ABSENT) return;
    if (separators.kind != VALUE_LIST || separators.list->n != 2 ||
        separators.list->items[0].kind != VALUE_STRING ||
        separators.list->items[1].kind != VALUE_STRING)
        run_fail(text->r, "tojson: separators must be two strings");
    text->item = separators.list->items[0].string;
    text->key = separators.list->items[1].string;
}

const struct template_string *value_json(struct template_run *run, struct value value,
                                         const struct json_layout *layout) {
    struct json_text text = {
        .r = run, .out = {.m = run->m}, .ascii = layout->ascii, .sort = layout->sort};
    read_layout(&text, layout);
    write_value(&text, value);
    return builder_string(&text.out);
}
