/* retrieval/search/fusion.c: see fusion.h. A chunk is worth
 *
 *     vectors + weight words + exact + told
 *
 * and, where the collection has sparse weights, 0.3 sparse more.
 *
 * vectors, 0 .. 1: its cosine, between that of the hundredth chunk and that of the nearest.
 * words, 0 .. 1: the share of the query's words that it has, by their weight. weight: how much that
 * counts for this query. Where some chunk has nearly all words, the query repeats the text of a
 * document, and words count most; where none has, they say little. exact: it has an identifier of
 * the query that few others have. told: a line of it begins with one, and tells of it.
 * sparse, 0 .. 1: its score by sparse weights, of the best chunk's.
 * docs/results/retrieval.md tells what chose the numbers, but for the weight of sparse: 0.3 beside
 * 1 of the cosine is what the authors of bge-m3 chose (Chen et al. 2024, section 4). */
#include "retrieval/search/fusion.h"

#include <math.h>
#include <stdlib.h>

#include "retrieval/search/exact_words.h"

/* The weight of words: what it is at least, and what it grows by until a chunk has all words, from
 * where one has such a share of them. */
static const double weight_least = 0.5, weight_growth = 3, share_least = 0.8;
static const double sparse_weight = 0.3;
/* An identifier tells something where so many chunks at most have it; then it comes before all that
 * vectors and words are worth. */
enum { EXACT_CHUNKS = 8 };
static const double exact_worth = 5, told_worth = 2;
/* Shares of words that are as good as the best. */
static const float share_near = 0.05F;

struct fusion {
    const struct candidates *passages;
    struct exact_words exact;
    double weight, lowest, highest;
    double best_sparse;        /* the best score by sparse weights; 0: there is none */
    bool asks;                 /* the query does not repeat the text of a document */
    struct candidate *all;     /* [n] */
    struct exact_found *found; /* [n] */
    int n;
};

static double weigh_words(const struct candidates *words) {
    double best = 0;
    for (int i = 0; i < words->n; i++) best = fmax(best, (double)words->list[i].words);
    return weight_least + weight_growth * fmax(0, best - share_least) / (1 - share_least);
}

static int compare_ids(const void *a, const void *b) {
    const struct candidate *left = a, *right = b;
    if (left->id != right->id) return left->id > right->id ? 1 : -1;
    return (left->by > right->by) - (left->by < right->by);
}

/* All chunks of the lists, each once. */
static void gather(struct fusion *fusion, const struct fusion_lists *lists) {
    const struct candidates *each[] = {lists->passages, lists->words, lists->sparse};
    size_t n = 0;
    int kept = 0;
    for (size_t k = 0; k < ARRAY_COUNT(each); k++) {
        size_t more = each[k] ? (size_t)each[k]->n : 0;
        fusion->all = xrealloc(fusion->all, (n + more + 1) * sizeof *fusion->all);
        for (size_t i = 0; i < more; i++) fusion->all[n + i] = each[k]->list[i];
        n += more;
    }
    if (n > 0) qsort(fusion->all, n, sizeof *fusion->all, compare_ids);
    for (size_t i = 0; i < n; i++) {
        struct candidate *last = kept > 0 ? &fusion->all[kept - 1] : NULL;
        if (last && last->id == fusion->all[i].id) {
            last->by |= fusion->all[i].by;
            last->words = fmaxf(last->words, fusion->all[i].words);
            continue;
        }
        fusion->all[kept] = fusion->all[i];
        kept++;
    }
    fusion->n = kept;
}

/* The share of the query's words that a chunk has at least that tells of a word which many have, so
 * that few chunks are left; above 1: too many are. "-x of git clean" is told of by a page of git
 * clean. */
static float find_share(const struct fusion *fusion, unsigned word) {
    float best = 0;
    int n = 0;
    for (int i = 0; i < fusion->n; i++)
        if (fusion->found[i].told & word) best = fmaxf(best, fusion->all[i].words);
    for (int i = 0; i < fusion->n; i++)
        n += (fusion->found[i].told & word) && fusion->all[i].words >= best - share_near;
    return best > 0 && n <= EXACT_CHUNKS ? best - share_near : 2;
}

/* Leaves a word that many chunks have to those that tell of it and have most of the query beside.
 */
static void choose_exact(struct fusion *fusion, int j) {
    unsigned word = 1U << j;
    int n = 0;
    for (int i = 0; i < fusion->n; i++) n += (fusion->found[i].there & word) != 0;
    if (n <= EXACT_CHUNKS) return;
    bool told = fusion->asks && !exact_word_is_number(fusion->exact.words[j]);
    float share = told ? find_share(fusion, word) : 2;
    for (int i = 0; i < fusion->n; i++) {
        struct exact_found *found = &fusion->found[i];
        if ((found->told & word) && fusion->all[i].words >= share) continue;
        found->there &= ~word;
        found->told &= ~word;
    }
}

