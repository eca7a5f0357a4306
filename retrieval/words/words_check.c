/* retrieval/words/words_check.c: every byte of words that a search may read, for `verify`. See
 * words.h. */
#include <stdlib.h>

#include "retrieval/words/word_cursor.h"
#include "retrieval/words/words_private.h"

enum { MOST_POSITIONS = 1 << 16 };

struct checking {
    const struct words *words;
    uint32_t *lengths;   /* words of each chunk that are not yet found */
    uint32_t *positions; /* [MOST_POSITIONS] */
    struct word_cursor cursor;
};

/* The fault of a word in a chunk; NULL: there is none. */
static const char *check_chunk(struct checking *checking) {
    const struct word_cursor *cursor = &checking->cursor;
    uint32_t *left = &checking->lengths[cursor->chunk];
    uint32_t length = words_length(checking->words, cursor->chunk);
    struct words_block block = word_cursor_block(cursor, cursor->block);
    if (cursor->count > *left) return "a chunk has more words than its length";
    *left -= cursor->count;
    if (cursor->count > block.count || length < block.length)
        return "a block has a chunk that is worth more than it says";
    int n = word_cursor_positions(cursor, checking->positions, MOST_POSITIONS);
    for (int i = 0; i < n; i++)
        if (checking->positions[i] >= length ||
            (i > 0 && checking->positions[i] < checking->positions[i - 1]))
            return "a word stands behind the end of its chunk";
    return NULL;
}

static const char *check_list(struct checking *checking, const struct word_list *list) {
    struct word_cursor *cursor = &checking->cursor;
    const char *damage = NULL;
    int64_t n = 0;
    word_cursor_open(cursor, checking->words, list);
    for (; cursor->chunk != WORD_END && damage == NULL; n++) {
        uint32_t before = cursor->chunk;
        damage = check_chunk(checking);
        word_cursor_next(cursor);
        if (damage == NULL && cursor->chunk <= before) damage = "chunks of a word do not rise";
    }
    if (damage == NULL) damage = cursor->damage;
    return damage == NULL && n != list->n ? "a word is in another number of chunks" : damage;
}

/* Words rise, and their postings follow each other. */
static const char *check_words(struct checking *checking) {
    const struct words *words = checking->words;
    struct words_walk walk = {.words = words};
    struct word_text before = {.size = 0};
    const char *damage = NULL, *next = (const char *)words->data;
    while (damage == NULL && words_walk_next(&walk)) {
        size_t size = before.size < walk.size ? before.size : walk.size;
        int order = memcmp(before.bytes, walk.bytes, size);
        if (order > 0 || (order == 0 && before.size >= walk.size)) damage = "words do not rise";
        if (walk.list.bytes.text != next) damage = "postings do not follow each other";
        next = walk.list.bytes.text + walk.list.bytes.size;
        if (damage == NULL) damage = check_list(checking, &walk.list);
        before.size = walk.size;
        memcpy(before.bytes, walk.bytes, walk.size);
    }
    if (damage || walk.damage) return damage ? damage : walk.damage;
    for (int i = 1; i <= WORDS_PAD; i++)
        if (words->data[words->foot.lengths - (uint64_t)i] != 0) return "its postings have no end";
    bool all = walk.at == words->foot.index - words->foot.dictionary &&
               next == (const char *)words->data + words->foot.lengths - WORDS_PAD;
    return all || words->foot.n_words == 0 ? NULL : "there are bytes between its parts";
}

static const char *check_lengths(const struct checking *checking) {
    uint64_t total = 0;
    for (uint64_t i = 0; i < checking->words->foot.n_chunks; i++) {
        total += words_length(checking->words, (int64_t)i);
        if (checking->lengths[i] != 0) return "a chunk has fewer words than its length";
    }
    return total == checking->words->foot.total ? NULL : "the lengths are not those of all words";
}

enum status words_check(const struct words *words, struct error *e) {
    struct checking *checking = xcalloc(1, sizeof *checking);
    uint64_t n = words->foot.n_chunks;
    checking->words = words;
    checking->positions = xmalloc(MOST_POSITIONS * sizeof *checking->positions);
    checking->lengths = malloc((n + 1) * sizeof *checking->lengths);
    enum status status = STATUS_OK;
    if (checking->lengths == NULL)
        status = error_set(e, STATUS_NO_MEMORY, "%s: lengths of %llu chunks", words->name,
                           (unsigned long long)n);
    for (uint64_t i = 0; i < n && status == STATUS_OK; i++)
        checking->lengths[i] = words_length(words, (int64_t)i);
    const char *damage = status == STATUS_OK ? check_words(checking) : NULL;
    if (status == STATUS_OK && damage == NULL) damage = check_lengths(checking);
    if (damage) status = words_fail(words, damage, e);
    free(checking->lengths);
    free(checking->positions);
    free(checking);
    return status;
}
