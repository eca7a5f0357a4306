/* tools/eval/ppl_overlap.c: how much a chunk repeats of another text (ppl.h). */
#include <stdlib.h>
#include <string.h>

#include "tools/eval/ppl.h"

enum { GRAM = 8 };

int overlap_longest_run(const int32_t *chunk, int n, const int32_t *text, int n_text) {
    int longest = 0, *run = xcalloc((size_t)n_text + 1, sizeof *run);
    for (int i = 0; i < n; i++) {
        /* run[j + 1]: length of the common run that ends at chunk[i], text[j]; from right to left
         * reuses one row. */
        for (int j = n_text - 1; j >= 0; j--) {
            run[j + 1] = chunk[i] == text[j] ? run[j] + 1 : 0;
            longest = max_int(longest, run[j + 1]);
        }
    }
    free(run);
    return longest;
}

int overlap_grams(int n) { return n - min_int(n, GRAM) + 1; }

void overlap_mark(const int32_t *chunk, int n, const int32_t *text, int n_text, bool *found) {
    int gram = min_int(n, GRAM);
    for (int i = 0; i + gram <= n; i++)
        for (int j = 0; j + gram <= n_text && !found[i]; j++)
            found[i] = memcmp(chunk + i, text + j, (size_t)gram * sizeof *chunk) == 0;
}
