/* config/base/nearest.h: the known name that a misspelt one is nearest to, for messages. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "config/base/buffer.h"

/* The best name so far; zero-initialise. */
struct nearest_name {
    struct text_span name; /* {NULL, 0}: none is near */
    int distance;
};

/* Takes `known` when it is nearer to `wanted` than what was seen before, and near at all: a third
 * of the name, or two letters, may be wrong. */
void nearest_offer(struct nearest_name *nearest, struct text_span wanted, struct text_span known);

/* "; did you mean --NAME?" in `out`, of the long options that getopt takes; "" where none is near
 * to the word, which may have a value behind '='. */
enum { NEAREST_OPTION_SIZE = 96 };
struct option;
const char *nearest_option(const struct option *options, const char *word,
                           char out[NEAREST_OPTION_SIZE]);
