/* tools/ppl_overlap.c: how much a chunk repeats of its neighbours, and the bootstrap of a ratio over documents. */
#include <stdlib.h>
#include <string.h>

#include "tools/ppl.h"

enum { GRAM = 8, DRAWS = 1000 };

int overlap_longest_run(const int32_t *chunk, int n, const int32_t *text, int n_text) {
    int longest = 0, *run = xcalloc((size_t)n_text + 1, sizeof *run);
    for (int i = 0; i < n; i++) {
        /* run[j + 1]: length of the common run that ends at chunk[i], text[j]; from right to left reuses one row. */
        for (int j = n_text - 1; j >= 0; j--) {
            run[j + 1] = chunk[i] == text[j] ? run[j] + 1 : 0;
            longest = max_int(longest, run[j + 1]);
        }
    }
    free(run);
    return longest;
}

void overlap_mark_8grams(const int32_t *chunk, int n, const int32_t *text, int n_text, bool *found) {
    for (int i = 0; i + GRAM <= n; i++)
        for (int j = 0; j + GRAM <= n_text && !found[i]; j++)
            found[i] = memcmp(chunk + i, text + j, GRAM * sizeof *chunk) == 0;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct interval bootstrap_ratio(const double *numerator, const double *denominator, int n, uint64_t seed) {
    double ratios[DRAWS];
    for (int draw = 0; draw < DRAWS; draw++) {
        double top = 0, bottom = 0;
        for (int i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            int pick = (int)((seed >> 33) % (uint64_t)n);
            top += numerator[pick];
            bottom += denominator[pick];
        }
        ratios[draw] = bottom > 0 ? top / bottom : 0;
    }
    qsort(ratios, DRAWS, sizeof *ratios, compare_doubles);
    return (struct interval){ratios[DRAWS / 40], ratios[DRAWS - 1 - DRAWS / 40]};
}
