/* retrieval/store/word_scores.c: the best chunks by BM25. Chunks are looked at by windows of their
 * numbers. The blocks of postings say what a word is worth at most within a window; a window that
 * is worth less than the worst of the best is passed over, and so are, within one, postings of
 * words that bring no chunk there by themselves (MaxScore of Turtle and Flood, over the blocks of
 * Ding and Suel's block-max indexes). */
#include <stdlib.h>

#include "retrieval/store/word_search.h"

/* BM25's usual constants. */
static const double saturation = 1.2, length_share = 0.75;
/* A bound is above what it bounds, whatever was rounded. */
static const double bound_slack = 1 + 1e-6;

enum { WINDOW = 4096 };

/* A word within the window. */
struct window_word {
    int word;            /* its number in the query */
    double bound, below; /* below: sum of its bound and those before */
};

struct scoring {
    struct word_search *search;
    const struct scored_words *scored;
    struct window_word words[QUERY_WORDS]; /* [n], those that are worth least first */
    int n, n_optional;                     /* of them: they bring no chunk there by themselves */
    double sums[WINDOW];
    uint64_t found[WINDOW / 64]; /* a bit each */
    struct demand_cursors demanded;
    struct buffer own[WORD_PREFIXES]; /* lists that were gathered */
};

static float score_count(const struct word_search *search, const struct query_word *word,
                         uint32_t count, uint32_t length) {
    double relative = 1 - length_share + length_share * (double)length / search->average;
    return (float)(word->weight * (double)count * (saturation + 1) /
                   ((double)count + saturation * relative));
}

static double score_cursor(const struct scoring *scoring, int word) {
    const struct word_cursor *cursor = &scoring->search->cursors[word];
    return (double)score_count(scoring->search, &scoring->search->words[word], cursor->count,
                               words_length(scoring->scored->words, cursor->chunk));
}

/* Windows. */

/* The most that the word is worth in chunks [first, last]. */
static double bound_word(const struct scoring *scoring, int word, uint32_t first, uint32_t last) {
    struct word_cursor *cursor = &scoring->search->cursors[word];
    double most = 0;
    if (cursor->chunk > last) return 0;
    while (cursor->shallow < cursor->n_blocks &&
           word_cursor_block(cursor, cursor->shallow).last < first)
        cursor->shallow++;
    for (uint32_t i = cursor->shallow; i < cursor->n_blocks; i++) {
        struct words_block block = word_cursor_block(cursor, i);
        double bound = (double)score_count(scoring->search, &scoring->search->words[word],
                                           block.count, block.length);
        most = bound > most ? bound : most;
        if (block.last >= last) break;
    }
    return most * bound_slack;
}

/* The words in the order of their bounds, and how many of them are optional. False: no chunk of the
 * window is worth enough. */
static bool bound_window(struct scoring *scoring, uint32_t first, uint32_t last) {
    double floor = (double)best_chunks_floor(&scoring->search->best), sum = 0;
    for (int i = 0; i < scoring->n; i++) {
        struct window_word word = {.word = scoring->words[i].word};
        word.bound = bound_word(scoring, word.word, first, last);
        int at = i;
        for (; at > 0 && scoring->words[at - 1].bound > word.bound; at--)
            scoring->words[at] = scoring->words[at - 1];
        scoring->words[at] = word;
    }
    scoring->n_optional = 0;
    for (int i = 0; i < scoring->n; i++) {
        sum += scoring->words[i].bound;
        scoring->words[i].below = sum;
        if (sum <= floor) scoring->n_optional = i + 1;
    }
    return sum > floor;
}

static void add_word(struct scoring *scoring, int word, uint32_t first, uint32_t last) {
    struct word_cursor *cursor = &scoring->search->cursors[word];
    for (word_cursor_seek(cursor, first); cursor->chunk <= last; word_cursor_next(cursor)) {
        uint32_t place = cursor->chunk - first;
        scoring->sums[place] += score_cursor(scoring, word);
        scoring->found[place / 64] |= 1ULL << (place % 64);
    }
}

