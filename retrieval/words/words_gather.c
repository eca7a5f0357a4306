/* retrieval/words/words_gather.c: all words with one beginning as if they were one. See
 * word_demands.h. */
#include <stdlib.h>

#include "retrieval/words/postings_writer.h"
#include "retrieval/words/word_cursor.h"
#include "retrieval/words/word_demands.h"
#include "retrieval/words/words_private.h"

/* Adds the counts of each chunk; what was damaged, or NULL. */
static const char *add_counts(const struct words *words, struct text_span prefix,
                              uint32_t *counts) {
    struct word_cursor *cursor = xmalloc(sizeof *cursor);
    struct words_walk walk;
    const char *damage = NULL;
    words_walk_open(&walk, words, prefix);
    while (damage == NULL && words_walk_next(&walk) && walk.size >= prefix.size &&
           memcmp(walk.bytes, prefix.text, prefix.size) == 0) {
        word_cursor_open(cursor, words, &walk.list);
        for (; cursor->chunk != WORD_END; word_cursor_next(cursor))
            counts[cursor->chunk] += cursor->count;
        damage = cursor->damage;
    }
    free(cursor);
    return damage ? damage : walk.damage;
}

enum status words_gather(const struct words *words, struct text_span prefix, struct buffer *own,
                         struct word_list *list, struct error *e) {
    const char zeros[WORDS_PAD] = {0};
    struct postings_writer writer = {.n = 0};
    uint64_t n_chunks = words->foot.n_chunks;
    uint32_t *counts = calloc((size_t)n_chunks + 1, sizeof *counts);
    *list = (struct word_list){.n = 0};
    if (counts == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%s: counts of %llu chunks", words->name,
                         (unsigned long long)n_chunks);
    const char *damage = add_counts(words, prefix, counts);
    for (uint64_t i = 0; i < n_chunks && damage == NULL; i++)
        if (counts[i] > 0)
            postings_writer_add(&writer, (uint32_t)i, counts[i], NULL,
                                words_length(words, (int64_t)i));
    free(counts);
    enum status status =
        damage ? words_fail(words, damage, e) : postings_writer_end(&writer, own, &list->n, e);
    postings_writer_free(&writer);
    list->bytes = (struct text_span){own->data, own->size};
    if (status) return status;
    buffer_append(own, zeros, sizeof zeros);
    list->bytes.text = own->data;
    return STATUS_OK;
}
