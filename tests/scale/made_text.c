/* tests/scale/made_text.c: see made_text.h. */
#include "tests/scale/made_text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "config/base/key_set.h"

/* Zipf and Mandelbrot: the word of rank r is as frequent as 1 / (r + SHIFT)^EXPONENT. */
#define SHIFT 2.7
#define EXPONENT 1.05

enum { RANKS = 400000, SENTENCE_WORDS = 12, QUERY_WORDS_MADE = 7, LARGEST_FILE = 1 << 24 };
/* Ranks that topics and documents choose their own words from. */
enum { TOPIC_FROM = 100, TOPIC_TO = 30000, TOPIC_WORDS = 50, DOCUMENT_FROM = 1000, OWN_WORDS = 12 };

/* Reading. */

struct counted_word {
    size_t at;
    int64_t n;
};

static int compare_counted(const void *left, const void *right) {
    const struct counted_word *a = left, *b = right;
    if (a->n != b->n) return a->n < b->n ? 1 : -1;
    return (a->at > b->at) - (a->at < b->at);
}

static void count_word(struct made_text *made, struct key_set *ids, struct buffer *counts,
                       struct text_span word) {
    bool is_new;
    int64_t *number = key_set_put(ids, hash_bytes(word.text, word.size, 0),
                                  hash_bytes(word.text, word.size, 1), &is_new);
    if (is_new) {
        struct counted_word counted = {.at = made->bytes.size};
        *number = (int64_t)ids->n - 1;
        buffer_append(&made->bytes, word.text, word.size);
        buffer_append(&made->bytes, "", 1);
        buffer_append(counts, &counted, sizeof counted);
    }
    ((struct counted_word *)(void *)counts->data)[*number].n++;
}

static void count_words(struct made_text *made, struct key_set *ids, struct buffer *counts,
                        struct text_span text) {
    for (size_t at = 0; at < text.size;) {
        size_t end = at;
        while (end < text.size && isalnum((unsigned char)text.text[end])) end++;
        if (end - at >= 2 && end - at <= 30)
            count_word(made, ids, counts, (struct text_span){text.text + at, end - at});
        at = end + 1;
    }
}

enum status made_text_open(struct made_text *made, const char *const *paths, int n,
                           struct error *e) {
    struct key_set ids = {0};
    struct buffer counts = {0}, file = {0};
    enum status status = STATUS_OK;
    *made = (struct made_text){0};
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        buffer_clear(&file);
        status = file_read(paths[i], LARGEST_FILE, &file, e);
        if (status == STATUS_OK)
            count_words(made, &ids, &counts, (struct text_span){file.data, file.size});
    }
    struct counted_word *counted = (void *)counts.data;
    if (ids.n > 0) qsort(counted, ids.n, sizeof *counted, compare_counted);
    for (size_t i = 0; i < ids.n && i < RANKS; i++)
        buffer_append(&made->words, &counted[i].at, sizeof counted[i].at);
    made->sums = xmalloc(RANKS * sizeof *made->sums);
    double sum = 0;
    for (int i = 0; i < RANKS; i++) {
        sum += pow(i + SHIFT, -EXPONENT);
        made->sums[i] = sum;
    }
    key_set_free(&ids);
    buffer_free(&counts);
    buffer_free(&file);
    return status;
}

void made_text_close(struct made_text *made) {
    buffer_free(&made->bytes);
    buffer_free(&made->words);
    free(made->sums);
    *made = (struct made_text){0};
}

/* Drawing. */

static uint64_t draw(uint64_t *state) {
    *state += 0x9E3779B97F4A7C15u;
    uint64_t bits = (*state ^ *state >> 30) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
    return bits ^ bits >> 31;
}

/* A rank as often as its word is to come. */
static int draw_rank(const struct made_text *made, uint64_t *state) {
    double at = (double)(draw(state) >> 11) * 0x1p-53 * made->sums[RANKS - 1];
    int low = 0, high = RANKS - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (made->sums[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* One of the words that a topic or a document has of its own. */
static int own_rank(uint64_t *state, uint64_t owner, int n, int from, int to) {
    uint64_t of_owner = owner * 0xD1342543DE82EF95u + draw(state) % (uint64_t)n;
    return from + (int)(draw(&of_owner) % (uint64_t)(to - from));
}

static int topic_rank(uint64_t *state, uint64_t document) {
    return own_rank(state, 2 * (document / MADE_TOPIC_DOCUMENTS) + 1, TOPIC_WORDS, TOPIC_FROM,
                    TOPIC_TO);
}

static int document_rank(uint64_t *state, uint64_t document) {
    return own_rank(state, 2 * document, OWN_WORDS, DOCUMENT_FROM, RANKS);
}

static void put_word(const struct made_text *made, struct buffer *out, int rank) {
    static const char *const syllables[] = {"ba", "ke", "lo",  "mi",  "nu",  "par", "res", "sta",
                                            "ti", "vo", "zan", "der", "fil", "gor", "hum", "cal"};
    size_t n = made->words.size / sizeof(size_t);
    if ((size_t)rank < n) {
        const char *word =
            made->bytes.data + ((const size_t *)(const void *)made->words.data)[rank];
        buffer_append(out, word, strlen(word));
        return;
    }
    for (int left = rank; left > 0; left /= 16)
        buffer_append(out, syllables[left % 16], strlen(syllables[left % 16]));
}

void made_text_chunk(const struct made_text *made, struct buffer *out, uint64_t document,
                     uint64_t number) {
    uint64_t state = number * 0xD1342543DE82EF95u + 1;
    for (int i = 0; i < MADE_CHUNK_WORDS; i++) {
        unsigned kind = (unsigned)(draw(&state) % 10);
        int rank = kind < 2    ? topic_rank(&state, document)
                   : kind == 2 ? document_rank(&state, document)
                               : draw_rank(made, &state);
        put_word(made, out, rank);
        buffer_append(out, i % SENTENCE_WORDS == SENTENCE_WORDS - 1 ? ". " : "  ",
                      i % SENTENCE_WORDS == SENTENCE_WORDS - 1 ? 2 : 1);
    }
}

void made_text_query(const struct made_text *made, struct buffer *out, uint64_t document,
                     uint64_t number) {
    uint64_t state = number * 0xD1342543DE82EF95u + 3;
    for (int i = 0; i < QUERY_WORDS_MADE; i++) {
        int rank = i < 2                      ? topic_rank(&state, document)
                   : i < 4 && number % 2 == 0 ? document_rank(&state, document)
                                              : draw_rank(made, &state);
        put_word(made, out, rank);
        buffer_append(out, " ", 1);
    }
}
