/* retrieval/chunk_ends.h: where the chunks of a text end: with its blocks, else with its sentences,
 * else with words. */
#pragma once

#include "retrieval/document.h"

/* A text that is to be cut. */
struct chunk_source {
    struct text_span text;
    struct mark_span marks;
    const uint32_t *starts; /* [n] bytes at which tokens begin, each behind the one before */
    int n;                  /* at least 1 */
};
/* Cuts it, and appends a struct chunk_range for each chunk to *ranges; returns how many.
 *
 * Chunks of CHUNKS_TEXT have 1 .. length tokens. A row of a table, an item of a list and a line of
 * code are torn only where one has more than `length` tokens. A heading, and the head of a table,
 * stand in one chunk with what follows them, and a heading begins a chunk unless what is before it
 * is short. A table of contents is in no chunk, where there is anything else. Takes time in
 * proportion to text, marks and tokens. */
int chunks_cut(const struct chunk_source *source, enum chunk_cut cut, int length,
               struct buffer *ranges);
