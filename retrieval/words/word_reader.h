/* retrieval/words/word_reader.h: the words of a text, one after the other, cut and folded by
 * Unicode. words.h says how a word is cut. */
#pragma once

#include "config/text/unicode_fold.h"

/* Bytes of a word at most; what finds no room is left out. */
enum { WORD_BYTES = FOLD_RUN + FOLD_ENTRY };

struct read_word {
    const char *bytes; /* the reader's until it reads on */
    size_t size;       /* 1 .. WORD_BYTES */
    uint32_t position; /* counts words from 0; an identifier stands where its last part does */
};

struct word_reader {
    struct fold_reader text;
    struct fold_run run; /* the latest run of word characters */
    size_t part;         /* where its next part begins */
    bool parted;         /* a part of it was read */
    uint32_t n_read;     /* positions that are taken */
    char singular[FOLD_RUN + FOLD_ENTRY];
};

/* `text` is borrowed until the reader is closed. */
void word_reader_open(struct word_reader *reader, struct text_span text);
/* The next word; false at the end of the text. The whole of an identifier comes after its parts. */
bool word_reader_next(struct word_reader *reader, struct read_word *word);
void word_reader_close(struct word_reader *reader);
