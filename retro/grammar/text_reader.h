/* retro/grammar/text_reader.h: a place in a text that is read from its beginning to its end, and
 * never behind it. */
#pragma once

#include <string.h>

#include "config/base/buffer.h"

struct text_reader {
    struct text_span text;
    size_t at; /* at most text.size */
};

/* The next byte, 0 at the end. */
static inline char text_peek(const struct text_reader *reader) {
    return reader->at < reader->text.size ? reader->text.text[reader->at] : '\0';
}

/* Past the next byte; at the end: nothing. */
static inline void text_step(struct text_reader *reader) {
    if (reader->at < reader->text.size) reader->at++;
}

/* Past `word`, where it comes next. */
static inline bool text_take(struct text_reader *reader, const char *word) {
    size_t size = strlen(word);
    if (reader->text.size - reader->at < size ||
        memcmp(reader->text.text + reader->at, word, size) != 0)
        return false;
    reader->at += size;
    return true;
}
