/* server/api/text/cited_numbers.h: numbers in brackets, by which an answer names what it read:
 * "[2]" and "[1, 3]". */
#pragma once

#include "config/base/buffer.h"

/* The end of numbers in brackets that begin at `at`, commas between them; 0: the text there is
 * something else. */
size_t cited_end(struct text_span text, size_t at);
/* The next number of brackets that end at `end`, and *at behind it; 0: there is none. */
int cited_next(struct text_span text, size_t *at, size_t end);

/* An answer cut at its brackets, as it is written. */
struct cited_piece {
    size_t start, end; /* bytes; a text's, or those of brackets */
    bool names;        /* brackets */
};
/* The piece that begins at byte `from`. Text that could still become brackets waits until `last`.
 * False: there is no more yet. */
bool cited_cut(struct text_span text, size_t from, bool last, struct cited_piece *out);
