/* retrieval/extract/front_matter.c: see front_matter.h. */
#include "retrieval/extract/front_matter.h"

#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"
#include "config/json/json_value.h"
#include "config/yaml/yaml_reader.h"
#include "retrieval/extract/front_matter_toml.h"

struct front_matter {
    struct json_writer *w;
    front_matter_begin *begin;
    void *context;
};

static struct text_span trim(struct text_span span) {
    while (span.size > 0 && strchr(" \t\r", span.text[0])) {
        span.text++;
        span.size--;
    }
    while (span.size > 0 && strchr(" \t\r", span.text[span.size - 1])) span.size--;
    return span;
}

static bool is_row(struct text_span line, const char *row) {
    line = trim(line);
    return line.size == 3 && memcmp(line.text, row, 3) == 0;
}

/* YAML ends with dashes or dots. */
static bool is_end(struct text_span line, bool is_toml) {
    return is_toml ? is_row(line, "+++") : is_row(line, "---") || is_row(line, "...");
}

static struct text_span next_line(struct text_span *rest) {
    const char *end = memchr(rest->text, '\n', rest->size);
    struct text_span line = {rest->text, end ? (size_t)(end - rest->text) : rest->size};
    size_t taken = line.size + (end != NULL);
    rest->text += taken;
    rest->size -= taken;
    return line;
}

void front_matter_put(struct json_writer *w, struct text_span span, bool plain) {
    struct error ignored;
    struct json *value = NULL;
    bool bare = plain && json_parse_any(&value, span, "value", &ignored) == STATUS_OK &&
                (json_is_numeric(value) || json_kind(value) == JSON_KIND_BOOL);
    if (bare)
        put_json(w, value);
    else
        put_string_n(w, span.text, span.size);
    json_close(value);
}

/* Damaged names would become alike. */
static bool is_damaged(struct text_span name) {
    return !utf8_is_valid(name.text, name.size) || memmem(name.text, name.size, "\xef\xbf\xbd", 3);
}

static bool begin_name(const struct front_matter *matter, struct text_span name) {
    return name.size > 0 && !is_damaged(name) && !memchr(name.text, '\0', name.size) &&
           matter->begin(matter->context, name);
}

/* Whether an entry is YAML that JSON can say: a map whose key is a text, without references and
 * NULs. */
static bool is_yaml(struct text_span entry) {
    struct yaml_reader *reader;
    struct yaml_item item = {.kind = YAML_MAP};
    struct error ignored;
    bool known = true;
    if (yaml_open(&reader, entry, "front matter", &ignored)) return false;
    for (int n = 0; known && item.kind != YAML_END; n++) {
        known = yaml_next(reader, &item, &ignored) == STATUS_OK && item.kind != YAML_REFERENCE &&
                (n > 1 || item.kind == (n == 0 ? YAML_MAP : YAML_TEXT));
        known = known && (item.kind != YAML_TEXT || !memchr(item.text.text, '\0', item.text.size));
    }
    yaml_close(reader);
    return known;
}

/* A text, or the texts of a list; deeper structures are passed over. The entry is YAML. */
static void put_value(struct json_writer *w, struct yaml_reader *reader, struct yaml_item *item) {
    struct error ignored;
    bool list = item->kind == YAML_LIST, one = item->kind == YAML_TEXT,
         nothing = item->plain && item->text.size == 0;
    if (one && !nothing) return front_matter_put(w, item->text, item->plain);
    put_array(w);
    while (!one && yaml_next(reader, item, &ignored) == STATUS_OK && item->depth > 1) {
        nothing = item->plain && item->text.size == 0;
        if (list && item->kind == YAML_TEXT && item->depth == 2 && !nothing)
            front_matter_put(w, item->text, item->plain);
    }
    put_array_end(w);
}

