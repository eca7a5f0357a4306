/* retro/grammar/text_reader.h: a place in a text that is read from its beginning to its end, and never behind it. */
#pragma once

#include <string.h>

#include "config/base/buffer.h"

struct text_reader {
    struct text_span text;
    size_t at; /* at most text.size */
};

/* The next byte, 0 at the end. */
static inline char text_peek(const struct text_reader *r) { return r->at < r->text.size ? r->text.text[r->at] : '\0'; }

/* Past the next byte; at the end: nothing. */
static inline void text_step(struct text_reader *r) {
    if (r->at < r->text.size) r->at++;
}

/* Past `word`, where it comes next. */
static inline bool text_take(struct text_reader *r, const char *word) {
    size_t size = strlen(word);
    if (r->text.size - r->at < size || memcmp(r->text.text + r->at, word, size) != 0) return false;
    r->at += size;
    return true;
}
