/* retrieval/search/candidates.c: see candidates.h. Several lists are joined by reciprocal rank
 * fusion, that of Cormack, Clarke and Buettcher (SIGIR 2009). */
#include "retrieval/search/candidates.h"

#include <math.h>
#include <stdlib.h>

/* Ranks that fusion looks at, at least. Its constant, and what a rank by words is worth beside one
 * by vectors, are those that docs/results/retrieval.md chose. */
enum { FUSED_RANKS = 100, FUSION_CONSTANT = 10 };

void candidates_free(struct candidates *all, int n) {
    for (int i = 0; i < n; i++) {
        free(all[i].list);
        snapshot_release(all[i].snapshot);
    }
    free(all);
}

float vectors_multiply(const float *left, const float *right, int dim) {
    double sum = 0;
    for (int i = 0; i < dim; i++) sum += (double)left[i] * (double)right[i];
    return (float)sum;
}

/* Lists. */

/* Candidates of n queries become lists. Those below the floor end a list that is in the order of
 * similarities. */
static void take_nearest(const struct ranked_batch *batch, const struct nearest_found *found,
                         enum hit_list by, struct candidates *lists) {
    size_t width = (size_t)batch->width;
    for (int i = 0; i < batch->n; i++) {
        const int64_t *ids = found->ids + (size_t)i * width;
        const float *similarities = found->similarities + (size_t)i * width;
        struct candidates *candidates = &lists[i];
        int n = 0;
        candidates->list = xmalloc(width * sizeof *candidates->list);
        candidates->snapshot = snapshot_hold(found->snapshot);
        for (; n < batch->width && ids[n] != FOUND_NONE; n++) {
            if (ids[n] == FOUND_GONE) continue;
            candidates->list[candidates->n] = (struct candidate){ids[n], similarities[n], by};
            candidates->n++;
        }
        candidates->more =
            n == batch->width && similarities[n - 1] >= batch->queries[i]->query->min_similarity;
    }
}

static enum status rank_nearest(const struct ranked_batch *batch, enum hit_list kind,
                                struct candidates *lists, struct error *e) {
    bool pictures = kind == HIT_BY_PICTURES;
    const struct retriever_query *first = batch->queries[0]->query;
    const struct collection_info *info = first->snapshot->info;
    size_t dim = (size_t)(pictures ? info->pictures.dim : info->dim);
    float *vectors = xmalloc((size_t)batch->n * dim * sizeof *vectors);
    for (int i = 0; i < batch->n; i++)
        memcpy(vectors + (size_t)i * dim,
               pictures ? batch->queries[i]->pictures : batch->queries[i]->passages,
               dim * sizeof *vectors);
    struct nearest_query query = {.vectors = vectors,
                                  .n = batch->n,
                                  .k = batch->width,
                                  .pictures = pictures,
                                  .rereads = first->choice.distinct > 0,
                                  .filter = first->filter,
                                  .excluded = first->excluded,
                                  .n_excluded = first->n_excluded};
    struct nearest_found found = {0};
    enum status status =
        batch->collection->ops->search(batch->collection, first->snapshot, &query, &found, e);
    if (status == STATUS_OK) take_nearest(batch, &found, kind, lists);
    snapshot_release(found.snapshot);
    free(found.ids);
    free(found.similarities);
    free(vectors);
    return status;
}

/* Of one query. Whoever gave up may find anything. */
static enum status find_words(const struct ranked_batch *batch, const struct ranked_query *query,
                              struct candidates *candidates, struct error *e) {
    struct snapshot *snapshot = query->query->snapshot;
    int dim = snapshot->info->dim;
    struct word_query words = {.text = query->query->text,
                               .filter = query->query->filter,
                               .k = batch->width,
                               .cancelled = query->query->cancelled};
    int64_t *ids = xmalloc((size_t)batch->width * sizeof *ids);
    float *vector = xmalloc((size_t)dim * sizeof *vector);
    enum status status =
        batch->collection->ops->search_words(batch->collection, snapshot, &words, ids, e);
    bool given_up = status == STATUS_CANCELLED;
    if (given_up) status = STATUS_OK;
    candidates->list = xmalloc((size_t)batch->width * sizeof *candidates->list);
    candidates->snapshot = snapshot_hold(snapshot);
    while (status == STATUS_OK && !given_up && candidates->n < batch->width &&
           ids[candidates->n] != FOUND_NONE) {
        status = snapshot_vectors(snapshot, ids[candidates->n], 1, vector, e);
        candidates->list[candidates->n] = (struct candidate){
            ids[candidates->n], vectors_multiply(query->passages, vector, dim), HIT_BY_WORDS};
        candidates->n++;
    }
    candidates->more = candidates->n == batch->width;
    free(ids);
    free(vector);
    return status;
}

static enum status rank_words(const struct ranked_batch *batch, enum hit_list kind,
                              struct candidates *lists, struct error *e) {
    (void)kind;
    enum status status = STATUS_OK;
    for (int i = 0; i < batch->n && status == STATUS_OK; i++)
        status = find_words(batch, batch->queries[i], &lists[i], e);
    return status;
}

/* Ways of ranking, and what their ranks are worth in a fusion. A collection that is not ranked by
 * words says so before it is searched. */
struct ranked_list {
    enum hit_list kind;
    enum status (*rank)(const struct ranked_batch *batch, enum hit_list kind,
                        struct candidates *lists, struct error *e);
    double share;
};
static const struct ranked_list ranked_lists[HIT_LISTS] = {{HIT_BY_WORDS, rank_words, 0.5},
                                                           {HIT_BY_PASSAGES, rank_nearest, 1},
                                                           {HIT_BY_PICTURES, rank_nearest, 1}};

