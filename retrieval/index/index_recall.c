/* retrieval/index/index_recall.c: see index_recall.h. A vector that is as similar as the last of
 * the true neighbours counts as one: which of equal vectors is found says nothing about an index.
 */
#include "retrieval/index/index_recall.h"

#include <math.h>
#include <stdlib.h>

/* Vectors that are compared with all queries at a stretch: they stay in the cache. */
enum { RECALL_PIECE = 512 };

/* Two similarities that differ by less are the same one, added up in another order. */
#define SAME_SIMILARITY 1e-5F

/* The neighbours of all queries: one more than k, which may be the query itself. */
struct recall_lists {
    int width;
    int64_t *ids;
    float *similarities;
};

static struct recall_lists recall_lists_make(const struct recall_sample *sample) {
    struct recall_lists lists = {.width = sample->k + (sample->own ? 1 : 0)};
    size_t n = (size_t)sample->n * (size_t)lists.width;
    lists.ids = xmalloc((n + 1) * sizeof *lists.ids);
    lists.similarities = xmalloc((n + 1) * sizeof *lists.similarities);
    for (size_t i = 0; i < n; i++) {
        lists.ids[i] = -1;
        lists.similarities[i] = -2;
    }
    return lists;
}

static void recall_lists_free(struct recall_lists *lists) {
    free(lists->ids);
    free(lists->similarities);
}

static bool recall_is_cancelled(const struct recall_sample *sample) {
    return sample->cancelled && atomic_load(sample->cancelled);
}

static enum status search_exactly(const struct index *the_index, const struct recall_sample *sample,
                                  struct recall_lists *lists, struct error *e) {
    size_t dim = (size_t)the_index->dim, width = (size_t)lists->width;
    float *piece = xmalloc(RECALL_PIECE * dim * sizeof *piece);
    enum status status = STATUS_OK;
    for (int64_t first = 0; first < the_index->count && status == STATUS_OK;
         first += RECALL_PIECE) {
        int64_t count =
            the_index->count - first < RECALL_PIECE ? the_index->count - first : RECALL_PIECE;
        if (recall_is_cancelled(sample)) status = error_set(e, STATUS_CANCELLED, "interrupted");
        if (status == STATUS_OK) status = index_vectors(the_index, first, (int)count, piece, e);
#pragma omp parallel for schedule(static)
        for (int q = 0; q < (status ? 0 : sample->n); q++) {
            struct index_scan scan = {.query = sample->queries + (size_t)q * dim,
                                      .vectors = piece,
                                      .count = count,
                                      .first = first,
                                      .dim = the_index->dim,
                                      .k = lists->width};
            index_scan(scan, lists->ids + (size_t)q * width,
                       lists->similarities + (size_t)q * width);
        }
    }
    free(piece);
    return status;
}

/* One query after the other, as a server asks. times [n] in milliseconds. */
static enum status search_timed(const struct index *the_index, const struct recall_sample *sample,
                                struct recall_lists *lists, double *times, struct error *e) {
    size_t width = (size_t)lists->width;
    enum status status = STATUS_OK;
    for (int q = 0; q < sample->n && status == STATUS_OK; q++) {
        struct index_query one = {.vectors = sample->queries + (size_t)q * (size_t)the_index->dim,
                                  .n = 1,
                                  .k = lists->width};
        if (recall_is_cancelled(sample)) return error_set(e, STATUS_CANCELLED, "interrupted");
        double start = time_now();
        status = index_search(the_index, one, lists->ids + (size_t)q * width,
                              lists->similarities + (size_t)q * width, e);
        times[q] = 1e3 * (time_now() - start);
    }
    return status;
}

/* Leaves the query itself out of the row of its neighbours, else the last of them. */
static void leave_own_out(int64_t *ids, float *similarities, int k, int64_t own) {
    int at = 0;
    while (at < k && ids[at] != own) at++;
    for (int i = at; i < k; i++) {
        ids[i] = ids[i + 1];
        similarities[i] = similarities[i + 1];
    }
}

/* How many of the first k found are as near as the k nearest. */
static int count_true(const float *found, const float *nearest, int k) {
    int n = 0;
    for (int i = 0; i < k; i++) n += found[i] >= nearest[k - 1] - SAME_SIMILARITY;
    return n;
}

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void recall_count(const struct recall_sample *sample, const struct recall_lists *found,
                         const struct recall_lists *nearest, struct recall_figures *out) {
    int64_t all = 0, first = 0;
    for (int q = 0; q < sample->n; q++) {
        size_t row = (size_t)q * (size_t)found->width;
        if (sample->own) {
            leave_own_out(found->ids + row, found->similarities + row, sample->k, sample->own[q]);
            leave_own_out(nearest->ids + row, nearest->similarities + row, sample->k,
                          sample->own[q]);
        }
        all += count_true(found->similarities + row, nearest->similarities + row, sample->k);
        first += count_true(found->similarities + row, nearest->similarities + row, 1);
    }
    out->recall = (double)all / ((double)sample->n * sample->k);
    out->recall_first = (double)first / sample->n;
}

enum status index_recall(const struct index *the_index, const struct recall_sample *sample,
                         struct recall_figures *out, struct error *e) {
    CHECK(sample->n > 0 && sample->k > 0);
    struct recall_lists found = recall_lists_make(sample), nearest = recall_lists_make(sample);
    double *times = xmalloc((size_t)sample->n * sizeof *times);
    enum status status = search_exactly(the_index, sample, &nearest, e);
    if (status == STATUS_OK) status = search_timed(the_index, sample, &found, times, e);
    if (status == STATUS_OK) {
        recall_count(sample, &found, &nearest, out);
        qsort(times, (size_t)sample->n, sizeof *times, compare_times);
        out->median = times[sample->n / 2];
        out->p99 = times[(sample->n - 1) * 99 / 100];
    }
    free(times);
    recall_lists_free(&found);
    recall_lists_free(&nearest);
    return status;
}
