/* retrieval/ranking.c: see ranking.h. Queries that ask alike are asked together. More candidates
 * are asked for, twice as many each time, until enough of them may stay or there are no more. */
#include "retrieval/ranking.h"

#include <math.h>
#include <stdlib.h>

#include "retrieval/filter/scope.h"

/* Candidates that are asked for at most, of one query and of a batch, and ranks that fusion looks
 * at, at least. Reciprocal rank fusion is that of Cormack, Clarke and Buettcher (SIGIR 2009); its
 * constant, and what a rank by words is worth beside one by vectors, are those that
 * docs/results/retrieval.md chose. */
enum {
    MOST_CANDIDATES = 1 << 28,
    BATCH_CANDIDATES = 1 << 20,
    FUSED_RANKS = 100,
    FUSION_CONSTANT = 10
};

struct candidate {
    int64_t id;
    float similarity;
    unsigned by; /* as a hit's */
};

/* Chunks that one query has found, best first. */
struct candidates {
    struct candidate *list; /* [n] */
    int n;
    bool more;                 /* a wider search may find more */
    struct snapshot *snapshot; /* held: what has the chunks */
};

static void candidates_free(struct candidates *all, int n) {
    for (int i = 0; i < n; i++) {
        free(all[i].list);
        snapshot_release(all[i].snapshot);
    }
    free(all);
}

