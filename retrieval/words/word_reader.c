/* retrieval/words/word_reader.c: see word_reader.h. */
#include "retrieval/words/word_reader.h"

#include <string.h>

#include "config/base/hash.h"

static bool is_ascii(struct text_span text) {
    unsigned char all = 0;
    for (size_t i = 0; i < text.size; i++) all |= (unsigned char)text.text[i];
    return all < 0x80;
}

void word_reader_open(struct word_reader *reader, struct text_span text) {
    *reader = (struct word_reader){.at = text.text, .end = text.text + text.size};
    if (is_ascii(text)) return;
    unicode_fold(text.text, text.size, &reader->folded);
    reader->at = reader->folded.text;
    reader->end = reader->at + reader->folded.size;
}

void word_reader_close(struct word_reader *reader) { mapped_free(&reader->folded); }

/* Runs of word characters. */

enum place { PLACE_BETWEEN, PLACE_WITHIN, PLACE_ALONE };

/* Chinese, Japanese and Korean are written without blanks: a character is a word. */
static bool stands_alone(int32_t character) {
    return (character >= 0x2e80 && character < 0xe000) ||
           (character >= 0x20000 && character < 0x40000);
}

/* Beyond U+FFFF signs are words too, as pictures of ships are. */
static enum place place_of(int32_t character) {
    if (character < 0x80) {
        bool within = (character >= '0' && character <= '9') ||
                      (character >= 'a' && character <= 'z') ||
                      (character >= 'A' && character <= 'Z') || character == '_';
        return within ? PLACE_WITHIN : PLACE_BETWEEN;
    }
    if (!unicode_is_word(character) && !unicode_is_numeric(character) && character < 0x10000)
        return PLACE_BETWEEN;
    return stands_alone(character) ? PLACE_ALONE : PLACE_WITHIN;
}

static void add_character(struct word_reader *reader, int length) {
    char first = *reader->at;
    reader->joined |= first == '_';
    if (reader->size + (size_t)length <= WORD_BYTES) {
        memcpy(reader->run + reader->size, reader->at, (size_t)length);
        if (first >= 'A' && first <= 'Z') reader->run[reader->size] = (char)(first + 32);
        reader->size += (size_t)length;
    }
}

/* The next run; false at the end of the text. */
static bool next_run(struct word_reader *reader) {
    enum place place = PLACE_WITHIN;
    reader->size = reader->part = 0;
    reader->joined = false;
    while (reader->at < reader->end && place != PLACE_ALONE) {
        int32_t character = (unsigned char)*reader->at;
        int length = character < 0x80
                         ? 1
                         : utf8_read(reader->at, (size_t)(reader->end - reader->at), &character);
        place = place_of(character);
        if (reader->size > 0 && place != PLACE_WITHIN) break;
        if (place != PLACE_BETWEEN) add_character(reader, length);
        reader->at += length;
    }
    return reader->size > 0;
}

/* "files" is "file", "entries" is "entry"; "class" and "status" stay. */
static uint64_t hash_word(const char *word, size_t size) {
    char copy[WORD_BYTES];
    memcpy(copy, word, size);
    bool plural =
        size > 3 && copy[size - 1] == 's' && copy[size - 2] != 's' && copy[size - 2] != 'u';
    if (plural && size > 4 && copy[size - 2] == 'e' && copy[size - 3] == 'i') {
        copy[size - 3] = 'y';
        size -= 2;
    } else if (plural) {
        size--;
    }
    return hash_bytes(copy, size, 0);
}

/* The next word of the run; false when it has no more. The whole run comes after its parts. */
static bool next_part(struct word_reader *reader, uint64_t *word) {
    while (reader->part < reader->size && reader->run[reader->part] == '_') reader->part++;
    size_t end = reader->part;
    while (end < reader->size && reader->run[end] != '_') end++;
    if (end > reader->part) {
        *word = hash_word(reader->run + reader->part, end - reader->part);
        reader->part = end;
        return true;
    }
    if (!reader->joined) return false;
    reader->joined = false;
    *word = hash_word(reader->run, reader->size);
    return true;
}

bool word_reader_next(struct word_reader *reader, uint64_t *word) {
    while (!next_part(reader, word))
        if (!next_run(reader)) return false;
    return true;
}
