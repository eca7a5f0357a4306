/* retrieval/words/word_cursor.c: see word_cursor.h. */
#include "retrieval/words/word_cursor.h"

#include "retrieval/words/words_private.h"

enum { BLOCK_HEAD = 2 };

static void end_damaged(struct word_cursor *cursor, const char *damage) {
    cursor->damage = damage;
    cursor->chunk = WORD_END;
}

/* The number of `bits` at a bit. Up to eight bytes behind it are read: all postings have as many
 * behind them. */
static uint32_t unpack_one(const uint8_t *bytes, uint64_t at, unsigned bits) {
    uint64_t value = words_load64(bytes + at / 8) >> (at % 8);
    return (uint32_t)(value & ((1ULL << bits) - 1));
}

static void unpack(const uint8_t *bytes, uint64_t at, unsigned bits, int n, uint32_t *out) {
    for (int i = 0; i < n; i++) out[i] = unpack_one(bytes, at + (uint64_t)i * bits, bits);
}

struct words_block word_cursor_block(const struct word_cursor *cursor, uint32_t block) {
    struct words_block found;
    if (cursor->table == NULL) return cursor->only;
    memcpy(&found, cursor->table + (size_t)block * sizeof found, sizeof found);
    return found;
}

/* Gaps become chunks, and what was packed counts; false: they cannot be. */
static bool settle_block(struct word_cursor *cursor, uint64_t next, uint64_t *n_steps) {
    *n_steps = 0;
    for (int i = 0; i < cursor->n_here; i++) {
        next += cursor->chunks[i];
        if (next >= cursor->words->foot.n_chunks) return false;
        cursor->chunks[i] = (uint32_t)next;
        next++;
        cursor->counts[i]++;
        *n_steps += cursor->counts[i];
    }
    return true;
}

/* Reads a block and stands at its first chunk. */
static void read_block(struct word_cursor *cursor, uint32_t block) {
    struct words_block before = {0}, here = word_cursor_block(cursor, block);
    if (block > 0) before = word_cursor_block(cursor, block - 1);
    if (before.end >= here.end || here.end > cursor->size || here.end - before.end < BLOCK_HEAD) {
        end_damaged(cursor, "a block of its postings leads out of them");
        return;
    }
    const uint8_t *bytes = cursor->blocks + before.end;
    uint64_t size = (uint64_t)(here.end - before.end - BLOCK_HEAD), n_steps;
    unsigned head = bytes[0] | (unsigned)bytes[1] << 8;
    unsigned gap_bits = head & 31, count_bits = head >> 5 & 31;
    int64_t left = cursor->n - (int64_t)block * WORDS_BLOCK;
    cursor->n_here = left < WORDS_BLOCK ? (int)left : WORDS_BLOCK;
    uint64_t counts_at = (uint64_t)cursor->n_here * gap_bits;
    cursor->packed = bytes + BLOCK_HEAD;
    cursor->steps_at = counts_at + (uint64_t)cursor->n_here * count_bits;
    cursor->step_bits = head >> 10 & 31;
    if (cursor->steps_at > 8 * size || head >> 15 != 0) {
        end_damaged(cursor, "a block of its postings is damaged");
        return;
    }
    unpack(cursor->packed, 0, gap_bits, cursor->n_here, cursor->chunks);
    unpack(cursor->packed, counts_at, count_bits, cursor->n_here, cursor->counts);
    bool fits = settle_block(cursor, block > 0 ? (uint64_t)before.last + 1 : 0, &n_steps) &&
                (cursor->steps_at + n_steps * cursor->step_bits + 7) / 8 == size &&
                (cursor->table == NULL || cursor->chunks[cursor->n_here - 1] == here.last);
    if (!fits) {
        end_damaged(cursor, "a block of its postings is damaged");
        return;
    }
    cursor->block = block;
    cursor->at = 0;
    cursor->chunk = cursor->chunks[0];
    cursor->count = cursor->counts[0];
}

