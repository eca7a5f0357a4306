/* config/json/json_raw.c: see json_raw.h. */
#include "config/json/json_raw.h"

#include <string.h>

#include "config/json/json_value.h"

static bool is_one_of(struct text_span text, size_t at, const char *bytes) {
    return at < text.size && text.text[at] != '\0' && strchr(bytes, text.text[at]) != NULL;
}

/* Each of these returns the byte behind what begins at `at`. */

/* Blanks, and the comma or colon between two tokens. */
static size_t pass_between(struct text_span text, size_t at) {
    while (is_one_of(text, at, " \t\r\n,:")) at++;
    return at;
}

static size_t pass_string(struct text_span text, size_t at) {
    at++;
    while (at < text.size && text.text[at] != '"') at += text.text[at] == '\\' ? 2 : 1;
    return at < text.size ? at + 1 : text.size;
}

static size_t pass_word(struct text_span text, size_t at) {
    while (at < text.size && !is_one_of(text, at, " \t\r\n,:]}")) at++;
    return at;
}

static size_t pass_value(struct text_span text, size_t at) {
    int depth = 0;
    do {
        if (is_one_of(text, at, "\"")) {
            at = pass_string(text, at);
        } else if (is_one_of(text, at, "{[")) {
            depth++;
            at++;
        } else if (is_one_of(text, at, "}]")) {
            depth--;
            at++;
        } else {
            at = pass_word(text, at);
        }
        if (depth > 0) at = pass_between(text, at);
    } while (depth > 0 && at < text.size);
    return at;
}

struct json_walk json_walk_begin(struct text_span text) {
    size_t at = pass_between(text, 0);
    bool holds = is_one_of(text, at, "{[");
    return (struct json_walk){text, holds ? at + 1 : text.size, is_one_of(text, at, "{")};
}

bool json_walk_next(struct json_walk *walk, struct text_span *name, struct text_span *value) {
    struct text_span text = walk->text;
    size_t start = pass_between(text, walk->at), end = start;
    *name = (struct text_span){text.text + start, 0};
    walk->at = start;
    if (start >= text.size || is_one_of(text, start, "}]")) return false;
    if (walk->object) {
        end = pass_string(text, start);
        name->size = end - start;
        start = pass_between(text, end);
    }
    end = pass_value(text, start);
    *value = (struct text_span){text.text + start, end - start};
    walk->at = end;
    return true;
}

/* The parser itself decodes escapes. */
bool json_token_is(struct text_span token, const char *text) {
    struct error ignored;
    struct json *decoded;
    if (memchr(token.text, '\\', token.size) == NULL)
        return token.size == strlen(text) + 2 && memcmp(token.text + 1, text, token.size - 2) == 0;
    if (json_parse_any(&decoded, token, "", &ignored)) return false;
    bool same = json_text_is(decoded, text);
    json_close(decoded);
    return same;
}

void json_respace(struct text_span text, struct buffer *out) {
    for (size_t at = 0, end; at < text.size; at = end) {
        end = at + 1;
        if (is_one_of(text, at, " \t\r\n")) continue;
        if (is_one_of(text, at, "\"")) end = pass_string(text, at);
        buffer_append(out, text.text + at, end - at);
        if (is_one_of(text, at, ",:")) buffer_append(out, " ", 1);
    }
}
