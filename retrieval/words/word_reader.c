/* retrieval/words/word_reader.c: see word_reader.h. */
#include "retrieval/words/word_reader.h"

#include <string.h>

#include "config/base/hash.h"

static bool is_ascii(struct text_span text) {
    unsigned char all = 0;
    for (size_t i = 0; i < text.size; i++) all |= (unsigned char)text.text[i];
    return all < 0x80;
}

void word_reader_open(struct word_reader *r, struct text_span text) {
    *r = (struct word_reader){.at = text.text, .end = text.text + text.size};
    if (is_ascii(text)) return;
    unicode_fold(text.text, text.size, &r->folded);
    r->at = r->folded.text;
    r->end = r->at + r->folded.size;
}

void word_reader_close(struct word_reader *r) { mapped_free(&r->folded); }

/* Runs of word characters. */

enum place { PLACE_BETWEEN, PLACE_WITHIN, PLACE_ALONE };

/* Chinese, Japanese and Korean are written without blanks: a character is a word. */
static bool stands_alone(int32_t c) { return (c >= 0x2e80 && c < 0xe000) || (c >= 0x20000 && c < 0x40000); }

/* Beyond U+FFFF signs are words too, as pictures of ships are. */
static enum place place_of(int32_t c) {
    if (c < 0x80) {
        bool within = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        return within ? PLACE_WITHIN : PLACE_BETWEEN;
    }
    if (!unicode_is_word(c) && !unicode_is_numeric(c) && c < 0x10000) return PLACE_BETWEEN;
    return stands_alone(c) ? PLACE_ALONE : PLACE_WITHIN;
}

static void add_character(struct word_reader *r, int length) {
    char first = *r->at;
    r->joined |= first == '_';
    if (r->size + (size_t)length <= WORD_BYTES) {
        memcpy(r->run + r->size, r->at, (size_t)length);
        if (first >= 'A' && first <= 'Z') r->run[r->size] = (char)(first + 32);
        r->size += (size_t)length;
    }
}

/* The next run; false at the end of the text. */
static bool next_run(struct word_reader *r) {
    enum place place = PLACE_WITHIN;
    r->size = r->part = 0;
    r->joined = false;
    while (r->at < r->end && place != PLACE_ALONE) {
        int32_t c = (unsigned char)*r->at;
        int length = c < 0x80 ? 1 : utf8_read(r->at, (size_t)(r->end - r->at), &c);
        place = place_of(c);
        if (r->size > 0 && place != PLACE_WITHIN) break;
        if (place != PLACE_BETWEEN) add_character(r, length);
        r->at += length;
    }
    return r->size > 0;
}

/* "files" is "file", "entries" is "entry"; "class" and "status" stay. */
static uint64_t hash_word(const char *word, size_t size) {
    char copy[WORD_BYTES];
    memcpy(copy, word, size);
    bool plural = size > 3 && copy[size - 1] == 's' && copy[size - 2] != 's' && copy[size - 2] != 'u';
    if (plural && size > 4 && copy[size - 2] == 'e' && copy[size - 3] == 'i') {
        copy[size - 3] = 'y';
        size -= 2;
    } else if (plural) {
        size--;
    }
    return hash_bytes(copy, size, 0);
}

/* The next word of the run; false when it has no more. The whole run comes after its parts. */
static bool next_part(struct word_reader *r, uint64_t *word) {
    while (r->part < r->size && r->run[r->part] == '_') r->part++;
    size_t end = r->part;
    while (end < r->size && r->run[end] != '_') end++;
    if (end > r->part) {
        *word = hash_word(r->run + r->part, end - r->part);
        r->part = end;
        return true;
    }
    if (!r->joined) return false;
    r->joined = false;
    *word = hash_word(r->run, r->size);
    return true;
}

bool word_reader_next(struct word_reader *r, uint64_t *word) {
    while (!next_part(r, word))
        if (!next_run(r)) return false;
    return true;
}
