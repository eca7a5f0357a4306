/* retrieval/words/words.c: see words.h. */
#include "retrieval/words/words.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"

/* Bytes of a word; the rest of a longer one is not looked at. */
enum { WORD_BYTES = 64 };

struct words {
    struct key_set ids; /* of words, counted from 0 */
    int64_t *starts;    /* [words + 1] in postings */
    struct posting *postings;
    uint32_t *lengths; /* [n] */
    int64_t n, total;
};

/* Reading words. */

struct word_reader {
    const char *at, *end;
    char run[WORD_BYTES]; /* the latest run of word characters, in lower case */
    size_t size, part;    /* of the run; where its next part begins */
    bool joined;          /* it has parts */
};

/* Bytes of what stands between words; 0: a word goes on here. Characters of two bytes that begin with C2 and of three
 * that begin with E2 are signs and blanks, not letters. */
static size_t separator_length(const char *at, const char *end) {
    unsigned char c = (unsigned char)*at;
    size_t left = (size_t)(end - at);
    if (c == 0xc2) return left < 2 ? left : 2;
    if (c == 0xe2) return left < 3 ? left : 3;
    bool word = c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return word ? 0 : 1;
}

/* Bytes of a character that is a word by itself: U+2E80 and above, of three bytes. */
static size_t lone_character(const char *at, const char *end) {
    unsigned char lead = (unsigned char)*at;
    bool wide = lead >= 0xe3 && lead <= 0xed && end - at >= 3;
    return wide ? 3 : 0;
}

/* Lower case of ASCII, and of Latin, Greek and Cyrillic letters of two bytes. */
static size_t fold_character(const char *at, const char *end, char out[2]) {
    unsigned char a = (unsigned char)at[0], b = end - at > 1 ? (unsigned char)at[1] : 0;
    out[0] = a >= 'A' && a <= 'Z' ? (char)(a + 32) : at[0];
    if (a < 0xc3 || a > 0xd0 || (b & 0xc0) != 0x80) return 1;
    unsigned code = (unsigned)(a & 0x1f) << 6 | (b & 0x3f);
    bool latin = code >= 0xc0 && code <= 0xde && code != 0xd7;
    bool greek = code >= 0x391 && code <= 0x3a9, cyrillic = code >= 0x410 && code <= 0x42f;
    if (latin || greek || cyrillic) code += 32;
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

/* The next run; false at the end of the text. */
static bool next_run(struct word_reader *r) {
    r->size = r->part = 0;
    r->joined = false;
    while (r->at < r->end && separator_length(r->at, r->end) > 0) r->at += separator_length(r->at, r->end);
    if (r->at == r->end) return false;
    size_t lone = lone_character(r->at, r->end);
    if (lone > 0) {
        memcpy(r->run, r->at, lone);
        r->size = lone;
        r->at += lone;
        return true;
    }
    while (r->at < r->end && separator_length(r->at, r->end) == 0 && lone_character(r->at, r->end) == 0) {
        char folded[2];
        size_t n = fold_character(r->at, r->end, folded);
        r->joined |= folded[0] == '_';
        if (r->size + n <= WORD_BYTES) {
            memcpy(r->run + r->size, folded, n);
            r->size += n;
        }
        r->at += n;
    }
    return true;
}

/* "files" is "file", "entries" is "entry"; "class" and "status" stay. */
static uint64_t hash_word(const char *word, size_t size) {
    char copy[WORD_BYTES];
    memcpy(copy, word, size);
    bool plural = size > 3 && copy[size - 1] == 's' && copy[size - 2] != 's' && copy[size - 2] != 'u';
    if (plural && size > 4 && copy[size - 2] == 'e' && copy[size - 3] == 'i') {
        copy[size - 3] = 'y';
        size -= 2;
    } else if (plural) {
        size--;
    }
    return hash_bytes(copy, size, 0);
}

/* The next word of the run; false when it has no more. The whole run comes after its parts. */
static bool next_part(struct word_reader *r, uint64_t *word) {
    while (r->part < r->size && r->run[r->part] == '_') r->part++;
    size_t end = r->part;
    while (end < r->size && r->run[end] != '_') end++;
    if (end > r->part) {
        *word = hash_word(r->run + r->part, end - r->part);
        r->part = end;
        return true;
    }
    if (!r->joined) return false;
    r->joined = false;
    *word = hash_word(r->run, r->size);
    return true;
}

static bool next_word(struct word_reader *r, uint64_t *word) {
    while (!next_part(r, word))
        if (!next_run(r)) return false;
    return true;
}

static struct word_reader read_words(struct text_span text) {
    return (struct word_reader){.at = text.text, .end = text.text + text.size};
}

int words_split(struct text_span text, uint64_t *words, int most) {
    struct word_reader reader = read_words(text);
    struct key_set seen = {0};
    uint64_t word;
    int n = 0;
    while (n < most && next_word(&reader, &word)) {
        if (!key_set_add(&seen, word, 0)) continue;
        words[n] = word;
        n++;
    }
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
    struct word_reader reader = read_words(text);
    uint64_t word;
    while (!m->failed && next_word(&reader, &word)) {
        note_word(m, (uint32_t)chunk, word);
        m->words->lengths[chunk]++;
        m->words->total++;
    }
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
