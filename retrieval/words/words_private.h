/* retrieval/words/words_private.h: what the files of this folder share. */
#pragma once

#include <string.h>

#include "retrieval/words/words.h"

struct words {
    const uint8_t *data;
    struct words_foot foot;
    size_t index_size; /* entries */
    char *name;
    char *own; /* the bytes, of words in memory */
};

static inline uint32_t words_load32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
static inline uint64_t words_load64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
