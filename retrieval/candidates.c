/* retrieval/candidates.c: see candidates.h. More candidates are asked for, twice as many each time, until enough of
 * them may stay or there are no more. */
#include "retrieval/candidates.h"

#include <stdlib.h>
#include <string.h>

/* Candidates that are asked for at most, and ranks that fusion looks at, at least. Reciprocal rank fusion is that of
 * Cormack, Clarke and Buettcher (SIGIR 2009); its constant, and what a rank by words is worth beside one by vectors,
 * are those that docs/results/retrieval.md chose. */
enum { MOST_CANDIDATES = 1 << 28, FUSED_RANKS = 100, FUSION_CONSTANT = 10 };
static const double words_share = 0.5;

void candidates_free(struct candidates *c) {
    free(c->ids);
    free(c->similarities);
    *c = (struct candidates){0};
}

static struct candidates candidates_make(int n) {
    return (struct candidates){.ids = xmalloc((size_t)n * sizeof(int64_t)),
                               .similarities = xmalloc((size_t)n * sizeof(float))};
}

static int count_found(const int64_t *ids, int n) {
    int found = 0;
    while (found < n && ids[found] >= 0) found++;
    return found;
}

static float multiply(const float *a, const float *b, int dim) {
    double sum = 0;
    for (int i = 0; i < dim; i++) sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* Ranking. */

static enum status rank_by_vector(struct candidates *c, struct snapshot *view, struct filter *filter,
                                  struct index_query one, struct error *e) {
    enum status status = view_search(view, filter, one, c->ids, c->similarities, e);
    c->n = status ? 0 : count_found(c->ids, one.k);
    return status;
}

static enum status rank_by_words(struct candidates *c, struct snapshot *view, const struct retriever_query *query,
                                 struct index_query one, struct error *e) {
    int dim = view_info(view)->dim;
    float *vector = xmalloc((size_t)dim * sizeof *vector);
    enum status status = view_search_words(view, query->filter, query->text, one.k, c->ids, e);
    c->n = status ? 0 : count_found(c->ids, one.k);
    for (int i = 0; i < c->n && status == STATUS_OK; i++) {
        status = view_vector(view, c->ids[i], vector, e);
        if (status == STATUS_OK) c->similarities[i] = multiply(one.vectors, vector, dim);
    }
    free(vector);
    return status;
}

/* A chunk with the sum of what its ranks are worth. */
struct fused {
    int64_t id;
    float similarity;
    double worth;
};

static int compare_fused(const void *a, const void *b) {
    const struct fused *x = a, *y = b;
    if (x->worth != y->worth) return x->worth > y->worth ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int compare_ids(const void *a, const void *b) {
    const struct fused *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The two ranks of a chunk that is in both lists become one entry. Returns how many chunks there are. */
static int join_ranks(struct fused *all, int n) {
    int kept = 0;
    if (n > 0) qsort(all, (size_t)n, sizeof *all, compare_ids);
    for (int i = 0; i < n; i++) {
        bool again = kept > 0 && all[kept - 1].id == all[i].id;
        if (again) all[kept - 1].worth += all[i].worth;
        if (again) continue;
        all[kept] = all[i];
        kept++;
    }
    return kept;
}

static void fuse(struct candidates *out, const struct candidates *a, const struct candidates *b, int most) {
    struct fused *all = xmalloc(((size_t)a->n + (size_t)b->n + 1) * sizeof *all);
    int n = a->n + b->n;
    for (int i = 0; i < a->n; i++)
        all[i] = (struct fused){a->ids[i], a->similarities[i], 1.0 / (FUSION_CONSTANT + i + 1)};
    for (int i = 0; i < b->n; i++)
        all[a->n + i] = (struct fused){b->ids[i], b->similarities[i], words_share / (FUSION_CONSTANT + i + 1)};
    n = join_ranks(all, n);
    if (n > 0) qsort(all, (size_t)n, sizeof *all, compare_fused);
    out->n = min_int(n, most);
    for (int i = 0; i < out->n; i++) {
        out->ids[i] = all[i].id;
        out->similarities[i] = all[i].similarity;
    }
    free(all);
}

static enum status rank_by_both(struct candidates *c, struct snapshot *view, const struct retriever_query *query,
                                struct index_query one, struct error *e) {
    int most = one.k;
    one.k = max_int(most, FUSED_RANKS);
    struct candidates nearest = candidates_make(one.k), words = candidates_make(one.k);
    enum status status = rank_by_vector(&nearest, view, query->filter, one, e);
    if (status == STATUS_OK) status = rank_by_words(&words, view, query, one, e);
    if (status == STATUS_OK) fuse(c, &nearest, &words, most);
    candidates_free(&nearest);
    candidates_free(&words);
    return status;
}

static enum status rank(struct candidates *c, struct snapshot *view, const struct retriever_query *query,
                        struct index_query one, struct error *e) {
    switch (query->choice.way) {
        case RETRIEVE_WORDS: return rank_by_words(c, view, query, one, e);
        case RETRIEVE_BOTH: return rank_by_both(c, view, query, one, e);
        case RETRIEVE_NEAREST: break;
    }
    return rank_by_vector(c, view, query->filter, one, e);
}

/* Leaving out. */

static bool span_names(struct text_span name, const char *word) {
    return strlen(word) == name.size && memcmp(word, name.text, name.size) == 0;
}

static bool is_excluded(const struct retriever_query *query, const struct chunk *chunk) {
    for (int i = 0; i < query->n_excluded; i++)
        if (span_names(query->excluded[i], chunk->path) || span_names(query->excluded[i], chunk->document_id))
            return true;
    return false;
}

/* The candidates that stayed so far, and room for one more. */
struct chosen {
    const struct retriever_query *query;
    struct snapshot *view;
    int64_t *documents; /* [n] */
    float *vectors;     /* [n, dim] where near-duplicates are left out */
    int n, dim;
};

/* Reads the chunk's vector behind those that stayed; *copy: it is too near to one of them. */
static enum status is_copy(struct chosen *c, int64_t id, bool *copy, struct error *e) {
    size_t dim = (size_t)c->dim;
    *copy = false;
    if (c->query->choice.distinct <= 0) return STATUS_OK;
    float *own = c->vectors + (size_t)c->n * dim;
    if (view_vector(c->view, id, own, e)) return e->status;
    for (int i = 0; i < c->n && !*copy; i++)
        *copy = multiply(own, c->vectors + (size_t)i * dim, c->dim) > c->query->choice.distinct;
    return STATUS_OK;
}

static bool is_too_many(const struct chosen *c, int64_t document) {
    int same = 0;
    for (int i = 0; i < c->n; i++) same += c->documents[i] == document;
    return c->query->choice.per_document > 0 && same >= c->query->choice.per_document;
}

/* Keeps the best k that may stay. */
static enum status choose(struct candidates *found, struct chosen *c, int k, struct error *e) {
    int n = found->n;
    c->n = 0;
    for (int i = 0; i < n && c->n < k; i++) {
        struct chunk chunk = view_chunk(c->view, found->ids[i]);
        bool copy;
        if (found->similarities[i] < c->query->min_similarity) continue;
        if (is_excluded(c->query, &chunk) || is_too_many(c, chunk.document)) continue;
        if (is_copy(c, chunk.id, &copy, e)) return e->status;
        if (copy) continue;
        c->documents[c->n] = chunk.document;
        found->ids[c->n] = found->ids[i];
        found->similarities[c->n] = found->similarities[i];
        c->n++;
    }
    found->n = c->n;
    return STATUS_OK;
}

enum status candidates_find(struct candidates *out, struct snapshot *view, const struct retriever_query *query,
                            struct index_query one, struct error *e) {
    const int64_t n_chunks = view_chunk_limit(view);
    const int k = one.k, most = n_chunks < MOST_CANDIDATES ? (int)n_chunks : MOST_CANDIDATES;
    struct chosen chosen = {.query = query, .view = view, .dim = view_info(view)->dim};
    chosen.documents = xmalloc((size_t)k * sizeof *chosen.documents);
    if (query->choice.distinct > 0) chosen.vectors = xmalloc((size_t)k * (size_t)chosen.dim * sizeof *chosen.vectors);
    enum status status = STATUS_OK;
    bool more = true;
    *out = (struct candidates){0};
    for (int64_t width = 2 * (int64_t)k; more && status == STATUS_OK; width *= 2) {
        candidates_free(out);
        one.k = (int)(width < most ? width : most);
        *out = candidates_make(one.k);
        status = rank(out, view, query, one, e);
        int n_found = out->n;
        if (status == STATUS_OK) status = choose(out, &chosen, k, e);
        more = status == STATUS_OK && out->n < k && n_found == one.k && one.k < most;
    }
    free(chosen.documents);
    free(chosen.vectors);
    return status;
}
