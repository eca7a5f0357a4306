/* retrieval/words/word_demands.h: a query with operators: "a phrase" stands in every hit, -word and
 * -"a phrase" in none, and begin* is sought as all words that begin so, as one. Its size is
 * bounded, whatever documents there are. */
#pragma once

#include "retrieval/words/words.h"

enum { WORD_DEMANDS = 8, PHRASE_WORDS = 16, WORD_PREFIXES = 4 };

/* Words that follow each other. */
struct word_demand {
    struct word_text words[PHRASE_WORDS];
    uint32_t places[PHRASE_WORDS]; /* behind the first, rising from 0 */
    int n;
    bool without; /* a hit must not have them */
};

struct word_demands {
    struct word_demand list[WORD_DEMANDS];
    int n;
    struct word_text prefixes[WORD_PREFIXES];
    int n_prefixes;
    struct buffer text;   /* the query without operators, and without what hits must not have */
    struct buffer sought; /* the same without prefixes: words that are ranked by */
};

/* STATUS_INVALID says what of the query cannot be. */
enum status word_demands_parse(struct word_demands **out, struct text_span query, struct error *e);
void word_demands_free(struct word_demands *demands); /* NULL: nothing */
/* Appends how the query was read, a line for each phrase, excluded word and beginning. */
void word_demands_describe(const struct word_demands *demands, struct buffer *out);
/* Whether a text has what it must have and nothing that it must not. Linear in the text. */
bool word_demands_allow(const struct word_demands *demands, struct text_span text);

/* The chunks that have any word with a beginning, counted together, as a list whose bytes are in
 * *own until that is freed; it keeps no positions. Linear in the postings of these words and in the
 * number of chunks. STATUS_NO_MEMORY, STATUS_CORRUPT. */
enum status words_gather(const struct words *words, struct text_span prefix, struct buffer *own,
                         struct word_list *list, struct error *e);