unsigned candidates_lists(const struct ranked_query *query) {
    enum retriever_way way = query->query->choice.way;
    bool by_passages = query->passages && way != RETRIEVE_WORDS,
         by_words = query->passages && way != RETRIEVE_NEAREST;
    return (by_passages ? HIT_BY_PASSAGES : 0U) | (by_words ? HIT_BY_WORDS : 0U) |
           (query->pictures ? HIT_BY_PICTURES : 0U);
}

/* Fusion. */

/* A chunk with the sum of what its ranks are worth. */
struct fused {
    struct candidate candidate;
    double worth;
};

/* Of equal ones, pictures come behind passages. */
static int compare_fused(const void *a, const void *b) {
    const struct fused *fused = a, *the_fused = b;
    bool x_seen = fused->candidate.by == HIT_BY_PICTURES,
         y_seen = the_fused->candidate.by == HIT_BY_PICTURES;
    if (fused->worth != the_fused->worth) return fused->worth > the_fused->worth ? -1 : 1;
    if (x_seen != y_seen) return x_seen ? 1 : -1;
    return (fused->candidate.id > the_fused->candidate.id) -
           (fused->candidate.id < the_fused->candidate.id);
}

/* The entries of a chunk follow each other, the one that is worth most first. */
static int compare_ids(const void *a, const void *b) {
    const struct fused *fused = a, *the_fused = b;
    if (fused->candidate.id != the_fused->candidate.id)
        return fused->candidate.id > the_fused->candidate.id ? 1 : -1;
    if (fused->worth != the_fused->worth) return fused->worth > the_fused->worth ? -1 : 1;
    return (fused->candidate.by > the_fused->candidate.by) -
           (fused->candidate.by < the_fused->candidate.by);
}

/* The ranks of a chunk that is in several lists become one entry. Returns how many chunks there
 * are. */
static int join_ranks(struct fused *all, int n) {
    int kept = 0;
    if (n > 0) qsort(all, (size_t)n, sizeof *all, compare_ids);
    for (int i = 0; i < n; i++) {
        bool again = kept > 0 && all[kept - 1].candidate.id == all[i].candidate.id;
        if (again) {
            all[kept - 1].worth += all[i].worth;
            all[kept - 1].candidate.by |= all[i].candidate.by;
            continue;
        }
        all[kept] = all[i];
        kept++;
    }
    if (kept > 0) qsort(all, (size_t)kept, sizeof *all, compare_fused);
    return kept;
}

/* Entries of all lists of one query. */
struct fusion {
    struct fused *all; /* [n] */
    int n;
    bool full; /* a list has as many as were asked for */
    struct snapshot *snapshot;
};

static void add_ranks(struct fusion *fusion, const struct candidates *list, double share,
                      float floor) {
    fusion->all = xrealloc(fusion->all, (size_t)(fusion->n + list->n + 1) * sizeof *fusion->all);
    for (int i = 0; i < list->n; i++) {
        if (list->list[i].similarity < floor) continue;
        fusion->all[fusion->n] = (struct fused){list->list[i], share / (FUSION_CONSTANT + i + 1)};
        fusion->n++;
    }
    if (fusion->snapshot == NULL) fusion->snapshot = snapshot_hold(list->snapshot);
}

/* The best `most` of all lists. */
static void fuse(struct fusion *fusion, int most, bool of_pictures, struct candidates *out) {
    int n = join_ranks(fusion->all, fusion->n);
    *out = (struct candidates){.n = min_int(n, most), .snapshot = fusion->snapshot};
    out->list = xmalloc((size_t)most * sizeof *out->list);
    for (int i = 0; i < out->n; i++) out->list[i] = fusion->all[i].candidate;
    out->more = of_pictures ? fusion->full || n > most : out->n == most;
    free(fusion->all);
}

/* Cosines of one embedder have their floor at the end, where all candidates are looked at; those of
 * two embedders have it in each list. */
static enum status rank_by_several(const struct ranked_batch *batch, unsigned kinds,
                                   struct candidates *out, struct error *e) {
    struct ranked_batch wide = *batch;
    wide.width = max_int(batch->width, FUSED_RANKS);
    bool of_pictures = kinds & HIT_BY_PICTURES;
    struct fusion *fusions = xcalloc((size_t)batch->n, sizeof *fusions);
    enum status status = STATUS_OK;
    for (int i = 0; i < HIT_LISTS && status == STATUS_OK; i++) {
        if ((kinds & (unsigned)ranked_lists[i].kind) == 0) continue;
        struct candidates *lists = xcalloc((size_t)batch->n, sizeof *lists);
        status = ranked_lists[i].rank(&wide, ranked_lists[i].kind, lists, e);
        for (int j = 0; j < batch->n; j++) {
            float floor = of_pictures ? batch->queries[j]->query->min_similarity : -INFINITY;
            add_ranks(&fusions[j], &lists[j], ranked_lists[i].share, floor);
            fusions[j].full = fusions[j].full || lists[j].n == wide.width;
        }
        candidates_free(lists, batch->n);
    }
    for (int j = 0; j < batch->n; j++) fuse(&fusions[j], batch->width, of_pictures, &out[j]);
    free(fusions);
    return status;
}

enum status candidates_find(const struct ranked_batch *batch, struct candidates *out,
                            struct error *e) {
    unsigned kinds = candidates_lists(batch->queries[0]);
    for (int i = 0; i < HIT_LISTS; i++)
        if (kinds == (unsigned)ranked_lists[i].kind)
            return ranked_lists[i].rank(batch, ranked_lists[i].kind, out, e);
    return rank_by_several(batch, kinds, out, e);
}
