/* retrieval/words/words.c: see words.h. */
#include "retrieval/words/words.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/key_set.h"
#include "retrieval/words/word_reader.h"

struct words {
    struct key_set ids; /* of words, counted from 0 */
    int64_t *starts;    /* [words + 1] in postings */
    struct posting *postings;
    uint32_t *lengths; /* [n] */
    int64_t n, total;
};

int words_split(struct text_span text, uint64_t *words, int most) {
    struct word_reader reader;
    struct key_set seen = {0};
    uint64_t word;
    int n = 0;
    word_reader_open(&reader, text);
    while (n < most && word_reader_next(&reader, &word)) {
        if (!key_set_add(&seen, word, 0)) continue;
        words[n] = word;
        n++;
    }
    word_reader_close(&reader);
    key_set_free(&seen);
    return n;
}

/* Making. */

/* One word of one chunk; in the order of chunks. */
struct word_entry {
    uint32_t word;
    struct posting posting;
};

struct words_maker {
    struct words *words;
    struct word_entry *entries;
    int64_t n, capacity;
    int64_t *latest; /* of each word its newest entry */
    size_t latest_capacity;
    bool failed;
};

/* Room for one more item of `size` bytes. */
static void *grow(void *items, int64_t n, int64_t *capacity, size_t size, bool *failed) {
    if (n < *capacity) return items;
    *capacity = *capacity > 0 ? 2 * *capacity : 256;
    void *grown = realloc(items, (size_t)*capacity * size);
    *failed |= grown == NULL;
    return grown ? grown : items;
}

static void note_word(struct words_maker *maker, uint32_t chunk, uint64_t hash) {
    struct words *words = maker->words;
    bool is_new;
    int64_t *number = key_set_put(&words->ids, hash, 0, &is_new);
    if (is_new) {
        int64_t capacity = (int64_t)maker->latest_capacity;
        *number = (int64_t)words->ids.n - 1;
        maker->latest =
            grow(maker->latest, *number, &capacity, sizeof *maker->latest, &maker->failed);
        maker->latest_capacity = (size_t)capacity;
        if (maker->failed) return;
        maker->latest[*number] = -1;
    }
    int64_t latest = maker->latest[*number];
    if (latest >= 0 && maker->entries[latest].posting.chunk == chunk) {
        maker->entries[latest].posting.count++;
        return;
    }
    maker->entries =
        grow(maker->entries, maker->n, &maker->capacity, sizeof *maker->entries, &maker->failed);
    if (maker->failed) return;
    maker->entries[maker->n] = (struct word_entry){(uint32_t)*number, {chunk, 1}};
    maker->latest[*number] = maker->n;
    maker->n++;
}

static void note_chunk(struct words_maker *maker, int64_t chunk, struct text_span text) {
    struct word_reader reader;
    uint64_t word;
    word_reader_open(&reader, text);
    while (!maker->failed && word_reader_next(&reader, &word)) {
        note_word(maker, (uint32_t)chunk, word);
        maker->words->lengths[chunk]++;
        maker->words->total++;
    }
    word_reader_close(&reader);
}

/* Entries to postings, word by word. */
static void sort_entries(struct words_maker *maker) {
    struct words *words = maker->words;
    words->starts = calloc(words->ids.n + 2, sizeof *words->starts);
    words->postings = malloc(((size_t)maker->n + 1) * sizeof *words->postings);
    maker->failed |= words->starts == NULL || words->postings == NULL;
    if (maker->failed) return;
    /* Counted two places further, so that filling moves each start to where it belongs. */
    for (int64_t i = 0; i < maker->n; i++) words->starts[maker->entries[i].word + 2]++;
    for (size_t i = 2; i < words->ids.n + 2; i++) words->starts[i] += words->starts[i - 1];
    for (int64_t i = 0; i < maker->n; i++) {
        int64_t *at = &words->starts[maker->entries[i].word + 1];
        words->postings[*at] = maker->entries[i].posting;
        *at += 1;
    }
}

enum status words_make(struct words **out, words_source *source, const void *context, int64_t n,
                       struct error *e) {
    struct words_maker maker = {.words = xcalloc(1, sizeof *maker.words)};
    CHECK(n >= 0 && n <= UINT32_MAX);
    maker.words->n = n;
    maker.words->lengths = calloc((size_t)n + 1, sizeof *maker.words->lengths);
    maker.failed = maker.words->lengths == NULL;
    for (int64_t i = 0; i < n && !maker.failed; i++) note_chunk(&maker, i, source(context, i));
    if (!maker.failed) sort_entries(&maker);
    free(maker.entries);
    free(maker.latest);
    *out = maker.words;
    if (!maker.failed) return STATUS_OK;
    words_free(maker.words);
    *out = NULL;
    return error_set(e, STATUS_NO_MEMORY, "the words of %lld chunks do not fit into memory",
                     (long long)n);
}

void words_free(struct words *words) {
    if (words == NULL) return;
    key_set_free(&words->ids);
    free(words->starts);
    free(words->postings);
    free(words->lengths);
    free(words);
}

struct postings words_find(const struct words *words, uint64_t word) {
    const int64_t *number = key_set_number(&words->ids, word, 0);
    if (number == NULL) return (struct postings){0};
    int64_t first = words->starts[*number];
    return (struct postings){words->postings + first, words->starts[*number + 1] - first};
}

uint32_t words_length(const struct words *words, int64_t chunk) { return words->lengths[chunk]; }
int64_t words_total(const struct words *words) { return words->total; }
