/* retrieval/search/candidates.c: see candidates.h. Vectors and words are joined by fusion.h, texts
 * and pictures by reciprocal rank fusion, that of Cormack, Clarke and Buettcher (SIGIR 2009). */
#include "retrieval/search/candidates.h"

#include <stdlib.h>

#include "retrieval/search/fusion.h"
#include "retrieval/words/word_demands.h"

/* The constant of fusion by ranks. */
enum { FUSION_CONSTANT = 10 };

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

/* Whether a chunk that was found by its vector has what the query's operators ask for. */
static bool is_demanded(const struct ranked_query *query, const struct snapshot *snapshot,
                        int64_t id) {
    const struct word_demands *demands = query->query->demands;
    return demands == NULL || word_demands_allow(demands, snapshot_chunk(snapshot, id).text);
}

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
            if (ids[n] == FOUND_GONE || !is_demanded(batch->queries[i], found->snapshot, ids[n]))
                continue;
            candidates->list[candidates->n] =
                (struct candidate){.id = ids[n], .similarity = similarities[n], .by = by};
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

/* Chunks that were found without their vectors. */
struct scored_list {
    enum hit_list by;
    int width;
    int64_t *ids;  /* [width] */
    float *worths; /* [width] what each is worth in its kind */
};

static struct scored_list scored_list_make(enum hit_list by, int width) {
    return (struct scored_list){.by = by,
                                .width = width,
                                .ids = xmalloc((size_t)width * sizeof(int64_t)),
                                .worths = xmalloc((size_t)width * sizeof(float))};
}

static void scored_list_free(struct scored_list *list) {
    free(list->ids);
    free(list->worths);
}

/* Chunks that a search has found become a list. Whoever gave up may find anything. */
static enum status take_scored(const struct ranked_query *query, const struct scored_list *found,
                               enum status searched, struct candidates *candidates,
                               struct error *e) {
    struct snapshot *snapshot = query->query->snapshot;
    int dim = snapshot->info->dim;
    float *vector = xmalloc((size_t)dim * sizeof *vector);
    enum status status = searched == STATUS_CANCELLED ? STATUS_OK : searched;
    candidates->list = xmalloc((size_t)found->width * sizeof *candidates->list);
    candidates->snapshot = snapshot_hold(snapshot);
    for (int i = 0; i < found->width && searched == STATUS_OK && status == STATUS_OK; i++) {
        int64_t id = found->ids[i];
        if (id == FOUND_NONE) break;
        if (found->by != HIT_BY_WORDS && !is_demanded(query, snapshot, id)) continue;
        status = snapshot_vectors(snapshot, id, 1, vector, e);
        candidates->list[candidates->n] =
            (struct candidate){.id = id,
                               .similarity = vectors_multiply(query->passages, vector, dim),
                               .words = found->by == HIT_BY_WORDS ? found->worths[i] : 0,
                               .by = found->by};
        candidates->n++;
    }
    candidates->more = searched == STATUS_OK && found->ids[found->width - 1] != FOUND_NONE;
    free(vector);
    return status;
}

