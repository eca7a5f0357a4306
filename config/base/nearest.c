/* config/base/nearest.c: edit distance of names. See nearest.h. */
#include "config/base/nearest.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { NEAREST_MAX_LENGTH = 64 };

/* Levenshtein distance of two names of at most NEAREST_MAX_LENGTH bytes, one row of its table at a
 * time. */
static int edit_distance(struct text_span left, struct text_span right) {
    int row[NEAREST_MAX_LENGTH + 1];
    for (size_t j = 0; j <= right.size; j++) row[j] = (int)j;
    for (size_t i = 1; i <= left.size; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= right.size; j++) {
            int replaced = diagonal + (left.text[i - 1] != right.text[j - 1]);
            diagonal = row[j];
            row[j] = min_int(replaced, min_int(row[j], row[j - 1]) + 1);
        }
    }
    return row[right.size];
}

void nearest_offer(struct nearest_name *nearest, struct text_span wanted, struct text_span known) {
    if (wanted.size > NEAREST_MAX_LENGTH || known.size > NEAREST_MAX_LENGTH) return;
    int distance = edit_distance(wanted, known);
    if (distance > max_int(2, (int)wanted.size / 3)) return;
    if (nearest->name.text && distance >= nearest->distance) return;
    nearest->name = known;
    nearest->distance = distance;
}

const char *nearest_option(const struct option *options, const char *word,
                           char out[NEAREST_OPTION_SIZE]) {
    struct nearest_name nearest = {0};
    out[0] = '\0';
    if (strncmp(word, "--", 2) != 0) return out;
    struct text_span wanted = {word + 2, strcspn(word + 2, "=")};
    for (const struct option *known = options; known->name; known++)
        nearest_offer(&nearest, wanted, (struct text_span){known->name, strlen(known->name)});
    if (nearest.name.text)
        snprintf(out, NEAREST_OPTION_SIZE, "; did you mean --%.*s?", (int)nearest.name.size,
                 nearest.name.text);
    return out;
}
