/* retrieval/store/store_words.c: the chunks of a snapshot that share words with a text, by BM25. Statistics are those
 * of the documents that are searched, so a filter leaves nothing of the others in a rank. Made when they are first
 * asked for: of a generation from all of its text, of a document of the log from its own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/store/store_private.h"

/* Words of a query that are looked at, and how common one may be where rarer ones are there: more than an eighth of all
 * chunks have it. */
enum { QUERY_WORDS = 256, COMMON_SHARE = 8, RARE_ENOUGH = 2 };
/* BM25's usual constants. */
static const double saturation = 1.2, length_share = 0.75;

static struct text_span generation_text(const void *context, int64_t chunk) {
    return disk_generation_chunk(context, chunk).text;
}

static struct text_span logged_text(const void *context, int64_t chunk) {
    const struct collection_document *d = context;
    return (struct text_span){d->text.text + d->bounds[chunk], d->bounds[chunk + 1] - d->bounds[chunk]};
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

static bool has_document(const struct word_search *s, int64_t document) {
    if (s->among && !selection_has(s->among, document)) return false;
    return store_snapshot_has(s->snapshot, 0, &s->snapshot->epoch->gone[document]);
}

static bool has_chunk(const struct word_search *s, int64_t chunk) {
    return has_document(s, disk_generation_document_of(s->snapshot->epoch->generation, chunk));
}

/* The document of the log, where it is searched; else NULL. */
static const struct logged_document *logged_in_scope(const struct word_search *s, int number) {
    const struct epoch *x = s->snapshot->epoch;
    const struct logged_document *d = epoch_logged(x, number);
    if (!store_snapshot_has(s->snapshot, d->added, &d->gone)) return NULL;
    struct stored_document stored = epoch_document(x, disk_generation_info(x->generation)->n_documents + number);
    return document_is_allowed(s->filter, &stored) ? d : NULL;
}

/* Counting. */

static void count_generation(struct word_search *s) {
    const struct disk_generation *c = s->snapshot->epoch->generation;
    int64_t n_documents = disk_generation_info(c)->n_documents;
    for (int64_t i = 0; i < n_documents; i++) {
        if (!has_document(s, i)) continue;
        struct stored_document d = disk_generation_document_at(c, i);
        s->n_chunks += d.n_chunks;
        for (int64_t j = 0; j < d.n_chunks; j++) s->total += words_length(s->generation, d.first_chunk + j);
    }
    for (int i = 0; i < s->n_words; i++) {
        struct postings p = words_find(s->generation, s->words[i].word);
        for (int64_t j = 0; j < p.n; j++) s->words[i].n_chunks += has_chunk(s, p.list[j].chunk);
    }
}

static void count_logged(struct word_search *s) {
    for (int number = 0; number < s->snapshot->n_logged; number++) {
        const struct logged_document *d = logged_in_scope(s, number);
        if (d == NULL) continue;
        s->n_chunks += d->bytes->image.n_chunks;
        s->total += words_total(s->logged[number]);
        for (int i = 0; i < s->n_words; i++) s->words[i].n_chunks += words_find(s->logged[number], s->words[i].word).n;
    }
}

/* Common words are left out where rarer ones are there: they cost most and tell least. */
static void weigh_words(struct word_search *s) {
    int n_rare = 0;
    s->average = (double)s->total / (double)(s->n_chunks > 0 ? s->n_chunks : 1);
    for (int i = 0; i < s->n_words; i++)
        n_rare += s->words[i].n_chunks > 0 && s->words[i].n_chunks * COMMON_SHARE <= s->n_chunks;
    for (int i = 0; i < s->n_words; i++) {
        double there = (double)s->words[i].n_chunks, missing = (double)s->n_chunks - there;
        bool common = s->words[i].n_chunks * COMMON_SHARE > s->n_chunks && n_rare >= RARE_ENOUGH;
        s->words[i].weight = there > 0 && !common ? log(1 + (missing + 0.5) / (there + 0.5)) : 0;
    }
}

/* Scoring. */

static float score_posting(const struct word_search *s, const struct query_word *q, uint32_t count, uint32_t length) {
    double relative = 1 - length_share + length_share * (double)length / s->average;
    return (float)(q->weight * (double)count * (saturation + 1) / ((double)count + saturation * relative));
}

static void score_words(struct word_search *s, const struct words *words, int64_t first) {
    for (int i = 0; i < s->n_words; i++) {
        const struct query_word *q = &s->words[i];
        if (q->weight <= 0) continue;
        struct postings p = words_find(words, q->word);
        for (int64_t j = 0; j < p.n; j++) {
            uint32_t chunk = p.list[j].chunk;
            s->scores[first + chunk] += score_posting(s, q, p.list[j].count, words_length(words, chunk));
        }
    }
}

/* Puts chunks [first, first + n) that have a score into the best k. Equal ones are in the order of their numbers. */
static void keep_best(const struct word_search *s, int64_t first, int64_t n, int64_t *ids, int k) {
    bool of_generation = first < disk_generation_info(s->snapshot->epoch->generation)->n_chunks;
    for (int64_t id = first; id < first + n; id++) {
        float score = s->scores[id];
        if (score <= 0 || (ids[k - 1] >= 0 && score <= s->scores[ids[k - 1]])) continue;
        if (of_generation && !has_chunk(s, id)) continue;
        int at = k - 1;
        for (; at > 0 && (ids[at - 1] < 0 || score > s->scores[ids[at - 1]]); at--) ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

static void score_view(struct word_search *s, int64_t *ids, int k) {
    int64_t n_generation = disk_generation_info(s->snapshot->epoch->generation)->n_chunks;
    score_words(s, s->generation, 0);
    keep_best(s, 0, n_generation, ids, k);
    for (int number = 0; number < s->snapshot->n_logged; number++) {
        const struct logged_document *d = logged_in_scope(s, number);
        if (d == NULL) continue;
        score_words(s, s->logged[number], d->first_chunk);
        keep_best(s, d->first_chunk, d->bytes->image.n_chunks, ids, k);
    }
}

static enum status open_words(struct word_search *s, const atomic_bool *cancelled, struct error *e) {
    struct epoch *x = s->snapshot->epoch;
    int64_t n_chunks = disk_generation_info(x->generation)->n_chunks;
    struct words_request all = {generation_text, x->generation, n_chunks, cancelled};
    enum status status = words_once_get(&x->words, &all, &s->generation, e);
    s->logged = xcalloc((size_t)s->snapshot->n_logged + 1, sizeof(struct words *));
    for (int number = 0; number < s->snapshot->n_logged && status == STATUS_OK; number++) {
        struct logged_bytes *b = epoch_logged(x, number)->bytes;
        struct words_request one = {logged_text, &b->image.document, b->image.n_chunks, cancelled};
        status = words_once_get(&b->words, &one, &s->logged[number], e);
    }
    if (status) return status;
    s->scores = calloc((size_t)s->snapshot->base.chunk_limit + 1, sizeof *s->scores);
    return s->scores ? STATUS_OK : error_set(e, STATUS_NO_MEMORY, "scores of %lld chunks", (long long)n_chunks);
}

enum status store_search_words(const struct snapshot *snapshot, const struct word_query *query, int64_t *ids,
                               struct error *e) {
    const struct store_snapshot *v = store_snapshot_read(snapshot);
    struct epoch *x = v->epoch;
    struct word_search *s = xcalloc(1, sizeof *s);
    uint64_t words[QUERY_WORDS];
    for (int i = 0; i < query->k; i++) ids[i] = -1;
    s->snapshot = v;
    s->filter = query->filter;
    s->among = query->filter ? selections_find(&x->selections, x->generation, query->filter) : NULL;
    s->n_words = words_split(query->text, words, QUERY_WORDS);
    for (int i = 0; i < s->n_words; i++) s->words[i].word = words[i];
    enum status status = open_words(s, query->cancelled, e);
    if (status == STATUS_OK) {
        count_generation(s);
        count_logged(s);
        weigh_words(s);
        score_view(s, ids, query->k);
    }
    free(s->scores);
    free(s->logged);
    selection_release((struct selection *)(uintptr_t)s->among);
    free(s);
    return status;
}
