/* config/options/config_lines.c: finds a key's line with a scanner over valid JSON that tracks nesting and strings. */
#include "config/options/config_lines.h"

#include <stdbool.h>
#include <string.h>

#include "config/json/json.h"

struct scanner {
    const char *text;
    size_t size, at;
    int line, depth;
    bool object; /* what is open at depth 2 is an object */
};

/* One past the closing quote of the string that starts at `at`. */
static size_t string_end(const struct scanner *s, size_t at) {
    for (at++; at < s->size && s->text[at] != '"'; at++)
        if (s->text[at] == '\\') at++;
    return at < s->size ? at + 1 : s->size;
}

/* Whether the string token [from, to) means `want`; escapes are decoded by the JSON library itself. */
static bool token_is(const struct scanner *s, size_t from, size_t to, const char *want) {
    json_t *value = json_loadb(s->text + from, to - from, JSON_DECODE_ANY, NULL);
    bool same = json_is_string(value) && strcmp(json_string_value(value), want) == 0;
    json_decref(value);
    return same;
}

/* Moves over one character that is not part of a string; *key says whether the next string is a key where keys matter:
 * in the outermost object, and at depth 2 when the bracket that opened it made an object. */
static void step(struct scanner *s, bool *key) {
    switch (s->text[s->at++]) {
        case '\n': s->line++; break;
        case '{':
        case '[':
            s->depth++;
            *key = s->text[s->at - 1] == '{';
            if (s->depth == 2) s->object = *key;
            break;
        case '}':
        case ']':
            s->depth--;
            *key = false;
            break;
        case ',': *key = s->depth == 1 || (s->depth == 2 && s->object); break;
        default: break;
    }
}

int config_key_line(const char *text, size_t size, const char *section, const char *name) {
    struct scanner s = {.text = text, .size = size, .line = 1};
    bool key = false, inside = false; /* inside: what is read belongs to `section` */
    while (s.at < size) {
        if (text[s.at] != '"') {
            step(&s, &key);
            continue;
        }
        size_t end = string_end(&s, s.at); /* a string holds no raw line end, so the line stays */
        if (key && s.depth == 1) {
            inside = token_is(&s, s.at, end, section);
            if (inside && name == NULL) return s.line;
        } else if (key && s.depth == 2 && inside && name != NULL && token_is(&s, s.at, end, name)) {
            return s.line;
        }
        key = false;
        s.at = end;
    }
    return 0;
}
