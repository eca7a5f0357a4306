/* retrieval/store/store_collection.c: a folder by the table of all collections (retrieval/collection.h). */
#include <stdlib.h>

#include "retrieval/store/store_private.h"

static struct store *store_of(struct collection *c) { return (struct store *)c; }

static void table_close(struct collection *c) { store_close(store_of(c)); }
static struct snapshot *table_hold(struct collection *c) { return store_hold(store_of(c)); }
static enum status table_follow(struct collection *c, struct error *e) { return store_follow(store_of(c), e); }

static enum status table_search(struct collection *c, struct snapshot *s, const struct nearest_query *q,
                                struct nearest_found *out, struct error *e) {
    size_t n = (size_t)q->n * (size_t)q->k;
    struct index_query query = {.vectors = q->vectors, .n = q->n, .k = q->k};
    (void)c;
    out->ids = xmalloc(n * sizeof *out->ids);
    out->similarities = xmalloc(n * sizeof *out->similarities);
    enum status status =
        (q->pictures ? store_search_pictures : store_search)(s, q->filter, query, out->ids, out->similarities, e);
    if (status == STATUS_OK) out->snapshot = snapshot_hold(s);
    return status;
}

static enum status table_search_words(struct collection *c, struct snapshot *s, const struct word_query *q,
                                      int64_t *ids, struct error *e) {
    (void)c;
    return store_search_words(s, q, ids, e);
}

static enum status table_find(struct collection *c, const struct filter *filter, const char *id,
                              struct collection_found *out, struct error *e) {
    return store_find_allowed(store_of(c), filter, id, &out->snapshot, &out->document, e);
}

static enum status table_walk(struct collection *c, const struct collection_walk *w, struct error *e) {
    struct snapshot *snapshot = w->snapshot ? snapshot_hold(w->snapshot) : table_hold(c);
    enum status status = store_walk(snapshot, w->take, w->context, e);
    snapshot_release(snapshot);
    return status;
}

static enum status table_count(struct collection *c, struct filter *filter, int64_t *n_documents, int64_t *n_chunks,
                               struct error *e) {
    struct snapshot *snapshot = table_hold(c);
    (void)e;
    store_count(snapshot, filter, n_documents, n_chunks);
    snapshot_release(snapshot);
    return STATUS_OK;
}

static enum status table_shows_all(struct collection *c, const struct filter *filter, const char *const *ids, int n,
                                   bool *shows, struct error *e) {
    (void)e;
    for (int i = 0; i < n; i++) shows[i] = store_shows(store_of(c), filter, ids[i]);
    return STATUS_OK;
}

static enum status table_has_all(struct collection *c, const struct collection_document *const *documents, int n,
                                 bool *has, struct error *e) {
    (void)e;
    for (int i = 0; i < n; i++) has[i] = store_has(store_of(c), documents[i]);
    return STATUS_OK;
}

static void table_put_all(struct collection *c, const struct filter *filter, struct document_put *puts, int n) {
    for (int i = 0; i < n; i++) {
        struct document_put *p = &puts[i];
        p->status = store_put_allowed(store_of(c), filter, p->document, p->vectors, &p->effect, &p->error);
    }
}

static enum status table_remove(struct collection *c, const struct filter *filter, const char *id, struct error *e) {
    return store_delete_allowed(store_of(c), filter, id, e);
}

static enum status table_move(struct collection *c, const char *device, struct error *e) {
    return store_move(store_of(c), device, e);
}

static struct collection_changes table_changes(struct collection *c) { return store_count_changes(store_of(c)); }

static enum status table_compact(struct collection *c, const atomic_bool *cancelled, struct error *e) {
    return store_compact(store_of(c), cancelled, e);
}

const struct collection_ops store_ops = {.close = table_close,
                                         .hold = table_hold,
                                         .follow = table_follow,
                                         .search = table_search,
                                         .search_words = table_search_words,
                                         .find = table_find,
                                         .walk = table_walk,
                                         .count = table_count,
                                         .shows_all = table_shows_all,
                                         .has_all = table_has_all,
                                         .put_all = table_put_all,
                                         .remove = table_remove,
                                         .move = table_move,
                                         .changes = table_changes,
                                         .compact = table_compact};

struct collection *store_collection(struct store *l) {
    return &l->base;
}
