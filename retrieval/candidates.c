/* retrieval/candidates.c: see candidates.h. More candidates are asked for, twice as many each time, until enough of
 * them may stay or there are no more. */
#include "retrieval/candidates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/filter/scope.h"

/* Candidates that are asked for at most, and ranks that fusion looks at, at least. Reciprocal rank fusion is that of
 * Cormack, Clarke and Buettcher (SIGIR 2009); its constant, and what a rank by words is worth beside one by vectors,
 * are those that docs/results/retrieval.md chose. */
enum { MOST_CANDIDATES = 1 << 28, FUSED_RANKS = 100, FUSION_CONSTANT = 10 };

void candidates_free(struct candidates *c) {
    free(c->ids);
    free(c->similarities);
    free(c->by);
    *c = (struct candidates){0};
}

static struct candidates candidates_make(int n) {
    return (struct candidates){.ids = xmalloc((size_t)n * sizeof(int64_t)),
                               .similarities = xmalloc((size_t)n * sizeof(float)),
                               .by = xmalloc((size_t)n * sizeof(unsigned))};
}

/* The n first are there, and one list has found them. */
static void take_found(struct candidates *c, int n, enum hit_list by) {
    c->n = 0;
    while (c->n < n && c->ids[c->n] >= 0) {
        c->by[c->n] = by;
        c->n++;
    }
}

