/* retrieval/words/word_reader.c: see word_reader.h. */
#include "retrieval/words/word_reader.h"

#include <string.h>

void word_reader_open(struct word_reader *reader, struct text_span text) {
    *reader = (struct word_reader){0};
    fold_reader_open(&reader->text, text);
    fold_reader_next(&reader->text);
}

void word_reader_close(struct word_reader *reader) { fold_reader_close(&reader->text); }

/* Runs of word characters. */

/* The next run; false at the end of the text. */
static bool next_run(struct word_reader *reader) {
    struct fold_reader *text = &reader->text;
    struct fold_run *run = &reader->run;
    run->size = reader->part = 0;
    run->joined = reader->parted = false;
    while (text->place == FOLD_BETWEEN) fold_reader_next(text);
    if (text->place == FOLD_ALONE) {
        memcpy(run->bytes, text->bytes, text->length);
        run->size = text->length;
        fold_reader_next(text);
    } else {
        fold_reader_run(text, run);
    }
    return run->size > 0;
}

/* "files" is "file", "entries" is "entry"; "class" and "status" stay. */
static void take_word(struct word_reader *reader, const char *bytes, size_t size,
                      struct read_word *word) {
    bool plural =
        size > 3 && bytes[size - 1] == 's' && bytes[size - 2] != 's' && bytes[size - 2] != 'u';
    word->bytes = bytes;
    word->size = plural ? size - 1 : size;
    if (!plural || size == 4 || bytes[size - 2] != 'e' || bytes[size - 3] != 'i') return;
    memcpy(reader->singular, bytes, size - 3);
    reader->singular[size - 3] = 'y';
    word->bytes = reader->singular;
    word->size = size - 2;
}

/* The next word of the run; false when it has no more. The whole run comes after its parts. */
static bool next_part(struct word_reader *reader, struct read_word *word) {
    struct fold_run *run = &reader->run;
    while (reader->part < run->size && run->bytes[reader->part] == '_') reader->part++;
    size_t end = run->joined ? reader->part : run->size;
    while (end < run->size && run->bytes[end] != '_') end++;
    if (end > reader->part) {
        take_word(reader, run->bytes + reader->part, end - reader->part, word);
        reader->part = end;
        reader->parted = true;
        word->position = reader->n_read;
        reader->n_read++;
        return true;
    }
    if (!run->joined) return false;
    run->joined = false;
    take_word(reader, run->bytes, run->size, word);
    if (!reader->parted) reader->n_read++;
    word->position = reader->n_read - 1;
    return true;
}

bool word_reader_next(struct word_reader *reader, struct read_word *word) {
    while (!next_part(reader, word))
        if (!next_run(reader)) return false;
    return true;
}
