/* retrieval/ranking.c: see ranking.h. Queries that ask alike are asked together. More candidates are asked for, twice
 * as many each time, until enough of them may stay or there are no more. */
#include "retrieval/ranking.h"

#include <math.h>
#include <stdlib.h>

#include "retrieval/filter/scope.h"

/* Candidates that are asked for at most, of one query and of a batch, and ranks that fusion looks at, at least.
 * Reciprocal rank fusion is that of Cormack, Clarke and Buettcher (SIGIR 2009); its constant, and what a rank by words
 * is worth beside one by vectors, are those that docs/results/retrieval.md chose. */
enum { MOST_CANDIDATES = 1 << 28, BATCH_CANDIDATES = 1 << 20, FUSED_RANKS = 100, FUSION_CONSTANT = 10 };

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

/* Candidates of n queries become lists. Those below the floor end a list that is in the order of similarities. */
static void take_nearest(const struct ranked_batch *b, const struct nearest_found *found, enum hit_list by,
                         struct candidates *lists) {
    size_t width = (size_t)b->width;
    for (int i = 0; i < b->n; i++) {
        const int64_t *ids = found->ids + (size_t)i * width;
        const float *similarities = found->similarities + (size_t)i * width;
        struct candidates *c = &lists[i];
        int n = 0;
        c->list = xmalloc(width * sizeof *c->list);
        c->snapshot = snapshot_hold(found->snapshot);
        for (; n < b->width && ids[n] != FOUND_NONE; n++) {
            if (ids[n] == FOUND_GONE) continue;
            c->list[c->n] = (struct candidate){ids[n], similarities[n], by};
            c->n++;
        }
        c->more = n == b->width && similarities[n - 1] >= b->queries[i]->query->min_similarity;
    }
}

static enum status rank_nearest(const struct ranked_batch *b, enum hit_list kind, struct candidates *lists,
                                struct error *e) {
    bool pictures = kind == HIT_BY_PICTURES;
    const struct retriever_query *first = b->queries[0]->query;
    const struct collection_info *info = first->snapshot->info;
    size_t dim = (size_t)(pictures ? info->pictures.dim : info->dim);
    float *vectors = xmalloc((size_t)b->n * dim * sizeof *vectors);
    for (int i = 0; i < b->n; i++)
        memcpy(vectors + (size_t)i * dim, pictures ? b->queries[i]->pictures : b->queries[i]->passages,
               dim * sizeof *vectors);
    struct nearest_query query = {.vectors = vectors,
                                  .n = b->n,
                                  .k = b->width,
                                  .pictures = pictures,
                                  .rereads = first->choice.distinct > 0,
                                  .filter = first->filter,
                                  .excluded = first->excluded,
                                  .n_excluded = first->n_excluded};
    struct nearest_found found = {0};
    enum status status = b->collection->ops->search(b->collection, first->snapshot, &query, &found, e);
    if (status == STATUS_OK) take_nearest(b, &found, kind, lists);
    snapshot_release(found.snapshot);
    free(found.ids);
    free(found.similarities);
    free(vectors);
    return status;
}

/* Of one query. Whoever gave up may find anything. */
static enum status find_words(const struct ranked_batch *b, const struct ranked_query *q, struct candidates *c,
                              struct error *e) {
    struct snapshot *snapshot = q->query->snapshot;
    int dim = snapshot->info->dim;
    struct word_query words = {
        .text = q->query->text, .filter = q->query->filter, .k = b->width, .cancelled = q->query->cancelled};
    int64_t *ids = xmalloc((size_t)b->width * sizeof *ids);
    float *vector = xmalloc((size_t)dim * sizeof *vector);
    enum status status = b->collection->ops->search_words(b->collection, snapshot, &words, ids, e);
    bool given_up = status == STATUS_CANCELLED;
    if (given_up) status = STATUS_OK;
    c->list = xmalloc((size_t)b->width * sizeof *c->list);
    c->snapshot = snapshot_hold(snapshot);
    while (status == STATUS_OK && !given_up && c->n < b->width && ids[c->n] != FOUND_NONE) {
        status = snapshot_vectors(snapshot, ids[c->n], 1, vector, e);
        c->list[c->n] = (struct candidate){ids[c->n], multiply(q->passages, vector, dim), HIT_BY_WORDS};
        c->n++;
    }
    c->more = c->n == b->width;
    free(ids);
    free(vector);
    return status;
}

static enum status rank_words(const struct ranked_batch *b, enum hit_list kind, struct candidates *lists,
                              struct error *e) {
    (void)kind;
    enum status status = STATUS_OK;
    for (int i = 0; i < b->n && status == STATUS_OK; i++) status = find_words(b, b->queries[i], &lists[i], e);
    return status;
}

/* Ways of ranking, and what their ranks are worth in a fusion. A collection that is not ranked by words says so before
 * it is searched. */