static float multiply(const float *a, const float *b, int dim) {
    double sum = 0;
    for (int i = 0; i < dim; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* Ranking. */

/* A search for candidates: its query, and how wide it is. */
struct ranking {
    struct snapshot *snapshot;
    const struct retriever_query *query;
    struct candidate_vectors vectors;
    int width;
    bool more; /* after ranking: a wider one may find more */
};

static enum status rank_by_vector(struct candidates *c, const struct ranking *r, struct error *e) {
    struct index_query one = {.vectors = r->vectors.passages, .n = 1, .k = r->width};
    enum status status = store_search(r->snapshot, r->query->filter, one, c->ids, c->similarities, e);
    take_found(c, status ? 0 : r->width, HIT_BY_PASSAGES);
    return status;
}

static enum status rank_by_words(struct candidates *c, const struct ranking *r, struct error *e) {
    int dim = snapshot_info(r->snapshot)->dim;
    float *vector = xmalloc((size_t)dim * sizeof *vector);
    struct word_query words = {
        .text = r->query->text, .filter = r->query->filter, .k = r->width, .cancelled = r->query->cancelled};
    enum status status = store_search_words(r->snapshot, &words, c->ids, e);
    take_found(c, status ? 0 : r->width, HIT_BY_WORDS);
    if (status == STATUS_CANCELLED) status = STATUS_OK; /* whoever gave up may find anything */
    for (int i = 0; i < c->n && status == STATUS_OK; i++) {
        status = snapshot_vector(r->snapshot, c->ids[i], vector, e);
        if (status == STATUS_OK) c->similarities[i] = multiply(r->vectors.passages, vector, dim);
    }
    free(vector);
    return status;
}

static enum status rank_by_picture(struct candidates *c, const struct ranking *r, struct error *e) {
    struct index_query one = {.vectors = r->vectors.pictures, .n = 1, .k = r->width};
    enum status status = store_search_pictures(r->snapshot, r->query->filter, one, c->ids, c->similarities, e);
    take_found(c, status ? 0 : r->width, HIT_BY_PICTURES);
    return status;
}

/* A way of ranking, and what its ranks are worth in a fusion. */
struct ranked_list {
    enum status (*rank)(struct candidates *c, const struct ranking *r, struct error *e);
    double share;
};
static const struct ranked_list list_of_passages = {rank_by_vector, 1}, list_of_words = {rank_by_words, 0.5},
                                list_of_pictures = {rank_by_picture, 1};
enum { LISTS = 3 };

/* A chunk with the sum of what its ranks are worth. */
struct fused {
    int64_t id;
    float similarity;
    unsigned by;
    double worth;
};

/* Of equal ones, pictures come behind passages. */
static int compare_fused(const void *a, const void *b) {
    const struct fused *x = a, *y = b;
    bool x_seen = x->by == HIT_BY_PICTURES, y_seen = y->by == HIT_BY_PICTURES;
    if (x->worth != y->worth) return x->worth > y->worth ? -1 : 1;
    if (x_seen != y_seen) return x_seen ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The entries of a chunk follow each other, the one that is worth most first. */
static int compare_ids(const void *a, const void *b) {
    const struct fused *x = a, *y = b;
    if (x->id != y->id) return x->id > y->id ? 1 : -1;
    if (x->worth != y->worth) return x->worth > y->worth ? -1 : 1;
    return (x->by > y->by) - (x->by < y->by);
}

/* The ranks of a chunk that is in several lists become one entry. Returns how many chunks there are. */
static int join_ranks(struct fused *all, int n) {
    int kept = 0;
    if (n > 0) qsort(all, (size_t)n, sizeof *all, compare_ids);
    for (int i = 0; i < n; i++) {
        bool again = kept > 0 && all[kept - 1].id == all[i].id;
        if (again) {
            all[kept - 1].worth += all[i].worth;
            all[kept - 1].by |= all[i].by;
            continue;
        }
        all[kept] = all[i];
        kept++;
    }
    return kept;
}

/* Appends a list to [n] others; returns how many there are then. */
static int append_list(struct fused *all, int n, const struct candidates *list, double share, float floor) {
    for (int i = 0; i < list->n; i++) {
        if (list->similarities[i] < floor) continue;
        all[n] = (struct fused){list->ids[i], list->similarities[i], list->by[i], share / (FUSION_CONSTANT + i + 1)};
        n++;
    }
    return n;
}

/* Takes the best `most` of n entries; returns how many chunks there were. */
static int fuse(struct candidates *out, struct fused *all, int n, int most) {
    n = join_ranks(all, n);
    if (n > 0) qsort(all, (size_t)n, sizeof *all, compare_fused);
    out->n = min_int(n, most);
    for (int i = 0; i < out->n; i++) {
        out->ids[i] = all[i].id;
        out->similarities[i] = all[i].similarity;
        out->by[i] = all[i].by;
    }
    return n;
}

/* Cosines of one embedder have their floor at the end, where all candidates are looked at; those of two embedders have
 * it in each list. */
static enum status rank_by_several(struct candidates *c, struct ranking *r, const struct ranked_list *const *lists,
                                   int n_lists, struct error *e) {
    struct ranking wide = *r;
    wide.width = max_int(r->width, FUSED_RANKS);
    float floor = r->vectors.pictures ? r->query->min_similarity : -INFINITY;
    struct fused *all = xmalloc((size_t)n_lists * (size_t)wide.width * sizeof *all);
    enum status status = STATUS_OK;
    bool full = false;
    int n = 0;
    for (int i = 0; i < n_lists && status == STATUS_OK; i++) {
        struct candidates list = candidates_make(wide.width);
        status = lists[i]->rank(&list, &wide, e);
        n = append_list(all, n, &list, lists[i]->share, floor);
        full = full || list.n == wide.width;
        candidates_free(&list);
    }
    n = status ? 0 : fuse(c, all, n, r->width);
    r->more = r->vectors.pictures ? full || n > r->width : c->n == r->width;
    free(all);
    return status;
}

static enum status rank(struct candidates *c, struct ranking *r, struct error *e) {
    const struct ranked_list *lists[LISTS];
    int n = 0;
    if (r->vectors.passages && r->query->choice.way != RETRIEVE_WORDS) {
        lists[n] = &list_of_passages;
        n++;
    }
    if (r->vectors.passages && r->query->choice.way != RETRIEVE_NEAREST) {
        lists[n] = &list_of_words;
        n++;
    }
    if (r->vectors.pictures) {
        lists[n] = &list_of_pictures;
        n++;
    }
    if (n > 1) return rank_by_several(c, r, lists, n, e);
    enum status status = n == 1 ? lists[0]->rank(c, r, e) : STATUS_OK;
    r->more = c->n == r->width;
    return status;
}

/* Leaving out. */

static bool span_names(struct text_span name, const char *word) {
    return strlen(word) == name.size && memcmp(word, name.text, name.size) == 0;
}

static bool is_excluded(const struct retriever_query *query, const struct chunk *chunk) {
    for (int i = 0; i < query->n_excluded; i++)
        if (span_names(query->excluded[i], chunk->path) || span_names(query->excluded[i], chunk->document_id) ||
            span_names(query->excluded[i], scope_own(chunk->document_id)))
            return true;
    return false;
}

static bool span_is_same(struct text_span a, struct text_span b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.text, b.text, a.size) == 0);
}

bool chunk_is_copy(const struct chunk *a, const struct chunk *b) {
    return a->document != b->document && a->start == b->start && span_is_same(a->text, b->text) &&
           span_is_same(a->source, b->source);
}

/* The candidates that stayed so far, and room for one more. */
struct chosen {
    const struct retriever_query *query;
    struct snapshot *snapshot;
    int64_t *documents; /* [n] */
    float *vectors;     /* [n, row] where near-duplicates are left out */
    bool *seen;         /* [n] the vector is the picture's own */
    int n, row;
};

static struct chosen chosen_make(struct snapshot *snapshot, const struct retriever_query *query, int k) {
    const struct collection_info *info = snapshot_info(snapshot);
    size_t n = (size_t)k;
    struct chosen c = {.query = query, .snapshot = snapshot, .row = max_int(info->dim, info->pictures.dim)};
    c.documents = xmalloc(n * sizeof *c.documents);
    c.seen = xcalloc(n, sizeof *c.seen);
    if (query->choice.distinct > 0) c.vectors = xmalloc(n * (size_t)c.row * sizeof *c.vectors);
    return c;
}

static void chosen_free(struct chosen *c) {
    free(c->documents);
    free(c->seen);
    free(c->vectors);
}

/* Reads the chunk's vector behind those that stayed; *copy: it is too near to one of them. Pictures that have vectors
 * of their own are compared by these, and with each other alone. */
static enum status is_copy(struct chosen *c, int64_t id, bool *copy, struct error *e) {
    const struct collection_info *info = snapshot_info(c->snapshot);
    size_t row = (size_t)c->row;
    bool seen = false;
    *copy = false;
    if (c->query->choice.distinct <= 0) return STATUS_OK;
    float *own = c->vectors + (size_t)c->n * row;
    if (info->pictures.embedder && snapshot_picture_vector(c->snapshot, id, own, &seen, e)) return e->status;
    if (!seen && snapshot_vector(c->snapshot, id, own, e)) return e->status;
    c->seen[c->n] = seen;
    int dim = seen ? info->pictures.dim : info->dim;
    for (int i = 0; i < c->n && !*copy; i++)
        *copy = c->seen[i] == seen && multiply(own, c->vectors + (size_t)i * row, dim) > c->query->choice.distinct;
    return STATUS_OK;
}

static bool is_too_many(const struct chosen *c, int64_t document) {
    int same = 0;
    for (int i = 0; i < c->n; i++) same += c->documents[i] == document;
    return c->query->choice.per_document > 0 && same >= c->query->choice.per_document;
}

/* Whether the vectors that the pictures of two equal texts have are equal too, or neither has one. */
static enum status compare_pictures(const struct chosen *c, int64_t a, int64_t b, bool *same, struct error *e) {
    size_t dim = (size_t)snapshot_info(c->snapshot)->pictures.dim;
    float *vectors = xcalloc(2 * dim + 1, sizeof *vectors);
    bool has_a = false, has_b = false;
    enum status status = snapshot_picture_vector(c->snapshot, a, vectors, &has_a, e);
    if (status == STATUS_OK) status = snapshot_picture_vector(c->snapshot, b, vectors + dim, &has_b, e);
    *same = has_a == has_b && memcmp(vectors, vectors + dim, dim * sizeof *vectors) == 0;
    free(vectors);
    return status;
}

/* *shown: one that stayed is the same piece of another document. */
static enum status find_shown(const struct chosen *c, const struct candidates *found, const struct chunk *chunk,
                              bool *shown, struct error *e) {
    enum status status = STATUS_OK;
    *shown = false;
    for (int i = 0; i < c->n && !*shown && status == STATUS_OK; i++) {
        struct chunk other = snapshot_chunk(c->snapshot, found->ids[i]);
        if (!chunk_is_copy(&other, chunk)) continue;
        *shown = true;
        if (snapshot_info(c->snapshot)->pictures.embedder) status = compare_pictures(c, other.id, chunk->id, shown, e);
    }
    return status;
}

/* Keeps the best k that may stay. */
static enum status choose(struct candidates *found, struct chosen *c, int k, struct error *e) {
    int n = found->n;
    c->n = 0;
    for (int i = 0; i < n && c->n < k; i++) {
        struct chunk chunk = snapshot_chunk(c->snapshot, found->ids[i]);
        bool copy;
        if (found->similarities[i] < c->query->min_similarity) continue;
        if (is_excluded(c->query, &chunk) || is_too_many(c, chunk.document)) continue;
        if (find_shown(c, found, &chunk, &copy, e)) return e->status;
        if (copy) continue;
        if (is_copy(c, chunk.id, &copy, e)) return e->status;
        if (copy) continue;
        c->documents[c->n] = chunk.document;
        found->ids[c->n] = found->ids[i];
        found->similarities[c->n] = found->similarities[i];
        found->by[c->n] = found->by[i];
        c->n++;
    }
    found->n = c->n;
    return STATUS_OK;
}

enum status candidates_find(struct candidates *out, struct snapshot *snapshot, const struct retriever_query *query,
                            int k, struct candidate_vectors vectors, struct error *e) {
    const int64_t n_chunks = store_chunk_limit(snapshot);
    const int most = n_chunks < MOST_CANDIDATES ? (int)n_chunks : MOST_CANDIDATES;
    struct ranking ranking = {.snapshot = snapshot, .query = query, .vectors = vectors};
    struct chosen chosen = chosen_make(snapshot, query, k);
    enum status status = STATUS_OK;
    bool more = true;
    *out = (struct candidates){0};
    for (int64_t width = 2 * (int64_t)k; more && status == STATUS_OK; width *= 2) {
        candidates_free(out);
        ranking.width = (int)(width < most ? width : most);
        *out = candidates_make(ranking.width);
        status = rank(out, &ranking, e);
        if (status == STATUS_OK) status = choose(out, &chosen, k, e);
        more = status == STATUS_OK && out->n < k && ranking.more && ranking.width < most;
    }
    chosen_free(&chosen);
    return status;
}
