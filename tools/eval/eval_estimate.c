/* tools/eval/eval_estimate.c: a ratio of sums and its bootstrap interval (eval.h). */
#include <math.h>
#include <stdlib.h>

#include "tools/eval/eval.h"

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct estimate estimate_ratio(const double *numerator, const double *denominator, int n,
                               uint64_t seed) {
    double ratios[EVAL_DRAWS], sum_top = 0, sum_bottom = 0;
    for (int i = 0; i < n; i++) {
        sum_top += numerator[i];
        sum_bottom += denominator[i];
    }
    if (!(sum_bottom > 0)) return (struct estimate){NAN, NAN, NAN};
    for (int draw = 0; draw < EVAL_DRAWS; draw++) {
        double top = 0, bottom = 0;
        for (int i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            int pick = (int)((seed >> 33) % (uint64_t)n);
            top += numerator[pick];
            bottom += denominator[pick];
        }
        ratios[draw] =
            bottom > 0 ? top / bottom : 0; /* a resample may hold none of a small subset */
    }
    qsort(ratios, EVAL_DRAWS, sizeof *ratios, compare_doubles);
    return (struct estimate){sum_top / sum_bottom, ratios[EVAL_DRAWS / 40],
                             ratios[EVAL_DRAWS - 1 - EVAL_DRAWS / 40]};
}