struct ranked_list {
    enum hit_list kind;
    enum status (*rank)(const struct ranked_batch *b, enum hit_list kind, struct candidates *lists, struct error *e);
    double share;
};
static const struct ranked_list ranked_lists[HIT_LISTS] = {
    {HIT_BY_WORDS, rank_words, 0.5}, {HIT_BY_PASSAGES, rank_nearest, 1}, {HIT_BY_PICTURES, rank_nearest, 1}};

/* The lists that a query is sought in, as bits. */
static unsigned lists_of(const struct ranked_query *q) {
    enum retriever_way way = q->query->choice.way;
    bool by_passages = q->passages && way != RETRIEVE_WORDS, by_words = q->passages && way != RETRIEVE_NEAREST;
    return (by_passages ? HIT_BY_PASSAGES : 0U) | (by_words ? HIT_BY_WORDS : 0U) | (q->pictures ? HIT_BY_PICTURES : 0U);
}

/* Fusion. */

/* A chunk with the sum of what its ranks are worth. */
struct fused {
    struct candidate candidate;
    double worth;
};

/* Of equal ones, pictures come behind passages. */
static int compare_fused(const void *a, const void *b) {
    const struct fused *x = a, *y = b;
    bool x_seen = x->candidate.by == HIT_BY_PICTURES, y_seen = y->candidate.by == HIT_BY_PICTURES;
    if (x->worth != y->worth) return x->worth > y->worth ? -1 : 1;
    if (x_seen != y_seen) return x_seen ? 1 : -1;
    return (x->candidate.id > y->candidate.id) - (x->candidate.id < y->candidate.id);
}

/* The entries of a chunk follow each other, the one that is worth most first. */
static int compare_ids(const void *a, const void *b) {
    const struct fused *x = a, *y = b;
    if (x->candidate.id != y->candidate.id) return x->candidate.id > y->candidate.id ? 1 : -1;
    if (x->worth != y->worth) return x->worth > y->worth ? -1 : 1;
    return (x->candidate.by > y->candidate.by) - (x->candidate.by < y->candidate.by);
}

/* The ranks of a chunk that is in several lists become one entry. Returns how many chunks there are. */
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

static void add_ranks(struct fusion *f, const struct candidates *list, double share, float floor) {
    f->all = xrealloc(f->all, (size_t)(f->n + list->n + 1) * sizeof *f->all);
    for (int i = 0; i < list->n; i++) {
        if (list->list[i].similarity < floor) continue;
        f->all[f->n] = (struct fused){list->list[i], share / (FUSION_CONSTANT + i + 1)};
        f->n++;
    }
    if (f->snapshot == NULL) f->snapshot = snapshot_hold(list->snapshot);
}

/* The best `most` of all lists. */
static void fuse(struct fusion *f, int most, bool of_pictures, struct candidates *out) {
    int n = join_ranks(f->all, f->n);
    *out = (struct candidates){.n = min_int(n, most), .snapshot = f->snapshot};
    out->list = xmalloc((size_t)most * sizeof *out->list);
    for (int i = 0; i < out->n; i++) out->list[i] = f->all[i].candidate;
    out->more = of_pictures ? f->full || n > most : out->n == most;
    free(f->all);
}

/* Cosines of one embedder have their floor at the end, where all candidates are looked at; those of two embedders have
 * it in each list. */
static enum status rank_by_several(const struct ranked_batch *b, unsigned kinds, struct candidates *out,
                                   struct error *e) {
    struct ranked_batch wide = *b;
    wide.width = max_int(b->width, FUSED_RANKS);
    bool of_pictures = kinds & HIT_BY_PICTURES;
    struct fusion *fusions = xcalloc((size_t)b->n, sizeof *fusions);
    enum status status = STATUS_OK;
    for (int i = 0; i < HIT_LISTS && status == STATUS_OK; i++) {
        if ((kinds & (unsigned)ranked_lists[i].kind) == 0) continue;
        struct candidates *lists = xcalloc((size_t)b->n, sizeof *lists);
        status = ranked_lists[i].rank(&wide, ranked_lists[i].kind, lists, e);
        for (int j = 0; j < b->n; j++) {
            float floor = of_pictures ? b->queries[j]->query->min_similarity : -INFINITY;
            add_ranks(&fusions[j], &lists[j], ranked_lists[i].share, floor);
            fusions[j].full = fusions[j].full || lists[j].n == wide.width;
        }
        candidates_free(lists, b->n);
    }
    for (int j = 0; j < b->n; j++) fuse(&fusions[j], b->width, of_pictures, &out[j]);
    free(fusions);
    return status;
}