/* A list of one block has no table: its block is looked at. */
static void measure_only(struct word_cursor *cursor) {
    struct words_block *only = &cursor->only;
    only->length = UINT32_MAX;
    only->last = cursor->chunks[cursor->n_here - 1];
    for (int i = 0; i < cursor->n_here; i++) {
        uint32_t length = words_length(cursor->words, cursor->chunks[i]);
        only->count = cursor->counts[i] > only->count ? cursor->counts[i] : only->count;
        only->length = length < only->length ? length : only->length;
    }
}

void word_cursor_open(struct word_cursor *cursor, const struct words *words,
                      const struct word_list *list) {
    cursor->words = words;
    cursor->table = NULL;
    cursor->blocks = (const uint8_t *)list->bytes.text;
    cursor->size = list->bytes.size;
    cursor->n = list->n;
    cursor->n_blocks = (uint32_t)((list->n + WORDS_BLOCK - 1) / WORDS_BLOCK);
    cursor->block = cursor->shallow = 0;
    cursor->chunk = WORD_END;
    cursor->damage = NULL;
    cursor->only = (struct words_block){0};
    if (list->n == 0) return;
    if (cursor->n_blocks > 1) {
        size_t table = cursor->n_blocks * sizeof(struct words_block);
        if (table > cursor->size) {
            end_damaged(cursor, "postings of it are cut off");
            return;
        }
        cursor->table = cursor->blocks;
        cursor->blocks += table;
        cursor->size -= table;
    } else {
        cursor->only.end = (uint32_t)(cursor->size > UINT32_MAX ? UINT32_MAX : cursor->size);
    }
    read_block(cursor, 0);
    if (cursor->table == NULL && cursor->damage == NULL) measure_only(cursor);
}

/* The first block behind the one that is read whose last chunk is not below `chunk`. */
static uint32_t find_block(const struct word_cursor *cursor, uint32_t chunk) {
    uint32_t low = cursor->block + 1, step = 1;
    uint32_t high = low;
    while (high < cursor->n_blocks && word_cursor_block(cursor, high).last < chunk) {
        low = high + 1;
        high = cursor->n_blocks - high > step ? high + step : cursor->n_blocks;
        step *= 2;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (word_cursor_block(cursor, middle).last < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void word_cursor_seek(struct word_cursor *cursor, uint32_t chunk) {
    if (cursor->chunk >= chunk) return;
    if (cursor->chunks[cursor->n_here - 1] < chunk) {
        uint32_t block = find_block(cursor, chunk);
        if (block >= cursor->n_blocks) {
            cursor->chunk = WORD_END;
            return;
        }
        read_block(cursor, block);
        if (cursor->chunk >= chunk) return;
    }
    int low = cursor->at + 1, high = cursor->n_here - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (cursor->chunks[middle] < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    cursor->at = low;
    cursor->chunk = cursor->chunks[low];
    cursor->count = cursor->counts[low];
}

void word_cursor_next(struct word_cursor *cursor) {
    if (cursor->at + 1 < cursor->n_here) {
        cursor->at++;
        cursor->chunk = cursor->chunks[cursor->at];
        cursor->count = cursor->counts[cursor->at];
    } else if (cursor->block + 1 < cursor->n_blocks) {
        read_block(cursor, cursor->block + 1);
    } else {
        cursor->chunk = WORD_END;
    }
}

int word_cursor_positions(const struct word_cursor *cursor, uint32_t *positions, int most) {
    uint64_t before = 0;
    uint32_t position = 0;
    int n = cursor->count < (uint32_t)most ? (int)cursor->count : most;
    for (int i = 0; i < cursor->at; i++) before += cursor->counts[i];
    for (int i = 0; i < n; i++) {
        uint64_t step = before + (uint64_t)i;
        position += unpack_one(cursor->packed, cursor->steps_at + step * cursor->step_bits,
                               cursor->step_bits);
        positions[i] = position;
    }
    return n;
}
