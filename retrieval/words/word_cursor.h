/* retrieval/words/word_cursor.h: the chunks of a word one after the other, and where it stands in
 * each. Blocks that are passed over are not read. */
#pragma once

#include "retrieval/words/words.h"

#define WORD_END UINT32_MAX /* behind the last chunk */

struct word_cursor {
    const struct words *words;
    const uint8_t *table, *blocks; /* table: NULL where there is one block */
    size_t size;                   /* of the blocks */
    int64_t n;
    uint32_t n_blocks, block; /* the one that is read */
    uint32_t chunk, count;    /* where it stands; WORD_END: behind the last */
    uint32_t shallow;         /* the first block that word_cursor_block may still be asked of */
    struct words_block only;  /* where there is one block */
    int at, n_here;           /* in the block */
    uint32_t chunks[WORDS_BLOCK], counts[WORDS_BLOCK];
    const uint8_t *packed; /* the block's numbers */
    uint64_t steps_at;     /* a bit */
    unsigned step_bits;
    const char *damage; /* NULL: none was met; else it is at its end */
};

/* Stands at the first chunk. The list is that of words, or made of its chunks. */
void word_cursor_open(struct word_cursor *cursor, const struct words *words,
                      const struct word_list *list);
/* Goes on to the first chunk that is not below `chunk`. */
void word_cursor_seek(struct word_cursor *cursor, uint32_t chunk);
void word_cursor_next(struct word_cursor *cursor); /* not behind the last */
/* A block of the list, in [0, n_blocks). */
struct words_block word_cursor_block(const struct word_cursor *cursor, uint32_t block);
/* Where the word stands in the chunk, rising, into positions [most]; returns how many there are,
 * of count. */
int word_cursor_positions(const struct word_cursor *cursor, uint32_t *positions, int most);
