/* retrieval/store/store_words.c: the chunks of a snapshot that share words with a text, by BM25.
 * Statistics are those of the documents that are searched, so a filter leaves nothing of the others
 * in a rank. Made when they are first asked for: of a generation from all of its text, of a
 * document of the log from its own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store_private.h"

/* Words of a query that are looked at, and how common one may be where rarer ones are there: more
 * than an eighth of all chunks have it. */
enum { QUERY_WORDS = 256, COMMON_SHARE = 8, RARE_ENOUGH = 2 };
/* BM25's usual constants. */
static const double saturation = 1.2, length_share = 0.75;

static struct text_span generation_text(const void *context, int64_t chunk) {
    return disk_generation_chunk(context, chunk).text;
}

static struct text_span logged_text(const void *context, int64_t chunk) {
    const struct collection_document *document = context;
    return document_chunk(document, (int)chunk, 0).text;
}

/* A word of a query: in how many chunks it is, and what having it is worth. */
struct query_word {
    uint64_t word;
    int64_t n_chunks;
    double weight;
};

struct word_search {
    const struct store_snapshot *snapshot;
    const struct filter *filter;
    const struct selection *among;
    const struct words *generation;
    const struct words **logged; /* [n_logged of the snapshot] */
    struct query_word words[QUERY_WORDS];
    int n_words;
    int64_t n_chunks, total; /* in the scope: chunks, and their words */
    double average;
    float *scores; /* [chunks of the snapshot's numbers] */
};

static bool has_document(const struct word_search *search, int64_t document) {
    if (search->among && !selection_has(search->among, document)) return false;
    return store_snapshot_has(search->snapshot, 0, &search->snapshot->epoch->gone[document]);
}

static bool has_chunk(const struct word_search *search, int64_t chunk) {
    return has_document(search,
                        disk_generation_document_of(search->snapshot->epoch->generation, chunk));
}

/* The document of the log, where it is searched; else NULL. */
static const struct logged_document *logged_in_scope(const struct word_search *search, int number) {
    const struct epoch *epoch = search->snapshot->epoch;
    const struct logged_document *document = epoch_logged(epoch, number);
    if (!store_snapshot_has(search->snapshot, document->added, &document->gone)) return NULL;
    struct stored_document stored =
        epoch_document(epoch, disk_generation_info(epoch->generation)->n_documents + number);
    return document_is_allowed(search->filter, &stored) ? document : NULL;
}

/* Counting. */

static void count_generation(struct word_search *search) {
    const struct disk_generation *generation = search->snapshot->epoch->generation;
    int64_t n_documents = disk_generation_info(generation)->n_documents;
    for (int64_t i = 0; i < n_documents; i++) {
        if (!has_document(search, i)) continue;
        struct stored_document document = disk_generation_document_at(generation, i);
        search->n_chunks += document.n_chunks;
        for (int64_t j = 0; j < document.n_chunks; j++)
            search->total += words_length(search->generation, document.first_chunk + j);
    }
    for (int i = 0; i < search->n_words; i++) {
        struct postings postings = words_find(search->generation, search->words[i].word);
        for (int64_t j = 0; j < postings.n; j++)
            search->words[i].n_chunks += has_chunk(search, postings.list[j].chunk);
    }
}

static void count_logged(struct word_search *search) {
    for (int number = 0; number < search->snapshot->n_logged; number++) {
        const struct logged_document *document = logged_in_scope(search, number);
        if (document == NULL) continue;
        search->n_chunks += document->bytes->image.document.n_chunks;
        search->total += words_total(search->logged[number]);
        for (int i = 0; i < search->n_words; i++)
            search->words[i].n_chunks +=
                words_find(search->logged[number], search->words[i].word).n;
    }
}

/* Common words are left out where rarer ones are there: they cost most and tell least. */
static void weigh_words(struct word_search *search) {
    int n_rare = 0;
    search->average = (double)search->total / (double)(search->n_chunks > 0 ? search->n_chunks : 1);
    for (int i = 0; i < search->n_words; i++)
        n_rare += search->words[i].n_chunks > 0 &&
                  search->words[i].n_chunks * COMMON_SHARE <= search->n_chunks;
    for (int i = 0; i < search->n_words; i++) {
        double there = (double)search->words[i].n_chunks,
               missing = (double)search->n_chunks - there;
        bool common =
            search->words[i].n_chunks * COMMON_SHARE > search->n_chunks && n_rare >= RARE_ENOUGH;
        search->words[i].weight =
            there > 0 && !common ? log(1 + (missing + 0.5) / (there + 0.5)) : 0;
    }
}

/* Scoring. */

static float score_posting(const struct word_search *search, const struct query_word *word,
                           uint32_t count, uint32_t length) {
    double relative = 1 - length_share + length_share * (double)length / search->average;
    return (float)(word->weight * (double)count * (saturation + 1) /
                   ((double)count + saturation * relative));
}

static void score_words(struct word_search *search, const struct words *words, int64_t first) {
    for (int i = 0; i < search->n_words; i++) {
        const struct query_word *word = &search->words[i];
        if (word->weight <= 0) continue;
        struct postings postings = words_find(words, word->word);
        for (int64_t j = 0; j < postings.n; j++) {
            uint32_t chunk = postings.list[j].chunk;
            search->scores[first + chunk] +=
                score_posting(search, word, postings.list[j].count, words_length(words, chunk));
        }
    }
}

