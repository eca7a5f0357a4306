/* retrieval/words/postings_writer.h: the chunks of a word become the bytes that word_cursor.h
 * reads. */
#pragma once

#include "retrieval/words/words.h"

struct postings_writer {
    uint32_t chunks[WORDS_BLOCK], counts[WORDS_BLOCK];
    struct buffer steps;         /* u32 each, of the block */
    struct buffer table, blocks; /* of the list */
    uint32_t shortest, largest;  /* of the block */
    uint64_t next;               /* the lowest chunk that may follow the blocks before */
    int n;                       /* in the block */
    int64_t n_all;
};

/* A chunk that has the word; chunks rise. positions [count] rise; NULL: they are not kept. length:
 * words of the chunk. */
void postings_writer_add(struct postings_writer *writer, uint32_t chunk, uint32_t count,
                         const uint32_t *positions, uint32_t length);
/* Appends the list of what was added to *out, and begins the next. STATUS_TOO_LARGE. */
enum status postings_writer_end(struct postings_writer *writer, struct buffer *out, int64_t *n,
                                struct error *e);
void postings_writer_free(struct postings_writer *writer);
