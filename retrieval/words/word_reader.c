/* retrieval/words/word_reader.c: see word_reader.h. */
#include "retrieval/words/word_reader.h"

#include <string.h>

#include "config/base/hash.h"

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
    run->joined = false;
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
static uint64_t hash_word(const char *word, size_t size) {
    bool plural =
        size > 3 && word[size - 1] == 's' && word[size - 2] != 's' && word[size - 2] != 'u';
    if (!plural) return hash_bytes(word, size, 0);
    if (size == 4 || word[size - 2] != 'e' || word[size - 3] != 'i')
        return hash_bytes(word, size - 1, 0);
    char singular[FOLD_RUN];
    memcpy(singular, word, size - 3);
    singular[size - 3] = 'y';
    return hash_bytes(singular, size - 2, 0);
}

/* The next word of the run; false when it has no more. The whole run comes after its parts. */
static bool next_part(struct word_reader *reader, uint64_t *word) {
    struct fold_run *run = &reader->run;
    while (reader->part < run->size && run->bytes[reader->part] == '_') reader->part++;
    size_t end = run->joined ? reader->part : run->size;
    while (end < run->size && run->bytes[end] != '_') end++;
    if (end > reader->part) {
        *word = hash_word(run->bytes + reader->part, end - reader->part);
        reader->part = end;
        return true;
    }
    if (!run->joined) return false;
    run->joined = false;
    *word = hash_word(run->bytes, run->size);
    return true;
}

bool word_reader_next(struct word_reader *reader, uint64_t *word) {
    while (!next_part(reader, word))
        if (!next_run(reader)) return false;
    return true;
}
