/* retrieval/search/exact_words.h: identifiers, numbers and codes of a query, which a chunk has word
 * for word or has not: P-7777, 4321, EINVAL, pthread_create, 3f2a9bc. */
#pragma once

#include "config/base/buffer.h"

/* Those that are looked at of a query, and the longest of them. */
enum { EXACT_WORDS = 8, EXACT_WORD_BYTES = 64 };

struct exact_words {
    struct text_span words[EXACT_WORDS]; /* [n] of the query's text */
    int n;
};
/* A word between blanks, without marks around it, that has a digit and three characters, an
 * underscore, or four capitals and more. */
struct exact_words exact_words_find(struct text_span query);
/* Those of them that a text has, as bits: letters of ASCII are the same in both cases, and no
 * letter or digit stands beside the word. */
unsigned exact_words_in(const struct exact_words *words, struct text_span text);
