/* server/api/text/cited_numbers.c: see cited_numbers.h. */
#include "server/api/text/cited_numbers.h"

#include <string.h>

#include "config/base/text.h"

enum {
    MAX_DIGITS = 6,    /* of a number: more passages than these count no prompt has */
    MAX_BRACKETS = 128 /* bytes that are waited for until brackets close */
};

/* Reads the number at *at and moves behind it; 0: there is none. */
static int read_number(struct text_span text, size_t *at) {
    int number = 0;
    size_t first = *at;
    while (*at < text.size && is_digit(text.text[*at]) && *at - first < MAX_DIGITS) {
        number = number * 10 + (text.text[*at] - '0');
        ++*at;
    }
    return number;
}

/* How brackets that begin at `at` go on: they end at *end, are none, or the text ends in them. */
enum brackets { BRACKETS_NONE, BRACKETS_OPEN, BRACKETS_WHOLE };

static enum brackets read_brackets(struct text_span text, size_t at, size_t *end) {
    while (at < text.size && (text.text[at] == '[' || text.text[at] == ',')) {
        at++;
        while (at < text.size && text.text[at] == ' ') at++;
        if (at == text.size) return BRACKETS_OPEN;
        if (read_number(text, &at) == 0) return BRACKETS_NONE;
        *end = at + 1;
        if (at < text.size && text.text[at] == ']') return BRACKETS_WHOLE;
        if (at < text.size && text.text[at] == '[') return BRACKETS_NONE;
    }
    return at == text.size ? BRACKETS_OPEN : BRACKETS_NONE;
}

size_t cited_end(struct text_span text, size_t at) {
    size_t end = 0;
    return read_brackets(text, at, &end) == BRACKETS_WHOLE ? end : 0;
}

int cited_next(struct text_span text, size_t *at, size_t end) {
    while (*at < end && !is_digit(text.text[*at])) ++*at;
    return *at < end ? read_number(text, at) : 0;
}

bool cited_cut(struct text_span text, size_t from, bool last, struct cited_piece *out) {
    size_t at = from, end = 0;
    *out = (struct cited_piece){from, text.size, false};
    while (at < text.size) {
        const char *bracket = memchr(text.text + at, '[', text.size - at);
        if (bracket == NULL) break;
        at = (size_t)(bracket - text.text);
        enum brackets how = read_brackets(text, at, &end);
        bool waits = how == BRACKETS_OPEN && !last && text.size - at < MAX_BRACKETS;
        if (how == BRACKETS_WHOLE && at == from) {
            *out = (struct cited_piece){from, end, true};
            return true;
        }
        if (how == BRACKETS_WHOLE || waits) {
            out->end = at;
            return at > from;
        }
        at++;
    }
    return out->end > from;
}
