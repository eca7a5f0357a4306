/* server/schedule/stops.c: stop strings over text that grows. See stops.h. */
#include "server/schedule/stops.h"

#include <stdlib.h>
#include <string.h>

void stops_add(struct stops *stops, const char *text, size_t size) {
    CHECK(size > 0);
    stops->strings = xrealloc(stops->strings, (size_t)(stops->n + 1) * sizeof *stops->strings);
    stops->strings[stops->n] = (struct text_span){xstrndup(text, size), size};
    stops->n++;
}

void stops_copy(struct stops *to, const struct stops *from) {
    *to = (struct stops){0};
    for (int i = 0; i < from->n; i++) stops_add(to, from->strings[i].text, from->strings[i].size);
}

void stops_free(struct stops *stops) {
    for (int i = 0; i < stops->n; i++) free((char *)(uintptr_t)stops->strings[i].text);
    free(stops->strings);
    *stops = (struct stops){0};
}

/* First place of `stop` at or after `from`, or `size` when it is not there. */
static size_t find(const struct text_span *stop, const char *text, size_t size, size_t from) {
    const char *at = memmem(text + from, size - from, stop->text, stop->size);
    return at ? (size_t)(at - text) : size;
}

/* First place at or after `from` whose text to the end is the beginning of `stop`. */
static size_t find_beginning(const struct text_span *stop, const char *text, size_t size,
                             size_t from) {
    size_t at = size - from >= stop->size ? size - stop->size + 1 : from;
    while (at < size && memcmp(text + at, stop->text, size - at) != 0) at++;
    return at;
}

bool stops_scan(const struct stops *stops, const char *text, size_t size, size_t *visible,
                struct stop_match *match) {
    size_t from = *visible, start = size, held = size;
    if (from == size) return false;
    for (int i = 0; i < stops->n; i++) {
        size_t at = find(&stops->strings[i], text, size, from);
        if (at < start) {
            start = at;
            *match = (struct stop_match){i, at + stops->strings[i].size};
        }
        at = find_beginning(&stops->strings[i], text, size, from);
        if (at < held) held = at;
    }
    *visible = start < size ? start : held;
    return start < size;
}
