/* tests/scale/made_text.h: text of any length whose words are as frequent as those of real text
 * (Zipf), with words that a topic and a document have of their own. Frequent words are those of the
 * given texts, in their order; rarer ones are made of syllables. */
#pragma once

#include "config/base/buffer.h"

enum { MADE_TOPIC_DOCUMENTS = 20, MADE_CHUNK_WORDS = 45 };

struct made_text {
    struct buffer bytes; /* of the words, a NUL behind each */
    struct buffer words; /* size_t: where each begins, the most frequent first */
    double *sums;        /* of the frequencies of all ranks up to each */
};

/* paths [n]: files of text. */
enum status made_text_open(struct made_text *made, const char *const *paths, int n,
                           struct error *e);
void made_text_close(struct made_text *made);
/* Appends the text of chunk `number`, of a document. */
void made_text_chunk(const struct made_text *made, struct buffer *out, uint64_t document,
                     uint64_t number);
/* Appends a question of seven words: two of the document's topic, of every other question two of
 * the document's own, which are rare, and others that any text has. */
void made_text_query(const struct made_text *made, struct buffer *out, uint64_t document,
                     uint64_t number);
