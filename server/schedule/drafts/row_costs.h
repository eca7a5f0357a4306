/* server/schedule/drafts/row_costs.h: how long a step of so many rows takes, learnt from the steps
 * as they come, and how many rows pay when some of them are guesses. */
#pragma once

#include "config/base/base.h"

/* Rows of a step that are told apart. */
enum { ROW_COSTS = 64 };

/* Zero-initialised: nothing was seen yet. */
struct row_costs {
    double seconds[ROW_COSTS + 1]; /* of a step of so many rows, a sliding mean */
    int64_t seen[ROW_COSTS + 1];   /* the latest such step's number, from 1; 0: there was none */
    int64_t steps;
};

void row_costs_note(struct row_costs *costs, int rows, double seconds);
/* The seconds of a step of `rows` >= 1; those of sizes that were not seen lately follow from the
 * nearest ones that were. 0 while nothing is known. */
double row_costs_of(const struct row_costs *costs, int rows);
/* How many guesses to add to a step of `rows` rows that gives `tokens` tokens for certain, when the
 * i-th guess (the likelier the earlier) gives one more with probability odds[i]: the number that
 * makes the most tokens a second. */
int row_costs_choose(const struct row_costs *costs, int rows, double tokens, const double *odds,
                     int n);
