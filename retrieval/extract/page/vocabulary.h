/* retrieval/extract/page/vocabulary.h: the words of a document, to judge what a word at the end of
 * a line was before it was divided. */
#pragma once

#include "config/base/buffer.h"
#include "config/base/key_set.h"

/* Zero-initialise. Case, and what stands around a word, does not matter. */
struct document_words {
    struct key_set words;
};
void vocabulary_add(struct document_words *vocabulary, struct text_span word);
bool vocabulary_has(const struct document_words *vocabulary, struct text_span word);
void vocabulary_free(struct document_words *vocabulary);
