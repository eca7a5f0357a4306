/* retrieval/words/word_reader.h: the words of a text, one after the other, cut and folded by
 * Unicode. words.h says how a word is cut. */
#pragma once

#include "config/text/unicode_fold.h"

struct word_reader {
    struct fold_reader text;
    struct fold_run run; /* the latest run of word characters */
    size_t part;         /* where its next part begins */
};

/* `text` is borrowed until the reader is closed. */
void word_reader_open(struct word_reader *reader, struct text_span text);
/* The hash of the next word; false at the end of the text. The whole of an identifier comes after
 * its parts. */
bool word_reader_next(struct word_reader *reader, uint64_t *word);
void word_reader_close(struct word_reader *reader);
