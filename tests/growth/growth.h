/* tests/growth/growth.h: cases whose work may grow no faster than their input: a parser or a
 * compiler of foreign input, and the worst input known for it at any size. */
#pragma once

#include "config/base/buffer.h"

struct growth_case {
    const char *name;
    int n; /* the smallest of three sizes: n, 2n, 4n */
    /* Appends the input of size n. Things that all sizes share are opened here, where nothing is
     * counted. */
    void (*make)(int n, struct buffer *input);
    void (*run)(struct text_span input); /* what is counted */
};

struct growth_table {
    const struct growth_case *cases;
    size_t n;
};
extern const struct growth_table chat_growth, grammar_growth, text_growth, filter_growth,
    file_growth, model_growth, request_growth, door_growth, reply_growth;

#define GROWTH_TABLE(list) \
    { list, ARRAY_COUNT(list) }

/* Appends a text n times. */
static inline void put_times(struct buffer *out, int n, const char *text) {
    for (int i = 0; i < n; i++) buffer_append_string(out, text);
}
