/* retrieval/search/exact_words.c: see exact_words.h. */
#include "retrieval/search/exact_words.h"

#include <string.h>

#include "config/base/text.h"

static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static char lower(char c) { return is_upper(c) ? (char)(c + ('a' - 'A')) : c; }
static bool is_word(char c) {
    return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || (c & 0x80) != 0;
}

static bool is_option(struct text_span word) { return word.size > 0 && word.text[0] == '-'; }

/* Whether a word is one that people copy rather than write. */
static bool is_exact(struct text_span word) {
    size_t digits = 0, capitals = 0, underscores = 0, characters = 0;
    for (size_t i = 0; i < word.size; i++) {
        digits += is_digit(word.text[i]);
        capitals += is_upper(word.text[i]);
        underscores += word.text[i] == '_';
        characters += is_word(word.text[i]);
    }
    if (word.size > EXACT_WORD_BYTES) return false;
    return is_option(word) || (digits > 0 && characters >= 3) ||
           (underscores > 0 && characters >= 3) || (capitals >= 4 && capitals == characters);
}

/* Without the marks around it. Of the dashes that an option begins with two are kept. */
static struct text_span trim_marks(struct text_span word) {
    const char *first = word.text;
    while (word.size > 0 && !is_word(word.text[0])) word.text++, word.size--;
    while (word.size > 0 && !is_word(word.text[word.size - 1])) word.size--;
    for (int i = 0; i < 2 && word.size > 0 && word.text > first && word.text[-1] == '-'; i++)
        word.text--, word.size++;
    return word;
}

struct exact_words exact_words_find(struct text_span query) {
    struct exact_words words = {.n = 0};
    size_t at = 0;
    while (at < query.size && words.n < EXACT_WORDS) {
        size_t start = at;
        while (at < query.size && !is_blank(query.text[at])) at++;
        struct text_span word = trim_marks((struct text_span){query.text + start, at - start});
        if (word.size > 0 && is_exact(word)) {
            words.words[words.n] = word;
            words.n++;
        }
        at += at < query.size;
    }
    return words;
}

bool exact_word_is_number(struct text_span word) {
    size_t digits = 0;
    for (size_t i = 0; i < word.size; i++) digits += is_digit(word.text[i]);
    return digits == word.size;
}

static bool stands_at(struct text_span word, struct text_span text, size_t at) {
    bool option = is_option(word);
    if (word.size > text.size - at) return false;
    if (at > 0 && (is_word(text.text[at - 1]) || (option && text.text[at - 1] == '-')))
        return false;
    if (at + word.size < text.size && is_word(text.text[at + word.size])) return false;
    if (option) return memcmp(word.text, text.text + at, word.size) == 0;
    for (size_t i = 0; i < word.size; i++)
        if (lower(word.text[i]) != lower(text.text[at + i])) return false;
    return true;
}

/* Whether nothing but marks and options stands before byte `at` on its line, which is near. */
static bool begins_line(struct text_span text, size_t at) {
    bool option = false;
    size_t start = at;
    while (start > 0 && text.text[start - 1] != '\n' && at - start < EXACT_WORD_BYTES) start--;
    if (start > 0 && text.text[start - 1] != '\n') return false;
    for (size_t i = start; i < at; i++) {
        char c = text.text[i];
        if (is_blank(c))
            option = false;
        else if (c == '-')
            option = true;
        else if (is_word(c) && !option)
            return false;
    }
    return true;
}

struct exact_found exact_words_in(const struct exact_words *words, struct text_span text) {
    struct exact_found found = {0};
    for (int i = 0; i < words->n; i++)
        for (size_t at = 0; at < text.size && (found.told & 1U << i) == 0; at++) {
            if (!stands_at(words->words[i], text, at)) continue;
            found.there |= 1U << i;
            if (begins_line(text, at)) found.told |= 1U << i;
        }
    return found;
}