static enum status find_words(const struct ranked_batch *batch, const struct ranked_query *query,
                              struct candidates *candidates, struct error *e) {
    const struct word_query words = {.text = query->query->text,
                                     .demands = query->query->demands,
                                     .filter = query->query->filter,
                                     .k = batch->width,
                                     .cancelled = query->query->cancelled};
    struct scored_list list = scored_list_make(HIT_BY_WORDS, batch->width);
    struct word_found found = {.ids = list.ids, .shares = list.worths};
    enum status status = batch->collection->ops->search_words(
        batch->collection, query->query->snapshot, &words, &found, e);
    status = take_scored(query, &list, status, candidates, e);
    scored_list_free(&list);
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

static enum status find_sparse(const struct ranked_batch *batch, const struct ranked_query *query,
                               struct candidates *candidates, struct error *e) {
    const struct sparse_query sparse = {.weights = sparse_rows_row(query->sparse, 0),
                                        .filter = query->query->filter,
                                        .k = batch->width,
                                        .cancelled = query->query->cancelled};
    struct scored_list list = scored_list_make(HIT_BY_SPARSE, batch->width);
    struct sparse_found found = {.ids = list.ids, .scores = list.worths};
    enum status status = batch->collection->ops->search_sparse(
        batch->collection, query->query->snapshot, &sparse, &found, e);
    status = take_scored(query, &list, status, candidates, e);
    scored_list_free(&list);
    return status;
}

static enum status rank_sparse(const struct ranked_batch *batch, enum hit_list kind,
                               struct candidates *lists, struct error *e) {
    (void)kind;
    enum status status = STATUS_OK;
    for (int i = 0; i < batch->n && status == STATUS_OK; i++)
        status = find_sparse(batch, batch->queries[i], &lists[i], e);
    return status;
}

/* Ways of ranking. A collection that is not ranked by words says so before it is searched. */
struct ranked_list {
    enum hit_list kind;
    enum status (*rank)(const struct ranked_batch *batch, enum hit_list kind,
                        struct candidates *lists, struct error *e);
};
static const struct ranked_list ranked_lists[HIT_LISTS] = {{HIT_BY_WORDS, rank_words},
                                                           {HIT_BY_PASSAGES, rank_nearest},
                                                           {HIT_BY_PICTURES, rank_nearest},
                                                           {HIT_BY_SPARSE, rank_sparse}};

unsigned candidates_lists(const struct ranked_query *query) {
    enum retriever_way way = query->query->choice.way;
    bool by_passages = query->passages && way != RETRIEVE_WORDS,
         by_words = query->passages && way != RETRIEVE_NEAREST,
         by_sparse = by_passages && by_words && query->sparse;
    return (by_passages ? HIT_BY_PASSAGES : 0U) | (by_words ? HIT_BY_WORDS : 0U) |
           (by_sparse ? HIT_BY_SPARSE : 0U) | (query->pictures ? HIT_BY_PICTURES : 0U);
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
struct rank_fusion {
    struct fused *all; /* [n] */
    int n;
    bool full; /* a list has as many as were asked for */
};

static void add_ranks(struct rank_fusion *fusion, const struct candidates *list, float floor) {
    fusion->all = xrealloc(fusion->all, (size_t)(fusion->n + list->n + 1) * sizeof *fusion->all);
    for (int i = 0; i < list->n; i++) {
        if (list->list[i].similarity < floor) continue;
        fusion->all[fusion->n] = (struct fused){list->list[i], 1.0 / (FUSION_CONSTANT + i + 1)};
        fusion->n++;
    }
}

/* The best `most` of texts and pictures. Cosines of two embedders have their floor in each list. */
static void fuse_pictures(const struct ranked_query *query, const struct candidates *texts,
                          const struct candidates *pictures, int width, struct candidates *out) {
    struct rank_fusion fusion = {.full = texts->more || pictures->more};
    add_ranks(&fusion, texts, query->query->min_similarity);
    add_ranks(&fusion, pictures, query->query->min_similarity);
    int n = join_ranks(fusion.all, fusion.n);
    *out = (struct candidates){.n = min_int(n, width),
                               .more = fusion.full || n > width,
                               .snapshot = snapshot_hold(pictures->snapshot)};
    out->list = xmalloc((size_t)width * sizeof *out->list);
    for (int i = 0; i < out->n; i++) out->list[i] = fusion.all[i].candidate;
    free(fusion.all);
}

/* The lists of a query; NULL: it is not sought in it. */
struct query_lists {
    struct candidates *passages, *words, *pictures, *sparse;
};

static enum status fuse_query(const struct ranked_query *query, struct query_lists lists, int wide,
                              int width, struct candidates *out, struct error *e) {
    struct candidates texts = {0}, none = {0};
    int most = lists.pictures ? wide : width;
    if (lists.passages && lists.words) {
        struct fusion_lists joined = {
            .passages = lists.passages, .words = lists.words, .sparse = lists.sparse};
        if (lists.sparse) joined.weights = sparse_rows_row(query->sparse, 0);
        if (fusion_join(query->query->text, &joined, most, &texts, e)) return e->status;
    } else if (lists.passages || lists.words) {
        texts = lists.passages ? *lists.passages : *lists.words;
        *(lists.passages ? lists.passages : lists.words) = none;
    }
    if (lists.pictures) {
        fuse_pictures(query, &texts, lists.pictures, width, out);
        free(texts.list);
        snapshot_release(texts.snapshot);
    } else {
        *out = texts;
    }
    return STATUS_OK;
}

static enum status rank_by_several(const struct ranked_batch *batch, unsigned kinds,
                                   struct candidates *out, struct error *e) {
    struct ranked_batch wide = *batch;
    wide.width = max_int(batch->width, FUSED_RANKS);
    struct candidates *found[HIT_LISTS] = {NULL};
    enum status status = STATUS_OK;
    for (int i = 0; i < HIT_LISTS && status == STATUS_OK; i++) {
        if ((kinds & (unsigned)ranked_lists[i].kind) == 0) continue;
        found[i] = xcalloc((size_t)batch->n, sizeof **found);
        status = ranked_lists[i].rank(&wide, ranked_lists[i].kind, found[i], e);
    }
    for (int j = 0; j < batch->n && status == STATUS_OK; j++) {
        struct query_lists lists = {.words = found[0] ? &found[0][j] : NULL,
                                    .passages = found[1] ? &found[1][j] : NULL,
                                    .pictures = found[2] ? &found[2][j] : NULL,
                                    .sparse = found[3] ? &found[3][j] : NULL};
        status = fuse_query(batch->queries[j], lists, wide.width, batch->width, &out[j], e);
    }
    for (int i = 0; i < HIT_LISTS; i++)
        if (found[i]) candidates_free(found[i], batch->n);
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