static void read_yaml(const struct front_matter *matter, struct text_span entry) {
    struct yaml_reader *reader;
    struct yaml_item item;
    struct error ignored;
    if (yaml_open(&reader, entry, "front matter", &ignored)) return;
    bool there = yaml_next(reader, &item, &ignored) == STATUS_OK &&
                 yaml_next(reader, &item, &ignored) == STATUS_OK;
    if (there && begin_name(matter, item.text)) {
        if (yaml_next(reader, &item, &ignored) == STATUS_OK)
            put_value(matter->w, reader, &item);
        else
            put_string_n(matter->w, "", 0);
    }
    yaml_close(reader);
}

/* A line that is no YAML ("title: Bread: the book") is a name and the text behind its colon. */
static void read_plain(const struct front_matter *matter, struct text_span line,
                       const char *colon) {
    struct text_span value =
        trim((struct text_span){colon + 1, line.size - (size_t)(colon + 1 - line.text)});
    if (begin_name(matter, trim((struct text_span){line.text, (size_t)(colon - line.text)})))
        front_matter_put(matter->w, value, value.size > 0);
}

/* A line with a name, and those below it that are indented, are items of a list or comments. */
static void read_entry(const struct front_matter *matter, struct text_span line,
                       struct text_span *rest) {
    const char *colon = memchr(line.text, ':', line.size);
    struct text_span entry = line, below = *rest;
    if (colon == NULL || strchr(" \t-#", line.text[0])) return;
    struct text_span next = next_line(&below);
    while (next.size > 0 && strchr(" \t-#\r", next.text[0]) && !is_end(next, false)) {
        entry.size = (size_t)(next.text + next.size - entry.text);
        *rest = below;
        next = next_line(&below);
    }
    if (is_yaml(entry))
        read_yaml(matter, entry);
    else
        read_plain(matter, line, colon);
}

/* JSON has no NUL, and a text that has one is none. */
static bool find_matter(struct text_span text, struct text_span *inner, bool *is_toml,
                        size_t *size) {
    struct text_span rest = text;
    if (text.size == 0) return false;
    struct text_span line = next_line(&rest);
    *is_toml = is_row(line, "+++");
    if (!*is_toml && !is_row(line, "---")) return false;
    inner->text = rest.text;
    while (rest.size > 0) {
        line = next_line(&rest);
        if (!is_end(line, *is_toml)) continue;
        inner->size = (size_t)(line.text - inner->text);
        *size = text.size - rest.size;
        return memchr(text.text, '\0', *size) == NULL;
    }
    return false;
}

size_t front_matter_size(struct text_span text) {
    struct text_span inner;
    bool is_toml;
    size_t size;
    return find_matter(text, &inner, &is_toml, &size) ? size : 0;
}

void front_matter_read(struct text_span text, struct json_writer *w, front_matter_begin *begin,
                       void *context) {
    struct front_matter matter = {.w = w, .begin = begin, .context = context};
    struct text_span rest;
    bool is_toml;
    size_t size;
    if (!find_matter(text, &rest, &is_toml, &size)) return;
    if (is_toml) {
        front_matter_read_toml(rest, w, begin, context);
        return;
    }
    while (rest.size > 0) {
        struct text_span line = next_line(&rest);
        if (line.size > 0) read_entry(&matter, line, &rest);
    }
}

struct title_search {
    struct json_writer *w;
    bool has_title;
};

static bool begin_member(void *context, struct text_span name) {
    struct title_search *search = context;
    if (search->has_title || !span_is(name, "title")) return false;
    search->has_title = true;
    put_key_n(search->w, name.text, name.size);
    return true;
}

void front_matter_title(struct text_span text, struct buffer *title) {
    struct buffer object = {0};
    struct json_writer w;
    struct title_search search = {.w = &w};
    struct error ignored;
    struct json *json;
    if (front_matter_size(text) == 0) return;
    put_begin(&w, &object);
    put_object(&w);
    front_matter_read(text, &w, begin_member, &search);
    put_object_end(&w);
    if (json_parse(&json, (struct text_span){object.data, object.size}, "title", &ignored)) {
        buffer_free(&object);
        return;
    }
    const struct json *value = json_member(json, "title");
    if (value && json_is_text(value))
        buffer_append(title, json_text(value).text, json_text(value).size);
    json_close(json);
    buffer_free(&object);
}
