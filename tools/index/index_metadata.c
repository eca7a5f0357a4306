/* tools/index/index_metadata.c: metadata of a file: what --meta says, then FILE.meta.json beside it, then the front
 * matter of Markdown. The first that says a name counts. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/base/hash.h"
#include "config/base/utf8.h"
#include "config/json/json_writer.h"
#include "tools/index/index.h"

/* Metadata as it is gathered. */
struct gathering {
    struct json_writer w;
    struct key_set names;
    int n;
};

/* Whether the name is new; its key is written then. */
static bool begin_member(struct gathering *g, struct text_span name) {
    if (!key_set_add(&g->names, hash_bytes(name.text, name.size, 0), hash_bytes(name.text, name.size, 1))) return false;
    put_key_n(&g->w, name.text, name.size);
    g->n++;
    return true;
}

static void gather_object(struct gathering *g, const struct json *object) {
    for (struct json_entry it = {0}; json_next(object, &it);)
        if (begin_member(g, it.name)) put_json(&g->w, it.value);
}

static enum status gather_given(struct gathering *g, const struct buffer *given, struct error *e) {
    struct json *object;
    if (given->size == 0) return STATUS_OK;
    if (json_parse(&object, (struct text_span){given->data, given->size}, "--meta", e)) return e->status;
    gather_object(g, object);
    json_close(object);
    return STATUS_OK;
}

static enum status gather_beside(struct gathering *g, const char *path, struct error *e) {
    struct buffer name = {0};
    struct json *object = NULL;
    enum status status = STATUS_OK;
    buffer_printf(&name, "%s.meta.json", path);
    if (access(name.data, F_OK) == 0) {
        status = json_parse_file(&object, name.data, e);
        if (status == STATUS_OK && json_kind(object) != JSON_KIND_OBJECT)
            status = error_set(e, STATUS_INVALID, "%s: %s, not an object", name.data, json_kind_name(object));
        if (status == STATUS_OK) gather_object(g, object);
        json_close(object);
    }
    buffer_free(&name);
    return status;
}

/* Front matter: lines "name: value" between two lines of three dashes. */

static struct text_span trim(struct text_span s) {
    while (s.size > 0 && strchr(" \t\r", s.text[0])) {
        s.text++;
        s.size--;
    }
    while (s.size > 0 && strchr(" \t\r", s.text[s.size - 1])) s.size--;
    return s;
}

static bool span_is(struct text_span s, const char *word) {
    return s.size == strlen(word) && memcmp(s.text, word, s.size) == 0;
}

static struct text_span next_line(struct text_span *rest) {
    const char *end = memchr(rest->text, '\n', rest->size);
    struct text_span line = {rest->text, end ? (size_t)(end - rest->text) : rest->size};
    size_t taken = line.size + (end != NULL);
    rest->text += taken;
    rest->size -= taken;
    return line;
}

/* Text without its quotes, or a number or boolean as it is. */
static void put_scalar(struct json_writer *w, struct text_span s) {
    struct error ignored;
    struct json *value = NULL;
    bool quoted = s.size >= 2 && (s.text[0] == '"' || s.text[0] == '\'') && s.text[s.size - 1] == s.text[0];
    if (quoted) {
        put_string_n(w, s.text + 1, s.size - 2);
        return;
    }
    bool plain = json_parse_any(&value, s, "value", &ignored) == STATUS_OK &&
                 (json_is_numeric(value) || json_kind(value) == JSON_KIND_BOOL);
    if (plain)
        put_json(w, value);
    else
        put_string_n(w, s.text, s.size);
    json_close(value);
}

/* "[a, b]" */
static void put_inline_list(struct json_writer *w, struct text_span s) {
    struct text_span rest = {s.text + 1, s.size - 2};
    put_array(w);
    while (rest.size > 0) {
        const char *comma = memchr(rest.text, ',', rest.size);
        struct text_span item = {rest.text, comma ? (size_t)(comma - rest.text) : rest.size};
        size_t taken = item.size + (comma != NULL);
        rest.text += taken;
        rest.size -= taken;
        item = trim(item);
        if (item.size > 0) put_scalar(w, item);
    }
    put_array_end(w);
}

/* Lines "- a" behind a name without a value. */
static void put_block_list(struct json_writer *w, struct text_span *rest) {
    put_array(w);
    for (;;) {
        struct text_span behind = *rest, line = trim(next_line(&behind));
        if (line.size < 2 || line.text[0] != '-' || line.text[1] != ' ') break;
        put_scalar(w, trim((struct text_span){line.text + 2, line.size - 2}));
        *rest = behind;
    }
    put_array_end(w);
}

static void gather_line(struct gathering *g, struct text_span line, struct text_span *rest) {
    const char *colon = memchr(line.text, ':', line.size);
    bool nested = line.size > 0 && strchr(" \t-#", line.text[0]) != NULL;
    if (colon == NULL || nested) return;
    struct text_span name = trim((struct text_span){line.text, (size_t)(colon - line.text)});
    struct text_span value = trim((struct text_span){colon + 1, line.size - (size_t)(colon + 1 - line.text)});
    /* Damaged names would become alike. */
    if (name.size == 0 || !utf8_is_valid(name.text, name.size) || !begin_member(g, name)) return;
    if (value.size == 0)
        put_block_list(&g->w, rest);
    else if (value.size >= 2 && value.text[0] == '[' && value.text[value.size - 1] == ']')
        put_inline_list(&g->w, value);
    else
        put_scalar(&g->w, value);
}

/* Text that ends before its second line of dashes has no front matter. */
static void gather_front(struct gathering *g, struct text_span text) {
    struct text_span rest = text, search, line;
    if (!span_is(trim(next_line(&rest)), "---")) return;
    search = rest;
    bool closed = false;
    while (search.size > 0 && !closed) closed = span_is(trim(next_line(&search)), "---");
    line = next_line(&rest);
    while (closed && !span_is(trim(line), "---")) {
        gather_line(g, line, &rest);
        line = next_line(&rest);
    }
}

enum status metadata_of_file(struct buffer *out, const struct buffer *given, const struct found_file *file,
                             struct text_span text, struct error *e) {
    struct gathering g = {0};
    buffer_clear(out);
    put_begin(&g.w, out);
    put_object(&g.w);
    enum status status = gather_given(&g, given, e);
    if (status == STATUS_OK) status = gather_beside(&g, file->path, e);
    if (status == STATUS_OK && file->kind == DOCUMENT_MARKDOWN) gather_front(&g, text);
    put_object_end(&g.w);
    key_set_free(&g.names);
    if (g.n == 0) buffer_clear(out);
    return status;
}
