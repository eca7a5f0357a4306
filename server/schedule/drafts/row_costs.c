/* server/schedule/drafts/row_costs.c: see row_costs.h. */
#include "server/schedule/drafts/row_costs.h"

/* A further row adds so much of a step of one row, before anything was measured: eight-bit weights
 * were measured at half of it, four-bit weights at one and a half times. */
static const double GUESSED_SLOPE = 0.1;
/* Weight of one step among those before it. */
static const double STEP_WEIGHT = 0.2;
/* A step that took longer by more than this counts as this: a machine may pause. */
static const double LARGEST_SURPRISE = 2;
/* Guesses must promise so much more than they cost: measurements are noisy. */
static const double MARGIN = 1.05;

/* Steps after which a size counts as unseen: one that was slow by chance is tried again, and texts
 * grow longer. */
enum { REMEMBERED_STEPS = 512 };

static bool is_known(const struct row_costs *costs, int rows) {
    return costs->seen[rows] > 0 && costs->steps - costs->seen[rows] < REMEMBERED_STEPS;
}

void row_costs_note(struct row_costs *costs, int rows, double seconds) {
    if (rows < 1 || rows > ROW_COSTS || seconds <= 0) return;
    double *mean = &costs->seconds[rows];
    if (!is_known(costs, rows)) *mean = seconds;
    if (seconds > LARGEST_SURPRISE * *mean) seconds = LARGEST_SURPRISE * *mean;
    *mean += STEP_WEIGHT * (seconds - *mean);
    costs->steps++;
    costs->seen[rows] = costs->steps;
}

static double guessed_shape(int rows) { return 1 + GUESSED_SLOPE * (rows - 1); }

double row_costs_of(const struct row_costs *costs, int rows) {
    int below = min_int(rows, ROW_COSTS), above = rows;
    while (below > 0 && !is_known(costs, below)) below--;
    while (above <= ROW_COSTS && !is_known(costs, above)) above++;
    if (below == rows) return costs->seconds[rows];
    if (below == 0 && above > ROW_COSTS) return 0;
    if (above > ROW_COSTS)
        return costs->seconds[below] * guessed_shape(rows) / guessed_shape(below);
    if (below == 0) return costs->seconds[above] * guessed_shape(rows) / guessed_shape(above);
    double part = (double)(rows - below) / (above - below);
    return costs->seconds[below] + part * (costs->seconds[above] - costs->seconds[below]);
}

int row_costs_choose(const struct row_costs *costs, int rows, double tokens, const double *odds,
                     int n) {
    double alone = row_costs_of(costs, rows), best = tokens * MARGIN;
    int chosen = 0;
    for (int i = 0; i < n && alone > 0; i++) {
        tokens += odds[i];
        double rate = tokens * alone / row_costs_of(costs, rows + i + 1);
        if (rate <= best) continue;
        best = rate;
        chosen = i + 1;
    }
    return chosen;
}
