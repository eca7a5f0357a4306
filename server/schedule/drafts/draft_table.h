/* server/schedule/drafts/draft_table.h: what probably comes next in a text that repeats others: the
 * place where its last tokens stood before, and the tokens that followed there (prompt lookup,
 * Saxena 2023; the longest suffix that occurs elsewhere, as a suffix automaton finds it in SAM
 * Decoding, arXiv 2411.10666).
 *
 * All texts lie behind each other in one list of tokens. Each place is chained to the latest one
 * before it whose last DRAFT_KEY tokens have the same hash, so adding a token and looking for a
 * match take a bounded time each. */
#pragma once

#include "config/base/base.h"

/* DRAFT_KEY: tokens that a match has at least. DRAFT_RECENT: tokens behind which lengths of matches
 * are not told apart. DRAFT_WALK: places of one key that are looked at, the latest first. */
enum { DRAFT_KEY = 2, DRAFT_RECENT = 32, DRAFT_WALK = 64 };
/* Where a text comes from. */
enum draft_kind {
    DRAFT_PROMPT, /* what the model reads: the prompt with its passages, or the encoder's source */
    DRAFT_ANSWER, /* the answer itself */
    DRAFT_NEIGHBORS, /* neighbours of its chunks, and what follows these */
    DRAFT_PREDICTED, /* what the client expects */
    DRAFT_KINDS
};

/* Tokens of an answer that the texts foretold, whether or not rows were computed ahead: so these
 * depend on nobody else and on no clock. */
struct draft_told {
    int guessed, right;             /* by any text, and rightly */
    int expected, expected_rightly; /* of these, by the text that the asker expects */
};

/* Guesses whose rows were computed, and those of them that were drawn, by where they came from. */
struct draft_counts {
    int64_t drafted[DRAFT_KINDS], accepted[DRAFT_KINDS];
};

/* The tokens from `place` on followed `length` (0: no match, DRAFT_RECENT: that or more) tokens
 * that are also the text's last. */
struct draft_match {
    int place, length;
};

/* Where the texts of one kind begin. */
struct draft_mark {
    int place;
    enum draft_kind kind;
};

/* Zero-initialise; close when done. */
struct draft_table {
    int32_t *tokens; /* [n] owned; -1 between texts, and for rows that are no tokens */
    int32_t *before; /* [n] owned: the place before of the same key, -1: none */
    int n, capacity;
    int32_t *latest; /* [1 << latest_bits] owned: the latest place of a key, -1: none */
    int latest_bits;
    struct draft_mark *marks; /* [n_marks] owned, in the order of places */
    int n_marks;
    int32_t recent[DRAFT_RECENT]; /* the last tokens of the text that is written; the latest one at
                                     (n_recent - 1) % DRAFT_RECENT */
    int n_recent;
};

void draft_table_close(struct draft_table *table);
/* A text that may be repeated. Negative ids match nothing. */
void draft_table_add(struct draft_table *table, enum draft_kind kind, const int32_t *tokens, int n);
/* The text that is written grows by a token: by one of its prompt, or of its answer. */
void draft_table_write(struct draft_table *table, enum draft_kind kind, int32_t token);
/* The longest match of the text's last tokens; of equally long ones the latest. */
struct draft_match draft_table_match(const struct draft_table *table);
/* The token that follows; -1: none does. */
static inline int32_t draft_table_next(const struct draft_table *table, struct draft_match match) {
    return match.length > 0 && match.place < table->n ? table->tokens[match.place] : -1;
}
/* The match one token further on, where that token was written. */
static inline struct draft_match draft_match_step(struct draft_match match) {
    return (struct draft_match){match.place + 1, min_int(match.length + 1, DRAFT_RECENT)};
}
/* Of the text at this place. */
enum draft_kind draft_table_kind(const struct draft_table *table, int place);
/* Where the first text of this kind begins; -1: there is none. */
int draft_table_begin(const struct draft_table *table, enum draft_kind kind);
size_t draft_table_bytes(const struct draft_table *table);