static enum status rank(const struct ranked_batch *b, struct candidates *out, struct error *e) {
    unsigned kinds = lists_of(b->queries[0]);
    for (int i = 0; i < HIT_LISTS; i++)
        if (kinds == (unsigned)ranked_lists[i].kind) return ranked_lists[i].rank(b, ranked_lists[i].kind, out, e);
    return rank_by_several(b, kinds, out, e);
}

/* Leaving out. */

static bool is_excluded(const struct retriever_query *query, const struct chunk *chunk) {
    const char *const names[] = {chunk->path, chunk->document_id, scope_own(chunk->document_id)};
    for (int i = 0; i < query->n_excluded; i++)
        for (size_t j = 0; j < ARRAY_COUNT(names); j++)
            if (span_equals(query->excluded[i], (struct text_span){names[j], strlen(names[j])})) return true;
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

static struct chosen chosen_make(const struct ranked_query *q, const struct candidates *found) {
    const struct collection_info *info = found->snapshot->info;
    size_t n = (size_t)min_int(q->k, found->n) + 1;
    struct chosen c = {.query = q->query, .snapshot = found->snapshot, .row = max_int(info->dim, info->pictures.dim)};
    c.list = xmalloc(n * sizeof *c.list);
    c.chunks = xmalloc(n * sizeof *c.chunks);
    c.seen = xcalloc(n, sizeof *c.seen);
    if (q->query->choice.distinct > 0) c.vectors = xmalloc(n * (size_t)c.row * sizeof *c.vectors);
    return c;
}

static void chosen_free(struct chosen *c) {
    free(c->list);
    free(c->chunks);
    free(c->seen);
    free(c->vectors);
}

static bool is_too_many(const struct chosen *c, int64_t document) {
    int same = 0;
    for (int i = 0; i < c->n; i++) same += c->chunks[i].document == document;
    return c->query->choice.per_document > 0 && same >= c->query->choice.per_document;
}

/* Whether the vectors that the pictures of two equal texts have are equal too, or neither has one. */
static enum status compare_pictures(const struct chosen *c, int64_t a, int64_t b, bool *same, struct error *e) {
    size_t dim = (size_t)c->snapshot->info->pictures.dim;
    float *vectors = xcalloc(2 * dim + 1, sizeof *vectors);
    bool has_a = false, has_b = false;
    enum status status = snapshot_picture_vector(c->snapshot, a, vectors, &has_a, e);
    if (status == STATUS_OK) status = snapshot_picture_vector(c->snapshot, b, vectors + dim, &has_b, e);
    *same = has_a == has_b && memcmp(vectors, vectors + dim, dim * sizeof *vectors) == 0;
    free(vectors);
    return status;
}

/* *copy: one that stayed is the same piece of another document with the same text. Such a piece is shown once. */
static enum status is_copy(const struct chosen *c, const struct candidate *candidate, const struct chunk *chunk,
                           bool *copy, struct error *e) {
    enum status status = STATUS_OK;
    *copy = false;
    for (int i = 0; i < c->n && !*copy && status == STATUS_OK; i++) {
        const struct chunk *other = &c->chunks[i];
        *copy = other->document != chunk->document && other->start == chunk->start &&
                span_equals(other->text, chunk->text) && span_equals(other->source, chunk->source);
        if (*copy) status = compare_pictures(c, c->list[i].id, candidate->id, copy, e);
    }
    return status;
}

/* Reads the chunk's vector behind those that stayed; *near: it is too near to one of them. Pictures that have vectors
 * of their own are compared by these, and with each other alone. */
static enum status is_near(struct chosen *c, int64_t id, bool *near, struct error *e) {
    const struct collection_info *info = c->snapshot->info;
    size_t row = (size_t)c->row;
    bool seen = false;
    *near = false;
    if (c->query->choice.distinct <= 0) return STATUS_OK;
    float *own = c->vectors + (size_t)c->n * row;
    if (snapshot_picture_vector(c->snapshot, id, own, &seen, e)) return e->status;
    if (!seen && snapshot_vectors(c->snapshot, id, 1, own, e)) return e->status;
    c->seen[c->n] = seen;
    int dim = seen ? info->pictures.dim : info->dim;
    for (int i = 0; i < c->n && !*near; i++)
        *near = c->seen[i] == seen && multiply(own, c->vectors + (size_t)i * row, dim) > c->query->choice.distinct;
    return STATUS_OK;
}

/* Keeps the candidate where it may stay. */
static enum status consider(struct chosen *c, const struct candidate *candidate, struct error *e) {
    bool copy, near;
    if (!(candidate->similarity >= c->query->min_similarity)) return STATUS_OK;
    struct chunk chunk = snapshot_chunk(c->snapshot, candidate->id);
    if (is_excluded(c->query, &chunk) || is_too_many(c, chunk.document)) return STATUS_OK;
    if (is_copy(c, candidate, &chunk, &copy, e)) return e->status;
    if (copy) return STATUS_OK;
    if (is_near(c, candidate->id, &near, e)) return e->status;
    if (near) return STATUS_OK;
    c->list[c->n] = *candidate;
    c->chunks[c->n] = chunk;
    c->n++;
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

static void show_hits(const struct chosen *c, struct snapshot *snapshot, struct hits *hits) {
    size_t n = (size_t)c->n, r = (size_t)max_int(0, c->query->r);
    if (n == 0) return;
    hits->list = xmalloc(n * sizeof *hits->list);
    if (r > 0) hits->ids = xmalloc(n * r * sizeof *hits->ids);
    for (size_t i = 0; i < n; i++) {
        hit_show(&hits->list[i], &c->chunks[i], c->list[i].similarity);
        if (snapshot->info->pictures.embedder) hits->list[i].by = c->list[i].by;
        if (r > 0) snapshot_neighbor_tokens(snapshot, c->list[i].id, (int)r, hits->ids + i * r);
    }
    hits->n = c->n;
    hits->pinned = snapshot_hold(snapshot);
}

/* Fills in the hits of a query; *enough: as many as are wanted, or all that there are. */
static enum status choose(const struct ranked_query *q, const struct candidates *found, bool last, bool *enough,
                          struct error *e) {
    struct chosen chosen = chosen_make(q, found);
    enum status status = STATUS_OK;
    for (int i = 0; i < found->n && chosen.n < q->k && status == STATUS_OK; i++)
        status = consider(&chosen, &found->list[i], e);
    *enough = last || chosen.n == q->k || !found->more;
    if (status == STATUS_OK && *enough) show_hits(&chosen, found->snapshot, q->hits);
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
static enum status search_batch(const struct search *s, int first, int n, struct search *kept, struct error *e) {
    struct ranked_batch batch = {s->collection, s->queries + first, n, s->width};
    struct candidates *found = xcalloc((size_t)n, sizeof *found);
    enum status status = rank(&batch, found, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        bool enough;
        const struct ranked_query *q = batch.queries[i];
        status = choose(q, &found[i], s->last, &enough, e);
        if (enough) continue;
        kept->queries[kept->n] = q;
        kept->n++;
    }
    candidates_free(found, n);
    return status;
}

/* Whether more than the nearest may be looked at. Another machine is rather asked for more than twice, where it looks
 * less closely at a filter than we do. */
static bool needs_more(const struct collection *c, const struct ranked_query *q) {
    const struct retriever_query *query = q->query;
    return query->n_excluded > 0 || query->choice.per_document > 0 || query->choice.distinct > 0 ||
           lists_of(q) != HIT_BY_PASSAGES || (query->filter && collection_is_remote(c));
}

/* Queries that ask for the same. */
static enum status search_alike(struct search *s, struct error *e) {
    const struct ranked_query *q = s->queries[0];
    int64_t limit = q->query->snapshot->chunk_limit;
    int most = limit < MOST_CANDIDATES ? (int)limit : MOST_CANDIDATES;
    enum status status = STATUS_OK;
    if (q->k == 0 || most == 0 || lists_of(q) == 0) return STATUS_OK;
    s->width = needs_more(s->collection, q) ? min_int(2 * q->k, most) : q->k;
    while (s->n > 0 && status == STATUS_OK) {
        struct search kept = {.queries = s->queries};
        int step = max_int(1, BATCH_CANDIDATES / s->width), n;
        s->last = s->width >= most;
        for (int first = 0; first < s->n && status == STATUS_OK; first += n) {
            n = min_int(step, s->n - first);
            status = search_batch(s, first, n, &kept, e);
        }
        s->n = kept.n;
        s->width = s->width < most / 2 ? 2 * s->width : most;
    }
    return status;
}

static bool is_alike(const struct collection *c, const struct ranked_query *a, const struct ranked_query *b) {
    const struct retriever_query *x = a->query, *y = b->query;
    return a->k == b->k && x->snapshot == y->snapshot && lists_of(a) == lists_of(b) && x->excluded == y->excluded &&
           x->n_excluded == y->n_excluded && needs_more(c, a) == needs_more(c, b) &&
           (x->choice.distinct > 0) == (y->choice.distinct > 0) && filter_is_same(x->filter, y->filter);
}

enum status ranking_find(struct collection *c, const struct ranked_query *queries, int n, struct error *e) {
    const struct ranked_query **order = xmalloc(((size_t)n + 1) * sizeof(struct ranked_query *));
    enum status status = STATUS_OK;
    int alike;
    for (int first = 0; first < n && status == STATUS_OK; first += alike) {
        for (alike = 0; first + alike < n && is_alike(c, &queries[first], &queries[first + alike]); alike++)
            order[alike] = &queries[first + alike];
        status = search_alike(&(struct search){.collection = c, .queries = order, .n = alike}, e);
    }
    free(order);
    return status;
}
