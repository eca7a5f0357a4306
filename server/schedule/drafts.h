/* server/schedule/drafts.h: tokens that are guessed ahead of their rows, because the text repeats
 * what was read. The guesses' rows are computed in the step of the last drawn token, and the draws
 * go on from row to row for as long as the guess is what was drawn. A row does not depend on its
 * company in a step, and each draw on its own row, seed and place alone, so the answer is the same
 * with drafts and without, bit by bit.
 *
 * Nothing is guessed where it would not pay: the odds of a guess are how often guesses of such
 * matches were right before, which is counted whether or not they were computed, and what rows cost
 * is measured (drafts/row_costs.h). */
#pragma once

#include "server/schedule/drafts/draft_table.h"
#include "server/schedule/drafts/row_costs.h"

struct engine;
struct engine_sequence;

/* Guesses of all sequences in one step, and of one sequence. */
enum { DRAFT_STEP_ROWS = 63, DRAFT_ROWS = 31 };
/* Lengths of matches that are told apart by how often they go on. */
enum { DRAFT_CLASSES = 5 };

/* How often the token behind a match was the next one, by the match's length. */
struct draft_odds {
    double right[DRAFT_CLASSES], all[DRAFT_CLASSES];
};

/* The engine's side. */
struct draft_policy {
    struct row_costs costs;
    struct draft_odds odds; /* of all sequences */
};

/* A sequence's side: a part of it (engine_sequence.h). */
struct draft_part {
    struct draft_table table;
    struct draft_match match; /* what comes next, by the texts so far */
    struct draft_odds odds;
    struct draft_told told;
    const int32_t *rows;    /* the rows that are in the table, NULL: none yet; and ... */
    int n_reread;           /* ... how many of them had been written when they were put there */
    int n_ids, n_neighbors; /* tokens of the answer and neighbours' chunks that are there */
    int32_t tokens[1 + DRAFT_ROWS]; /* of the present step: the last drawn one, and guesses */
    int n, taken, place; /* these guesses, how many of them were drawn, and where the first
                            one stands in the table */
};

void draft_part_close(struct draft_part *part);
/* Adds guesses to the items of a step that is planned. */
void drafts_plan(struct engine *engine);
/* A step of so many rows, which only wrote answers, took so long. */
void drafts_note_step(struct engine *engine, int rows, double seconds);
/* The token was drawn and appended. Whether it is the next guess of this step, so that its row is
 * the next one to draw from. */
bool drafts_take(struct engine_sequence *sequence, int32_t token);
/* No further guess is taken in this step: the session forgets the rows of those left. */
void drafts_settle(struct engine_sequence *sequence);
