/* server/schedule/stops.h: stop strings over text that grows: what may be shown already, and where
 * to stop. */
#pragma once

#include "config/base/buffer.h"

/* Owned copies of the strings; zero-initialise, free when done. */
struct stops {
    struct text_span *strings;
    int n;
};
void stops_add(struct stops *stops, const char *text, size_t size); /* size >= 1 */
void stops_copy(struct stops *to, const struct stops *from);
void stops_free(struct stops *stops);

struct stop_match {
    int index; /* of the strings */
    size_t end;
};

/* text[0, size) is all there is, text[0, *visible) was shown before. Moves *visible on to what may
 * be shown now: up to the first stop string (then true: the text ends there), else up to where the
 * tail could still become one. Text of whole UTF-8 characters and stops of whole characters are cut
 * between characters. *match says which stop string was found, and where it ends. */
bool stops_scan(const struct stops *stops, const char *text, size_t size, size_t *visible,
                struct stop_match *match);
