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

static void note_word(struct words_maker *m, uint32_t chunk, uint64_t hash) {
    struct words *w = m->words;
    bool is_new = key_set_add(&w->ids, hash, 0);
    int64_t *number = key_set_number(&w->ids, hash, 0);
    if (is_new) {
        int64_t capacity = (int64_t)m->latest_capacity;
        *number = (int64_t)w->ids.n - 1;
        m->latest = grow(m->latest, *number, &capacity, sizeof *m->latest, &m->failed);
        m->latest_capacity = (size_t)capacity;
        if (m->failed) return;
        m->latest[*number] = -1;
    }
    int64_t latest = m->latest[*number];
    if (latest >= 0 && m->entries[latest].posting.chunk == chunk) {
        m->entries[latest].posting.count++;
        return;
    }
    m->entries = grow(m->entries, m->n, &m->capacity, sizeof *m->entries, &m->failed);
    if (m->failed) return;
    m->entries[m->n] = (struct word_entry){(uint32_t)*number, {chunk, 1}};
    m->latest[*number] = m->n;
    m->n++;
}

static void note_chunk(struct words_maker *m, int64_t chunk, struct text_span text) {
    struct word_reader reader;
    uint64_t word;
    word_reader_open(&reader, text);
    while (!m->failed && word_reader_next(&reader, &word)) {
        note_word(m, (uint32_t)chunk, word);
        m->words->lengths[chunk]++;
        m->words->total++;
    }
    word_reader_close(&reader);
}

/* Entries to postings, word by word. */
static void sort_entries(struct words_maker *m) {
    struct words *w = m->words;
    w->starts = calloc(w->ids.n + 2, sizeof *w->starts);
    w->postings = malloc(((size_t)m->n + 1) * sizeof *w->postings);
    m->failed |= w->starts == NULL || w->postings == NULL;
    if (m->failed) return;
    /* Counted two places further, so that filling moves each start to where it belongs. */
    for (int64_t i = 0; i < m->n; i++) w->starts[m->entries[i].word + 2]++;
    for (size_t i = 2; i < w->ids.n + 2; i++) w->starts[i] += w->starts[i - 1];
    for (int64_t i = 0; i < m->n; i++) {
        int64_t *at = &w->starts[m->entries[i].word + 1];
        w->postings[*at] = m->entries[i].posting;
        *at += 1;
    }
}

enum status words_make(struct words **out, words_source *source, const void *context, int64_t n, struct error *e) {
    struct words_maker m = {.words = xcalloc(1, sizeof *m.words)};
    CHECK(n >= 0 && n <= UINT32_MAX);
    m.words->n = n;
    m.words->lengths = calloc((size_t)n + 1, sizeof *m.words->lengths);
    m.failed = m.words->lengths == NULL;
    for (int64_t i = 0; i < n && !m.failed; i++) note_chunk(&m, i, source(context, i));
    if (!m.failed) sort_entries(&m);
    free(m.entries);
    free(m.latest);
    *out = m.words;
    if (!m.failed) return STATUS_OK;
    words_free(m.words);
    *out = NULL;
    return error_set(e, STATUS_NO_MEMORY, "the words of %lld chunks do not fit into memory", (long long)n);
}

void words_free(struct words *w) {
    if (w == NULL) return;
    key_set_free(&w->ids);
    free(w->starts);
    free(w->postings);
    free(w->lengths);
    free(w);
}

struct postings words_find(const struct words *w, uint64_t word) {
    const int64_t *number = key_set_number(&w->ids, word, 0);
    if (number == NULL) return (struct postings){0};
    int64_t first = w->starts[*number];
    return (struct postings){w->postings + first, w->starts[*number + 1] - first};
}

uint32_t words_length(const struct words *w, int64_t chunk) { return w->lengths[chunk]; }
int64_t words_total(const struct words *w) { return w->total; }