/* Puts chunks [first, first + n) that have a score into the best k. Equal ones are in the order of
 * their numbers. */
static void keep_best(const struct word_search *search, int64_t first, int64_t n, int64_t *ids,
                      int k) {
    bool of_generation =
        first < disk_generation_info(search->snapshot->epoch->generation)->n_chunks;
    for (int64_t id = first; id < first + n; id++) {
        float score = search->scores[id];
        if (score <= 0 || (ids[k - 1] >= 0 && score <= search->scores[ids[k - 1]])) continue;
        if (of_generation && !has_chunk(search, id)) continue;
        int at = k - 1;
        for (; at > 0 && (ids[at - 1] < 0 || score > search->scores[ids[at - 1]]); at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

static void score_view(struct word_search *search, int64_t *ids, int k) {
    int64_t n_generation = disk_generation_info(search->snapshot->epoch->generation)->n_chunks;
    score_words(search, search->generation, 0);
    keep_best(search, 0, n_generation, ids, k);
    for (int number = 0; number < search->snapshot->n_logged; number++) {
        const struct logged_document *document = logged_in_scope(search, number);
        if (document == NULL) continue;
        score_words(search, search->logged[number], document->first_chunk);
        keep_best(search, document->first_chunk, document->bytes->image.document.n_chunks, ids, k);
    }
}

/* Telling. */

static bool has_posting(struct postings postings, int64_t chunk) {
    int64_t low = 0, high = postings.n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if ((int64_t)postings.list[middle].chunk < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low < postings.n && (int64_t)postings.list[low].chunk == chunk;
}

static bool has_word(const struct word_search *search, uint64_t word, int64_t id) {
    const struct epoch *epoch = search->snapshot->epoch;
    if (id < disk_generation_info(epoch->generation)->n_chunks)
        return has_posting(words_find(search->generation, word), id);
    int number = store_snapshot_logged(search->snapshot, id);
    return has_posting(words_find(search->logged[number], word),
                       id - epoch_logged(epoch, number)->first_chunk);
}

static double weigh_all(const struct word_search *search) {
    double all = 0, none = log(1 + ((double)search->n_chunks + 0.5) / 0.5);
    for (int i = 0; i < search->n_words; i++)
        all += search->words[i].n_chunks > 0 ? search->words[i].weight : none;
    return all;
}

static void tell_shares(const struct word_search *search, int k, struct word_found *found) {
    double all = weigh_all(search);
    for (int i = 0; i < k; i++) {
        double own = 0;
        for (int j = 0; j < search->n_words && found->ids[i] >= 0; j++)
            if (search->words[j].weight > 0 &&
                has_word(search, search->words[j].word, found->ids[i]))
                own += search->words[j].weight;
        found->shares[i] = all > 0 ? (float)(own / all) : 0;
    }
}

static enum status open_words(struct word_search *search, const atomic_bool *cancelled,
                              struct error *e) {
    struct epoch *epoch = search->snapshot->epoch;
    int64_t n_chunks = disk_generation_info(epoch->generation)->n_chunks;
    struct words_request all = {generation_text, epoch->generation, n_chunks, cancelled};
    enum status status = words_once_get(&epoch->words, &all, &search->generation, e);
    search->logged = xcalloc((size_t)search->snapshot->n_logged + 1, sizeof(struct words *));
    for (int number = 0; number < search->snapshot->n_logged && status == STATUS_OK; number++) {
        struct logged_bytes *bytes = epoch_logged(epoch, number)->bytes;
        struct words_request one = {logged_text, &bytes->image.document,
                                    bytes->image.document.n_chunks, cancelled};
        status = words_once_get(&bytes->words, &one, &search->logged[number], e);
    }
    if (status) return status;
    search->scores = calloc((size_t)search->snapshot->base.chunk_limit + 1, sizeof *search->scores);
    return search->scores
               ? STATUS_OK
               : error_set(e, STATUS_NO_MEMORY, "scores of %lld chunks", (long long)n_chunks);
}

enum status store_search_words(const struct snapshot *snapshot, const struct word_query *query,
                               struct word_found *found, struct error *e) {
    const struct store_snapshot *store_snapshot = store_snapshot_read(snapshot);
    struct epoch *epoch = store_snapshot->epoch;
    struct word_search *search = xcalloc(1, sizeof *search);
    uint64_t words[QUERY_WORDS];
    for (int i = 0; i < query->k; i++) found->ids[i] = FOUND_NONE;
    search->snapshot = store_snapshot;
    search->filter = query->filter;
    search->among = query->filter
                        ? selections_find(&epoch->selections, epoch->generation, query->filter)
                        : NULL;
    search->n_words = words_split(query->text, words, QUERY_WORDS);
    for (int i = 0; i < search->n_words; i++) search->words[i].word = words[i];
    enum status status = open_words(search, query->cancelled, e);
    if (status == STATUS_OK) {
        count_generation(search);
        count_logged(search);
        weigh_words(search);
        score_view(search, found->ids, query->k);
        tell_shares(search, query->k, found);
    }
    free(search->scores);
    free(search->logged);
    selection_release((struct selection *)(uintptr_t)search->among);
    free(search);
    return status;
}
