/* config/text/sentences.h: where sentences begin and end, in the text of documents and of answers.
 * Texts are UTF-8; other bytes are words like any. */
#pragma once

#include "config/base/text.h"

/* Whether a sentence ends before byte `end`, at least 1: behind a mark (. ! ? and those of other
 * scripts, with quotes and brackets that close behind it), before an empty line, or with the text.
 * A full stop behind an abbreviation ("e.g."), a name's initial or the number of a list's item ends
 * none. */
bool sentence_ends(struct text_span text, size_t end);
/* Whether one begins at byte `at`. */
bool sentence_starts(struct text_span text, size_t at);

/* Bytes [begin, end) of a text, without blanks at either end. */
struct sentence {
    size_t begin, end;
};

/* The first sentence from byte *at on, and *at behind it; false: only blanks are left. Here the
 * lines of Markdown end sentences too: a heading, an item of a list and the row of a table are one
 * or more of their own, and a fenced block of code is one. Code between back quotes ends none.
 * All sentences of a text take time in proportion to its size. */
bool sentence_next(struct text_span text, size_t *at, struct sentence *out);