static void seek_exact(struct fusion *fusion, const struct snapshot *snapshot) {
    fusion->found = xcalloc((size_t)fusion->n + 1, sizeof *fusion->found);
    for (int i = 0; i < fusion->n && fusion->exact.n > 0; i++)
        fusion->found[i] =
            exact_words_in(&fusion->exact, snapshot_chunk(snapshot, fusion->all[i].id).text);
    for (int j = 0; j < fusion->exact.n; j++) choose_exact(fusion, j);
}

/* The scores by sparse weights of all chunks, whichever list found them. */
static enum status score_sparse(struct fusion *fusion, const struct fusion_lists *lists,
                                struct error *e) {
    struct sparse_rows rows = {0};
    enum status status = STATUS_OK;
    for (int i = 0; lists->sparse && i < fusion->n && status == STATUS_OK; i++) {
        struct candidate *candidate = &fusion->all[i];
        sparse_rows_clear(&rows);
        status = snapshot_sparse(lists->sparse->snapshot, candidate->id, 1, &rows, e);
        if (status) break;
        candidate->sparse = sparse_row_multiply(lists->weights, sparse_rows_row(&rows, 0));
        fusion->best_sparse = fmax(fusion->best_sparse, (double)candidate->sparse);
    }
    sparse_rows_free(&rows);
    return status;
}

static void find_range(struct fusion *fusion) {
    const struct candidates *passages = fusion->passages;
    fusion->highest = passages->n > 0 ? (double)passages->list[0].similarity : 0;
    int last = min_int(passages->n, FUSED_RANKS) - 1;
    fusion->lowest = passages->n > 0 ? (double)passages->list[last].similarity : 0;
}

static void rate_sparse(const struct fusion *fusion, struct candidate *candidate) {
    struct hit_worth *worth = &candidate->worth;
    double sparse = (double)candidate->sparse / fusion->best_sparse;
    worth->sparse = (float)sparse;
    worth->sparse_weight = (float)sparse_weight;
    worth->total = (float)((double)worth->total + sparse_weight * sparse);
}

static void rate(struct fusion *fusion, int i) {
    struct candidate *candidate = &fusion->all[i];
    double range = fusion->highest - fusion->lowest,
           above = (double)candidate->similarity - fusion->lowest,
           vectors = range > 0 ? fmin(fmax(above / range, 0), 1) : above >= 0,
           words = (double)candidate->words;
    int exact = __builtin_popcount(fusion->found[i].there),
        told = fusion->asks ? __builtin_popcount(fusion->found[i].told) : 0;
    candidate->worth = (struct hit_worth){
        .joined = true,
        .vectors = (float)vectors,
        .words = (float)words,
        .weight = (float)fusion->weight,
        .exact = exact,
        .told = told,
        .total =
            (float)(vectors + fusion->weight * words + exact_worth * exact + told_worth * told)};
    if (fusion->best_sparse > 0) rate_sparse(fusion, candidate);
}

/* The best first; equal ones in the order of their numbers. */
static int compare_worth(const void *a, const void *b) {
    const struct candidate *left = a, *right = b;
    if (left->worth.total != right->worth.total)
        return left->worth.total > right->worth.total ? -1 : 1;
    return (left->id > right->id) - (left->id < right->id);
}

enum status fusion_join(struct text_span query, const struct fusion_lists *lists, int most,
                        struct candidates *out, struct error *e) {
    const struct candidates *passages = lists->passages, *words = lists->words;
    bool more = passages->more || words->more || (lists->sparse && lists->sparse->more);
    struct fusion fusion = {
        .passages = passages, .exact = exact_words_find(query), .weight = weigh_words(words)};
    fusion.asks = fusion.weight <= weight_least;
    gather(&fusion, lists);
    if (score_sparse(&fusion, lists, e)) {
        free(fusion.all);
        return e->status;
    }
    seek_exact(&fusion, passages->snapshot);
    find_range(&fusion);
    for (int i = 0; i < fusion.n; i++) rate(&fusion, i);
    if (fusion.n > 0) qsort(fusion.all, (size_t)fusion.n, sizeof *fusion.all, compare_worth);
    *out = (struct candidates){.list = fusion.all,
                               .n = min_int(fusion.n, most),
                               .more = more || fusion.n > most,
                               .snapshot = snapshot_hold(passages->snapshot)};
    free(fusion.found);
    return STATUS_OK;
}
