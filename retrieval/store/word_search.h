/* retrieval/store/word_search.h: a search by words under way. Private to store_words.c, which
 * counts and weighs, and word_scores.c, which finds the best chunks. */
#pragma once

#include "retrieval/store/best_chunks.h"
#include "retrieval/store/store_private.h"
#include "retrieval/words/word_cursor.h"
#include "retrieval/words/word_demands.h"

/* Words of a query that are looked at. */
enum { QUERY_WORDS = 256 };

/* A word of a query: in how many chunks it is, and what having it is worth. */
struct query_word {
    struct word_text text;
    bool begins;           /* it stands for all words that begin so */
    struct word_list list; /* of the generation */
    struct buffer own;     /* its bytes, where it begins so */
    int64_t n_chunks;
    double weight; /* 0: it tells nothing */
};

struct word_search {
    const struct store_snapshot *snapshot;
    const struct filter *filter;
    const struct selection *among; /* NULL: all documents of the generation */
    const struct words *generation;
    const struct words **logged; /* [n_logged of the snapshot] */
    const atomic_bool *cancelled;
    const struct word_demands *demands; /* NULL: none */
    struct query_word words[QUERY_WORDS];
    int n_words;
    int64_t n_chunks, total; /* in the scope: chunks, and their words */
    double average;
    struct word_cursor cursors[QUERY_WORDS]; /* of the words, in what is being looked at */
    struct best_chunks best;
};

/* Whether a chunk of the generation is searched. */
static inline bool word_search_has_document(const struct word_search *search, int64_t document) {
    if (search->among && !selection_has(search->among, document)) return false;
    return store_snapshot_has(search->snapshot, 0, &search->snapshot->epoch->gone[document]);
}

/* The list of a word of the query, of the generation or of a document of the log; *own keeps its
 * bytes where it begins so. */
enum status query_word_list(const struct query_word *word, const struct words *words,
                            struct buffer *own, struct word_list *list, struct error *e);

/* Phrases and excluded words where they stand in a generation or in a document of the log. */
struct demand_cursors {
    const struct word_demands *demands; /* NULL: none */
    struct word_cursor *cursors;        /* those of a demand behind those of the one before */
    struct buffer starts, positions;    /* u32, of the chunk at hand */
};
enum status demand_cursors_open(struct demand_cursors *cursors, const struct word_demands *demands,
                                const struct words *words, struct error *e);
/* Whether a chunk has what it must have and nothing that it must not. Chunks rise from call to
 * call. */
bool demand_cursors_allow(struct demand_cursors *cursors, uint32_t chunk);
/* Lets go of them. Returns the damage that was met, or NULL. */
const char *demand_cursors_close(struct demand_cursors *cursors);

/* Words that are scored: those of the generation, or of a document of the log. */
struct scored_words {
    const struct words *words;
    int64_t first, n; /* chunks of the snapshot */
    bool logged;
};
/* Puts the chunks of these words that fit the query best among the best k, by BM25. Each is worth
 * the sum of its words' scores, whichever chunks were passed over. Equal ones are in the order of
 * their numbers. STATUS_CORRUPT, STATUS_CANCELLED. */
enum status word_search_score(struct word_search *search, const struct scored_words *scored,
                              struct error *e);
