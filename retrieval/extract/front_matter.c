/* retrieval/extract/front_matter.c: see front_matter.h. */
#include "retrieval/extract/front_matter.h"

#include <string.h>

#include "config/base/utf8.h"
#include "config/json/json_value.h"

struct front_matter {
    struct json_writer *w;
    front_matter_begin *begin;
    void *context;
};

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

/* Damaged names would become alike. */
static bool is_damaged(struct text_span name) {
    return !utf8_is_valid(name.text, name.size) || memmem(name.text, name.size, "\xef\xbf\xbd", 3);
}

static void read_line(struct front_matter *m, struct text_span line, struct text_span *rest) {
    const char *colon = memchr(line.text, ':', line.size);
    bool nested = line.size > 0 && strchr(" \t-#", line.text[0]) != NULL;
    if (colon == NULL || nested) return;
    struct text_span name = trim((struct text_span){line.text, (size_t)(colon - line.text)});
    struct text_span value = trim((struct text_span){colon + 1, line.size - (size_t)(colon + 1 - line.text)});
    if (name.size == 0 || is_damaged(name) || !m->begin(m->context, name)) return;
    if (value.size == 0)
        put_block_list(m->w, rest);
    else if (value.size >= 2 && value.text[0] == '[' && value.text[value.size - 1] == ']')
        put_inline_list(m->w, value);
    else
        put_scalar(m->w, value);
}

/* Text that ends before its second line of dashes has no front matter. */
void front_matter_read(struct text_span text, struct json_writer *w, front_matter_begin *begin, void *context) {
    struct front_matter m = {.w = w, .begin = begin, .context = context};
    struct text_span rest = text, search, line;
    /* JSON has no NUL, and a text that has one is none. */
    if (text.size == 0 || memchr(text.text, '\0', text.size)) return;
    if (!span_is(trim(next_line(&rest)), "---")) return;
    search = rest;
    bool closed = false;
    while (search.size > 0 && !closed) closed = span_is(trim(next_line(&search)), "---");
    line = next_line(&rest);
    while (closed && !span_is(trim(line), "---")) {
        read_line(&m, line, &rest);
        line = next_line(&rest);
    }
}