/* A chunk that has a word which is not optional, with the sum of such words. */
static void try_chunk(struct scoring *scoring, uint32_t chunk, double sum) {
    struct word_search *search = scoring->search;
    const struct disk_generation *generation = search->snapshot->epoch->generation;
    double floor = (double)best_chunks_floor(&search->best);
    if (!scoring->scored->logged &&
        !word_search_has_document(search, disk_generation_document_of(generation, chunk)))
        return;
    for (int i = scoring->n_optional - 1; i >= 0; i--) {
        struct word_cursor *cursor = &search->cursors[scoring->words[i].word];
        if (sum + scoring->words[i].below <= floor) return;
        word_cursor_seek(cursor, chunk);
        if (cursor->chunk == chunk) sum += score_cursor(scoring, scoring->words[i].word);
    }
    struct scored scored = {(float)sum, scoring->scored->first + chunk};
    if (scored.score > 0 && sum > floor && demand_cursors_allow(&scoring->demanded, chunk))
        best_chunks_keep(&search->best, scored);
}

static void score_window(struct scoring *scoring, uint32_t first, uint32_t last) {
    if (!bound_window(scoring, first, last)) return;
    for (int i = scoring->n_optional; i < scoring->n; i++)
        if (scoring->words[i].bound > 0) add_word(scoring, scoring->words[i].word, first, last);
    for (uint32_t i = 0; i < WINDOW / 64; i++) {
        for (uint64_t left = scoring->found[i]; left != 0; left &= left - 1) {
            uint32_t place = 64 * i + (uint32_t)__builtin_ctzll(left);
            try_chunk(scoring, first + place, scoring->sums[place]);
            scoring->sums[place] = 0;
        }
        scoring->found[i] = 0;
    }
}

/* Whether a document with chunks of the window may be found. */
static bool is_searched(const struct scoring *scoring, uint32_t first, uint32_t last) {
    const struct word_search *search = scoring->search;
    const struct disk_generation *generation = search->snapshot->epoch->generation;
    if (scoring->scored->logged || search->among == NULL) return true;
    int64_t document = disk_generation_document_of(generation, first),
            end = disk_generation_document_of(generation, last);
    while (document <= end && !selection_has(search->among, document)) document++;
    return document <= end;
}

static const char *find_damage(const struct scoring *scoring) {
    for (int i = 0; i < scoring->n; i++) {
        const char *damage = scoring->search->cursors[scoring->words[i].word].damage;
        if (damage) return damage;
    }
    return NULL;
}

/* The words of the query that are in what is scored. */
static enum status open_cursors(struct scoring *scoring, struct error *e) {
    struct word_search *search = scoring->search;
    const struct words *words = scoring->scored->words;
    int n_own = 0;
    for (int i = 0; i < search->n_words; i++) {
        const struct query_word *word = &search->words[i];
        struct word_list list = word->list;
        if (word->weight <= 0) continue;
        if (scoring->scored->logged && query_word_list(word, words, &scoring->own[n_own], &list, e))
            return e->status;
        n_own += word->begins;
        if (list.n == 0) continue;
        word_cursor_open(&search->cursors[i], words, &list);
        scoring->words[scoring->n] = (struct window_word){.word = i};
        scoring->n++;
    }
    return STATUS_OK;
}

enum status word_search_score(struct word_search *search, const struct scored_words *scored,
                              struct error *e) {
    struct scoring *scoring = xcalloc(1, sizeof *scoring);
    scoring->search = search;
    scoring->scored = scored;
    enum status status = open_cursors(scoring, e);
    if (status == STATUS_OK)
        status = demand_cursors_open(&scoring->demanded, search->demands, scored->words, e);
    for (int64_t first = 0; first < scored->n && scoring->n > 0 && status == STATUS_OK;
         first += WINDOW) {
        int64_t last = (scored->n - first < WINDOW ? scored->n : first + WINDOW) - 1;
        if (search->cancelled && atomic_load(search->cancelled))
            status = error_set(e, STATUS_CANCELLED, "nobody waits for the search any more");
        else if (is_searched(scoring, (uint32_t)first, (uint32_t)last))
            score_window(scoring, (uint32_t)first, (uint32_t)last);
    }
    const char *damage = demand_cursors_close(&scoring->demanded);
    if (damage == NULL) damage = find_damage(scoring);
    if (damage && status == STATUS_OK) status = words_fail(scored->words, damage, e);
    for (int i = 0; i < WORD_PREFIXES; i++) buffer_free(&scoring->own[i]);
    free(scoring);
    return status;
}
