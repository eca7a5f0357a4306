/* config/json/json_place.c: names and lines of places. A line is found by walking over the text
 * once more, which was parsed before: it is valid JSON without duplicate keys. See json_place.h. */
#include "config/json/json_place.h"

#include <string.h>

#include "config/json/json_value.h"

void json_place_print(const struct json_place *place, struct buffer *out) {
    if (place == NULL) return;
    json_place_print(place->above, out);
    if (place->name == NULL)
        buffer_printf(out, "[%zu]", place->item);
    else
        buffer_printf(out, "%s%s", place->above ? "." : "", place->name);
}

struct place_walk {
    const char *text;
    size_t size, at;
    int line;
};

static char walk_peek(const struct place_walk *w) { return w->at < w->size ? w->text[w->at] : '\0'; }

static void walk_step(struct place_walk *w) {
    if (walk_peek(w) == '\n') w->line++;
    if (w->at < w->size) w->at++;
}

/* Over blanks and the comma or colon between two tokens. */
static void walk_blanks(struct place_walk *w) {
    while (walk_peek(w) != '\0' && strchr(" \t\r\n,:", walk_peek(w))) walk_step(w);
}

/* The string token at w->at, quotes included; w ends up behind it. */
static struct text_span walk_string(struct place_walk *w) {
    size_t start = w->at++;
    while (w->at < w->size && w->text[w->at] != '"') w->at += w->text[w->at] == '\\' ? 2 : 1;
    w->at = w->at < w->size ? w->at + 1 : w->size;
    return (struct text_span){w->text + start, w->at - start};
}

static void walk_value(struct place_walk *w) {
    int depth = 0;
    do {
        char c = walk_peek(w);
        if (c == '"') {
            walk_string(w);
            continue;
        }
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        walk_step(w);
        /* A number or a word ends before the next comma or bracket. */
        if (depth == 0 && c != '}' && c != ']')
            while (walk_peek(w) != '\0' && !strchr(" \t\r\n,]}", walk_peek(w))) walk_step(w);
    } while (depth > 0 && w->at < w->size);
}

/* Whether a string token means `name`; the parser itself decodes escapes. */
static bool token_means(struct text_span token, const char *name) {
    struct error ignored;
    struct json *text;
    if (memchr(token.text, '\\', token.size) == NULL)
        return token.size == strlen(name) + 2 && memcmp(token.text + 1, name, token.size - 2) == 0;
    if (json_parse_any(&text, token, "", &ignored)) return false;
    bool same = json_text_is(text, name);
    json_close(text);
    return same;
}

/* From the start of an object or a list to the member or item `place` in it: *line is its, w is at
 * its value. */
static bool walk_into(struct place_walk *w, const struct json_place *place, int *line) {
    walk_blanks(w);
    if (walk_peek(w) != (place->name ? '{' : '[')) return false;
    walk_step(w);
    for (size_t i = 0;; i++) {
        walk_blanks(w);
        *line = w->line;
        if (walk_peek(w) == '}' || walk_peek(w) == ']' || w->at >= w->size) return false;
        if (place->name == NULL && i == place->item) return true;
        bool found = place->name && token_means(walk_string(w), place->name);
        walk_blanks(w);
        if (found) return true;
        walk_value(w);
    }
}

static bool walk_to(struct place_walk *w, const struct json_place *place, int *line) {
    if (place == NULL) return true;
    return walk_to(w, place->above, line) && walk_into(w, place, line);
}

int json_place_line(const struct json_place *place, struct text_span text) {
    struct place_walk w = {.text = text.text, .size = text.size, .line = 1};
    int line = 0;
    return place && walk_to(&w, place, &line) ? line : 0;
}
