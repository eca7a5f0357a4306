/* retrieval/search/exact_words.h: identifiers, numbers, codes and options of a query, which a chunk
 * has word for word or has not: P-7777, 4321, EINVAL, pthread_create, 3f2a9bc, --soft. */
#pragma once

#include "config/base/buffer.h"

/* Those that are looked at of a query, and the longest of them. */
enum { EXACT_WORDS = 8, EXACT_WORD_BYTES = 64 };

struct exact_words {
    struct text_span words[EXACT_WORDS]; /* [n] of the query's text */
    int n;
};
/* A word between blanks, without marks around it, that has a digit and three characters, an
 * underscore, or four capitals and more; or that begins with one dash or two, which it keeps. */
struct exact_words exact_words_find(struct text_span query);

/* Whether the word is digits alone, as years and amounts are. */
bool exact_word_is_number(struct text_span word);

/* The words that a text has, as bits. */
struct exact_found {
    unsigned there;
    unsigned told; /* of these: the text tells of the word in a line that begins with it, or with
                      options beside it, as manuals and lists do */
};
/* Letters of ASCII are the same in both cases, but in options; no letter or digit stands beside the
 * word, and no dash before an option. */
struct exact_found exact_words_in(const struct exact_words *words, struct text_span text);
