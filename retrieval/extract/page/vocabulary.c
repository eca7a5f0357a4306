/* retrieval/extract/page/vocabulary.c: see vocabulary.h. */
#include "retrieval/extract/page/vocabulary.h"

#include <string.h>

#include "config/base/lookup.h"

enum { LONGEST = 128 };

/* Without what stands around it, ASCII in lower case; its size, 0: it is none. */
static size_t fold_word(struct text_span word, char *out) {
    static const char around[] = ".,;:!?()[]{}\"'";
    while (word.size > 0 && strchr(around, word.text[0])) {
        word.text++;
        word.size--;
    }
    while (word.size > 0 && strchr(around, word.text[word.size - 1])) word.size--;
    if (word.size > LONGEST) return 0;
    for (size_t i = 0; i < word.size; i++) {
        char c = word.text[i];
        out[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    return word.size;
}

void vocabulary_add(struct document_words *vocabulary, struct text_span word) {
    char folded[LONGEST];
    size_t size = fold_word(word, folded);
    if (size > 0) key_set_add(&vocabulary->words, lookup_hash(folded, size), size);
}

bool vocabulary_has(const struct document_words *vocabulary, struct text_span word) {
    char folded[LONGEST];
    size_t size = fold_word(word, folded);
    return size > 0 && key_set_number(&vocabulary->words, lookup_hash(folded, size), size);
}

void vocabulary_free(struct document_words *vocabulary) { key_set_free(&vocabulary->words); }