static float multiply(const float *a, const float *b, int dim) {
    double sum = 0;
    for (int i = 0; i < dim; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* Ranking. */

/* Queries that ask for the same lists, of the same documents. */
struct ranked_batch {
    struct collection *collection;
    const struct ranked_query *const *queries; /* [n] */
    int n, width;
};

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
            ids[candidates->n], multiply(query->passages, vector, dim), HIT_BY_WORDS};
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

/* The lists that a query is sought in, as bits. */
static unsigned lists_of(const struct ranked_query *query) {
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

static enum status rank(const struct ranked_batch *batch, struct candidates *out, struct error *e) {
    unsigned kinds = lists_of(batch->queries[0]);
    for (int i = 0; i < HIT_LISTS; i++)
        if (kinds == (unsigned)ranked_lists[i].kind)
            return ranked_lists[i].rank(batch, ranked_lists[i].kind, out, e);
    return rank_by_several(batch, kinds, out, e);
}

/* Leaving out. */

static bool is_excluded(const struct retriever_query *query, const struct chunk *chunk) {
    const char *const names[] = {chunk->path, chunk->document_id, scope_own(chunk->document_id)};
    for (int i = 0; i < query->n_excluded; i++)
        for (size_t j = 0; j < ARRAY_COUNT(names); j++)
            if (span_equals(query->excluded[i], (struct text_span){names[j], strlen(names[j])}))
                return true;
    return false;
}

/* The candidates that stayed so far, and room for one more. */
struct chosen {
    const struct retriever_query *query;
    const struct snapshot *snapshot;
    struct candidate *list; /* [n] */
    struct chunk *chunks;   /* [n] */
    float *vectors;         /* [n, row] where near-duplicates are left out */
    bool *seen;             /* [n] the vector is the picture's own */
    int n, row;
};

static struct chosen chosen_make(const struct ranked_query *query, const struct candidates *found) {
    const struct collection_info *info = found->snapshot->info;
    size_t n = (size_t)min_int(query->k, found->n) + 1;
    struct chosen chosen = {.query = query->query,
                            .snapshot = found->snapshot,
                            .row = max_int(info->dim, info->pictures.dim)};
    chosen.list = xmalloc(n * sizeof *chosen.list);
    chosen.chunks = xmalloc(n * sizeof *chosen.chunks);
    chosen.seen = xcalloc(n, sizeof *chosen.seen);
    if (query->query->choice.distinct > 0)
        chosen.vectors = xmalloc(n * (size_t)chosen.row * sizeof *chosen.vectors);
    return chosen;
}

static void chosen_free(struct chosen *chosen) {
    free(chosen->list);
    free(chosen->chunks);
    free(chosen->seen);
    free(chosen->vectors);
}

static bool is_too_many(const struct chosen *chosen, int64_t document) {
    int same = 0;
    for (int i = 0; i < chosen->n; i++) same += chosen->chunks[i].document == document;
    return chosen->query->choice.per_document > 0 && same >= chosen->query->choice.per_document;
}

/* Whether the vectors that the pictures of two equal texts have are equal too, or neither has one.
 */
static enum status compare_pictures(const struct chosen *chosen, int64_t a, int64_t b, bool *same,
                                    struct error *e) {
    size_t dim = (size_t)chosen->snapshot->info->pictures.dim;
    float *vectors = xcalloc(2 * dim + 1, sizeof *vectors);
    bool has_a = false, has_b = false;
    enum status status = snapshot_picture_vector(chosen->snapshot, a, vectors, &has_a, e);
    if (status == STATUS_OK)
        status = snapshot_picture_vector(chosen->snapshot, b, vectors + dim, &has_b, e);
    *same = has_a == has_b && memcmp(vectors, vectors + dim, dim * sizeof *vectors) == 0;
    free(vectors);
    return status;
}

/* *copy: one that stayed is the same piece of another document with the same text. Such a piece is
 * shown once. */
static enum status is_copy(const struct chosen *chosen, const struct candidate *candidate,
                           const struct chunk *chunk, bool *copy, struct error *e) {
    enum status status = STATUS_OK;
    *copy = false;
    for (int i = 0; i < chosen->n && !*copy && status == STATUS_OK; i++) {
        const struct chunk *other = &chosen->chunks[i];
        *copy = other->document != chunk->document && other->start == chunk->start &&
                span_equals(other->text, chunk->text) && span_equals(other->source, chunk->source);
        if (*copy) status = compare_pictures(chosen, chosen->list[i].id, candidate->id, copy, e);
    }
    return status;
}

/* Reads the chunk's vector behind those that stayed; *near: it is too near to one of them. Pictures
 * that have vectors of their own are compared by these, and with each other alone. */
static enum status is_near(struct chosen *chosen, int64_t id, bool *near, struct error *e) {
    const struct collection_info *info = chosen->snapshot->info;
    size_t row = (size_t)chosen->row;
    bool seen = false;
    *near = false;
    if (chosen->query->choice.distinct <= 0) return STATUS_OK;
    float *own = chosen->vectors + (size_t)chosen->n * row;
    if (snapshot_picture_vector(chosen->snapshot, id, own, &seen, e)) return e->status;
    if (!seen && snapshot_vectors(chosen->snapshot, id, 1, own, e)) return e->status;
    chosen->seen[chosen->n] = seen;
    int dim = seen ? info->pictures.dim : info->dim;
    for (int i = 0; i < chosen->n && !*near; i++)
        *near = chosen->seen[i] == seen && multiply(own, chosen->vectors + (size_t)i * row, dim) >
                                               chosen->query->choice.distinct;
    return STATUS_OK;
}

/* Keeps the candidate where it may stay. */
static enum status consider(struct chosen *chosen, const struct candidate *candidate,
                            struct error *e) {
    bool copy, near;
    if (!(candidate->similarity >= chosen->query->min_similarity)) return STATUS_OK;
    struct chunk chunk = snapshot_chunk(chosen->snapshot, candidate->id);
    if (is_excluded(chosen->query, &chunk) || is_too_many(chosen, chunk.document)) return STATUS_OK;
    if (is_copy(chosen, candidate, &chunk, &copy, e)) return e->status;
    if (copy) return STATUS_OK;
    if (is_near(chosen, candidate->id, &near, e)) return e->status;
    if (near) return STATUS_OK;
    chosen->list[chosen->n] = *candidate;
    chosen->chunks[chosen->n] = chunk;
    chosen->n++;
    return STATUS_OK;
}

/* Showing. */

void hit_show(struct hit *hit, const struct chunk *chunk, float similarity) {
    *hit = (struct hit){.document = chunk->document_id,
                        .path = chunk->path,
                        .title = chunk->title,
                        .chunk = chunk->id,
                        .start = chunk->start,
                        .end = chunk->end,
                        .text = chunk->text,
                        .source = chunk->source,
                        .marks = chunk->marks,
                        .tokens = chunk->tokens,
                        .n_tokens = chunk->n_tokens,
                        .similarity = similarity,
                        .relevance = -1};
}

static void show_hits(const struct chosen *chosen, struct snapshot *snapshot, struct hits *hits) {
    size_t n = (size_t)chosen->n, r = (size_t)max_int(0, chosen->query->r);
    if (n == 0) return;
    hits->list = xmalloc(n * sizeof *hits->list);
    if (r > 0) hits->ids = xmalloc(n * r * sizeof *hits->ids);
    for (size_t i = 0; i < n; i++) {
        hit_show(&hits->list[i], &chosen->chunks[i], chosen->list[i].similarity);
        if (snapshot->info->pictures.embedder) hits->list[i].by = chosen->list[i].by;
        if (r > 0)
            snapshot_neighbor_tokens(snapshot, chosen->list[i].id, (int)r, hits->ids + i * r);
    }
    hits->n = chosen->n;
    hits->pinned = snapshot_hold(snapshot);
}

/* Fills in the hits of a query; *enough: as many as are wanted, or all that there are. */
static enum status choose(const struct ranked_query *query, const struct candidates *found,
                          bool last, bool *enough, struct error *e) {
    struct chosen chosen = chosen_make(query, found);
    enum status status = STATUS_OK;
    for (int i = 0; i < found->n && chosen.n < query->k && status == STATUS_OK; i++)
        status = consider(&chosen, &found->list[i], e);
    *enough = last || chosen.n == query->k || !found->more;
    if (status == STATUS_OK && *enough) show_hits(&chosen, found->snapshot, query->hits);
    chosen_free(&chosen);
    return status;
}

/* Searching. */

/* Queries that still lack hits. */
struct search {
    struct collection *collection;
    const struct ranked_query **queries; /* [n] */
    int n, width;
    bool last; /* no search is wider */
};

/* Those that lack hits behind it are put to kept->queries. */
static enum status search_batch(const struct search *search, int first, int n, struct search *kept,
                                struct error *e) {
    struct ranked_batch batch = {search->collection, search->queries + first, n, search->width};
    struct candidates *found = xcalloc((size_t)n, sizeof *found);
    enum status status = rank(&batch, found, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        bool enough;
        const struct ranked_query *query = batch.queries[i];
        status = choose(query, &found[i], search->last, &enough, e);
        if (enough) continue;
        kept->queries[kept->n] = query;
        kept->n++;
    }
    candidates_free(found, n);
    return status;
}

/* Whether more than the nearest may be looked at. Another machine is rather asked for more than
 * twice, where it looks less closely at a filter than we do. */
static bool needs_more(const struct collection *collection,
                       const struct ranked_query *ranked_query) {
    const struct retriever_query *query = ranked_query->query;
    return query->n_excluded > 0 || query->choice.per_document > 0 || query->choice.distinct > 0 ||
           lists_of(ranked_query) != HIT_BY_PASSAGES ||
           (query->filter && collection_is_remote(collection));
}

/* Queries that ask for the same. */
static enum status search_alike(struct search *search, struct error *e) {
    const struct ranked_query *query = search->queries[0];
    int64_t limit = query->query->snapshot->chunk_limit;
    int most = limit < MOST_CANDIDATES ? (int)limit : MOST_CANDIDATES;
    enum status status = STATUS_OK;
    if (query->k == 0 || most == 0 || lists_of(query) == 0) return STATUS_OK;
    search->width = needs_more(search->collection, query) ? min_int(2 * query->k, most) : query->k;
    while (search->n > 0 && status == STATUS_OK) {
        struct search kept = {.queries = search->queries};
        int step = max_int(1, BATCH_CANDIDATES / search->width), n;
        search->last = search->width >= most;
        for (int first = 0; first < search->n && status == STATUS_OK; first += n) {
            n = min_int(step, search->n - first);
            status = search_batch(search, first, n, &kept, e);
        }
        search->n = kept.n;
        search->width = search->width < most / 2 ? 2 * search->width : most;
    }
    return status;
}

static bool is_alike(const struct collection *collection, const struct ranked_query *left,
                     const struct ranked_query *right) {
    const struct retriever_query *query = left->query, *retriever_query = right->query;
    return left->k == right->k && query->snapshot == retriever_query->snapshot &&
           lists_of(left) == lists_of(right) && query->excluded == retriever_query->excluded &&
           query->n_excluded == retriever_query->n_excluded &&
           needs_more(collection, left) == needs_more(collection, right) &&
           (query->choice.distinct > 0) == (retriever_query->choice.distinct > 0) &&
           filter_is_same(query->filter, retriever_query->filter);
}

enum status ranking_find(struct collection *collection, const struct ranked_query *queries, int n,
                         struct error *e) {
    const struct ranked_query **order = xmalloc(((size_t)n + 1) * sizeof(struct ranked_query *));
    enum status status = STATUS_OK;
    int alike;
    for (int first = 0; first < n && status == STATUS_OK; first += alike) {
        for (alike = 0;
             first + alike < n && is_alike(collection, &queries[first], &queries[first + alike]);
             alike++)
            order[alike] = &queries[first + alike];
        status = search_alike(
            &(struct search){.collection = collection, .queries = order, .n = alike}, e);
    }
    free(order);
    return status;
}
