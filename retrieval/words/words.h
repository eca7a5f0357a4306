/* retrieval/words/words.h: which chunks hold which words, for ranking by words (BM25). It is made
 * in memory from the chunks' text, which is on the disk and checked, so it needs no file of its
 * own.
 *
 * A word is a run of letters, marks and digits, folded by Unicode (NFKC, case folding), without an
 * English plural's ending. Parts of an identifier like pthread_create are words, and so is the
 * whole. A character of Chinese, Japanese or Korean is a word. Words are known by 64 bits of hash:
 * two that share one count as the same. */
#pragma once

#include "config/base/buffer.h"

struct words;

/* The text of a chunk. */
typedef struct text_span words_source(const void *context, int64_t chunk);
/* Of chunks [0, n), n below 2^32. STATUS_NO_MEMORY. */
enum status words_make(struct words **out, words_source *source, const void *context, int64_t n,
                       struct error *e);
void words_free(struct words *words); /* NULL: nothing */

struct posting {
    uint32_t chunk, count; /* how often it has the word */
};
struct postings {
    const struct posting *list; /* [n], chunks in ascending order */
    int64_t n;
};
struct postings words_find(const struct words *words, uint64_t word);
/* How many words a chunk has, and all chunks have. */
uint32_t words_length(const struct words *words, int64_t chunk);
int64_t words_total(const struct words *words);

/* The words of a text, each once, in the order in which they come first; at most `most` of them.
 * Returns how many. */
int words_split(struct text_span text, uint64_t *words, int most);
