/* retrieval/words/word_reader.h: the words of a text, one after the other, cut and folded by
 * Unicode. words.h says how a word is cut. */
#pragma once

#include "config/text/unicode.h"

/* Bytes of a word; the rest of a longer one is not looked at. */
enum { WORD_BYTES = 64 };

struct word_reader {
    struct mapped_buffer folded; /* of a text beyond ASCII */
    const char *at, *end;
    char run[WORD_BYTES]; /* the latest run of word characters, folded */
    size_t size, part;    /* of the run; where its next part begins */
    bool joined;          /* it has parts */
};

/* `text` is borrowed until the reader is closed. */
void word_reader_open(struct word_reader *reader, struct text_span text);
/* The hash of the next word; false at the end of the text. The whole of an identifier comes after
 * its parts. */
bool word_reader_next(struct word_reader *reader, uint64_t *word);
void word_reader_close(struct word_reader *reader);
