/* retro/template/json.c: values from JSON, and to it as json.dumps of Python writes it: the filter tojson. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

/* The names of speakers: templates build control tokens from the role, as "<|" + role + "|>". */
static bool is_known_role(struct text_span name, const struct json *value) {
    static const char *const roles[] = {"system",   "developer", "user",          "assistant",   "tool",
                                        "function", "ipython",   "model",         "observation", "documents",
                                        "document", "context",   "tool_response", "environment", "control"};
    if (name.size != strlen("role") || memcmp(name.text, "role", name.size) != 0) return false;
    for (size_t i = 0; i < ARRAY_COUNT(roles); i++)
        if (json_text_is(value, roles[i])) return true;
    return false;
}

struct value value_from_json(struct template_run *r, const struct json *json, bool foreign) {
    struct value v = value_none();
    struct text_span text = json_text(json);
    run_step(r, 1);
    switch (json_kind(json)) {
        case JSON_KIND_BOOL: return value_bool(json_bool(json));
        case JSON_KIND_INT: return value_int(json_int(json));
        case JSON_KIND_REAL: return value_float(json_double(json));
        case JSON_KIND_TEXT: return value_string(string_of(r->m, text.text, text.size, foreign));
        case JSON_KIND_LIST:
            v = value_list(r, LIST_PLAIN);
            for (size_t i = 0; i < json_count(json); i++)
                list_append(r, v, value_from_json(r, json_item(json, i), foreign));
            return v;
        case JSON_KIND_OBJECT: {
            struct template_dict *d = memory_take(r->m, sizeof *d);
            size_t n = json_count(json);
            d->entries = memory_take(r->m, n * sizeof *d->entries);
            d->capacity = (int)n;
            for (struct json_entry it = {0}; json_next(json, &it);) {
                bool own = foreign && !is_known_role(it.name, it.value);
                struct value key = value_string(string_of(r->m, it.name.text, it.name.size, foreign));
                d->entries[d->n] = (struct dict_entry){key, value_from_json(r, it.value, own)};
                d->n++;
            }
            return (struct value){.kind = VALUE_DICT, .dict = d};
        }
        default: return v;
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

static void write_value(struct json_text *t, struct value v);

static void write_u(struct json_text *t, unsigned code) { builder_printf(&t->out, "\\u%04x", code); }

static void write_string(struct json_text *t, const struct template_string *s) {
    static const char escaped[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    builder_words(&t->out, "\"");
    for (size_t at = 0, n; at < s->size; at += n) {
        int32_t c;
        n = (size_t)utf8_read(s->text + at, s->size - at, &c);
        const char *found = c > 0 && c < 0x80 ? strchr(escaped, c) : NULL;
        if (found) {
            builder_words(&t->out, "\\");
            builder_character(&t->out, letters[found - escaped], s, at);
        } else if (c < 0x20 || (t->ascii && c >= 0x80 && c < 0x10000) || (t->ascii && c == 0x7F && false)) {
            write_u(t, (unsigned)c);
        } else if (t->ascii && c >= 0x10000) {
            write_u(t, 0xD800 + (((unsigned)c - 0x10000) >> 10));
            write_u(t, 0xDC00 + (((unsigned)c - 0x10000) & 0x3FF));
        } else {
            builder_part(&t->out, s, at, at + n);
        }
    }
    builder_words(&t->out, "\"");
}

static void write_real(struct json_text *t, double v) {
    if (isnan(v))
        builder_words(&t->out, "NaN");
    else if (isinf(v))
        builder_words(&t->out, v > 0 ? "Infinity" : "-Infinity");
    else
        float_write(&t->out, v);
}

static void new_line(struct json_text *t) {
    if (t->indent == NULL) return;
    builder_words(&t->out, "\n");
    for (int i = 0; i < t->depth; i++) builder_add(&t->out, t->indent);
}

static void write_list(struct json_text *t, const struct template_list *l) {
    builder_words(&t->out, "[");
    t->depth++;
    for (int i = 0; i < l->n; i++) {
        if (i > 0) builder_add(&t->out, t->item);
        new_line(t);
        write_value(t, l->items[i]);
    }
    t->depth--;
    if (l->n > 0) new_line(t);
    builder_words(&t->out, "]");
}

static void write_key(struct json_text *t, struct value key) {
    if (key.kind == VALUE_STRING) {
        write_string(t, key.string);
    } else if (key.kind == VALUE_LIST || key.kind == VALUE_UNDEFINED) {
        run_fail(t->r, "keys must be str, int, float, bool or None, not %s", value_type(key));
    } else {
        builder_words(&t->out, "\"");
        write_value(t, key);
        builder_words(&t->out, "\"");
    }
}

static int by_key(const void *a, const void *b) {
    return string_compare(((const struct dict_entry *)a)->key.string, ((const struct dict_entry *)b)->key.string);
}

static const struct dict_entry *sorted_entries(struct json_text *t, const struct template_dict *d) {
    struct dict_entry *copy = memory_take(t->r->m, (size_t)d->n * sizeof *copy + 1);
    for (int i = 0; i < d->n; i++) {
        if (d->entries[i].key.kind != VALUE_STRING) run_refuse(t->r, "sort_keys of keys that are no strings");
        copy[i] = d->entries[i];
    }
    if (d->n > 1) qsort(copy, (size_t)d->n, sizeof *copy, by_key);
    return copy;
}

static void write_dict(struct json_text *t, const struct template_dict *d) {
    const struct dict_entry *entries = t->sort ? sorted_entries(t, d) : d->entries;
    builder_words(&t->out, "{");
    t->depth++;
    for (int i = 0; i < d->n; i++) {
        if (i > 0) builder_add(&t->out, t->item);
        new_line(t);
        write_key(t, entries[i].key);
        builder_add(&t->out, t->key);
        write_value(t, entries[i].value);
    }
    t->depth--;
    if (d->n > 0) new_line(t);
    builder_words(&t->out, "}");
}

static void write_value(struct json_text *t, struct value v) {
    run_enter(t->r);
    switch (v.kind) {
        case VALUE_NONE: builder_words(&t->out, "null"); break;
        case VALUE_BOOL: builder_words(&t->out, v.truth ? "true" : "false"); break;
        case VALUE_INT: builder_printf(&t->out, "%lld", (long long)v.number); break;
        case VALUE_FLOAT: write_real(t, v.real); break;
        case VALUE_STRING: write_string(t, v.string); break;
        case VALUE_DICT: write_dict(t, v.dict); break;
        case VALUE_LIST:
            if (v.list->type == LIST_PLAIN || v.list->type == LIST_TUPLE || v.list->type == LIST_GROUP) {
                write_list(t, v.list);
                break;
            }
            /* fall through */
        default: run_fail(t->r, "Object of type %s is not JSON serializable", value_type(v));
    }
    run_leave(t->r);
}

static const struct template_string *words_of(struct json_text *t, const char *words) {
    return value_words(t->r, words).string;
}

static void read_layout(struct json_text *t, const struct json_layout *layout) {
    struct value indent = layout->indent, separators = layout->separators;
    if (indent.kind == VALUE_STRING) {
        t->indent = indent.string;
    } else if (indent.kind == VALUE_INT || indent.kind == VALUE_BOOL) {
        char blanks[64];
        int64_t n = value_index(indent);
        if (n >= (int64_t)sizeof blanks) run_refuse(t->r, "tojson with an indent of %lld", (long long)n);
        if (n < 0) n = 0;
        memset(blanks, ' ', sizeof blanks);
        t->indent = string_of(t->r->m, blanks, (size_t)n, false);
    } else if (indent.kind != VALUE_NONE && indent.kind != VALUE_ABSENT) {
        run_fail(t->r, "tojson: indent is a %s", value_type(indent));
    }
    t->item = words_of(t, t->indent ? "," : ", ");
    t->key = words_of(t, ": ");
    if (separators.kind == VALUE_NONE || separators.kind == VALUE_ABSENT) return;
    if (separators.kind != VALUE_LIST || separators.list->n != 2 || separators.list->items[0].kind != VALUE_STRING ||
        separators.list->items[1].kind != VALUE_STRING)
        run_fail(t->r, "tojson: separators must be two strings");
    t->item = separators.list->items[0].string;
    t->key = separators.list->items[1].string;
}

const struct template_string *value_json(struct template_run *r, struct value v, const struct json_layout *layout) {
    struct json_text t = {.r = r, .out = {.m = r->m}, .ascii = layout->ascii, .sort = layout->sort};
    read_layout(&t, layout);
    write_value(&t, v);
    return builder_string(&t.out);
}
