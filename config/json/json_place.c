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

static char walk_peek(const struct place_walk *walk) {
    return walk->at < walk->size ? walk->text[walk->at] : '\0';
}

static void walk_step(struct place_walk *walk) {
    if (walk_peek(walk) == '\n') walk->line++;
    if (walk->at < walk->size) walk->at++;
}

/* Over blanks and the comma or colon between two tokens. */
static void walk_blanks(struct place_walk *walk) {
    while (walk_peek(walk) != '\0' && strchr(" \t\r\n,:", walk_peek(walk))) walk_step(walk);
}

/* The string token at walk->at, quotes included; the walk ends up behind it. */
static struct text_span walk_string(struct place_walk *walk) {
    size_t start = walk->at++;
    while (walk->at < walk->size && walk->text[walk->at] != '"')
        walk->at += walk->text[walk->at] == '\\' ? 2 : 1;
    walk->at = walk->at < walk->size ? walk->at + 1 : walk->size;
    return (struct text_span){walk->text + start, walk->at - start};
}

static void walk_value(struct place_walk *walk) {
    int depth = 0;
    do {
        char c = walk_peek(walk);
        if (c == '"') {
            walk_string(walk);
            continue;
        }
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        walk_step(walk);
        /* A number or a word ends before the next comma or bracket. */
        if (depth == 0 && c != '}' && c != ']')
            while (walk_peek(walk) != '\0' && !strchr(" \t\r\n,]}", walk_peek(walk)))
                walk_step(walk);
    } while (depth > 0 && walk->at < walk->size);
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

/* From the start of an object or a list to the member or item `place` in it: *line is its, the walk
 * is at its value. */
static bool walk_into(struct place_walk *walk, const struct json_place *place, int *line) {
    walk_blanks(walk);
    if (walk_peek(walk) != (place->name ? '{' : '[')) return false;
    walk_step(walk);
    for (size_t i = 0;; i++) {
        walk_blanks(walk);
        *line = walk->line;
        if (walk_peek(walk) == '}' || walk_peek(walk) == ']' || walk->at >= walk->size)
            return false;
        if (place->name == NULL && i == place->item) return true;
        bool found = place->name && token_means(walk_string(walk), place->name);
        walk_blanks(walk);
        if (found) return true;
        walk_value(walk);
    }
}

static bool walk_to(struct place_walk *walk, const struct json_place *place, int *line) {
    if (place == NULL) return true;
    return walk_to(walk, place->above, line) && walk_into(walk, place, line);
}

int json_place_line(const struct json_place *place, struct text_span text) {
    struct place_walk walk = {.text = text.text, .size = text.size, .line = 1};
    int line = 0;
    return place && walk_to(&walk, place, &line) ? line : 0;
}
